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

/// Where the Ethernet addresses of sources and sinks begin, which the hosts' do not reach.
const MACS: u32 = 0xffff_0000;
const SINK_MACS: u32 = 0xffff_8000;
const GENERATOR_MACS: u32 = 0xffff_c000;
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

/// A generator that is plugged in.
pub struct PacketGenerator {
    /// What it is to the fabric.
    pub station: EndpointId,
    /// What it is told, and what has passed it.
    pub handle: GeneratorHandle,
    /// Share of its port's speed from the start on.
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

    /// Lets it begin.
    pub fn start(&self, simulation: &Simulation<Fabric>) {
        self.handle.set_load(self.load);
        simulation.with(|fabric, scheduler| {
            fabric.with_device(scheduler, self.station, |_, bus| Generator::start(bus));
        });
    }
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
