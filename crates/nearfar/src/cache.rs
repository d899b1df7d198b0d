//! What was simulated before: an experiment that was run with the same program on the same files gives the same, and need
//! not be simulated again.
//!
//! A result is kept under a digest of everything that it depends on, the program's own bytes included, in a file with a
//! digest of what it holds: what a kill left half written is not taken for a result. A run that was ended goes on where it
//! was, as all that it had simulated is here. The folder is bounded: what was used longest ago goes first.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most bytes in the folder.
const MOST_BYTES: u64 = 1 << 30;
/// What is left when that is exceeded.
const LEFT_BYTES: u64 = MOST_BYTES / 4 * 3;
/// The file for the speed of simulation on this computer.
const SPEED: &str = "speed";
/// Hexadecimal digits of a digest.
const DIGEST: usize = 64;

/// The process's cache; none unless somebody asks for one.
static CACHE: RwLock<Option<Arc<Cache>>> = RwLock::new(None);

fn cache() -> Option<Arc<Cache>> {
    CACHE.read().unwrap_or_else(PoisonError::into_inner).clone()
}

struct Cache {
    folder: PathBuf,
    /// What tells this program from others that give other results.
    program: String,
    found: AtomicU64,
    added: AtomicU64,
}

/// Keeps results in a folder from now on, for the whole process, and finds those that are there of the same `program`: a
/// digest of what the simulator is made of, so that another one's results are not taken for its own.
///
/// # Errors
/// If the folder cannot be made.
pub fn keep_in(folder: &Path, program: String) -> io::Result<()> {
    let cache = Cache::in_folder(folder, program)?;
    *CACHE.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(cache));
    Ok(())
}

/// Keeps nothing from now on, and finds nothing.
pub fn keep_nothing() {
    *CACHE.write().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Where results are kept if nobody says otherwise: `$NEARFAR_CACHE`, or `nearfar` in the user's folder of caches.
pub fn usual_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    set("NEARFAR_CACHE").or_else(|| Some(user()?.join("nearfar")))
}

/// How many results were found, and how many were added.
pub fn used() -> (u64, u64) {
    cache().map_or((0, 0), |cache| (cache.found.load(Ordering::Relaxed), cache.added.load(Ordering::Relaxed)))
}

/// The key of what depends on these, told apart by `kind`; nothing without a cache.
pub(crate) fn key(kind: &str, depends_on: &[&str]) -> Option<String> {
    Some(cache()?.key(kind, depends_on))
}

/// What a value shows of itself, digested: of those that hold all that a simulation depends on. Nothing without a cache.
pub(crate) fn digest(value: &impl Debug) -> String {
    match cache() {
        Some(_) => files::sha256(format!("{value:?}").as_bytes()),
        None => String::new(),
    }
}

/// What was kept under a key.
pub(crate) fn get<T: DeserializeOwned>(key: Option<&str>) -> Option<T> {
    cache()?.get(key?)
}

/// Keeps a value under a key. That it cannot be kept is no error: it is simulated again.
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
        let bytes = fs::read(&path).ok()?;
        let (digest, value) = bytes.split_at_checked(DIGEST)?;
        if files::sha256(value).as_bytes() != digest {
            return None;
        }
        let value = postcard::from_bytes(value).ok()?;
        // When it was last used decides how long it stays.
        let now = SystemTime::now();
        let _ = fs::File::options().append(true).open(&path).and_then(|file| file.set_modified(now));
        self.found.fetch_add(1, Ordering::Relaxed);
        Some(value)
    }

    fn put<T: Serialize>(&self, key: &str, value: &T) -> io::Result<()> {
        let value = postcard::to_allocvec(value).map_err(io::Error::other)?;
        let bytes = [files::sha256(&value).as_bytes(), &value].concat();
        let (path, number) = (self.path(key), self.added.fetch_add(1, Ordering::Relaxed));
        let beside = path.with_file_name(format!(".{}-{number}", std::process::id()));
        fs::create_dir_all(self.folder.join(&key[..2]))?;
        fs::write(&beside, bytes)?;
        fs::rename(&beside, &path)
    }
}

/// How much was simulated in a second the last time that somebody waited, in what [`Progress`](crate::progress::Progress)
/// weighs steps by; nothing without a cache, or the first time.
pub fn speed() -> Option<f64> {
    let text = fs::read_to_string(cache()?.folder.join(SPEED)).ok()?;
    text.trim().parse().ok().filter(|speed: &f64| speed.is_finite() && *speed > 0.0)
}

/// Keeps how much was simulated in a second.
pub fn keep_speed(weight_per_s: f64) {
    if let Some(cache) = cache() {
        let _ = fs::write(cache.folder.join(SPEED), format!("{weight_per_s:.0}\n"));
    }
}

/// Lets what was used longest ago go, if there is too much and something was added.
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
        // Half a file.
        let path = cache.path(&a);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(cache.get::<Vec<f64>>(&a), None);
        // Ten of a hundred bytes, of which five may stay: the latest.
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
