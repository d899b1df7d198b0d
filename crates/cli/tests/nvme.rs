//! An independent reader, nvme-cli, decodes what drives say of themselves.

use std::path::{Path, PathBuf};
use std::process::Command;

use needs::Need;

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nvme");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}{}", said(&output.stdout), said(&output.stderr));
    said(&output.stdout)
}

fn a_drives_pages_are_decoded() {
    let folder = folder();
    let mut tree = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    done(tree.current_dir(&folder).args(["tree", "fio-randread", "--nvme", "drives"]));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/nvme-files.c");
    let mut compiler = Command::new("cc");
    done(compiler.current_dir(&folder).args(["-shared", "-fPIC", "-o", "nvme-files.so", source, "-ldl"]));
    let nvme = |arguments: &[&str]| {
        let mut nvme = Command::new("nvme");
        nvme.current_dir(&folder).env("LD_PRELOAD", "./nvme-files.so").env("NVME_FILES", "drives/a-nvme0n1");
        done(nvme.args(arguments).arg("/dev/null"))
    };
    // A field's value in the tools' words.
    let of = |text: &str, field: &str| {
        let line = text.lines().find(|line| line.split([' ', '\t', ':']).next() == Some(field));
        let value = line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned());
        value.unwrap_or_else(|| panic!("no {field} in {text}"))
    };
    let controller = nvme(&["id-ctrl"]);
    assert_eq!((of(&controller, "vid"), of(&controller, "ver")), ("0x8086".into(), "0x10400".into()));
    assert!(of(&controller, "mn").starts_with("Intel Optane SSD 900P"), "{controller}");
    let namespace = nvme(&["id-ns", "-n", "1"]);
    // 280 GB in blocks of 512 B.
    assert_eq!(of(&namespace, "nsze"), format!("{:#x}", 280_065_171_456_u64 / 512), "{namespace}");
    let smart = nvme(&["smart-log"]);
    assert_eq!(
        (of(&smart, "temperature"), of(&smart, "available_spare")),
        ("40°C (313 Kelvin)".into(), "100%".into())
    );
    assert!(nvme(&["error-log"]).contains("entries:64"));
    assert!(nvme(&["list-ns"]).contains("0x1") && nvme(&["ns-descs", "-n", "1"]).contains("eui64"));
    // One slot of firmware, which cannot be written, and it holds what runs.
    assert_eq!(of(&controller, "frmw"), "0x3");
    let firmware = nvme(&["fw-log"]);
    assert!(firmware.contains("afi  : 0x1") && firmware.contains("frs1") && !firmware.contains("frs2"));
    assert_eq!(of(&controller, "ieee"), "5cd2e4");
    let kelvin = |field: &str| of(&controller, field).parse::<u32>().unwrap();
    assert!(313 < kelvin("wctemp") && kelvin("wctemp") < kelvin("cctemp"), "{controller}");
    // What the effects log says is supported, the controller says it has, and the other way round. Without the option nvme-cli
    // looks for a register of the drive.
    let effects = nvme(&["effects-log", "--csi=0"]);
    let capabilities = of(&controller, "oacs");
    let capabilities = u32::from_str_radix(capabilities.trim_start_matches("0x"), 16).unwrap();
    let commands = [
        (1 << 0, "Security Send"),
        (1 << 1, "Format NVM"),
        (1 << 2, "Firmware Commit"),
        (1 << 3, "Namespace Attachment"),
        (1 << 4, "Device Self-test"),
    ];
    for (bit, command) in commands {
        assert_eq!(effects.contains(command), capabilities & bit != 0, "{command}: {effects}");
    }
}

needs::tests!(
    Need::Program("nvme");
    a_drives_pages_are_decoded,
);
