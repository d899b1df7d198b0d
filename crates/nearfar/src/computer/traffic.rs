//! Traffic sources and sinks: network testers at the ends of cables.

use engine::{Seed, Simulation};
use hardware::Fabric;
use hardware::endpoint::{EndpointId, EndpointParams};
use machine::{GeneratorSetup, SinkSetup, SourceSetup};
use tester::{
    Ending, Generator, GeneratorHandle, GeneratorParams, Sink, SinkParams, Source, SourceHandle, SourceParams,
};
use units::Time;
use wire::ethernet::MacAddr;
use workloads::{Failure, Report};

/// First Ethernet addresses of sources, sinks and generators; hosts' addresses are lower.
const MACS: u32 = 0xffff_0000;
const SINK_MACS: u32 = 0xffff_8000;
const GENERATOR_MACS: u32 = 0xffff_c000;
/// Ethernet's MTU, as on the kernels' interfaces.
const MTU: u16 = 1500;

/// A connected traffic source.
pub struct TrafficSource {
    /// Its endpoint in the fabric.
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
        // It has no PCIe link.
        let station = fabric.add_spare(EndpointParams::ideal(0), Box::new(source));
        Self { station, handle }
    }

    /// Starts it at `when`.
    pub fn start(&self, simulation: &Simulation<Fabric>, when: Time) {
        simulation.with(|fabric, scheduler| {
            fabric.running(scheduler).with_device(self.station, |_, bus| Source::start(bus, when));
        });
    }

    /// Calls `then` with its report when it has ended.
    pub fn when_ended(
        &self,
        simulation: &Simulation<Fabric>,
        then: impl FnOnce(Result<Report, Failure>) + 'static,
    ) {
        let handle = self.handle.clone();
        simulation.spawn(async move { then(report(handle.ended().await)) });
    }
}

/// Adds the scenario's `n`th sink.
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

/// A connected packet generator.
pub struct PacketGenerator {
    /// Its endpoint in the fabric.
    pub station: EndpointId,
    /// Control and counters.
    pub handle: GeneratorHandle,
    /// Initial load as a share of its port's speed.
    load: f64,
}

impl PacketGenerator {
    /// The scenario's `n`th generator.
    pub fn new(fabric: &mut Fabric, n: u32, setup: &GeneratorSetup) -> Self {
        let (generator, handle) = Generator::new(GeneratorParams {
            mac: MacAddr::local(GENERATOR_MACS + n),
            address: setup.address,
            to: setup.to.iter().map(|&(mac, address)| (MacAddr(mac), address)).collect(),
            frame: setup.frame,
            rate: setup.rate,
        });
        let station = fabric.add_spare(EndpointParams::ideal(0), Box::new(generator));
        Self { station, handle, load: setup.load }
    }

    /// Begins to send, at the load that the scenario gives.
    pub fn start(&self, simulation: &Simulation<Fabric>) {
        self.handle.set_load(self.load);
        simulation.with(|fabric, scheduler| {
            fabric.running(scheduler).with_device(self.station, |_, bus| Generator::start(bus));
        });
    }
}

/// Report in the style of iperf's client.
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
