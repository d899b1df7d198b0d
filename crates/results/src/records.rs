//! Tables of JSON records: a column per key, a row per record.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use serde_json::Value;

use crate::Provenance;

/// The keys of all records in order of first use; `kind` comes first.
fn columns(rows: &[Value]) -> Vec<&str> {
    let mut columns: Vec<&str> = Vec::new();
    for row in rows.iter().filter_map(Value::as_object) {
        for key in row.keys() {
            if !columns.contains(&key.as_str()) {
                columns.push(key);
            }
        }
    }
    columns.sort_by_key(|column| *column != "kind");
    columns
}

/// Records as CSV; lists and objects as JSON.
pub fn csv(rows: &[Value]) -> String {
    let columns = columns(rows);
    let cell = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) if !text.contains([',', '"', '\n', '\r']) => files::shown(text).into_owned(),
        Value::String(text) => format!("\"{}\"", files::shown(text).replace('"', "\"\"")),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        other => format!("\"{}\"", files::shown_json(&other.to_string()).replace('"', "\"\"")),
    };
    let mut text = columns.join(",") + "\n";
    for row in rows {
        let cells: Vec<String> = columns.iter().map(|column| cell(&row[*column])).collect();
        text += &(cells.join(",") + "\n");
    }
    text
}

/// Records as Apache Parquet. A column has the type common to all its values: integer, number, boolean or text; lists
/// and objects are stored as JSON. The file's metadata hold the `provenance`.
///
/// # Errors
/// Errors of the library.
pub fn parquet(rows: &[Value], provenance: &Provenance) -> Result<Vec<u8>, ParquetError> {
    let columns = columns(rows);
    let kinds: Vec<Physical> = columns.iter().map(|column| physical(rows, column)).collect();
    let field = |(name, &kind): (&&str, &Physical)| {
        let field = Type::primitive_type_builder(name, kind).with_repetition(Repetition::OPTIONAL);
        let text = (kind == Physical::BYTE_ARRAY).then_some(LogicalType::String);
        field.with_logical_type(text).build().map(Arc::new)
    };
    let fields = columns.iter().zip(&kinds).map(field).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("record").with_fields(fields).build()?;
    let made_from =
        serde_json::to_string(provenance).map_err(|error| ParquetError::External(error.into()))?;
    let metadata = vec![KeyValue::new("provenance".to_owned(), made_from)];
    let properties = WriterProperties::builder().set_key_value_metadata(Some(metadata)).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (name, kind) in columns.iter().zip(kinds) {
        let Some(column) = group.next_column()? else { break };
        let cells = rows.iter().map(|row| &row[*name]);
        match kind {
            Physical::INT64 => fill::<Int64Type>(column, cells, Value::as_i64)?,
            Physical::DOUBLE => fill::<DoubleType>(column, cells, Value::as_f64)?,
            Physical::BOOLEAN => fill::<BoolType>(column, cells, Value::as_bool)?,
            _ => fill::<ByteArrayType>(column, cells, |value| match value {
                Value::Null => None,
                Value::String(text) => Some(ByteArray::from(text.as_str())),
                other => Some(ByteArray::from(other.to_string().as_str())),
            })?,
        }
    }
    group.close()?;
    writer.into_inner()
}

/// The common type of a column's values.
fn physical(rows: &[Value], column: &str) -> Physical {
    let all = |is: fn(&Value) -> bool| rows.iter().map(|row| &row[column]).all(|v| v.is_null() || is(v));
    match () {
        () if all(Value::is_null) => Physical::BYTE_ARRAY,
        () if all(Value::is_i64) => Physical::INT64,
        () if all(Value::is_number) => Physical::DOUBLE,
        () if all(Value::is_boolean) => Physical::BOOLEAN,
        () => Physical::BYTE_ARRAY,
    }
}

/// Writes a column: the present values, and a presence flag per row.
fn fill<'a, T: DataType>(
    mut column: SerializedColumnWriter<'_>,
    cells: impl Iterator<Item = &'a Value>,
    of: impl Fn(&Value) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let cells: Vec<Option<T::T>> = cells.map(of).collect();
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let values: Vec<T::T> = cells.into_iter().flatten().collect();
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::Field;
    use serde_json::json;

    fn rows() -> Vec<Value> {
        vec![
            json!({"value": 1, "kind": "a", "share": 1, "list": [1, 2], "mixed": 1}),
            json!({"value": -3, "kind": "b,c", "share": 2.5, "on": true, "mixed": "x\"y"}),
        ]
    }

    #[test]
    fn what_a_record_is_comes_first_and_cells_are_quoted_where_needed() {
        let text = csv(&rows());
        let rows =
            ["kind,list,mixed,share,value,on", "a,\"[1,2]\",1,1,1,", "\"b,c\",,\"x\"\"y\",2.5,-3,true"];
        assert_eq!(text, rows.join("\n") + "\n");
    }

    /// Read back with the library: types, missing values, and provenance.
    #[test]
    fn parquet_comes_back_as_it_was() {
        let provenance = Provenance { seed: 7, ..Provenance::default() };
        let bytes = parquet(&rows(), &provenance).unwrap();
        assert_eq!(bytes, parquet(&rows(), &provenance).unwrap());
        let path = std::env::temp_dir().join(format!("nearfar-records-{}.parquet", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        std::fs::remove_file(path).unwrap();
        let metadata = reader.metadata().file_metadata().key_value_metadata().unwrap();
        let made_from = metadata.iter().find(|pair| pair.key == "provenance").unwrap();
        let made_from: Provenance = serde_json::from_str(made_from.value.as_ref().unwrap()).unwrap();
        assert_eq!(made_from, provenance);
        let read: Vec<Vec<Field>> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().get_column_iter().map(|(_, field)| field.clone()).collect())
            .collect();
        let text = |text: &str| Field::Str(text.to_owned());
        let first = [text("a"), text("[1,2]"), text("1"), Field::Double(1.0), Field::Long(1), Field::Null];
        let second =
            [text("b,c"), Field::Null, text("x\"y"), Field::Double(2.5), Field::Long(-3), Field::Bool(true)];
        assert_eq!(read, [first.to_vec(), second.to_vec()]);
    }
}
