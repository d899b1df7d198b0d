//! A virtual machine.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use engine::Handle;
use hardware::Fabric;
use hardware::root::LineController;
use kernel::{Ground, GuestMode, InterruptSink, Kernel, KernelParams};
use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::kernel::{TaskId, TaskParams};
use platform::memory::{Pages, PhysAddr, Policy};
use platform::pci::PciDevice;
use platform::sync::Completion;
use units::{Bytes, Cycles, Duration, Frequency, Time};
use wire::pcie::{FunctionAddress, IntxLine};
use wire::vtd::{MsiMessage, PostedDescriptor};

use crate::bus::{Bus, GuestDevice};
use crate::costs::VirtCosts;
use crate::exits::{Exit, ExitCounter, Exits};
use crate::function::GuestMessage;
use crate::ground::GuestGround;
use crate::interrupts::{self, GuestInterrupts, InterruptSupport, Postbox};
use crate::memory::{GuestMemory, GuestNode};
use crate::vcpu::{InGuest, Request, Vcpu, Watcher};
use crate::vfio::{Assigned, Change, Container, HostFunction, Vfio, VfioDevice};

/// Parameters of a virtual machine.
#[derive(Clone, Debug)]
pub struct VmParams {
    /// Name prefix of its tasks.
    pub name: String,
    /// For each vCPU, the host cores that it may use.
    pub vcpus: Vec<Vec<CpuId>>,
    /// Memory by node.
    pub nodes: Vec<GuestNode>,
    /// Empty slots for hot-plug.
    pub slots: u8,
    /// Limit of memory pinned for devices (Linux: `RLIMIT_MEMLOCK`); all of it if `None`.
    pub pin_limit: Option<Bytes>,
    /// Hardware support for its interrupts.
    pub interrupts: InterruptSupport,
    /// CPU costs of exits.
    pub costs: VirtCosts,
    /// Boot parameters of its kernel.
    pub kernel: KernelParams,
}

/// Why a virtual machine cannot be created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VmError {
    /// The node lacks the memory.
    Memory(Error),
    /// A function cannot be passed through. Without an IOMMU that is on, it could access all of the host's
    /// memory.
    Function(FunctionAddress, Error),
}

impl std::fmt::Display for VmError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory(error) => write!(f, "cannot allocate its memory: {error}"),
            Self::Function(at, Error::NotSupported) => {
                write!(f, "{at} cannot be passed through: the host's IOMMU is off")
            }
            Self::Function(at, Error::Busy) => {
                write!(f, "{at} cannot be passed through: its IOMMU group is in use")
            }
            Self::Function(at, error) => write!(f, "{at} cannot be passed through: {error}"),
        }
    }
}

impl std::error::Error for VmError {}

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
    /// Memory of the posted-interrupt descriptors.
    postboxes: Pages,
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

    /// Creates a kernel on the machine.
    fn boot(self: &Rc<Self>, params: &KernelParams) -> Rc<Kernel> {
        let kernel = Rc::new(Kernel::on(&self.hw, Rc::new(GuestGround(Rc::clone(self))), params.clone()));
        *self.guest.borrow_mut() = Rc::downgrade(&kernel);
        kernel
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
    fn heed_lines(self: &Rc<Self>, cpu: &Cpu) {
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

/// Action after a guest has ended.
type End = Rc<dyn for<'a> Fn(&'a Cpu) -> Async<'a, ()>>;

/// A virtual machine.
pub struct Vm {
    machine: Rc<Machine>,
    kernel: RefCell<Rc<Kernel>>,
    params: KernelParams,
    container: Rc<Container>,
    /// Slots of passed-through functions; `None` if the function is gone.
    slots: RefCell<BTreeMap<FunctionAddress, Option<u8>>>,
    /// Actions after the guest has ended.
    told: RefCell<Vec<End>>,
}

impl Vm {
    /// Creates a virtual machine in a task of a booted host, with functions claimed by [`Vfio`](crate::Vfio). Its
    /// kernel has no drivers and still has to be booted. The task goes on even if the future is dropped.
    ///
    /// # Errors
    /// [`VmError`].
    pub fn start(
        hw: &Handle<Fabric>,
        host: &Rc<Kernel>,
        params: VmParams,
        functions: Vec<PciDevice>,
    ) -> impl Future<Output = Result<Rc<Self>, VmError>> + use<> {
        let cpus = params.vcpus.iter().flatten().copied().collect();
        let hw = hw.clone();
        let emulator = TaskParams { cpus, ..TaskParams::named(format!("qemu-{}", params.name)) };
        in_task(host, emulator, async move |host: Rc<Kernel>, cpu: &Cpu| {
            Self::build(&hw, &host, cpu, params, functions).await
        })
    }

    async fn build(
        hw: &Handle<Fabric>,
        host: &Rc<Kernel>,
        cpu: &Cpu,
        params: VmParams,
        functions: Vec<PciDevice>,
    ) -> Result<Rc<Self>, VmError> {
        let memory = GuestMemory::new(host, cpu, &params.nodes, params.vcpus.len(), params.pin_limit);
        let memory = Rc::new(memory.map_err(VmError::Memory)?);
        let postboxes = (params.vcpus.len() * PostedDescriptor::BYTES) as u64;
        let node = params.nodes.first().map_or(Node(0), |node| node.host);
        let postboxes =
            host.face().alloc_pages(cpu, Pages::order_for(postboxes.max(1)), Policy::Preferred(node));
        let postboxes = postboxes.map_err(VmError::Memory)?;
        let ground = host.ground();
        let vcpu = |(n, cpus): (usize, &Vec<CpuId>)| {
            let at = postboxes.start + (n * PostedDescriptor::BYTES) as u64;
            Vcpu::new(cpus.first().copied().unwrap_or(CpuId(0)), Postbox::new(at, &ground))
        };
        let machine = Rc::new(Machine {
            hw: hw.clone(),
            host: Rc::clone(&ground),
            host_kernel: Rc::downgrade(host),
            frequency: params.kernel.core.frequency,
            costs: params.costs,
            memory: Rc::clone(&memory),
            vcpus: params.vcpus.iter().enumerate().map(vcpu).collect(),
            postboxes,
            bus: Bus::new(params.slots),
            exits: ExitCounter::default(),
            wanted: Cell::new(Wanted::Run),
            guest: RefCell::default(),
            sink: RefCell::default(),
            support: params.interrupts,
            lines: RefCell::default(),
            forwarded: Cell::new(0),
            posted: Cell::new(0),
        });
        let woken = Rc::downgrade(&machine);
        host.guest_interrupts().on_posted_wakeup(Rc::new(move |_| {
            if let Some(machine) = woken.upgrade() {
                machine.wake_posted();
            }
        }));
        let container = Container::new(host, &memory);
        let kernel = machine.boot(&params.kernel);
        let vm = Rc::new(Self {
            machine,
            kernel: RefCell::new(kernel),
            params: params.kernel,
            container,
            slots: RefCell::default(),
            told: RefCell::default(),
        });
        for device in functions {
            let at = device.address();
            if let Err(error) = vm.pass_through(cpu, device).await {
                vm.close(cpu).await;
                return Err(VmError::Function(at, error));
            }
        }
        for (n, cpus) in params.vcpus.into_iter().enumerate() {
            let task = TaskParams { cpus, ..TaskParams::named(format!("{}-vcpu{n}", params.name)) };
            let own = Rc::clone(&vm.machine);
            let id = host.spawn(task, move |cpu| Box::pin(Vcpu::run(own, n, cpu)));
            hw.spawn(Vcpu::serve_posted(Rc::downgrade(&vm.machine), n));
            host.watch_task(id, Rc::new(Watcher(Rc::downgrade(&vm.machine), n)));
            vm.machine.vcpus[n].task.set(Some(id));
        }
        Ok(vm)
    }

    /// Passes a function claimed by [`Vfio`](crate::Vfio) through to the guest, and returns its slot. Its requests
    /// access the guest's memory at guest addresses, and its interrupts go to the guest.
    ///
    /// # Errors
    /// [`Error::NotSupported`] without an IOMMU that is on, [`Error::Busy`] if its group is in use elsewhere,
    /// [`Error::NoMemory`] if the guest's memory cannot be pinned, [`Error::NoSpace`] if the guest's bus is full.
    pub async fn pass_through(&self, cpu: &Cpu, device: PciDevice) -> Result<u8, Error> {
        let at = device.address();
        let device = HostFunction::open(cpu, &self.container, device, self.machine.costs.eventfd)?;
        let slot = self.assign(cpu, device).await?;
        self.slots.borrow_mut().insert(at, Some(slot));
        Ok(slot)
    }

    /// Unplugs functions that are removed from the host, and plugs them in again when they come back.
    pub fn follow(self: &Rc<Self>, vfio: &Vfio) {
        let vm = Rc::downgrade(self);
        vfio.on_change(Box::new(move |cpu, change| {
            let vm = vm.upgrade().filter(|vm| vm.machine.wanted.get() != Wanted::End);
            Box::pin(async move {
                if let Some(vm) = vm {
                    vm.changed(&cpu, change).await;
                }
            })
        }));
    }

    async fn changed(&self, cpu: &Cpu, change: Change) {
        match change {
            Change::Removed(at) => {
                let slot = self.slots.borrow_mut().get_mut(&at).and_then(Option::take);
                if let Some(slot) = slot {
                    // It was plugged in, unless the guest was killed meanwhile.
                    let _ = self.unplug(cpu, slot).await;
                }
            }
            Change::Claimed(device) => {
                let is_missing = self.slots.borrow().get(&device.address()) == Some(&None);
                if is_missing {
                    // If it cannot be passed through, it stays with the host.
                    let _ = self.pass_through(cpu, device).await;
                }
            }
        }
    }

    /// Plugs in a mediated function, and returns its slot.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if its registers are inconsistent, [`Error::NoSpace`] if the guest's bus is full.
    pub async fn assign(&self, cpu: &Cpu, device: Rc<dyn VfioDevice>) -> Result<u8, Error> {
        // Reset it before the guest finds it, as QEMU does. A function that cannot be reset on its own is taken as it
        // is.
        let assigned = match device.reset(cpu).await {
            Ok(()) | Err(Error::NotSupported) => Assigned::new(cpu, &self.machine, Rc::clone(&device)).await,
            Err(error) => Err(error),
        };
        let at = assigned.and_then(|assigned| self.plug(cpu, assigned));
        if at.is_err() {
            device.close(cpu).await;
        }
        at
    }

    /// As [`assign`](Self::assign), in a task of the host that goes on even if the future is dropped. The function is
    /// unplugged if it is lost.
    pub fn add(
        self: &Rc<Self>,
        device: Rc<dyn VfioDevice>,
    ) -> impl Future<Output = Result<u8, Error>> + use<> {
        let vm = Rc::clone(self);
        self.in_task("add", async move |_, cpu: &Cpu| {
            let slot = vm.assign(cpu, Rc::clone(&device)).await?;
            let had = Rc::downgrade(&vm);
            device.on_loss(Box::new(move || {
                if let Some(vm) = had.upgrade().filter(|vm| vm.machine.wanted.get() != Wanted::End) {
                    drop(vm.remove(slot));
                }
            }));
            Ok(slot)
        })
    }

    /// As [`unplug`](Self::unplug), in a task of the host.
    pub fn remove(self: &Rc<Self>, slot: u8) -> impl Future<Output = Result<(), Error>> + use<> {
        let vm = Rc::clone(self);
        self.in_task("remove", async move |_, cpu: &Cpu| vm.unplug(cpu, slot).await)
    }

    /// Plugs any function into an empty slot, returns the slot and notifies the guest. If all are occupied, adds a
    /// slot, which the guest finds at its next boot.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the bus is full.
    pub fn plug(&self, cpu: &Cpu, device: Rc<dyn GuestDevice>) -> Result<u8, Error> {
        let (slot, message) = self.machine.bus.plug(device)?;
        if let Some(message) = message {
            self.machine.send(cpu, message);
        }
        Ok(slot)
    }

    /// Unplugs the function in a slot without asking the guest, and notifies the guest.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if the slot is empty.
    pub async fn unplug(&self, cpu: &Cpu, slot: u8) -> Result<(), Error> {
        let (device, message) = self.machine.bus.unplug(slot).ok_or(Error::NoDevice)?;
        self.machine.heed_lines(cpu);
        device.close(cpu).await;
        if let Some(message) = message {
            self.machine.send(cpu, message);
        }
        Ok(())
    }

    /// How long its vCPUs have polled, by the host cores that they did on.
    pub fn polled(&self) -> Vec<(CpuId, Duration)> {
        let machine = &self.machine;
        (0..machine.vcpus.len()).for_each(|number| machine.note_polled(number));
        machine.vcpus.iter().flat_map(|vcpu| vcpu.polled()).collect()
    }

    /// The guest's kernel.
    pub fn kernel(&self) -> Rc<Kernel> {
        Rc::clone(&self.kernel.borrow())
    }

    /// State shared with the host's part of its devices.
    pub(crate) fn machine(&self) -> &Rc<Machine> {
        &self.machine
    }

    /// Host tasks of its vCPUs.
    pub fn tasks(&self) -> Vec<TaskId> {
        self.machine.vcpus.iter().filter_map(|vcpu| vcpu.task.get()).collect()
    }

    /// Moves its vCPUs to these host cores, and its memory to a node, page by page.
    ///
    /// # Errors
    /// As of [`GuestMemory::move_page`]; pages that were moved stay there.
    pub async fn move_to(&self, cpu: &Cpu, cores: &[CpuId], node: Node) -> Result<(), Error> {
        const LARGE: usize = 2 << 20;
        let host = self.machine.host_kernel.upgrade().ok_or(Error::NoDevice)?;
        for task in self.tasks() {
            host.face().set_affinity(task, cores)?;
        }
        for (start, length) in self.memory().ranges().into_iter().flatten() {
            for offset in (0..length).step_by(LARGE) {
                if self.memory().node_of(start + offset) != Some(node) {
                    self.memory().move_page(cpu, start + offset, node)?;
                    cpu.sync().await;
                }
            }
        }
        Ok(())
    }

    /// The guest's memory.
    pub fn memory(&self) -> &Rc<GuestMemory> {
        &self.machine.memory
    }

    /// CPU costs of its hypervisor.
    pub fn costs(&self) -> VirtCosts {
        self.machine.costs
    }

    /// Receiver of messages to the guest.
    pub fn interrupts(&self) -> GuestInterrupts {
        GuestInterrupts::new(&self.machine)
    }

    /// Exits by cause.
    pub fn exits(&self) -> Exits {
        self.machine.exits.get()
    }

    /// Interrupts injected by the hypervisor.
    pub fn interrupts_forwarded(&self) -> u64 {
        self.machine.forwarded.get()
    }

    /// Device interrupts posted without the host.
    pub fn interrupts_posted(&self) -> u64 {
        self.machine.posted.get()
    }

    /// Steal time of all vCPUs.
    pub fn stolen(&self) -> Duration {
        self.machine.vcpus.iter().map(Vcpu::stolen).sum()
    }

    /// Requests of its functions that were blocked.
    pub fn dma_faults(&self) -> u64 {
        self.container.faults()
    }

    /// Pauses all vCPUs. Interrupts stay pending.
    pub fn pause(&self) {
        self.want(Wanted::Pause);
    }

    /// Resumes all vCPUs.
    pub fn resume(&self) {
        self.want(Wanted::Run);
    }

    fn want(&self, wanted: Wanted) {
        if self.machine.wanted.get() != Wanted::End {
            self.machine.wanted.set(wanted);
            self.machine.vcpus.iter().for_each(Vcpu::kick);
        }
    }

    /// Ends it at once, like killing its process: resets and detaches its functions, and frees its memory. The task
    /// goes on even if the future is dropped.
    pub fn kill(self: &Rc<Self>) -> impl Future<Output = ()> + use<> {
        self.want(Wanted::End);
        self.kernel().halt();
        let vm = Rc::clone(self);
        self.in_task("kill", async move |_, cpu: &Cpu| {
            for vcpu in &vm.machine.vcpus {
                vcpu.ended.wait().await;
            }
            vm.close(cpu).await;
        })
    }

    /// Resets it: its functions are reset, its memory is kept, and it gets a new kernel without drivers that still
    /// has to be booted. The task goes on even if the future is dropped.
    pub fn reset(self: &Rc<Self>) -> impl Future<Output = ()> + use<> {
        self.kernel().halt();
        self.machine.vcpus.iter().for_each(Vcpu::forget);
        let vm = Rc::clone(self);
        self.in_task("reset", async move |_, cpu: &Cpu| {
            vm.tell_end(cpu).await;
            for device in vm.machine.bus.devices() {
                device.reset(cpu).await;
            }
            vm.machine.bus.reset();
            vm.machine.lines.take();
            vm.machine.vcpus.iter().for_each(Vcpu::forget);
            vm.kernel.replace(vm.machine.boot(&vm.params));
        })
    }

    /// Adds an action for when the guest is killed or reset; by then, its memory must not be accessed.
    pub(crate) fn at_end(&self, end: impl for<'a> Fn(&'a Cpu) -> Async<'a, ()> + 'static) {
        self.told.borrow_mut().push(Rc::new(end));
    }

    async fn tell_end(&self, cpu: &Cpu) {
        let told = self.told.borrow().clone();
        for end in told {
            end(cpu).await;
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.machine.wanted.get() == Wanted::End
    }

    async fn close(&self, cpu: &Cpu) {
        self.tell_end(cpu).await;
        for device in self.machine.bus.devices() {
            device.close(cpu).await;
        }
        self.machine.memory.close(cpu);
        if let Some(host) = self.machine.host_kernel.upgrade() {
            host.face().free_pages(cpu, self.machine.postboxes);
        }
    }

    fn in_task<T: 'static, W>(&self, what: &str, work: W) -> impl Future<Output = T> + use<T, W>
    where
        W: AsyncFnOnce(Rc<Kernel>, &Cpu) -> T + 'static,
    {
        let host = self.machine.host_kernel.upgrade().expect("a guest does not outlive its host");
        in_task(&host, TaskParams::named(format!("qemu-{what}")), work)
    }
}

/// Runs `work` in a task of a host; the future resolves to its result.
fn in_task<T: 'static, W>(host: &Rc<Kernel>, task: TaskParams, work: W) -> impl Future<Output = T> + use<T, W>
where
    W: AsyncFnOnce(Rc<Kernel>, &Cpu) -> T + 'static,
{
    let done = Completion::new();
    let (told, kernel) = (done.clone(), Rc::downgrade(host));
    host.spawn(task, move |cpu| {
        Box::pin(async move {
            let _part = cpu.book(Part::Virt);
            let Some(host) = kernel.upgrade() else { return };
            told.complete(work(host, &cpu).await);
        })
    });
    async move { done.wait().await }
}
