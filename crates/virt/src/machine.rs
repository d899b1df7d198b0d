//! The parts of a virtual machine, and how they reach each other.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use engine::Handle;
use hardware::Fabric;
use hardware::root::LineController;
use kernel::{Ground, GuestMode, InterruptSink, Kernel, POSTED_VECTOR};
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::memory::PhysAddr;
use units::{Cycles, Duration, Frequency, Time};
use wire::pcie::IntxLine;
use wire::vtd::MsiMessage;

use crate::bus::Bus;
use crate::costs::VirtCosts;
use crate::exits::{Exit, ExitCounter};
use crate::function::GuestMessage;
use crate::interrupts::{self, InterruptSupport};
use crate::memory::GuestMemory;
use crate::params::VmParams;
use crate::vcpu::{Request, Vcpu};

/// Run state of a machine's vCPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Run guest code.
    Run,
    /// Paused.
    Pause,
    /// End for good.
    End,
}

/// The parts of a virtual machine and the connections between them.
pub struct Machine {
    pub hw: Handle<Fabric>,
    pub host: Rc<dyn Ground>,
    host_kernel: Weak<Kernel>,
    frequency: Frequency,
    pub costs: VirtCosts,
    pub memory: Rc<GuestMemory>,
    pub vcpus: Vec<Vcpu>,
    pub bus: Bus,
    pub exits: ExitCounter,
    pub wanted: Cell<Wanted>,
    /// The guest's kernel.
    guest: RefCell<Weak<Kernel>>,
    sink: RefCell<Option<InterruptSink>>,
    pub support: InterruptSupport,
    /// Interrupt controller for legacy lines.
    lines: RefCell<LineController>,
    /// Interrupts taken by the guest: from the hypervisor, and from the IOMMU.
    forwarded: Cell<u64>,
    posted: Cell<u64>,
}

impl Machine {
    /// With memory and vCPUs, on a host.
    pub fn new(
        hw: &Handle<Fabric>,
        host: &Rc<Kernel>,
        params: &VmParams,
        memory: Rc<GuestMemory>,
        vcpus: Vec<Vcpu>,
    ) -> Rc<Self> {
        let (exits, guest, sink, lines, forwarded, posted) = Default::default();
        let machine = Rc::new(Self {
            hw: hw.clone(),
            host: host.ground(),
            host_kernel: Rc::downgrade(host),
            frequency: params.kernel.core.frequency,
            costs: params.costs,
            memory,
            vcpus,
            bus: Bus::new(params.slots),
            exits,
            wanted: Cell::new(Wanted::Run),
            guest,
            sink,
            support: params.interrupts,
            lines,
            forwarded,
            posted,
        });
        let woken = Rc::downgrade(&machine);
        host.guest_interrupts().on_posted_wakeup(Rc::new(move |_| {
            if let Some(machine) = woken.upgrade() {
                machine.wake_posted();
            }
        }));
        machine
    }

    /// CPU time of a vCPU.
    pub fn clock(&self, number: usize) -> Time {
        let vcpu = &self.vcpus[number];
        if let Some((kernel, task)) = self.host_kernel.upgrade().zip(vcpu.task.get()) {
            let now = Time::ZERO + kernel.task_time(task, Part::User);
            vcpu.clock.set(now.max(vcpu.clock.get()));
        }
        vcpu.clock.get()
    }

    /// Attributes what a vCPU has polled to the host core that it has.
    pub fn note_polled(&self, number: usize) {
        if let Some(guest) = self.guest() {
            self.vcpus[number].note_polled(guest.core_times(CpuId(number as u16)).of(Part::Poll));
        }
    }

    /// As [`GuestMemory::translate`]. Accessing a page that is being moved causes an exit.
    pub fn translate(
        &self,
        core: CpuId,
        own: CpuId,
        now: Time,
        at: PhysAddr,
    ) -> (Time, Option<(PhysAddr, u64)>) {
        let before = self.memory.violations();
        let (now, place) = self.memory.translate(usize::from(core.0), own, now, at);
        if self.memory.violations() == before {
            return (now, place);
        }
        self.exits.count(Exit::Violation);
        (now + self.time_for(self.costs.exit), place)
    }

    /// Guest node of a vCPU: the one whose memory is local to its core.
    pub fn node_of(&self, vcpu: &Vcpu) -> Node {
        let host = self.host_kernel.upgrade().map(|kernel| kernel.face().node_of(vcpu.home()));
        let near = self.memory.ranges().iter().position(|ranges| {
            host.is_some() && ranges.first().and_then(|&(at, _)| self.memory.node_of(at)) == host
        });
        Node(near.unwrap_or(0) as u8)
    }

    /// A kernel has begun on it.
    pub fn runs(&self, kernel: &Rc<Kernel>) {
        *self.guest.borrow_mut() = Rc::downgrade(kernel);
    }

    /// The host's kernel.
    pub fn host_kernel(&self) -> Option<Rc<Kernel>> {
        self.host_kernel.upgrade()
    }

    /// Interrupts taken by the guest: from the hypervisor, and from the IOMMU.
    pub fn taken(&self) -> [u64; 2] {
        [self.forwarded.get(), self.posted.get()]
    }

    /// All is as before its kernel began, but for its memory.
    pub fn reset(&self) {
        self.bus.reset();
        self.lines.take();
        self.vcpus.iter().for_each(Vcpu::forget);
    }

    /// The current kernel.
    pub fn guest(&self) -> Option<Rc<Kernel>> {
        self.guest.borrow().upgrade()
    }

    /// A vCPU has entered the guest: resumes what waits for it.
    pub fn entered(&self, number: usize) {
        if let Some(kernel) = self.guest() {
            kernel.core_runs(CpuId(number as u16));
        }
    }

    /// Sets the receiver of the guest's interrupts.
    pub fn connect(&self, sink: Option<InterruptSink>) {
        *self.sink.borrow_mut() = sink;
    }

    /// Delivers an interrupt to a vCPU.
    pub fn deliver(&self, number: usize, vector: u8) {
        if let Some(sink) = &mut *self.sink.borrow_mut() {
            sink(number as u32, vector);
        }
    }

    /// The vCPU addressed by a message, or the first if there is no such vCPU.
    pub fn core_of(&self, message: GuestMessage) -> usize {
        Some(interrupts::core_of(message)).filter(|&core| core < self.vcpus.len()).unwrap_or(0)
    }

    /// Sends a message to the guest from the host's core `cpu`.
    pub fn send(self: &Rc<Self>, cpu: &Cpu, message: GuestMessage) {
        self.inject(cpu, interrupts::core_of(message), interrupts::vector_of(message));
    }

    /// Injects an interrupt into vCPU `number` from the host's core `cpu`.
    pub fn inject(self: &Rc<Self>, cpu: &Cpu, number: usize, vector: u8) {
        let Some(vcpu) = self.vcpus.get(number) else { return };
        let notification = vcpu.postbox.post(cpu, vector);
        if vcpu.is_halted() {
            return vcpu.kick();
        }
        // A vCPU in host mode on this core checks when it enters the guest.
        if vcpu.core() == cpu.id() {
            return if self.support == InterruptSupport::Software {
                vcpu.kick()
            };
        }
        if self.support == InterruptSupport::Software {
            // It runs on another core, which gets an IPI and leaves the guest.
            let (machine, arrives) = (Rc::clone(self), cpu.now() + self.time_for(self.costs.kick));
            self.hw.spawn(async move {
                machine.hw.sleep_until(arrives).await;
                machine.vcpus[number].kick();
            });
        } else if let Some((core, vector)) = notification
            && let Some(host) = self.host_kernel.upgrade()
        {
            host.guest_interrupts().send_vector(cpu, CpuId(core as u16), vector);
        }
    }

    /// Sets the legacy line that the function in a slot asserts, if any, from the host's core `cpu`.
    pub fn set_line(self: &Rc<Self>, cpu: &Cpu, slot: u8, line: Option<IntxLine>) {
        self.bus.set_line(slot, line);
        self.heed_lines(cpu);
    }

    /// Updates the interrupt controller's inputs.
    pub fn heed_lines(self: &Rc<Self>, cpu: &Cpu) {
        let sent = self.lines.borrow_mut().set_active(self.bus.lines());
        sent.for_each(|message| self.send_line(cpu, message));
    }

    /// Sets the message that a line sends while active, if any.
    pub fn program_line(self: &Rc<Self>, cpu: &Cpu, line: IntxLine, message: Option<MsiMessage>) {
        let sent = self.lines.borrow_mut().program(line, message);
        sent.into_iter().for_each(|message| self.send_line(cpu, message));
    }

    /// The guest has handled a line's interrupt: checks the functions' causes again.
    pub async fn end_line(self: &Rc<Self>, cpu: &Cpu, line: IntxLine) {
        for device in self.bus.on_line(line) {
            device.end_of_interrupt(cpu).await;
        }
        let sent = self.lines.borrow_mut().end(line);
        sent.into_iter().for_each(|message| self.send_line(cpu, message));
    }

    fn send_line(self: &Rc<Self>, cpu: &Cpu, MsiMessage { address, data }: MsiMessage) {
        self.send(cpu, GuestMessage { address, data });
    }

    /// Whether a core's vector belongs to a line, whose end the guest reports itself.
    pub fn is_line(&self, number: usize, vector: u8) -> bool {
        self.lines.borrow().sends(|MsiMessage { address, data }| {
            let message = GuestMessage { address, data };
            (interrupts::core_of(message), interrupts::vector_of(message)) == (number, vector)
        })
    }

    /// Takes all pending interrupts of a vCPU.
    pub fn take_posted(&self, number: usize) -> Vec<u8> {
        let taken = self.vcpus[number].postbox.take();
        let forwarded = taken.iter().filter(|(_, forwarded)| *forwarded).count() as u64;
        self.forwarded.set(self.forwarded.get() + forwarded);
        self.posted.set(self.posted.get() + taken.len() as u64 - forwarded);
        taken.into_iter().map(|(vector, _)| vector).collect()
    }

    /// A vCPU enters or leaves the guest on a host core.
    pub fn set_guest(self: &Rc<Self>, number: usize, core: CpuId, inside: bool) {
        if let Some(host) = self.host_kernel.upgrade() {
            let mode = || -> Rc<dyn GuestMode> { Rc::new(InGuest(Rc::downgrade(self), number)) };
            let mode = self.vcpus[number].mode.get_or_init(mode);
            host.guest_interrupts().set_guest(core, inside.then(|| Rc::clone(mode)));
        }
    }

    /// An interrupt was posted for a vCPU that has released its core.
    fn wake_posted(&self) {
        let waits = |vcpu: &&Vcpu| vcpu.is_halted() && vcpu.postbox.is_pending();
        self.vcpus.iter().filter(waits).for_each(Vcpu::kick);
    }

    /// Exits to the hypervisor's kernel part for `work`.
    pub fn call(&self, core: CpuId, exit: Exit, work: impl FnOnce(&Cpu) + 'static) -> engine::Completion<()> {
        let (completer, answer) = engine::oneshot();
        let work = Box::new(move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move {
                work(&cpu);
                completer.complete(());
            })
        });
        self.vcpus[usize::from(core.0)].ask(Request { exit, work });
        answer
    }

    /// Duration of cycles of the host's cores.
    fn time_for(&self, cycles: u64) -> Duration {
        self.frequency.time_for(Cycles::new(cycles))
    }
}

/// A guest's interrupt controller, for devices that send messages.
#[derive(Clone)]
pub struct GuestInterrupts(Weak<Machine>);

impl GuestInterrupts {
    pub(crate) fn new(machine: &Rc<Machine>) -> Self {
        Self(Rc::downgrade(machine))
    }

    /// Sends a message from a core of the host, which interrupts the vCPU that it names.
    pub fn send(&self, cpu: &Cpu, message: GuestMessage) {
        if let Some(machine) = self.0.upgrade() {
            machine.send(cpu, message);
        }
    }
}

/// A vCPU in guest mode, as its host core sees it.
pub struct InGuest(pub Weak<Machine>, pub usize);

impl GuestMode for InGuest {
    fn interrupt(&self, vector: u8) -> bool {
        let Some(machine) = self.0.upgrade() else { return false };
        if vector == POSTED_VECTOR && machine.support != InterruptSupport::Software {
            machine.vcpus[self.1].note_posted();
            return true;
        }
        machine.vcpus[self.1].leave();
        false
    }
}
