//! Ethernet between hosts: cables, switches, captures.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::rc::Rc;

use engine::Seed;
use files::{Beside, FileRefused, Folder};
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::ethernet::{CableEnd, CableId, CableParams, Capture, EthernetSwitchParams, FaultParams, Plug};
use machine::{CableEntry, CableSetup, Diagnostics, NetworkSetup, PortSetup, SwitchEntry};
use platform::ethernet::EthernetPort;
use units::Duration;

use super::traffic::{PacketGenerator, TrafficSource};

/// About 4 m of cable at 5 ns per metre (IEEE 802.3 assumes two thirds of the speed of light).
const PROPAGATION: Duration = Duration::from_ns(20);

/// Captures in progress, by file.
pub type Captures = BTreeMap<PathBuf, Recording>;

/// A capture, written to a temporary file that is renamed when complete.
pub struct Recording {
    capture: Rc<RefCell<Capture>>,
    file: RefCell<Option<Beside>>,
}

impl Recording {
    fn begin(folder: &Folder, file: &str, comment: &str) -> Result<Self, FileRefused> {
        let beside = folder.capture(file, wire::pcap::is_own)?;
        let capture = Capture::new(Box::new(BufWriter::new(beside.writer()?)), comment)?;
        Ok(Self { capture: Rc::new(RefCell::new(capture)), file: RefCell::new(Some(beside)) })
    }

    /// Finishes the file. Does nothing when called again.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(&self) -> io::Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        self.capture.borrow_mut().finish()?;
        file.keep()
    }
}

/// Possible ends of cables besides switches.
#[derive(Clone, Copy)]
pub struct Ends<'a> {
    /// Devices of each host.
    pub devices: &'a [Vec<EndpointId>],
    /// Traffic sources, in the scenario's order.
    pub sources: &'a [TrafficSource],
    /// Traffic sinks, in the scenario's order.
    pub sinks: &'a [EndpointId],
    /// Packet generators, in the scenario's order.
    pub generators: &'a [PacketGenerator],
}

/// Connects the hosts' devices, sources and sinks.
///
/// # Errors
/// If a capture's file cannot be written, at the line that names it.
pub fn connect(
    fabric: &mut Fabric,
    (setup, folder): (&NetworkSetup, &Folder),
    Ends { devices, sources, sinks, generators }: Ends<'_>,
    seed: Seed,
) -> Result<(Vec<CableId>, Captures), Diagnostics> {
    let mut switches = Vec::new();
    for (entry, ports) in &setup.switches {
        let generic = EthernetSwitchParams::generic(*ports);
        let params = EthernetSwitchParams {
            latency: entry.latency.unwrap_or(generic.latency),
            queue_bytes: entry.queue.map_or(generic.queue_bytes, |bytes| bytes.get() as u32),
            mark_bytes: entry.mark.map(|bytes| bytes.get() as u32),
            channels: channels(entry),
            ..generic
        };
        switches.push(fabric.wires.ethernet.add_switch(params));
    }
    let plug = |fabric: &Fabric, port: PortSetup| -> Plug {
        match port {
            PortSetup::Host(host, device, port) => {
                fabric.ethernet_port(devices[host][device], EthernetPort(port))
            }
            PortSetup::Switch(switch, port) => fabric.switch_port(switches[switch], port),
            PortSetup::Source(source) => fabric.ethernet_port(sources[source].station, EthernetPort(0)),
            PortSetup::Sink(sink) => fabric.ethernet_port(sinks[sink], EthernetPort(0)),
            PortSetup::Generator(own) => fabric.ethernet_port(generators[own].station, EthernetPort(0)),
        }
    };
    let mut cables = Vec::new();
    for (n, cable) in setup.cables.iter().enumerate() {
        let ends = cable.ends.map(|end| plug(fabric, end));
        cables.push(fabric.connect_ethernet(ends, params(cable, seed.part(&format!("cable{n}")))));
    }
    let mut captures = Captures::new();
    for (port, name, file) in &setup.captures {
        let place = setup.cables.iter().enumerate().find_map(|(n, cable)| {
            let end = cable.ends.iter().position(|end| end == port)?;
            Some(CableEnd { cable: cables[n], end: end as u8 })
        });
        let Some(place) = place else { continue };
        let path = folder.path(&file.value);
        let capture = match captures.get(&path) {
            Some(recording) => Rc::clone(&recording.capture),
            None => {
                let begun = Recording::begin(folder, &file.value, &setup.comment);
                let recording = begun.map_err(|FileRefused { problem, remedy }| {
                    let message = format!("cannot write the capture `{}`: {problem}", file.value);
                    file.complaint(message, Some(remedy))
                })?;
                let capture = Rc::clone(&recording.capture);
                captures.insert(path, recording);
                capture
            }
        };
        fabric.wires.ethernet.capture(place, name, capture);
    }
    Ok((cables, captures))
}

/// The channels (LAGs) of a switch: ports of each.
fn channels(entry: &SwitchEntry) -> Vec<Vec<u8>> {
    let channels = entry.lag.iter().flat_map(|lag| lag.value.iter());
    channels.map(|ports| ports.iter().map(|&port| port as u8).collect()).collect()
}

fn params(cable: &CableSetup, seed: Seed) -> CableParams {
    CableParams {
        rate: cable.rate,
        propagation: cable.entry.propagation.unwrap_or(PROPAGATION),
        faults: faults(&cable.entry, seed),
    }
}

fn faults(entry: &CableEntry, seed: Seed) -> Option<FaultParams> {
    let share = |share: Option<f64>| share.unwrap_or(0.0);
    let shares = [entry.loss, entry.corruption, entry.duplication, entry.reordering].map(share);
    shares.iter().any(|&share| share > 0.0).then(|| FaultParams {
        loss: shares[0],
        corruption: shares[1],
        bit_error_rate: 0.0,
        duplication: shares[2],
        reordering: shares[3],
        longest_delay: entry.longest_delay.unwrap_or(Duration::from_us(100)),
        seed,
    })
}
