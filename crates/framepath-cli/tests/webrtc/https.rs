// SPDX-License-Identifier: MIT OR Apache-2.0
//! WHEP over HTTPS: a server whose TLS is that of a program in front of the sender.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use framepath_testkit::harness::{Tested, needs_program};
use framepath_testkit::{finish, framepath};

use crate::clip::{h264, hashes, hashes_of};
use crate::sender::start;

/// Makes a certificate of its own authority for `localhost`. Returns the files of it and of its key.
fn certificate(folder: &Path) -> [PathBuf; 2] {
    let files = ["certificate.pem", "key.pem"].map(|name| folder.join(name));
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]);
    openssl.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    openssl.arg("-out").arg(&files[0]).arg("-keyout").arg(&files[1]);
    let made = openssl.output().unwrap();
    assert!(made.status.success(), "{made:?}");
    files
}

/// Program that encrypts. It ends with this value.
struct Encryption {
    child: Child,
    port: u16,
}

impl Encryption {
    fn start(folder: &Path, [certificate, key]: &[PathBuf; 2], port: u16) -> Encryption {
        let program = folder.join("tls.py");
        std::fs::write(&program, include_str!("tls.py")).unwrap();
        let mut command = Command::new("python3");
        command.arg(program).arg(certificate).arg(key).arg(port.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Encryption { child, port: line.trim().parse().unwrap() }
    }
}

impl Drop for Encryption {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn a_server_with_a_certificate_is_trusted_and_others_are_not() -> Tested {
    needs_program("openssl", "openssl")?;
    needs_program("python3", "python3")?;
    let folder = tempfile::tempdir().unwrap();
    let clip = h264(folder.path(), "clip.mp4", "0");
    let files = certificate(folder.path());
    let sending = start(&clip, "rate=100", "wait=1 token=lab");
    let encryption = Encryption::start(folder.path(), &files, sending.port);
    let receive = |host: &str, trusted: Option<&Path>| {
        let url = format!("https://{host}:{}/whep", encryption.port);
        let path = format!("recv {url} token=lab latency=5s timeout=20s ! decode ! framemd5 -");
        let mut command = framepath(&["run", "--quiet", &path]);
        command.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
        command.envs(trusted.map(|file| ("SSL_CERT_FILE", file)));
        finish(command)
    };
    receive("localhost", None)
        .ended(1)
        .prints("TLS with localhost: the certificate is not valid: self-signed certificate");
    receive("127.0.0.1", Some(&files[0]))
        .ended(1)
        .prints("TLS with 127.0.0.1: the certificate is not valid: ");
    let received = receive("localhost", Some(&files[0])).ended(0);
    assert_eq!(hashes(&received.frames()), hashes_of(&clip));
    sending.end().ended(0);
    // A server without TLS.
    let sending = start(&clip, "rate=100", "wait=1 token=lab");
    let path = format!("recv https://127.0.0.1:{}/whep token=lab timeout=5s ! null", sending.port);
    finish(framepath(&["run", "--quiet", &path])).ended(1).prints("TLS with 127.0.0.1: ");
    sending.signal(rustix::process::Signal::INT);
    sending.end();
    Ok(())
}
