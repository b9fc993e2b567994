// SPDX-License-Identifier: MIT OR Apache-2.0
//! https: certificates.

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use framepath_testkit::harness::{Tested, needs_program};

use super::files::{Python, made_clips};
use super::server::{Server, head, send};
use super::{hashes, run, url};

/// Makes a certificate that signs itself, for `name`, in the files `FILE.pem` and `FILE.key` of `folder`.
fn certificate(folder: &Path, file: &str, name: &str, more: &[&str]) -> String {
    let (pem, key) = (folder.join(format!("{file}.pem")), folder.join(format!("{file}.key")));
    let (pem, key) = (pem.to_str().unwrap(), key.to_str().unwrap());
    let alternative = format!("subjectAltName={name}");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=test", "-keyout", key, "-out", pem, "-addext", &alternative])
        .args(more)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success());
    pem.to_owned()
}

const SECURE: &str = "
import http.server, ssl
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('CERT.pem', 'CERT.key')
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port)
server.serve_forever()
";

const NO_AUTHORITY: &[&str] = &["-addext", "basicConstraints=critical,CA:FALSE"];

pub fn a_certificate_is_verified() -> Tested {
    needs_program("python3", "python3")?;
    needs_program("openssl", "openssl")?;
    let (folder, names) = made_clips();
    let clip = names.iter().find(|name| name.ends_with("clip.mkv")).unwrap();
    let expected = hashes(&format!("file {clip} ! decode"));
    let good = certificate(folder.path(), "good", "IP:127.0.0.1", NO_AUTHORITY);
    let other = certificate(folder.path(), "other", "IP:127.0.0.1", NO_AUTHORITY);
    let elsewhere = certificate(folder.path(), "elsewhere", "DNS:example.org", NO_AUTHORITY);
    let authority = certificate(folder.path(), "authority", "IP:127.0.0.1", &[]);
    let served = |name: &str| Python::run(&SECURE.replace("CERT", name), folder.path().to_str().unwrap());
    let address = |python: &Python| format!("https://127.0.0.1:{}/clip.mkv", python.port);
    let refused = |python: &Python, options: &str, reason: &str| {
        run(&format!("{} ! null", url(&address(python), options))).ended(1).prints(reason);
    };
    let python = served("good");
    assert_eq!(hashes(&url(&address(&python), &format!("ca={good}"))), expected);
    refused(&python, "", "no trusted authority has signed");
    refused(&python, &format!("ca={other}"), "TLS: ");
    refused(&python, "ca=/none.pem", "/none.pem");
    refused(&python, &format!("ca={clip}"), "no certificate");
    refused(&served("elsewhere"), &format!("ca={elsewhere}"), "TLS: the server's certificate is not valid");
    refused(&served("authority"), &format!("ca={authority}"), "basicConstraints=CA:FALSE");
    Ok(())
}

pub fn https_never_becomes_http() -> Tested {
    needs_program("python3", "python3")?;
    needs_program("openssl", "openssl")?;
    let folder = tempfile::tempdir().unwrap();
    let pem = certificate(folder.path(), "good", "IP:127.0.0.1", NO_AUTHORITY);
    let plain = Server::start(|_, stream| send(stream, head("404 Not Found", &[]).as_bytes()));
    let redirecting = SECURE
        .replace("CERT", "good")
        .replace(
            "server = ",
            "class Redirect(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(302)
        self.send_header('Location', 'TARGET')
        self.send_header('Content-Length', '0')
        self.end_headers()
server = ",
        )
        .replace("SimpleHTTPRequestHandler", "BaseHTTPRequestHandler")
        .replace("0), http.server.BaseHTTPRequestHandler", "0), Redirect")
        .replace("TARGET", &plain.url("a.mp4"));
    let python = Python::run(&redirecting, folder.path().to_str().unwrap());
    let address = format!("https://127.0.0.1:{}/a.mp4", python.port);
    run(&format!("{} ! null", url(&address, &format!("ca={pem}"))))
        .ended(1)
        .prints("from https to the unencrypted");
    assert_eq!(plain.requests().len(), 0);
    Ok(())
}

pub fn a_server_without_tls_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        send(&mut stream, head("400 Bad Request", &[]).as_bytes());
        // Until the client has enough.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let ran = run(&format!("{} ! null", url(&format!("https://{address}/a.mp4"), ""))).ended(1);
    ran.prints("does the server speak TLS on this port?");
    answering.join().unwrap();
}
