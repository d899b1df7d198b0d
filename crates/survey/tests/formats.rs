//! A small source of each format, and what is read of it; `UPDATE_EXPECT=1` writes that anew.

use std::path::Path;

use expect_test::expect_file;
use survey::Survey;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzzing/corpus/survey_source");

#[test]
fn every_format_is_told_by_its_content() {
    let mut names: Vec<_> = std::fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert!(names.len() > 9);
    let mut text = String::new();
    for path in &names {
        let survey = Survey::read(&[path]).unwrap_or_else(|error| panic!("{error}"));
        let name = path.file_name().unwrap().to_string_lossy();
        let findings: String =
            survey.findings().iter().map(|finding| format!("finding {}\n", finding.id)).collect();
        text += &format!("=== {name}: {}\n{}{findings}\n", survey.sources[0].format, survey.dump());
    }
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/formats.txt")].assert_eq(&text);
}

#[test]
fn sources_of_one_machine_are_merged() {
    let path = |name: &str| Path::new(FOLDER).join(name);
    let (lspci, numactl) = (path("lspci.txt"), path("numactl.txt"));
    let survey = Survey::read(&[&lspci, &numactl]).unwrap();
    let nic = "0000:01:00.0".parse().unwrap();
    assert_eq!((survey.node_of(nic), survey.nodes.len(), survey.functions.len()), (Some(0), 3, 2));
    // The other way round, it is the same machine.
    let other = Survey::read(&[&numactl, &lspci]).unwrap();
    assert_eq!((other.node_of(nic), other.functions.len()), (Some(0), 2));
}

#[test]
fn what_cannot_be_read_is_told() {
    let told = |bytes: &[u8]| Survey::from_bytes("x", bytes).unwrap_err().to_string();
    let bomb = b"<?xml version=\"1.0\"?><!DOCTYPE topology [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><topology>&b;</topology>";
    let deep = ["<system>", &"<pci busid=\"01:00.0\">".repeat(50_000)].concat();
    for (bytes, wanted) in [
        (&b""[..], "empty"),
        (b"hello, world", "its format is not known"),
        (b"<topology><object type=\"Machine\"", "damaged"),
        (bomb, "entities"),
        (deep.as_bytes(), "damaged"),
        (b"\x1f\x8b\x08\x00truncated", "damaged or cut off"),
        (b"BZh9truncated", "damaged or cut off"),
        (b"<graphs version=\"1\"/>", "NCCL_TOPO_DUMP_FILE"),
        (b"<html/>", "neither hwloc's topology nor NCCL's"),
    ] {
        assert!(told(bytes).contains(wanted), "{}", told(bytes));
    }
    // Whole, but deeper than any machine.
    let deep = format!(
        "<system><cpu numaid=\"0\">{}{}</cpu></system>",
        "<pci busid=\"01:00.0\">".repeat(2_000),
        "</pci>".repeat(2_000)
    );
    let survey = Survey::from_bytes("x", deep.as_bytes()).unwrap();
    assert!(survey.doubts.iter().any(|doubt| doubt.message.contains("deeper")), "{:?}", survey.doubts);
}

/// Packs files and links.
fn packed(entries: &[(&str, &str)], links: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, text) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        // The library refuses names that lead outside; a hostile archive has them all the same.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        archive.append(&header, text.as_bytes()).unwrap();
    }
    for (name, target) in links {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        archive.append_link(&mut header, name, target).unwrap();
    }
    archive.into_inner().unwrap()
}

#[test]
fn hostile_archives_lead_nowhere() {
    let out = packed(&[("../../etc/passwd", "x"), ("proc/cpuinfo", "processor\t: 0\n")], &[]);
    let told = Survey::from_bytes("x", &out).unwrap_err().to_string();
    assert!(told.contains("leads out of it"), "{told}");
    let device = "sys/bus/pci/devices/0000:01:00.0";
    let circle = packed(&[("proc/cpuinfo", "processor\t: 0\n")], &[(device, "../devices/0000:01:00.0")]);
    let survey = Survey::from_bytes("x", &circle).unwrap();
    assert!(survey.doubts.iter().any(|doubt| doubt.message.contains("circle")), "{:?}", survey.doubts);
}

/// A few megabytes that unpack to 600 MiB, in one file or in many.
#[test]
fn decompression_bombs_are_told() {
    let member = |bytes: &[u8]| {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, bytes).unwrap();
        packed.finish().unwrap()
    };
    let header = |size: u64| {
        let mut header = tar::Header::new_gnu();
        header.set_path("proc/cpuinfo").unwrap();
        header.set_size(size);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let (zeros, mib) = (member(&vec![0; 1 << 20]), 1_u64 << 20);
    let one = [member(&header(600 * mib)), zeros.repeat(600)].concat();
    let many = [member(&header(mib)), zeros].concat().repeat(600);
    for bomb in [one, many] {
        let told = Survey::from_bytes("x", &bomb).unwrap_err().to_string();
        assert!(bomb.len() < 8 << 20 && told.contains("unpacks to more than 512 MiB"), "{told}");
    }
}

#[test]
fn a_capture_has_what_a_survey_reads_and_no_serial_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, bytes: &[u8]| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let device = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
    let mut config = vec![0; 4096];
    config[..4].copy_from_slice(&[0x86, 0x80, 0xfb, 0x10]);
    config[0x100..0x104].copy_from_slice(&[3, 0, 1, 0]);
    config[0x104..0x10c].copy_from_slice(b"\x11\x22\x33\xff\xff\x44\x55\x66");
    write(&format!("{device}/config"), &config);
    write(&format!("{device}/class"), b"0x020000\n");
    write(&format!("{device}/numa_node"), b"0\n");
    write(&format!("{device}/msi_irqs/40"), b"msix\n");
    write(&format!("{device}/net/eth0/speed"), b"10000\n");
    write(&format!("{device}/net/eth0/queues/tx-0/xps_cpus"), b"3\n");
    write("proc/cpuinfo", b"processor\t: 0\nmodel name\t: Some CPU\nSerial\t: 12345\n");
    write("proc/cmdline", b"BOOT_IMAGE=/vmlinuz root=/dev/secret intel_iommu=on\n");
    write("proc/sys/kernel/osrelease", b"6.1.0\n");
    write("proc/irq/40/smp_affinity_list", b"0-1\n");
    let link = |name: &str, target: &str| {
        let name = folder.path().join(name);
        std::fs::create_dir_all(name.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, name).unwrap();
    };
    link("sys/bus/pci/devices/0000:01:00.0", "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0");
    link("sys/class/net/eth0", "../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/net/eth0");
    link(&format!("{device}/net/eth0/device"), "../../../0000:01:00.0");
    let mut archive = Vec::new();
    survey::capture(folder.path(), false, &mut archive).unwrap();
    let direct = Survey::read(&[folder.path()]).unwrap();
    let captured = Survey::from_bytes("capture", &archive).unwrap();
    assert_eq!(captured.interfaces["eth0"].mbit_per_s.value(), Some(10_000));
    let without_names = |survey: &Survey| {
        let name = survey.sources[0].name.rsplit('/').next().unwrap();
        survey.dump().replace(&format!("({name}, "), "(")
    };
    assert_eq!(without_names(&captured), without_names(&direct));
    assert_eq!(captured.machine.cpu.get().map(String::as_str), Some("Some CPU"));
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&archive[..]), &mut unpacked).unwrap();
    for secret in [&b"\x11\x22\x33\xff\xff\x44\x55\x66"[..], b"12345", b"secret"] {
        assert!(!unpacked.windows(secret.len()).any(|bytes| bytes == secret), "{secret:?}");
    }
}
