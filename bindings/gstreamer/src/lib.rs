// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plug-in `framepath` for GStreamer: the decoder `framepathdec`, whose work is done in a sandboxed process.
//!
//! The decoder has rank none, so that `playbin3` uses it only on request: `GST_PLUGIN_FEATURE_RANK=framepathdec:MAX`.

mod decoder;
mod fields;
mod format;
mod handover;
mod latency;
mod memory;
mod packets;
mod pictures;
mod properties;
mod report;
mod running;
mod sink;
mod source;

fn init(plugin: &gst::Plugin) -> Result<(), gst::glib::BoolError> {
    framepath::silence_ffmpeg();
    decoder::register(plugin)?;
    source::register(plugin)?;
    sink::register(plugin)
}

#[allow(missing_docs)]
mod plugin {
    use super::init;

    gst::plugin_define!(
        framepath,
        env!("CARGO_PKG_DESCRIPTION"),
        init,
        concat!(env!("CARGO_PKG_VERSION"), "-", env!("COMMIT_ID")),
        "MIT/X11",
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_NAME"),
        "https://docs.rs/framepath",
        env!("BUILD_REL_DATE")
    );
}

pub use plugin::plugin_register_static;
