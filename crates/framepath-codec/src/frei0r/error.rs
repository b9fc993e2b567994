// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors while a plug-in is found, loaded or run.

use std::path::PathBuf;

/// Error of a frei0r plug-in. Each error names the plug-in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Frei0rError {
    /// No folder contains a plug-in with this name.
    #[error("no frei0r plug-in `{name}`{} {}", .nearest.as_ref().map_or(":".to_owned(), |near| format!(", did you mean `{near}`?")), where_from(.folders, *.known))]
    NotFound {
        /// Requested name.
        name: String,
        /// Most similar existing name; `None` if no name is similar.
        nearest: Option<String>,
        /// Number of plug-ins found in these folders.
        known: usize,
        /// Folders that were searched.
        folders: Vec<PathBuf>,
    },
    /// The dynamic linker rejected the file.
    #[error("{plugin}: cannot load: {message}")]
    Open {
        /// Name of the plug-in's file, without `.so`.
        plugin: String,
        /// Message of the dynamic linker.
        message: String,
    },
    /// The file is a shared object without one of frei0r's functions; or the plug-in lacks the
    /// update function of its kind.
    #[error("{plugin}: not a frei0r plug-in: it has no `{symbol}`")]
    NoSymbol {
        /// Name of the plug-in's file, without `.so`.
        plugin: String,
        /// Missing function; `f0r_update` for a filter or source that has neither this function nor
        /// `f0r_update2`.
        symbol: &'static str,
    },
    /// The plug-in declares a value that the specification does not define, or an implausible
    /// number of parameters.
    #[error("{plugin}: not a plug-in of frei0r 1: its {what} is {value}")]
    Unknown {
        /// Name of the plug-in's file, without `.so`.
        plugin: String,
        /// Name of the property with this value.
        what: &'static str,
        /// Declared value.
        value: i32,
    },
    /// `f0r_init` returned 0, which means failure.
    #[error("{plugin}: its f0r_init failed with {code}")]
    Init {
        /// Name of the plug-in's file, without `.so`.
        plugin: String,
        /// Return value of `f0r_init`: 0.
        code: i32,
    },
    /// The plug-in does not support the size (`f0r_construct` returned null), or a side is zero or
    /// not a multiple of 8.
    #[error("{plugin}: f0r_construct: pictures of {width}x{height} are not supported")]
    Construct {
        /// Name of the plug-in's file, without `.so`.
        plugin: String,
        /// Requested width, pixels.
        width: u32,
        /// Requested height, pixels.
        height: u32,
    },
    /// The plug-in declares no parameter with the requested name.
    #[error("{plugin}: no parameter `{name}`{} {}", .nearest.as_ref().map_or(":".to_owned(), |near| format!(", did you mean `{near}`?")), known_parameters(.known))]
    NoParam {
        /// Name of the plug-in's file, without `.so`.
        plugin: String,
        /// Requested name of a parameter.
        name: String,
        /// Most similar declared name; `None` if no name is similar.
        nearest: Option<String>,
        /// Names of the declared parameters, in path syntax.
        known: Vec<String>,
    },
    /// A value does not match the parameter's type.
    #[error("{plugin}: `{name}={value}`: {name} is {wants}")]
    Value {
        /// Name of the plug-in's file, without `.so`.
        plugin: String,
        /// Name of the parameter, in path syntax.
        name: String,
        /// Rejected value.
        value: String,
        /// Description of the accepted values.
        wants: &'static str,
    },
    /// The plug-in is a mixer: it takes two or three pictures at a time, and a path provides one.
    #[error(
        "{plugin}: a {kind} takes {inputs} frames at a time, and a path carries one; only filters and sources run as a stage"
    )]
    Mixer {
        /// Name of the plug-in's file, without `.so`.
        plugin: String,
        /// Kind of the plug-in.
        kind: super::PluginKind,
        /// Number of pictures that the plug-in takes.
        inputs: usize,
    },
}

fn where_from(folders: &[PathBuf], known: usize) -> String {
    let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    match known {
        0 => format!(
            "no plug-ins found in {} (Debian and Ubuntu: apt install frei0r-plugins)",
            folders.join(", ")
        ),
        _ => format!("`framepath plugins` lists all {known} plug-ins"),
    }
}

fn known_parameters(known: &[String]) -> String {
    match known {
        [] => "it has none".to_owned(),
        _ => format!("it has {}", known.join(", ")),
    }
}
