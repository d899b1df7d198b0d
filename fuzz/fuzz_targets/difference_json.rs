#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::difference_json::run(bytes));
