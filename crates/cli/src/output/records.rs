//! Output files for records.

use std::path::{Path, PathBuf};

use results::Provenance;
use results::records;
use serde_json::Value;

use super::{Places, binary, file, list, with_origin, write};
use crate::failure::Failure;

/// Whether a record says where figures come from: tables of results leave it out.
fn is_of_origins(record: &Value) -> bool {
    !record["source_kind"].is_null() || record["kind"] == "origins" || record["kind"] == "no-limit"
}

/// Options for a command's records.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Records {
    /// Write all records as JSON; - for standard output.
    #[arg(long, value_name = "FILE", value_parser = file)]
    json: Option<PathBuf>,
    /// Write all records as CSV; - for standard output.
    #[arg(long, value_name = "FILE", value_parser = file)]
    csv: Option<PathBuf>,
    /// Write all records as Apache Parquet.
    #[arg(long, value_name = "FILE", value_parser = binary)]
    parquet: Option<PathBuf>,
}

impl Records {
    /// All outputs, including a command's `others`.
    ///
    /// # Errors
    /// If two go to the same place.
    pub fn places(&self, others: &[(&str, Option<&Path>)]) -> Result<Places, Failure> {
        let own = [
            ("--json", self.json.as_deref()),
            ("--csv", self.csv.as_deref()),
            ("--parquet", self.parquet.as_deref()),
        ];
        Places::new(&[&own, others].concat())
    }

    /// Path of the JSON, for a command whose JSON is not a list.
    pub fn json(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    /// Path of the CSV, for a command with its own columns.
    pub fn csv(&self) -> Option<&Path> {
        self.csv.as_deref()
    }

    /// Writes all requested files.
    pub fn write(&self, rows: Vec<Value>, provenance: &Provenance) -> Result<(), Failure> {
        if self.csv.is_some() || self.parquet.is_some() {
            let tables: Vec<Value> = rows.iter().filter(|row| !is_of_origins(row)).cloned().collect();
            self.write_tables(&tables, provenance)?;
        }
        list(self.json(), rows, provenance)
    }

    /// Writes CSV and Parquet if requested, for a command with a different JSON.
    pub fn write_tables(&self, rows: &[Value], provenance: &Provenance) -> Result<(), Failure> {
        self.write_csv(rows, provenance)?;
        self.write_parquet(rows, provenance)
    }

    /// Writes CSV if requested.
    fn write_csv(&self, rows: &[Value], provenance: &Provenance) -> Result<(), Failure> {
        match &self.csv {
            Some(path) => with_origin(path, records::csv(rows).as_bytes(), provenance),
            None => Ok(()),
        }
    }

    /// Writes all requested files except CSV.
    pub fn write_typed(
        &self,
        rows: impl FnOnce() -> Vec<Value>,
        provenance: &Provenance,
    ) -> Result<(), Failure> {
        if self.json.is_none() && self.parquet.is_none() {
            return Ok(());
        }
        let rows = rows();
        self.write_parquet(&rows, provenance)?;
        list(self.json(), rows, provenance)
    }

    /// Writes Parquet if requested.
    fn write_parquet(&self, rows: &[Value], provenance: &Provenance) -> Result<(), Failure> {
        match &self.parquet {
            Some(path) => write(path, &records::parquet(rows, provenance).map_err(Failure::new)?),
            None => Ok(()),
        }
    }
}
