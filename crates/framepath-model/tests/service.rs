// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the service's decisions about a client's messages, without a socket.

use framepath_model::service::{Action, Client, Denial, MESSAGES_PER_SECOND, User, UserLimits};
use framepath_model::wire::{Message, VERSION, WireError};
use proptest::collection::vec;
use proptest::prelude::*;

const LIMITS: UserLimits =
    UserLimits { connections: 2, streams: 2, opens_per_minute: 5, replacements_per_minute: 3 };
const HELLO: Message = Message::Hello { version: VERSION };
const MINUTE: u64 = 60_000_000_000;

/// Simulated connection of one user, with the state of the conversation.
#[derive(Default)]
struct Talk {
    client: Client,
    user: User,
    next: u32,
    now_ns: u64,
    stopping: bool,
}

impl Talk {
    fn say(&mut self, message: Message) -> Action {
        let Talk { client, user, next, now_ns, stopping } = self;
        let action = client.on_message(Ok(message), user, &LIMITS, *next, *stopping, *now_ns);
        if matches!(action, Action::Open { .. }) {
            self.next += 1;
        }
        action
    }

    /// Grants a worker, and the client receives the grant.
    fn grant(&mut self, stream: u32) {
        self.client.granted(stream);
        self.client.read_all();
    }

    fn open(&mut self) -> u32 {
        match self.say(HELLO) {
            Action::Open { stream } => {
                self.grant(stream);
                stream
            }
            other => panic!("{other:?}"),
        }
    }
}

fn replace(stream: u32) -> Message {
    Message::Replace { stream, kill: true }
}

#[test]
fn a_stream_is_opened_replaced_and_released() {
    let mut talk = Talk::default();
    assert_eq!(talk.open(), 0);
    assert_eq!(talk.say(replace(0)), Action::Replace { stream: 0 });
    assert_eq!(talk.say(replace(0)), Action::Deny(Denial::Waiting(0)));
    talk.grant(0);
    assert_eq!(talk.say(replace(0)), Action::Replace { stream: 0 });
    assert_eq!(talk.say(Message::Release { stream: 0 }), Action::Release { stream: 0 });
    assert_eq!(talk.say(Message::Release { stream: 0 }), Action::Deny(Denial::NotYours(0)));
    assert_eq!(talk.say(Message::Watch { from: 7 }), Action::Report { from: 7 });
    assert!(talk.client.is_idle());
}

#[test]
fn every_limit_names_its_option() {
    let mut talk = Talk::default();
    talk.open();
    talk.open();
    let denied = |action| match action {
        Action::Deny(denial) => (denial.to_string(), denial.ends_connection()),
        other => panic!("{other:?}"),
    };
    let (text, ends) = denied(talk.say(HELLO));
    assert!(text.contains("2 streams") && text.contains("--streams") && !ends, "{text}");
    for _ in 0..3 {
        assert_eq!(talk.say(replace(1)), Action::Replace { stream: 1 });
        talk.grant(1);
    }
    let (text, ends) = denied(talk.say(replace(1)));
    assert!(text.contains("3 workers") && text.contains("--replacements-per-minute") && !ends, "{text}");
    talk.now_ns += MINUTE;
    assert_eq!(talk.say(replace(1)), Action::Replace { stream: 1 });

    for _ in 0..5 {
        let stream = talk.next - 1;
        assert_eq!(talk.say(Message::Release { stream }), Action::Release { stream });
        talk.open();
    }
    let stream = talk.next - 1;
    talk.say(Message::Release { stream });
    let (text, ends) = denied(talk.say(HELLO));
    assert!(text.contains("5 streams in a minute") && text.contains("--opens-per-minute") && !ends, "{text}");

    let mut user = User::default();
    user.connect(&LIMITS).unwrap();
    user.connect(&LIMITS).unwrap();
    let denial = user.connect(&LIMITS).unwrap_err();
    assert!(denial.to_string().contains("--connections") && denial.ends_connection());
    user.disconnect(&Client::default());
    assert_eq!(user.connect(&LIMITS), Ok(()));
}

/// Checks that a connection has at most one grant that its client has not received, also if the client releases
/// the stream: the descriptor in the grant stays in flight.
#[test]
fn a_client_with_an_unread_grant_gets_no_other() {
    let mut talk = Talk::default();
    assert_eq!(talk.say(HELLO), Action::Open { stream: 0 });
    // The grant is still to come.
    assert_eq!(talk.say(HELLO), Action::Deny(Denial::Unread));
    talk.client.granted(0);
    assert_eq!(talk.say(HELLO), Action::Deny(Denial::Unread));
    assert_eq!(talk.say(replace(0)), Action::Deny(Denial::Unread));
    assert_eq!(talk.say(Message::Release { stream: 0 }), Action::Release { stream: 0 });
    assert_eq!(talk.say(HELLO), Action::Deny(Denial::Unread));
    assert!(Denial::Unread.ends_connection() && talk.client.has_unread_grant());
    assert_eq!(talk.say(Message::Watch { from: 0 }), Action::Report { from: 0 });
    talk.client.read_all();
    assert_eq!(talk.open(), 1);
}

/// Checks that a connection whose streams have ended still counts until it is disconnected.
#[test]
fn a_connection_without_streams_still_counts() {
    let mut talk = Talk::default();
    talk.user.connect(&LIMITS).unwrap();
    talk.user.connect(&LIMITS).unwrap();
    talk.open();
    talk.open();
    assert_eq!(talk.client.end_streams(&mut talk.user), [0, 1]);
    assert_eq!(talk.user.connect(&LIMITS), Err(Denial::Connections(2)));
    talk.user.disconnect(&talk.client);
    assert_eq!(talk.user.connect(&LIMITS), Ok(()));
    // The streams are not subtracted twice.
    let stream = talk.open();
    talk.open();
    assert_eq!(talk.say(HELLO), Action::Deny(Denial::Streams(2)));
    assert_eq!(talk.say(Message::Release { stream }), Action::Release { stream });
}

/// Checks that the counts of one connection also apply to the user's next connection.
#[test]
fn connecting_anew_gives_nothing() {
    let mut talk = Talk::default();
    for _ in 0..5 {
        talk.user.connect(&LIMITS).unwrap();
        talk.open();
        let client = std::mem::take(&mut talk.client);
        talk.user.disconnect(&client);
        assert!(!talk.user.is_forgettable(talk.now_ns));
    }
    assert_eq!(talk.say(HELLO), Action::Deny(Denial::Opens(5)));
    talk.now_ns += MINUTE;
    assert!(talk.user.is_forgettable(talk.now_ns));
    talk.open();
}

#[test]
fn nobody_touches_the_stream_of_another_connection() {
    let mut talk = Talk::default();
    let stream = talk.open();
    talk.client = Client::default();
    assert_eq!(talk.say(replace(stream)), Action::Deny(Denial::NotYours(stream)));
    assert_eq!(talk.say(Message::Release { stream }), Action::Deny(Denial::NotYours(stream)));
    assert!(Denial::NotYours(stream).ends_connection());
}

#[test]
fn a_stopping_service_replaces_and_opens_nothing() {
    let mut talk = Talk::default();
    let stream = talk.open();
    talk.stopping = true;
    assert_eq!(talk.say(HELLO), Action::Deny(Denial::Stopping));
    assert_eq!(talk.say(replace(stream)), Action::Replace { stream });
}

#[test]
fn floods_rubbish_and_words_for_others_end_the_connection() {
    let mut talk = Talk::default();
    for _ in 0..MESSAGES_PER_SECOND {
        assert_eq!(talk.say(Message::Watch { from: 0 }), Action::Report { from: 0 });
    }
    assert_eq!(talk.say(Message::Watch { from: 0 }), Action::Deny(Denial::Flood));
    talk.now_ns += 1_000_000_000;
    assert_eq!(talk.say(Message::Page), Action::Deny(Denial::NotForUs));
    let Talk { mut client, mut user, .. } = talk;
    let rubbish = client.on_message(Err(WireError::Length(3)), &mut user, &LIMITS, 0, false, 2_000_000_000);
    assert_eq!(rubbish, Action::Deny(Denial::Meaningless(WireError::Length(3))));
    assert!(Denial::Flood.ends_connection() && Denial::NotForUs.ends_connection());
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        3 => Just(HELLO),
        2 => (0..8u32).prop_map(replace),
        2 => (0..8u32).prop_map(|stream| Message::Release { stream }),
        1 => Just(Message::Watch { from: 0 }),
    ]
}

proptest! {
    /// Checks that the streams of several connections of a user stay within the limit and belong to
    /// one connection each, whatever the connections send, and that none is left at the end.
    #[test]
    fn streams_add_up(messages in vec((0..3usize, message(), any::<bool>()), 0..200)) {
        let mut clients = vec![Client::default(); 3];
        let mut user = User::default();
        let limits = UserLimits { opens_per_minute: u32::MAX, ..LIMITS };
        let mut next = 0;
        for (client, message, grants) in messages {
            let action = clients[client].on_message(Ok(message), &mut user, &limits, next, false, 0);
            if let Action::Open { stream } | Action::Replace { stream } = action {
                next = next.max(stream + 1);
                if grants {
                    clients[client].granted(stream);
                    clients[client].read_all();
                }
            }
            let mut streams: Vec<u32> = clients.iter().flat_map(Client::streams).collect();
            prop_assert!(streams.len() <= LIMITS.streams as usize);
            streams.sort_unstable();
            streams.dedup();
            prop_assert_eq!(streams.len(), clients.iter().flat_map(Client::streams).count());
        }
        for client in &clients {
            user.disconnect(client);
        }
        let fresh = Client::default().on_message(Ok(HELLO), &mut user, &limits, next, false, 0);
        prop_assert_eq!(fresh, Action::Open { stream: next });
    }
}
