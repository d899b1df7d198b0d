#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::config_access::run(bytes));
