// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real `framepath serve`, with honest and hostile clients.

mod activation;
mod figures;
mod hostile;
mod limits;
mod stopping;
mod streams;
mod versions;
mod worker_program;
