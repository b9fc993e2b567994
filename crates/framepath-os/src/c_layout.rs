// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures and numbers mirrored from C headers, for `tests/c_layout.rs`, which compares them
//! with the headers. See `docs/decisions/0021-c-layout.md`.

use std::any::TypeId;

/// Number on the Rust side, and the C expression that must have the same value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Name of the number on the Rust side, for messages.
    pub rust: String,
    /// C expression with the same value.
    pub c: String,
    /// Value on the Rust side.
    pub value: u64,
    /// True if the expression is a macro that older headers lack.
    pub may_lack: bool,
}

/// Facts collected so far.
#[derive(Default)]
pub(crate) struct Facts(pub(crate) Vec<Fact>);

/// Rule for padding in a mirrored structure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Padding {
    /// No padding: every byte belongs to a field. So a field of C that Rust lacks changes the size.
    None,
    /// Padding between the fields is allowed.
    Allowed,
}

/// Field of a mirrored structure, with its name in Rust and in C.
pub(crate) struct Field {
    rust: &'static str,
    c: &'static str,
    offset: usize,
    size: usize,
    is_signed: bool,
}

impl Field {
    /// Creates a field at `offset` bytes with the type of `_type`, which is not read. An empty C name
    /// means that the field covers bytes that have no name in C.
    pub(crate) fn new<F: 'static>(
        rust: &'static str,
        c: &'static str,
        offset: usize,
        _type: *const F,
    ) -> Field {
        let signed = [TypeId::of::<i8>(), TypeId::of::<i16>(), TypeId::of::<i32>(), TypeId::of::<i64>()];
        Field { rust, c, offset, size: size_of::<F>(), is_signed: signed.contains(&TypeId::of::<F>()) }
    }
}

impl Facts {
    /// Adds the number `value`, named `rust` in messages; the C expression `c` must have the same value.
    pub(crate) fn number(&mut self, rust: impl Into<String>, c: impl Into<String>, value: u64) {
        self.0.push(Fact { rust: rust.into(), c: c.into(), value, may_lack: false });
    }

    /// Adds the number `value` of the C macro `c`, which older headers lack.
    pub(crate) fn number_if_known(&mut self, rust: &str, c: &str, value: u64) {
        self.0.push(Fact { rust: rust.to_owned(), c: c.to_owned(), value, may_lack: true });
    }

    /// Adds the size of a structure, and offset, size and sign of each of its fields that has a C name. With
    /// [`Padding::None`], also adds the sum of all fields' sizes, which must equal the size.
    pub(crate) fn structure(
        &mut self,
        rust: &'static str,
        c: &'static str,
        size: usize,
        padding: Padding,
        fields: &[Field],
    ) {
        self.number(rust, format!("sizeof({c})"), size as u64);
        if padding == Padding::None {
            let sum: usize = fields.iter().map(|field| field.size).sum();
            self.number(format!("{rust} (sum of the fields)"), format!("sizeof({c})"), sum as u64);
        }
        for field in fields.iter().filter(|field| !field.c.is_empty()) {
            let name = |of: &str| format!("{rust}.{} ({of})", field.rust);
            let place = format!("(({c} *)0)->{}", field.c);
            self.number(name("offset"), format!("offsetof({c}, {})", field.c), field.offset as u64);
            self.number(name("size"), format!("sizeof({place})"), field.size as u64);
            self.number(name("is signed"), format!("IS_SIGNED({place})"), field.is_signed.into());
        }
    }
}

/// Adds a structure to [`Facts`]: every field of the Rust side, each with its C name. Does not compile if
/// a field is missing from the list.
macro_rules! structure {
    ($facts:ident, $padding:ident, $type:ident = $c:literal { $($field:tt = $c_field:literal),+ $(,)? }) => {{
        // No `..` in the pattern, so that a field missing from this list fails to compile.
        let _ = |value: $type| {
            let $type { $($field: _),+ } = value;
        };
        $crate::c_layout::members!($facts, $padding, $type = $c { $($field = $c_field),+ });
    }};
}

/// Adds a union to [`Facts`], or a structure whose list of fields may be incomplete.
macro_rules! members {
    ($facts:ident, $padding:ident, $type:ident = $c:literal { $($field:tt = $c_field:literal),+ $(,)? }) => {{
        let place = std::mem::MaybeUninit::<$type>::uninit();
        let fields = [$($crate::c_layout::Field::new(
            stringify!($field),
            $c_field,
            std::mem::offset_of!($type, $field),
            // SAFETY: inside `place`; only the address is computed, for its type.
            unsafe { &raw const (*place.as_ptr()).$field },
        )),+];
        let padding = $crate::c_layout::Padding::$padding;
        $facts.structure(stringify!($type), $c, size_of::<$type>(), padding, &fields);
    }};
}

/// Adds constants to [`Facts`], each with its C name.
macro_rules! numbers {
    ($facts:ident { $($rust:expr => $c:literal),+ $(,)? }) => {
        $($facts.number(stringify!($rust), $c, $rust as u64);)+
    };
}

pub(crate) use {members, numbers, structure};
