// SPDX-License-Identifier: MIT OR Apache-2.0
//! Colours and fonts of the report, for light screens, dark screens and paper.

/// Style sheet of the page. The colours come from the set of Okabe and Ito, which readers with
/// the common kinds of colour blindness can distinguish. The light and the dark theme have
/// different shades of these colours: the contrast to the background is at least 3:1 for lines
/// and bars, and 4.5:1 for text.
pub const SHEET: &str = r#"
:root{color-scheme:light dark;
--ground:#fff;--panel:#f6f7f9;--ink:#1a1e23;--soft:#57606b;--grid:#e2e5e9;--rule:#c5cad1;
--blue:#0067a5;--sky:#2f95d0;--green:#00845f;--vermilion:#c54a00;--orange:#b87500;
--purple:#a8487f;--grey:#6e7681;
--compute:#0067a5;--compute-ink:#fff;--copy:#e69f00;--copy-ink:#1a1e23;--queue:#00845f;--queue-ink:#fff;
--wakeup:#7cc3ee;--wakeup-ink:#1a1e23;--preempted:#c54a00;--preempted-ink:#fff;
--throttled:#9a2fe0;--throttled-ink:#fff;--stopped:#e0115f;--stopped-ink:#fff;--stolen:#8a5a2b;--stolen-ink:#fff;
--blocked:#d18ab3;--blocked-ink:#1a1e23;--device:#e8dc3c;--device-ink:#1a1e23;
--network:#6d4c33;--network-ink:#fff;--held:#b9d7a8;--held-ink:#1a1e23;--pool:#5b4a9c;--pool-ink:#fff;
--paced:#d9d2c3;--paced-ink:#1a1e23;--unexplained:#9aa1aa;--unexplained-ink:#1a1e23}
@media (prefers-color-scheme:dark){:root{
--ground:#14171a;--panel:#1b1f23;--ink:#e8eaed;--soft:#a3acb7;--grid:#2b3137;--rule:#454d56;
--blue:#4ba8e8;--sky:#9bd3f7;--green:#2dc49a;--vermilion:#ff7f41;--orange:#f0b440;
--purple:#df8fbd;--grey:#9aa3ae;
--compute:#4ba8e8;--compute-ink:#14171a;--copy:#f0b440;--copy-ink:#14171a;--queue:#2dc49a;--queue-ink:#14171a;
--wakeup:#bfe3fa;--wakeup-ink:#14171a;--preempted:#ff7f41;--preempted-ink:#14171a;
--throttled:#cf93ff;--throttled-ink:#14171a;--stopped:#ff6f9c;--stopped-ink:#14171a;--stolen:#d6a878;--stolen-ink:#14171a;
--blocked:#df8fbd;--blocked-ink:#14171a;--device:#f0e55a;--device-ink:#14171a;
--network:#b98d6a;--network-ink:#14171a;--held:#cfe8c0;--held-ink:#14171a;--pool:#a594ec;--pool-ink:#14171a;
--paced:#5c5648;--paced-ink:#e8eaed;--unexplained:#7d8690;--unexplained-ink:#14171a}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI","Liberation Sans",Arial,sans-serif}
main{max-width:1160px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;line-height:1.2;margin:0 0 4px}
h2{font-size:20px;margin:44px 0 8px;padding-top:14px;border-top:1px solid var(--rule)}
h3{font-size:16px;line-height:1.35;margin:0 0 8px;text-wrap:balance}
h4{font-size:14px;margin:22px 0 4px}
p,li{max-width:78ch}
.lead{color:var(--soft);margin:0}
.runs{display:grid;gap:28px;grid-template-columns:repeat(var(--runs),minmax(0,1fr))}
.of{font-size:13px;color:var(--soft);margin:0 0 6px}
figure{margin:20px 0 0;break-inside:avoid}
figcaption{color:var(--soft);font-size:13px;margin-top:6px;max-width:95ch}
svg{display:block;max-width:100%;height:auto;font:12px system-ui,-apple-system,"Segoe UI","Liberation Sans",Arial,sans-serif}
svg text{fill:var(--ink)}
svg .soft{fill:var(--soft)}
svg .bold{font-weight:600}
svg .grid{stroke:var(--grid);stroke-width:1}
svg .minor{stroke:var(--grid);stroke-width:.5}
svg .axis{stroke:var(--rule);stroke-width:1}
svg .line{fill:none;stroke:var(--c);stroke-width:2.25;stroke-linejoin:round}
svg .dash{stroke-dasharray:6 4}
svg .lead-line{stroke:var(--c);stroke-width:1;opacity:.6}
svg .dot{fill:var(--c)}
svg .ring{fill:var(--ground);stroke:var(--c);stroke-width:1.5}
svg .bar{fill:var(--c)}
svg .pale{fill:var(--c);opacity:.55}
svg .whisker{stroke:var(--ink);stroke-width:1.25}
svg .range{stroke:var(--c);stroke-width:1.5}
svg .thick{stroke:var(--c);stroke-width:6;opacity:.45}
svg .tick{stroke:var(--c);stroke-width:2}
svg .reference{stroke:var(--ink);stroke-width:1;stroke-dasharray:2 3}
svg .piece{stroke:var(--ground);stroke-width:1}
.blue{--c:var(--blue)}.sky{--c:var(--sky)}.green{--c:var(--green)}.vermilion{--c:var(--vermilion)}
.orange{--c:var(--orange)}.purple{--c:var(--purple)}.grey{--c:var(--grey)}
svg .k-compute{fill:var(--compute)}svg .k-copy{fill:var(--copy)}svg .k-queue{fill:var(--queue)}
svg .k-wakeup{fill:var(--wakeup)}svg .k-preempted{fill:var(--preempted)}svg .k-blocked{fill:var(--blocked)}
svg .k-throttled{fill:var(--throttled)}svg .k-stopped{fill:var(--stopped)}svg .k-stolen{fill:var(--stolen)}
svg .k-device{fill:var(--device)}svg .k-network{fill:var(--network)}svg .k-held{fill:var(--held)}svg .k-pool{fill:var(--pool)}svg .k-paced{fill:var(--paced)}svg .k-unexplained{fill:var(--unexplained)}
svg .i-compute{fill:var(--compute-ink)}svg .i-copy{fill:var(--copy-ink)}svg .i-queue{fill:var(--queue-ink)}
svg .i-wakeup{fill:var(--wakeup-ink)}svg .i-preempted{fill:var(--preempted-ink)}svg .i-blocked{fill:var(--blocked-ink)}
svg .i-throttled{fill:var(--throttled-ink)}svg .i-stopped{fill:var(--stopped-ink)}svg .i-stolen{fill:var(--stolen-ink)}
svg .i-device{fill:var(--device-ink)}svg .i-network{fill:var(--network-ink)}svg .i-held{fill:var(--held-ink)}svg .i-pool{fill:var(--pool-ink)}svg .i-paced{fill:var(--paced-ink)}svg .i-unexplained{fill:var(--unexplained-ink)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;margin:6px 0}
th,td{padding:3px 12px 3px 0;text-align:left;vertical-align:baseline;white-space:nowrap;border-bottom:1px solid var(--grid)}
th{font-weight:600;color:var(--soft);border-bottom-color:var(--rule)}
td.n,th.n{text-align:right}
td.wrap{white-space:normal;min-width:22em}
h1,h2,h3,h4,p,li,dd,figcaption,code{overflow-wrap:anywhere}
.less,.more{font-weight:600}
details{margin:8px 0}
summary{cursor:pointer;color:var(--soft)}
code{font:13px ui-monospace,"Liberation Mono",Menlo,Consolas,monospace;background:var(--panel);padding:1px 4px;border-radius:3px}
dl{display:grid;grid-template-columns:fit-content(45%) minmax(0,1fr);gap:2px 16px;font-size:13px;margin:6px 0}
dt{color:var(--soft)}dd{margin:0}
.medium,.narrow{display:none}
@media (max-width:1159px){.runs{grid-template-columns:minmax(0,1fr)}.wide{display:none}.medium{display:block}}
@media (max-width:767px){.medium{display:none}.narrow{display:block}}
@media print{:root{color-scheme:light}main{max-width:none;padding:0}h2{break-after:avoid}body{font-size:12px}}
"#;

/// Returns the style of contender `name`: the CSS class of a colour, and true for a dashed line or a paler
/// bar. The style is the same in every picture. A dashed line or a paler bar marks a variant of the contender
/// with the same colour. An unknown name gets a full line, and a colour that depends on nothing but the name.
pub fn contender_style(name: &str) -> (&'static str, bool) {
    const OTHERS: [&str; 7] = ["blue", "orange", "green", "purple", "vermilion", "sky", "grey"];
    match name {
        "queue" | "inline" | "raw" => ("blue", false),
        "queue-times" => ("blue", true),
        "direct" | "service" => ("green", false),
        "direct-times" => ("green", true),
        "inline-t1" => ("sky", false),
        "inline-native" => ("sky", true),
        "process" => ("purple", false),
        "process-t1" => ("purple", true),
        "gst-queue" | "ffmpeg" => ("vermilion", false),
        "gst-queue-reuse" | "ffmpeg-t1" => ("vermilion", true),
        "device" => ("orange", false),
        "ffmpeg-v4l2m2m" => ("orange", true),
        "gst-direct-reuse" => ("orange", true),
        "gst-queue2" => ("purple", false),
        "gst-direct" => ("orange", false),
        "gst-unixfd" => ("vermilion", false),
        "gst-shm" => ("orange", false),
        "iceoryx2-wait" => ("purple", false),
        "iceoryx2-poll" => ("purple", true),
        "unix-socket" => ("grey", false),
        "bare" | "memcpy" => ("grey", false),
        "bare-t1" => ("grey", true),
        _ => {
            let sum = name.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            (OTHERS[sum % OTHERS.len()], false)
        }
    }
}
