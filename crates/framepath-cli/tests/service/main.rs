// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real `framepath serve`, with clients that mean well and others.

mod activation;
mod figures;
#[path = "../cli/harness.rs"]
mod harness;
mod hostile;
mod limits;
mod service;
mod squatters;
mod stopping;
mod streams;
mod users;
mod versions;
mod worker_program;
