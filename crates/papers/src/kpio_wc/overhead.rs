//! Overhead of descriptors and doorbells on link and CPU: iperf over TCP between two of the paper's hosts, with an
//! analyser on the sender's NIC.
//!
//! The analyser classifies TLPs by address: during boot it sees the driver tell the NIC the addresses of its rings.
//! After the stream's start, it measures phase after phase until both shares are steady. Receive traffic, such as
//! incoming acknowledgements, is not counted, as in the paper.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use machine::HostSetup;
use nearfar::computer::{Computer, nic_driver, nic_driver_params};
use nearfar::drivers::nic::NicDriver;
use nearfar::hardware::link::Side;
use nearfar::trace::{Capture, Decoded, Recorder, Row, Span};
use platform::cpu::CpuId;
use platform::pci::PciDriver;
use results::report::{DataTable, Section};
use units::{Duration, Time};
use wire::nic::registers::{BAR_BYTES, QUEUE_STRIDE, RX_QUEUES, TX_QUEUES, VECTORS, queue};
use wire::pcie::TlpKind;

use super::Values;
use crate::Options;
use crate::rig::Rig;
use crate::runs::Mean;

/// Two of the paper's hosts with a cable between their NICs. Their kernels predate 3.14, since which TCP delays small
/// segments while others are in flight.
const HOSTS: &str = r#"
    [[host]]
    name = "a"
    machine = "i5-2400s"
    change_kernel.inet.autocorking = { value = false, source = "datasheet: Linux before 3.14" }
    [[host.device]]
    nic = "82599"
    [[host]]
    name = "b"
    machine = "i5-2400s"
    change_kernel.inet.autocorking = { value = false, source = "datasheet: Linux before 3.14" }
    [[host.device]]
    nic = "82599"
    [[cable]]
    ends = ["a", "b"]
"#;
/// The streams, with the length of a phase: one packet per message; messages coalesced by TCP; large messages.
const STREAMS: [(&str, &str, Duration); 3] = [
    ("iperf-64", "iperf -c 10.0.0.2 -l 64 -N -t 1", Duration::from_us(200)),
    ("iperf-64-joined", "iperf -c 10.0.0.2 -l 64 -t 1", Duration::from_us(200)),
    ("iperf-64K", "iperf -c 10.0.0.2 -l 65536 -t 1", Duration::from_us(500)),
];
/// Size of a descriptor and of a completion.
const ENTRY: u64 = 16;

fn busy(host: &Computer) -> Duration {
    let face = host.kernel.face();
    (0..face.cpus()).flat_map(|cpu| face.busy(CpuId(cpu))).sum()
}

fn in_driver(host: &Computer) -> Duration {
    host.kernel.net().devices().iter().map(|device| device.counters().tx_driver).sum()
}

/// Addresses of a queue's rings.
#[derive(Clone, Copy, Default)]
struct RingAddresses {
    descriptors: u64,
    completions: u64,
    entries: u64,
}

/// Start of a stream, which is not measured: the connection opens and windows grow.
const START: Duration = Duration::from_us(500);
/// Minimum and maximum number of phases.
const PHASES: (usize, usize) = (6, 30);
/// Relative half-width of the 95 % interval below which a mean counts as steady.
const STEADY: f64 = 0.02;

/// Student's t for six or more phases is at most this.
const STUDENT: f64 = 2.57;

fn is_steady(mean: Mean) -> bool {
    mean.half <= STEADY * mean.value.abs()
}

/// The rings of both directions, by register address of their queue. Each function of the card has its own.
#[derive(Default)]
struct Rings {
    places: BTreeMap<u64, RingAddresses>,
    /// Outstanding reads by tag: data (`Some(true)`) or descriptors; `None` for receive.
    reads: BTreeMap<u16, Option<bool>>,
}

impl Rings {
    /// Reads the addresses from the driver's writes during boot.
    fn of(capture: &Capture) -> Self {
        let mut rings = Self::default();
        for (n, passed) in capture.packets.iter().enumerate() {
            let row = Row::of(capture, n + 1, passed, Time::ZERO);
            let Decoded::Tlp { tlp, payload, .. } = &row.decoded else { continue };
            let (TlpKind::MemoryWrite(request), Side::Upstream) = (&tlp.kind, passed.from) else { continue };
            let address = request.byte_range().0;
            let register = address % BAR_BYTES;
            if !(TX_QUEUES..VECTORS).contains(&register) {
                continue;
            }
            let place = rings.places.entry(address - address % QUEUE_STRIDE).or_default();
            let mut value = [0; 8];
            let length = payload.len().min(8);
            value[..length].copy_from_slice(&payload[..length]);
            let value = u64::from_le_bytes(value);
            match register % QUEUE_STRIDE {
                queue::RING => place.descriptors = value,
                queue::COMPLETIONS => place.completions = value,
                queue::SIZE => place.entries = 1 << (value & 31),
                _ => {}
            }
        }
        rings
    }

    /// Whether an address is in a ring of the queues in a register range.
    fn hold(&self, queues: Range<u64>, address: u64) -> bool {
        let of_direction = self.places.iter().filter(|(queue, _)| queues.contains(&(*queue % BAR_BYTES)));
        of_direction.map(|(_, place)| place).any(|place| {
            let within = |ring: u64| (ring..ring + place.entries * ENTRY).contains(&address);
            within(place.descriptors) || within(place.completions)
        })
    }

    /// Share of non-data in the link traffic of sending, in percent of the bytes of TLPs of both directions.
    fn overhead(&mut self, capture: &Capture) -> f64 {
        let (mut data, mut beside) = (0u64, 0u64);
        for (n, passed) in capture.packets.iter().enumerate() {
            let row = Row::of(capture, n + 1, passed, Time::ZERO);
            let Decoded::Tlp { tlp, .. } = &row.decoded else { continue };
            let is_data = match (&tlp.kind, passed.from) {
                (TlpKind::MemoryRead(request), Side::Downstream) => {
                    let address = request.byte_range().0;
                    let receives = self.hold(RX_QUEUES..VECTORS, address);
                    let is_data = (!receives).then(|| !self.hold(TX_QUEUES..RX_QUEUES, address));
                    self.reads.insert(tlp.tag(), is_data);
                    is_data
                }
                (TlpKind::CompletionData(_), Side::Upstream) => self.reads.get(&tlp.tag()).copied().flatten(),
                (TlpKind::MemoryWrite(request), Side::Downstream) => {
                    self.hold(TX_QUEUES..RX_QUEUES, request.byte_range().0).then_some(false)
                }
                (TlpKind::MemoryWrite(request), Side::Upstream) => {
                    let register = request.byte_range().0 % BAR_BYTES;
                    let is_doorbell =
                        (TX_QUEUES..RX_QUEUES).contains(&register) && register % QUEUE_STRIDE == queue::TAIL;
                    is_doorbell.then_some(false)
                }
                _ => None,
            };
            match is_data {
                Some(true) => data += row.wire_bytes,
                Some(false) => beside += row.wire_bytes,
                None => {}
            }
        }
        100.0 * beside as f64 / (data + beside).max(1) as f64
    }
}

/// Measured overhead of a stream.
struct Shares {
    /// Descriptors and doorbells, in percent of the link traffic of sending.
    link: Mean,
    /// In percent of the sender's busy time: writing descriptors, the whole transmit function, and checking
    /// completions.
    cpu: Mean,
    transmit: f64,
    cleaning: f64,
    phases: usize,
}

/// Runs a stream in phases of length `phase` until its shares are steady.
fn iperf(options: &Options, line: &str, phase: Duration) -> Result<Shares, String> {
    let drivers: RefCell<Vec<Rc<NicDriver>>> = RefCell::default();
    let driver = |host: &HostSetup| -> Vec<Rc<dyn PciDriver>> {
        let driver = nic_driver(host, nic_driver_params(host));
        drivers.borrow_mut().push(Rc::clone(&driver));
        vec![driver]
    };
    let recorder: Rc<RefCell<Recorder>> = Recorder::new(Span::default());
    let rig = Rig::boot_with(options, "kpio-wc", HOSTS, driver, |computers| {
        let nic = computers.hosts()[0].devices[0];
        computers.simulation().with(|fabric, _| {
            let link = fabric.endpoint(nic).links().next();
            link.into_iter().for_each(|link| Recorder::tap(&recorder, fabric, link, "sender"));
        });
        recorder.borrow_mut().start(Time::ZERO);
    })?;
    let mut rings = Rings::of(&recorder.borrow_mut().capture());
    let (sender, simulation) = (rig.host(0), rig.computers.simulation());
    rig.start(1, &[0], "iperf -s")?;
    let running = rig.start(0, &[0], line)?;
    rig.pass(START);
    // Hosts are made in the scenario's order.
    let counters = drivers.borrow()[0].functions().first().map(|(_, counters)| Rc::clone(counters));
    let counters = counters.ok_or("the sender's NIC has no driver")?;
    let spent = || {
        [counters.tx_described.get(), counters.tx_cleaned.get()].map(|ps| Duration::from_ps(ps).as_ns_f64())
    };
    let (mut link, mut cpu, mut others) = (Vec::new(), Vec::new(), [0.0; 3]);
    loop {
        recorder.borrow_mut().start(simulation.now());
        let (busy_before, driver_before, spent_before) = (busy(sender), in_driver(sender), spent());
        rig.pass(phase);
        running.still_runs()?;
        let (busy, driver) = (busy(sender) - busy_before, in_driver(sender) - driver_before);
        link.push(rings.overhead(&recorder.borrow_mut().capture()));
        let [described, cleaned] = spent();
        cpu.push(100.0 * (described - spent_before[0]) / busy.as_ns_f64().max(1.0));
        others[0] += busy.as_ns_f64();
        others[1] += driver.as_ns_f64();
        others[2] += cleaned - spent_before[1];
        let [transmit, cleaning] = [others[1], others[2]].map(|time| 100.0 * time / others[0].max(1.0));
        let shares = Shares {
            link: Mean::of(&link, STUDENT),
            cpu: Mean::of(&cpu, STUDENT),
            transmit,
            cleaning,
            phases: link.len(),
        };
        let is_steady = is_steady(shares.link) && is_steady(shares.cpu);
        if shares.phases >= PHASES.1 || shares.phases >= PHASES.0 && is_steady {
            return Ok(shares);
        }
    }
}

/// Overhead for 64 B messages, sent at once or coalesced by TCP, and for 64 KiB messages.
pub fn descriptors(options: &Options) -> Result<Values, String> {
    let mut values = Values::new();
    for (name, line, phase) in STREAMS {
        let shares = iperf(options, line, phase)?;
        let mut add = |key: &str, value| values.insert(format!("{name}/{key}"), value);
        add("overhead", shares.link.value);
        add("overhead-half", shares.link.half);
        add("descriptor-cpu", shares.cpu.value);
        add("descriptor-cpu-half", shares.cpu.half);
        add("transmit-cpu", shares.transmit);
        add("cleaning-cpu", shares.cleaning);
        add("phases", shares.phases as f64);
    }
    Ok(values)
}

/// Report section: precision of the measured shares.
pub fn section(values: &Values) -> Section {
    let row = |(name, line, phase): &(&str, &str, Duration)| {
        let of = |key: &str| values.get(&format!("{name}/{key}")).copied().unwrap_or(f64::NAN);
        let range = |key: &str| format!("{:.2} ± {:.2}", of(key), of(&format!("{key}-half")));
        let time = format!("{} × {} µs", of("phases"), phase.as_ns_f64() / 1e3);
        let whole = |key: &str| format!("{:.2}", of(key));
        let shares =
            [range("overhead"), range("descriptor-cpu"), whole("transmit-cpu"), whole("cleaning-cpu")];
        [(*line).to_owned(), time].into_iter().chain(shares).collect()
    };
    let header = [
        "stream",
        "simulated",
        "of the link (%): descriptors, doorbells",
        "of the sender's busy time (%): descriptors written",
        "all of the transmit function",
        "completions looked at",
    ];
    Section {
        title: "How steady the streams were".into(),
        prose: vec![
            "The paper looked at iperf for more than 100 ms. Here the first 500 µs of a stream are left out, and it is \
             looked at in phases until the 95 % intervals of the shares of descriptors are within 2 % of them, or for 30 phases."
                .into(),
        ],
        tables: vec![DataTable {
            title: "Shares with their 95 % intervals".into(),
            header: header.map(String::from).to_vec(),
            rows: STREAMS.iter().map(row).collect(),
            numbers_from: 1,
        }],
        ..Section::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_messages_pay_less_for_descriptors() {
        let options = Options::whole(1);
        let values = descriptors(&options).unwrap();
        let (small, large) = (values["iperf-64/overhead"], values["iperf-64K/overhead"]);
        assert!(small > 20.0 && large > 0.1 && large < 5.0, "{small} % and {large} %");
    }
}
