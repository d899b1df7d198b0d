//! Machine, part and scenario files in Python's hands.

use std::path::PathBuf;

use machine::{AnyDoc, FileKind, KINDS, Library as Files, Listed};
use nearfar::experiment::table_in_scenario;
use pyo3::prelude::*;
use serde_json::json;

use crate::failure::Failure;
use crate::table::Records;

/// Where files are found.
#[pyclass(frozen, module = "nearfar._nearfar")]
pub struct Library {
    files: Files,
}

impl Library {
    /// The same files; it says of itself what was read through it from now on.
    pub fn files(&self) -> Files {
        self.files.aside()
    }
}

#[pymethods]
impl Library {
    /// What comes with the program, behind folders that are laid out as the repository and texts under their files' paths.
    #[new]
    #[pyo3(signature = (folders=vec![], texts=vec![]))]
    fn new(folders: Vec<PathBuf>, texts: Vec<(String, String)>) -> Self {
        let files = folders.iter().rev().fold(Files::built_in(), |files, folder| files.with_folder(folder));
        Self { files: files.with_texts(texts) }
    }

    /// The names of the files in a folder.
    fn names(&self, folder: &str) -> Vec<String> {
        self.files.names(folder)
    }
}

/// The file of that kind with that name or path, or the one with this text. A scenario without hosts is one of pcie-bench.
fn open(
    word: &str,
    files: &Files,
    name: &str,
    text: Option<&str>,
) -> Result<(&'static FileKind, Box<dyn AnyDoc>), Failure> {
    let kind = |word| FileKind::by_word(word).expect("a word of the list");
    let Some(asked) = FileKind::by_word(word) else {
        let words: Vec<&str> = KINDS.iter().map(|kind| kind.word).collect();
        return Err(Failure::argument("kind", format!("`{word}` is not a kind of file"), words.join(", ")));
    };
    let doc = asked.open(files, name, text)?;
    if asked.extends || doc.has("host")? {
        return Ok((asked, doc));
    }
    let of_bench = kind("bench-scenario");
    Ok((of_bench, of_bench.open(files, name, text)?))
}

/// The kinds of files: word, folder and description.
#[pyfunction]
pub fn kinds() -> Vec<(&'static str, &'static str, &'static str)> {
    KINDS.iter().map(|kind| (kind.word, kind.folder, kind.about)).collect()
}

/// A file with what was changed since it was read.
#[pyclass(module = "nearfar._nearfar")]
pub struct File {
    kind: &'static FileKind,
    doc: Box<dyn AnyDoc>,
}

#[pymethods]
impl File {
    #[new]
    #[pyo3(signature = (kind, library, name, text=None))]
    fn new(kind: &str, library: &Library, name: &str, text: Option<&str>) -> PyResult<Self> {
        let (kind, doc) = open(kind, &library.files, name, text)?;
        Ok(Self { kind, doc })
    }

    /// Another one like it.
    fn copy(&self) -> Self {
        Self { kind: self.kind, doc: self.doc.copy() }
    }

    /// What messages call it.
    #[getter]
    fn name(&self) -> String {
        self.doc.name().to_owned()
    }

    /// Its text as it was read.
    #[getter]
    fn text(&self) -> String {
        self.doc.text().to_owned()
    }

    /// Sets the value at a dotted path, as TOML spells it.
    fn set(&mut self, path: &str, value: &str) -> PyResult<()> {
        let within = if self.kind.word == "bench-scenario" { table_in_scenario(path) } else { None };
        Ok(self.doc.set_by("set", within, path, value).map_err(Failure::from)?)
    }

    /// Every figure with its value and where that comes from.
    fn figures(&self) -> PyResult<Records> {
        let list: Vec<Listed> = self.doc.list().map_err(Failure::from)?;
        let record = |figure: &Listed| {
            let said = &figure.provenance;
            json!({
                "kind": "figure", "path": figure.path, "value": figure.value.trim().trim_matches('"'),
                "number": figure.number, "origin": said.kind.as_str(), "source": said.source,
                "uncertainty": said.uncertainty, "without": said.without,
            })
        };
        Ok(list.iter().map(record).collect::<Vec<_>>().into())
    }

    /// Complains of what is wrong with it or with a change.
    fn check(&self) -> PyResult<()> {
        self.doc.summary().map_err(Failure::from)?;
        Ok(())
    }

    /// Its text with all changes.
    fn to_text(&self) -> PyResult<String> {
        Ok(self.doc.to_text().map_err(Failure::from)?)
    }

    /// Writes it: whole, or not at all.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        Ok(self.doc.save(&path).map_err(Failure::from)?)
    }
}
