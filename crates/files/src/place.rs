//! Which file a path leads to, by whatever spelling.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// What a path leads to; equal for two spellings of the same file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// An existing file, by device and inode: also through links of both kinds.
    Known(u64, u64),
    /// A file that does not exist yet: its path without links.
    New(PathBuf),
    /// A character device such as `/dev/null`, which keeps nothing that could be overwritten.
    Device,
}

impl Place {
    /// What `path` leads to.
    pub fn of(path: &Path) -> Self {
        match fs::metadata(path) {
            Ok(known) if known.file_type().is_char_device() => Self::Device,
            Ok(known) => Self::Known(known.dev(), known.ino()),
            Err(_) => Self::New(target(path)),
        }
    }

    /// What the standard output goes to, if that is a regular file.
    pub fn of_stdout() -> Option<Self> {
        let known = rustix::fs::fstat(rustix::stdio::stdout()).ok()?;
        let is_file = rustix::fs::FileType::from_raw_mode(known.st_mode).is_file();
        is_file.then_some(Self::Known(known.st_dev, known.st_ino))
    }
}

/// More links in a row than this are a circle, as the kernel counts.
const MOST_LINKS: usize = 40;

/// The path that writing to `path` would create or change, without links; also where it does not exist yet.
pub(crate) fn target(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        if descriptor(&path).is_some() {
            return path;
        }
        let Ok(link) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(link);
    }
    // The existing part without links, then the rest as it is.
    let above = |path: &Path| match path.parent() {
        Some(above) if above.as_os_str().is_empty() => PathBuf::from("."),
        Some(above) => above.to_owned(),
        None => path.to_owned(),
    };
    match (path.file_name(), fs::canonicalize(above(&path))) {
        (Some(name), Ok(folder)) => folder.join(name),
        (Some(name), Err(_)) if path.parent().is_some_and(|above| !above.as_os_str().is_empty()) => {
            target(&above(&path)).join(name)
        }
        _ => fs::canonicalize(&path).unwrap_or(path),
    }
}

/// The number of the open file that a path such as `/dev/fd/3`, `/dev/stdout` or `/proc/self/fd/1` names.
pub(crate) fn descriptor(path: &Path) -> Option<u32> {
    match path.to_str() {
        Some("/dev/stdin") => return Some(0),
        Some("/dev/stdout") => return Some(1),
        Some("/dev/stderr") => return Some(2),
        _ => {}
    }
    let number = path.file_name()?.to_str()?.parse().ok()?;
    let folder = fs::canonicalize(path.parent()?).ok()?;
    (folder == fs::canonicalize("/proc/self/fd").ok()?).then_some(number)
}

/// Whether a path is the standard output by another name than `-`.
pub fn is_stdout(path: &Path) -> bool {
    descriptor(path) == Some(1) || fs::read_link(path).is_ok_and(|link| descriptor(&link) == Some(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn two_spellings_are_one_place() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "").unwrap();
        fs::hard_link(at("a"), at("hard")).unwrap();
        symlink("a", at("soft")).unwrap();
        symlink("new", at("dangling")).unwrap();
        symlink(folder.path(), at("here")).unwrap();
        for (one, other) in [
            ("a", "./a"),
            ("a", "hard"),
            ("a", "soft"),
            ("a", "here/a"),
            ("new", "dangling"),
            ("new", "here/new"),
            ("new", "here/./dangling"),
            ("none/x", "here/none/x"),
        ] {
            assert_eq!(Place::of(&at(one)), Place::of(&at(other)), "{one} {other}");
        }
        assert_ne!(Place::of(&at("a")), Place::of(&at("b")));
        assert_ne!(Place::of(&at("b")), Place::of(&at("c")));
        symlink("circle", at("circle")).unwrap();
        assert!(matches!(Place::of(&at("circle")), Place::New(_)));
        assert!(is_stdout(Path::new("/dev/stdout")) && is_stdout(Path::new("/dev/fd/1")));
        assert!(!is_stdout(Path::new("/dev/stderr")) && !is_stdout(Path::new("1")));
    }
}
