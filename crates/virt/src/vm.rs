//! A virtual machine.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use engine::Handle;
use hardware::Fabric;
use kernel::{Kernel, KernelParams};
use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::kernel::{TaskId, TaskParams};
use platform::memory::{Pages, Policy};
use platform::pci::PciDevice;
use platform::sync::Completion;
use units::Duration;
use wire::pcie::FunctionAddress;
use wire::vtd::PostedDescriptor;

use crate::bus::GuestDevice;
use crate::costs::VirtCosts;
use crate::exits::Exits;
use crate::ground::GuestGround;
use crate::interrupts::Postbox;
use crate::machine::{GuestInterrupts, Machine, Wanted};
use crate::memory::GuestMemory;
use crate::params::{VmError, VmParams};
use crate::vcpu::Vcpu;
use crate::vcpu::running::Watcher;
use crate::vfio::{Assigned, Change, Container, HostFunction, Vfio, VfioDevice};

/// Action after a guest has ended.
type End = Rc<dyn for<'a> Fn(&'a Cpu) -> Async<'a, ()>>;

/// A virtual machine.
pub struct Vm {
    machine: Rc<Machine>,
    kernel: RefCell<Rc<Kernel>>,
    params: KernelParams,
    /// Memory of the posted-interrupt descriptors.
    postboxes: Pages,
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
        let vcpus = params.vcpus.iter().enumerate().map(vcpu).collect();
        let machine = Machine::new(hw, host, &params, Rc::clone(&memory), vcpus);
        let container = Container::new(host, &memory);
        let kernel = boot(&machine, &params.kernel);
        let vm = Rc::new(Self {
            machine,
            kernel: RefCell::new(kernel),
            params: params.kernel,
            postboxes,
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
        let host = self.machine.host_kernel().ok_or(Error::NoDevice)?;
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
        self.machine.taken()[0]
    }

    /// Device interrupts posted without the host.
    pub fn interrupts_posted(&self) -> u64 {
        self.machine.taken()[1]
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
            vm.machine.reset();
            vm.kernel.replace(boot(&vm.machine, &vm.params));
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
        if let Some(host) = self.machine.host_kernel() {
            host.face().free_pages(cpu, self.postboxes);
        }
    }

    fn in_task<T: 'static, W>(&self, what: &str, work: W) -> impl Future<Output = T> + use<T, W>
    where
        W: AsyncFnOnce(Rc<Kernel>, &Cpu) -> T + 'static,
    {
        let host = self.machine.host_kernel().expect("a guest does not outlive its host");
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

/// Creates a kernel on a machine.
fn boot(machine: &Rc<Machine>, params: &KernelParams) -> Rc<Kernel> {
    let ground = Rc::new(GuestGround(Rc::clone(machine)));
    let kernel = Rc::new(Kernel::on(&machine.hw, ground, params.clone()));
    machine.runs(&kernel);
    kernel
}
