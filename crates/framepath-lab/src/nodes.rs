// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device nodes of this machine.

use std::fs;
use std::path::PathBuf;

use framepath_os::v4l2::Node;

/// The nodes of `folder` whose names begin with `prefix`, in order.
pub(crate) fn named(folder: &str, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    let mut nodes: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(names).collect();
    nodes.sort();
    nodes
}

/// The first V4L2 node that may be opened and is what `is` says.
pub(crate) fn v4l2(is: impl Fn(&Node) -> bool) -> Option<PathBuf> {
    named("/dev", "video").into_iter().find(|path| Node::open(path).is_ok_and(|node| is(&node)))
}
