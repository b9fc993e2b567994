// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the service keeps no resources for clients that are gone.

use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use framepath_model::wire::{MESSAGE_BYTES, Message};
use framepath_os::crossing::{Listener, Socket};
use framepath_os::process::signal::Stops;
use framepath_serve::{Service, ServiceSettings, Viewer};

/// Checks that the service closes the connection of such a client: the client sends requests without reading
/// answers, and sends the service its own end of their socket.
/// The service does not read that message while answers wait, so the end stays open after the client has
/// gone.
#[test]
fn a_gone_client_whose_socket_end_stays_open_is_removed() {
    let path = std::env::temp_dir().join(format!("framepath-itself-{}.sock", std::process::id()));
    let listener = Listener::bind(&path, 0o600).unwrap();
    let settings =
        ServiceSettings { spares: 0, patience: Duration::from_secs(3), ..ServiceSettings::default() };
    let service = Service::new(listener, None, settings).unwrap();
    let (sender, open) = channel();
    // The service ends with this process.
    thread::spawn(move || {
        let stops = Stops::open().unwrap();
        sender.send(()).unwrap();
        service.run(&stops)
    });
    open.recv().unwrap();
    let client = Socket::connect(&path).unwrap();
    let mut request = [0; MESSAGE_BYTES];
    Message::Watch { from: 0 }.encode(&mut request);
    let mut refused = 0;
    // Sends until the socket stays full, because the service then reads no more messages.
    while refused < 20 {
        if !client.try_send(&request, Some(client.as_fd())).unwrap() {
            refused += 1;
            thread::sleep(Duration::from_millis(1));
        }
    }
    let connections = || Viewer::connect(&path).unwrap().snapshot().unwrap().totals.connections;
    assert_eq!(connections(), 2, "the client is connected");
    drop(client);
    let since = Instant::now();
    while connections() != 1 {
        assert!(since.elapsed() < Duration::from_secs(60), "the client is still connected");
        thread::sleep(Duration::from_millis(10));
    }
    std::fs::remove_file(&path).unwrap();
}
