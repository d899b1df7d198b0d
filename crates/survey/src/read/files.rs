//! Files laid out like `/`: a folder, this machine's own, or an archive.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Symbolic links that one path may lead through.
const MOST_LINKS: usize = 40;
/// Bytes of one file that are read. None of those of /sys and /proc that matter has more.
const MOST_BYTES: u64 = 8 << 20;
/// Bytes that an archive may unpack to, and files in it.
const MOST_UNPACKED: u64 = 512 << 20;
const MOST_FILES: usize = 2_000_000;
/// Where a capture has what `ethtool -c` says of each interface.
pub const ETHTOOL: &str = "/ethtool/";

/// Files laid out like `/`. Paths begin with a slash; links lead nowhere outside.
pub trait RootFiles {
    /// A file's bytes.
    fn bytes(&self, path: &str) -> Option<Vec<u8>>;
    /// The names in a folder, in order; none if there is no such folder.
    fn list(&self, path: &str) -> Vec<String>;
    /// Where a symbolic link leads, as it is written.
    fn link(&self, path: &str) -> Option<String>;

    /// A file's text, without spaces around it.
    fn text(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path)?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The path that a path leads to, all links followed; `None` if there are too many of them.
    fn resolved(&self, path: &str) -> Option<String> {
        let mut left: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let (mut done, mut links) = (String::new(), 0);
        while let Some(part) = left.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    done.truncate(done.rfind('/').unwrap_or_default());
                    continue;
                }
                _ => {}
            }
            let next = format!("{done}/{part}");
            match self.link(&next) {
                Some(target) => {
                    links += 1;
                    if links > MOST_LINKS || target.len() > 4096 {
                        return None;
                    }
                    if target.starts_with('/') {
                        done.clear();
                    }
                    left.extend(target.split('/').rev().map(str::to_owned));
                }
                None => done = next,
            }
        }
        Some(done)
    }
}

/// A folder of the file system.
pub struct FolderFiles {
    root: PathBuf,
    /// Folders whose links were followed already.
    known: RefCell<BTreeMap<String, Option<PathBuf>>>,
}

impl FolderFiles {
    /// The folder.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), known: RefCell::default() }
    }

    fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where a path is. Below `/`, the system follows links itself; elsewhere they must not leave the folder.
    fn place(&self, path: &str) -> Option<PathBuf> {
        let below = |path: &str| self.root.join(path.trim_start_matches('/'));
        if self.is_live() {
            return Some(below(path));
        }
        let (folder, name) = path.rsplit_once('/')?;
        let known = self.known.borrow().get(folder).cloned();
        let folder = match known {
            Some(place) => place?,
            None => {
                let place = self.resolved(folder).map(|folder| below(&folder));
                self.known.borrow_mut().insert(folder.to_owned(), place.clone());
                place?
            }
        };
        let place = folder.join(name);
        if place.symlink_metadata().ok()?.is_symlink() {
            return self.resolved(path).map(|path| below(&path));
        }
        Some(place)
    }
}

impl RootFiles for FolderFiles {
    fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        // No file of the kernel says what this is.
        if let Some(interface) = path.strip_prefix(ETHTOOL).filter(|_| self.is_live()) {
            return super::ethtool::ask(interface).map(String::into_bytes);
        }
        let place = self.place(path)?;
        let mut bytes = Vec::new();
        ::files::open(&place).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn list(&self, path: &str) -> Vec<String> {
        let entries = self.place(path).and_then(|place| std::fs::read_dir(place).ok());
        let names = entries.into_iter().flatten().flatten();
        let mut names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    fn link(&self, path: &str) -> Option<String> {
        let place = self.root.join(path.trim_start_matches('/'));
        Some(std::fs::read_link(place).ok()?.to_string_lossy().into_owned())
    }
}

/// What an archive has at a path.
enum ArchiveMember {
    File(Vec<u8>),
    Link(String),
}

/// An archive in memory.
pub struct ArchiveFiles {
    members: BTreeMap<String, ArchiveMember>,
}

/// A stream that unpacks bytes, if they are compressed.
fn unpacking(bytes: &[u8]) -> Box<dyn std::io::Read + '_> {
    match bytes {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(bytes)),
        [b'B', b'Z', b'h', ..] => Box::new(bzip2::read::MultiBzDecoder::new(bytes)),
        _ => Box::new(bytes),
    }
}

/// What is compressed by itself, and no archive: a text. `None` if it is an archive, or not compressed.
///
/// # Errors
/// If it is damaged, or unpacks to more than any such text has.
pub fn unpacked_text(bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
    /// Bytes of an archive's first header.
    const HEADER: u64 = 512;
    if !matches!(bytes, [0x1f, 0x8b, ..] | [b'B', b'Z', b'h', ..]) {
        return Ok(None);
    }
    let mut head = Vec::new();
    // Damage is told with what it is found in.
    if unpacking(bytes).take(HEADER).read_to_end(&mut head).is_err() || head.is_empty() || head.contains(&0) {
        return Ok(None);
    }
    let mut text = Vec::new();
    let damaged = |error: std::io::Error| format!("it is damaged or cut off: {error}");
    unpacking(bytes).take(MOST_UNPACKED + 1).read_to_end(&mut text).map_err(damaged)?;
    match text.len() as u64 > MOST_UNPACKED {
        true => Err(format!("it unpacks to more than {} MiB", MOST_UNPACKED >> 20)),
        false => Ok(Some(text)),
    }
}

impl ArchiveFiles {
    /// Unpacks an archive (tar, also compressed by gzip or bzip2).
    ///
    /// # Errors
    /// If it is damaged, has paths that lead outside, or unpacks to more than any capture has.
    pub fn unpack(bytes: &[u8]) -> Result<Self, String> {
        let mut archive = tar::Archive::new(unpacking(bytes).take(MOST_UNPACKED));
        let mut members = BTreeMap::new();
        let damaged = |error: std::io::Error| format!("the archive is damaged or cut off: {error}");
        let mut total = 0;
        for entry in archive.entries().map_err(damaged)? {
            let mut entry = entry.map_err(damaged)?;
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            if path.split('/').any(|part| part == "..") {
                return Err(format!("the archive has `{path}`, which leads out of it; it is not read"));
            }
            let path = format!(
                "/{}",
                path.split('/').filter(|part| !["", "."].contains(part)).collect::<Vec<_>>().join("/")
            );
            let member = match entry.header().entry_type() {
                tar::EntryType::Symlink | tar::EntryType::Link => {
                    let is_hard = entry.header().entry_type() == tar::EntryType::Link;
                    let target = entry.link_name_bytes().unwrap_or_default();
                    let target = String::from_utf8_lossy(&target).into_owned();
                    // A hard link's target is a path of the archive.
                    ArchiveMember::Link(if is_hard { format!("/{target}") } else { target })
                }
                tar::EntryType::Regular | tar::EntryType::Continuous => {
                    let mut content = Vec::new();
                    entry.by_ref().take(MOST_BYTES).read_to_end(&mut content).map_err(damaged)?;
                    total += entry.size();
                    ArchiveMember::File(content)
                }
                _ => continue,
            };
            members.insert(path, member);
            if members.len() > MOST_FILES || total >= MOST_UNPACKED {
                return Err(format!(
                    "the archive unpacks to more than {} MiB or {MOST_FILES} files, which no capture does",
                    MOST_UNPACKED >> 20
                ));
            }
        }
        Ok(Self { members: below_sys(members) })
    }

    /// The names and contents of files that are not below `/sys` and `/proc`, such as outputs of tools.
    pub fn others(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let is_other =
            |path: &&String| !["/sys/", "/proc/", "/dev/", ETHTOOL].iter().any(|top| path.starts_with(top));
        self.members.iter().filter(move |(path, _)| is_other(path)).filter_map(
            |(path, member)| match member {
                ArchiveMember::File(bytes) => Some((path.trim_start_matches('/'), bytes.as_slice())),
                ArchiveMember::Link(_) => None,
            },
        )
    }

    fn member(&self, path: &str) -> Option<&ArchiveMember> {
        self.members.get(path).or_else(|| self.members.get(&self.resolved(path)?))
    }
}

/// Takes off the folder in which an archive has its `sys`.
fn below_sys(members: BTreeMap<String, ArchiveMember>) -> BTreeMap<String, ArchiveMember> {
    // `/proc/sys` is another one.
    let of = |path: &String| ["/sys/devices/", "/sys/bus/"].iter().find_map(|sys| path.find(sys));
    let top = members.keys().find_map(|path| of(path).map(|end| path[..end].to_owned()));
    match top.filter(|top| !top.is_empty()) {
        None => members,
        Some(top) => members
            .into_iter()
            .map(|(path, member)| match path.strip_prefix(&top) {
                Some(rest) if rest.starts_with('/') => (rest.to_owned(), member),
                _ => (path, member),
            })
            .collect(),
    }
}

impl RootFiles for ArchiveFiles {
    fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        match self.member(path)? {
            ArchiveMember::File(bytes) => Some(bytes.clone()),
            ArchiveMember::Link(_) => None,
        }
    }

    fn list(&self, path: &str) -> Vec<String> {
        let Some(folder) = self.resolved(path) else { return Vec::new() };
        let start = format!("{folder}/");
        let mut names: Vec<String> = Vec::new();
        let mut next = start.clone();
        // From one name to the one behind all that is below it.
        while let Some((path, _)) = self.members.range(next.clone()..).next() {
            let Some(rest) = path.strip_prefix(&start) else { break };
            let name = rest.split('/').next().unwrap_or_default().to_owned();
            // `0` is the character behind the slash.
            next = if rest.contains('/') { format!("{start}{name}0") } else { format!("{start}{name}\0") };
            if names.last() != Some(&name) {
                names.push(name);
            }
        }
        names.sort();
        names.dedup();
        names
    }

    fn link(&self, path: &str) -> Option<String> {
        match self.members.get(path)? {
            ArchiveMember::Link(target) => Some(target.clone()),
            ArchiveMember::File(_) => None,
        }
    }
}
