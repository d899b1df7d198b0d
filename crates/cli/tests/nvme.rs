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
    assert!(nvme(&["fw-log"]).contains("frs1"));
}

needs::tests!(
    Need::Program("nvme");
    a_drives_pages_are_decoded,
);
