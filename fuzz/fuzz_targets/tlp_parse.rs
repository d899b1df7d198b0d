#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::tlp_parse::run(bytes));
