//! Lists the repository's machines and scenarios, which become part of the program, so that it works anywhere. Symbolic links in this
//! crate lead to their folders, so that a package of the crate contains them.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn find(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        match path.is_dir() {
            true => find(&path, into),
            false => into.extend(path.extension().is_some_and(|end| end == "toml").then_some(path)),
        }
    }
}

fn main() {
    let (mut all, here) = (Vec::new(), env::current_dir().expect("the crate's folder"));
    for folder in ["machines", "scenarios"] {
        println!("cargo:rerun-if-changed={folder}");
        find(Path::new(folder), &mut all);
    }
    all.sort();
    let entries: String =
        all.iter().map(|path| format!("({path:?}, include_str!({:?})),\n", here.join(path))).collect();
    let list = Path::new(&env::var_os("OUT_DIR").expect("a folder for it")).join("built_in.rs");
    fs::write(list, format!("&[\n{entries}]")).expect("its list can be written");
}
