//! What a user sees for each kind of bad input. `UPDATE_EXPECT=1 cargo test -p nearfar-machine` rewrites the texts.

mod figures;
mod files;
mod scenarios;

use expect_test::Expect;
use machine::{Doc, Kindred, Library, Machine, Part, Scenario};

/// A file of the repository with `from` replaced by `to`.
fn edited(path: &str, from: &str, to: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "`{from}` is not in the file");
    text.replacen(from, to, 1)
}

fn check<T: Kindred + std::fmt::Debug>(text: &str, expected: Expect) {
    let doc = Doc::<T>::from_text(&Library::built_in(), "my.toml", text);
    expected.assert_eq(&doc.read().expect_err("should be refused").render(false));
}

fn check_line(path: &str, key: &str, line: &str, expected: Expect) {
    let text = edited(path, "", "");
    let found =
        text.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("no `{key}`")).to_owned();
    let text = text.replacen(&found, line, 1);
    if path.starts_with("machines/parts") {
        check::<Part>(&text, expected);
    } else if path.starts_with("scenarios") {
        check::<Scenario>(&text, expected);
    } else {
        check::<Machine>(&text, expected);
    }
}

const T430: &str = "machines/dell-t430.toml";
