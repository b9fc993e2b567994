// SPDX-License-Identifier: MIT OR Apache-2.0
//! Items for the crate `framepath-serve` beyond the public interface.
//!
//! They are not stable: any release may change them.

pub use super::buffer_provider::{BufferProvider, ProvidedBuffers, ProvidedSlots};
pub use super::collect::{Arrival, CollectEnd};
pub use super::fault::InjectedFaults;
pub use super::input::WorkerInput;
pub use super::kind::WorkerKind;
pub use super::message_io::{recv_within, send};
pub use super::sandbox::SandboxChoice;
pub use super::service_stream::{ServiceStream, connect};
pub use super::session::Session;
pub use super::spares::{Spare, Spares};
pub use super::spec::Spec;
pub use super::start::{keep_ready, start_program};
pub use super::submit::{SubmitEnd, SubmitError};
pub use super::{HostError, WorkerOptions};
pub use crate::device::codec_of;
pub use crate::recorder::Stretch;
