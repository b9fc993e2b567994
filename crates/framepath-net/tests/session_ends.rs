// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons of a session's end, as a viewer learns them over HTTP. All on the loopback interface.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use framepath_model::access_unit::Coding;
use framepath_net::{
    JitterDepth, ReceivedItem, ReceiverOptions, SenderOptions, WebrtcError, WhepReceiver, WhepSender,
};

const TOKEN: &str = "secret";

/// Way of the request that asks for the reason.
#[derive(Clone, Copy)]
enum Question {
    /// Passes after this time.
    Late(Duration),
    /// Gets no answer.
    Unanswered,
    /// The connection ends without an answer, as often as it is made.
    Closed,
}

fn sender() -> WhepSender {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let token = Some(TOKEN.to_owned());
    WhepSender::new(SenderOptions { listen, token, coding: Coding::H264, bit_rates: None }).unwrap()
}

/// Opens a session through a proxy for HTTP; the video goes the direct way. Returns the viewer and the session's path.
fn open(sender: &WhepSender, question: Question) -> (WhepReceiver, String) {
    let proxy = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (url, server) = (format!("http://{}/whep", proxy.local_addr().unwrap()), sender.address());
    let (answers, taken): (Sender<String>, Receiver<String>) = channel();
    thread::spawn(move || {
        for client in proxy.incoming() {
            let answers = answers.clone();
            thread::spawn(move || pass(client.unwrap(), server, question, &answers));
        }
    });
    let options = ReceiverOptions {
        url,
        token: Some(TOKEN.to_owned()),
        latency: Duration::ZERO,
        timeout: Duration::from_secs(10),
        silence: Duration::from_secs(30),
        jitter: JitterDepth::Adaptive,
        backlog: Duration::MAX,
    };
    let viewer = WhepReceiver::open(&options, || false, || ()).unwrap();
    until(|| sender.watching() == 1);
    let answer = taken.recv().unwrap();
    let path = answer.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned();
    (viewer, path)
}

/// Passes a request to the server, and its answer to the client.
fn pass(mut client: TcpStream, server: SocketAddr, question: Question, answers: &Sender<String>) {
    let mut head = [0; 4096];
    let len = client.read(&mut head).unwrap();
    if head.starts_with(b"DELETE ") {
        match question {
            Question::Late(time) => thread::sleep(time),
            Question::Unanswered => thread::sleep(Duration::from_secs(30)),
            Question::Closed => return,
        }
    }
    // The sender of a stream that has ended accepts no connection.
    let Ok(mut server) = TcpStream::connect(server) else { return };
    server.write_all(&head[..len]).unwrap();
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || std::io::copy(&mut from, &mut to));
    let mut answer = String::new();
    server.read_to_string(&mut answer).unwrap();
    client.write_all(answer.as_bytes()).unwrap();
    let _ = client.shutdown(Shutdown::Both);
    let _ = answers.send(answer);
}

fn until(is_reached: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_reached() {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(5));
    }
}

fn end(viewer: &WhepReceiver) -> Result<ReceivedItem, WebrtcError> {
    until(|| viewer.has_news());
    viewer.recv()
}

/// Returns how a session ends for the viewer that the sender's user ends.
fn ended_by_user(question: Question) -> Result<ReceivedItem, WebrtcError> {
    let sender = sender();
    let (viewer, _) = open(&sender, question);
    assert!(sender.control().end(1));
    end(&viewer)
}

#[test]
fn a_slow_answer_has_the_reason() {
    let end = ended_by_user(Question::Late(Duration::from_millis(1200)));
    assert!(matches!(end, Err(WebrtcError::EndedBySender)), "{end:?}");
}

#[test]
fn an_end_without_an_answer_is_an_error() {
    let end = ended_by_user(Question::Unanswered);
    assert!(matches!(end, Err(WebrtcError::EndedWithoutReason)), "{end:?}");
}

#[test]
fn a_viewer_whose_session_another_program_ends_learns_it() {
    let sender = sender();
    let (viewer, path) = open(&sender, Question::Late(Duration::ZERO));
    let mut other = TcpStream::connect(sender.address()).unwrap();
    let request = format!("DELETE {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    other.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    other.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let end = end(&viewer);
    assert!(matches!(end, Err(WebrtcError::EndedBySender)), "{end:?}");
}

#[test]
fn the_end_of_the_stream_is_no_error_however_the_question_ends() {
    for question in
        [Question::Late(Duration::ZERO), Question::Late(Duration::from_millis(300)), Question::Closed]
    {
        let mut sender = sender();
        let (viewer, _) = open(&sender, question);
        sender.end(|| true);
        let end = end(&viewer);
        assert!(matches!(end, Ok(ReceivedItem::End)), "{end:?}");
    }
}
