// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plug-in loaded into this process.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use framepath_model::path::{nearest, plain_name};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::{Frei0rError, Instance, Param, ParamKind, ParamValue, abi};

/// Maximum plausible number of parameters; a larger number is invalid.
const MOST_PARAMS: c_int = 4096;

/// Kind of a plug-in, by its input pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginKind {
    /// One input picture.
    Filter,
    /// No input picture.
    Source,
    /// Two input pictures.
    Mixer2,
    /// Three input pictures.
    Mixer3,
}

impl PluginKind {
    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            PluginKind::Filter => "filter",
            PluginKind::Source => "source",
            PluginKind::Mixer2 => "mixer2",
            PluginKind::Mixer3 => "mixer3",
        }
    }

    /// Returns the number of input pictures.
    pub fn inputs(self) -> usize {
        match self {
            PluginKind::Filter => 1,
            PluginKind::Source => 0,
            PluginKind::Mixer2 => 2,
            PluginKind::Mixer3 => 3,
        }
    }
}

impl fmt::Display for PluginKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Order of the four bytes of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorModel {
    /// Blue, green, red, alpha.
    Bgra8888,
    /// Red, green, blue, alpha.
    Rgba8888,
    /// Any order: the plug-in moves pixels and does not interpret them.
    Packed32,
}

impl ColorModel {
    /// Returns the name of the colour model.
    pub fn name(self) -> &'static str {
        match self {
            ColorModel::Bgra8888 => "BGRA8888",
            ColorModel::Rgba8888 => "RGBA8888",
            ColorModel::Packed32 => "PACKED32",
        }
    }
}

/// A plug-in's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Name that the plug-in gives itself, which mostly differs from the file's name.
    pub title: String,
    /// Author of the plug-in.
    pub author: String,
    /// Kind of the plug-in.
    pub kind: PluginKind,
    /// Order of the bytes of a pixel.
    pub color_model: ColorModel,
    /// Version of the plug-in, major and minor.
    pub version: (i32, i32),
    /// The plug-in's description of its own purpose; empty if it has none.
    pub explanation: String,
    /// Parameters, in the plug-in's order.
    pub params: Vec<Param>,
}

/// Functions of a plug-in; they may be called until the process ends.
pub(super) struct Functions {
    pub(super) construct: abi::Construct,
    pub(super) destruct: abi::Destruct,
    pub(super) set_param: abi::ParamAccess,
    pub(super) get_param: abi::ParamAccess,
    /// `f0r_update`; mixers may lack it, and filters and sources that have `f0r_update2`.
    pub(super) update: Option<abi::Update>,
    /// `f0r_update2`; filters and sources that have `f0r_update` may lack it.
    pub(super) update2: Option<abi::Update2>,
}

/// Loaded plug-in. It stays loaded until the process ends, because its code may still run on
/// threads that it started, and at the end of the process.
pub(super) struct Loaded {
    /// Path of the file with all symlinks resolved, so that two paths to one file are one plug-in.
    path: PathBuf,
    /// Name of the file without `.so`, for messages.
    pub(super) name: String,
    pub(super) info: Info,
    pub(super) functions: Functions,
    /// Lock for calls after loading. The specification says nothing about threads, and plug-ins
    /// have global variables, so each plug-in gets one call at a time.
    calls: Mutex<()>,
}

/// All plug-ins that this process has loaded; kept, because `f0r_init` may be called only once for
/// each.
static LOADED: Mutex<Vec<&'static Loaded>> = Mutex::new(Vec::new());

impl Loaded {
    /// Waits until no other thread calls into the plug-in. Other calls then wait until the returned
    /// guard is dropped.
    pub(super) fn lock_calls(&self) -> MutexGuard<'_, ()> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle to a plug-in in this process. Handles are cheap; the plug-in is loaded once and stays
/// loaded.
#[derive(Clone, Copy)]
pub struct Plugin {
    loaded: &'static Loaded,
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("path", &self.loaded.path).finish_non_exhaustive()
    }
}

impl Plugin {
    /// Loads the file `path` and its libraries, initialises the plug-in and reads its declarations.
    /// All of this runs foreign code. If this process has loaded the file before, only returns
    /// another handle.
    ///
    /// # Errors
    /// The linker's error, a missing symbol, a failure of `f0r_init`, a declared value that the
    /// specification does not define, or more than 4096 declared parameters.
    pub fn load(path: &Path) -> Result<Plugin, Frei0rError> {
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        // Compares by the unresolved path first, because a sandboxed process may no longer access
        // the file system.
        if let Some(plugin) = Plugin::loaded(path) {
            return Ok(plugin);
        }
        // If the path cannot be resolved, the linker reports the error.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if let Some(plugin) = Plugin::loaded(&path) {
            return Ok(plugin);
        }
        let mut all = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded: &'static Loaded = Box::leak(Box::new(load(path, name)?));
        all.push(loaded);
        Ok(Plugin { loaded })
    }

    /// Returns the plug-in that was loaded from the resolved path `path`; `None` if there is none.
    fn loaded(path: &Path) -> Option<Plugin> {
        let all = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|loaded| loaded.path == path).map(|loaded| Plugin { loaded })
    }

    /// Returns the plug-in's description of itself.
    pub fn info(&self) -> &'static Info {
        &self.loaded.info
    }

    /// Returns the file's name without `.so`, as in the path with which the plug-in was first
    /// loaded.
    pub fn name(&self) -> &'static str {
        &self.loaded.name
    }

    /// Checks that the plug-in has the parameter `name` and that it accepts `value`. Returns the
    /// index in [`Info::params`] and the parsed value. In `name`, case and the characters between
    /// words do not matter ([`plain_name`]).
    ///
    /// # Errors
    /// [`Frei0rError::NoParam`] with the most similar name if any is similar;
    /// [`Frei0rError::Value`] with the accepted values.
    pub fn check(&self, name: &str, value: &str) -> Result<(usize, ParamValue), Frei0rError> {
        let params = &self.loaded.info.params;
        let plain = plain_name(name);
        let Some(place) = params.iter().position(|param| param.name == plain) else {
            let known: Vec<String> = params.iter().map(|param| param.name.clone()).collect();
            return Err(Frei0rError::NoParam {
                plugin: self.loaded.name.clone(),
                nearest: nearest(&plain, known.iter().map(String::as_str)).map(str::to_owned),
                name: plain,
                known,
            });
        };
        let kind = params[place].kind;
        match kind.read(value) {
            Some(value) => Ok((place, value)),
            None => Err(Frei0rError::Value {
                plugin: self.loaded.name.clone(),
                name: plain,
                value: value.to_owned(),
                wants: kind.wants(),
            }),
        }
    }

    /// Returns an error if the plug-in is a mixer.
    ///
    /// # Errors
    /// [`Frei0rError::Mixer`].
    pub fn refuse_mixer(&self) -> Result<(), Frei0rError> {
        let kind = self.loaded.info.kind;
        match kind {
            PluginKind::Filter | PluginKind::Source => Ok(()),
            PluginKind::Mixer2 | PluginKind::Mixer3 => {
                Err(Frei0rError::Mixer { plugin: self.loaded.name.clone(), kind, inputs: kind.inputs() })
            }
        }
    }

    /// Makes an instance for pictures of `width` by `height` pixels, each a multiple of 8 (see
    /// [`padded`](super::padded)). The specification allows sizes up to 2048; the plug-in decides
    /// about larger sizes.
    ///
    /// # Errors
    /// [`Frei0rError::Construct`] if the plug-in rejects the size, or a side is zero or not a
    /// multiple of 8.
    pub fn instance(&self, width: u32, height: u32) -> Result<Instance, Frei0rError> {
        Instance::new(self.loaded, width, height)
    }
}

fn load(path: PathBuf, name: String) -> Result<Loaded, Frei0rError> {
    // SAFETY: the constructors of the object run here. The caller that loads the plug-in accepts
    // this; see the documentation of the module.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
    let library =
        library.map_err(|error| Frei0rError::Open { plugin: name.clone(), message: error.to_string() })?;
    let missing = |symbol| Frei0rError::NoSymbol { plugin: name.clone(), symbol };
    macro_rules! function {
        ($symbol:literal as $type:ty) => {{
            // SAFETY: the specification defines this type for the function; the object is never
            // unloaded.
            let found = unsafe { library.get::<$type>(concat!($symbol, "\0").as_bytes()) };
            found.map(|symbol| *symbol).map_err(|_| missing($symbol))
        }};
    }
    let init = function!("f0r_init" as abi::Init)?;
    let get_plugin_info = function!("f0r_get_plugin_info" as abi::GetPluginInfo)?;
    let get_param_info = function!("f0r_get_param_info" as abi::GetParamInfo)?;
    let functions = Functions {
        construct: function!("f0r_construct" as abi::Construct)?,
        destruct: function!("f0r_destruct" as abi::Destruct)?,
        set_param: function!("f0r_set_param_value" as abi::ParamAccess)?,
        get_param: function!("f0r_get_param_value" as abi::ParamAccess)?,
        update: function!("f0r_update" as abi::Update).ok(),
        update2: function!("f0r_update2" as abi::Update2).ok(),
    };
    std::mem::forget(library);

    // SAFETY: the first call, as the specification requires.
    let code = unsafe { init() };
    // The specification does not define the return value. All known plug-ins return 1, so 0 can
    // only mean failure.
    if code == 0 {
        return Err(Frei0rError::Init { plugin: name, code });
    }
    let mut raw = abi::PluginInfo {
        name: ptr::null(),
        author: ptr::null(),
        plugin_type: -1,
        color_model: -1,
        frei0r_version: -1,
        major_version: 0,
        minor_version: 0,
        num_params: 0,
        explanation: ptr::null(),
    };
    // SAFETY: a valid struct for the plug-in to fill in.
    unsafe { get_plugin_info(&mut raw) };
    let unknown = |what, value| Frei0rError::Unknown { plugin: name.clone(), what, value };
    if !(1..=abi::MAJOR_VERSION).contains(&raw.frei0r_version) {
        return Err(unknown("version of frei0r", raw.frei0r_version));
    }
    if !(0..=MOST_PARAMS).contains(&raw.num_params) {
        return Err(unknown("number of parameters", raw.num_params));
    }
    let kind = kind_of(raw.plugin_type).ok_or_else(|| unknown("type", raw.plugin_type))?;
    let color_model = model_of(raw.color_model).ok_or_else(|| unknown("colour model", raw.color_model))?;
    let can_run = match kind.inputs() {
        0 | 1 => functions.update.is_some() || functions.update2.is_some(),
        _ => functions.update2.is_some(),
    };
    if !can_run {
        return Err(missing(if kind.inputs() > 1 { "f0r_update2" } else { "f0r_update" }));
    }
    let mut params = Vec::new();
    for index in 0..raw.num_params {
        let mut raw = abi::ParamInfo { name: ptr::null(), param_type: -1, explanation: ptr::null() };
        // SAFETY: a valid struct for the plug-in to fill in, and the index is below the number of
        // parameters.
        unsafe { get_param_info(&mut raw, index) };
        let kind =
            param_kind_of(raw.param_type).ok_or_else(|| unknown("type of a parameter", raw.param_type))?;
        // SAFETY: texts of a plug-in end with a zero and are never freed.
        let (title, explanation) = unsafe { (text(raw.name), text(raw.explanation)) };
        params.push(Param::new(title, kind, explanation));
    }
    // SAFETY: texts of a plug-in end with a zero and are never freed.
    let (title, author, explanation) = unsafe { (text(raw.name), text(raw.author), text(raw.explanation)) };
    let version = (raw.major_version, raw.minor_version);
    let info = Info { title, author, kind, color_model, version, explanation, params };
    Ok(Loaded { path, name, info, functions, calls: Mutex::new(()) })
}

fn kind_of(number: c_int) -> Option<PluginKind> {
    match number {
        abi::TYPE_FILTER => Some(PluginKind::Filter),
        abi::TYPE_SOURCE => Some(PluginKind::Source),
        abi::TYPE_MIXER2 => Some(PluginKind::Mixer2),
        abi::TYPE_MIXER3 => Some(PluginKind::Mixer3),
        _ => None,
    }
}

fn model_of(number: c_int) -> Option<ColorModel> {
    match number {
        abi::MODEL_BGRA8888 => Some(ColorModel::Bgra8888),
        abi::MODEL_RGBA8888 => Some(ColorModel::Rgba8888),
        abi::MODEL_PACKED32 => Some(ColorModel::Packed32),
        _ => None,
    }
}

fn param_kind_of(number: c_int) -> Option<ParamKind> {
    match number {
        abi::PARAM_BOOL => Some(ParamKind::Bool),
        abi::PARAM_DOUBLE => Some(ParamKind::Double),
        abi::PARAM_COLOR => Some(ParamKind::Color),
        abi::PARAM_POSITION => Some(ParamKind::Position),
        abi::PARAM_STRING => Some(ParamKind::String),
        _ => None,
    }
}

/// Copies a C string without white space at its ends; returns an empty string for null.
///
/// # Safety
/// `pointer` is null or a text that ends with a zero.
pub(super) unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().trim().to_owned()
}
