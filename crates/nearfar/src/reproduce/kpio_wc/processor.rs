//! What descriptors cost the processor: iperf over TCP through a 10 Gbit/s NIC, and its driver's transmit function.

use std::rc::Rc;

use machine::{ComputerScenario, ComputerSetup, Doc};
use platform::cpu::CpuId;
use platform::kernel::TaskParams;
use platform::sync::Completion;
use units::Duration;
use workloads::{Environment, Failure, Report};

use super::Values;
use crate::computer::{Computer, Computers};
use crate::reproduce::Options;

/// The paper's host twice, a cable between their NICs.
const HOSTS: &str = r#"
    name = "iperf-64"
    summary = "iperf with messages of 64 B through an 82599"
    [[host]]
    name = "a"
    machine = "i5-2400s"
    [[host.device]]
    nic = "82599"
    [[host]]
    name = "b"
    machine = "i5-2400s"
    [[host.device]]
    nic = "82599"
    [[cable]]
    ends = ["a", "b"]
"#;

/// Starts a program on a host's first core.
fn start(host: &Computer, line: &str) -> Result<Completion<Result<Report, Failure>>, String> {
    let program = workloads::parse(line).map_err(|refused| refused.message)?;
    let environment = Environment { kernel: host.kernel.face(), cpus: vec![CpuId(0)], seed: 1 };
    let done = Completion::new();
    let told = done.clone();
    host.kernel.spawn(TaskParams::named(line).on(CpuId(0)), move |cpu| {
        Box::pin(async move { told.complete(Rc::clone(&program).run(cpu, environment).await) })
    });
    Ok(done)
}

fn busy(host: &Computer) -> Duration {
    let face = host.kernel.face();
    (0..face.cpus()).flat_map(|cpu| face.busy(CpuId(cpu))).sum()
}

fn in_driver(host: &Computer) -> Duration {
    host.kernel.net().devices().iter().map(|device| device.counters().tx_driver).sum()
}

/// The sender's share of busy time that the driver's transmit function takes.
pub fn descriptors(options: &Options) -> Result<Values, String> {
    let doc = Doc::<ComputerScenario>::from_text(&options.library, "iperf-64", HOSTS);
    let setup = ComputerSetup::load(&options.library, &doc).map_err(|error| error.to_string())?;
    let computers = Computers::new(&setup).map_err(|error| error.to_string())?;
    computers.boot().map_err(|error| error.to_string())?;
    let [sender, receiver] = computers.hosts() else { return Err("there are two hosts".to_owned()) };
    start(receiver, "iperf -s")?;
    let (busy_before, driver_before) = (busy(sender), in_driver(sender));
    let done = start(sender, "iperf -c 10.0.0.2 -l 64 -t 0.002")?;
    let outcome = computers.simulation().block_on(async move { done.wait().await });
    outcome.map_err(|error| error.to_string())?.map_err(|failure| failure.to_string())?;
    let share = |part: Duration, whole: Duration| 100.0 * part.as_ns_f64() / whole.as_ns_f64().max(1.0);
    let driver = in_driver(sender) - driver_before;
    Ok(Values::from([("iperf-64/descriptor-cpu".to_owned(), share(driver, busy(sender) - busy_before))]))
}
