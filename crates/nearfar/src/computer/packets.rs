//! Link bytes per packet sent by a NIC, compared with the analytic model of pcie-bench's section 3.
//!
//! The model counts what must cross the link: descriptors, data, doorbells, write-backs, interrupts. It reserves a
//! share of the link for DLLPs, by the specification's guidance on their frequency; the simulation counts them.
//! Remaining differences exist only in the simulation, and notes explain them.

use analytic::{Generation, Link, Nic, Traffic};
use hardware::link::{DirectionCounters, Side};
use machine::{ComputerSetup, HostSetup, NicDriverEntry, SlotSetup};
use platform::device::FunctionIndex;
use units::{Bytes, Time};
use wire::nic::registers::counter;
use workloads::Report;

use super::budget;
use super::computers::Computers;
use super::finished::FinishedProgram;
use super::host::Computer;
use super::observer::Observer;

/// Bytes of one packet in one direction of a link.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PacketCost {
    /// TLPs, including framing.
    pub tlp_bytes: f64,
    /// Acknowledgements and credits (DLLPs).
    pub dllp_bytes: f64,
    /// Other bytes on the wire: the root port's transmitter sends whole beats, and completions pad their payload.
    pub fill_bytes: f64,
    /// Number of request TLPs.
    pub requests: f64,
    /// Number of completion TLPs.
    pub completions: f64,
}

impl PacketCost {
    fn of(carried: &DirectionTraffic, packets: f64) -> Self {
        Self {
            // Posted and non-posted requests.
            requests: (carried.tlps[0] + carried.tlps[1]) / packets,
            completions: carried.tlps[2] / packets,
            tlp_bytes: carried.bytes.iter().sum::<f64>() / packets,
            dllp_bytes: carried.dllps / packets,
            fill_bytes: carried.fill() / packets,
        }
    }

    /// Sum of all bytes.
    pub fn total(&self) -> f64 {
        self.tlp_bytes + self.dllp_bytes + self.fill_bytes
    }
}

/// Traffic of a NIC's links in one direction: TLPs and their bytes by class (posted, non-posted, completions), and
/// the rest.
#[derive(Clone, Copy, Default)]
pub(super) struct DirectionTraffic {
    pub tlps: [f64; 3],
    pub bytes: [f64; 3],
    /// Bytes of DLLPs.
    pub dllps: f64,
    /// Bytes that fit into the wire's busy time.
    pub busy: f64,
}

impl DirectionTraffic {
    fn add(&mut self, counters: &DirectionCounters, ps_per_byte: f64) {
        for class in 0..3 {
            self.tlps[class] += counters.tlps[class] as f64;
            self.bytes[class] += counters.tlp_bytes[class].get() as f64;
        }
        self.dllps += counters.dllp_bytes.get() as f64;
        self.busy += counters.busy.as_ps() as f64 / ps_per_byte;
    }

    /// Bytes on the wire that are neither TLP nor DLLP.
    pub fn fill(&self) -> f64 {
        (self.busy - self.bytes.iter().sum::<f64>() - self.dllps).max(0.0)
    }

    /// Difference to an earlier reading.
    pub fn since(&self, before: &Self) -> Self {
        let less = |n: usize| (self.tlps[n] - before.tlps[n], self.bytes[n] - before.bytes[n]);
        Self {
            tlps: [0, 1, 2].map(|n| less(n).0),
            bytes: [0, 1, 2].map(|n| less(n).1),
            dllps: self.dllps - before.dllps,
            busy: self.busy - before.busy,
        }
    }
}

/// Counters of the first NIC of a host, over all its links.
#[derive(Clone, Default)]
pub(super) struct NicCounts {
    /// From the NIC and to it.
    pub directions: [DirectionTraffic; 2],
    pub links: usize,
    pub interrupts: u64,
    /// Time per byte of a link.
    pub ps_per_byte: f64,
    /// The NIC's own counters, summed over its functions.
    pub nic: Vec<u64>,
    /// Time of the reading.
    pub at: Time,
}

impl NicCounts {
    /// Difference of each direction to an earlier reading.
    pub fn since(&self, before: &Self) -> [DirectionTraffic; 2] {
        [0, 1].map(|way| self.directions[way].since(&before.directions[way]))
    }
}

/// Counts traffic of NICs' links while programs run.
#[derive(Default)]
pub struct PacketCosts {
    before: Vec<NicCounts>,
    after: Vec<NicCounts>,
}

fn count(computers: &Computers, host: &Computer, nic: Option<usize>) -> NicCounts {
    let Some(&device) = nic.and_then(|nic| host.devices.get(nic)) else { return NicCounts::default() };
    let interrupts = host.kernel.interrupts();
    let interrupts = interrupts.iter().filter(|line| line.1.starts_with("nic-")).map(|line| line.3).sum();
    let nic_counters = host.nics.iter().find(|(endpoint, _)| *endpoint == device).map(|(_, handle)| {
        let functions = || (0..8).map(FunctionIndex);
        (0..counter::COUNT).map(|which| functions().map(|f| handle.counter(f, which)).sum()).collect()
    });
    let nic_counters = nic_counters.unwrap_or_default();
    let mut counted =
        NicCounts { interrupts, nic: nic_counters, at: computers.simulation().now(), ..NicCounts::default() };
    computers.simulation().with(|fabric, _| {
        for link in fabric.endpoint(device).links() {
            let link = fabric.wires.link(link);
            counted.links += 1;
            counted.ps_per_byte = link.wire_time_per_byte_ps();
            for (way, side) in counted.directions.iter_mut().zip([Side::Downstream, Side::Upstream]) {
                way.add(&link.counters_until(side, counted.at), counted.ps_per_byte);
            }
        }
    });
    counted
}

/// The first NIC of a host.
fn nic_of(host: &HostSetup) -> Option<(usize, &machine::Nic)> {
    host.devices.iter().enumerate().find_map(|(n, device)| Some((n, device.kind.nic()?)))
}

/// Value of `option` in a command line.
fn option(run: &str, option: &str) -> Option<u32> {
    let mut words = run.split_whitespace();
    words.find(|word| *word == option)?;
    words.next()?.parse().ok()
}

impl Observer for PacketCosts {
    fn booted(&mut self, computers: &Computers) {
        self.before = Self::count_all(computers);
    }

    fn has_enough(&self) -> bool {
        false
    }

    fn ended(&mut self, computers: &Computers) {
        self.after = Self::count_all(computers);
    }
}

impl PacketCosts {
    fn count_all(computers: &Computers) -> Vec<NicCounts> {
        let nic = |host: &Computer| {
            host.devices.iter().position(|&device| {
                computers
                    .simulation()
                    .with(|fabric, _| !fabric.endpoint(device).device().ethernet_ports().is_empty())
            })
        };
        computers.hosts().iter().map(|host| count(computers, host, nic(host))).collect()
    }

    /// Bytes per packet from a host's NIC and to it, for `packets` sent.
    pub fn of(&self, host: usize, packets: f64) -> Option<[PacketCost; 2]> {
        let (before, after) = (self.before.get(host)?, self.after.get(host)?);
        (packets > 0.0).then(|| after.since(before).map(|way| PacketCost::of(&way, packets)))
    }

    /// Adds a link note to each pktgen that ran alone on its host, and a report for each link that carried traffic of
    /// network programs.
    pub fn explain(&self, setup: &ComputerSetup, done: &mut Vec<FinishedProgram>) {
        for (host, described) in setup.hosts.iter().enumerate() {
            let (Some(before), Some(after)) = (self.before.get(host), self.after.get(host)) else { continue };
            let sockets = |run: &str| {
                ["netperf", "iperf", "ping"].contains(&run.split_whitespace().next().unwrap_or(""))
            };
            if let (Some((_, nic)), true) = (nic_of(described), done.iter().any(|done| sockets(&done.run)))
                && let Some(link) = link_of(described, nic)
            {
                done.extend(budget::report(described, nic, &link, before, after));
            }
        }

        for (host, described) in setup.hosts.iter().enumerate() {
            let mut programs = done.iter_mut().filter(|done| done.host == described.name);
            let (Some(only), None) = (programs.next(), programs.next()) else { continue };
            if only.run.split_whitespace().next() != Some("pktgen") {
                continue;
            }
            let run = only.run.clone();
            if let (Ok(report), Some((_, nic))) = (&mut only.outcome, nic_of(described)) {
                self.note(host, described, nic, &run, report);
            }
        }
    }

    fn note(&self, host: usize, described: &HostSetup, nic: &machine::Nic, run: &str, report: &mut Report) {
        let sent = report.get("sent").unwrap_or_default();
        let (Some([up, down]), Some(link)) = (self.of(host, sent), link_of(described, nic)) else { return };
        let size = option(run, "-s").unwrap_or(60);
        let raw = link.raw_rate().as_gbit_per_s_f64();
        let fuller = if up.total() > down.total() { up } else { down };
        let carried = raw * f64::from(size) / fuller.total();
        if carried > raw {
            // Less than the frames' bytes crossed the link, so a figure per packet is meaningless.
            report.notes.push(format!(
                "{:.1} B crossed the link for each packet of {size} B: what was sent does not come from this link alone",
                fuller.total()
            ));
            return;
        }
        match described.nic_driver.as_ref().and_then(NicDriverEntry::other_path) {
            Some(path) => report.notes.push(format!(
                "on the PCIe link each packet takes {:.1} B of TLPs to the NIC and {:.1} B from it, and {:.1} and {:.1} B of DLLPs; \
                 {path}, for which there is no closed form; a full link would carry {carried:.1} Gbit/s of such packets",
                down.tlp_bytes, up.tlp_bytes, down.dllp_bytes, up.dllp_bytes
            )),
            None => self.compare(host, nic, run, &link, [up, down], report),
        }
    }

    /// Compares bytes per packet with the model of descriptor rings.
    fn compare(
        &self,
        host: usize,
        nic: &machine::Nic,
        run: &str,
        link: &Link,
        [up, down]: [PacketCost; 2],
        report: &mut Report,
    ) {
        let size = option(run, "-s").unwrap_or(60);
        let sent = report.get("sent").unwrap_or_default();
        let interrupts = self.after[host].interrupts - self.before[host].interrupts;
        let figure = |figure: &machine::Figure<machine::Count>| figure.value.get();
        let model = Nic {
            tx_fetch: figure(&nic.tx.fetch),
            tx_write_back: figure(&nic.tx.write_back),
            tx_doorbell: option(run, "-b").unwrap_or(1),
            free_list: 1,
            rx_pointer: 1,
            interrupt: (sent as u64).checked_div(interrupts).unwrap_or(0) as u32,
            reads_pointers: false,
        };
        let packet = Bytes::new(size.into());
        let (model_up, model_down) = model.wire_bytes(link, Traffic::Transmit, packet);
        let own =
            model.goodput(link, Traffic::Transmit, packet, analytic::Omission::None).as_gbit_per_s_f64();
        let raw = link.raw_rate().as_gbit_per_s_f64();
        let bits = |bytes: f64| raw * f64::from(size) / bytes;
        let fuller = if up.total() > down.total() { up } else { down };
        let allowance = 100.0 * (1.0 - link.tlp_rate().as_gbit_per_s_f64() / raw);
        let share = 100.0 * fuller.dllp_bytes / fuller.total();
        let carried = bits(fuller.total());
        let counted = bits(model_up.max(model_down) / (1.0 - share / 100.0));
        report.notes.push(format!(
            "on the PCIe link each packet takes {:.1} B of TLPs from the NIC and {:.1} B to it; the closed form (`nearfar model`) \
             says {model_up:.1} and {model_down:.1} B",
            up.tlp_bytes, down.tlp_bytes
        ));
        report.notes.push(format!(
            "added to that are {:.1} and {:.1} B of DLLPs, and {:.1} B to the NIC that carry nothing: the root port fills its \
             beats and pads its completions, which the closed form leaves out",
            up.dllp_bytes, down.dllp_bytes, down.fill_bytes
        ));
        report.notes.push(format!(
            "a full link would carry {carried:.1} Gbit/s of such packets; the closed form says {own:.1}. It keeps {allowance:.1} % of \
             the link for DLLPs and skips, where these took {share:.1} %: with that share it says {counted:.1}. What is still \
             different comes from {:.2} completions for each packet (the host decides how many), from writes that arm interrupts, \
             from the ends of rings, and from headers that are 4 B shorter for addresses below 4 GiB",
            down.completions
        ));
    }
}

/// Parameters of the NIC's link for the analytic model.
fn link_of(described: &HostSetup, nic: &machine::Nic) -> Option<Link> {
    let device = described.devices.iter().find(|device| device.kind.nic().is_some())?;
    let link = device.links.first()?;
    // The model has a single link without a switch.
    let SlotSetup::Root(slot) = &link.slot else { return None };
    let port = described.machine.host.port.get(slot)?;
    let (generation, width) = crate::topology::negotiate(&nic.link, port, link.lanes);
    let generation = Generation::ALL.into_iter().nth(usize::from(generation as u8).saturating_sub(1))?;
    let payload = port.mps_bytes.value.get().min(nic.link.mps_bytes.value.get());
    let request = described.kernel.max_read_request.value.get();
    Link::new(generation, width.lanes().into(), Bytes::new(payload.into()), Bytes::new(request.into())).ok()
}
