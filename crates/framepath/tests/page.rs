// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of one run as a page: its sentences follow from the rows, and it needs no network.

use framepath::export::page;
use framepath::{Level, Report};
use framepath_testkit::clip;
use framepath_testkit::pipeline::{at, run};

fn page_of(report: &mut Report) -> String {
    let mut bytes = Vec::new();
    page::write(report, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Checks what holds for every page: it is whole, refers to nothing outside, and its bars fit.
fn check_page(page: &str) {
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    for outside in ["http", "src=", "@import", "url(", "<script", "<link"] {
        assert!(!page.contains(outside), "{outside}");
    }
    for tag in ["main", "table", "div", "svg", "ul", "h1", "h2", "p", "span", "code", "tr", "td", "th"] {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    for bar in page.split("<div class=\"bar\">").skip(1) {
        let bar = bar.split("</div>").next().unwrap();
        let widths = bar.split("width:").skip(1).map(|rest| rest.split('%').next().unwrap());
        let all: f64 = widths.map(|width| width.parse::<f64>().unwrap()).sum();
        assert!(all <= 100.5, "{all} in {bar}");
    }
}

#[test]
fn the_page_has_every_hop_and_the_slowest_frame() {
    let text = format!("file {} ! decode threads=3 ! queue depth=2 ! null", clip("h264-180p8-high.h264"));
    let mut report = run(&text, &at(Level::Full));
    let digest = report.digest();
    let slowest = digest.totals.iter().max_by_key(|total| total.latency_ns()).unwrap().seq;
    let page = page_of(&mut report);
    check_page(&page);
    for hop in &report.hops {
        assert!(page.contains(&format!("<code>{}</code>", hop.text)), "{}", hop.text);
    }
    assert!(page.contains("<h1>Of the median frame's "));
    assert!(page.contains(&format!("The slowest frame: number {slowest}, ")));
    for (cause, figure) in digest.causes.iter() {
        let is_known = page.contains(&format!("{0}</th><td>{1}", cause.name(), digest.known_by(cause)));
        assert_eq!(is_known, figure.is_some(), "{}", cause.name());
    }
}

#[test]
fn pages_of_all_levels_and_of_branches_are_whole() {
    for level in [Level::Off, Level::Times, Level::Full] {
        let mut report = run("test size=16x16 frames=600 ! queue ! null", &at(level));
        let page = page_of(&mut report);
        check_page(&page);
        assert_eq!(page.contains("<svg"), level != Level::Off);
    }
    let mut report =
        run("test size=16x16 frames=9 ! tee ( queue ! null ) ( encode raw ! null )", &at(Level::Full));
    let page = page_of(&mut report);
    check_page(&page);
    assert_eq!(page.matches("<svg").count(), 2, "a picture for each sink");
}

#[test]
fn text_of_the_path_is_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a<b>&.y4m");
    let text = format!("test size=16x16 format=grey frames=3 ! y4m '{}'", file.display());
    let page = page_of(&mut run(&text, &at(Level::Times)));
    check_page(&page);
    assert!(page.contains("a&lt;b&gt;&amp;.y4m") && !page.contains("a<b>"));
}
