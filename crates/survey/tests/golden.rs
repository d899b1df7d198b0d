//! Everything that is read of real machines' files, beside what was read of them before; `UPDATE_EXPECT=1` writes it anew.

use std::path::{Path, PathBuf};

use expect_test::expect_file;
use needs::Need;
use survey::Survey;

fn data(path: &str) -> PathBuf {
    needs::data().join("measured").join(path)
}

/// What is read of a source; its folder's name does not belong to it.
fn check(name: &str, path: &Path) {
    let survey = Survey::read(&[path]).unwrap_or_else(|error| panic!("{error}"));
    let folder = format!("{}/", path.parent().unwrap().display());
    let text = format!("{}\n{}", survey.overview(), survey.dump()).replace(&folder, "");
    expect_file![format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"))].assert_eq(&text);
}

fn hwloc_topologies() {
    for name in [
        "24em64t-2n6c2t-pci",
        "32em64t-2n8c2t-pci-wholeio",
        "40intel64-2g2n4c+pcilocality",
        "power8gpudistances",
    ] {
        check(name, &data(&format!("hwloc/{name}.xml")));
    }
}

fn a_capture_of_sys_and_proc() {
    check("40intel64-tar", &data("hwloc/40intel64-2g2n4c+pcilocality.tar.bz2"));
}

fn nccl_topologies() {
    for name in ["aws-p4d-24xl-topo", "azure-ncv4-topo", "azure-ndv2-topo", "azure-ndv4-topo"] {
        check(name, &data(&format!("today/nccl-topology/{name}.xml")));
    }
    let graph = Survey::read(&[&data("today/nccl-topology/azure-ncv4-graph.xml")]).unwrap_err().to_string();
    assert!(graph.contains("NCCL_TOPO_DUMP_FILE"), "{graph}");
}

fn measured_hosts() {
    for (name, folder) in [
        ("dell-t430", "nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s0-s0"),
        ("dell-t620-ivy", "nfp6000-1.2GHz_ib-Xeon-E5-2620v2_dell-t620-s0-s0-s0"),
        ("dell-t620-sandy", "nfp6000-1.2GHz_snb-Xeon-E5-2630_dell-t620"),
        ("dell-t630", "nfp6000-1.2GHz_hsw-Xeon-E5-2620v3_dell-t630"),
        ("fujitsu-tx1310", "nfp6000-1.2GHz_hsw-Xeon-E3-1226v3_fujitsu-tx1310"),
    ] {
        check(name, &data(&format!("pcie-bench/{folder}")));
    }
}

needs::tests!(
    Need::Data;
    hwloc_topologies, a_capture_of_sys_and_proc, nccl_topologies, measured_hosts,
);
