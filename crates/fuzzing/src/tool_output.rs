//! Any bytes as a tool's output: tests with finite values and command lines that the simulated programs take, or an error.

use results::tools::{ToolTask, read};

/// Reads the bytes.
///
/// # Panics
/// If a value is not finite, or a command line is refused for its syntax.
pub fn run(bytes: &[u8]) {
    let Ok(report) = read(bytes) else { return };
    assert!(!report.tests.is_empty());
    for test in report.tests {
        assert!(test.values.iter().all(|value| value.value.is_finite() && !value.quantity.is_empty()));
        let lines = match test.task {
            ToolTask::Drive { run, .. } | ToolTask::Gpus { run, .. } | ToolTask::AllCores { run } => {
                vec![run]
            }
            ToolTask::Network { server, client } => vec![server, client],
            ToolTask::Cores { run, .. } => vec![run.replace("{elements}", "9")],
            ToolTask::Forwarding { options, .. } => vec![format!("dpdk-testpmd -l 0-64 -n 4 -- {options}")],
            ToolTask::Nothing(why) => {
                assert!(!why.is_empty());
                Vec::new()
            }
        };
        for line in lines {
            // Quotes and line ends would leave a scenario's text.
            assert!(!line.contains(['"', '\\', '\n']), "{line}");
            // A value that fio takes and the simulated one does not is told; it does not break off.
            drop(workloads::parse(&line));
        }
    }
}
