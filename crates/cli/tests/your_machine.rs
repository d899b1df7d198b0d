//! Real machines, from their files to a simulation.

use std::path::{Path, PathBuf};
use std::process::Command;

use needs::Need;

fn nearfar(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    let output =
        command.current_dir(folder).args(arguments).args(["--quiet", "--no-cache"]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("your-machine").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Each given topology becomes a machine with a scenario that runs at once, and each of its findings has an id.
fn topologies_run() {
    let folder = folder("topologies");
    let measured = needs::data().join("measured").canonicalize().unwrap();
    for (source, scenario, shown) in [
        ("hwloc/24em64t-2n6c2t-pci.xml", "p2p.toml", "bandwidth"),
        ("hwloc/32em64t-2n8c2t-pci-wholeio.xml", "p2p.toml", "bandwidth"),
        ("hwloc/40intel64-2g2n4c+pcilocality.tar.bz2", "netperf.toml", "throughput"),
        ("hwloc/40intel64-2g2n4c+pcilocality.xml", "netperf.toml", "throughput"),
        ("hwloc/power8gpudistances.xml", "p2p.toml", "bandwidth"),
        ("today/nccl-topology/aws-p4d-24xl-topo.xml", "netperf.toml", "throughput"),
        ("today/nccl-topology/azure-ncv4-topo.xml", "p2p.toml", "bandwidth"),
        ("today/nccl-topology/azure-ndv2-topo.xml", "p2p.toml", "bandwidth"),
        ("today/nccl-topology/azure-ndv4-topo.xml", "p2p.toml", "bandwidth"),
    ] {
        let source = measured.join(source);
        let source = source.to_str().unwrap();
        nearfar(&folder, &["import", source, "-o", "box"]);
        let text = nearfar(&folder, &["run", &format!("box/{scenario}")]);
        assert!(text.contains(shown), "{source}: {text}");
        let json: serde_json::Value =
            serde_json::from_str(&nearfar(&folder, &["inspect", source, "--json", "-"])).unwrap();
        assert!(json["findings"].as_array().unwrap().iter().all(|finding| finding["id"].is_string()));
    }
}

/// The T430's own files name its CPU and its card's slot: the rows of one file agree as with the T430's file.
fn the_measured_machine_is_found_again() {
    let folder = folder("t430");
    let name = "nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s0-s0";
    let directory = needs::data().join("measured/pcie-bench").join(name).canonicalize().unwrap();
    nearfar(&folder, &["import", directory.to_str().unwrap(), "-o", "t430"]);
    let few = folder.join(name);
    std::fs::create_dir_all(&few).unwrap();
    for file in
        ["lat_dma_sizes.csv", "sys-kernel-cmdline.txt", "sys-numactl.txt", "sys-lspci.txt", "sys-cpuinfo.txt"]
    {
        std::fs::copy(directory.join(file), few.join(file)).unwrap();
    }
    // The folder stands for its machine.
    let rows = nearfar(&folder, &["compare", name, "--machine", "t430", "--json", "-"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&rows).unwrap();
    let mut errors: Vec<f64> = rows
        .iter()
        .filter(|row| row["artefact"].is_null())
        .filter_map(|row| row["error_pct"].as_f64())
        .map(f64::abs)
        .collect();
    errors.sort_by(f64::total_cmp);
    assert!(errors.len() > 20, "{}", errors.len());
    assert!(errors[errors.len() / 2] < 2.0, "{errors:?}");
}

/// A machine with several ports at the card's socket: the card is in its own one, which is told.
fn the_card_is_in_its_own_port() {
    let folder = folder("port");
    let name = "nfp6000-1.2GHz_snb-Xeon-E5-2630_dell-t620";
    let directory = needs::data().join("measured/pcie-bench").join(name).canonicalize().unwrap();
    let directory = directory.to_str().unwrap();
    let told = nearfar(&folder, &["import", directory, "-o", "t620"]);
    assert!(told.contains("port `slot` is 0000:00:02.0, with pcie-bench's card 0000:02:00.0"), "{told}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    let arguments = ["compare", directory, "--machine", "t620", "--files", "lat_dma_sizes", "--sample", "4"];
    let output =
        command.current_dir(&folder).args(arguments).args(["--quiet", "--no-cache"]).output().unwrap();
    let [told, warned] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(warned.contains("the card is in port `slot` of 3 at socket 0"), "{warned}");
    assert!(told.contains("link slot: Gen3 x8") && told.contains("Held to the targets"), "{told}");
}

/// A CPU that no file is about: its nearest relative stands for it, which is told, and rows of its generation still agree.
fn an_unknown_cpu_has_a_relative() {
    let folder = folder("unknown");
    let name = "nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s0-s0";
    let directory = needs::data().join("measured/pcie-bench").join(name).canonicalize().unwrap();
    let few = folder.join(name);
    std::fs::create_dir_all(&few).unwrap();
    for file in ["sys-numactl.txt", "sys-lspci.txt", "sys-cpuinfo.txt"] {
        let text = std::fs::read_to_string(directory.join(file)).unwrap();
        std::fs::write(few.join(file), text.replace("E5-2630 v4", "E5-2697 v4")).unwrap();
    }
    let told = nearfar(&folder, &["import", name, "-o", "box"]);
    assert!(told.contains("no machine has been measured with a CPU called Intel(R) Xeon(R) CPU"), "{told}");
    std::fs::copy(directory.join("lat_dma_sizes.csv"), few.join("lat_dma_sizes.csv")).unwrap();
    let arguments = ["compare", name, "--machine", "box/box.toml", "--sample", "10", "--json", "-"];
    let rows: Vec<serde_json::Value> = serde_json::from_str(&nearfar(&folder, &arguments)).unwrap();
    let errors: Vec<f64> = rows.iter().filter_map(|row| row["error_pct"].as_f64()).collect();
    assert!(errors.len() > 8 && errors.iter().all(|error| error.abs() < 10.0), "{errors:?}");
}

needs::tests!(
    Need::Data;
    topologies_run, the_measured_machine_is_found_again, the_card_is_in_its_own_port, an_unknown_cpu_has_a_relative,
);
