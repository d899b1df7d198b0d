//! Counters and resources, read from the hardware and the kernel.

use devices::nic::NicHandle;
use hardware::Fabric;
use hardware::endpoint::{EndpointId, Requester};
use hardware::iommu::Iommu;
use hardware::link::{DirectionCounters, Lacked, LinkId, Side};
use hardware::memory::{ByCause, CacheCounters, Cause, MemorySystem};
use hardware::root::HostId;
use kernel::{BlockDevice, Kernel, LineWaits, NetTotals};
use platform::cpu::{CpuId, Part};
use platform::device::{FunctionIndex, PortIndex, StageKind};
use platform::ethernet::EthernetPort;
use units::{Duration, Time};
use virt::disk::Vdisk;
use virt::net::{Network, Vnic};
use virt::placement::Done;
use virt::{Exit, Vm};
use wire::nic::registers::counter;
use wire::vtd::Access;

use super::binding::{Kind, Resource};
use super::{Counter, Unit};

/// A device and the name of its place.
#[derive(Clone, Copy)]
pub struct CountedDevice<'a> {
    /// Prefix of its counters.
    pub name: &'a str,
    /// The device in the fabric.
    pub endpoint: EndpointId,
    /// For a NIC: its counters, its Ethernet settings and its packet rate limit.
    pub nic: Option<(&'a NicHandle, &'a machine::Nic)>,
    /// Whether what its transmit path does is the time of its link.
    pub sends_at_wire_speed: bool,
}

/// What comes between a link and the credits that its TLPs have lacked.
pub(super) const LACKED: &str = "-lacked/";

/// Credits as counters spell them, in words.
pub(super) fn credits_in_words(name: &str) -> String {
    match name.rsplit_once('-') {
        Some((class, what)) => format!("{class} {what}"),
        None => name.to_owned(),
    }
}

/// How long a resource has been waited for so far.
#[derive(Clone, Debug)]
pub(crate) struct Waited {
    /// The resource in words.
    pub words: String,
    /// Its kind and place.
    pub place: String,
    /// Picoseconds.
    pub ps: u128,
}

/// A switch of a host, with the link above it.
#[derive(Clone, Copy)]
pub(crate) struct CountedSwitch<'a> {
    /// Prefix of its counters.
    pub name: &'a str,
    pub uplink: LinkId,
}

/// Busy time of a resource so far.
#[derive(Clone, Debug)]
pub(crate) struct Used {
    kind: Kind,
    place: String,
    /// Number of parallel units.
    of: u64,
    busy_ps: u128,
}

impl Used {
    fn is_same(&self, other: &Self) -> bool {
        (self.kind, &self.place) == (other.kind, &other.place)
    }

    /// Whether it has been used at all.
    pub(super) fn is_used(&self) -> bool {
        self.busy_ps > 0
    }
}

/// Utilization of resources between two readings.
pub(super) fn between(before: &[Used], after: &[Used], length: Duration) -> Vec<Resource> {
    let earlier = |used: &Used| before.iter().find(|other| other.is_same(used)).map_or(0, |u| u.busy_ps);
    let share = |used: &Used| {
        let busy = used.busy_ps.saturating_sub(earlier(used)) as f64;
        busy / (length.as_ps().max(1) as f64 * used.of.max(1) as f64)
    };
    let resource = |used: &Used| Resource {
        kind: used.kind,
        place: used.place.clone(),
        of: used.of,
        share: share(used),
        on_path: true,
    };
    after.iter().map(resource).collect()
}

/// A host's counters at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    pub(super) counters: Vec<Counter>,
    pub(super) resources: Vec<Used>,
}

impl Reading {
    /// The amount of a counter; `None` if no counter has this name.
    pub(crate) fn amount(&self, name: &str) -> Option<f64> {
        self.counters.iter().find(|counter| counter.name == name).map(Counter::amount)
    }

    pub(crate) fn counters(&self) -> &[Counter] {
        &self.counters
    }

    /// How long credits of each kind, tags, buffers and rings have been waited for so far.
    pub(crate) fn waits(&self, host: &str) -> Vec<Waited> {
        let resource = |kind: Kind, place: &str| {
            Resource { kind, place: place.to_owned(), of: 1, share: 0.0, on_path: true }.words(host)
        };
        let is_waited = |used: &&Used| matches!(used.kind, Kind::Buffer | Kind::Tags | Kind::Ring);
        let waited = |used: &Used| Waited {
            words: resource(used.kind, &used.place),
            place: format!("{}/{}", used.kind.name(), used.place),
            ps: used.busy_ps,
        };
        let lacked = |counter: &Counter| {
            let (place, credits) = counter.name.split_once(LACKED)?;
            let words = format!("{} {}", credits_in_words(credits), resource(Kind::Credits, place));
            Some(Waited { words, place: counter.name.clone(), ps: counter.value.into() })
        };
        let others = self.resources.iter().filter(is_waited).map(waited);
        others.chain(self.counters.iter().filter_map(lacked)).collect()
    }

    /// What was counted since `before`, which a part that has started anew in between has forgotten.
    pub(crate) fn forgotten(before: &Self, after: &Self) -> Self {
        let counter = |counter: &Counter| {
            let known = after.counters.iter().find(|known| known.name == counter.name);
            let value = counter.value.saturating_sub(known.map_or(0, |known| known.value));
            Some(Counter { value, ..counter.clone() })
                .filter(|lost| lost.value > 0 && lost.unit != Unit::Kept)
        };
        let resource = |used: &Used| {
            let known = after.resources.iter().find(|known| known.is_same(used));
            let busy_ps = used.busy_ps.saturating_sub(known.map_or(0, |known| known.busy_ps));
            Some(Used { busy_ps, ..used.clone() }).filter(|lost| lost.busy_ps > 0)
        };
        Self {
            counters: before.counters.iter().filter_map(counter).collect(),
            resources: before.resources.iter().filter_map(resource).collect(),
        }
    }

    /// Adds what was counted elsewhere.
    pub(crate) fn include(&mut self, other: &Self) {
        for counter in &other.counters {
            match self.counters.iter_mut().find(|own| own.name == counter.name) {
                Some(own) => own.value += counter.value,
                None => self.counters.push(counter.clone()),
            }
        }
        for used in &other.resources {
            match self.resources.iter_mut().find(|own| own.is_same(used)) {
                Some(own) => own.busy_ps += used.busy_ps,
                None => self.resources.push(used.clone()),
            }
        }
    }

    fn add(&mut self, name: String, unit: Unit, value: u64) {
        self.counters.push(Counter { name, unit, value });
    }

    /// Adds several counters of one place.
    fn all(&mut self, place: &str, fields: impl IntoIterator<Item = (&'static str, Unit, u64)>) {
        for (field, unit, value) in fields {
            self.add(format!("{place}/{field}"), unit, value);
        }
    }

    /// Adds several event counters of one place.
    fn events(&mut self, place: &str, fields: impl IntoIterator<Item = (&'static str, u64)>) {
        self.all(place, fields.into_iter().map(|(field, value)| (field, Unit::Events, value)));
    }

    fn time(&mut self, name: String, time: Duration) {
        self.add(name, Unit::Time, time.as_ps());
    }

    fn causes(&mut self, name: &str, bytes: &ByCause) {
        for cause in Cause::ALL {
            self.add(format!("{name}/{}", cause.name()), Unit::Bytes, bytes.of(cause).get());
        }
    }

    fn used(&mut self, kind: Kind, place: impl Into<String>, of: u64, busy_ps: u128) {
        self.resources.push(Used { kind, place: place.into(), of, busy_ps });
    }

    /// Reads the counters of a host's hardware and its devices.
    pub(crate) fn of_hardware(
        fabric: &Fabric,
        host: HostId,
        devices: &[CountedDevice<'_>],
        switches: &[CountedSwitch<'_>],
        now: Time,
    ) -> Self {
        let mut reading = Self::default();
        let host = fabric.host(host);
        reading.memory(&host.memory, now);
        for (node, iommu) in host.iommus.iter().enumerate() {
            reading.iommu(node, iommu, now);
        }
        let root = host.counters();
        reading.add("root/bytes-read".into(), Unit::Bytes, root.device_read_bytes);
        reading.add("root/bytes-written".into(), Unit::Bytes, root.device_write_bytes);
        reading.add("root/interrupts".into(), Unit::Events, host.interrupts.counters().delivered);
        for core in (0..).map(hardware::memory::CoreId).take_while(|&c| host.memory.node_of_core(c).is_some())
        {
            let stores = host.stores.of(core);
            let name = |what: &str| format!("core{}/{what}", core.index());
            reading.add(name("device-store-bytes"), Unit::Bytes, stores.counters().bytes);
            reading.time(name("device-stores-waited"), stores.waited(now));
        }
        for place in devices {
            reading.device(fabric, place, now);
            if let Some((handle, nic)) = place.nic {
                reading.nic(place.name, handle, now);
                reading.wires(fabric, place, nic, now);
            }
        }
        for CountedSwitch { name, uplink } in switches {
            let link = fabric.wires.link(*uplink);
            for (way, sender) in [("uplink-up", Side::Downstream), ("uplink-down", Side::Upstream)] {
                reading.direction(name, way, &link.counters_until(sender, now));
            }
        }
        for (number, port) in host.ports().iter().enumerate() {
            reading.used(Kind::RootPort, format!("port{number}"), 1, port.intake_busy(now).as_ps().into());
            if port.latency_reports() > 0 {
                reading.add(format!("port{number}/latency-reports"), Unit::Events, port.latency_reports());
            }
            let peers = port.peer_writes_busy(now);
            reading.time(format!("port{number}/peer-writes-busy"), peers);
            reading.used(Kind::RootPort, format!("port{number}/peer-writes"), 1, peers.as_ps().into());
            if let Some(busy) = port.peer_link_busy(now) {
                reading.time(format!("port{number}/peer-link-busy"), busy);
                reading.used(Kind::RootPort, format!("port{number}/peer-link"), 1, busy.as_ps().into());
            }
            for (what, waited) in
                ["ordered-writes", "ordered-peer-writes"].into_iter().zip(port.ordered_writes_waited(now))
            {
                let Some(waited) = waited else { continue };
                reading.time(format!("port{number}/{what}-waited"), waited);
                reading.used(Kind::RootPort, format!("port{number}/{what}"), 1, waited.as_ps().into());
            }
        }
        for (number, waited) in host.stacks_waited(now).enumerate() {
            reading.time(format!("stack{number}/writes-waited"), waited);
            reading.used(Kind::RootPort, format!("stack{number}/writes"), 1, waited.as_ps().into());
        }
        for (number, ways) in host.quadrants_busy(now).enumerate() {
            for (way, busy) in ["reads", "writes"].into_iter().zip(ways) {
                reading.time(format!("quadrant{number}/{way}-busy"), busy);
                reading.used(Kind::RootPort, format!("quadrant{number}/{way}"), 1, busy.as_ps().into());
            }
        }
        let waited = host.peer_reads_waited(now);
        reading.time("root/peer-reads-waited".into(), waited);
        reading.used(Kind::Tags, "root/peer-reads", 1, waited.as_ps().into());
        reading
    }

    /// Adds the core times that a host's kernel has accounted.
    pub(crate) fn add_kernel(&mut self, kernel: &Kernel, now: Time) {
        for NetTotals { name, counters, queues_full } in kernel.net().totals(now) {
            self.add(format!("{name}/tx-packets"), Unit::Events, counters.tx_packets);
            self.add(format!("{name}/rx-packets"), Unit::Events, counters.rx_packets);
            self.add(format!("{name}/tx-dropped"), Unit::Events, counters.tx_dropped);
            for (queue, full) in queues_full.into_iter().enumerate() {
                let place = format!("{name}/tx-ring{queue}");
                self.time(format!("{place}-full"), full);
                self.used(Kind::Ring, place, 1, full.as_ps().into());
            }
        }
        for core in 0..kernel.face().cpus() {
            let times = kernel.core_times(CpuId(core));
            for part in Part::ALL {
                self.time(format!("core{core}/busy/{}", super::part_name(part)), times.of(part));
            }
            let unmapping = kernel.waited_for_invalidations(CpuId(core));
            self.time(format!("core{core}/invalidations-waited"), unmapping);
            self.used(Kind::Invalidations, format!("core{core}"), 1, unmapping.as_ps().into());
            // A core that polls is idle, one that goes to sleep has time to spare, and a faster one would wait as long for an
            // IOMMU.
            let idling = kernel.idling(CpuId(core));
            self.time(format!("core{core}/idling"), idling);
            let devices = kernel.waited_for_devices(CpuId(core));
            self.time(format!("core{core}/devices-waited"), devices);
            let idle = times.of(Part::Poll) + unmapping + idling + devices;
            let works = times.total().saturating_sub(idle);
            let LineWaits { places, data } = kernel.waited_for_lines(CpuId(core));
            self.time(format!("core{core}/lines-waited"), places + data);
            self.time(format!("core{core}/line-places-waited"), places);
            self.used(Kind::Core, format!("core{core}"), 1, works.as_ps().into());
            self.used(Kind::Lines, format!("core{core}"), 1, places.as_ps().into());
            self.used(Kind::Data, format!("core{core}"), 1, data.as_ps().into());
        }
        let errors = kernel.pci_errors();
        for (what, count) in [
            ("correctable", errors.correctable),
            ("non-fatal", errors.non_fatal),
            ("fatal", errors.fatal),
            ("recovered", errors.recovered),
            ("given-up", errors.failed),
            ("contained", errors.contained),
        ] {
            self.add(format!("kernel/pcie-errors/{what}"), Unit::Events, count);
        }
        for (number, held) in kernel.invalidation_queues_held().into_iter().enumerate() {
            let place = format!("iommu{number}");
            self.time(format!("{place}/invalidation-queue-held"), held);
        }
        let irqs = kernel.irq_counters();
        self.add("kernel/interrupts/handled".into(), Unit::Events, irqs.handled);
        self.add("kernel/interrupts/between-cores".into(), Unit::Events, irqs.between_cores);
        self.add("kernel/interrupts/timer".into(), Unit::Events, irqs.timer);
        let inet = kernel.face().network().counters();
        self.add("kernel/tcp/out-of-order".into(), Unit::Events, inet.tcp_out_of_order);
        self.add("kernel/tcp/timeouts".into(), Unit::Events, inet.tcp_timeouts);
        self.add("kernel/tcp/tail-probes".into(), Unit::Events, inet.tcp_tail_probes);
        self.add("kernel/tcp/segments-again".into(), Unit::Events, inet.tcp_segments_again);
    }

    /// Adds how long requests waited at a block device's queues, as these were full. `name` is the drive's; its namespaces
    /// share its queues.
    pub(crate) fn add_disk(&mut self, name: &str, disk: &BlockDevice, now: Time) {
        for (queue, full) in disk.queues_full(now).into_iter().enumerate() {
            let place = format!("{name}/submission-ring{queue}");
            match self.resources.iter_mut().find(|used| used.kind == Kind::Ring && used.place == place) {
                Some(used) => used.busy_ps = used.busy_ps.max(full.as_ps().into()),
                None => self.used(Kind::Ring, place, 1, full.as_ps().into()),
            }
        }
    }

    /// Adds a virtual machine's exits by reason, its requests, and device references to its memory. While a vCPU
    /// polls, its host core is idle.
    pub(crate) fn add_vm(&mut self, name: &str, vm: &Vm) {
        for (core, polled) in vm.polled() {
            let core = format!("core{}", core.0);
            let is_its = |used: &&mut Used| used.kind == Kind::Core && used.place == core;
            if let Some(used) = self.resources.iter_mut().find(is_its) {
                used.busy_ps = used.busy_ps.saturating_sub(polled.as_ps().into());
            }
        }
        let (exits, kernel) = (vm.exits(), vm.kernel());
        let net = kernel.net().devices();
        for exit in Exit::ALL {
            self.add(format!("vm-{name}/exits/{}", exit.name()), Unit::Events, exits.of(exit));
        }
        let fields = [
            ("interrupts/forwarded", vm.interrupts_forwarded()),
            ("interrupts/posted", vm.interrupts_posted()),
            ("tlb-misses", vm.memory().tlb_misses()),
            ("pages-moved", vm.memory().moved()),
            ("requests", kernel.block().devices().iter().map(|disk| disk.counters().requests).sum()),
            (
                "packets",
                net.iter().map(|own| own.counters()).map(|own| own.tx_packets + own.rx_packets).sum(),
            ),
        ];
        self.events(&format!("vm-{name}"), fields);
        self.add(format!("vm-{name}/held"), Unit::Kept, vm.memory().pinned().get());
    }

    pub(crate) fn add_virtual_nic(&mut self, vm: &str, nic: &Vnic) {
        let counters = nic.counters();
        let fields = [
            ("received", Unit::Events, counters.received),
            ("received-bytes", Unit::Bytes, counters.received_bytes),
            ("dropped", Unit::Events, counters.dropped),
            ("sent", Unit::Events, counters.sent),
            ("sent-bytes", Unit::Bytes, counters.sent_bytes),
            ("malformed", Unit::Events, counters.malformed),
            ("no-memory", Unit::Events, counters.no_memory),
            ("interrupts", Unit::Events, counters.interrupts),
        ];
        self.all(&format!("vm-{vm}/nic"), fields);
    }

    pub(crate) fn add_virtual_disk(&mut self, vm: &str, disk: &Vdisk) {
        let counters = disk.counters();
        let fields = [
            ("requests", counters.requests),
            ("refused", counters.refused),
            ("malformed", counters.malformed),
        ];
        self.events(&format!("vm-{vm}/disk"), fields);
    }

    pub(crate) fn add_uplink(&mut self, name: &str, network: &Network) {
        for context in network.contexts() {
            let place = format!("{name}/io-thread{}", context.number);
            self.time(format!("{place}/busy"), network.busy(context.number));
            self.add(format!("{place}/received"), Unit::Events, context.received());
        }
    }

    pub(crate) fn add_scheduler(&mut self, done: Done) {
        let fields = [
            ("periods", done.periods),
            ("mode-changes", done.switches),
            ("moves", done.moves),
            ("moves-refused", done.refused),
        ];
        self.events("hypervisor", fields);
    }

    fn memory(&mut self, memory: &MemorySystem, now: Time) {
        let (counters, params, busy) = (memory.counters(), memory.params(), memory.busy(now));
        let cache = |reading: &mut Self, name: &str, what: &str, cache: &CacheCounters| {
            let fields = [
                ("hits", cache.hits),
                ("misses", cache.misses),
                ("allocations", cache.allocations),
                ("evictions", cache.evictions),
                ("dirty-evictions", cache.dirty_evictions),
            ];
            for (field, value) in fields {
                reading.add(format!("{name}-{field}/{what}"), Unit::Events, value);
            }
        };
        for (n, (node, socket)) in counters.nodes.iter().zip(&params.sockets).enumerate() {
            let place = format!("socket{n}");
            for (user, counters) in ["core", "dma", "walk"].into_iter().zip(&node.llc) {
                cache(self, &format!("{place}/llc"), user, counters);
            }
            cache(self, &format!("{place}/private"), "core", &node.private);
            self.causes(&format!("{place}/dram-read"), &node.dram_read);
            self.causes(&format!("{place}/dram-written"), &node.dram_written);
            let device = &node.device;
            let fields = [
                ("device-writes/updated", device.writes_updated),
                ("device-writes/allocated", device.writes_allocated),
                ("device-writes/to-memory", device.writes_to_memory),
                ("device-merges/memory", device.merges),
                ("device-reads/llc", device.reads_llc),
                ("device-reads/remote-cache", device.reads_remote_cache),
                ("device-reads/memory", device.reads_memory),
            ];
            self.events(&place, fields);
            self.used(Kind::Dram, place.clone(), socket.dram.channels.into(), busy.dram[n].as_ps().into());
            self.used(Kind::Llc, place, 1, busy.llc[n].as_ps().into());
        }
        for (node, dies) in busy.core_dies.iter().enumerate() {
            for (die, ways) in dies.iter().enumerate() {
                for (way, busy) in ["reads", "writes"].into_iter().zip(ways) {
                    let place = format!("socket{node}/die{die}-{way}");
                    self.used(Kind::Interconnect, place, 1, busy.as_ps().into());
                }
            }
        }
        for (link, busy) in counters.links.iter().zip(busy.links) {
            let place = format!("socket{}-socket{}", link.from.0, link.to.0);
            self.causes(&format!("{place}/bytes"), &link.bytes);
            self.used(Kind::Interconnect, place, 1, busy.as_ps().into());
        }
    }

    fn iommu(&mut self, node: usize, iommu: &Iommu, now: Time) {
        let (counters, place) = (iommu.counters(), format!("iommu{node}"));
        let pages = &counters.pages;
        let fields = [
            ("lookups/hit", pages.hits),
            ("lookups/merged", pages.merged),
            ("lookups/miss", pages.misses),
            ("lookups/passed", counters.passed),
            ("lookups/refused", counters.refused_early),
            ("walks", pages.walks),
            ("walk-reads", pages.walk_steps),
            ("faults", iommu.faults().total()),
            ("invalidations", pages.invalidations),
        ];
        self.events(&place, fields);
        let busy = iommu.walkers_busy(now);
        self.time(format!("{place}/walkers-busy"), busy);
        self.time(format!("{place}/walks-waited"), pages.walker_queueing);
        self.time(format!("{place}/lookups-waited"), counters.pipeline_queueing);
        let walkers = iommu.params().walkers as u64;
        let lookups = iommu.lookups_busy(now);
        self.time(format!("{place}/lookups-busy"), lookups);
        self.used(Kind::Lookups, &*place, 1, lookups.as_ps().into());
        for (access, name) in [(Access::Read, "reads"), (Access::Write, "writes")] {
            let waited = iommu.places_waited(access, now);
            self.used(Kind::Translations, format!("{place}/{name}"), 1, waited.as_ps().into());
        }
        self.used(Kind::Walkers, place, walkers, busy.as_ps().into());
    }

    fn device(&mut self, fabric: &Fabric, place: &CountedDevice<'_>, now: Time) {
        let endpoint = fabric.endpoint(place.endpoint);
        for port in (0..).map(PortIndex).take(endpoint.links().count()) {
            // Ports after the first are numbered.
            let name = match port.0 {
                0 => place.name.to_owned(),
                number => format!("{}:{number}", place.name),
            };
            let link = endpoint.links().nth(port.0.into());
            for (way, sender) in [("link-up", Side::Downstream), ("link-down", Side::Upstream)] {
                let retrains = endpoint.carried(&fabric.wires, port, sender, now).retrains;
                let each = link.map_or(Duration::ZERO, |link| fabric.wires.link(link).params().retrain_time);
                self.time(format!("{name}/{way}-retraining"), each * retrains);
                self.direction(&name, way, &endpoint.carried(&fabric.wires, port, sender, now));
            }
            self.requester(&name, endpoint.core.requester(port), place.sends_at_wire_speed, now);
        }
        for (number, &end) in endpoint.cables().iter().enumerate() {
            let name = if number == 0 { place.name.to_owned() } else { format!("{}:{number}", place.name) };
            let link = fabric.wires.link(end.link);
            self.direction(&name, "cable-out", &link.counters_until(end.side, now));
            // What another adapter sends is counted there.
            if fabric.is_cluster_switch(end.opposite()) {
                self.direction(&name, "cable-in", &link.counters_until(end.side.opposite(), now));
            }
        }
        for stage in endpoint.device().stages(now) {
            let (name, what) = match stage.kind {
                StageKind::Server => ("busy/", Kind::Device),
                StageKind::Tags => ("waited-for-", Kind::Tags),
                StageKind::Buffer => ("waited-for-", Kind::Buffer),
            };
            self.time(format!("{}/{name}{}", place.name, stage.name), stage.busy);
            let at = format!("{}/{}", place.name, stage.name);
            self.used(what, at, stage.of, stage.busy.as_ps().into());
        }
    }

    fn requester(&mut self, name: &str, requester: &Requester, sends_at_wire_speed: bool, now: Time) {
        let counters = requester.counters();
        let fields = [
            ("dma-read", Unit::Bytes, counters.bytes_read),
            ("dma-written", Unit::Bytes, counters.bytes_written),
            ("read-requests", Unit::Events, counters.read_requests),
            ("write-requests", Unit::Events, counters.write_requests),
            ("completions", Unit::Events, counters.completions),
        ];
        self.all(name, fields);
        let (tags, buffer) = (requester.waited_for_tags(now), requester.waited_for_buffer(now));
        self.time(format!("{name}/waited-for-tags"), tags);
        self.used(Kind::Tags, name, 1, tags.as_ps().into());
        self.time(format!("{name}/waited-for-buffer"), buffer);
        self.used(Kind::Buffer, name, 1, buffer.as_ps().into());
        let busy = requester.mover_busy(now);
        let stages = [
            ("drain", busy.drain),
            ("bus", busy.bus),
            ("memory-read", busy.memory_read),
            ("memory-write", busy.memory_written),
            ("transmit", busy.transmit),
            ("issue", requester.issue_busy(now)),
        ];
        for (stage, time) in stages {
            self.time(format!("{name}/busy/{stage}"), time);
            let link = format!("{name}/link-up");
            let link = self.resources.iter_mut().find(|used| used.kind == Kind::Link && used.place == link);
            match link.filter(|_| stage == "transmit" && sends_at_wire_speed) {
                // The card leaves gaps on its link that no other use can fill.
                Some(link) => link.busy_ps = link.busy_ps.max(time.as_ps().into()),
                None => self.used(Kind::Device, format!("{name}/{stage}"), 1, time.as_ps().into()),
            }
        }
    }

    /// A direction of a link, such as `link-up` of a device or `cable-out` of an adapter.
    fn direction(&mut self, owner: &str, way: &str, counters: &DirectionCounters) {
        let place = format!("{owner}/{way}");
        let classes = ["posted", "non-posted", "completion"];
        for (n, class) in classes.into_iter().enumerate() {
            self.add(format!("{place}-tlps/{class}"), Unit::Events, counters.tlps[n]);
            self.add(format!("{place}-bytes/{class}"), Unit::Bytes, counters.tlp_bytes[n].get());
        }
        self.add(format!("{place}-bytes/dllp"), Unit::Bytes, counters.dllp_bytes.get());
        self.add(format!("{place}-replays"), Unit::Events, counters.replays);
        self.add(format!("{place}-rejected"), Unit::Events, counters.rejected);
        self.add(format!("{place}-retrains"), Unit::Events, counters.retrains);
        self.time(format!("{place}-busy"), counters.busy);
        self.time(format!("{place}-stalled"), counters.stalled);
        for (credits, lacked) in Lacked::ALL.into_iter().zip(counters.lacked) {
            self.time(format!("{place}{LACKED}{}", credits.name()), lacked);
        }
        self.time(format!("{place}-repairing"), counters.repairing);
        let kinds = [
            (Kind::Link, counters.busy),
            (Kind::Credits, counters.stalled),
            (Kind::Replays, counters.repairing),
        ];
        kinds.into_iter().for_each(|(kind, time)| self.used(kind, &*place, 1, time.as_ps().into()));
    }

    fn wires(&mut self, fabric: &Fabric, place: &CountedDevice<'_>, nic: &machine::Nic, now: Time) {
        let ethernet = &fabric.wires.ethernet;
        for port in 0..nic.controller.ports.value.get() as u8 {
            let Some(end) = ethernet.cable_at(place.endpoint, EthernetPort(port)) else { continue };
            let name = if port == 0 { place.name.to_owned() } else { format!("{}:{port}", place.name) };
            for (way, from) in [("tx", end), ("rx", end.other())] {
                let busy = ethernet.busy(from, now);
                self.used(Kind::Wire, format!("{name}/{way}"), 1, busy.as_ps().into());
            }
        }
    }

    fn nic(&mut self, name: &str, handle: &NicHandle, now: Time) {
        for which in 0..counter::COUNT {
            let total = (0..=u8::MAX).map(|function| handle.counter(FunctionIndex(function), which)).sum();
            let bytes = [counter::TX_BYTES, counter::RX_BYTES, counter::WRITTEN_BACK].contains(&which);
            let unit = if bytes { Unit::Bytes } else { Unit::Events };
            self.add(format!("{name}/{}", counter::NAMES[which]), unit, total);
        }
        let held = handle.interrupts_held_back(now);
        self.time(format!("{name}/interrupts-held-back"), held);
        self.used(Kind::Moderation, name, 1, held.as_ps().into());
        for ring in handle.rings(now) {
            let way = if ring.is_tx { "tx" } else { "rx" };
            let function = if ring.function.0 == 0 { String::new() } else { format!("{}.", ring.function.0) };
            let place = format!("{name}/{way}-ring{function}{}", ring.queue);
            self.add(format!("{place}-filled"), Unit::Held, ring.descriptor_ns);
        }
    }
}
