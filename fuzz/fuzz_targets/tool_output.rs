#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::tool_output::run(bytes));
