#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::tcp_input::run(bytes));
