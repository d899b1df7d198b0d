//! `nearfar compare` with what other tools than pcie-bench print.

use std::process::{Command, Output};

fn compare(arguments: &[&str]) -> Output {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzzing/corpus/tool_output");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    command
        .current_dir(folder)
        .arg("compare")
        .args(arguments)
        .args(["--quiet", "--no-cache"])
        .output()
        .unwrap()
}

fn records(arguments: &[&str]) -> Vec<serde_json::Value> {
    let output = compare(&[arguments, &["--json", "-"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Each tool's numbers have simulated ones beside them, or a reason.
#[test]
fn measured_numbers_get_simulated_ones() {
    let own = records(&[
        "fio.json",
        "iperf3.json",
        "netperf-omni.txt",
        "sockperf.txt",
        "perftest.txt",
        "ntb_perf.txt",
        "--machine",
        "dell-t430",
        "--card",
        "modern",
    ]);
    // fio asks for a drive, and --card is a NIC.
    let told = own.iter().filter(|row| row["tool"] == "fio").all(|row| row["skipped"].as_str().is_some());
    assert!(told, "{own:?}");
    let with = |tool: &str, quantity: &str| {
        let row = own.iter().find(|row| row["tool"] == tool && row["quantity"] == quantity);
        row.unwrap_or_else(|| panic!("{tool} has no {quantity}"))
    };
    for (tool, quantity) in [
        ("iperf3", "received bandwidth"),
        ("netperf", "rate"),
        ("netperf", "latency p50"),
        ("sockperf", "latency p50"),
    ] {
        let row = with(tool, quantity);
        let [measured, simulated, error] = ["measured", "simulated", "error_pct"]
            .map(|key| row[key].as_f64().unwrap_or_else(|| panic!("{row}")));
        assert!((error - 100.0 * (simulated / measured - 1.0)).abs() < 1e-6, "{row}");
        assert!(!row["binds"].as_str().unwrap().is_empty(), "{row}");
    }
    for (tool, quantity, why) in
        [("perftest", "bandwidth", "RDMA"), ("ntb_perf", "rate", "nearfar lend cost")]
    {
        let row = with(tool, quantity);
        assert!(row["skipped"].as_str().unwrap().contains(why) && row["simulated"].is_null(), "{row}");
    }
}

/// A change to the machine reaches the simulated test, and a wrong one is told.
#[test]
fn the_machine_can_be_changed() {
    let drive = |set: &[&str]| {
        let own = records(&[&["fio.json", "--machine", "dell-t430", "--card", "optane-900p"], set].concat());
        let row = own.iter().find(|row| row["quantity"] == "read clat mean").unwrap();
        row["simulated"].as_f64().unwrap()
    };
    let (own, slow) = (drive(&[]), drive(&["--set", "host.core.frequency=\"1 GHz\""]));
    assert!(slow > 1.2 * own, "{own} {slow}");
    for (arguments, wanted) in [
        (&["fio.json"][..], "--machine MACHINE is needed"),
        (&["fio.json", "--machine", "no-such"], "no-such"),
        (&["iperf3-failed.json", "--machine", "dell-t430"], "Connection refused"),
        (&["fio.json", "--machine", "dell-t430", "--check"], "--check is for directories"),
        (&["fio.json", ".", "--machine", "dell-t430"], "no file"),
        (&["fio.json", "--machine", "dell-t430", "--set", "host.llc.wayz=1"], "no such parameter"),
    ] {
        let output = compare(arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && told.contains(wanted), "{arguments:?}: {told}");
    }
}
