//! Each target for a moment: on all inputs of its corpus, and on changed ones, the same in every run.
//!
//! This finds what breaks at once; `fuzz/` looks for what takes longer to find.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use engine::{Rng, Seed};

/// How many changed inputs each target gets; of those that read whole files fewer.
const CHANGED: usize = 2_000;
const CHANGED_FILES: usize = 100;
/// Environment: for how many seconds each target gets changed inputs; those above if it is not set.
const SECONDS: &str = "NEARFAR_FUZZ_SECONDS";

/// Environment: the only target that is tried.
const ONLY: &str = "NEARFAR_FUZZ_ONLY";

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

/// Tries a target: all of its corpus, then changed inputs, as many as it gets and for as long as it is to go on.
fn try_out(name: &str, run: fuzzing::Target, goes_on: Duration) {
    let inputs = corpus(name);
    assert!(!inputs.is_empty(), "{name} has no corpus");
    for input in &inputs {
        let outcome = std::panic::catch_unwind(|| run(input));
        assert!(outcome.is_ok(), "{name} breaks on {input:?}, of its corpus");
    }
    let mut rng = Seed::new(1).component(name);
    let is_of_files = ["_toml", "_schedule", "_view", "_record"].iter().any(|end| name.ends_with(end));
    let count = if is_of_files { CHANGED_FILES } else { CHANGED };
    let begun = Instant::now();
    for tried in 0.. {
        if tried >= count && begun.elapsed() >= goes_on {
            println!("{name}: {tried} changed inputs");
            break;
        }
        let input = changed(&inputs, &mut rng);
        let outcome = std::panic::catch_unwind(|| run(&input));
        assert!(outcome.is_ok(), "{name} breaks on {input:?}");
    }
}

#[test]
fn nothing_breaks_a_target() {
    let seconds = env::var(SECONDS).map_or(0, |seconds| seconds.parse().expect("whole seconds"));
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    let only = env::var(ONLY).ok();
    let wanted = |(name, _): &(&str, _)| only.as_ref().is_none_or(|only| only == name);
    let targets: Vec<_> = fuzzing::TARGETS.into_iter().filter(wanted).collect();
    for targets in targets.chunks(at_once) {
        thread::scope(|scope| {
            for &(name, run) in targets {
                scope.spawn(move || try_out(name, run, Duration::from_secs(seconds)));
            }
        });
    }
}

/// Each program of `fuzz/` is the one line that hands its bytes to its target, so that it needs no build of its own here.
#[test]
fn every_target_is_a_program_of_libfuzzer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("its manifest");
    for (name, _) in fuzzing::TARGETS {
        let path = format!("fuzz_targets/{name}.rs");
        let program = fs::read_to_string(folder.join(&path)).expect("a program");
        let line = format!("libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::{name}::run(bytes));");
        assert_eq!(program, format!("#![no_main]\n\n{line}\n"));
        assert!(
            manifest.contains(&format!("name = \"{name}\"\npath = \"{path}\"")),
            "{name} is in the manifest"
        );
    }
    let programs = fs::read_dir(folder.join("fuzz_targets")).expect("programs").count();
    assert_eq!(programs, fuzzing::TARGETS.len());
}
