//! Fuzz targets: one function per kind of external input, which panics on a violation.
//!
//! Every parser of external data has one. `tests/` runs each briefly, on inputs of its corpus and mutations of them, or for
//! `NEARFAR_FUZZ_SECONDS=10`. `fuzz/` runs them with libFuzzer, which searches for new paths; a stable compiler suffices,
//! and cargo-fuzz is not needed (`fuzz/.cargo/config.toml` enables coverage):
//!
//! ```text
//! cd fuzz && mkdir -p /tmp/found
//! cargo run --release --bin scenario_toml -- /tmp/found ../scenarios -max_total_time=300 -artifact_prefix=/tmp/
//! ```
//!
//! New inputs are written to the first folder; further ones (`../crates/fuzzing/corpus/TARGET`) are only read. An input
//! that fails becomes a test next to the failing code. A corpus stays small: a few of the smallest inputs selected by
//! `-merge=1 ../crates/fuzzing/corpus/TARGET /tmp/found`.

pub mod cache_entry;
pub mod change_text;
pub mod claims_toml;
pub mod command_line;
pub mod config_access;
pub mod difference_json;
pub mod dllp_parse;
pub mod ethernet_frame;
pub mod event_schedule;
pub mod host_view;
pub mod ip_fragments;
pub mod kpio_lines;
pub mod live_server;
pub mod machine_toml;
mod pieces;
pub mod recording;
pub mod results_csv;
pub mod scenario_toml;
pub mod survey_source;
pub mod tcp_input;
pub mod tlp_parse;
pub mod tool_output;
pub mod undo_record;
pub mod vfio_message;

/// Function that tests an input.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 23] = [
    ("cache_entry", cache_entry::run),
    ("change_text", change_text::run),
    ("claims_toml", claims_toml::run),
    ("command_line", command_line::run),
    ("config_access", config_access::run),
    ("difference_json", difference_json::run),
    ("dllp_parse", dllp_parse::run),
    ("ethernet_frame", ethernet_frame::run),
    ("event_schedule", event_schedule::run),
    ("host_view", host_view::run),
    ("ip_fragments", ip_fragments::run),
    ("kpio_lines", kpio_lines::run),
    ("live_server", live_server::run),
    ("machine_toml", machine_toml::run),
    ("recording", recording::run),
    ("results_csv", results_csv::run),
    ("scenario_toml", scenario_toml::run),
    ("survey_source", survey_source::run),
    ("tcp_input", tcp_input::run),
    ("tlp_parse", tlp_parse::run),
    ("tool_output", tool_output::run),
    ("undo_record", undo_record::run),
    ("vfio_message", vfio_message::run),
];
