// SPDX-License-Identifier: MIT OR Apache-2.0
//! Web page that shows a stream and its ledger in a browser. It has no resources of other servers.

/// File of the page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageFile {
    /// Path in the URL.
    pub(crate) path: &'static str,
    /// Media type.
    pub(crate) media_type: &'static str,
    /// Text of the file.
    pub(crate) text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Headers of all files: only this server's files are loaded and no other page can show this one, so that a page of a stranger can
/// neither read the token nor have the user type it.
pub(crate) const HEADERS: [(&str, &str); 4] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; media-src blob: mediastream:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
];

macro_rules! file {
    ($path:literal, $name:literal, $media_type:expr) => {
        PageFile { path: $path, media_type: $media_type, text: include_str!(concat!("page/", $name)) }
    };
}

/// All files.
static FILES: [PageFile; 8] = [
    file!("/", "index.html", HTML),
    file!("/page/style.css", "style.css", CSS),
    file!("/page/chart.js", "chart.js", SCRIPT),
    file!("/page/clock.js", "clock.js", SCRIPT),
    file!("/page/ledger.js", "ledger.js", SCRIPT),
    file!("/page/messages.js", "messages.js", SCRIPT),
    file!("/page/session.js", "session.js", SCRIPT),
    file!("/page/viewer.js", "viewer.js", SCRIPT),
];

/// Returns the file of the page that has this path.
pub(crate) fn page_file(path: &str) -> Option<&'static PageFile> {
    FILES.iter().find(|file| file.path == path)
}

#[cfg(test)]
mod tests {
    use framepath_model::ledger::Row;

    use super::*;
    use crate::ledger_channel::LEDGER_ATTRIBUTE;
    use crate::ledger_message::VERSION;

    #[test]
    fn all_that_the_files_name_is_there() {
        let mut named = 0;
        for file in &FILES {
            assert!(!file.text.contains("://"), "{} names another server", file.path);
            for part in file.text.split(['"', '\'']) {
                let path = match part.strip_prefix("./") {
                    Some(name) => format!("/page/{name}"),
                    None if part.starts_with("/page/") => part.to_owned(),
                    None => continue,
                };
                assert!(page_file(&path).is_some(), "{} names {path}", file.path);
                named += 1;
            }
        }
        assert_eq!(named, 9);
    }

    #[test]
    fn the_page_speaks_this_version_of_the_messages() {
        let messages = page_file("/page/messages.js").unwrap().text;
        assert!(messages.contains(&format!("export const VERSION = {VERSION};")));
        assert_eq!(LEDGER_ATTRIBUTE, format!("a=framepath-ledger:{VERSION}"));
        let (_, behind) = messages.split_once("export const ROW_FIELDS = [").unwrap();
        let (list, _) = behind.split_once(']').unwrap();
        let fields: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        let row = format!("{:?}", Row::default());
        let row = row.strip_prefix("Row { ").and_then(|row| row.strip_suffix(" }")).unwrap();
        let expected: Vec<&str> = row.split(", ").filter_map(|field| field.split(':').next()).collect();
        assert_eq!(fields, expected);
    }
}
