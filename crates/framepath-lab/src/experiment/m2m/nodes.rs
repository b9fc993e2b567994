// SPDX-License-Identifier: MIT OR Apache-2.0
//! The devices of the experiment, and how to get the absent ones.

use std::path::{Path, PathBuf};

use framepath_os::v4l2::{Heap, Node, NodeRole, find_node};

use crate::error::LabError;

/// Path of each device, or why it is absent.
pub(super) struct Nodes {
    pub(super) camera: Result<PathBuf, String>,
    pub(super) measuring: Result<PathBuf, String>,
    pub(super) vim2m: Result<PathBuf, String>,
    pub(super) heap: Result<(), String>,
}

impl Nodes {
    /// Finds the devices of the experiment: the camera, the measuring node, vim2m and a heap. An
    /// absent device gets advice on how to load it.
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

    /// Returns a node, or the error that skips the contenders that need it.
    pub(super) fn of(node: &Result<PathBuf, String>) -> Result<&Path, LabError> {
        node.as_deref().map_err(|remedy| LabError::Missing(remedy.clone()))
    }
}
