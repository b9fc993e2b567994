// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath serve`: a service that decodes for other programs, in the foreground.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{io, thread};

use anyhow::Context;
use framepath::host::default_socket;
use framepath_os::crossing::Listener;
use framepath_os::machine::raise_open_files;
use framepath_os::process::signal::Stops;
use framepath_os::v4l2::attach::Attached;
use framepath_serve::device;
use framepath_serve::{Service, ServiceSettings, UserLimits};

use crate::exit_status::{ExitStatus, UsageError};
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  framepath serve &
  framepath run 'file clip.mp4 ! decode host=service ! framemd5 -'
  framepath serve --socket /tmp/fp.sock --metrics 127.0.0.1:9477
  framepath run 'file clip.mp4 ! decode host=service socket=/tmp/fp.sock ! null'
  curl -s http://127.0.0.1:9477/metrics
  sudo framepath serve --device            (then: ffmpeg -c:v h264_v4l2m2m ...)
  sudo framepath serve --allow-gid 44      (for root, and the group `video` on Debian)

Each stream has its own sandboxed worker. Packets and frames pass directly between
the worker and its client. After Ctrl-C or SIGTERM, running streams may continue for
--grace seconds; a second signal ends them immediately. systemd can pass the socket
to the service: contrib/systemd has the units.

Exit code: 0 after SIGTERM or Ctrl-C, 1 if the service cannot run (also if the address of
--metrics is no loopback address), 2 if another argument is invalid.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Socket for clients; not allowed if systemd passes the socket [default: framepath.sock in
    /// $XDG_RUNTIME_DIR; /run/framepath.sock if the variable is unset or empty, or only that socket exists]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Serve figures for Prometheus at http://ADDR/metrics; ADDR is a loopback address with a port, such as
    /// 127.0.0.1:9477 [default: serve no figures]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    metrics: Option<SocketAddr>,

    /// Also decode for clients of the kernel module's V4L2 decoder (framepath.ko); PATH is the module's
    /// node, /dev/framepath if only PATH is omitted [default, without --device: serve no device]
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "/dev/framepath")]
    device: Option<PathBuf>,

    /// With --device: threads of each decoder behind the device (1 to 16); more threads need more of the
    /// client's buffers
    #[arg(long, value_name = "N", default_value_t = device::DeviceSettings::default().threads, requires = "device",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    device_threads: u32,

    /// With --device: spare workers for the device (0 to 64), so that as many of its streams can start at the
    /// same time without a delay
    #[arg(long, value_name = "N", default_value_t = device::DeviceSettings::default().spares, requires = "device",
          value_parser = clap::value_parser!(u32).range(0..=64))]
    device_spares: u32,

    /// With --device: maximum number of simultaneous device streams per user (1 to 64); clients with
    /// CAP_SYS_RESOURCE have no limit
    #[arg(long, value_name = "N", default_value_t = device::DeviceSettings::default().user_streams, requires = "device",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    device_user_streams: u32,

    /// Allow clients of this user, besides those of the service's own user; may be given several times
    /// [default: only the service's own user]
    #[arg(long, value_name = "UID")]
    allow_uid: Vec<u32>,

    /// Allow clients that are members of this group, too; may be given several times [default: no group]
    #[arg(long, value_name = "GID")]
    allow_gid: Vec<u32>,

    /// Number of spare workers (0 to 64), which run before they are needed, so that as many new streams or
    /// replacements of crashed workers start without a delay
    #[arg(long, value_name = "N", default_value_t = ServiceSettings::default().spares,
          value_parser = clap::value_parser!(u32).range(0..=64))]
    spares: u32,

    /// Maximum number of simultaneous streams per user; a path with a file and a decoder takes two
    #[arg(long, value_name = "N", default_value_t = UserLimits::default().streams,
          value_parser = clap::value_parser!(u32).range(1..))]
    streams: u32,

    /// Maximum number of simultaneous connections per user
    #[arg(long, value_name = "N", default_value_t = UserLimits::default().connections,
          value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,

    /// Maximum number of new streams per user and minute
    #[arg(long, value_name = "N", default_value_t = UserLimits::default().opens_per_minute,
          value_parser = clap::value_parser!(u32).range(1..))]
    opens_per_minute: u32,

    /// Maximum number of crashed or hung workers that the service replaces, per user and minute
    #[arg(long, value_name = "N", default_value_t = UserLimits::default().replacements_per_minute,
          value_parser = clap::value_parser!(u32).range(0..))]
    replacements_per_minute: u32,

    /// Maximum address space of a worker beyond its program, in MiB (64 to 1048576); also for workers behind
    /// the device
    #[arg(long, value_name = "MIB", default_value_t = ServiceSettings::default().memory_bytes >> 20,
          value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    memory: u64,

    /// Seconds (0 to 86400) that running streams may continue after Ctrl-C or SIGTERM; a second signal ends
    /// them at once
    #[arg(long, value_name = "SECONDS", default_value_t = ServiceSettings::default().grace.as_secs(),
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    grace: u64,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "expected an address with a port, such as 127.0.0.1:9477 or [::1]:9477".to_owned())
}

/// Attaches this process to the kernel module's node `path` as the only decoder. Retries for about a
/// second while another decoder is attached, because the kernel takes a moment to detach a decoder that
/// has just ended. Returns an error if another decoder is still attached then; returns any other error
/// at once.
fn attach(path: &Path) -> anyhow::Result<Attached> {
    let mut tries = 0;
    loop {
        match Attached::open(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && tries < 20 => {
                tries += 1;
                thread::sleep(Duration::from_millis(50));
            }
            attached => {
                return attached.with_context(|| {
                    format!(
                        "attaching to `{}`, which needs the kernel module framepath.ko and allows one \
                         decoder (docs/device.md)",
                        path.display()
                    )
                });
            }
        }
    }
}

impl ServeArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        // First, because a passed-in socket has number 3, which an opened file must not take.
        let passed = Listener::passed()?;
        let stops = Stops::open().context("waiting for signals")?;
        raise_open_files();
        let (listener, place) = match (passed, self.socket) {
            (Some(_), Some(_)) => {
                return Err(UsageError(
                    "the service manager passed a socket, and --socket names another; use one of them"
                        .to_owned(),
                )
                .into());
            }
            (Some(listener), None) => (listener, "the socket passed by the service manager".to_owned()),
            (None, named) => {
                let path = named.unwrap_or_else(default_socket);
                // With other users allowed, every user may connect to the socket, because the service itself
                // checks the client's user.
                let others = !self.allow_uid.is_empty() || !self.allow_gid.is_empty();
                let listener = Listener::bind(&path, if others { 0o666 } else { 0o600 });
                let listener = listener.with_context(|| format!("listening at `{}`", path.display()))?;
                (listener, path.display().to_string())
            }
        };
        let settings = ServiceSettings {
            limits: UserLimits {
                connections: self.connections,
                streams: self.streams,
                opens_per_minute: self.opens_per_minute,
                replacements_per_minute: self.replacements_per_minute,
            },
            uids: self.allow_uid,
            gids: self.allow_gid,
            spares: self.spares,
            memory_bytes: self.memory << 20,
            grace: Duration::from_secs(self.grace),
            ..ServiceSettings::default()
        };
        let attached = self.device.as_deref().map(attach).transpose()?;
        let decoding = device::DeviceSettings {
            memory_bytes: settings.memory_bytes,
            threads: self.device_threads,
            spares: self.device_spares,
            user_streams: self.device_user_streams,
            ..Default::default()
        };
        let service = Service::new(listener, self.metrics, settings)?;
        terminal::note(&format!("framepath: serving at {place}"));
        if let Some(address) = service.metrics() {
            terminal::note(&format!("framepath: metrics at http://{address}/metrics"));
        }
        if let (Some(attached), Some(device)) = (attached, &self.device) {
            terminal::note(&format!("framepath: decoding for the clients of {}", device.display()));
            // The thread ends with the process.
            thread::Builder::new().name("fp-device".to_owned()).spawn(move || {
                let Err(error) = device::serve(&attached, &decoding);
                terminal::note(&format!("framepath: serve: the device accepts no more streams: {error}"));
            })?;
        }
        service.run(&stops)?;
        Ok(ExitStatus::Done)
    }
}
