//! The short form of `tools/bad-days.py`: kills at random moments and damaged inputs of every kind.

use std::path::Path;
use std::process::Command;

use needs::Need;

fn bad_days_end_well() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/bad-days.py");
    let mut python = Command::new("python3");
    python
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_nearfar"))
        .arg("--quick")
        .env("TMPDIR", env!("CARGO_TARGET_TMPDIR"));
    let done = python.output().expect("python3 is there");
    assert!(
        done.status.success(),
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

needs::tests!(
    Need::Program("python3");
    bad_days_end_well,
);
