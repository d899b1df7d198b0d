//! A host of the fabric as the kernel's ground.

use std::cell::{Cell, RefCell};

use engine::{Busy, Completion, Handle};
use hardware::Fabric;
use hardware::iommu::QueueAction;
use hardware::memory::{CoreId, NodeId};
use hardware::root::{Host, HostId, IO_APIC, InterruptMessage};
use hardware::wires::Context;
use platform::cpu::{CpuId, Node, StoreMark};
use platform::memory::PhysAddr;
use platform::mmio::Store;
use units::{Duration, Time};
use wire::pcie::{Bdf, IntxLine};
use wire::vtd::tables::TableMemory;
use wire::vtd::{Features, MsiMessage};

use super::convert;
use super::store_buffer::StoreBuffer;
use super::{DeviceGround, Ground, InterruptSink, Inventory, IommuGround, IommuTables, LineGround};
use crate::costs::CoreParams;

/// A host of the fabric.
pub struct HostGround {
    pub(super) hw: Handle<Fabric>,
    host: HostId,
    /// Store buffers, by core.
    pub(super) stores: Vec<RefCell<StoreBuffer>>,
    /// By core: how long it has waited for places of lines, and for their data.
    pub(super) waited: Vec<Cell<[Busy; 2]>>,
    /// Interval between accesses to consecutive lines.
    pub(super) issue: Duration,
    /// Longest hit latency of the core's own caches.
    pub(super) own_hit: Duration,
}

impl HostGround {
    /// A host with cores of these parameters.
    pub fn new(hw: Handle<Fabric>, host: HostId, core: &CoreParams) -> Self {
        let (cores, own_hit) = hw.with(|fabric, _| {
            let memory = &fabric.host(host).memory;
            let own_hit = memory.params().sockets.iter().map(|socket| socket.private.l2_hit).max();
            let cores = (0u16..).take_while(|&n| memory.node_of_core(CoreId(n)).is_some()).count();
            (cores, own_hit.unwrap_or_default())
        });
        Self {
            hw,
            host,
            stores: vec![RefCell::new(StoreBuffer::new(core)); cores],
            waited: vec![Cell::default(); cores],
            issue: core.frequency.time_for(core.issue),
            own_hit,
        }
    }

    /// Accesses the host and its links.
    #[inline]
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Host, &mut Context<'_>) -> R) -> R {
        self.hw.with(|fabric, scheduler| {
            let (host, mut cx) = fabric.host_in(self.host, scheduler);
            act(host, &mut cx)
        })
    }
}

pub(super) const fn core_id(cpu: CpuId) -> CoreId {
    CoreId(cpu.0)
}

const fn node_of(node: NodeId) -> Node {
    Node(node.0)
}

/// Forwards interrupts that reach the cores.
struct Sink(Option<InterruptSink>);

impl hardware::root::InterruptSink for Sink {
    fn deliver(&mut self, message: InterruptMessage) {
        if let Some(sink) = &mut self.0 {
            sink(message.interrupt.destination, message.interrupt.vector);
        }
    }
}

impl Ground for HostGround {
    fn inventory(&self) -> Inventory {
        self.with(|host, _| {
            let memory = &host.memory;
            let nodes = (0..).map_while(|n| memory.node_of_core(CoreId(n)));
            let ranges = |socket: &hardware::memory::SocketParams| {
                socket.memory.iter().map(|range| (convert::address(range.base), range.size.get())).collect()
            };
            Inventory {
                cores: nodes.map(node_of).collect(),
                memory: memory.params().sockets.iter().map(ranges).collect(),
            }
        })
    }

    fn connect_interrupts(&self, sink: Option<InterruptSink>) {
        self.with(|host, _| host.interrupts.connect(Box::new(Sink(sink))));
    }
}

impl DeviceGround for HostGround {
    fn store_to_device(&self, core: CpuId, when: Time, store: Store<'_>) {
        let core = core_id(core);
        let _ = self.with(|host, cx| host.store(cx, core, when, store));
    }

    fn store_mark(&self, core: CpuId, when: Time) -> StoreMark {
        self.with(|host, _| host.stores.of(core_id(core)).mark(when))
    }

    fn uncached_accepted_by(&self, core: CpuId, when: Time) -> Time {
        self.with(|host, _| host.uncached_accepted_by(core_id(core), when))
    }

    fn follow_stores(&self, core: CpuId, when: Time, (other, mark): (CpuId, StoreMark)) -> Time {
        let (core, other) = (core_id(core), core_id(other));
        self.with(|host, cx| host.follow_stores(cx, core, when, (other, mark)))
    }

    fn stores_pending_at_most(&self, core: CpuId, most: usize) -> Option<Completion<()>> {
        let core = core_id(core);
        self.with(|host, _| {
            (host.stores.of(core).pending() > most).then(|| host.stores.pending_at_most(core, most))
        })
    }

    fn holds_stores(&self, core: CpuId) -> bool {
        self.with(|host, _| !host.stores.of(core_id(core)).is_empty())
    }

    fn free_fill_buffers(&self, core: CpuId, when: Time) -> usize {
        let buffers = self.with(|host, cx| host.stores.fill_buffers(cx, core_id(core), when));
        buffers.free_by(when)
    }

    fn read_device(&self, core: CpuId, at: PhysAddr, length: usize) -> Option<Completion<Vec<u8>>> {
        let (core, at) = (core_id(core), convert::physical(at));
        let access = self.with(|host, cx| host.mmio_read(cx, core, at, length));
        access.ok().map(|access| access.data)
    }

    fn config_read(&self, core: CpuId, function: Bdf, register: u16) -> Completion<Vec<u8>> {
        let core = core_id(core);
        self.with(|host, cx| host.config_read(cx, core, function, register)).data
    }

    fn config_write(
        &self,
        core: CpuId,
        function: Bdf,
        register: u16,
        value: u32,
        enables: u8,
    ) -> Completion<Vec<u8>> {
        let core = core_id(core);
        let access = self.with(|host, cx| host.config_write(cx, core, function, register, value, enables));
        access.data
    }

    fn node_of_port(&self, port: Bdf) -> Option<Node> {
        self.with(|host, _| {
            let port = host.ports().iter().find(|own| own.id() == port)?;
            Some(node_of(port.params().node))
        })
    }

    fn has_way(&self, port: Bdf, at: PhysAddr, length: u64) -> bool {
        self.with(|host, _| host.has_way_to(port, convert::physical(at), length))
    }
}

impl LineGround for HostGround {
    fn line_source(&self) -> Option<Bdf> {
        Some(IO_APIC)
    }

    fn set_line(&self, _: CpuId, line: IntxLine, message: Option<(u64, u32)>) {
        let message = message.map(|(address, data)| MsiMessage { address, data });
        self.with(|host, cx| host.interrupts.program_line(cx, line, message));
    }

    fn end_line(&self, _: CpuId, line: IntxLine) {
        self.with(|host, cx| host.interrupts.end_line(cx, line));
    }
}

impl IommuGround for HostGround {
    fn iommus(&self) -> usize {
        self.with(|host, _| host.iommus.len())
    }

    fn iommu_features(&self, iommu: usize) -> Features {
        self.with(|host, _| host.iommus[iommu].features())
    }

    fn set_iommu(&self, iommu: usize, translates: bool, tables: Option<IommuTables>) {
        self.with(|host, _| {
            let iommu = &mut host.iommus[iommu];
            if let Some(tables) = tables {
                iommu.set_root_table(convert::physical(tables.root));
                iommu.set_invalidation_queue(convert::physical(tables.queue), 0);
                iommu.set_interrupt_table(tables.interrupts);
            }
            iommu.set_enabled(translates);
        });
    }

    fn invalidate(&self, iommu: usize, now: Time, tail: u64) -> Option<Time> {
        let mut actions = Vec::new();
        self.with(|host, _| {
            if let Some(iommu) = host.iommus.get_mut(iommu) {
                iommu.write_invalidation_tail(now, tail, &mut host.memory, &mut actions);
            }
        });
        actions.iter().find_map(|action| match action {
            QueueAction::WriteStatus { at, .. } => Some(*at),
            _ => None,
        })
    }

    fn iommu_faults(&self) -> Vec<(Bdf, u64)> {
        self.with(|host, _| {
            let all = host.iommus.iter().flat_map(|iommu| iommu.faults().counts());
            all.map(|(requester, _, count)| (requester, count)).collect()
        })
    }

    fn edit_tables(&self, edit: &mut dyn FnMut(&mut dyn TableMemory)) {
        self.with(|host, _| edit(host.memory.bytes_mut()));
    }
}
