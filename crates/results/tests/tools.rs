//! Outputs of tools, and what is read of each; `UPDATE_EXPECT=1` writes that anew.

use expect_test::expect_file;
use results::tools::read;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzzing/corpus/tool_output");

#[test]
fn every_output_is_told_by_its_content() {
    let mut names: Vec<_> = std::fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert!(names.len() > 15);
    let mut text = String::new();
    for path in &names {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        text += &match read(&std::fs::read(path).unwrap()) {
            Ok(report) => format!("=== {name}: {}\n{:#?}\n", report.tool, report.tests),
            Err(error) => format!("=== {name}: {error}\n"),
        };
    }
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tools.txt")].assert_eq(&text);
}

#[test]
fn what_cannot_be_read_is_told() {
    for (bytes, wanted) in [
        (&b""[..], "format is not known"),
        (b"hello\n", "format is not known"),
        (b"{\"a\": 1}", "format is not known"),
        (b"[{\"kind\": \"reading\", \"provenance\": {}}]", "which `nearfar diff` compares"),
        (b"{ \"fio version\" : \"3\", \"jobs\" : [] }\n{ \"test_info\" : {} }", "give each its file"),
        (b"{ \"fio version\" : \"fio-3.36\", \"jobs\" : [", "damaged or cut off"),
        (b"{ \"fio version\" : \"fio-3.36\", \"jobs\" : [] }", "no test has ended"),
        (b"sockperf: == version #3.10 ==\n", "no test has ended"),
        (b"Intel(R) Memory Latency Checker - v3.11b\n", "no test has ended"),
        (b"######## NIC statistics for port 0 ###\n RX-packets: 12\n", "show port stats"),
    ] {
        let told = read(bytes).unwrap_err().to_string();
        assert!(told.contains(wanted), "{told}");
    }
}
