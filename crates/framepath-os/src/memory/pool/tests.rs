// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the pool: alone, across a boundary between processes, and under the model checker.

use super::*;

#[cfg(not(loom))]
mod counts;
#[cfg(not(loom))]
mod crossing;
#[cfg(not(loom))]
mod hostile;
#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod properties;
#[cfg(not(loom))]
mod refusals;
