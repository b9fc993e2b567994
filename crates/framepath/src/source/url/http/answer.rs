// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers of a server's answer: the range that it sends, and the version of the file.

use ureq::http::{HeaderMap, header};

/// Range of an answer with status 206.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentRange {
    /// Offset of the first byte.
    pub(super) start: u64,
    /// Size of the whole file in bytes; `None` if the server does not know it.
    pub(super) total: Option<u64>,
}

impl ContentRange {
    /// Reads `Content-Range: bytes START-END/TOTAL`, TOTAL a number or `*`; `None` if there is no such
    /// header, or if its numbers contradict each other or are larger than `i64::MAX`.
    pub(super) fn of(headers: &HeaderMap) -> Option<ContentRange> {
        let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
        let (range, total) = text.trim().strip_prefix("bytes")?.trim_start().split_once('/')?;
        let (start, end) = range.split_once('-')?;
        let (start, end) = (number(start)?, number(end)?);
        let total = match total.trim() {
            "*" => None,
            total => Some(number(total)?),
        };
        let sound = start <= end && total.is_none_or(|total| end < total);
        sound.then_some(ContentRange { start, total })
    }
}

/// Reads the size of the body, `Content-Length`; `None` if it is not known.
pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    number(headers.get(header::CONTENT_LENGTH)?.to_str().ok()?)
}

/// Reads a number of at most `i64::MAX`, because offsets of files are signed elsewhere; `None` for other
/// text.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && i64::try_from(*number).is_ok())
}

/// Version of a file, by which a later answer is recognized as part of the same file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileVersion {
    etag: Option<String>,
    modified: Option<String>,
}

impl FileVersion {
    pub(super) fn of(headers: &HeaderMap) -> FileVersion {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        FileVersion { etag: text(header::ETAG), modified: text(header::LAST_MODIFIED) }
    }

    /// Returns the value of `If-Range`: a strong entity tag, or, without any entity tag, the time of the last
    /// change. `None` for a weak entity tag, and without both.
    pub(super) fn if_range(&self) -> Option<&str> {
        let strong = self.etag.as_deref().filter(|etag| etag.starts_with('"'));
        // A server with an entity tag may compare only this tag.
        strong.or(self.modified.as_deref().filter(|_| self.etag.is_none()))
    }

    /// True if `other` can be the same version: each property that both have is equal.
    pub(super) fn may_equal(&self, other: &FileVersion) -> bool {
        let same = |a: &Option<String>, b: &Option<String>| a.is_none() || b.is_none() || a == b;
        same(&self.etag, &other.etag) && same(&self.modified, &other.modified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_content_range_is_read_if_its_numbers_fit() {
        let range = |text| ContentRange::of(&headers(&[("content-range", text)]));
        let read = |start, total| Some(ContentRange { start, total });
        assert_eq!(range("bytes 5-9/10"), read(5, Some(10)));
        assert_eq!(range("bytes 5-9/*"), read(5, None));
        for wrong in [
            "bytes 5-10/10",
            "bytes 6-5/10",
            "bytes */10",
            "5-9/10",
            "bytes -5/10",
            "bytes 5-9",
            "bytes +5-9/10",
            "",
        ] {
            assert_eq!(range(wrong), None, "{wrong}");
        }
        assert_eq!(range("bytes 9223372036854775807-9223372036854775808/*"), None);
        assert_eq!(content_length(&headers(&[("content-length", "12")])), Some(12));
        assert_eq!(content_length(&headers(&[("content-length", "-1")])), None);
    }

    #[test]
    fn a_version_is_compared_by_what_both_answers_have() {
        let version = |lines: &[(&'static str, &str)]| FileVersion::of(&headers(lines));
        let (a, b) = (("etag", "\"a\""), ("last-modified", "Mon, 01 Jan 2024 00:00:00 GMT"));
        let weak = ("etag", "W/\"a\"");
        assert_eq!(version(&[a, b]).if_range(), Some("\"a\""));
        assert_eq!(version(&[b]).if_range(), Some(b.1));
        assert_eq!(version(&[weak, b]).if_range(), None);
        assert!(version(&[a, b]).may_equal(&version(&[a])));
        assert!(version(&[]).may_equal(&version(&[a])));
        assert!(!version(&[a, b]).may_equal(&version(&[("etag", "\"b\""), b])));
    }
}
