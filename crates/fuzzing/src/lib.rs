//! What comes from outside, as any bytes: a function for each kind, which panics where something is wrong.
//!
//! `fuzz/` hands them to libFuzzer, which looks for new ways through the code; `tests/` tries each for a moment, on inputs of its
//! corpus and on changed ones.

pub mod config_access;
pub mod dllp_parse;
pub mod ethernet_frame;
pub mod ip_fragments;
pub mod kpio_lines;
pub mod machine_toml;
mod pieces;
pub mod results_csv;
pub mod scenario_toml;
pub mod tcp_input;
pub mod tlp_parse;

/// What tries an input.
pub type Target = fn(&[u8]);

/// All of them, by name.
pub const TARGETS: [(&str, Target); 10] = [
    ("config_access", config_access::run),
    ("dllp_parse", dllp_parse::run),
    ("ethernet_frame", ethernet_frame::run),
    ("ip_fragments", ip_fragments::run),
    ("kpio_lines", kpio_lines::run),
    ("machine_toml", machine_toml::run),
    ("results_csv", results_csv::run),
    ("scenario_toml", scenario_toml::run),
    ("tcp_input", tcp_input::run),
    ("tlp_parse", tlp_parse::run),
];
