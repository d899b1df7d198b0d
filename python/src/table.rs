//! Records, and tables of them in Arrow's layout: Python's data frames take their columns as they are.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use nearfar::records::Record;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList, PyType};
use serde_json::Value;

use crate::failure::Failure;

/// Records of results.
#[pyclass(frozen, module = "nearfar._nearfar")]
pub struct Records {
    all: Vec<Record>,
}

impl From<Vec<Record>> for Records {
    fn from(all: Vec<Record>) -> Self {
        Self { all }
    }
}

impl Records {
    /// All of them.
    pub fn all(&self) -> &[Record] {
        &self.all
    }
}

#[pymethods]
impl Records {
    /// Those that such bytes hold.
    #[new]
    fn new(bytes: &[u8]) -> PyResult<Self> {
        let all = serde_json::from_slice(bytes).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { all })
    }

    fn __len__(&self) -> usize {
        self.all.len()
    }

    /// How others get them: by their bytes.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyType>, (Bound<'py, PyBytes>,))> {
        Ok((slf.get_type(), (slf.get().json(slf.py())?,)))
    }

    /// As JSON: numbers come back as they were.
    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| serde_json::to_vec(&self.all));
        Ok(PyBytes::new(py, &bytes.map_err(|error| PyValueError::new_err(error.to_string()))?))
    }

    /// The kinds of records that there are, in the order in which they come.
    fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<String> = Vec::new();
        for kind in self.all.iter().filter_map(|record| record["kind"].as_str()) {
            if !kinds.iter().any(|known| known == kind) {
                kinds.push(kind.to_owned());
            }
        }
        kinds
    }

    /// A table of those of the kinds, of all if none are given, with a column for each key.
    #[pyo3(signature = (kinds=None, metadata=None))]
    fn table(
        &self,
        py: Python<'_>,
        kinds: Option<Vec<String>>,
        metadata: Option<HashMap<String, String>>,
    ) -> PyResult<Table> {
        let is_wanted = |record: &&Record| {
            let kind = record["kind"].as_str().unwrap_or_default();
            kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|wanted| wanted == kind))
        };
        let made = py.detach(|| {
            let records: Vec<&Record> = self.all.iter().filter(is_wanted).collect();
            columns(&records, metadata.unwrap_or_default())
        });
        Ok(Table { batch: made.map_err(wrong)? })
    }

    /// Those of several, one behind the other. Rows of pcie-bench are numbered anew, over all.
    #[staticmethod]
    fn joined(parts: Vec<PyRef<'_, Self>>) -> Self {
        let mut all: Vec<Record> = parts.iter().flat_map(|part| &part.all).cloned().collect();
        for (number, row) in (1..).zip(all.iter_mut().filter(|record| record["kind"] == "row")) {
            row["row"] = Value::from(number);
        }
        Self { all }
    }
}

fn wrong(error: ArrowError) -> Failure {
    Failure::Run(error.to_string())
}

/// What a column holds: whole numbers, numbers, truth values, or text; lists and objects are text as JSON has them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    Integers,
    Numbers,
    Truth,
    Text,
}

impl Holds {
    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Nothing,
            Value::Bool(_) => Self::Truth,
            Value::Number(number) if number.is_i64() => Self::Integers,
            Value::Number(_) => Self::Numbers,
            _ => Self::Text,
        }
    }

    fn with(self, other: Self) -> Self {
        match (self, other) {
            (same, other) if same == other => same,
            (Self::Nothing, other) | (other, Self::Nothing) => other,
            (Self::Integers, Self::Numbers) | (Self::Numbers, Self::Integers) => Self::Numbers,
            _ => Self::Text,
        }
    }
}

/// A column of what is found under `key`.
fn column(records: &[&Record], key: &str, holds: Holds) -> ArrayRef {
    fn of<'a>(record: &'a Record, key: &str) -> Option<&'a Value> {
        record.get(key).filter(|value| !value.is_null())
    }
    let count = records.len();
    match holds {
        Holds::Integers => {
            let mut built = Int64Builder::with_capacity(count);
            records.iter().for_each(|record| built.append_option(of(record, key).and_then(Value::as_i64)));
            Arc::new(built.finish())
        }
        Holds::Numbers => {
            let mut built = Float64Builder::with_capacity(count);
            records.iter().for_each(|record| built.append_option(of(record, key).and_then(Value::as_f64)));
            Arc::new(built.finish())
        }
        Holds::Truth => {
            let mut built = BooleanBuilder::with_capacity(count);
            records.iter().for_each(|record| built.append_option(of(record, key).and_then(Value::as_bool)));
            Arc::new(built.finish())
        }
        Holds::Nothing | Holds::Text => {
            let mut built = StringBuilder::with_capacity(count, 16 * count);
            for record in records {
                match of(record, key) {
                    None => built.append_null(),
                    Some(Value::String(text)) => built.append_value(text),
                    Some(other) => built.append_value(other.to_string()),
                }
            }
            Arc::new(built.finish())
        }
    }
}

/// A column for each key, what a record is first, then in the order in which keys come.
fn columns(records: &[&Record], metadata: HashMap<String, String>) -> Result<RecordBatch, ArrowError> {
    let mut keys: Vec<(&str, Holds)> = Vec::new();
    for record in records.iter().filter_map(|record| record.as_object()) {
        for (place, (key, value)) in record.iter().enumerate() {
            let holds = Holds::of(value);
            // Records of one kind have the same keys in the same places.
            let at = match keys.get(place).is_some_and(|(known, _)| known == key) {
                true => Some(place),
                false => keys.iter().position(|(known, _)| known == key),
            };
            match at {
                Some(at) => keys[at].1 = keys[at].1.with(holds),
                None => keys.push((key, holds)),
            }
        }
    }
    keys.sort_by_key(|(key, _)| *key != "kind");
    let arrays = keys.iter().map(|(key, holds)| (*key, column(records, key, *holds)));
    batch(arrays.collect(), metadata)
}

/// A table of these columns.
pub fn batch(
    columns: Vec<(&str, ArrayRef)>,
    metadata: HashMap<String, String>,
) -> Result<RecordBatch, ArrowError> {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let schema = Schema::new_with_metadata(columns.iter().map(field).collect::<Vec<_>>(), metadata);
    // Without columns, too, a table has its rows.
    let rows =
        RecordBatchOptions::new().with_row_count(Some(columns.first().map_or(0, |(_, array)| array.len())));
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new_with_options(Arc::new(schema), arrays, &rows)
}

/// Columns of equal length in Arrow's layout.
#[pyclass(frozen, module = "nearfar._nearfar")]
pub struct Table {
    batch: RecordBatch,
}

impl From<RecordBatch> for Table {
    fn from(batch: RecordBatch) -> Self {
        Self { batch }
    }
}

/// Rows and columns that a table shows of itself, and characters of a value.
const SHOWN: (usize, usize, usize) = (10, 8, 24);

/// A value as text.
fn cell(array: &ArrayRef, row: usize) -> String {
    if array.is_null(row) {
        return "–".to_owned();
    }
    let text = match array.data_type() {
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).to_string(),
        DataType::Boolean => array.as_boolean().value(row).to_string(),
        DataType::Binary => format!("{} bytes", array.as_binary::<i32>().value(row).len()),
        _ => array.as_string::<i32>().value(row).to_owned(),
    };
    match text.char_indices().nth(SHOWN.2) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// The first rows and columns, for who looks at the table, and how many there are.
    fn __repr__(&self) -> String {
        let (rows, columns) = (self.batch.num_rows(), self.batch.num_columns());
        let texts = |(name, array): (String, &ArrayRef)| {
            let cells = (0..rows.min(SHOWN.0)).map(|row| cell(array, row));
            std::iter::once(name).chain(cells).collect::<Vec<_>>()
        };
        let shown: Vec<_> =
            self.column_names().into_iter().zip(self.batch.columns()).take(SHOWN.1).map(texts).collect();
        let width = |column: &Vec<String>| column.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = shown.iter().map(width).collect();
        let mut text = String::new();
        for line in 0..=rows.min(SHOWN.0) {
            for (column, &width) in shown.iter().zip(&widths) {
                text += &format!("{:>width$}  ", column[line]);
            }
            text.truncate(text.trim_end().len());
            text += if columns > SHOWN.1 { "  …\n" } else { "\n" };
        }
        if rows > SHOWN.0 {
            text += "…\n";
        }
        text + &format!(
            "[{rows} rows, {columns} columns; pandas.DataFrame and polars.DataFrame take all of them]"
        )
    }

    /// The columns' names.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// What the table says of itself: `provenance` is what it was made from, as JSON.
    #[getter]
    fn metadata(&self) -> HashMap<String, String> {
        self.batch.schema_ref().metadata().clone()
    }

    /// A column's values as a list; `None` where a row has none.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let Some(array) = self.batch.column_by_name(name) else {
            let there = self.column_names().join("`, `");
            return Err(PyKeyError::new_err(format!("there is no column `{name}`; there are `{there}`")));
        };
        match array.data_type() {
            DataType::Int64 => PyList::new(py, array.as_primitive::<Int64Type>().iter()),
            DataType::Float64 => PyList::new(py, array.as_primitive::<Float64Type>().iter()),
            DataType::Boolean => PyList::new(py, array.as_boolean().iter()),
            DataType::Binary => PyList::new(py, array.as_binary::<i32>().iter()),
            _ => PyList::new(py, array.as_string::<i32>().iter()),
        }
    }

    fn __contains__(&self, name: &str) -> bool {
        self.batch.column_by_name(name).is_some()
    }

    /// The columns' types, for whoever takes the table by Arrow's PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema_ref().as_ref()).map_err(wrong)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The columns themselves, by reference, for whoever takes the table by Arrow's PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // There is one layout; who asks for another casts what it gets, as the interface says.
        drop(requested_schema);
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }
}
