//! The questions of docs/commands.md are answered by the commands that stand there, as they stand there, and README's
//! first command says what README shows.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Most commands that an answer may take.
const MOST: usize = 5;

/// The commands of each question: blocks of the section that the guide is.
fn questions() -> Vec<Vec<String>> {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md")).unwrap();
    let (_, guide) = page.split_once("## Three questions\n").expect("the section");
    let guide = guide.split("\n## ").next().unwrap_or(guide);
    let commands = |block: &str| block.trim().lines().map(str::to_owned).collect();
    guide.split("```").skip(1).step_by(2).map(commands).collect()
}

fn folder(number: usize) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guide-{number}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Files below a folder that have a picture in them.
fn pictures(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let count = |path: PathBuf| match path.is_dir() {
        true => pictures(&path),
        false => usize::from(std::fs::read_to_string(&path).is_ok_and(|text| text.contains("</svg>"))),
    };
    entries.map(count).sum()
}

fn answers(number: usize, wanted: &[&str]) {
    let commands = &questions()[number];
    assert!((1..=MOST).contains(&commands.len()), "{commands:?}");
    let (folder, mut said) = (folder(number), String::new());
    for command in commands {
        let mut words = command.split_whitespace();
        assert_eq!(words.next(), Some("nearfar"), "{command}");
        let mut nearfar = Command::new(env!("CARGO_BIN_EXE_nearfar"));
        let output = nearfar.current_dir(&folder).arg("--no-cache").args(words).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{command}: {errors}");
        said += &String::from_utf8_lossy(&output.stdout);
    }
    for words in wanted {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(pictures(&folder) > 0, "{commands:?}");
}

#[test]
fn how_many_tags_and_which_mps() {
    assert_eq!(questions().len(), 3);
    // Few tags are what binds, many are not; a larger payload writes more.
    answers(
        0,
        &[
            "dma_engine.tags=4, BW_DMA_RD 64 B and BW_DMA_RD 512 B: what binds: the tags",
            "dma_engine.tags=64, BW_DMA_RD 64 B: what binds: dell-t430's card0 itself",
            "link.mps_bytes",
        ],
    );
}

#[test]
fn what_a_remote_nic_costs() {
    // It is the slot that differs, and not the core that a flow's hash leads to.
    answers(
        1,
        &[
            "0.slot=slot: interrupts at b: core 0 (socket 0, the device's)",
            "0.slot=slot-socket1: interrupts at b: core 0 (socket 0, REMOTE",
            "% of a core",
            "socket1-socket0",
            "octo",
        ],
    );
}

#[test]
fn reproduce_change_and_measure_again() {
    answers(2, &["claims:", "lat_dma_sizes", "changed: --set host.llc.ddio_ways=0"]);
}

/// A line without what may change from version to version: numbers, and how columns are spaced.
fn shape(line: &str) -> String {
    let digits = |letter: char| if letter.is_ascii_digit() { '0' } else { letter };
    let words = line.split_whitespace().map(|word| word.chars().map(digits).collect::<String>());
    let mut shape = words.collect::<Vec<_>>().join(" ");
    while shape.contains("00") {
        shape = shape.replace("00", "0");
    }
    shape.replace('+', "-")
}

#[test]
fn readme_shows_what_its_first_command_prints() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let (_, block) = readme.split_once("```\n$ nearfar ").expect("a command with its output");
    let (block, _) = block.split_once("\n```").expect("its end");
    let mut lines = block.lines();
    let words = lines.next().unwrap().split_whitespace();
    let mut nearfar = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    let output = nearfar.args(["--no-cache", "--quiet"]).args(words).output().unwrap();
    let said: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(shape).collect();
    for line in lines {
        assert!(said.contains(&shape(line)), "`{line}` is not in {said:#?}");
    }
}
