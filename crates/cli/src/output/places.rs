//! What a command reads and writes: an output is no second output, and nothing that is read.

use std::io;
use std::path::{Path, PathBuf};

use files::Place;
use machine::{ComputerSetup, Library};

use super::is_stdout;
use crate::failure::Failure;

/// Whether nothing is there, or what says where an earlier output came from.
fn is_origin(path: &Path) -> io::Result<bool> {
    match files::read(path) {
        Ok(text) => Ok(serde_json::from_slice::<results::Provenance>(&text).is_ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// The outputs of a command.
pub struct Places {
    /// Whether one is the standard output; then nothing else may be printed there.
    pub to_stdout: bool,
    outputs: Vec<(String, Place, PathBuf)>,
}

impl Places {
    /// Options with their files.
    ///
    /// # Errors
    /// If two are the same file.
    pub fn new(options: &[(&str, Option<&Path>)]) -> Result<Self, Failure> {
        let printed = Place::of_stdout().map(|place| ("what is printed".to_owned(), place, PathBuf::new()));
        let mut all = Self { to_stdout: false, outputs: printed.into_iter().collect() };
        for &(option, path) in options {
            let Some(path) = path else { continue };
            all.to_stdout |= is_stdout(Some(path));
            all.writes(option, path)?;
            if ORIGIN_BESIDE.contains(&option) {
                all.writes_origin(option, path)?;
            }
        }
        Ok(all)
    }

    /// Adds the file beside an output that says where it comes from.
    ///
    /// # Errors
    /// If it is another output, or somebody else's file.
    pub fn writes_origin(&mut self, option: &str, path: &Path) -> Result<(), Failure> {
        if !super::keeps(path) {
            return Ok(());
        }
        let origin = super::origin(path);
        let is_known = is_origin(&origin)
            .map_err(|error| Failure::new(format!("`{}` cannot be read: {error}", origin.display())))?;
        if !is_known {
            return Err(Failure::new(format!(
                "{option} `{}` would write where it comes from to `{}`, and there is a file of somebody else; give another name, or \
                 move that file away",
                path.display(),
                origin.display()
            )));
        }
        self.writes(&format!("the origin of {option}"), &origin)
    }

    /// Adds an output.
    ///
    /// # Errors
    /// If it is the same file as another one.
    pub fn writes(&mut self, what: &str, path: &Path) -> Result<(), Failure> {
        let place = match is_stdout(Some(path)) {
            true => Place::New("-".into()),
            false => Place::of(path),
        };
        if let Some((other, ..)) =
            self.outputs.iter().find(|(_, other, _)| *other == place && place != Place::Device)
        {
            let path = path.display();
            if other == what {
                return Err(Failure::new(format!(
                    "{what} would write `{path}` twice: under two names that lead there, or at each point of a sweep, where it is \
                     left out or given another file with --over"
                )));
            }
            return Err(Failure::new(format!(
                "{other} and {what} both write to `{path}`; give one of them another file"
            )));
        }
        self.outputs.push((what.to_owned(), place, path.to_owned()));
        Ok(())
    }

    /// Adds inputs.
    ///
    /// # Errors
    /// If one is an output.
    pub fn reads(&self, inputs: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<(), Failure> {
        for input in inputs {
            let place = Place::of(input.as_ref());
            // What does not exist is not read.
            let known = matches!(place, Place::Known(..));
            if let Some((what, ..)) = self.outputs.iter().find(|(_, output, _)| known && *output == place) {
                return Err(overwritten(what, input.as_ref()));
            }
        }
        Ok(())
    }

    /// Adds sources about a real machine: files, folders of tools' outputs, and folders laid out like `/`.
    ///
    /// # Errors
    /// If one is an output.
    pub fn reads_sources(&self, sources: &[PathBuf]) -> Result<(), Failure> {
        self.reads(sources)?;
        for source in sources {
            self.reads(survey::texts_in(source).unwrap_or_default())?;
            for read in ["sys", "proc"].iter().filter_map(|name| source.join(name).canonicalize().ok()) {
                let is_below = |path: &PathBuf| path.canonicalize().is_ok_and(|path| path.starts_with(&read));
                if let Some((what, _, path)) = self.outputs.iter().find(|(.., path)| is_below(path)) {
                    return Err(overwritten(what, path));
                }
            }
        }
        Ok(())
    }

    /// Adds a machine: its file, or the folder that an import wrote.
    ///
    /// # Errors
    /// If one is an output.
    pub fn reads_machine(&self, machine: &str) -> Result<(), Failure> {
        self.reads([machine])?;
        self.reads_folders(&[machine.into()])
    }

    /// Adds all files in folders that are read.
    ///
    /// # Errors
    /// If one is an output.
    pub fn reads_folders(&self, folders: &[PathBuf]) -> Result<(), Failure> {
        folders.iter().try_for_each(|folder| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            self.reads(entries.map(|entry| entry.path()))
        })
    }

    /// Adds what was read through a library.
    ///
    /// # Errors
    /// If one is an output.
    pub fn reads_through(&self, library: &Library) -> Result<(), Failure> {
        self.reads(library.used().files.into_keys())
    }

    /// Adds the files that a scenario names.
    ///
    /// # Errors
    /// If one is another output. Drives' blocks in the same file are for the run to judge, which locks it.
    pub fn writes_of(&mut self, setup: &ComputerSetup) -> Result<(), Failure> {
        let path = |name: &String| setup.folder.path(name);
        let mut captures: Vec<&String> =
            setup.network.captures.iter().map(|(.., file)| &file.value).collect();
        // Ports may share a file.
        captures.sort_by_key(|name| path(name));
        captures.dedup_by_key(|name| path(name));
        for name in captures {
            self.writes(&format!("the capture `{name}`"), &path(name))?;
        }
        let devices = setup.hosts.iter().flat_map(|host| &host.devices);
        let backings = devices.filter_map(|device| device.kind.drive()?.backing.as_ref());
        for backing in backings {
            let what = format!("the drive with its blocks in `{}`", backing.value);
            // Points of a sweep use a drive one after the other.
            if !self.outputs.iter().any(|(known, ..)| *known == what) {
                self.writes(&what, &path(&backing.value))?;
            }
        }
        Ok(())
    }
}

fn overwritten(what: &str, input: &Path) -> Failure {
    Failure::new(format!("{what} would overwrite `{}`, which is read; give it another file", input.display()))
}

/// Options whose files have their origin in a second file beside them.
const ORIGIN_BESIDE: [&str; 3] = ["--csv", "--folded", "--plot"];
