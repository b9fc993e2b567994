// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptions of plug-ins.
//!
//! [`ask`] loads a plug-in in a separate process. If the plug-in crashes there, its entry in a list has an
//! error in place of the description, and the list continues with the next plug-in.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use framepath_codec::frei0r::{Found, Plugin};
use serde::{Deserialize, Serialize};

pub use framepath_codec::frei0r::{Frei0rError, find, folders, list};

/// Width and height in pixels of the instance whose parameters are read.
const SIZE: (u32, u32) = (64, 48);

/// Time limit for the process that loads and describes a plug-in.
const PATIENCE: Duration = Duration::from_secs(20);

/// Description of a plug-in, as the plug-in reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Name of the plug-in.
    pub title: String,
    /// Author of the plug-in.
    pub author: String,
    /// Type of the plug-in: `filter`, `source`, `mixer2` or `mixer3`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Order of the four bytes of a pixel: `RGBA8888`, `BGRA8888` or `PACKED32` (any order).
    pub color_model: String,
    /// Version of the plug-in: `MAJOR.MINOR`.
    pub version: String,
    /// Purpose of the plug-in; may be empty.
    pub explanation: String,
    /// Parameters of the plug-in, in the plug-in's order.
    pub params: Vec<PluginParam>,
}

/// A parameter of a plug-in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PluginParam {
    /// Name of the parameter in path text.
    pub name: String,
    /// Name of the parameter as the plug-in reports it.
    pub title: String,
    /// Type of the value: `bool`, `double`, `color`, `position` or `string`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Accepted values, in words.
    pub takes: String,
    /// Value in a new instance, in path syntax. Some plug-ins report a value that they do not accept.
    pub default: String,
    /// Purpose of the parameter; may be empty.
    pub explanation: String,
}

/// Entry of a list of plug-ins: a plug-in's file, with either its description or an error.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PluginEntry {
    /// Name of the plug-in in path text, after `frei0r:`; the name of its file without `.so`.
    pub name: String,
    /// Path of the plug-in's file.
    pub file: String,
    /// Description of the plug-in; `None` if it could not be read.
    #[serde(flatten)]
    pub description: Option<Description>,
    /// Reason why the description could not be read; `None` if it was read.
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

/// Returns `outcome` as a line of JSON, which the child of [`ask`] prints after any output of the plug-in.
/// The text begins with a line end, so that this output cannot share the line.
pub fn answer(outcome: Result<Description, Frei0rError>) -> String {
    let json = serde_json::to_string(&outcome.map_err(|error| error.to_string()));
    // Cannot fail: the values are texts and numbers.
    format!("\n{}\n", json.unwrap_or_default())
}

/// Describes the plug-in in a process of its own, and waits for this process for at most 20 s. `child` is a
/// command that calls [`describe`] for the file in its last argument and prints the [`answer`]; this function
/// adds that argument. A failure becomes the entry's error.
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

/// Waits for the child to end. Kills a child that takes longer than [`PATIENCE`], which is then an error.
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
