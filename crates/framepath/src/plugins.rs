// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptions of plug-ins.
//!
//! Each plug-in is loaded in a separate process. If a plug-in crashes while it is loaded, the list has an
//! error in place of this plug-in's description, and continues with the next plug-in.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use framepath_codec::frei0r::{Found, Plugin};
use serde::{Deserialize, Serialize};

pub use framepath_codec::frei0r::{Frei0rError, find, folders, list};

/// Size in pixels of the instance whose parameters are read.
const SIZE: (u32, u32) = (64, 48);

/// Time limit for a plug-in to describe itself.
const PATIENCE: Duration = Duration::from_secs(20);

/// Description of a plug-in, as the plug-in reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Name of the plug-in.
    pub title: String,
    /// Author of the plug-in.
    pub author: String,
    /// `filter`, `source`, `mixer2` or `mixer3`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `RGBA8888`, `BGRA8888` or `PACKED32`.
    pub color_model: String,
    /// Version of the plug-in.
    pub version: String,
    /// Purpose of the plug-in; may be empty.
    pub explanation: String,
    /// Its parameters, in the plug-in's order.
    pub params: Vec<PluginParam>,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PluginParam {
    /// Name in a path.
    pub name: String,
    /// Name in the plug-in.
    pub title: String,
    /// `bool`, `double`, `color`, `position` or `string`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Accepted values, in words.
    pub takes: String,
    /// Value in a new instance, in path syntax. Some plug-ins report a value that they do not accept.
    pub default: String,
    /// Purpose of the parameter; may be empty.
    pub explanation: String,
}

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PluginEntry {
    /// Name in a path, behind `frei0r:`.
    pub name: String,
    /// Path of the plug-in's file.
    pub file: String,
    /// Description of the plug-in; `None` if it could not be read.
    #[serde(flatten)]
    pub description: Option<Description>,
    /// Reason why the description could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Loads the plug-in in `file` into this process and describes it. Call it in the child process
/// that [`ask`] starts.
///
/// # Errors
/// The plug-in cannot be loaded or described.
pub fn describe(file: &Path) -> Result<Description, Frei0rError> {
    let plugin = Plugin::load(file)?;
    let info = plugin.info();
    let mut instance = plugin.instance(SIZE.0, SIZE.1)?;
    let param = |(place, param): (usize, &framepath_codec::frei0r::Param)| PluginParam {
        name: param.name.clone(),
        title: param.title.clone(),
        kind: param.kind.name().to_owned(),
        takes: param.kind.wants().to_owned(),
        default: instance.get(place).to_string(),
        explanation: param.explanation.clone(),
    };
    Ok(Description {
        title: info.title.clone(),
        author: info.author.clone(),
        kind: info.kind.name().to_owned(),
        color_model: info.color_model.name().to_owned(),
        version: format!("{}.{}", info.version.0, info.version.1),
        explanation: info.explanation.clone(),
        params: info.params.iter().enumerate().map(param).collect(),
    })
}

/// Returns the line that the child prints after any output of the plug-in.
pub fn answer(outcome: Result<Description, Frei0rError>) -> String {
    let json = serde_json::to_string(&outcome.map_err(|error| error.to_string()));
    // Cannot fail: the values are texts and numbers.
    format!("\n{}\n", json.unwrap_or_default())
}

/// Describes the plug-in in a process of its own, and waits for it. `child` is a command that calls
/// [`describe`] for the file in its last argument and prints the [`answer`].
pub fn ask(found: &Found, mut child: Command) -> PluginEntry {
    child.arg(&found.path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let outcome =
        child.spawn().map_err(|error| format!("cannot start a process: {error}")).and_then(read_description);
    let (description, error) = match outcome {
        Ok(description) => (Some(description), None),
        Err(error) => (None, Some(error)),
    };
    PluginEntry { name: found.name.clone(), file: found.path.display().to_string(), description, error }
}

fn read_description(mut child: Child) -> Result<Description, String> {
    let reader = child.stdout.take().map(|mut pipe| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // An error is ignored, so that the bytes before it are used.
            let _ = pipe.read_to_end(&mut bytes);
            bytes
        })
    });
    let status = wait(&mut child)?;
    let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let last = text.lines().last().unwrap_or_default();
    match serde_json::from_str::<Result<Description, String>>(last) {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("the process that loaded it ended: {status}")),
    }
}

/// Waits for the child to end. Kills a child that takes too long.
fn wait(child: &mut Child) -> Result<ExitStatus, String> {
    let failed = |error: std::io::Error| format!("cannot wait for its process: {error}");
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            child.kill().and_then(|()| child.wait()).map_err(failed)?;
            return Err(format!("did not answer within {} s", PATIENCE.as_secs()));
        }
        thread::sleep(Duration::from_millis(1));
    }
}
