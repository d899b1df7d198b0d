//! What lstopo makes of an export: the same machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use needs::Need;

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lstopo");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn output(folder: &Path, program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program).current_dir(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Functions with class, identity and the bridge above; nodes with CPUs; cores.
type MachineFacts = (Vec<String>, Vec<String>, usize);

fn facts(bytes: &[u8]) -> MachineFacts {
    let survey = survey::Survey::from_bytes("source", bytes).unwrap();
    let function = |(address, own): (&survey::PciAddress, &survey::PciFunction)| {
        let above = survey.parent(*address).map(|above| above.to_string());
        let ids = [own.vendor.value(), own.device.value()].map(|id| id.map(|id| id.0));
        format!("{address} {:?} {ids:?} {above:?} {:?}", own.class.value(), survey.node_of(*address))
    };
    let nodes = survey.nodes.iter().map(|(number, node)| format!("{number}: {:?}", node.cpus.get()));
    (survey.functions.iter().map(function).collect(), nodes.collect(), survey.cores())
}

/// lstopo reads an export and writes it again: nothing of the machine is lost or added.
fn an_export_is_the_same_to_lstopo() {
    let folder = folder();
    for scenario in ["octo", "gpu-switches", "fio-switch"] {
        let nearfar = env!("CARGO_BIN_EXE_nearfar");
        output(&folder, nearfar, &["export", scenario, "-o", "own.xml", "--quiet"]);
        output(&folder, nearfar, &["export", scenario, "--as", "capture", "-o", "own.tar.gz", "--quiet"]);
        // lstopo leaves bridges and host bridges out by default.
        let again = ["-i", "own.xml", "--whole-io", "--of", "xml", "-"];
        let (own, other) =
            (std::fs::read(folder.join("own.xml")).unwrap(), output(&folder, "lstopo", &again));
        assert_eq!(facts(&own), facts(&other), "{scenario}");
        assert_eq!(facts(&own), facts(&std::fs::read(folder.join("own.tar.gz")).unwrap()), "{scenario}");
    }
}

needs::tests!(
    Need::Program("lstopo");
    an_export_is_the_same_to_lstopo,
);
