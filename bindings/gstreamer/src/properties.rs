// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties that the elements of whole paths share.

use gst::glib;
use gst::prelude::*;

/// Returns the property `path`, with this description.
pub(crate) fn path_property(blurb: &str) -> glib::ParamSpec {
    glib::ParamSpecString::builder("path").nick("Path").blurb(blurb).mutable_ready().build()
}

/// Returns the property `report`.
pub(crate) fn report_property() -> glib::ParamSpec {
    glib::ParamSpecString::builder("report")
        .nick("Report")
        .blurb("Report of the last run as JSON, as of framepath run --json; null before its end")
        .read_only()
        .build()
}
