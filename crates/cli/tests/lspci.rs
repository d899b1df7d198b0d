//! An independent reader, pciutils' lspci, decodes what `tree --lspci` writes of the functions that a kernel found.

use std::path::{Path, PathBuf};
use std::process::Command;

use needs::Need;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lspci").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// What lspci says of a host's file.
fn lspci(file: &Path, options: &[&str]) -> String {
    let output =
        Command::new("lspci").arg("-F").arg(file).args(options).output().expect("lspci is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn drives_behind_switches() {
    let folder = folder("drives");
    let mut nearfar = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    let output = nearfar.current_dir(&folder).args(["tree", "fio-switch", "--lspci", "."]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = folder.join("a.lspci");
    let of = |address: &str| lspci(&file, &["-vvv", "-s", address]);
    let says = |address: &str, words: &[&str]| {
        let text = of(address);
        for word in words {
            assert!(text.contains(word), "{address}: no `{word}` in\n{text}");
        }
    };
    says(
        "00:01.0",
        &[
            "Express (v2) Root Port (Slot+)",
            "Power Management version 3",
            "Advanced Error Reporting",
            "Secondary PCI Express",
            // As sys-lspci.txt of the measured machine has it.
            "ACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-",
            "primary=00, secondary=01",
            "I/O behind bridge: 0000f000-00000fff [disabled]",
        ],
    );
    says("01:00.0", &["Express (v2) Upstream Port"]);
    says("02:01.0", &["Express (v2) Downstream Port (Slot+)"]);
    says(
        "05:00.0",
        &[
            "Non-Volatile memory controller",
            "BusMaster+",
            "(64-bit, non-prefetchable)",
            "Speed 8GT/s, Width x4",
            "MSI-X: Enable+",
            "Vector table: BAR=0",
        ],
    );
    // Buses are numbered so that one function leads to the next.
    let tree = lspci(&file, &["-tv"]);
    assert!(tree.contains("01.0-[01-0a]----00.0-[02-0a]--+-01.0-[03-07]"), "{tree}");
    let all = lspci(&file, &["-vvv"]);
    for wrong in ["invalid", "broken", "<?>", "!!!", "Unknown"] {
        assert!(!all.contains(wrong), "lspci says `{wrong}`:\n{all}");
    }
}

/// Endpoints advertise what their originals do, and what a file says of another one.
fn services_of_endpoints() {
    let folder = folder("services");
    let mut nearfar = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    let change = "host.a.device.0.change.link.translation_queue=16";
    let arguments = ["tree", "octo", "--set", change, "--lspci", "."];
    let output = nearfar.current_dir(&folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [changed, other] =
        ["a", "b"].map(|host| lspci(&folder.join(format!("{host}.lspci")), &["-vvv", "-d", "15b3:"]));
    let without = "ACSCap:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-";
    for text in [&changed, &other] {
        assert!(text.contains(without), "{text}");
    }
    assert!(changed.contains("ATSCap:\tInvalidate Queue Depth: 10"), "{changed}");
    assert!(changed.contains("ATSCtl:\tEnable-"), "{changed}");
    assert!(!other.contains("ATSCap"), "{other}");
}

/// In whatever form lspci prints an export, it is the same machine to `inspect`.
fn what_it_prints_is_read_again() {
    let folder = folder("again");
    let mut nearfar = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    nearfar.current_dir(&folder).args([
        "export",
        "gpu-switches",
        "--as",
        "lspci",
        "-o",
        "own.lspci",
        "--quiet",
    ]);
    assert!(nearfar.output().unwrap().status.success());
    let file = folder.join("own.lspci");
    let survey = |bytes: &[u8]| survey::Survey::from_bytes("source", bytes).unwrap();
    let own = survey(&std::fs::read(&file).unwrap());
    type Fact = fn(&survey::PciFunction) -> String;
    let facts: [Fact; 3] = [
        |of| format!("{:?} {:?} {:?}", of.class.value(), of.vendor.value(), of.device.value()),
        |of| {
            format!(
                "{:?} {:?} {:?} {:?}",
                of.speed.value(),
                of.width.value(),
                of.max_speed.value(),
                of.max_width.value()
            )
        },
        |of| format!("{:?} {:?} {:?}", of.mps_bytes.value(), of.mrrs_bytes.value(), of.extended_tags.value()),
    ];
    let (ids, links, sizes) = (&facts[..1], &facts[..2], &facts[..]);
    let forms: [(&[&str], &[Fact]); 9] = [
        (&["-vvv", "-nn"], sizes),
        (&["-vvv", "-n", "-D"], sizes),
        (&["-xxxx"], sizes),
        (&["-xxx"], links),
        (&["-x"], ids),
        (&["-nn"], ids),
        (&["-mm", "-nn"], ids),
        (&["-vmm", "-nn"], ids),
        (&["-t"], &[]),
    ];
    for (options, same) in forms {
        let again = survey(lspci(&file, options).as_bytes());
        assert!(again.functions.keys().eq(own.functions.keys()), "{options:?}");
        for (address, function) in &again.functions {
            for fact in same {
                assert_eq!(fact(function), fact(&own.functions[address]), "{options:?} {address}");
            }
            // Without buses or a tree, nothing says what is above what.
            if options[0].starts_with("-v") && options[0] != "-vmm"
                || ["-t", "-x", "-xxx", "-xxxx"].contains(&options[0])
            {
                assert_eq!(again.parent(*address), own.parent(*address), "{options:?} {address}");
            }
        }
    }
}

needs::tests!(
    Need::Program("lspci");
    drives_behind_switches, services_of_endpoints, what_it_prints_is_read_again,
);
