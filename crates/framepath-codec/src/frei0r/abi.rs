// SPDX-License-Identifier: MIT OR Apache-2.0
//! The binary interface of frei0r 1.2, written from its specification.
//!
//! Numbers from a plug-in stay plain integers until they are checked.

use std::ffi::{c_char, c_double, c_float, c_int, c_uint, c_void};

/// Highest supported version of the plug-in interface.
pub(super) const MAJOR_VERSION: c_int = 1;

pub(super) const TYPE_FILTER: c_int = 0;
pub(super) const TYPE_SOURCE: c_int = 1;
pub(super) const TYPE_MIXER2: c_int = 2;
pub(super) const TYPE_MIXER3: c_int = 3;

pub(super) const MODEL_BGRA8888: c_int = 0;
pub(super) const MODEL_RGBA8888: c_int = 1;
pub(super) const MODEL_PACKED32: c_int = 2;

pub(super) const PARAM_BOOL: c_int = 0;
pub(super) const PARAM_DOUBLE: c_int = 1;
pub(super) const PARAM_COLOR: c_int = 2;
pub(super) const PARAM_POSITION: c_int = 3;
pub(super) const PARAM_STRING: c_int = 4;

/// A plug-in's description of itself. The plug-in owns the texts.
#[repr(C)]
pub(super) struct PluginInfo {
    pub(super) name: *const c_char,
    pub(super) author: *const c_char,
    pub(super) plugin_type: c_int,
    pub(super) color_model: c_int,
    pub(super) frei0r_version: c_int,
    pub(super) major_version: c_int,
    pub(super) minor_version: c_int,
    pub(super) num_params: c_int,
    pub(super) explanation: *const c_char,
}

/// A plug-in's description of one parameter.
#[repr(C)]
pub(super) struct ParamInfo {
    pub(super) name: *const c_char,
    pub(super) param_type: c_int,
    pub(super) explanation: *const c_char,
}

/// Value of a colour parameter; each part is from 0 to 1.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Color {
    pub(super) r: c_float,
    pub(super) g: c_float,
    pub(super) b: c_float,
}

/// Value of a position parameter; each part is from 0 to 1.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Position {
    pub(super) x: c_double,
    pub(super) y: c_double,
}

/// Opaque handle of an instance of a plug-in.
pub(super) type Handle = *mut c_void;

pub(super) type Init = unsafe extern "C" fn() -> c_int;
pub(super) type GetPluginInfo = unsafe extern "C" fn(*mut PluginInfo);
pub(super) type GetParamInfo = unsafe extern "C" fn(*mut ParamInfo, c_int);
pub(super) type Construct = unsafe extern "C" fn(c_uint, c_uint) -> Handle;
pub(super) type Destruct = unsafe extern "C" fn(Handle);
/// Type of `f0r_set_param_value` and `f0r_get_param_value`. The pointer refers to a `c_double`, a
/// [`Color`], a [`Position`] or a `*mut c_char`.
pub(super) type ParamAccess = unsafe extern "C" fn(Handle, *mut c_void, c_int);
/// Type of `f0r_update`: time in seconds, input picture (null for a source), output picture.
pub(super) type Update = unsafe extern "C" fn(Handle, c_double, *const u32, *mut u32);
/// Type of `f0r_update2`: time in seconds, three input pictures (null for those that the plug-in
/// does not take), output picture.
pub(super) type Update2 =
    unsafe extern "C" fn(Handle, c_double, *const u32, *const u32, *const u32, *mut u32);
