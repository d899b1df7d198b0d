//! The schemas of files against what reads them: what comes with the program is valid, and what a schema refuses, the reader
//! refuses.

use machine::{ComputerScenario, Doc, FileKind, KINDS, Library};
use serde_json::{Value, json};

/// Whether a value is as a schema has it: as much of JSON Schema as these schemas use.
fn is_valid(value: &Value, schema: &Value) -> bool {
    if let Some(any) = schema["anyOf"].as_array() {
        return any.iter().any(|schema| is_valid(value, schema));
    }
    let of_type = match schema["type"].as_str() {
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        other => panic!("{other:?} in {schema}"),
    };
    if !of_type {
        return false;
    }
    let among = schema["enum"].as_array().is_none_or(|all| all.contains(value));
    let within = match (schema["minimum"].as_i64(), schema["maximum"].as_i64(), value.as_i64()) {
        (Some(least), Some(most), Some(value)) => (least..=most).contains(&value),
        _ => true,
    };
    let items = value.as_array().is_none_or(|items| {
        let enough = items.len() as u64 >= schema["minItems"].as_u64().unwrap_or(0);
        enough && items.iter().all(|item| is_valid(item, &schema["items"]))
    });
    among && within && items && value.as_object().is_none_or(|_| are_keys_valid(value, schema))
}

fn are_keys_valid(value: &Value, schema: &Value) -> bool {
    let Some(fields) = value.as_object() else { return false };
    let needed = |schema: &Value| {
        let all = schema["required"].as_array().into_iter().flatten();
        all.filter_map(Value::as_str).all(|key| fields.contains_key(key))
    };
    // Of a file that extends no other, more is required.
    let otherwise = schema.get("else").is_none_or(|schema| fields.contains_key("extends") || needed(schema));
    let keys = fields.iter().all(|(key, value)| {
        match (schema["properties"].get(key), &schema["additionalProperties"]) {
            (Some(schema), _) => is_valid(value, schema),
            (None, Value::Bool(allowed)) => *allowed,
            (None, Value::Null) => true,
            (None, schema) => is_valid(value, schema),
        }
    });
    needed(schema) && otherwise && keys
}

fn parsed(text: &str) -> Value {
    serde_json::to_value(toml_edit::de::from_str::<Value>(text).unwrap()).unwrap()
}

/// Every path to a value in a file.
fn paths(value: &Value, above: &[String], all: &mut Vec<Vec<String>>) {
    let mut below = |key: String, value: &Value| {
        let path = [above, &[key]].concat();
        paths(value, &path, all);
        all.push(path);
    };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| below(key.clone(), value)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, value)| below(n.to_string(), value));
        }
        _ => {}
    }
}

fn at<'a>(value: &'a mut Value, path: &[String]) -> &'a mut Value {
    path.iter().fold(value, |value, key| match value {
        Value::Array(items) => &mut items[key.parse::<usize>().unwrap()],
        fields => &mut fields[key.as_str()],
    })
}

/// Holds a file and all that is got from it by one change against the schema; gives how many changes the schema refused.
fn check(kind: &FileKind, name: &str) -> usize {
    let library = Library::built_in();
    let schema = kind.schema();
    let text = kind.open(&library, name, None).unwrap().text().to_owned();
    let whole = parsed(&text);
    assert!(is_valid(&whole, &schema), "{} {name} is not as its schema has it", kind.word);
    let mut all = Vec::new();
    paths(&whole, &[], &mut all);
    let mut refused = 0;
    // What a table says of its sources is read where a figure needs it.
    for path in all.iter().filter(|path| path.last().is_none_or(|key| key != "source")) {
        for change in
            [json!({"no": {"such": 1}}), json!(true), json!("no such thing"), json!(-1), Value::Null]
        {
            let mut changed = whole.clone();
            let (last, above) = path.split_last().unwrap();
            match (at(&mut changed, above), change.is_null()) {
                (Value::Object(fields), true) => drop(fields.remove(last)),
                (Value::Object(fields), false) => drop(fields.insert(last.clone(), change.clone())),
                _ => continue,
            }
            if is_valid(&changed, &schema) {
                continue;
            }
            refused += 1;
            let text = toml_edit::ser::to_string(&changed).unwrap();
            let read = kind.open(&library, "changed.toml", Some(&text)).unwrap().summary();
            assert!(
                read.is_err(),
                "{name}: the schema refuses {} = {change}, the reader does not",
                path.join(".")
            );
        }
    }
    refused
}

#[test]
fn what_comes_with_the_program_is_valid_and_what_a_schema_refuses_the_reader_refuses() {
    let library = Library::built_in();
    for kind in KINDS.iter() {
        let folder = kind.folder;
        let is_computers =
            |name: &str| Doc::<ComputerScenario>::load(&library, name).unwrap().has("host").unwrap();
        let of_kind =
            |name: &String| folder != "scenarios" || is_computers(name) == (kind.word == "scenario");
        let names: Vec<String> = library.names(folder).into_iter().filter(of_kind).collect();
        // All are valid; the changes of one are enough.
        let schema = kind.schema();
        for name in &names {
            let doc = kind.open(&library, name, None).unwrap();
            assert!(is_valid(&parsed(doc.text()), &schema), "{folder}/{name} is not as its schema has it");
        }
        let refused: usize = names.iter().take(1).map(|name| check(kind, name)).sum();
        assert!(refused > 20, "{}: {refused}", kind.word);
    }
}

/// The pages in docs/reference are generated from the types that read files. After a change of keys:
/// `UPDATE_EXPECT=1 cargo test -p nearfar-machine --test all shapes`.
#[test]
fn reference_pages_are_those_of_the_reader() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let mut index = String::from(
        "# Keys of files\n\nAll keys of files, as the program reads them. `nearfar reference KIND` prints the same, and `--schema FILE`\n\
         writes a JSON Schema for editors. Values include their units; the meaning of a key includes its default.\n\n\
         | Kind | What it is |\n|---|---|\n",
    );
    for kind in KINDS.iter() {
        expect_test::expect_file![folder.join(format!("{}.md", kind.word))].assert_eq(&kind.markdown());
        index += &format!("| [{0}]({0}.md) | {1} |\n", kind.word, kind.about);
    }
    expect_test::expect_file![folder.join("README.md")].assert_eq(&index);
}

/// Every key says what it means.
#[test]
fn every_key_is_explained() {
    fn walk(path: &str, shape: &machine::Shape, silent: &mut Vec<String>) {
        match shape {
            machine::Shape::Table(keys) => {
                for key in keys {
                    let path = format!("{path}.{}", key.name);
                    if key.about.len() < 5 {
                        silent.push(path.clone());
                    }
                    walk(&path, &key.shape, silent);
                }
            }
            machine::Shape::List(inner)
            | machine::Shape::Named(inner)
            | machine::Shape::Several(inner)
            | machine::Shape::Figure(inner) => walk(path, inner, silent),
            _ => {}
        }
    }
    let mut silent = Vec::new();
    for kind in KINDS.iter() {
        walk(kind.word, &(kind.shape)(), &mut silent);
        let page = kind.markdown();
        assert!(page.contains("| Key | Meaning | Value |") && page.lines().count() > 8, "{page}");
    }
    assert!(silent.is_empty(), "{silent:?}");
}
