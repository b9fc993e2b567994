// SPDX-License-Identifier: MIT OR Apache-2.0
//! Search for plug-in files. This module opens none of them.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use framepath_model::path::nearest;

use super::Frei0rError;

/// File of a plug-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// File name without `.so`: the plug-in's name in paths.
    pub name: String,
    /// Path of the file.
    pub path: PathBuf,
}

/// Returns the folders to search, in order of priority: those of the environment variable
/// `FREI0R_PATH` (a list with colons) if it is set and not empty, otherwise `/usr/lib/frei0r-1`,
/// `/usr/lib/ARCH-linux-gnu/frei0r-1`, `/usr/local/lib/frei0r-1` and, if `HOME` is set,
/// `$HOME/.frei0r-1/lib`. The folders need not exist.
pub fn folders() -> Vec<PathBuf> {
    if let Some(set) = env::var_os("FREI0R_PATH").filter(|set| !set.is_empty()) {
        return env::split_paths(&set).filter(|folder| !folder.as_os_str().is_empty()).collect();
    }
    let mut folders = vec![PathBuf::from("/usr/lib/frei0r-1")];
    // Debian's name of the architecture.
    let triplet = format!("{}-linux-gnu", env::consts::ARCH);
    folders.push(PathBuf::from("/usr/lib").join(triplet).join("frei0r-1"));
    folders.push(PathBuf::from("/usr/local/lib/frei0r-1"));
    if let Some(home) = env::var_os("HOME") {
        folders.push(PathBuf::from(home).join(".frei0r-1/lib"));
    }
    folders
}

/// Returns all plug-ins in [`folders`], sorted by name; if several files have the same name, the
/// first folder wins. A subfolder belongs to a vendor: this function searches it too, after the
/// files of the folder, but not its own subfolders. Leaves out folders that cannot be read, and
/// files whose names are not UTF-8.
pub fn list() -> Vec<Found> {
    in_folders(&folders())
}

/// Finds the plug-in named `name`.
///
/// # Errors
/// [`Frei0rError::NotFound`], with the most similar existing name if any is similar.
pub fn find(name: &str) -> Result<Found, Frei0rError> {
    let folders = folders();
    let mut all = in_folders(&folders);
    match all.iter().position(|found| found.name == name) {
        Some(place) => Ok(all.swap_remove(place)),
        None => Err(Frei0rError::NotFound {
            name: name.to_owned(),
            nearest: nearest(name, all.iter().map(|found| found.name.as_str())).map(str::to_owned),
            known: all.len(),
            folders,
        }),
    }
}

fn in_folders(folders: &[PathBuf]) -> Vec<Found> {
    let mut all = BTreeMap::new();
    for folder in folders {
        add(folder, true, &mut all);
    }
    all.into_iter().map(|(name, path)| Found { name, path }).collect()
}

/// Adds the plug-ins in `folder` whose names `all` does not have yet, and with `and_vendors` those
/// in its subfolders; none if the folder cannot be read.
fn add(folder: &Path, and_vendors: bool, all: &mut BTreeMap<String, PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let (vendors, files): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| path.is_dir());
    for path in files {
        let name = path.file_stem().and_then(OsStr::to_str);
        if let (Some(name), Some("so")) = (name, path.extension().and_then(OsStr::to_str)) {
            all.entry(name.to_owned()).or_insert_with(|| path.clone());
        }
    }
    if and_vendors {
        for vendor in vendors {
            add(&vendor, false, all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_wins_and_vendors_have_folders() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (root.path().join("first"), root.path().join("second"));
        fs::create_dir_all(first.join("vendor/deeper")).unwrap();
        fs::create_dir_all(&second).unwrap();
        for file in
            ["first/a.so", "first/vendor/b.so", "first/vendor/deeper/c.so", "second/a.so", "second/b.txt"]
        {
            fs::write(root.path().join(file), "").unwrap();
        }
        let found = in_folders(&[root.path().join("missing"), first.clone(), second]);
        let found: Vec<_> = found.into_iter().map(|found| (found.name, found.path)).collect();
        assert_eq!(
            found,
            [("a".to_owned(), first.join("a.so")), ("b".to_owned(), first.join("vendor/b.so"))]
        );
    }
}
