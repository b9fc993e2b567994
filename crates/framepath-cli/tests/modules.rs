// SPDX-License-Identifier: MIT OR Apache-2.0
//! The import graph of each crate: a file has an edge to each file whose items it names. The
//! files of a cycle can be understood and changed only together, so cycles must be small and
//! in one folder.
//!
//! The test parses text: `use` declarations below `crate`, `self` and `super`, and paths that
//! begin with `crate::`. It follows a re-export to the file that defines the item. `mod` and
//! `pub use` alone are no imports. Test modules at the end of a file are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Maximum number of files of an import cycle.
const MOST: usize = 4;

/// Crates that may have larger cycles, each with its own maximum number of files. Their cycles may also
/// span several folders.
const LARGER: &[(&str, usize)] = &[("framepath-os", 6)];

type Segments = Vec<String>;

struct Module {
    text: String,
    /// Items that the file re-exports by `pub use`: the name, and the path within the crate.
    exports: BTreeMap<String, Segments>,
}

struct Graph {
    modules: BTreeMap<String, Module>,
}

impl Graph {
    fn read(source: &Path) -> Graph {
        let mut modules = BTreeMap::new();
        let mut folders = vec![source.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let name = path.strip_prefix(source).unwrap().with_extension("");
                    let name = name.to_str().unwrap().replace('/', "::");
                    let text = fs::read_to_string(&path).unwrap();
                    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned();
                    modules.insert(name, Module { text, exports: BTreeMap::new() });
                }
            }
        }
        let mut graph = Graph { modules };
        let names: Vec<String> = graph.modules.keys().cloned().collect();
        for name in &names {
            let exported = declarations(&graph.modules[name].text).filter(|(public, _)| *public);
            let exports = exported.flat_map(|(_, tree)| expanded(&tree)).filter_map(|path| {
                let item = path.last()?.clone();
                Some((item, absolute(name, &path)?))
            });
            let exports = exports.collect();
            graph.modules.get_mut(name).unwrap().exports = exports;
        }
        graph
    }

    /// Returns the file that defines the item at `path`; follows at most `depth` re-exports. `None` if
    /// no file of the crate has the item.
    fn definition(&self, path: &[String], depth: usize) -> Option<&str> {
        let length = (1..=path.len()).rev().find(|n| self.modules.contains_key(&path[..*n].join("::")));
        let (module, rest) = match length {
            Some(n) => (path[..n].join("::"), &path[n..]),
            None => ("lib".to_owned(), path),
        };
        let (name, module) = self.modules.get_key_value(&module)?;
        match rest.first().and_then(|item| module.exports.get(item)) {
            Some(target) if depth > 0 => self.definition(target, depth - 1).or(Some(name)),
            _ => length.map(|_| name.as_str()),
        }
    }

    fn imports(&self, name: &str) -> BTreeSet<&str> {
        let text = &self.modules[name].text;
        let declared = declarations(text).filter(|(public, _)| !public).flat_map(|(_, tree)| expanded(&tree));
        let used = paths(text).chain(declared).filter_map(|path| absolute(name, &path));
        used.filter_map(|path| self.definition(&path, 5).map(str::to_owned))
            .filter_map(|target| self.modules.get_key_value(&target).map(|(key, _)| key.as_str()))
            .filter(|target| *target != name)
            .collect()
    }

    /// Returns the cycles: groups of files that import each other, directly or through others.
    fn cycles(&self) -> Vec<Vec<&str>> {
        let edges: BTreeMap<&str, BTreeSet<&str>> =
            self.modules.keys().map(|name| (name.as_str(), self.imports(name))).collect();
        let all: BTreeMap<&str, BTreeSet<&str>> =
            edges.keys().map(|name| (*name, reached(name, &edges))).collect();
        let mut cycles: Vec<Vec<&str>> = Vec::new();
        for (name, from) in &all {
            let known = cycles.iter().any(|cycle| cycle.contains(name));
            if from.contains(name) && !known {
                cycles.push(from.iter().copied().filter(|other| all[other].contains(name)).collect());
            }
        }
        cycles
    }
}

/// Returns all files that `from` imports, directly or through others; includes `from` in a cycle.
fn reached<'a>(from: &'a str, edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        open.extend(edges[next].iter().filter(|target| seen.insert(**target)));
    }
    seen
}

/// Returns each `use` declaration in `text`: true if it has `pub`, and the text behind `use`.
fn declarations(text: &str) -> impl Iterator<Item = (bool, String)> + '_ {
    text.split(';').filter_map(|statement| {
        let (head, tree) = statement.rsplit_once("use ")?;
        let line = head.rsplit('\n').next().unwrap_or_default().trim();
        let starts = ["", "pub", "pub(crate)", "pub(super)"].contains(&line);
        (starts && !tree.contains("//")).then(|| (line.starts_with("pub"), tree.to_owned()))
    })
}

/// Expands `a::{b, c::d}` to `a::b` and `a::c::d`.
fn expanded(tree: &str) -> Vec<Segments> {
    let segments = |text: &str| -> Segments {
        let text = text.split(" as ").next().unwrap_or_default();
        text.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let Some((head, rest)) = tree.split_once('{') else { return vec![segments(tree)] };
    let Some(body) = rest.trim_end().strip_suffix('}') else { return Vec::new() };
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in body.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            c => parts.last_mut().unwrap().push(c),
        }
    }
    let head = segments(head);
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expanded(part)).map(|part| [&head[..], &part].concat()).collect()
}

/// Returns the paths in `text` that begin with `crate::`, except those in `use` declarations.
fn paths(text: &str) -> impl Iterator<Item = Segments> + '_ {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//") && !line.contains("use "));
    code.flat_map(|line| line.split("crate::").skip(1)).map(|path| {
        let end = path.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(path.len());
        let parts = path[..end].split("::").filter(|part| !part.is_empty());
        ["crate"].into_iter().chain(parts).map(str::to_owned).collect()
    })
}

/// Returns `path`, as `module` writes it, as a path from the crate's root. A path that begins with
/// another lower-case word counts as a path below `module`; for any other path returns `None`.
fn absolute(module: &str, path: &[String]) -> Option<Segments> {
    let own: Segments = module.split("::").filter(|part| *part != "lib").map(str::to_owned).collect();
    let ups = path.iter().take_while(|part| *part == "super").count();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([&own[..], &path[1..]].concat()),
        "super" => Some([&own[..own.len().checked_sub(ups)?], &path[ups..]].concat()),
        // The name of a module of this file, in a re-export.
        first if first.chars().next().is_some_and(char::is_lowercase) => Some([&own[..], path].concat()),
        _ => None,
    }
}

/// Returns true if all files are in one folder, or are a file and files of the folder of its name.
fn are_neighbours(modules: &[&str]) -> bool {
    let paths: Vec<Vec<&str>> = modules.iter().map(|module| module.split("::").collect()).collect();
    let common = (0..).take_while(|at| {
        let first = paths[0].get(*at);
        first.is_some() && paths.iter().all(|path| path.get(*at) == first)
    });
    let common = common.count();
    paths.iter().all(|path| path.len() <= common + 1)
}

#[test]
fn import_cycles_are_small_and_in_one_folder() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for entry in fs::read_dir(crates).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let graph = Graph::read(&entry.path().join("src"));
        let larger = LARGER.iter().find(|(other, _)| *other == name).map(|(_, most)| *most);
        for cycle in graph.cycles() {
            assert!(cycle.len() <= larger.unwrap_or(MOST), "{name}: {} files: {cycle:?}", cycle.len());
            assert!(are_neighbours(&cycle) || larger.is_some(), "{name}: several folders: {cycle:?}");
        }
    }
}

#[test]
fn cycles_through_lists_re_exports_and_paths_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("b")).unwrap();
    write("lib.rs", "mod a;\nmod b;\nmod d;\npub use a::First;\n");
    write("a.rs", "use crate::b::{self, inner::{Second, Other as Third}};\npub struct First;\n");
    write("b.rs", "pub mod inner;\n");
    write("b/inner.rs", "fn f() -> crate::d::Fourth {}\n");
    write("d.rs", "use super::First;\n\n#[cfg(test)]\nmod tests {\n    use crate::b::x;\n}\n");
    let graph = Graph::read(folder.path());
    assert_eq!(graph.cycles(), [["a", "b::inner", "d"]]);
    assert!(!are_neighbours(&graph.cycles()[0]) && are_neighbours(&["b", "b::inner"]));
    assert!(are_neighbours(&["b::c", "b::inner"]) && !are_neighbours(&["a", "b::inner"]));
    write("d.rs", "// use super::First;\n");
    assert_eq!(Graph::read(folder.path()).cycles(), Vec::<Vec<&str>>::new());
}
