// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probes of devices that hold or process frames.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use framepath_os::machine;
use framepath_os::v4l2::Node;

use super::probe::{Probe, ProbeState};

const GROUP: &str = "devices";

/// Path of the V4L2 header that the kernel's development package installs.
const VIDEODEV2: &str = "/usr/include/linux/videodev2.h";

pub(super) fn probes() -> Vec<Probe> {
    vec![v4l2(), module("/dev"), fence_flags(Path::new(VIDEODEV2)), dma_heap(), udmabuf(), render_node()]
}

/// Probes by opening `nodes` for reading until one succeeds; the result then shows `described`, a
/// text that names all of them. If all fail, the result shows the last node and its error; without
/// nodes the capability is missing. The remedy is to join the user group `group_to_join` or to run
/// as root.
fn opened(
    name: &'static str,
    unlocks: &'static str,
    nodes: &[PathBuf],
    described: String,
    group_to_join: &str,
) -> Probe {
    let mut refused = None;
    for node in nodes {
        match File::open(node) {
            Ok(_) => return Probe::ok(GROUP, name, unlocks, described),
            Err(error) => refused = Some((node, error)),
        }
    }
    let (state, found) = match refused {
        Some((node, error)) => (ProbeState::from_error(&error), format!("{}: {error}", node.display())),
        None => (ProbeState::Missing, "none".to_owned()),
    };
    let remedy = format!("sudo usermod -aG {group_to_join} $USER, then log in again; or run as root");
    Probe::lacking(GROUP, name, unlocks, state, found, remedy)
}

fn v4l2() -> Probe {
    let (name, unlocks) = ("V4L2 nodes", "`v4l2` sources and `decode api=v4l2m2m`");
    let nodes = machine::nodes("/dev", "video");
    if nodes.is_empty() {
        let remedy =
            "a camera or a codec device; to test without hardware: sudo modprobe vivid, vicodec or vim2m";
        return Probe::lacking(GROUP, name, unlocks, ProbeState::Missing, "no /dev/video*", remedy);
    }
    let described: Vec<String> = nodes.iter().map(|node| described(node)).collect();
    opened(name, unlocks, &nodes, described.join(", "), "video")
}

/// Describes a V4L2 node by its role and card: `/dev/video0 is a stateful decoder (vicodec)`. A node
/// that cannot be opened is described by its name in sysfs.
fn described(node: &Path) -> String {
    match Node::open(node) {
        Ok(opened) => format!("{} is {} ({})", node.display(), opened.role(), opened.card()),
        Err(_) => node_name(node),
    }
}

/// Formats a V4L2 node with its name in sysfs, `/dev/video0 (vim2m)`; only the path without such a
/// name.
fn node_name(node: &Path) -> String {
    let base = node.file_name().unwrap_or_default().to_string_lossy();
    let driver = fs::read_to_string(format!("/sys/class/video4linux/{base}/name")).unwrap_or_default();
    if driver.trim().is_empty() {
        node.display().to_string()
    } else {
        format!("{} ({})", node.display(), driver.trim())
    }
}

/// Probes framepath's kernel module by its nodes in `folder`, whose names begin with `framepath`. The
/// capability is present if one of the nodes can be opened for reading.
fn module(folder: &str) -> Probe {
    let (name, unlocks) =
        ("framepath.ko", "decoding for every program of the machine, and the measuring node");
    let nodes = machine::nodes(folder, "framepath");
    if !nodes.is_empty() {
        let described: Vec<String> = nodes.iter().map(|node| node.display().to_string()).collect();
        return opened(name, unlocks, &nodes, described.join(", "), "video");
    }
    let remedy = "build kernel/ and load the module: sudo modprobe framepath (docs/device.md)";
    Probe::lacking(GROUP, name, unlocks, ProbeState::Missing, format!("no {folder}/framepath*"), remedy)
}

/// Probes the file `header` for explicit fences on buffers, which were proposed for V4L2 and not
/// merged by 2026. The capability is present if the header names one of their flags or fields; it
/// is lacking if the header has none or cannot be read.
fn fence_flags(header: &Path) -> Probe {
    let (name, unlocks) =
        ("V4L2 fence flags", "sending a device a buffer before its frame is finished (planned)");
    let text = match fs::read_to_string(header) {
        Ok(text) => text,
        Err(error) => {
            let found = format!("{}: {error}", header.display());
            let remedy = "apt install linux-libc-dev, so that the probe can read the header";
            return Probe::lacking(GROUP, name, unlocks, ProbeState::from_error(&error), found, remedy);
        }
    };
    let words = ["V4L2_BUF_FLAG_IN_FENCE", "V4L2_BUF_FLAG_OUT_FENCE", "fence_fd"];
    let present: Vec<&str> = words.into_iter().filter(|word| text.contains(word)).collect();
    if present.is_empty() {
        let found = format!("none in {}", header.display());
        let remedy = "a kernel with explicit V4L2 fences; no released kernel had them in 2026";
        return Probe::lacking(GROUP, name, unlocks, ProbeState::Missing, found, remedy);
    }
    let found = format!(
        "*** THIS KERNEL'S HEADER HAS THEM: {} *** please report this to the project",
        present.join(", ")
    );
    Probe::ok(GROUP, name, unlocks, found)
}

fn dma_heap() -> Probe {
    let (name, unlocks) = ("dma-heap", "frames in dmabufs that devices read without a copy");
    let nodes = machine::nodes("/dev/dma_heap", "");
    if nodes.is_empty() {
        let remedy = "a kernel with CONFIG_DMABUF_HEAPS_SYSTEM=y";
        return Probe::lacking(GROUP, name, unlocks, ProbeState::Missing, "no /dev/dma_heap", remedy);
    }
    let described: Vec<String> = nodes.iter().map(|node| node.display().to_string()).collect();
    opened(name, unlocks, &nodes, described.join(", "), "video")
}

fn udmabuf() -> Probe {
    let (name, unlocks) = ("udmabuf", "frames in memfds as dmabufs, so that devices read them in place");
    let node = PathBuf::from("/dev/udmabuf");
    if !node.exists() {
        let remedy = "sudo modprobe udmabuf; a kernel with CONFIG_UDMABUF";
        return Probe::lacking(GROUP, name, unlocks, ProbeState::Missing, "no /dev/udmabuf", remedy);
    }
    opened(name, unlocks, std::slice::from_ref(&node), node.display().to_string(), "kvm")
}

fn render_node() -> Probe {
    let (name, unlocks) = ("GPU render node", "VA-API; output without a copy (planned)");
    let nodes = machine::nodes("/dev/dri", "renderD");
    if nodes.is_empty() {
        let remedy = "a GPU with a DRM driver; in a container, pass /dev/dri in";
        return Probe::lacking(GROUP, name, unlocks, ProbeState::Missing, "no /dev/dri/renderD*", remedy);
    }
    let described: Vec<String> = nodes.iter().map(|node| node.display().to_string()).collect();
    opened(name, unlocks, &nodes, described.join(", "), "render")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_detected_by_its_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().to_str().unwrap();
        assert_eq!(module(place).state, ProbeState::Missing);
        fs::write(folder.path().join("framepath-meta"), "").unwrap();
        assert_eq!(module(place).state, ProbeState::Ok);
    }

    #[test]
    fn fences_in_a_header_are_reported_in_capitals() {
        let folder = tempfile::tempdir().unwrap();
        let header = folder.path().join("videodev2.h");
        fs::write(&header, "#define V4L2_BUF_FLAG_LAST 0x00100000\n").unwrap();
        assert_eq!(fence_flags(&header).state, ProbeState::Missing);
        fs::write(&header, "#define V4L2_BUF_FLAG_IN_FENCE 0x00200000\n").unwrap();
        let probe = fence_flags(&header);
        assert_eq!(probe.state, ProbeState::Ok);
        assert!(probe.found.contains("*** THIS KERNEL'S HEADER HAS THEM: V4L2_BUF_FLAG_IN_FENCE ***"));
        assert_eq!(fence_flags(&folder.path().join("none.h")).state, ProbeState::Missing);
    }
}
