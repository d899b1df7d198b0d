//! Host task that measures loads and carries out placement decisions.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use kernel::Kernel;
use platform::Error;
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::kernel::{TaskId, TaskParams};
use units::{Bytes, Duration, Time};

use super::{Action, Capacity, DeviceId, DeviceLoad, Loads, Policy, Scheduler, VmId, VmIo, VmLoad};
use crate::vm::Vm;

/// Cycles to read a task's CPU time, and for a decision about it (assumed: a list traversal).
const LOOK: u64 = 200;
/// Periods to wait after a machine could not be moved (assumed).
const PATIENCE: u64 = 100;

/// The I/O threads of a host device that virtual machines share.
pub trait IoThreads {
    /// Nodes local to the device; empty if it is gone.
    fn nodes(&self) -> Vec<Node>;

    /// Task of each thread, and the node of its rings.
    fn threads(&self) -> Vec<(TaskId, Node)>;

    /// Restricts a thread and its queues' interrupt to these cores.
    ///
    /// # Errors
    /// As of the kernel.
    fn pin<'a>(&'a self, cpu: &'a Cpu, thread: usize, cpus: &'a [CpuId]) -> Async<'a, Result<(), Error>>;
}

/// A virtual device served by an I/O thread.
pub trait Client {
    /// The thread that serves it.
    fn thread(&self) -> usize;

    /// Packets or requests so far.
    fn passed(&self) -> u64;

    /// Moves it to another thread.
    ///
    /// # Errors
    /// [`Error::Busy`] while an earlier move is in progress, [`Error::Invalid`] if there is no such thread.
    fn serve_by(&self, cpu: &Cpu, thread: usize) -> Result<(), Error>;

    /// Called before the guest's memory moves; when done, the device does not access that memory.
    fn hold(&self) -> Async<'_, ()> {
        Box::pin(async {})
    }

    /// Called after the move.
    fn go_on(&self, _: &Cpu) {}
}

/// A managed virtual machine.
pub struct Managed {
    /// The machine.
    pub vm: Rc<Vm>,
    /// Memory to copy in a move.
    pub memory: Bytes,
    /// The node of its memory and cores; during a move, the new one already.
    pub home: Cell<Node>,
    /// Its virtual devices: index of the host device; `seen` has their packet counts at the last look.
    pub io: Vec<(usize, Rc<dyn Client>)>,
    seen: RefCell<Vec<u64>>,
    /// CPU time of its vCPUs at the last look.
    busy: Cell<Duration>,
    /// Whether it is being moved.
    moving: Cell<bool>,
    /// No further attempt to move it before this period.
    stays_until: Cell<u64>,
}

impl Managed {
    /// A virtual machine with this home.
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

/// Statistics of the manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// Periods measured.
    pub periods: u64,
    /// Mode changes.
    pub switches: u64,
    /// Virtual machines moved.
    pub moves: u64,
    /// Moves that failed.
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
    /// CPU time of each device's I/O threads at the last look.
    seen: RefCell<Vec<Vec<Duration>>>,
    /// Interrupt time of each core at the last look.
    interrupts: RefCell<Vec<Duration>>,
    /// Time of the last look.
    looked: Cell<Time>,
    done: Cell<Done>,
}

impl Manager {
    /// Starts to manage virtual machines and I/O threads. The scheduler's first decisions are carried out in the
    /// first period.
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
                    // Ignore everything before the start.
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

    /// Changes the policy, from the next period on.
    pub fn set_policy(&self, policy: Policy) {
        self.scheduler.borrow_mut().set_policy(policy);
    }

    /// Statistics so far.
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

    /// Loads since the last look.
    fn look(&self, cpu: &Cpu, kernel: &Rc<Kernel>) -> Loads {
        let face = kernel.face();
        // The period may be longer, for pinning took time or the core was busy.
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
                // Interrupts of the thread's core belong to its device, and take time from the thread.
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
                // A device that is gone has no interrupt to move.
                let _ = self.devices[device].pin(cpu, context, &cores_of(kernel, node)).await;
            }
            Action::Serve(vm, DeviceId(device), context) => {
                let own = self.vms.borrow().get(&vm).cloned();
                let io = own.iter().flat_map(|own| &own.io);
                for (_, io) in io.filter(|(of, _)| *of == device) {
                    // If it is still moving, it is tried again in the next period.
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

    /// Moves a virtual machine in a task of its own, since copying may take longer than a period.
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
                    // After a failure, move back what was moved; a machine that has ended cannot.
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
