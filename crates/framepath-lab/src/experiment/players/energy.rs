// SPDX-License-Identifier: MIT OR Apache-2.0
//! Energy that the machine uses: from the RAPL counters of the processor packages, or from the power of
//! discharging batteries.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Readings of the energy counters and batteries at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Energy {
    /// Energy counter of each processor package, and the value at which the counter wraps, in
    /// microjoules; empty if the machine has none or this user may not read them.
    packages: Vec<(u64, u64)>,
    /// Sum of the powers that the discharging batteries report now, microwatts; `None` if no battery discharges
    /// or no discharging battery reports its power.
    battery_uw: Option<u64>,
}

impl Energy {
    pub(super) fn now() -> Energy {
        Energy::of(Path::new("/sys/class/powercap"), Path::new("/sys/class/power_supply"))
    }

    fn of(powercap: &Path, supplies: &Path) -> Energy {
        let packages = entries(powercap).into_iter().filter_map(|zone| {
            // A package's counter already includes the zones within the package.
            let name = word(&zone.join("name"))?;
            name.starts_with("package").then_some(())?;
            let counter = (number(&zone.join("energy_uj"))?, number(&zone.join("max_energy_range_uj"))?);
            Some((name, counter))
        });
        // Some machines have two zones for a package: its registers are in memory as well (intel-rapl-mmio).
        let packages: BTreeMap<String, (u64, u64)> = packages.collect();
        let batteries: Vec<u64> = entries(supplies)
            .into_iter()
            .filter(|supply| word(&supply.join("type")).as_deref() == Some("Battery"))
            .filter(|supply| word(&supply.join("status")).as_deref() == Some("Discharging"))
            .filter_map(|supply| number(&supply.join("power_now")))
            .collect();
        Energy {
            packages: packages.into_values().collect(),
            battery_uw: (!batteries.is_empty()).then(|| batteries.iter().sum()),
        }
    }

    /// Returns the energy in microjoules that the machine used since `before`, which was read `ns`
    /// nanoseconds earlier; `None` if the machine does not report energy at both times. If batteries
    /// discharge at both readings, the energy is theirs, by the mean of both powers, because they power the
    /// whole machine; otherwise it is that of the processor packages.
    pub(super) fn since(&self, before: &Energy, ns: u64) -> Option<f64> {
        if let (Some(now), Some(then)) = (self.battery_uw, before.battery_uw) {
            return Some((now + then) as f64 / 2.0 * ns as f64 / 1e9);
        }
        if self.packages.is_empty() || self.packages.len() != before.packages.len() {
            return None;
        }
        let used = |(now, range): &(u64, u64), then: u64| match now.checked_sub(then) {
            Some(used) => used,
            None => now + range.saturating_sub(then),
        };
        Some(self.packages.iter().zip(&before.packages).map(|(now, then)| used(now, then.0) as f64).sum())
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn word(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

fn number(file: &Path) -> Option<u64> {
    word(file)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn packages_count_without_their_subzones() {
        let folder = tempfile::tempdir().unwrap();
        let zone = |name: &str, kind: &str, energy: u64| {
            let zone = folder.path().join(name);
            file(zone.join("name"), kind);
            file(zone.join("energy_uj"), &energy.to_string());
            file(zone.join("max_energy_range_uj"), "1000\n");
        };
        let look = || Energy::of(folder.path(), Path::new("/no/such"));
        zone("intel-rapl:0", "package-0\n", 900);
        zone("intel-rapl:0:0", "core\n", 5);
        // The same package again, by registers in memory.
        zone("intel-rapl-mmio:0", "package-0\n", 900);
        let before = look();
        zone("intel-rapl:0", "package-0\n", 950);
        zone("intel-rapl-mmio:0", "package-0\n", 950);
        zone("intel-rapl:0:0", "core\n", 500);
        assert_eq!(look().since(&before, 1), Some(50.0));
        // The counter has wrapped.
        zone("intel-rapl:0", "package-0\n", 20);
        zone("intel-rapl-mmio:0", "package-0\n", 20);
        assert_eq!(look().since(&before, 1), Some(120.0));
    }

    #[test]
    fn a_battery_takes_precedence_over_packages() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("type", "Battery"), ("status", "Discharging"), ("power_now", "6000000")] {
            file(folder.path().join("BAT0").join(name), text);
        }
        let look = Energy::of(Path::new("/no/such"), folder.path());
        assert_eq!(look.since(&look, 500_000_000), Some(3_000_000.0));
        assert_eq!(Energy::default().since(&Energy::default(), 1), None);
    }
}
