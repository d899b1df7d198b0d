//! The ground of a guest's kernel: a virtual machine.

use std::rc::Rc;

use engine::{Completion, oneshot};
use hardware::root::IO_APIC;
use kernel::{
    CoreClocks, DeviceGround, Ground, InterruptSink, Inventory, IommuGround, LineGround, MemoryGround, Swept,
};
use platform::cpu::{Async, Cpu, CpuId, Node, StoreMark, Sweep};
use platform::memory::PhysAddr;
use platform::mmio::Store;
use units::{Duration, Time};
use wire::pcie::{Bdf, IntxLine};
use wire::vtd::MsiMessage;

use crate::bus::{Found, Target};
use crate::exits::Exit;
use crate::machine::Machine;
use crate::vcpu::{Request, Vcpu};

/// What a guest's kernel stands on: the host's cores and memory, translated, with exits to the hypervisor.
pub struct GuestGround(pub Rc<Machine>);

impl GuestGround {
    fn vcpu(&self, core: CpuId) -> &Vcpu {
        &self.0.vcpus[usize::from(core.0)]
    }

    /// Calls `access` for each contiguous part of a range: offset in the range, host core, time, host address,
    /// length. Returns `false` at the first part that is not memory, without accessing it.
    fn pieces(
        &self,
        core: CpuId,
        mut now: Time,
        at: PhysAddr,
        length: u64,
        mut access: impl FnMut(usize, CpuId, Time, PhysAddr, u64) -> Time,
    ) -> (Time, bool) {
        let own = self.vcpu(core).core();
        let mut done = 0;
        while done < length {
            let place;
            (now, place) = self.0.translate(core, own, now, at + done);
            let Some((place, room)) = place else { return (now, false) };
            let piece = room.min(length - done);
            now = access(done as usize, own, now, place, piece);
            done += piece;
        }
        (now, true)
    }

    /// Causes an exit, with the hypervisor's `work`.
    fn ask(
        &self,
        core: CpuId,
        exit: Exit,
        in_user_space: bool,
        work: impl AsyncFnOnce(&Cpu) -> Vec<u8> + 'static,
    ) -> Completion<Vec<u8>> {
        let (completer, answer) = oneshot();
        let emulate = if in_user_space { self.0.costs.emulate } else { 0 };
        let work = Box::new(move |cpu: Cpu| -> Async<'static, ()> {
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
        let cores = self.0.vcpus.iter().map(|vcpu| self.0.node_of(vcpu)).collect();
        Inventory { cores, memory: self.0.memory.ranges() }
    }

    fn connect_interrupts(&self, sink: Option<InterruptSink>) {
        self.0.connect(sink);
    }

    fn core_clocks(&self) -> Option<&dyn CoreClocks> {
        Some(self)
    }
}

impl CoreClocks for GuestGround {
    fn clock(&self, core: CpuId) -> Time {
        self.0.clock(usize::from(core.0))
    }

    fn runs(&self, core: CpuId) -> bool {
        self.vcpu(core).is_in_guest()
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

    fn sweep(&self, core: CpuId, now: Time, arrays: Sweep<'_>, step: Duration) -> Swept {
        let host = &self.0.host;
        let mut loaded = now;
        let mut from = Vec::with_capacity(arrays.from.len());
        let Some(first) = arrays.to.or(arrays.from.first().copied()) else {
            return Swept { issued: now, loaded };
        };
        let pieces = self.pieces(core, now, first, arrays.length, |offset, own, mut now, place, piece| {
            let mut done = 0;
            while done < piece {
                let mut length = piece - done;
                from.clear();
                for &source in arrays.from {
                    let place;
                    (now, place) = self.0.translate(core, own, now, source + (offset as u64 + done));
                    let Some((place, room)) = place else { return now };
                    length = length.min(room);
                    from.push(place);
                }
                let to = arrays.to.map(|_| place + done);
                let part = host.sweep(own, now, Sweep { to, from: &from, length, ..arrays }, step);
                now = part.issued;
                loaded = loaded.max(part.loaded);
                done += length;
            }
            now
        });
        Swept { issued: pieces.0, loaded: loaded.max(pieces.0) }
    }

    fn complete(&self, core: CpuId, swept: Swept) -> Time {
        self.0.host.complete(self.vcpu(core).core(), swept)
    }

    fn gather(&self, core: CpuId, now: Time, places: &[PhysAddr], step: Duration) -> Time {
        let own = self.vcpu(core).core();
        let mut when = now;
        let mut translated = Vec::with_capacity(places.len());
        for &place in places {
            let place = self.0.translate(core, own, when, place);
            when = place.0;
            translated.extend(place.1.map(|(place, _)| place));
        }
        self.0.host.gather(own, when, &translated, step)
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
        self.0.memory.is_memory(at, length)
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
    /// Contiguous parts of a memory range: offset, host address, length.
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
        match self.0.bus.target(PhysAddr(address), bytes.len() as u64) {
            Some(Target::Host(at)) => host.store_to_device(
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
            _ if matches!(store, Store::Flush(_)) => {}
            Some(Target::Hypervisor(device, bar, offset)) => {
                let (bytes, in_user_space) = (bytes.to_vec(), !device.is_kernels(bar, offset));
                drop(self.ask(core, Exit::Mmio, in_user_space, async move |cpu| {
                    device.write(cpu, bar, offset, &bytes).await;
                    Vec::new()
                }));
            }
            None => drop(self.ask(core, Exit::Unmapped, true, async move |_| Vec::new())),
        }
    }

    fn store_mark(&self, core: CpuId, when: Time) -> StoreMark {
        self.0.host.store_mark(self.vcpu(core).core(), when)
    }

    fn uncached_accepted_by(&self, core: CpuId, when: Time) -> Time {
        self.0.host.uncached_accepted_by(self.vcpu(core).core(), when)
    }

    fn follow_stores(&self, core: CpuId, when: Time, (other, mark): (CpuId, StoreMark)) -> Time {
        let (own, other) = (self.vcpu(core).core(), self.vcpu(other).core());
        // A vCPU that moved to this core meanwhile has no stores in the old core.
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
        match self.0.bus.target(at, length as u64) {
            Some(Target::Host(at)) => self.0.host.read_device(self.vcpu(core).core(), at, length),
            Some(Target::Hypervisor(device, bar, offset)) => {
                let in_user_space = !device.is_kernels(bar, offset);
                Some(self.ask(core, Exit::Mmio, in_user_space, async move |cpu| {
                    let mut bytes = vec![0xff; length];
                    device.read(cpu, bar, offset, &mut bytes).await;
                    bytes
                }))
            }
            None => Some(self.ask(core, Exit::Unmapped, true, async move |_| vec![0xff; length])),
        }
    }

    fn config_read(&self, core: CpuId, function: Bdf, register: u16) -> Completion<Vec<u8>> {
        let found = self.0.bus.find(function);
        self.ask(core, Exit::Config, true, async move |cpu| {
            let value = match found {
                Some(Found::Port(_, port)) => port.config_read(register),
                Some(Found::Device(_, device)) => device.config_read(cpu, register).await,
                None => u32::MAX,
            };
            value.to_le_bytes().to_vec()
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
        let machine = Rc::clone(&self.0);
        self.ask(core, Exit::Config, true, async move |cpu| {
            match machine.bus.find(function) {
                Some(Found::Port(slot, port)) => {
                    if let Some(message) = port.config_write(cpu, register, value, enables).await {
                        machine.send(cpu, message);
                    }
                    machine.bus.remap(slot);
                }
                Some(Found::Device(slot, device)) => {
                    device.config_write(cpu, register, value, enables).await;
                    machine.bus.remap(slot);
                }
                None => {}
            }
            Vec::new()
        })
    }

    fn node_of_port(&self, _: Bdf) -> Option<Node> {
        Some(Node(0))
    }

    fn has_way(&self, _: Bdf, at: PhysAddr, length: u64) -> bool {
        self.0.bus.is_registers(at, length)
    }
}

impl LineGround for GuestGround {
    fn line_source(&self) -> Option<Bdf> {
        Some(IO_APIC)
    }

    fn set_line(&self, core: CpuId, line: IntxLine, message: Option<(u64, u32)>) {
        let message = message.map(|(address, data)| MsiMessage { address, data });
        let machine = Rc::clone(&self.0);
        drop(self.ask(core, Exit::Mmio, false, async move |cpu| {
            machine.program_line(cpu, line, message);
            Vec::new()
        }));
    }

    fn end_line(&self, core: CpuId, line: IntxLine) {
        let machine = Rc::clone(&self.0);
        drop(self.ask(core, Exit::EndOfInterrupt, false, async move |cpu| {
            machine.end_line(cpu, line).await;
            Vec::new()
        }));
    }
}

/// Guests have no IOMMU.
impl IommuGround for GuestGround {}
