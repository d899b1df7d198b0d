//! What a sent packet takes of the link to its NIC, held against the analytic model of pcie-bench's section 3.
//!
//! The model knows what must cross the link: descriptors, data, doorbells, write-backs, interrupts. It sets a share of the
//! link aside for DLLPs by the specification's guidance on how often they may be sent; here they are counted. What is
//! left between the two is what only the simulation has, and the notes say so.

use analytic::{Generation, Link, Nic, Traffic};
use hardware::link::{DirectionCounters, Side};
use machine::{ComputerSetup, DeviceFile, HostSetup, SlotSetup};
use platform::device::FunctionIndex;
use units::{Bytes, Time};
use wire::nic::registers::counter;
use workloads::Report;

use super::budget;
use super::run::{Done, Observer};
use super::{Computer, Computers};

/// What one packet takes of one direction of a link, in bytes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PacketCost {
    /// TLPs, framing included.
    pub tlp_bytes: f64,
    /// Acknowledgements and credits (DLLPs).
    pub dllp_bytes: f64,
    /// What the wire carried beside them: the root port's transmitter sends whole beats, and completions pad their payload.
    pub fill_bytes: f64,
    /// Requests among the TLPs, a number.
    pub requests: f64,
    /// Completions among them, a number.
    pub completions: f64,
}

impl PacketCost {
    fn of(before: &DirectionCounters, after: &DirectionCounters, packets: f64, ps_per_byte: f64) -> Self {
        let bytes = |counters: &DirectionCounters| counters.tlp_bytes.iter().map(|b| b.get()).sum::<u64>();
        // Posted and non-posted ones.
        let requests = |counters: &DirectionCounters| counters.tlps[0] + counters.tlps[1];
        Self {
            requests: (requests(after) - requests(before)) as f64 / packets,
            completions: (after.tlps[2] - before.tlps[2]) as f64 / packets,
            tlp_bytes: (bytes(after) - bytes(before)) as f64 / packets,
            dllp_bytes: (after.dllp_bytes.get() - before.dllp_bytes.get()) as f64 / packets,
            fill_bytes: 0.0,
        }
        .filled((after.busy - before.busy).as_ps() as f64 / ps_per_byte / packets)
    }

    fn filled(self, busy: f64) -> Self {
        Self { fill_bytes: (busy - self.tlp_bytes - self.dllp_bytes).max(0.0), ..self }
    }

    /// All together.
    pub fn total(&self) -> f64 {
        self.tlp_bytes + self.dllp_bytes + self.fill_bytes
    }
}

/// What has passed the first NIC of a host.
#[derive(Clone, Default)]
pub(super) struct Counted {
    pub up: DirectionCounters,
    pub down: DirectionCounters,
    pub interrupts: u64,
    /// Time of a byte on the link.
    pub ps_per_byte: f64,
    /// The NIC's own counters, of all its functions.
    pub nic: Vec<u64>,
    /// When this was.
    pub at: Time,
}

/// Counts what passes NICs' links while programs run.
#[derive(Default)]
pub struct PacketCosts {
    before: Vec<Counted>,
    after: Vec<Counted>,
}

fn count(computers: &Computers, host: &Computer, nic: Option<usize>) -> Counted {
    let Some(&device) = nic.and_then(|nic| host.devices.get(nic)) else { return Counted::default() };
    let interrupts = host.kernel.interrupts();
    let interrupts = interrupts.iter().filter(|line| line.1.starts_with("nic-")).map(|line| line.3).sum();
    let nic_counters = host.nics.iter().find(|(endpoint, _)| *endpoint == device).map(|(_, handle)| {
        let functions = || (0..8).map(FunctionIndex);
        (0..counter::COUNT).map(|which| functions().map(|f| handle.counter(f, which)).sum()).collect()
    });
    let nic_counters = nic_counters.unwrap_or_default();
    let at = computers.simulation().now();
    computers.simulation().with(|fabric, _| {
        let Some(link) = fabric.endpoint(device).links().next() else { return Counted::default() };
        let link = fabric.wires.link(link);
        let counters = |side| link.counters(side).clone();
        let ps_per_byte = link.wire_time_per_byte_ps();
        let (up, down) = (counters(Side::Downstream), counters(Side::Upstream));
        Counted { up, down, interrupts, ps_per_byte, nic: nic_counters, at }
    })
}

/// The first NIC of a host.
fn nic_of(host: &HostSetup) -> Option<(usize, &machine::Nic)> {
    host.devices.iter().enumerate().find_map(|(n, device)| match &device.kind {
        DeviceFile::Nic(nic) => Some((n, &**nic)),
        _ => None,
    })
}

/// What follows `option` on a command line.
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
    fn count_all(computers: &Computers) -> Vec<Counted> {
        let nic = |host: &Computer| {
            host.devices.iter().position(|&device| {
                computers
                    .simulation()
                    .with(|fabric, _| !fabric.endpoint(device).device().ethernet_ports().is_empty())
            })
        };
        computers.hosts().iter().map(|host| count(computers, host, nic(host))).collect()
    }

    /// What a packet took from the NIC of a host and to it, if so many were sent.
    pub fn of(&self, host: usize, packets: f64) -> Option<[PacketCost; 2]> {
        let (before, after) = (self.before.get(host)?, self.after.get(host)?);
        (packets > 0.0).then(|| {
            [
                PacketCost::of(&before.up, &after.up, packets, after.ps_per_byte),
                PacketCost::of(&before.down, &after.down, packets, after.ps_per_byte),
            ]
        })
    }

    /// Adds a note on the link to each pktgen that was alone on its host, and a report on each link that carried what
    /// programs of the network sent each other.
    pub fn explain(&self, setup: &ComputerSetup, done: &mut Vec<Done>) {
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
            // Not even the frames' bytes have crossed the link once each: nothing can be said of a packet.
            report.notes.push(format!(
                "{:.1} B crossed the link for each packet of {size} B: what was sent does not come from this link alone",
                fuller.total()
            ));
            return;
        }
        match other_path(described) {
            Some(path) => report.notes.push(format!(
                "on the PCIe link each packet takes {:.1} B of TLPs to the NIC and {:.1} B from it, and {:.1} and {:.1} B of DLLPs; \
                 {path}, for which there is no closed form; a full link would carry {carried:.1} Gbit/s of such packets",
                down.tlp_bytes, up.tlp_bytes, down.dllp_bytes, up.dllp_bytes
            )),
            None => self.compare(host, nic, run, &link, [up, down], report),
        }
    }

    /// Holds a packet's bytes against the model of descriptor rings.
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

/// By which way packets reach the NIC, if not by descriptors in rings.
pub(super) fn other_path(described: &HostSetup) -> Option<&'static str> {
    let driver = described.nic_driver.as_ref()?;
    match (driver.kpio.as_ref().map(|kpio| kpio.value), driver.inline_up_to.as_ref().map(|size| size.value)) {
        (Some(select), _) if select != machine::KpioSelect::Off => Some("packets go by programmed I/O"),
        (_, Some(_)) => Some("short packets go inline"),
        _ => None,
    }
}

/// The link to a NIC as the analytic model has it.
fn link_of(described: &HostSetup, nic: &machine::Nic) -> Option<Link> {
    let device = described.devices.iter().find(|d| matches!(d.kind, DeviceFile::Nic(_)))?;
    let link = device.links.first()?;
    // The model has one link, and no switch.
    let SlotSetup::Root(slot) = &link.slot else { return None };
    let port = described.machine.host.port.get(slot)?;
    let (generation, width) = crate::topology::negotiate(&nic.link, port, link.lanes);
    let generation = Generation::ALL.into_iter().nth(usize::from(generation as u8).saturating_sub(1))?;
    let payload = port.mps_bytes.value.get().min(nic.link.mps_bytes.value.get());
    let request = described.kernel.max_read_request.value.get();
    Link::new(generation, width.lanes().into(), Bytes::new(payload.into()), Bytes::new(request.into())).ok()
}
