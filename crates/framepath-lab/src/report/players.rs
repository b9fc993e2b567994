// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table of lab `players`, after Beauchesne: CPU shares in a row per platform, player, decode API and
//! output, and a column per clip.

use std::fmt::Write;

use framepath_model::summary::{Machine, Summary, SummaryRow};

use super::LabRun;
use super::svg::escape;

/// The programs whose versions the table of platforms lists.
const PLAYERS: [&str; 6] = ["framepath", "mpv", "ffplay", "mplayer", "gst-play", "vlc"];

/// Creates the HTML of all runs of `players`: heading, platforms, CPU shares. Empty if there is no
/// such run.
pub fn table(runs: &[LabRun]) -> String {
    let platforms: Vec<(&str, &Summary)> = runs
        .iter()
        .flat_map(|run| run.summaries.iter().map(|summary| (run.label.as_str(), summary)))
        .filter(|(_, summary)| summary.experiment == "players")
        .collect();
    if platforms.is_empty() {
        return String::new();
    }
    let mut html = String::from("<h2 id=\"players\">Players</h2>");
    html.push_str(&heading(&platforms));
    html.push_str(&cells(&platforms));
    html
}

/// Creates the HTML table of the platforms, a column each. Omits lines without any value.
fn heading(platforms: &[(&str, &Summary)]) -> String {
    type Fact = (&'static str, fn(&Machine) -> Option<String>);
    let facts: [Fact; 6] = [
        ("CPU", |machine| Some(format!("{}, {} cores", machine.cpu, machine.cores))),
        ("GPU", |machine| Some(machine.gpu.clone().unwrap_or_else(|| "none".to_owned()))),
        ("graphics driver", |machine| Some(machine.gpu_driver.clone().unwrap_or_else(|| "none".to_owned()))),
        ("display", |machine| machine.display.clone()),
        ("kernel", |machine| Some(machine.kernel.clone())),
        ("system", |machine| machine.os.clone()),
    ];
    let mut html = String::from("<div class=\"scroll\"><table><tr><th></th>");
    for (label, _) in platforms {
        let _ = write!(html, "<th>{}</th>", escape(label));
    }
    html.push_str("</tr>");
    let mut line = |name: &str, values: Vec<Option<String>>| {
        if values.iter().all(Option::is_none) {
            return;
        }
        let _ = write!(html, "<tr><td>{}</td>", escape(name));
        for value in values {
            let _ = write!(html, "<td class=\"wrap\">{}</td>", escape(&value.unwrap_or_default()));
        }
        html.push_str("</tr>");
    };
    for (name, fact) in facts {
        line(name, platforms.iter().map(|(_, summary)| fact(&summary.machine)).collect());
    }
    for player in PLAYERS {
        let version = |summary: &Summary| summary.machine.versions.get(player).cloned();
        line(player, platforms.iter().map(|(_, summary)| version(summary)).collect());
    }
    html.push_str("</table></div>");
    html
}

fn cells(platforms: &[(&str, &Summary)]) -> String {
    let mut clips: Vec<&str> = Vec::new();
    for case in platforms.iter().flat_map(|(_, summary)| summary.cases()) {
        if !clips.contains(&case) {
            clips.push(case);
        }
    }
    let mut reasons: Vec<String> = Vec::new();
    let mut html =
        String::from("<div class=\"scroll\"><table><tr><th>platform</th><th>player</th><th>API/output</th>");
    for clip in &clips {
        let _ = write!(html, "<th class=\"n\">{}</th>", escape(clip));
    }
    html.push_str("</tr>");
    for (label, summary) in platforms {
        for contender in contenders(summary) {
            let Some((player, api, output)) = parts(contender) else { continue };
            let [player, api, output] = [player, api, output].map(escape);
            let _ = write!(html, "<tr><td>{}</td><td>{player}</td><td>{api}/{output}</td>", escape(label));
            for clip in &clips {
                let cell = match summary.row(clip, contender) {
                    Some(row) => share(row),
                    None => reason(summary, clip, contender, &mut reasons),
                };
                let _ = write!(html, "<td class=\"n\">{cell}</td>");
            }
            html.push_str("</tr>");
        }
    }
    html.push_str(
        "</table></div><p class=\"of\">CPU share of the player and its child processes, in percent of one core, \
         without start-up; the figure after the plus is the display server's share. <b>maxed</b>: more than \
         95 % of all cores, or dropped frames; the configuration is unsuitable. <b>equal</b>: every frame of \
         the hardware decoder equals software's, byte by byte.</p>",
    );
    if !reasons.is_empty() {
        html.push_str("<ol>");
        for reason in reasons {
            let _ = write!(html, "<li>{}</li>", escape(&reason));
        }
        html.push_str("</ol>");
    }
    html
}

/// Lists the contenders with a row, in the order of rows, then those that were only skipped in a
/// named case.
fn contenders(summary: &Summary) -> Vec<&str> {
    let mut names = summary.contenders();
    for skipped in summary.skipped.iter().filter(|skipped| skipped.case.is_some()) {
        if !names.contains(&skipped.contender.as_str()) {
            names.push(&skipped.contender);
        }
    }
    names
}

/// Splits a contender's name into player, API and output: `gst-play-software-x11` is gst-play,
/// software, x11. Returns `None` for a name with fewer than two hyphens.
fn parts(contender: &str) -> Option<(&str, &str, &str)> {
    let (rest, output) = contender.rsplit_once('-')?;
    let (player, api) = rest.rsplit_once('-')?;
    Some((player, api, output))
}

fn share(row: &SummaryRow) -> String {
    let Some(share) = row.figure("cpu_share") else { return String::new() };
    let mut cell = format!("{share:.1} %");
    if let Some(server) = row.figure("server_cpu_share") {
        let _ = write!(cell, " + {server:.1}");
    }
    cell.push_str(match row.figure("equal") {
        Some(equal) if equal > 0.0 => ", equal",
        Some(_) => " <b class=\"more\">not equal</b>",
        None => "",
    });
    if row.figure("maxed").is_some_and(|maxed| maxed > 0.0) {
        let dropped = row.figure("dropped").filter(|dropped| *dropped > 0.0);
        let drops = dropped.map_or(String::new(), |dropped| format!(", {dropped:.0} dropped"));
        let _ = write!(cell, " <b class=\"more\">maxed{drops}</b>");
    }
    cell
}

/// Creates the cell of a skipped contender: the number of its reason in `reasons`, to which a new
/// reason is appended. Returns an empty cell if the contender was not skipped.
fn reason(summary: &Summary, clip: &str, contender: &str, reasons: &mut Vec<String>) -> String {
    let of_cell = |case: Option<&str>| case.is_none_or(|case| case == clip);
    let skipped =
        summary.skipped.iter().find(|one| one.contender == contender && of_cell(one.case.as_deref()));
    let Some(skipped) = skipped else { return String::new() };
    let at = match reasons.iter().position(|known| *known == skipped.reason) {
        Some(at) => at,
        None => {
            reasons.push(skipped.reason.clone());
            reasons.len() - 1
        }
    };
    format!("<span title=\"{}\">({})</span>", escape(&skipped.reason), at + 1)
}

#[cfg(test)]
mod tests {
    use framepath_model::summary::Skipped;

    use super::*;

    fn row(case: &str, contender: &str, share: f64, dropped: f64) -> SummaryRow {
        let figures = [
            ("cpu_share", share),
            ("server_cpu_share", 7.25),
            ("dropped", dropped),
            ("maxed", if dropped > 0.0 { 1.0 } else { 0.0 }),
        ];
        SummaryRow {
            case: case.to_owned(),
            contender: contender.to_owned(),
            extra: figures.map(|(key, value)| (key.to_owned(), value)).into(),
            ..SummaryRow::default()
        }
    }

    fn run(label: &str, cpu: &str) -> LabRun {
        let machine = Machine {
            cpu: cpu.to_owned(),
            cores: 2,
            gpu_driver: Some("i915".to_owned()),
            versions: [("mpv".to_owned(), "0.35.1".to_owned())].into(),
            ..Machine::default()
        };
        let summary = Summary {
            experiment: "players".to_owned(),
            machine,
            started_unix_s: None,
            rows: vec![
                row("easy", "mpv-software-x11", 41.26, 0.0),
                row("hard", "mpv-software-x11", 88.0, 12.0),
                row("easy", "gst-play-software-null", 20.0, 0.0),
            ],
            ratios: Vec::new(),
            skipped: vec![Skipped {
                contender: "gst-play-software-null".to_owned(),
                case: Some("hard".to_owned()),
                reason: "exited with 1 <here>".to_owned(),
            }],
            notes: Vec::new(),
        };
        LabRun { label: label.to_owned(), summaries: vec![summary], slow_frames: Vec::new() }
    }

    #[test]
    fn two_machines_share_one_table() {
        // The second run is the first with another machine's name.
        let html = table(&[run("here", "Atom Z530"), run("copied", "Phenom 8450")]);
        for part in [
            "<th>here</th><th>copied</th>",
            "Atom Z530, 2 cores",
            "Phenom 8450, 2 cores",
            "<td>graphics driver</td><td class=\"wrap\">i915</td>",
            "<td>here</td><td>mpv</td><td>software/x11</td><td class=\"n\">41.3 % + 7.2</td>",
            "88.0 % + 7.2 <b class=\"more\">maxed, 12 dropped</b>",
            "<td>copied</td><td>gst-play</td><td>software/null</td>",
            "(1)</span>",
            "<ol><li>exited with 1 &lt;here&gt;</li></ol>",
        ] {
            assert!(html.contains(part), "no {part} in {html}");
        }
        assert_eq!(html.matches("<th class=\"n\">easy</th>").count(), 1);
    }

    #[test]
    fn other_experiments_have_no_player_table() {
        assert_eq!(table(&[LabRun::default()]), "");
    }
}
