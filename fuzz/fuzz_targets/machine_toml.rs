#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::machine_toml::run(bytes));
