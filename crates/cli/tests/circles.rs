//! Files that need each other, in a circle, have to be read together. None may become larger than those that are there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Files of the largest circle: cores and their scheduler (`kernel`), since a core runs what it is given, and a task counts time on its core.
const MOST: usize = 6;

/// A module's path in its crate; empty for the root.
type Module = Vec<String>;

/// What a module names of others, and whether it exports it again.
struct Named {
    path: Vec<String>,
    is_exported: bool,
}

/// The modules of a crate, each with what it names outside tests.
struct Modules(BTreeMap<Module, Vec<Named>>);

impl Modules {
    fn of(folder: &Path) -> Self {
        let mut all = BTreeMap::new();
        collect(folder, &Module::new(), &mut all);
        Self(all)
    }

    /// The path from the crate's root; `None` if it leads to another crate.
    fn absolute(&self, from: &Module, path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        let up = path.iter().take_while(|step| *step == "super").count();
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([from, rest].concat()),
            "super" => Some([from.get(..from.len().checked_sub(up)?)?, &path[up..]].concat()),
            _ => self.0.contains_key(&[from.as_slice(), &path[..1]].concat()).then(|| [from, path].concat()),
        }
    }

    /// The module that defines what is at a path, behind what exports it again.
    fn definer(&self, path: &[String], depth: usize) -> Module {
        let known = (0..=path.len()).rev().find(|&end| self.0.contains_key(&path[..end]));
        let module = path[..known.unwrap_or_default()].to_vec();
        let Some(name) = path.get(module.len()).filter(|_| depth < 8) else { return module };
        let exports =
            self.0[&module].iter().filter(|named| named.is_exported && named.path.last() == Some(name));
        let next = exports.filter_map(|named| self.absolute(&module, &named.path)).find(|next| next != path);
        next.map_or(module, |next| self.definer(&next, depth + 1))
    }

    /// For each module, the others that it needs. What a module exports of those below itself does not count.
    fn needs(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let of = |(module, all): (&'_ Module, &Vec<Named>)| {
            all.iter()
                .filter_map(|named| {
                    let needed = self.definer(&self.absolute(module, &named.path)?, 0);
                    let is_below = needed.len() > module.len() && needed.starts_with(module);
                    (needed != *module && !(named.is_exported && is_below)).then_some(needed)
                })
                .collect()
        };
        self.0.iter().map(|entry| (entry.0, of(entry))).collect()
    }

    /// The largest set of modules each of which leads to all others.
    fn largest_circle(&self) -> BTreeSet<&Module> {
        let needs = self.needs();
        let reached: BTreeMap<_, _> = needs.keys().map(|module| (*module, reach(&needs, module))).collect();
        let circle = |module: &&Module| -> BTreeSet<&Module> {
            let mutual =
                |other: &&Module| reached[module].contains(*other) && reached[*other].contains(*module);
            needs.keys().copied().filter(mutual).collect()
        };
        reached.keys().map(circle).max_by_key(BTreeSet::len).unwrap_or_default()
    }
}

/// All modules that a module leads to.
fn reach<'n>(needs: &'n BTreeMap<&Module, BTreeSet<Module>>, from: &'n Module) -> BTreeSet<&'n Module> {
    let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
    while let Some(at) = todo.pop() {
        todo.extend(needs[at].iter().filter(|next| seen.insert(*next)));
    }
    seen
}

fn collect(folder: &Path, module: &Module, into: &mut BTreeMap<Module, Vec<Named>>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("a readable folder").path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let own = match name.as_str() {
            "mod" | "lib" | "main" => module.clone(),
            _ => [module.as_slice(), std::slice::from_ref(&name)].concat(),
        };
        if path.is_dir() {
            collect(&path, &own, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests" {
            let text = fs::read_to_string(&path).expect("a file of the repository");
            into.insert(own, named(&text));
        }
    }
}

fn named(text: &str) -> Vec<Named> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut all = Vec::new();
    let mut rest = String::new();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    for statement in lines.collect::<Vec<_>>().join("\n").split_inclusive(';') {
        let begin = statement.rfind("use ").filter(|&at| statement[..at].ends_with(['\n', ' ']) || at == 0);
        let line = begin.map(|at| statement[..at].rsplit('\n').next().unwrap_or_default().trim());
        match begin.zip(line).filter(|(_, line)| line.is_empty() || line.starts_with("pub")) {
            Some((at, line)) => {
                rest += &statement[..at];
                let tree = statement[at + 4..].trim_end_matches(';');
                leaves(&[], tree, &mut |path| all.push(Named { path, is_exported: !line.is_empty() }));
            }
            None => rest += statement,
        }
    }
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let inline =
        rest.split(|c| !is_path(c)).filter(|path| path.starts_with("crate::") || path.starts_with("super::"));
    all.extend(inline.map(|path| Named { path: steps(path), is_exported: false }));
    all
}

fn steps(path: &str) -> Vec<String> {
    let names = path.split("::").map(|step| step.split(" as ").next().unwrap_or_default().trim());
    names.filter(|step| !step.is_empty()).map(str::to_owned).collect()
}

/// The paths of a tree of `use`.
fn leaves(above: &[String], tree: &str, found: &mut dyn FnMut(Vec<String>)) {
    let Some(open) = tree.find('{') else { return found([above, &steps(tree)].concat()) };
    let above = [above, &steps(&tree[..open])].concat();
    let inner = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[start..at].trim().is_empty() {
                    leaves(&above, &inner[start..at], found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

#[test]
fn no_circle_of_files_is_larger_than_it_was() {
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut largest = 0;
    for entry in fs::read_dir(crates).expect("the crates") {
        let folder = entry.expect("a readable folder").path().join("src");
        if folder.is_dir() {
            let modules = Modules::of(&folder);
            let circle = modules.largest_circle();
            let names: Vec<_> = circle.iter().map(|module| module.join("/")).collect();
            assert!(circle.len() <= MOST, "{}: {} need each other", folder.display(), names.join(", "));
            largest = largest.max(circle.len());
        }
    }
    assert_eq!(largest, MOST, "it is smaller now: let `MOST` say so");
}
