// SPDX-License-Identifier: MIT OR Apache-2.0
//! Server of an input's bytes: reads them in this process for a demuxer in a worker, by the worker's
//! requests.
//!
//! The worker may be hostile. A request has an offset and a length and nothing else. These requests end the
//! service: a malformed one (a wrong size of the record, a length of 0 or above the maximum, an offset above
//! `i64::MAX`, or reserved bits); one that starts behind the end of an input of known size; one that is out
//! of order in an input that is not seekable; and one that comes before the worker has received the last
//! answer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use framepath_model::wire::{
    BYTE_ANSWER_BYTES, BYTE_REQUEST_BYTES, ByteAnswer, ByteRequest, MOST_REQUESTED_BYTES,
};
use framepath_os::crossing::Socket;

/// Input whose bytes this process reads for a worker. All calls come from one thread.
pub(crate) trait ByteSource: Send + 'static {
    /// Reads bytes from `offset` on into `buffer`, which is not empty; waits for them. Returns their number,
    /// 0 at the end of the input.
    ///
    /// # Errors
    /// The bytes cannot be read; the text is the reason, for the user. After an error, the function is not
    /// called again.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, String>;
}

/// Description of a served input.
#[derive(Clone, Debug)]
pub(crate) struct ServedInput {
    /// Name for errors; its extension is a hint for the container.
    pub(crate) name: String,
    /// Size in bytes; `None` if it is not known.
    pub(crate) size: Option<u64>,
    /// True if the source can read at any offset; the size is known then.
    pub(crate) seekable: bool,
}

/// Thread that answers a worker's requests for bytes. Dropping the server ends the service and calls the
/// function that cancels the source's waits.
pub(crate) struct ByteServer {
    input: ServedInput,
    socket: Arc<Socket>,
    worker_end: Socket,
    state: Arc<ServingState>,
    cancel: Box<dyn Fn() + Send + Sync>,
}

/// State that the server's thread shares with the reader of the packets.
#[derive(Default)]
struct ServingState {
    /// True from the receipt of a request, in the server's thread, until just before its answer is sent or
    /// its refusal ends the service.
    busy: AtomicBool,
    /// First reason why a request was not answered with bytes: an error of the source or of the socket, or a
    /// rule that the worker broke; `None` if there is none.
    failure: Mutex<Option<String>>,
}

impl ServingState {
    fn fail(&self, reason: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
    }
}

impl ByteServer {
    /// Starts a thread that reads `source` for a worker. `cancel` ends the source's waits, from any thread.
    ///
    /// # Errors
    /// The socket or the thread cannot be made.
    pub(crate) fn start(
        input: ServedInput,
        source: impl ByteSource,
        cancel: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<ByteServer> {
        let (ours, worker_end) = Socket::pair()?;
        let (socket, state) = (Arc::new(ours), Arc::<ServingState>::default());
        let mut service = ByteService {
            input: input.clone(),
            source,
            socket: socket.clone(),
            state: state.clone(),
            position: 0,
        };
        thread::Builder::new().name("fp-bytes".to_owned()).spawn(move || service.run())?;
        Ok(ByteServer { input, socket, worker_end, state, cancel: Box::new(cancel) })
    }

    pub(super) fn name(&self) -> &str {
        &self.input.name
    }

    pub(super) fn size(&self) -> Option<u64> {
        self.input.size
    }

    pub(super) fn is_seekable(&self) -> bool {
        self.input.seekable
    }

    /// Returns the end of the socket for the worker.
    pub(super) fn worker_end(&self) -> BorrowedFd<'_> {
        self.worker_end.as_fd()
    }

    /// True if the worker waits for this process to answer a request.
    pub(super) fn is_busy(&self) -> bool {
        self.state.busy.load(Ordering::Relaxed)
    }

    /// Returns the reason of the first failure: the error of the source or of the socket, or the rule that
    /// the worker broke; `None` if there was no failure.
    pub(super) fn failure(&self) -> Option<String> {
        self.state.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ByteServer {
    fn drop(&mut self) {
        // The thread is not joined, because a wait for a name server cannot be canceled.
        (self.cancel)();
        self.socket.shut();
    }
}

/// Requests and answers of one worker, in the server's thread.
struct ByteService<S> {
    input: ServedInput,
    source: S,
    socket: Arc<Socket>,
    state: Arc<ServingState>,
    /// Offset behind the last answer.
    position: u64,
}

impl<S: ByteSource> ByteService<S> {
    /// Answers requests until the worker closes its end, the server is dropped, the socket fails or the
    /// worker breaks the rules. Once the source has failed, every answer reports a failure.
    fn run(&mut self) {
        // One byte longer than a request, so that a longer one is refused.
        let mut request = [0; BYTE_REQUEST_BYTES + 1];
        let mut answer = vec![0; BYTE_ANSWER_BYTES + MOST_REQUESTED_BYTES as usize];
        loop {
            let len = match self.socket.receive(&mut request) {
                Ok((0, _)) | Err(_) => return,
                // A descriptor that came with the request is dropped, and so closed.
                Ok((len, _)) => len,
            };
            self.state.busy.store(true, Ordering::Relaxed);
            let answered =
                self.checked(&request[..len]).and_then(|request| self.answer(request, &mut answer));
            if let Err(breach) = answered {
                self.state.busy.store(false, Ordering::Relaxed);
                self.state.fail(format!("the demuxer's worker broke the rules of byte requests: {breach}"));
                self.socket.shut();
                return;
            }
        }
    }

    /// Decodes a request and checks it.
    ///
    /// # Errors
    /// The broken rule, or an error of the socket.
    fn checked(&self, request: &[u8]) -> Result<ByteRequest, String> {
        let request = ByteRequest::decode(request).map_err(|error| error.to_string())?;
        let ByteRequest { offset, .. } = request;
        if self.input.size.is_some_and(|size| offset > size) {
            return Err(format!("a request at byte {offset} is outside the input"));
        }
        if !self.input.seekable && offset != self.position {
            return Err(format!(
                "a request at byte {offset} is out of order in an input that is not seekable"
            ));
        }
        if self.socket.unread_bytes().map_err(|error| error.to_string())? > 0 {
            return Err("a request came before the last answer was received".to_owned());
        }
        Ok(request)
    }

    /// Reads the requested bytes and sends the answer: the bytes, or a failure if the source has failed.
    ///
    /// # Errors
    /// Another request arrived meanwhile; then no answer is sent. The text is the broken rule.
    fn answer(&mut self, request: ByteRequest, answer: &mut [u8]) -> Result<(), String> {
        let (head, bytes) = answer.split_at_mut(BYTE_ANSWER_BYTES);
        // A demuxer may read on after a failure.
        let failed = self.state.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let read = match failed {
            None => self.source.read_at(request.offset, &mut bytes[..request.len as usize]),
            Some(reason) => Err(reason),
        };
        let read = match read {
            Ok(read) => {
                head.copy_from_slice(&ByteAnswer::Bytes(read as u32).encode());
                self.position = request.offset + read as u64;
                read
            }
            Err(reason) => {
                head.copy_from_slice(&ByteAnswer::Failed.encode());
                self.state.fail(reason);
                0
            }
        };
        if self.socket.readable_within(Duration::ZERO).unwrap_or(false) && !self.socket.has_ended() {
            return Err("a second request came before the answer to the first".to_owned());
        }
        // Set before the answer is sent, because a worker that has the answer does not wait any more.
        self.state.busy.store(false, Ordering::Relaxed);
        // Fails only if the worker is gone, which its watcher reports.
        let _ = self.socket.send(&answer[..BYTE_ANSWER_BYTES + read], None);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Input of 100,000 bytes, each the low byte of its offset; fails from `fails_at` on.
    struct Counted {
        fails_at: u64,
    }

    const SIZE: u64 = 100_000;

    impl ByteSource for Counted {
        fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, String> {
            if offset >= self.fails_at {
                return Err("the line is dead".to_owned());
            }
            let count = (SIZE - offset).min(buffer.len() as u64) as usize;
            buffer[..count].iter_mut().zip(offset..).for_each(|(byte, at)| *byte = at as u8);
            Ok(count)
        }
    }

    fn server(seekable: bool, fails_at: u64) -> ByteServer {
        let input = ServedInput { name: "counted".to_owned(), size: Some(SIZE), seekable };
        ByteServer::start(input, Counted { fails_at }, || ()).unwrap()
    }

    /// Returns the answer to the record `request`; `None` if the service has ended.
    fn ask(server: &ByteServer, request: &[u8]) -> Option<(ByteAnswer, Vec<u8>)> {
        server.worker_end.send(request, None).ok()?;
        let mut bytes = vec![0; 100_000];
        let (len, _) = server.worker_end.receive(&mut bytes).ok()?;
        let (answer, bytes) = ByteAnswer::decode(&bytes[..len]).ok()?;
        Some((answer, bytes.to_vec()))
    }

    fn request(offset: u64, len: u32) -> [u8; BYTE_REQUEST_BYTES] {
        ByteRequest { offset, len }.encode()
    }

    #[test]
    fn a_seekable_input_is_read_in_any_order() {
        let server = server(true, u64::MAX);
        for (offset, len, expected) in [(99_000, 65_536, 1000), (7, 5, 5), (SIZE, 1, 0), (0, 65_536, 65_536)]
        {
            let (answer, bytes) = ask(&server, &request(offset, len)).unwrap();
            assert_eq!(answer, ByteAnswer::Bytes(expected));
            assert!(bytes.iter().zip(offset..).all(|(byte, at)| *byte == at as u8));
        }
        assert_eq!((server.failure(), server.is_busy()), (None, false));
    }

    #[test]
    fn a_request_that_breaks_the_rules_ends_the_service() {
        let bad: [(bool, &[u8], &str); 6] = [
            (true, &request(SIZE + 1, 1), "outside the input"),
            (false, &request(5, 1), "out of order"),
            (true, &request(0, MOST_REQUESTED_BYTES + 1), "length"),
            (true, &request(0, 0), "length"),
            (true, &[0; BYTE_REQUEST_BYTES + 5], "size"),
            (true, b"GET / HTTP/1.1", "size"),
        ];
        for (seekable, record, rule) in bad {
            let server = server(seekable, u64::MAX);
            assert_eq!(ask(&server, record), None);
            assert!(server.failure().unwrap().contains(rule), "{rule}: {:?}", server.failure());
        }
    }

    #[test]
    fn requests_without_receiving_end_the_service() {
        let server = server(true, u64::MAX);
        let sent =
            (0..1000).take_while(|_| server.worker_end.send(&request(0, 65_536), None).is_ok()).count();
        while server.failure().is_none() {
            thread::yield_now();
        }
        assert!(server.failure().unwrap().contains("before"), "{sent}: {:?}", server.failure());
    }

    #[test]
    fn the_reason_of_a_failure_stays_in_this_process() {
        let server = server(true, 50);
        assert_eq!(ask(&server, &request(49, 1)).unwrap().0, ByteAnswer::Bytes(1));
        assert_eq!(ask(&server, &request(50, 1)).unwrap(), (ByteAnswer::Failed, Vec::new()));
        assert_eq!(server.failure().as_deref(), Some("the line is dead"));
        assert_eq!(
            ask(&server, &request(0, 1)).unwrap().0,
            ByteAnswer::Failed,
            "the source is not asked again"
        );
    }
}
