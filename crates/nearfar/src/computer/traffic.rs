//! Traffic sources and sinks: network testers at the ends of cables.

use engine::{Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use machine::{SinkSetup, SourceSetup};
use tester::{Ending, Sink, SinkParams, Source, SourceHandle, SourceParams};
use units::Time;
use wire::ethernet::MacAddr;
use workloads::{Failure, Report};

/// Where the Ethernet addresses of sources and sinks begin, which the hosts' do not reach.
const MACS: u32 = 0xffff_0000;
const SINK_MACS: u32 = 0xffff_8000;
/// Ethernet's, as the kernels' interfaces have it.
const MTU: u16 = 1500;

/// A source that is plugged in.
pub struct TrafficSource {
    /// What it is to the fabric.
    pub station: EndpointId,
    handle: SourceHandle,
}

impl TrafficSource {
    /// The scenario's `n`th source.
    pub fn new(fabric: &mut Fabric, n: u32, setup: &SourceSetup, seed: Seed) -> Self {
        let (source, handle) = Source::new(SourceParams {
            mac: MacAddr::local(MACS + n),
            address: setup.address,
            to: setup.to,
            time: setup.time,
            rate: setup.rate,
            mtu: MTU,
            seed: seed.part(&setup.name),
        });
        // It has no link on which its PCIe core could do anything.
        let station = fabric.add_spare(EndpointParams::ideal(0), Box::new(source));
        Self { station, handle }
    }

    /// Lets it begin at `when`.
    pub fn start(&self, simulation: &Simulation<Fabric>, when: Time) {
        simulation.with(|fabric, scheduler| {
            fabric.with_device(scheduler, self.station, |_, bus| Source::start(bus, when));
        });
    }

    /// Calls `then` with what it reports, once it has ended.
    pub fn when_ended(
        &self,
        simulation: &Simulation<Fabric>,
        then: impl FnOnce(Result<Report, Failure>) + 'static,
    ) {
        let handle = self.handle.clone();
        simulation.spawn(async move { then(report(handle.ended().await)) });
    }
}

/// Plugs in the scenario's `n`th sink.
pub fn sink(fabric: &mut Fabric, n: u32, setup: &SinkSetup, seed: Seed) -> EndpointId {
    let sink = Sink::new(SinkParams {
        mac: MacAddr::local(SINK_MACS + n),
        address: setup.address,
        rate: setup.rate,
        mtu: MTU,
        seed: seed.part(&setup.name),
    });
    fabric.add_spare(EndpointParams::ideal(0), Box::new(sink))
}

/// As iperf's client reports.
fn report(ending: Ending) -> Result<Report, Failure> {
    let sent = ending.map_err(|why| Failure(why.to_owned()))?;
    let mut report = Report::default();
    let took = sent.took.as_ns_f64();
    report.add("time", "µs", took / 1e3);
    report.add("transfer", "bytes", sent.bytes as f64);
    report.add("bandwidth", "Mbit/s", sent.bytes as f64 * 8.0 / took * 1e3);
    report.add("sent again", "segments", sent.again as f64);
    Ok(report)
}
