//! The task of the host that measures loads and does what was decided.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use kernel::Kernel;
use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::kernel::{TaskId, TaskParams};
use units::{Bytes, Duration, Time};

use super::{Action, Capacity, DeviceId, DeviceLoad, Loads, Scheduler, VmId, VmIo, VmLoad};
use crate::vm::Vm;

/// Cycles to look at a task's time, and to decide about one (assumed: a list that is walked).
const LOOK: u64 = 200;
/// Periods for which a machine is left where it is that could not be moved (assumed).
const PATIENCE: u64 = 100;

/// The I/O threads of a device of the host, by which virtual machines reach what is behind it.
pub trait IoThreads {
    /// The nodes to which the device is local; none if it has gone.
    fn nodes(&self) -> Vec<Node>;

    /// By thread: its task, and the node of its queues' rings.
    fn threads(&self) -> Vec<(TaskId, Node)>;

    /// Lets a thread run on these cores only, and the interrupt of its queues arrive there.
    ///
    /// # Errors
    /// As of the kernel.
    fn pin<'a>(&'a self, cpu: &'a Cpu, thread: usize, cpus: &'a [CpuId]) -> Async<'a, Result<(), Error>>;
}

/// What a virtual machine has of I/O threads.
pub trait Client {
    /// The thread that serves it.
    fn thread(&self) -> usize;

    /// Packets or requests that have passed.
    fn passed(&self) -> u64;

    /// Lets another thread serve it from now on.
    ///
    /// # Errors
    /// [`Error::Busy`] as long as it changes from one to another, [`Error::Invalid`] if there is no such thread.
    fn serve_by(&self, cpu: &Cpu, thread: usize) -> Result<(), Error>;

    /// The machine's memory is about to move: the device leaves it alone when this is done.
    fn hold(&self) -> Async<'_, ()> {
        Box::pin(async {})
    }

    /// It has moved.
    fn go_on(&self, _: &Cpu) {}
}

/// A virtual machine that is managed.
pub struct Managed {
    /// The machine.
    pub vm: Rc<Vm>,
    /// What would have to be copied if it moved.
    pub memory: Bytes,
    /// Where it is.
    pub home: Cell<Node>,
    /// What it has of I/O threads: the device's number and, in `seen`, packets when it was looked at last.
    pub io: Vec<(usize, Rc<dyn Client>)>,
    seen: RefCell<Vec<u64>>,
    /// Time of its vCPUs then.
    busy: Cell<Duration>,
    /// It is on its way to its home.
    moving: Cell<bool>,
    /// The period before which it is not tried to be moved again.
    stays_until: Cell<u64>,
}

impl Managed {
    /// A virtual machine at home at a node.
    pub fn new(vm: Rc<Vm>, memory: Bytes, home: Node, io: Vec<(usize, Rc<dyn Client>)>) -> Self {
        Self {
            vm,
            memory,
            home: Cell::new(home),
            seen: RefCell::new(vec![0; io.len()]),
            io,
            busy: Cell::default(),
            moving: Cell::new(false),
            stays_until: Cell::new(0),
        }
    }
}

/// What the manager has seen and done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// How often it has looked.
    pub periods: u64,
    /// Changes of a mode.
    pub switches: u64,
    /// Virtual machines that were moved.
    pub moves: u64,
    /// Moves that were not possible.
    pub refused: u64,
}

/// The manager of a host's virtual machines.
pub struct Manager {
    me: Weak<Self>,
    kernel: Weak<Kernel>,
    devices: Vec<Rc<dyn IoThreads>>,
    vms: RefCell<BTreeMap<VmId, Rc<Managed>>>,
    scheduler: RefCell<Scheduler>,
    period: Duration,
    /// By device and I/O thread: time when it was looked at last.
    seen: RefCell<Vec<Vec<Duration>>>,
    /// By core: time that interrupts had taken then.
    interrupts: RefCell<Vec<Duration>>,
    /// When all was looked at last.
    looked: Cell<Time>,
    done: Cell<Done>,
}

impl Manager {
    /// Begins to manage virtual machines and the I/O threads of devices. What `scheduler` says at first is done in the first period.
    pub fn start(
        kernel: &Rc<Kernel>,
        devices: Vec<Rc<dyn IoThreads>>,
        vms: Vec<Managed>,
        scheduler: Scheduler,
        period: Duration,
    ) -> Rc<Self> {
        let manager = Rc::new_cyclic(|me| Self {
            me: me.clone(),
            kernel: Rc::downgrade(kernel),
            seen: RefCell::new(
                devices.iter().map(|device| vec![Duration::ZERO; device.threads().len()]).collect(),
            ),
            devices,
            vms: RefCell::new((0..).map(VmId).zip(vms.into_iter().map(Rc::new)).collect()),
            scheduler: RefCell::new(scheduler),
            period,
            interrupts: RefCell::new(vec![Duration::ZERO; kernel.face().cpus().into()]),
            looked: Cell::new(Time::ZERO),
            done: Cell::default(),
        });
        let own = Rc::downgrade(&manager);
        kernel.spawn(TaskParams::named("vm-scheduler"), move |cpu| {
            Box::pin(async move {
                let _part = cpu.book(Part::Scheduler);
                if let Some((manager, kernel)) =
                    own.upgrade().and_then(|own| Some((Rc::clone(&own), own.kernel.upgrade()?)))
                {
                    // What was before does not count.
                    manager.look(&cpu, &kernel);
                }
                while let Some(manager) = own.upgrade() {
                    manager.turn(&cpu).await;
                    drop(manager);
                    cpu.sleep(period).await;
                }
            })
        });
        manager
    }

    /// What it has seen and done.
    pub fn done(&self) -> Done {
        let switches = self.scheduler.borrow().switches();
        Done { switches, ..self.done.get() }
    }

    async fn turn(&self, cpu: &Cpu) {
        let Some(kernel) = self.kernel.upgrade() else { return };
        let loads = self.look(cpu, &kernel);
        let actions = self.scheduler.borrow_mut().decide(&loads);
        for action in actions {
            self.act(cpu, &kernel, action).await;
        }
        let done = self.done.get();
        self.done.set(Done { periods: done.periods + 1, ..done });
    }

    /// What was counted since it was looked at last.
    fn look(&self, cpu: &Cpu, kernel: &Rc<Kernel>) -> Loads {
        let face = kernel.face();
        // Pins and whoever had the core before may have made it longer.
        let period = cpu.now().since(self.looked.replace(cpu.now())).max(self.period);
        let time = |task: TaskId| {
            cpu.work(LOOK);
            kernel.task_busy(task)
        };
        self.vms.borrow_mut().retain(|_, own| !own.vm.has_ended());
        let memory = kernel.memory();
        let cores = (0..face.cpus()).map(CpuId);
        let nodes = memory.iter().map(|node| Capacity {
            cores: cores.clone().filter(|&core| face.node_of(core) == node.node).count(),
            free: node.free,
        });
        let nodes = nodes.collect();
        let mut seen = self.seen.borrow_mut();
        let interrupts: Vec<Duration> = cores.clone().map(|core| kernel.interrupt_time(core)).collect();
        let before = std::mem::replace(&mut *self.interrupts.borrow_mut(), interrupts.clone());
        let since = |(now, before): (&Duration, &Duration)| now.saturating_sub(*before);
        let interrupts: Vec<Duration> = interrupts.iter().zip(&before).map(since).collect();
        let devices = self.devices.iter().zip(&mut *seen).map(|(device, seen)| {
            let threads = device.threads().into_iter().zip(seen).map(|((task, rings), before)| {
                let now = time(task) + kernel.task_waited(task);
                let used = now.saturating_sub(std::mem::replace(before, now));
                // Interrupts of its core are its devices', and what they take it does not get.
                let taken =
                    kernel.core_of(task).map_or(Duration::ZERO, |core| interrupts[usize::from(core.0)]);
                (rings, if used.is_zero() { used } else { used + taken })
            });
            DeviceLoad { threads: threads.collect(), nodes: device.nodes() }
        });
        let devices = devices.collect();
        let vms = self.vms.borrow();
        let vms = vms.iter().map(|(&id, own)| {
            let busy: Duration = own.vm.tasks().into_iter().map(time).sum();
            let before = own.busy.replace(busy);
            let mut seen = own.seen.borrow_mut();
            let io = own.io.iter().zip(&mut *seen).map(|((device, io), seen)| VmIo {
                device: DeviceId(*device),
                thread: io.thread(),
                packets: io.passed() - std::mem::replace(seen, io.passed()),
            });
            let io = io.collect();
            let load = VmLoad {
                home: own.home.get(),
                vcpus: own.vm.tasks().len(),
                memory: own.memory,
                pinned: own.vm.memory().pinned() > Bytes::new(0)
                    || self.done.get().periods < own.stays_until.get(),
                moving: own.moving.get(),
                busy: busy.saturating_sub(before),
                io,
            };
            (id, load)
        });
        Loads { period, nodes, devices, vms: vms.collect() }
    }

    async fn act(&self, cpu: &Cpu, kernel: &Rc<Kernel>, action: Action) {
        match action {
            Action::Pin(DeviceId(device), context, node) => {
                // A device that has gone has no interrupt to be moved.
                let _ = self.devices[device].pin(cpu, context, &cores_of(kernel, node)).await;
            }
            Action::Serve(vm, DeviceId(device), context) => {
                let own = self.vms.borrow().get(&vm).cloned();
                let io = own.iter().flat_map(|own| &own.io);
                for (_, io) in io.filter(|(of, _)| *of == device) {
                    // One that is still changing from one queue to another is tried again in the next period.
                    let _ = io.serve_by(cpu, context);
                }
            }
            Action::Move(vm, node) => {
                let own = self.vms.borrow().get(&vm).cloned();
                if let Some(own) = own {
                    self.send(kernel, own, node);
                }
            }
        }
    }

    /// Sends a virtual machine to another home, in a task of its own: to copy its memory may take longer than a period.
    fn send(&self, kernel: &Rc<Kernel>, own: Rc<Managed>, to: Node) {
        let from = own.home.replace(to);
        own.moving.set(true);
        let ways = [(cores_of(kernel, to), to), (cores_of(kernel, from), from)];
        let manager = self.me.clone();
        kernel.spawn(TaskParams::named("vm-move"), move |cpu| {
            Box::pin(async move {
                let [(cores, node), (old_cores, old_node)] = ways;
                for (_, io) in &own.io {
                    io.hold().await;
                }
                let moved = own.vm.move_to(&cpu, &cores, node).await;
                if moved.is_err() {
                    // What has moved comes back; a machine that has ended cannot.
                    let _ = own.vm.move_to(&cpu, &old_cores, old_node).await;
                    own.home.set(old_node);
                }
                own.io.iter().for_each(|(_, io)| io.go_on(&cpu));
                own.moving.set(false);
                let Some(manager) = manager.upgrade() else { return };
                let mut done = manager.done.get();
                if moved.is_ok() {
                    done.moves += 1;
                } else {
                    done.refused += 1;
                    own.stays_until.set(done.periods + PATIENCE);
                }
                manager.done.set(done);
            })
        });
    }
}

fn cores_of(kernel: &Rc<Kernel>, node: Node) -> Vec<CpuId> {
    let face = kernel.face();
    (0..face.cpus()).map(CpuId).filter(|&core| face.node_of(core) == node).collect()
}
