//! Finds files by name: built-in ones and those in folders.

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::figure::AnyFigure;
use crate::source::{Place, Source};
use crate::suggest;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The repository's files: path in the repository, and text.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/built_in.rs"));

/// A list of folders to search before the built-in files.
///
/// Records what was read through it and its clones, for the provenance of results.
#[derive(Debug, Clone, Default)]
pub struct Library {
    folders: Arc<Vec<PathBuf>>,
    texts: Arc<BTreeMap<String, String>>,
    changes: Arc<Vec<(String, String)>>,
    used: Arc<Mutex<Used>>,
    redraw: Option<Arc<dyn Redraw>>,
}

/// Gives figures other values as their files are read, for runs that show how uncertain results are.
pub trait Redraw: std::fmt::Debug + Send + Sync {
    /// Another value, as a file spells it, for the figure at a dotted path of its file; `None` to keep its own. It is
    /// taken only if it fits the rest of the file.
    fn redraw(&self, path: &str, figure: &dyn AnyFigure) -> Option<String>;
}

/// Files read through a library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Used {
    /// Files by name: kind (`machine`, `scenario`) and digest.
    pub files: BTreeMap<String, (&'static str, String)>,
    /// Changes that files make to others, as `FILE: OTHER: path = value`.
    pub changes: BTreeSet<String>,
    /// Texts of files that are not built in: a library [with these texts](Library::with_texts) finds the same files
    /// elsewhere.
    pub texts: BTreeMap<String, String>,
}

/// Error: a name that was not found.
pub(crate) struct Missing {
    message: String,
    help: Option<String>,
}

impl Missing {
    /// Converts to an error at a place.
    pub(crate) fn at(self, place: &Place) -> Diagnostics {
        let mut diagnostic = Diagnostic::new(place, self.message);
        diagnostic.help = self.help;
        Diagnostics::new(vec![diagnostic])
    }

    /// Converts to an error without a place.
    pub(crate) fn alone(self, name: &str) -> Diagnostics {
        Diagnostics::about(name, self.message, self.help)
    }
}

impl Library {
    /// The built-in files.
    pub fn built_in() -> Self {
        Self::default()
    }

    /// Searches `folder` before anything searched so far. It is laid out like the repository: `machines/`,
    /// `machines/parts/`, `scenarios/`.
    #[must_use]
    pub fn with_folder(&self, folder: impl Into<PathBuf>) -> Self {
        let mut folders = vec![folder.into()];
        folders.extend(self.folders.iter().cloned());
        Self { folders: Arc::new(folders), ..self.clone() }
    }

    /// Finds these texts before anything on disk, each under the path of its file: `machines/NAME.toml` for a file
    /// requested by name.
    #[must_use]
    pub fn with_texts(&self, texts: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut all = BTreeMap::clone(&self.texts);
        all.extend(texts);
        Self { texts: Arc::new(all), ..self.clone() }
    }

    /// Sets these paths to these values in every file that has them.
    #[must_use]
    pub fn with_changes(&self, changes: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { changes: Arc::new(changes.into_iter().collect()), ..self.clone() }
    }

    /// The changes for every file that has their paths.
    pub(crate) fn changes(&self) -> &[(String, String)] {
        &self.changes
    }

    /// Whether a file that was read has this path, of those to [change](Self::with_changes).
    pub fn has_changed(&self, path: &str) -> bool {
        self.used()
            .changes
            .iter()
            .any(|change| change.starts_with("--set ") && change.contains(&format!(": {path} = ")))
    }

    /// The same files without recording what is read, for listings.
    #[must_use]
    pub fn aside(&self) -> Self {
        Self { used: Arc::default(), ..self.clone() }
    }

    /// The same files with other values of their figures.
    #[must_use]
    pub fn redrawn(&self, redraw: Arc<dyn Redraw>) -> Self {
        Self { redraw: Some(redraw), ..self.clone() }
    }

    /// Who gives figures other values.
    pub(crate) fn redraw(&self) -> Option<&dyn Redraw> {
        self.redraw.as_deref()
    }

    /// What was read through this library and its clones so far.
    pub fn used(&self) -> Used {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records a file that was read.
    pub fn keep(&self, what: &'static str, name: &str, text: &str) {
        let digest = files::sha256(text.as_bytes());
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.files.insert(name.to_owned(), (what, digest));
    }

    /// Records a file's change to another.
    pub(crate) fn keep_change(&self, change: String) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).changes.insert(change);
    }

    /// Names of all files in `folder` (`machines`, `machines/parts`, `scenarios`), sorted.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let prefix = format!("{folder}/");
        let built_in =
            BUILT_IN.iter().filter_map(|(path, _)| path.strip_prefix(&prefix)).map(ToOwned::to_owned);
        let on_disk =
            self.folders.iter().filter_map(|root| std::fs::read_dir(root.join(folder)).ok()).flatten();
        let on_disk = on_disk.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let name = |file: String| file.strip_suffix(".toml").map(ToOwned::to_owned);
        let in_hand = self.texts.keys().filter_map(|path| path.strip_prefix(&prefix)).map(ToOwned::to_owned);
        let names: BTreeSet<String> =
            built_in.chain(in_hand).chain(on_disk).filter_map(name).filter(|n| !n.contains('/')).collect();
        names.into_iter().collect()
    }

    /// The text of the file `name`, or at that path. A path is relative to the current directory or to the file
    /// `from` that contains it.
    pub(crate) fn find(
        &self,
        name: &str,
        from: Option<&str>,
        folder: &str,
        what: &'static str,
    ) -> Result<Arc<Source>, Missing> {
        let source = self.search(name, from, folder, what)?;
        self.keep(what, &source.name, &source.text);
        if !BUILT_IN.iter().any(|(path, text)| *path == source.name && *text == source.text) {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            used.texts.insert(source.name.clone(), source.text.clone());
        }
        Ok(source)
    }

    /// The folder of a file; the current one, an empty path, for a built-in file.
    pub(crate) fn folder_of(&self, name: &str, text: &str) -> PathBuf {
        let is_built_in = BUILT_IN.contains(&(name, text));
        let folder = Path::new(name).parent().filter(|_| !is_built_in);
        folder.map(Path::to_owned).unwrap_or_default()
    }

    /// The text of a file in a scenario's folder, or below it; `None` if there is none. Others are refused: a scenario
    /// from elsewhere must not read what it likes.
    pub(crate) fn beside(&self, name: &str, folder: &Path) -> Result<Option<String>, (String, String)> {
        let help = || "a text file beside the scenario, or in a folder below".to_owned();
        let path = Path::new(name);
        let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_below {
            return Err((format!("`{name}` is not below the scenario's folder"), help()));
        }
        let path = folder.join(path);
        let shown = path.display().to_string();
        let text = match self.texts.get(&shown) {
            Some(text) => text.clone(),
            None => {
                // Links may lead elsewhere; a pipe would block.
                let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
                let (Ok(real), Ok(folder)) = (path.canonicalize(), folder.canonicalize()) else {
                    return Ok(None);
                };
                if !real.starts_with(folder) {
                    return Err((format!("`{name}` leads out of the scenario's folder"), help()));
                }
                let is_text =
                    std::fs::metadata(&real).is_ok_and(|known| known.is_file() && known.len() <= MOST_BYTES);
                let bytes = if is_text { files::read(&real).ok() } else { None };
                let text = bytes.map(String::from_utf8);
                let Some(Ok(text)) = text else {
                    return Err((format!("`{name}` is not a text file"), help()));
                };
                text
            }
        };
        self.keep("job file", &shown, &text);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.texts.insert(shown, text.clone());
        Ok(Some(text))
    }

    fn text(&self, name: &str) -> Option<Arc<Source>> {
        let text = self.texts.get(name)?.clone();
        Some(Arc::new(Source::new(name, text)))
    }

    fn search(
        &self,
        name: &str,
        from: Option<&str>,
        folder: &str,
        what: &str,
    ) -> Result<Arc<Source>, Missing> {
        let is_path = name.ends_with(".toml") || name.contains(['/', '\\']);
        if is_path {
            // A file from elsewhere must not have lines of any other file quoted in a message.
            if from.is_some() && !name.ends_with(".toml") {
                let message = format!("`{name}` is not a .toml file");
                return Err(Missing { message, help: Some(format!("the path of the file of a {what}")) });
            }
            let beside = from.and_then(|from| Path::new(from).parent()).map(|folder| folder.join(name));
            let is_there =
                |path: &PathBuf| self.texts.contains_key(&path.display().to_string()) || path.exists();
            let path = beside.filter(is_there).unwrap_or_else(|| PathBuf::from(name));
            return self.text(&path.display().to_string()).map_or_else(|| read(&path), Ok);
        }
        let relative = format!("{folder}/{name}.toml");
        if let Some(source) = self.text(&relative) {
            return Ok(source);
        }
        for root in self.folders.iter() {
            let path = root.join(&relative);
            if let Some(source) = self.text(&path.display().to_string()) {
                return Ok(source);
            }
            // Report non-files rather than skip them.
            if path.symlink_metadata().is_ok() {
                return read(&path);
            }
        }
        if let Some((path, text)) = BUILT_IN.iter().find(|(path, _)| *path == relative) {
            return Ok(Arc::new(Source::new(*path, *text)));
        }
        let names = self.names(folder);
        let known = suggest::among(name, names.iter().map(String::as_str), "there are");
        Err(Missing {
            message: format!("there is no {what} called `{name}`"),
            help: Some(known + "; or give the path of a .toml file"),
        })
    }
}

/// Maximum size of a file: machine files have tens of kilobytes.
const MOST_BYTES: u64 = 16 << 20;

fn read(path: &Path) -> Result<Arc<Source>, Missing> {
    let missing = |reason: String| Missing {
        message: format!("`{}` cannot be read: {reason}", path.display()),
        help: Some("the path of a .toml file, or one of the names that `nearfar machines` lists".into()),
    };
    // Check before opening: a pipe would block, a device would never end.
    let known = std::fs::metadata(path).map_err(|error| missing(error.to_string()))?;
    if !known.is_file() || known.len() > MOST_BYTES {
        return Err(missing("it is not a file of a machine, part or scenario".into()));
    }
    let text = files::read_to_string(path).map_err(|error| missing(error.to_string()))?;
    Ok(Arc::new(Source::new(path.display().to_string(), text)))
}
