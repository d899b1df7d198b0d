//! The simulation against measured machines: a part of what `nearfar compare` says of whole directories, few enough files
//! for every test run, and orders that must hold where nothing was measured.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Directories of measured results, one of each machine and setting that is held to the targets of processors with
/// several sockets.
const MEASURED: [&str; 9] = [
    "bdw-Xeon-E5-2630v4-dell-t430-s0-s0-s0",
    "bdw-Xeon-E5-2630v4-dell-t430-s0-s0-s0-iommu-nosp",
    "bdw-Xeon-E5-2630v4-dell-t430-s0-s1-s1",
    "hsw-Xeon-E5-2620v3_dell-t630",
    "hsw-Xeon-E5-2620v3_dell-t630-iommu",
    "ib-Xeon-E5-2620v2_dell-t620-s0-s0-s0",
    "ib-Xeon-E5-2620v2_dell-t620-s0-s1-s1",
    "snb-Xeon-E5-2630_dell-t620",
    "snb-Xeon-E5-2630_dell-t620-iommu",
];

/// Where a measured directory is; `None`, said aloud, where there are no measured data.
fn measured(name: &str) -> Option<PathBuf> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/measured/pcie-bench");
    let directory = shared.join(format!("nfp6000-1.2GHz_{name}"));
    if !directory.is_dir() {
        eprintln!("skipped: there is no {}", directory.display());
        return None;
    }
    Some(directory)
}

fn compare(directory: &Path, arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_nearfar");
    let mut command = Command::new(program);
    command.args(["--quiet", "compare"]).arg(directory).args(arguments);
    command.output().expect("the program starts")
}

/// What is outside its target, with its cause in docs/accuracy.md.
const OUTSIDE: [(&str, &str); 2] = [
    ("snb-Xeon-E5-2630_dell-t620-iommu", "lat_dma_sweep_rd_rnd_64"),
    ("snb-Xeon-E5-2630_dell-t620-iommu", "lat_cmd_sweep_rd_rnd_64"),
];

fn stays_within(files: &str, targets: &[&str]) {
    for name in MEASURED.into_iter().filter(|name| !OUTSIDE.contains(&(name, files))) {
        let Some(directory) = measured(name) else { return };
        let output = compare(&directory, &[&["--files", files, "--check"], targets].concat());
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{told}{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn latency_over_size_is_that_of_the_machines() {
    stays_within("lat_dma_sizes.", &[]);
}

#[test]
fn bandwidth_over_size_is_that_of_the_machines() {
    stays_within("bw_dma_sz", &[]);
}

/// Caches, DDIO, IOTLB and the other socket show over the window. One file is held to what directories are held to that
/// were not given: its family is four or eight times as large.
#[test]
fn latency_over_the_window_is_that_of_the_machines() {
    stays_within("lat_dma_sweep_rd_rnd_64", &["--held-out"]);
}

#[test]
fn reads_over_the_window_are_as_fast_as_those_of_the_machines() {
    stays_within("bw_dma_win_sweep_rd_rnd_64", &["--held-out"]);
}

#[test]
fn writes_over_the_window_are_as_fast_as_those_of_the_machines() {
    stays_within("bw_dma_win_sweep_wr_rnd_64", &["--held-out"]);
}

#[test]
fn the_command_interface_is_that_of_the_card() {
    stays_within("lat_cmd_sweep_rd_rnd_64", &["--held-out"]);
}

/// The simulated median of each row of two families of latencies.
fn latencies(directory: &Path, setting: &[&str]) -> BTreeMap<(String, u64), f64> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("order{}.json", setting.concat()));
    let mut arguments = vec!["--files", "rd_rnd_64", "--json", file.to_str().unwrap()];
    arguments.extend(setting);
    let output = compare(directory, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let row = |row: &serde_json::Value| {
        let file = row["file"].as_str().unwrap().to_owned();
        // What an earlier test left in the cache of a socket that is not thrashed is found there by cold rows.
        let counts = row["quantity"] == "median" && row["cache"] != "Cold";
        Some(((file, row["row"].as_u64().unwrap()), row["simulated"].as_f64()?)).filter(|_| counts)
    };
    rows.iter().filter_map(row).collect()
}

/// Memory further away and smaller pages never make a read faster.
#[test]
fn latencies_are_in_the_order_of_what_they_pass() {
    let Some(directory) = measured(MEASURED[0]) else { return };
    let orders = [
        (["--sockets", "s0-s0-s0"], ["--sockets", "s0-s1-s1"]),
        // Not off against superpages: addresses of an IOMMU reach what warming did, those without do not always.
        (["--iommu", "superpages"], ["--iommu", "4k"]),
    ];
    for (near, far) in orders {
        let (near_rows, far_rows) = (latencies(&directory, &near), latencies(&directory, &far));
        assert!(!near_rows.is_empty() && near_rows.len() == far_rows.len());
        for (row, near_ns) in near_rows {
            // A tick of the card's clock either way.
            let far_ns = far_rows[&row];
            assert!(far_ns >= near_ns - 13.4, "{row:?}: {near_ns} ns {near:?}, {far_ns} ns {far:?}");
        }
    }
}
