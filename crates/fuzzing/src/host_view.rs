//! Any files of `/sys` and `/proc`: what a real host has, its guests, findings and a plan, or an error.
//!
//! A line `=== sys/NAME` begins a file; a first line `-> TARGET` makes it a link.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use place::{AskedFor, GuestPlacer, HostRoot, HostView, LoadSample, plan};
use survey::Survey;

/// Files of an input that are made.
const MOST: usize = 64;

/// Whether a file may be made there.
fn is_below(name: &str) -> bool {
    (name.starts_with("sys/") || name.starts_with("proc/"))
        && name.len() < 120
        && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
        && name.chars().all(|c| c.is_ascii_graphic())
}

fn make(root: &Path, name: &str, content: &str) -> std::io::Result<()> {
    let path = root.join(name);
    let folder = path.parent().unwrap_or(root);
    // A link before it may lead elsewhere.
    let known = folder.ancestors().find(|folder| folder.exists()).unwrap_or(root);
    if !known.canonicalize()?.starts_with(root) || path.symlink_metadata().is_ok() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    match content.strip_prefix("-> ") {
        Some(target) => std::os::unix::fs::symlink(target.trim().replace('\0', ""), path),
        None => fs::write(path, content),
    }
}

/// Tests an input.
pub fn run(bytes: &[u8]) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let root: PathBuf = std::env::temp_dir().join(format!("nearfar-host-{}-{number}", std::process::id()));
    let Ok(root) = fs::create_dir_all(&root).and_then(|()| root.canonicalize()) else { return };
    let text = String::from_utf8_lossy(bytes);
    for file in text.split("=== ").skip(1).take(MOST) {
        let (name, content) = file.split_once('\n').unwrap_or((file, ""));
        if is_below(name) {
            let _ = make(&root, name, content);
        }
    }
    if let Ok(view) = HostRoot::new(&root).map_err(drop).and_then(|root| HostView::new(root).map_err(drop)) {
        let asked = AskedFor {
            interfaces: view.interfaces(),
            processes: vec!["memcached".into(), "100".into()],
            guests: true,
        };
        let (sample, mut placer) = (LoadSample::new(&view), GuestPlacer::default());
        placer.decide(&view, [&sample, &LoadSample::new(&view)], Duration::from_millis(1));
        let _ = plan(&view, &asked, &placer);
    }
    if let Ok(survey) = Survey::read(&[&root]) {
        for finding in survey.findings() {
            assert!(finding.cost.share.is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
    }
    let _ = fs::remove_dir_all(&root);
}
