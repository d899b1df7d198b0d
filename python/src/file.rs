//! Machine, part and scenario files in Python's hands.

use std::path::PathBuf;

use machine::{
    ClusterSwitch, ComputerScenario, Diagnostics, Doc, Drive, Gpu, KernelFile, Library as Files, Listed,
    Machine, Nic, Ntb, Part, PcieSwitch, Scenario,
};
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

/// A file of one of the kinds.
#[derive(Clone)]
enum AnyDoc {
    Machine(Doc<Machine>),
    Part(Doc<Part>),
    Nic(Doc<Nic>),
    Drive(Doc<Drive>),
    Gpu(Doc<Gpu>),
    Ntb(Doc<Ntb>),
    Switch(Doc<PcieSwitch>),
    Cluster(Doc<ClusterSwitch>),
    Kernel(Doc<KernelFile>),
    Scenario(Doc<Scenario>),
    Computers(Doc<ComputerScenario>),
}

/// Does the same with a file of any kind.
macro_rules! each {
    ($of:expr, $doc:ident => $body:expr) => {
        match $of {
            AnyDoc::Machine($doc) => $body,
            AnyDoc::Part($doc) => $body,
            AnyDoc::Nic($doc) => $body,
            AnyDoc::Drive($doc) => $body,
            AnyDoc::Gpu($doc) => $body,
            AnyDoc::Ntb($doc) => $body,
            AnyDoc::Switch($doc) => $body,
            AnyDoc::Cluster($doc) => $body,
            AnyDoc::Kernel($doc) => $body,
            AnyDoc::Scenario($doc) => $body,
            AnyDoc::Computers($doc) => $body,
        }
    };
}

impl AnyDoc {
    /// The file of that name or path, or the one with this text.
    fn open(kind: &str, files: &Files, name: &str, text: Option<&str>) -> Result<Self, Failure> {
        fn doc<T: machine::Kindred>(
            files: &Files,
            name: &str,
            text: Option<&str>,
        ) -> Result<Doc<T>, Diagnostics> {
            match text {
                Some(text) => Ok(Doc::from_text(files, name, text)),
                None => Doc::load(files, name),
            }
        }
        Ok(match kind {
            "machine" => Self::Machine(doc(files, name, text)?),
            "part" => Self::Part(doc(files, name, text)?),
            "nic" => Self::Nic(doc(files, name, text)?),
            "drive" => Self::Drive(doc(files, name, text)?),
            "gpu" => Self::Gpu(doc(files, name, text)?),
            "ntb" => Self::Ntb(doc(files, name, text)?),
            "switch" => Self::Switch(doc(files, name, text)?),
            "cluster" => Self::Cluster(doc(files, name, text)?),
            "kernel" => Self::Kernel(doc(files, name, text)?),
            "scenario" => {
                let computers: Doc<ComputerScenario> = doc(files, name, text)?;
                match computers.has("host")? {
                    true => Self::Computers(computers),
                    false => Self::Scenario(doc(files, name, text)?),
                }
            }
            other => {
                let kinds = "machine, part, nic, drive, gpu, ntb, switch, cluster, kernel or scenario";
                return Err(Failure::argument("kind", format!("`{other}` is not a kind of file"), kinds));
            }
        })
    }
}

/// A file with what was changed since it was read.
#[pyclass(module = "nearfar._nearfar")]
pub struct File {
    doc: AnyDoc,
}

#[pymethods]
impl File {
    #[new]
    #[pyo3(signature = (kind, library, name, text=None))]
    fn new(kind: &str, library: &Library, name: &str, text: Option<&str>) -> PyResult<Self> {
        Ok(Self { doc: AnyDoc::open(kind, &library.files, name, text)? })
    }

    /// Another one like it.
    fn copy(&self) -> Self {
        Self { doc: self.doc.clone() }
    }

    /// What messages call it.
    #[getter]
    fn name(&self) -> String {
        each!(&self.doc, doc => doc.name().to_owned())
    }

    /// Its text as it was read.
    #[getter]
    fn text(&self) -> String {
        each!(&self.doc, doc => doc.text().to_owned())
    }

    /// Sets the value at a dotted path, as TOML spells it.
    fn set(&mut self, path: &str, value: &str) -> PyResult<()> {
        let within = match &self.doc {
            AnyDoc::Scenario(_) => table_in_scenario(path),
            _ => None,
        };
        each!(&mut self.doc, doc => doc.set_by("set", within, path, value)).map_err(Failure::from)?;
        Ok(())
    }

    /// Every figure with its value and where that comes from.
    fn figures(&self) -> PyResult<Records> {
        let list: Vec<Listed> = each!(&self.doc, doc => doc.list()).map_err(Failure::from)?;
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
        each!(&self.doc, doc => doc.read().map(drop)).map_err(Failure::from)?;
        Ok(())
    }

    /// Its text with all changes.
    fn to_text(&self) -> PyResult<String> {
        Ok(each!(&self.doc, doc => doc.to_text()).map_err(Failure::from)?)
    }

    /// Writes it: whole, or not at all.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        each!(&self.doc, doc => doc.save(&path)).map_err(Failure::from)?;
        Ok(())
    }
}
