//! Where requests of devices end: what they reach, and what stops them.

use wire::vtd::FaultReason;

use super::Fabric;

/// What stops requests of devices.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RequestStop {
    /// An IOMMU's fault.
    Iommu,
    /// Interrupt remapping, or an interrupt message in no format.
    Interrupt,
    /// Access control of a port of a root or a switch.
    AccessControl,
    /// A root complex: no memory and no device has the address.
    Root,
    /// A switch: no port has the address, or it lies within the switch's own window.
    Switch,
    /// An NTB window: the segment is unmapped, or leads to nobody who listens.
    Window,
    /// An NTB requester table: the function has no entry.
    Requester,
    /// A device: no register has the address.
    Device,
}

impl RequestStop {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Iommu,
        Self::Interrupt,
        Self::AccessControl,
        Self::Root,
        Self::Switch,
        Self::Window,
        Self::Requester,
        Self::Device,
    ];

    /// Name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Iommu => "IOMMU",
            Self::Interrupt => "interrupt remapping",
            Self::AccessControl => "ACS",
            Self::Root => "root complex",
            Self::Switch => "switch",
            Self::Window => "NTB window",
            Self::Requester => "NTB requester table",
            Self::Device => "device",
        }
    }
}

/// What requests of devices have reached, and what has stopped them, since the simulation began.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestEnds {
    /// Requests stopped, in the order of [`RequestStop::ALL`].
    pub stopped: [u64; RequestStop::ALL.len()],
    /// By host: bytes of its memory read and written by devices, and interrupts delivered to its cores.
    pub hosts: Vec<HostEnds>,
}

/// What requests of devices have reached of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostEnds {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Interrupts delivered, or posted to guests.
    pub interrupts: u64,
}

/// Where a request ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RequestEnd {
    /// It was stopped.
    Stopped(RequestStop),
    /// The memory of the host with this number.
    Memory(usize),
    /// A core of that host, or a guest's interrupt there.
    Interrupt(usize),
}

impl RequestEnds {
    /// Where the only request since `earlier` has ended, of so many bytes; `None` if it is a device or not known yet. Other
    /// traffic of that time may be taken for it.
    pub fn end_since(&self, earlier: &Self, bytes: u64) -> Option<RequestEnd> {
        let stops = RequestStop::ALL.into_iter().zip(self.stopped.iter().zip(&earlier.stopped));
        let stopped = stops.filter(|(_, (now, then))| now > then).map(|(stop, _)| RequestEnd::Stopped(stop));
        let hosts = || self.hosts.iter().zip(&earlier.hosts).enumerate();
        let interrupted = hosts().filter(|(_, (now, then))| now.interrupts > then.interrupts);
        let moved = |now: &HostEnds, then: &HostEnds| [now.read - then.read, now.written - then.written];
        let reached = hosts().filter(|(_, (now, then))| moved(now, then).contains(&bytes));
        stopped
            .chain(reached.map(|(host, _)| RequestEnd::Memory(host)))
            .chain(interrupted.map(|(host, _)| RequestEnd::Interrupt(host)))
            .next()
    }
}

impl Fabric {
    /// Where requests of devices have ended so far.
    pub fn request_ends(&self) -> RequestEnds {
        let mut ends = RequestEnds::default();
        let mut add = |stop: RequestStop, count: u64| ends.stopped[stop as usize] += count;
        for host in &self.components.hosts {
            let (counters, interrupts) = (host.counters(), host.interrupts.counters());
            let faults = host.iommus.iter().flat_map(|iommu| iommu.faults().counts());
            let of_requests = faults.filter(|(_, reason, _)| !is_of_interrupt(*reason));
            let faults: u64 = of_requests.map(|(.., count)| count).sum();
            add(RequestStop::Iommu, faults);
            add(RequestStop::Interrupt, interrupts.blocked);
            add(RequestStop::AccessControl, counters.acs_violations);
            // The root complex answers what an IOMMU has refused.
            let unanswered = counters.unsupported_requests + counters.dropped_writes;
            add(RequestStop::Root, unanswered.saturating_sub(faults));
            ends.hosts.push(HostEnds {
                read: counters.device_read_bytes,
                written: counters.device_write_bytes,
                interrupts: interrupts.delivered + interrupts.posted,
            });
        }
        for switch in &self.components.switches {
            let counters = switch.counters();
            add(RequestStop::AccessControl, counters.acs_violations);
            add(RequestStop::Switch, counters.unsupported_requests + counters.dropped);
        }
        for endpoint in &self.components.endpoints {
            // An adapter answers for its window, and counts that as its registers' as well.
            let bridge = endpoint.ntb_counters().unwrap_or_default();
            add(RequestStop::Window, bridge.unmapped + bridge.unreachable);
            add(RequestStop::Requester, bridge.unknown_requesters);
            if endpoint.bridge().is_none() {
                add(RequestStop::Device, endpoint.core.unsupported_requests);
            }
        }
        ends
    }
}

/// Whether a fault is one of interrupt remapping.
const fn is_of_interrupt(reason: FaultReason) -> bool {
    matches!(reason.code(), 0x20..0x30)
}
