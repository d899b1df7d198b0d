//! Cache of simulated results: the same experiment with the same program and files gives the same result, so it need
//! not be simulated again.
//!
//! The key is a digest of everything that a result depends on, including the program's own bytes. Each file contains
//! a digest of its key and contents, which exposes files truncated by a kill, or under another's name. An interrupted command continues where it was,
//! since all finished simulations are in the cache. The folder's size is limited; least recently used results go
//! first.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Size limit of the folder (bytes).
const MOST_BYTES: u64 = 1 << 30;
/// Size after a cleanup (bytes).
const LEFT_BYTES: u64 = MOST_BYTES / 4 * 3;
/// File with this computer's simulation speed.
const SPEED: &str = "speed";
/// Hexadecimal digits of a digest.
const DIGEST: usize = 64;

/// The cache of this process, if enabled.
static CACHE: RwLock<Option<Arc<Cache>>> = RwLock::new(None);

fn cache() -> Option<Arc<Cache>> {
    CACHE.read().unwrap_or_else(PoisonError::into_inner).clone()
}

struct Cache {
    folder: PathBuf,
    /// Identifies the program version.
    program: String,
    found: AtomicU64,
    added: AtomicU64,
}

/// Enables the cache in a folder for the whole process. `program` is a digest of the simulator, so that results of
/// other versions are not used.
///
/// # Errors
/// If the folder cannot be created.
pub fn keep_in(folder: &Path, program: String) -> io::Result<()> {
    let cache = Cache::in_folder(folder, program)?;
    *CACHE.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(cache));
    Ok(())
}

/// Disables the cache.
pub fn keep_nothing() {
    *CACHE.write().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Default folder: `$NEARFAR_CACHE`, or `nearfar` in the user's cache folder.
pub fn usual_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    set("NEARFAR_CACHE").or_else(|| Some(user()?.join("nearfar")))
}

/// Results found and results added.
pub fn used() -> (u64, u64) {
    cache().map_or((0, 0), |cache| (cache.found.load(Ordering::Relaxed), cache.added.load(Ordering::Relaxed)))
}

/// Key for a result of this `kind` that depends on these values; `None` without a cache.
pub(crate) fn key(kind: &str, depends_on: &[&str]) -> Option<String> {
    Some(cache()?.key(kind, depends_on))
}

/// Digest of a value's debug output, for values that hold everything a simulation depends on. Empty without a cache.
pub(crate) fn digest(value: &impl Debug) -> String {
    match cache() {
        Some(_) => files::sha256(format!("{value:?}").as_bytes()),
        None => String::new(),
    }
}

/// Gets the result for a key.
pub(crate) fn get<T: DeserializeOwned>(key: Option<&str>) -> Option<T> {
    cache()?.get(key?)
}

/// Stores a result. Failing to store it is no error: it will be simulated again.
pub(crate) fn put<T: Serialize>(key: Option<&str>, value: &T) {
    if let (Some(cache), Some(key)) = (cache(), key) {
        let _ = cache.put(key, value);
    }
}

impl Cache {
    fn in_folder(folder: &Path, program: String) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned(), program, found: AtomicU64::new(0), added: AtomicU64::new(0) })
    }

    fn key(&self, kind: &str, depends_on: &[&str]) -> String {
        let parts = [&*self.program, kind].into_iter().chain(depends_on.iter().copied());
        files::digest(parts.map(str::as_bytes))
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(&key[..2]).join(&key[2..])
    }

    fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let path = self.path(key);
        if is_link(&path) {
            return None;
        }
        let value = entry(key, &files::read(&path).ok()?)?;
        // The time of last use decides how long it stays.
        let now = SystemTime::now();
        let _ = fs::File::options().append(true).open(&path).and_then(|file| file.set_modified(now));
        self.found.fetch_add(1, Ordering::Relaxed);
        Some(value)
    }

    fn put<T: Serialize>(&self, key: &str, value: &T) -> io::Result<()> {
        let value = postcard::to_allocvec(value).map_err(io::Error::other)?;
        let bytes = [digest_of(key, &value).as_bytes(), &value].concat();
        let path = self.path(key);
        if is_link(&path) {
            fs::remove_file(&path)?;
        }
        files::write_unsynced(&path, &bytes)?;
        self.added.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Whether somebody has put a link in an entry's place: where it leads is not the cache's.
fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|known| known.is_symlink())
}

/// What stands before an entry's value.
fn digest_of(key: &str, value: &[u8]) -> String {
    files::digest([key.as_bytes(), value])
}

/// The value of an entry, if that is whole and has this key.
fn entry<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Option<T> {
    let (digest, value) = bytes.split_at_checked(DIGEST)?;
    if digest_of(key, value).as_bytes() != digest {
        return None;
    }
    postcard::from_bytes(value).ok()
}

/// Reads bytes as an entry of each kind: as they are, and as the value of a whole entry. For tests of damaged ones.
#[doc(hidden)]
pub fn try_entry(bytes: &[u8]) {
    let whole = [digest_of("key", bytes).as_bytes(), bytes].concat();
    for bytes in [bytes, &whole] {
        let _ = entry::<String>("key", bytes);
        let _ = entry::<crate::bench::Outcome>("key", bytes);
        let _ = entry::<crate::computer::Counts>("key", bytes);
    }
}

/// Simulation speed of the last command, in the units of [`Progress`](crate::progress::Progress) weights per second;
/// `None` without a cache or at first.
pub fn speed() -> Option<f64> {
    let text = files::read_to_string(&cache()?.folder.join(SPEED)).ok()?;
    text.trim().parse().ok().filter(|speed: &f64| speed.is_finite() && *speed > 0.0)
}

/// Stores the simulation speed.
pub fn keep_speed(weight_per_s: f64) {
    if let Some(cache) = cache() {
        let _ = files::write_unsynced(&cache.folder.join(SPEED), format!("{weight_per_s:.0}\n").as_bytes());
    }
}

/// Removes least recently used results if there are too many and something was added.
pub fn tidy() {
    let Some(cache) = cache().filter(|cache| cache.added.load(Ordering::Relaxed) > 0) else { return };
    tidy_folder(&cache.folder, MOST_BYTES, LEFT_BYTES);
}

fn tidy_folder(folder: &Path, most: u64, left: u64) {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().collect::<Vec<_>>();
    let mut all = Vec::new();
    for file in entries(folder).iter().flat_map(|folder| entries(&folder.path())) {
        if let Ok(known) = file.metadata() {
            all.push((known.modified().unwrap_or(SystemTime::UNIX_EPOCH), file.path(), known.len()));
        }
    }
    let mut bytes: u64 = all.iter().map(|(.., bytes)| bytes).sum();
    if bytes <= most {
        return;
    }
    all.sort();
    for (_, path, size) in all {
        if bytes <= left {
            break;
        }
        if fs::remove_file(path).is_ok() {
            bytes -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_and_what_is_broken_is_not() {
        let folder = std::env::temp_dir().join(format!("nearfar-cache-{}", std::process::id()));
        let cache = Cache::in_folder(&folder, "this program".into()).unwrap();
        let (a, b) = (cache.key("test", &["a"]), cache.key("test", &["b"]));
        assert_eq!(cache.get::<Vec<f64>>(&a), None);
        cache.put(&a, &vec![0.1, f64::INFINITY]).unwrap();
        assert_eq!(cache.get(&a), Some(vec![0.1, f64::INFINITY]));
        assert_eq!(cache.get::<Vec<f64>>(&b), None);
        assert_ne!(a, cache.key("other", &["a"]));
        // Under another's name.
        let path = cache.path(&a);
        let bytes = fs::read(&path).unwrap();
        fs::create_dir_all(cache.path(&b).parent().unwrap()).unwrap();
        fs::write(cache.path(&b), &bytes).unwrap();
        assert_eq!(cache.get::<Vec<f64>>(&b), None);
        // A truncated file.
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(cache.get::<Vec<f64>>(&a), None);
        // Ten results of a hundred bytes, of which the newest five may stay.
        let bounded = folder.join("bounded");
        for n in 0..10 {
            let path = bounded.join(format!("{n:02}")).join("x");
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, [0; 100]).unwrap();
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(n);
            fs::File::options().append(true).open(&path).unwrap().set_modified(at).unwrap();
        }
        tidy_folder(&bounded, 900, 500);
        let stays = |n: u32| bounded.join(format!("{n:02}/x")).exists();
        assert!((0..5).all(|n| !stays(n)) && (5..10).all(stays));
        fs::remove_dir_all(folder).unwrap();
    }
}
