//! `nearfar live` and `nearfar serve` before anything starts: what cannot be is told in one line with its remedy. Programs that
//! speak like QEMUs stand in for them.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with a kernel, a plugin, and a QEMU that answers a question about its devices, and one about a plugin.
fn folder(name: &str, devices: &str, plugin: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("live-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("vmlinuz"), "").unwrap();
    fs::write(folder.join("lockstep.so"), "").unwrap();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n*-plugin*) echo '{plugin}' >&2; exit 1;;\n*help*) echo '{devices}';;\n\
         *) echo 'QEMU emulator version 9.2';;\nesac\n"
    );
    let qemu = folder.join("qemu");
    fs::write(&qemu, script).unwrap();
    fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// The error of `nearfar live` with further options.
fn refused(folder: &Path, options: &str) -> String {
    refused_with(folder, options, "TMPDIR", "/tmp")
}

/// The same with a variable of the environment.
fn refused_with(folder: &Path, options: &str, variable: &str, value: &str) -> String {
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/live/nvme.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    command.current_dir(folder).arg("live").arg(scenario).args(["--qemu", "./qemu", "--kernel", "vmlinuz"]);
    let output = command.args(options.split_whitespace()).env(variable, value).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_qemu_without_vfio_user_is_told() {
    let folder = folder("old", "name \"e1000\"", "");
    let told = refused(&folder, "");
    assert!(told.contains("QEMU emulator version 9.2") && told.contains("install QEMU 10.1"), "{told}");
}

#[test]
fn a_qemu_that_does_not_take_the_plugin_is_told() {
    let version =
        "Could not load plugin x: plugin requires API version 7, but this QEMU supports only up to version 5";
    let folder = folder("plugin", "name \"vfio-user-pci\"", version);
    let told = refused(&folder, "--clock lock-step --plugin lockstep.so");
    assert!(told.contains("only up to version 5") && told.contains("name one by --qemu"), "{told}");
    let told = refused(&folder, "--clock lock-step --plugin none.so");
    assert!(told.contains("`none.so`") && told.contains("make -C linux/qemu_lockstep"), "{told}");
}

#[test]
fn what_lock_step_cannot_do_is_told() {
    let folder = folder("options", "name \"vfio-user-pci\"", "lockstep: works with this QEMU");
    let lockstep = "--clock lock-step --plugin lockstep.so";
    assert!(refused(&folder, &format!("{lockstep} --cpus 2")).contains("one processor"));
    assert!(refused(&folder, &format!("{lockstep} --accel kvm")).contains("which takes tcg"));
    assert!(refused(&folder, &format!("{lockstep} --instruction 3")).contains("a power of two"));
    assert!(refused(&folder, "--hot-plug --nodes 2").contains("leave --nodes or --hot-plug out"));
}

#[test]
fn a_qemu_that_never_answers_is_told() {
    let folder = folder("silent", "", "");
    fs::write(folder.join("qemu"), "#!/bin/sh\necho vfio-user-pci\nexec sleep 600\n").unwrap();
    let told = refused(&folder, "");
    assert!(told.contains("does not answer within 20 s"), "{told}");
}

#[test]
fn a_temporary_folder_that_is_not_there_is_told() {
    let folder = folder("temporary", "name \"vfio-user-pci\"", "");
    let told = refused_with(&folder, "", "TMPDIR", "/proc/none");
    assert!(told.contains("name a folder for it by TMPDIR"), "{told}");
}
