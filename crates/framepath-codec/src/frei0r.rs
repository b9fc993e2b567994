// SPDX-License-Identifier: MIT OR Apache-2.0
//! frei0r plug-ins: filters, sources and mixers of packed 32-bit pictures in third-party
//! shared objects.
//!
//! [`list`] and [`find`] only read folders. [`Plugin::load`] is the first call that runs foreign
//! code: the constructors of the object and of its libraries, then `f0r_init`. A program that
//! runs plug-ins in a sandbox enters the sandbox before it calls [`Plugin::load`].
//!
//! A plug-in is native code with all rights of this process. This module is safe only with a
//! plug-in that conforms to the specification, version 1.2. Run any other plug-in in another
//! process.

mod abi;
mod error;
mod find;
mod instance;
mod param;
mod plugin;

pub use error::Frei0rError;
pub use find::{Found, find, folders, list};
pub use instance::{ALIGN, Instance, padded};
pub use param::{Param, ParamKind, ParamValue};
pub use plugin::{ColorModel, Info, Plugin, PluginKind};
