//! Any bytes as the record of what `place` has written: values are set back or told, and nothing outside of `/sys` and `/proc`
//! changes.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use place::{HostRoot, undo};

/// Makes a folder laid out like `/`, with links that lead out of what is the kernel's.
fn make(root: &Path) -> std::io::Result<()> {
    for (name, text) in FILES.into_iter().chain([("etc/passwd", KEPT)]) {
        let path = root.join(name);
        path.parent().map(fs::create_dir_all).transpose()?;
        fs::write(path, text)?;
    }
    std::os::unix::fs::symlink("../etc/passwd", root.join("sys/out"))?;
    std::os::unix::fs::symlink("..", root.join("proc/up"))
}

const FILES: [(&str, &str); 4] = [
    ("proc/irq/40/smp_affinity_list", "4-7\n"),
    ("sys/class/net/eth0/queues/tx-0/xps_cpus", "f0\n"),
    ("proc/100/task/100/stat", "100 (x) S 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 777 0\n"),
    ("proc/100/task/100/status", "Name:\tx\nCpus_allowed_list:\t4-7\n"),
];
const KEPT: &str = "root";

/// Tests an input.
///
/// # Panics
/// If another file than the kernel's is changed.
pub fn run(bytes: &[u8]) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let root = std::env::temp_dir().join(format!("nearfar-undo-{}-{number}", std::process::id()));
    let record = root.join("undo.json");
    let made = make(&root).and_then(|()| fs::write(&record, bytes)).and_then(|()| HostRoot::new(&root));
    if let Ok(host) = made {
        drop(undo(&host, &record));
        assert_eq!(fs::read_to_string(root.join("etc/passwd")).ok().as_deref(), Some(KEPT));
    }
    let _ = fs::remove_dir_all(&root);
}
