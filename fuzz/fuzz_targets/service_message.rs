// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz target of the rules of the service: three connections of two users send
//! arbitrary messages. The limits hold, each stream belongs to one connection, and no
//! stream is leaked. Each step is two bytes (connection, operation), then the bytes of
//! a message.
#![no_main]

use framepath_model::service::{Action, Client, User, UserLimits};
use framepath_model::wire::{MAGIC, MESSAGE_BYTES, Message, VERSION};
use libfuzzer_sys::fuzz_target;

const LIMITS: UserLimits =
    UserLimits { connections: 3, streams: 4, opens_per_minute: 50, replacements_per_minute: 20 };
/// Number of bytes of a message that the input supplies. Before them are the magic
/// number and the version, or zeros; the bytes after them are 0.
const GIVEN: usize = 10;

fuzz_target!(|bytes: &[u8]| {
    let mut clients = vec![Client::default(); 3];
    let mut users = vec![User::default(); 2];
    let user_of = [0, 0, 1];
    for user in user_of {
        users[user].connect(&LIMITS).unwrap();
    }
    let (mut next, mut now_ns) = (1u32, 0u64);
    for step in bytes.chunks_exact(2 + GIVEN) {
        let (who, how) = (usize::from(step[0]) % 3, step[1]);
        now_ns += u64::from(step[0] / 3) * 10_000_000;
        let mut message = [0; MESSAGE_BYTES];
        message[6..6 + GIVEN].copy_from_slice(&step[2..]);
        if how & 1 == 0 {
            message[..4].copy_from_slice(&MAGIC);
            message[4..6].copy_from_slice(&VERSION.to_le_bytes());
        }
        let (client, user) = (&mut clients[who], &mut users[user_of[who]]);
        let said = Message::decode(&message);
        let had = client.streams().count();
        if how & 16 == 0 {
            client.read_all();
        }
        match client.on_message(said, user, &LIMITS, next, how & 2 != 0, now_ns) {
            Action::Open { stream } => {
                assert_eq!(stream, next);
                assert!(client.streams().any(|known| known == stream));
                next += 1;
                if how & 4 == 0 {
                    client.granted(stream);
                }
            }
            Action::Replace { stream } => {
                assert!(client.streams().any(|known| known == stream));
                match how & 12 {
                    0 => client.failed(stream, user),
                    4 => {}
                    _ => client.granted(stream),
                }
            }
            Action::Release { stream } => assert!(client.streams().all(|known| known != stream)),
            Action::Report { .. } => assert_eq!(client.streams().count(), had),
            Action::Deny(denial) => {
                assert!(!denial.to_string().is_empty());
                assert_eq!(client.streams().count(), had);
                if denial.ends_connection() {
                    users[user_of[who]].disconnect(&clients[who]);
                    clients[who] = Client::default();
                    users[user_of[who]].connect(&LIMITS).unwrap();
                }
            }
        }
        for user in 0..2 {
            let of_user = (0..3).filter(|client| user_of[*client] == user);
            let streams: usize = of_user.map(|client| clients[client].streams().count()).sum();
            assert!(streams <= LIMITS.streams as usize);
        }
    }
    for (client, user) in clients.iter().zip(user_of) {
        users[user].disconnect(client);
    }
    assert!(users.iter().all(|user| user.is_forgettable(now_ns + 120_000_000_000)));
});
