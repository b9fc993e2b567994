// SPDX-License-Identifier: MIT OR Apache-2.0
//! Description of the machine in summaries.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use framepath_model::summary::Machine;
use framepath_os::machine as os;
use framepath_os::process::owners::TrustedUsers;

/// Describes this machine, with the versions of framepath, the codec libraries and the ffmpeg tool. Starts
/// `ffmpeg -version`, if PATH leads to an ffmpeg that no user outside [`TrustedUsers::of_program`] can replace.
pub fn machine() -> Machine {
    let mut versions = BTreeMap::new();
    versions.insert("framepath".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    versions.extend(framepath_codec::versions().into_iter().map(|(n, v)| (n.to_owned(), v)));
    versions.extend(ffmpeg_version().map(|version| ("ffmpeg".to_owned(), version)));
    let (gpu, gpu_driver) = gpus(Path::new("/sys/class/drm"));
    Machine {
        cpu: os::cpu_name(),
        cores: os::cores() as u32,
        kernel: os::kernel(),
        pmu: os::pmu().is_ok(),
        os: Some(os::distribution()),
        memory_mib: memory_mib(),
        virtualisation: hypervisor(),
        governor: first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        gpu,
        gpu_driver,
        display: None,
        versions,
    }
}

/// Returns the version of the ffmpeg tool; `None` if the tool is not installed or fails, or if another user can replace it.
fn ffmpeg_version() -> Option<String> {
    const NAME: &str = "ffmpeg";
    // The user did not ask for this program, so it runs only from a place that the user or root controls.
    let users = TrustedUsers::of_program(&env::current_exe().unwrap_or_default());
    let mut ffmpeg = Command::new(users.find_program(NAME, &env::var_os("PATH")?)?);
    // A link can lead to a program that acts by the name with which it is started.
    ffmpeg.arg0(NAME);
    let output = ffmpeg.arg("-version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.split_whitespace().nth(2).map(str::to_owned)).flatten()
}

/// Returns the names of the graphics cards in folder `drm`, and their drivers, each separated by commas;
/// `None` if there are none. The name of a card is its PCI vendor and device number, else its name in the
/// device tree, else its module alias.
fn gpus(drm: &Path) -> (Option<String>, Option<String>) {
    let Ok(entries) = fs::read_dir(drm) else { return (None, None) };
    let is_card =
        |name: &str| name.strip_prefix("card").is_some_and(|n| n.chars().all(|c| c.is_ascii_digit()));
    let mut cards: Vec<_> =
        entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_card)).collect();
    cards.sort_by_key(|entry| entry.file_name());
    let (mut names, mut drivers) = (Vec::new(), Vec::new());
    for card in cards {
        let Ok(text) = fs::read_to_string(card.path().join("device/uevent")) else { continue };
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
        let name = value("PCI_ID=").map(|id| format!("PCI {id}")).or_else(|| value("OF_COMPATIBLE_0="));
        names.extend(name.or_else(|| value("MODALIAS=")));
        drivers.extend(value("DRIVER="));
    }
    let joined = |words: Vec<String>| (!words.is_empty()).then(|| words.join(", "));
    (joined(names), joined(drivers))
}

fn memory_mib() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = text.lines().next()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}

fn hypervisor() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let flags = info.lines().find(|l| l.starts_with("flags"))?;
    let virtual_machine = flags.split_whitespace().any(|f| f == "hypervisor");
    virtual_machine
        .then(|| first_line("/sys/class/dmi/id/sys_vendor").unwrap_or_else(|| "virtual machine".into()))
}

fn first_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned()).filter(|l| !l.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_read_from_sysfs() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(gpus(folder.path()), (None, None));
        for (name, text) in [
            ("card0", "DRIVER=i915\nPCI_ID=8086:9A49\n"),
            ("card1", "DRIVER=panfrost\nOF_COMPATIBLE_0=rockchip,rk3399-mali\n"),
            ("card0-HDMI-A-1", "DRIVER=no\n"),
        ] {
            let device = folder.path().join(name).join("device");
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("uevent"), text).unwrap();
        }
        let (names, drivers) = gpus(folder.path());
        assert_eq!(names.as_deref(), Some("PCI 8086:9A49, rockchip,rk3399-mali"));
        assert_eq!(drivers.as_deref(), Some("i915, panfrost"));
    }
}
