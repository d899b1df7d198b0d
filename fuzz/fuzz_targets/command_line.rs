#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::command_line::run(bytes));
