// SPDX-License-Identifier: MIT OR Apache-2.0
//! File on a web server, read by range requests.

use std::io::Read;
use std::time::Duration;

use ureq::http::{HeaderMap, StatusCode, header};
use ureq::{BodyReader, ResponseExt};

use super::answer::{ContentRange, FileVersion, content_length};
use super::client::{FetchFailure, HttpClient, failure_of_io};
use crate::host::ByteSource;
use crate::notes::Notes;
use crate::source::url::address::shown;

/// Largest number of bytes that are read and dropped instead of a new request.
const SKIP: u64 = 256 << 10;
/// Maximum number of tries to continue one read after its first failure.
const TRIES: u32 = 5;
/// Time before the second try to continue; doubled for each further try.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// File on a web server. Has at most one open answer, which the server sends ahead as far as the kernel's
/// buffers allow.
pub(super) struct RemoteFile {
    client: HttpClient,
    /// Address as the user gave it.
    address: String,
    /// Address after the redirects of the last answer.
    current: String,
    version: FileVersion,
    /// Size in bytes; `None` if it is not known.
    size: Option<u64>,
    /// True if the server answers range requests.
    has_ranges: bool,
    /// Open answer; `None` after a failed read.
    body: Option<OpenBody>,
    notes: Notes,
    /// True after the note about a broken connection.
    noted: bool,
}

struct OpenBody {
    reader: BodyReader<'static>,
    /// Offset in the file of the next byte.
    position: u64,
}

impl RemoteFile {
    /// Requests the file at `address`. `notes` receives a line if a connection breaks later.
    ///
    /// # Errors
    /// The reason, for the user: the server cannot be reached, or does not send the file.
    pub(super) fn open(mut client: HttpClient, address: String, notes: Notes) -> Result<RemoteFile, String> {
        let answer = client.get(&address, 0, None).map_err(FetchFailure::into_text)?;
        let (status, headers) = (answer.status(), answer.headers());
        refuse_encoded(headers).map_err(FetchFailure::into_text)?;
        let (size, has_ranges) = match status {
            StatusCode::PARTIAL_CONTENT => match ContentRange::of(headers) {
                Some(ContentRange { start: 0, total }) => (total, true),
                _ => return Err("the server sends another range than the requested one".to_owned()),
            },
            StatusCode::OK => (content_length(headers), accepts_ranges(headers)),
            // No range begins at byte 0 of an empty file.
            StatusCode::RANGE_NOT_SATISFIABLE => (Some(0), false),
            status => return Err(status_failure(status).into_text()),
        };
        if size == Some(0) {
            return Err("the file is empty".to_owned());
        }
        let current = answer.get_uri().to_string();
        let version = FileVersion::of(headers);
        let body = Some(OpenBody { reader: answer.into_body().into_reader(), position: 0 });
        Ok(RemoteFile { client, address, current, version, size, has_ranges, body, notes, noted: false })
    }

    /// Returns the file's size in bytes; `None` if it is not known.
    pub(super) fn size(&self) -> Option<u64> {
        self.size
    }

    /// True if the file can be read in any order.
    pub(super) fn is_seekable(&self) -> bool {
        self.has_ranges && self.size.is_some()
    }

    /// Reads as [`ByteSource::read_at`] does, but returns the first failure. `tries` is the number of tries
    /// of this read that have failed.
    fn try_read(&mut self, offset: u64, buffer: &mut [u8], tries: u32) -> Result<usize, FetchFailure> {
        let kept = self.body.take().filter(|body| (body.position..=body.position + SKIP).contains(&offset));
        let mut body = match kept {
            Some(body) => body,
            None => self.open_at(offset, tries)?,
        };
        loop {
            let skipped = usize::try_from(offset - body.position).unwrap_or(usize::MAX);
            let wanted = if skipped == 0 { buffer.len() } else { skipped.min(buffer.len()) };
            let count = body.reader.read(&mut buffer[..wanted]).map_err(|error| failure_of_io(&error))?;
            body.position += count as u64;
            if count == 0 && self.size.is_some_and(|size| body.position < size) {
                return Err(FetchFailure::Passing("the server closed the connection".to_owned()));
            }
            if skipped == 0 || count == 0 {
                self.body = Some(body);
                return Ok(count);
            }
        }
    }

    /// Requests the file from `offset` on: with `tries` 0 at the address after the redirects of the last
    /// answer, else at the address that the user gave.
    fn open_at(&mut self, offset: u64, tries: u32) -> Result<OpenBody, FetchFailure> {
        let address = if tries == 0 { &self.current } else { &self.address };
        let answer = self.client.get(address, offset, self.version.if_range())?;
        let headers = answer.headers();
        refuse_encoded(headers)?;
        self.check(answer.status(), headers, offset).map_err(|failure| match failure {
            // The address behind a redirect may be valid for a short time only.
            FetchFailure::Final(reason)
                if tries == 0 && answer.status().is_client_error() && self.current != self.address =>
            {
                FetchFailure::Passing(reason)
            }
            failure => failure,
        })?;
        self.current = answer.get_uri().to_string();
        Ok(OpenBody { reader: answer.into_body().into_reader(), position: offset })
    }

    /// Checks that an answer is the rest of the same file from `offset` on.
    fn check(&self, status: StatusCode, headers: &HeaderMap, offset: u64) -> Result<(), FetchFailure> {
        let changed = || FetchFailure::Final("the file on the server has changed; start again".to_owned());
        let same = self.version.may_equal(&FileVersion::of(headers));
        match status {
            StatusCode::PARTIAL_CONTENT => {
                let range =
                    ContentRange::of(headers).filter(|range| range.start == offset).ok_or_else(|| {
                        FetchFailure::Final(
                            "the server sends another range than the requested one".to_owned(),
                        )
                    })?;
                let resized = range.total.is_some() && self.size.is_some() && range.total != self.size;
                if same && !resized { Ok(()) } else { Err(changed()) }
            }
            StatusCode::OK if same && offset == 0 => Ok(()),
            StatusCode::OK if same && content_length(headers) == self.size => Err(FetchFailure::Final(
                "the server no longer answers range requests, so the file cannot be read on".to_owned(),
            )),
            StatusCode::OK | StatusCode::RANGE_NOT_SATISFIABLE => Err(changed()),
            status => Err(status_failure(status)),
        }
    }

    /// Adds the note about a broken connection, once.
    fn note(&mut self, offset: u64, reason: &str) {
        if !std::mem::replace(&mut self.noted, true) {
            let name = shown(&self.address);
            self.notes
                .add(format!("url {name}: read at byte {offset}: {reason}; continued with a new connection"));
        }
    }
}

impl ByteSource for RemoteFile {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, String> {
        if self.size.is_some_and(|size| offset >= size) {
            return Ok(0);
        }
        let (mut tries, mut pause) = (0, FIRST_PAUSE);
        // Reason of the first failure.
        let mut broke: Option<String> = None;
        loop {
            let reason = match self.try_read(offset, buffer, tries) {
                Ok(count) => {
                    if let Some(reason) = broke {
                        self.note(offset, &reason);
                    }
                    return Ok(count);
                }
                Err(FetchFailure::Final(reason)) => return Err(reason),
                Err(FetchFailure::Passing(reason)) => reason,
            };
            if !self.has_ranges {
                return Err(format!(
                    "{reason}; the server does not answer range requests, so the rest cannot be read"
                ));
            }
            if tries == TRIES {
                return Err(format!("{reason}; gave up after {TRIES} tries to continue"));
            }
            if tries > 0 {
                self.client.sleep(pause).map_err(FetchFailure::into_text)?;
                pause *= 2;
            }
            tries += 1;
            broke.get_or_insert(reason);
        }
    }
}

/// True if an answer with the whole file says that the server answers range requests.
fn accepts_ranges(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT_RANGES).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"bytes"))
}

/// Fails if the body is compressed although this program did not ask for that.
fn refuse_encoded(headers: &HeaderMap) -> Result<(), FetchFailure> {
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => Err(FetchFailure::Final(
            format!("the server sends the file in the encoding {encoding:?}, which was not requested"),
        )),
        _ => Ok(()),
    }
}

/// Describes the status of an answer without the file.
fn status_failure(status: StatusCode) -> FetchFailure {
    let reason = status.canonical_reason().unwrap_or("unknown status");
    let text = format!("the server answers {} {reason}", status.as_u16());
    match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => FetchFailure::Passing(text),
        status if status.is_server_error() => FetchFailure::Passing(text),
        StatusCode::UNAUTHORIZED => FetchFailure::Final(format!(
            "{text}; write the user's name and password as http://USER:PASSWORD@HOST/PATH"
        )),
        _ => FetchFailure::Final(text),
    }
}
