//! What a guest's kernel stands on.

use std::rc::Rc;

use engine::{Completion, oneshot};
use kernel::{
    CoreClocks, DeviceGround, Ground, InterruptSink, Inventory, IommuGround, MemoryGround, Store, StoreMark,
};
use platform::cpu::{CpuId, Node};
use platform::memory::PhysAddr;
use units::{Duration, Time};
use wire::pcie::Bdf;
use wire::pcie::config::ConfigEffect;

use crate::function::{Passed, Target};
use crate::vcpu::{Request, Vcpu};
use crate::vm::{Board, Exit};

/// A guest's ground.
pub struct GuestGround(pub Rc<Board>);

impl GuestGround {
    fn vcpu(&self, core: CpuId) -> &Vcpu {
        &self.0.vcpus[usize::from(core.0)]
    }

    /// Lets `access` happen to each piece of a range that is one piece of the host's memory: the offset in the range, the host's
    /// core, when, where, and how much. `false` if some of it is no memory, which is then left alone.
    fn pieces(
        &self,
        core: CpuId,
        mut now: Time,
        at: PhysAddr,
        length: u64,
        mut access: impl FnMut(usize, CpuId, Time, PhysAddr, u64) -> Time,
    ) -> (Time, bool) {
        let (memory, vcpu) = (&self.0.memory, self.vcpu(core));
        let own = vcpu.core();
        let mut done = 0;
        while done < length {
            let Some((place, room)) = memory.place(at + done) else { return (now, false) };
            let piece = room.min(length - done);
            now = vcpu.tlb.look_up(memory, &*self.0.host, own, now, at + done);
            now = access(done as usize, own, now, place, piece);
            done += piece;
        }
        (now, true)
    }

    /// The function that has a device's address, and where an access to it leads.
    fn target(&self, at: PhysAddr, length: usize) -> Option<(Rc<Passed>, Target)> {
        let functions = self.0.functions.borrow();
        functions.iter().find_map(|function| Some((Rc::clone(function), function.target(at, length)?)))
    }

    /// Asks the hypervisor for what `work` gives.
    fn ask(
        &self,
        core: CpuId,
        exit: Exit,
        work: impl AsyncFnOnce(&platform::cpu::Cpu) -> Vec<u8> + 'static,
    ) -> Completion<Vec<u8>> {
        let (completer, answer) = oneshot();
        let emulate = self.0.costs.emulate;
        let work = Box::new(move |cpu: platform::cpu::Cpu| -> platform::cpu::Async<'static, ()> {
            Box::pin(async move {
                cpu.cycles(emulate).await;
                completer.complete(work(&cpu).await);
            })
        });
        self.vcpu(core).ask(Request { exit, work });
        answer
    }
}

impl Ground for GuestGround {
    fn inventory(&self) -> Inventory {
        let blocks = self.0.memory.blocks();
        let ranges = blocks.iter().map(|block| (PhysAddr(block.guest.get()), block.host.len()));
        Inventory { cores: vec![Node(0); self.0.vcpus.len()], memory: vec![ranges.collect()] }
    }

    fn connect_interrupts(&self, sink: Option<InterruptSink>) {
        *self.0.sink.borrow_mut() = sink;
    }

    fn core_clocks(&self) -> Option<&dyn CoreClocks> {
        Some(self)
    }
}

impl CoreClocks for GuestGround {
    fn clock(&self, core: CpuId) -> Time {
        self.0.clock(usize::from(core.0))
    }

    fn set_busy(&self, core: CpuId, busy: bool) {
        self.vcpu(core).set_busy(busy);
    }
}

impl MemoryGround for GuestGround {
    fn load(&self, core: CpuId, now: Time, at: PhysAddr, into: &mut [u8]) -> Time {
        let host = &self.0.host;
        let (done, is_memory) =
            self.pieces(core, now, at, into.len() as u64, |offset, own, now, place, piece| {
                host.load(own, now, place, &mut into[offset..offset + piece as usize])
            });
        if !is_memory {
            into.fill(0xff);
        }
        done
    }

    fn store(&self, core: CpuId, now: Time, at: PhysAddr, from: &[u8]) -> Time {
        let host = &self.0.host;
        let pieces = self.pieces(core, now, at, from.len() as u64, |offset, own, now, place, piece| {
            host.store(own, now, place, &from[offset..offset + piece as usize])
        });
        pieces.0
    }

    fn stream(&self, core: CpuId, now: Time, at: PhysAddr, from: &[u8]) -> Time {
        let host = &self.0.host;
        let pieces = self.pieces(core, now, at, from.len() as u64, |offset, own, now, place, piece| {
            host.stream(own, now, place, &from[offset..offset + piece as usize])
        });
        pieces.0
    }

    fn copy(
        &self,
        core: CpuId,
        now: Time,
        (to, from): (PhysAddr, PhysAddr),
        length: u64,
        step: Duration,
    ) -> Time {
        let (host, memory, vcpu) = (&self.0.host, &self.0.memory, self.vcpu(core));
        let copied = self.pieces(core, now, to, length, |offset, own, mut now, place, piece| {
            let mut done = 0;
            while done < piece {
                let source = from + (offset as u64 + done);
                let Some((source_place, room)) = memory.place(source) else { break };
                let part = room.min(piece - done);
                now = vcpu.tlb.look_up(memory, &**host, own, now, source);
                now = host.copy(own, now, (place + done, source_place), part, step);
                done += part;
            }
            now
        });
        copied.0
    }

    fn prefetch(&self, core: CpuId, now: Time, at: PhysAddr, length: u64) -> Time {
        let host = &self.0.host;
        self.pieces(core, now, at, length, |_, own, now, place, piece| host.prefetch(own, now, place, piece))
            .0
    }

    fn flush(&self, core: CpuId, now: Time, at: PhysAddr) -> bool {
        match self.0.memory.place(at) {
            Some((place, _)) => self.0.host.flush(self.vcpu(core).core(), now, place),
            None => false,
        }
    }

    fn is_memory(&self, at: PhysAddr, length: u64) -> bool {
        let mut done = 0;
        while done < length {
            let Some((_, room)) = self.0.memory.place(at + done) else { return false };
            done += room;
        }
        true
    }

    fn peek(&self, at: PhysAddr, into: &mut [u8]) -> bool {
        let host = &self.0.host;
        let length = into.len() as u64;
        self.is_memory(at, length)
            && self
                .places(at, length)
                .all(|(offset, place, piece)| host.peek(place, &mut into[offset..offset + piece]))
    }

    fn poke(&self, at: PhysAddr, from: &[u8]) -> bool {
        let host = &self.0.host;
        let length = from.len() as u64;
        self.is_memory(at, length)
            && self
                .places(at, length)
                .all(|(offset, place, piece)| host.poke(place, &from[offset..offset + piece]))
    }
}

impl GuestGround {
    /// The pieces of a range of memory: offset, place, length.
    fn places(&self, at: PhysAddr, length: u64) -> impl Iterator<Item = (usize, PhysAddr, usize)> + '_ {
        let mut done = 0;
        std::iter::from_fn(move || {
            let (place, room) = self.0.memory.place(at + done).filter(|_| done < length)?;
            let (offset, piece) = (done as usize, room.min(length - done));
            done += piece;
            Some((offset, place, piece as usize))
        })
    }
}

impl DeviceGround for GuestGround {
    fn store_to_device(&self, core: CpuId, when: Time, store: Store<'_>) {
        let (host, own) = (&self.0.host, self.vcpu(core).core());
        let (address, bytes): (u64, &[u8]) = match store {
            Store::Uncached(address, bytes) | Store::Combining { address, bytes, .. } => (address, bytes),
            Store::Direct(address, line) => (address, line),
            Store::Flush(address) => (address, &[0]),
            Store::Barrier => return host.store_to_device(own, when, Store::Barrier),
        };
        match self.target(PhysAddr(address), bytes.len()) {
            None => {}
            Some((_, Target::Register(at))) => host.store_to_device(
                own,
                when,
                match store {
                    Store::Uncached(_, bytes) => Store::Uncached(at.0, bytes),
                    Store::Combining { bytes, width, .. } => Store::Combining { address: at.0, bytes, width },
                    Store::Direct(_, line) => Store::Direct(at.0, line),
                    Store::Flush(_) => Store::Flush(at.0),
                    Store::Barrier => Store::Barrier,
                },
            ),
            Some((function, Target::Table(offset))) => {
                if matches!(store, Store::Flush(_)) {
                    return;
                }
                let (board, bytes) = (Rc::clone(&self.0), bytes.to_vec());
                drop(self.ask(core, Exit::Table, async move |cpu| {
                    if let Some(vector) = function.table_write(offset, &bytes) {
                        board.raise(&function, vector, cpu);
                    }
                    Vec::new()
                }));
            }
        }
    }

    fn store_mark(&self, core: CpuId) -> StoreMark {
        self.0.host.store_mark(self.vcpu(core).core())
    }

    fn uncached_accepted_by(&self, core: CpuId, when: Time) -> Time {
        self.0.host.uncached_accepted_by(self.vcpu(core).core(), when)
    }

    fn follow_stores(&self, core: CpuId, when: Time, (other, mark): (CpuId, StoreMark)) -> Time {
        let (own, other) = (self.vcpu(core).core(), self.vcpu(other).core());
        // Who has moved to another core since has left its stores behind.
        if own == other { when } else { self.0.host.follow_stores(own, when, (other, mark)) }
    }

    fn stores_pending_at_most(&self, core: CpuId, most: usize) -> Option<Completion<()>> {
        self.0.host.stores_pending_at_most(self.vcpu(core).core(), most)
    }

    fn holds_stores(&self, core: CpuId) -> bool {
        self.0.host.holds_stores(self.vcpu(core).core())
    }

    fn free_fill_buffers(&self, core: CpuId, when: Time) -> usize {
        self.0.host.free_fill_buffers(self.vcpu(core).core(), when)
    }

    fn read_device(&self, core: CpuId, at: PhysAddr, length: usize) -> Option<Completion<Vec<u8>>> {
        match self.target(at, length)? {
            (_, Target::Register(at)) => self.0.host.read_device(self.vcpu(core).core(), at, length),
            (function, Target::Table(offset)) => Some(self.ask(core, Exit::Table, async move |_| {
                let mut bytes = vec![0; length];
                function.table_read(offset, &mut bytes);
                bytes
            })),
        }
    }

    fn config_read(&self, core: CpuId, function: Bdf, register: u16) -> Completion<Vec<u8>> {
        let found = self.0.function(function);
        self.ask(core, Exit::Config, async move |_| {
            found.map_or(u32::MAX, |found| found.config_read(register)).to_le_bytes().to_vec()
        })
    }

    fn config_write(
        &self,
        core: CpuId,
        function: Bdf,
        register: u16,
        value: u32,
        enables: u8,
    ) -> Completion<Vec<u8>> {
        let found = self.0.function(function);
        self.ask(core, Exit::Config, async move |cpu| {
            let Some(found) = found else { return Vec::new() };
            for effect in found.config_write(register, value, enables) {
                match effect {
                    ConfigEffect::BusMaster(on) => found.device.set_master(cpu, on).await,
                    ConfigEffect::FunctionLevelReset => drop(found.device.reset(cpu).await),
                    _ => {}
                }
            }
            Vec::new()
        })
    }

    fn node_of_port(&self, _: Bdf) -> Option<Node> {
        Some(Node(0))
    }

    fn has_way(&self, _: Bdf, _: PhysAddr, _: u64) -> bool {
        false
    }
}

/// A guest sees no IOMMU.
impl IommuGround for GuestGround {}
