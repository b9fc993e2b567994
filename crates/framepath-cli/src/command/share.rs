// SPDX-License-Identifier: MIT OR Apache-2.0
//! `framepath share`: sends this screen, or the frames of any path, to viewers.

use crate::command::run::RunArgs;
use crate::exit_status::ExitStatus;

const EXAMPLES: &str = "\
Examples:
  framepath share                                this screen, for viewers on this computer
  framepath share --listen 192.168.1.5:8443      for viewers on the network
  framepath share 'v4l2 /dev/video0'             a camera
  framepath share 'file film.mkv rate=25 ! decode'

The command prints a pairing code and its QR code; the viewer runs `framepath view CODE`. The
code has the address, the fingerprint of this sender's certificate and a secret, which is
new for each run. The video is encrypted (DTLS, SRTP). Anyone who knows the code can watch:
give it to the viewers only. The command also prints a link for browsers, with the secret; its
page comes without encryption, so use it on networks that you trust. A line on standard error reports each viewer that joins or
leaves. Ctrl-C ends the stream for all viewers.

Type a line, on the terminal or into standard input (a pipe or FIFO):
  viewers      lists the viewers: number, address, time, frames sent and dropped, bit rate
  table        shows where the frames of the last 5 s spent their time, also at the viewers
  end NUMBER   ends the session of one viewer; its `view` ends with this reason and exit code 1
  end all      ends all sessions
A viewer whose session was ended can join again with the same code. A new `share` has a new code.

On this computer only, `framepath top --sender ADDRESS:PORT` shows the same figures live, and
http://ADDRESS:PORT/metrics serves them to Prometheus.

The same as a path, to which other options can be added (docs/stream.md):
  framepath run 'screen ! convert format=yuv420p ! encode h264 bitrate=8M crf=22 gop=inf ! send qr=yes control=yes'

LAN and routed networks only: no STUN, no TURN.";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShareArgs {
    /// Source of the frames, and stages behind it, as in `framepath run`, without a sink
    #[arg(value_name = "PATH", default_value = "screen")]
    path: String,

    /// IP address and port for viewers; the default is this computer only, 0.0.0.0 is all networks
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8443")]
    listen: String,

    /// Highest bit rate of the video, bits per second
    #[arg(long, value_name = "BITS", default_value = "8M")]
    bitrate: String,

    /// Lowest bit rate on a slow network, bits per second [default: a quarter of --bitrate]
    #[arg(long, value_name = "BITS")]
    min_bitrate: Option<String>,

    /// While the stream runs, show each second where the frames of the last 5 s spent their time, also at the viewers
    #[arg(long)]
    live: bool,

    /// Print no summary at the end
    #[arg(long)]
    quiet: bool,
}

impl ShareArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitStatus> {
        let quote = framepath::path::quote;
        let ShareArgs { path, listen, bitrate, min_bitrate, live, quiet } = self;
        // A source may read standard input itself.
        let control = if path.split_whitespace().any(|word| word == "-") { "no" } else { "yes" };
        let [listen, bitrate] = [&listen, &bitrate].map(|word| quote(word));
        let min_bitrate =
            min_bitrate.map_or_else(String::new, |bits| format!(" min_bitrate={}", quote(&bits)));
        let path = format!(
            "{path} ! convert format=yuv420p ! encode h264 bitrate={bitrate}{min_bitrate} crf=22 gop=inf ! send \
             listen={listen} qr=yes control={control}"
        );
        RunArgs::of_path(path, live, quiet).run()
    }
}
