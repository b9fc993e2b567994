// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices of the experiment `m2m`, and how to get the absent ones.

use std::path::{Path, PathBuf};

use framepath_os::v4l2::{Heap, Node, NodeRole, find_node};

use crate::error::LabError;

/// Path of each device; of the heap only its presence. An absent device has a text instead: the
/// reason, and how to load it.
pub(super) struct Nodes {
    pub(super) camera: Result<PathBuf, String>,
    pub(super) measuring: Result<PathBuf, String>,
    pub(super) vim2m: Result<PathBuf, String>,
    pub(super) heap: Result<(), String>,
}

impl Nodes {
    /// Finds the devices on this machine: vivid as the camera, the measuring node of the kernel
    /// module, vim2m, and as the heap the system's dma-heap or else udmabuf.
    pub(super) fn find() -> Nodes {
        let find = |is: fn(&Node) -> bool, remedy: &str| find_node(is).ok_or_else(|| remedy.to_owned());
        let camera = find(
            |node| node.driver() == "vivid" && node.role() == NodeRole::Camera,
            "no vivid, the kernel's test camera; load it: sudo modprobe vivid",
        );
        let measuring = find(
            |node| node.role() == NodeRole::Measuring,
            "no measuring node; build kernel/ and load the module: sudo modprobe framepath (docs/device.md)",
        );
        let vim2m = find(
            |node| node.driver() == "vim2m",
            "no vim2m; load it: sudo modprobe vim2m (needs a kernel with CONFIG_VIDEO_VIM2M)",
        );
        let heap = match Heap::any().exists() {
            true => Ok(()),
            false => Err("no dma-heap and no udmabuf; load one: sudo modprobe udmabuf".to_owned()),
        };
        Nodes { camera, measuring, vim2m, heap }
    }

    /// Returns the path of a device; if it is absent, [`LabError::Missing`], which skips the
    /// contender.
    pub(super) fn of(node: &Result<PathBuf, String>) -> Result<&Path, LabError> {
        node.as_deref().map_err(|remedy| LabError::Missing(remedy.clone()))
    }
}
