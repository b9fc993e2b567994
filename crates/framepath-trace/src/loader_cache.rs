// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries that the loader of programs finds by their names: from its cache, and in the folders of `LD_LIBRARY_PATH`.
//!
//! Format of the cache: glibc's sysdeps/generic/dl-cache.h (`struct cache_file_new`), written by ldconfig(8).

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Cache of the C library's loader.
const CACHE: &str = "/etc/ld.so.cache";
/// First bytes of the format. An older format may stand in front of it.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// Bytes of the header, and of an entry behind it: flags, name, path, version (4 bytes each), and hardware.
const HEADER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 24;
/// Offset of the path's place in an entry.
const PATH_AT: usize = 8;

/// Folders in which loaders look without a cache.
const FOLDERS: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// Returns the paths of libraries that a program with `LD_LIBRARY_PATH` set to `folders` finds, and whose names `is_wanted`
/// wants. The paths may be links, and several may lead to one file.
pub(crate) fn known_libraries(folders: Option<&OsStr>, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let wants = |path: &Path| path.file_name().and_then(OsStr::to_str).is_some_and(&is_wanted);
    let cache = fs::read(CACHE).unwrap_or_default();
    let cached = cached_paths(&cache);
    let mut searched: Vec<PathBuf> = folders.map(env::split_paths).into_iter().flatten().collect();
    if cached.is_empty() {
        searched.extend(FOLDERS.map(PathBuf::from));
    }
    let mut found: Vec<PathBuf> = cached.into_iter().filter(|path| wants(path)).collect();
    for folder in searched.into_iter().filter(|folder| folder.is_absolute()) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        found.extend(entries.map(|entry| entry.path()).filter(|path| wants(path)));
    }
    found
}

/// Returns the paths in a cache; none if it is damaged or has another format.
fn cached_paths(cache: &[u8]) -> Vec<PathBuf> {
    let Some(start) = cache.windows(MAGIC.len()).position(|bytes| bytes == MAGIC) else { return Vec::new() };
    let cache = &cache[start..];
    let word = |at: usize| Some(u32::from_ne_bytes(*cache.get(at..)?.first_chunk()?) as usize);
    let path = |entry: usize| {
        let text = cache.get(word(HEADER_BYTES + ENTRY_BYTES * entry + PATH_AT)?..)?;
        let text = text.split(|byte| *byte == 0).next()?;
        Some(PathBuf::from(OsStr::from_bytes(text)))
    };
    let count = word(MAGIC.len()).unwrap_or(0).min(cache.len() / ENTRY_BYTES);
    (0..count).filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_behind_an_older_format() {
        let mut cache = MAGIC.to_vec();
        cache.extend(2u32.to_ne_bytes());
        cache.resize(HEADER_BYTES, 0);
        let texts = HEADER_BYTES + 2 * ENTRY_BYTES;
        for path in [texts, texts + 10] {
            let entry = [1, 0, path as u32, 0, 0, 0];
            cache.extend(entry.into_iter().flat_map(u32::to_ne_bytes));
        }
        cache.extend(b"/lib/a.so\0/lib/b.so\0");
        let paths = [PathBuf::from("/lib/a.so"), PathBuf::from("/lib/b.so")];
        assert_eq!(cached_paths(&cache), paths);
        assert_eq!(cached_paths(&[b"ld.so-1.7.0\0".as_slice(), &cache].concat()), paths);
        for end in 0..texts {
            assert!(cached_paths(&cache[..end]).len() < 2 || end >= texts, "{end}");
        }
    }

    #[test]
    fn the_c_library_of_this_computer_is_known() {
        let found = known_libraries(None, |name| name.starts_with("libc.so"));
        assert!(found.iter().any(|path| path.exists()), "{found:?}");
        let none = known_libraries(Some(OsStr::new("/no/such:relative")), |_| false);
        assert_eq!(none, Vec::<PathBuf>::new());
    }
}
