// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instance of a plug-in, for pictures of one size.

use std::ffi::{CString, c_char, c_double, c_int, c_void};
use std::ptr;

use super::plugin::{Loaded, text};
use super::{Frei0rError, ParamKind, ParamValue, abi};

/// Multiple of which a picture's width and height must be, pixels.
const SIDE: u32 = 8;

/// Required alignment of a picture's first byte, in bytes.
pub const ALIGN: usize = 16;

/// Returns `width` and `height` rounded up to multiples of 8, as plug-ins require them.
pub fn padded(width: u32, height: u32) -> (u32, u32) {
    (width.next_multiple_of(SIDE), height.next_multiple_of(SIDE))
}

/// Instance of a plug-in, for pictures of one size; destroyed on drop.
pub struct Instance {
    plugin: &'static Loaded,
    handle: abi::Handle,
    /// Size of a picture, bytes.
    bytes: usize,
}

// SAFETY: the specification ties an instance to no thread, and a lock serializes the calls into a
// plug-in (`Loaded::calls`).
unsafe impl Send for Instance {}

impl Instance {
    pub(super) fn new(plugin: &'static Loaded, width: u32, height: u32) -> Result<Instance, Frei0rError> {
        let refused = || Frei0rError::Construct { plugin: plugin.name.clone(), width, height };
        let fits = |side: u32| side > 0 && side % SIDE == 0;
        let bytes = (width as usize).checked_mul(height as usize).and_then(|pixels| pixels.checked_mul(4));
        let Some(bytes) = bytes.filter(|_| fits(width) && fits(height)) else { return Err(refused()) };
        let _turn = plugin.lock_calls();
        // SAFETY: the plug-in is initialised, and it must accept or reject the size.
        let handle = unsafe { (plugin.functions.construct)(width, height) };
        if handle.is_null() {
            return Err(refused());
        }
        Ok(Instance { plugin, handle, bytes })
    }

    /// Returns the number of bytes of a picture, input or output.
    pub fn picture_bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the parameter at index `place` of [`Info::params`](super::Info::params) to a value
    /// that [`Plugin::check`](super::Plugin::check) returned for it.
    ///
    /// # Panics
    /// There is no such parameter, the value is of another type, or a text has a zero byte.
    pub fn set(&mut self, place: usize, value: &ParamValue) {
        let kind = self.plugin.info.params[place].kind;
        match (kind, value) {
            (ParamKind::Bool, ParamValue::Bool(yes)) => {
                let mut raw: c_double = if *yes { 1.0 } else { 0.0 };
                self.access(self.plugin.functions.set_param, place, &mut raw);
            }
            (ParamKind::Double, ParamValue::Double(value)) => {
                self.access(self.plugin.functions.set_param, place, &mut { *value });
            }
            (ParamKind::Color, ParamValue::Color([r, g, b])) => {
                let mut raw = abi::Color { r: *r, g: *g, b: *b };
                self.access(self.plugin.functions.set_param, place, &mut raw);
            }
            (ParamKind::Position, ParamValue::Position([x, y])) => {
                let mut raw = abi::Position { x: *x, y: *y };
                self.access(self.plugin.functions.set_param, place, &mut raw);
            }
            (ParamKind::String, ParamValue::String(value)) => {
                let value = CString::new(value.as_str()).expect("a value has no zero byte");
                let mut raw: *mut c_char = value.as_ptr().cast_mut();
                self.access(self.plugin.functions.set_param, place, &mut raw);
            }
            _ => panic!("{value:?} for a parameter of type {kind}"),
        }
    }

    /// Returns the value of the parameter at index `place`; in a new instance the default. A text
    /// is returned without white space at its ends.
    ///
    /// # Panics
    /// There is no such parameter.
    pub fn get(&mut self, place: usize) -> ParamValue {
        let get = self.plugin.functions.get_param;
        match self.plugin.info.params[place].kind {
            ParamKind::Bool => {
                let mut raw: c_double = 0.0;
                self.access(get, place, &mut raw);
                ParamValue::Bool(raw >= 0.5)
            }
            ParamKind::Double => {
                let mut raw: c_double = 0.0;
                self.access(get, place, &mut raw);
                ParamValue::Double(raw)
            }
            ParamKind::Color => {
                let mut raw = abi::Color::default();
                self.access(get, place, &mut raw);
                ParamValue::Color([raw.r, raw.g, raw.b])
            }
            ParamKind::Position => {
                let mut raw = abi::Position::default();
                self.access(get, place, &mut raw);
                ParamValue::Position([raw.x, raw.y])
            }
            ParamKind::String => {
                let mut raw: *mut c_char = ptr::null_mut();
                self.access(get, place, &mut raw);
                // SAFETY: null, or the plug-in's own text, which is valid until the next call for
                // this instance.
                ParamValue::String(unsafe { text(raw) })
            }
        }
    }

    /// Calls `function` (get or set) for the parameter at index `place` with a pointer to `raw`,
    /// which has the type of the parameter. Waits for other calls into the plug-in.
    fn access<T>(&mut self, function: abi::ParamAccess, place: usize, raw: &mut T) {
        let _turn = self.plugin.lock_calls();
        // SAFETY: the handle is live, the index is that of a parameter, and the callers match the
        // pointer's type to the parameter's. The plug-in does not keep the pointer.
        unsafe { function(self.handle, ptr::from_mut(raw).cast::<c_void>(), place as c_int) };
    }

    /// Makes the picture of the time `seconds` in `output`, from as many pictures as the plug-in
    /// [takes](super::PluginKind::inputs). The inputs are writable too: no plug-in should write
    /// to them, but the cairo plug-ins do. If `output` has few rows, `partik0l` writes up to
    /// 16 rows beyond its end, so a caller that must survive this needs as much spare room there.
    ///
    /// # Panics
    /// The number of pictures is wrong, or a picture does not have [`Instance::picture_bytes`]
    /// bytes at a multiple of 16.
    pub fn update(&mut self, seconds: f64, inputs: &mut [&mut [u8]], output: &mut [u8]) {
        let expected = self.plugin.info.kind.inputs();
        assert_eq!(inputs.len(), expected, "pictures for {}", self.plugin.name);
        let check = |picture: &[u8]| {
            assert_eq!(picture.len(), self.bytes, "bytes of a picture for {}", self.plugin.name);
            assert_eq!(picture.as_ptr() as usize % ALIGN, 0, "address of a picture for {}", self.plugin.name);
        };
        inputs.iter().for_each(|input| check(input));
        check(output);
        let mut pointers = [ptr::null::<u32>(); 3];
        for (pointer, input) in pointers.iter_mut().zip(inputs) {
            *pointer = input.as_mut_ptr().cast::<u32>();
        }
        let [first, second, third] = pointers;
        let output = output.as_mut_ptr().cast::<u32>();
        let functions = &self.plugin.functions;
        let _turn = self.plugin.lock_calls();
        // SAFETY: the handle is live. The pictures have the size of the instance, are aligned and
        // writable. Mixers were checked to have `f0r_update2`, the others to have one of the two
        // functions.
        unsafe {
            match (functions.update, functions.update2) {
                (Some(update), _) if expected < 2 => update(self.handle, seconds, first, output),
                (_, Some(update2)) => update2(self.handle, seconds, first, second, third, output),
                _ => unreachable!("checked when it was loaded"),
            }
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _turn = self.plugin.lock_calls();
        // SAFETY: the handle is live, and this is its last use.
        unsafe { (self.plugin.functions.destruct)(self.handle) };
    }
}
