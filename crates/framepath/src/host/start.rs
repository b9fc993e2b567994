// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting workers, and the spare that is kept ready.

use super::{HostError, WorkerOptions};
