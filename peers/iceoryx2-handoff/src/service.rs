// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two iceoryx2 services of a run: the frames, and the event that wakes the
//! consumer.

use iceoryx2::port::{listener::Listener, notifier::Notifier, publisher::Publisher, subscriber::Subscriber};
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::{event, publish_subscribe};

use crate::Failure;

/// Maximum number of frames in flight: the size of the subscriber's buffer.
const DEPTH: usize = 8;

pub struct Services {
    frames: publish_subscribe::PortFactory<ipc::Service, [u8], ()>,
    event: event::PortFactory<ipc::Service>,
    /// Node of both services. Last field, because the node has to outlive them.
    _node: Node<ipc::Service>,
}

impl Services {
    /// Opens both services under the name `name`, or creates them.
    pub fn open(name: &str) -> Result<Services, Failure> {
        let node =
            NodeBuilder::new().signal_handling_mode(SignalHandlingMode::Disabled).create::<ipc::Service>()?;
        let frames = node
            .service_builder(&ServiceName::new(name)?)
            .publish_subscribe::<[u8]>()
            .subscriber_max_buffer_size(DEPTH)
            .subscriber_max_borrowed_samples(1)
            .enable_safe_overflow(false)
            .history_size(0)
            .max_publishers(1)
            .max_subscribers(1)
            .open_or_create()?;
        let event = node
            .service_builder(&ServiceName::new(name)?)
            .event()
            .max_notifiers(1)
            .max_listeners(1)
            .open_or_create()?;
        Ok(Services { frames, event, _node: node })
    }

    pub fn publisher(&self, bytes: usize) -> Result<Publisher<ipc::Service, [u8], ()>, Failure> {
        let builder = self.frames.publisher_builder().initial_max_slice_len(bytes).max_loaned_samples(1);
        Ok(builder.backpressure_strategy(BackpressureStrategy::RetryUntilDelivered).create()?)
    }

    pub fn subscriber(&self) -> Result<Subscriber<ipc::Service, [u8], ()>, Failure> {
        Ok(self.frames.subscriber_builder().buffer_size(DEPTH).create()?)
    }

    pub fn notifier(&self) -> Result<Notifier<ipc::Service>, Failure> {
        Ok(self.event.notifier_builder().create()?)
    }

    pub fn listener(&self) -> Result<Listener<ipc::Service>, Failure> {
        Ok(self.event.listener_builder().create()?)
    }
}
