//! Any bytes as what follows `--set` and `--over`: changes or a reason, never a panic. One input of many is applied to a
//! scenario.

use machine::{ComputerScenario, Doc, Library};
use nearfar::changes::{setting, values};

/// One input of this many is applied.
const APPLIED: u64 = 16;

/// Tests an input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match values(text) {
        Ok((key, values)) => assert!(!key.is_empty() && values.iter().all(|value| !value.is_empty())),
        Err(why) => assert!(!why.is_empty()),
    }
    let number = data.iter().fold(7u64, |hash, &byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let Ok((path, value)) = setting(text) else { return };
    if number % APPLIED != 0 {
        return;
    }
    let library = Library::built_in();
    let mut doc = Doc::<ComputerScenario>::load(&library, "ping").expect("a shipped file");
    if let Err(complaints) = doc.set_by("--set", None, &path, &value).and_then(|()| doc.read().map(drop)) {
        let first = complaints.iter().next().expect("a reason");
        first.render(false);
    }
}
