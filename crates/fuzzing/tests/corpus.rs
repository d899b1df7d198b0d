//! Each target for a moment: on all inputs of its corpus, and on changed ones, the same in every run.
//!
//! This finds what breaks at once; `fuzz/` looks for what takes longer to find.

use std::fs;
use std::path::Path;

use engine::{Rng, Seed};

/// How many changed inputs each target gets; of those that read whole files fewer.
const CHANGED: usize = 2_000;
const CHANGED_FILES: usize = 100;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("every target has a corpus")
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// One of the inputs with some of its bytes changed, left out, or taken from another one.
fn changed(inputs: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let pick = |rng: &mut Rng, below: usize| rng.below(below.max(1) as u64) as usize;
    let mut input = inputs[pick(rng, inputs.len())].clone();
    for _ in 0..=rng.below(4) {
        let at = pick(rng, input.len());
        match rng.below(5) {
            0 if !input.is_empty() => input[at] ^= 1 << rng.below(8),
            1 if !input.is_empty() => input[at] = rng.u64() as u8,
            2 => input.truncate(at),
            3 => {
                let other = &inputs[pick(rng, inputs.len())];
                let from = pick(rng, other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => input.insert(at, rng.u64() as u8),
        }
    }
    input
}

#[test]
fn nothing_breaks_a_target() {
    for (name, run) in fuzzing::TARGETS {
        let inputs = corpus(name);
        assert!(!inputs.is_empty(), "{name} has no corpus");
        inputs.iter().for_each(|input| run(input));
        let mut rng = Seed::new(1).component(name);
        let count = if name.ends_with("_toml") { CHANGED_FILES } else { CHANGED };
        for _ in 0..count {
            let input = changed(&inputs, &mut rng);
            let outcome = std::panic::catch_unwind(|| run(&input));
            assert!(outcome.is_ok(), "{name} breaks on {input:?}");
        }
    }
}
