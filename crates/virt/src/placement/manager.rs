//! The task of the host that measures loads and does what was decided.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use kernel::Kernel;
use platform::cpu::{Cpu, CpuId, Node, Part};
use platform::kernel::{TaskId, TaskParams};
use units::{Bytes, Duration};

use super::{Action, Capacity, DeviceId, DeviceLoad, Loads, Scheduler, VmId, VmLoad};
use crate::net::{Network, Vnic};
use crate::vm::Vm;

/// Cycles to look at a task's time, and to decide about one (assumed: a list that is walked).
const LOOK: u64 = 200;

/// A virtual machine that is managed.
pub struct Managed {
    /// The machine.
    pub vm: Rc<Vm>,
    /// Its memory.
    pub memory: Bytes,
    /// Where it is.
    pub home: Cell<Node>,
    /// Its virtual NIC, and the number of the network that it is of.
    pub nic: Option<(usize, Rc<Vnic>)>,
    /// What was counted when it was looked at last: time of its vCPUs, packets.
    seen: Cell<(Duration, u64)>,
}

impl Managed {
    /// A virtual machine at home at a node.
    pub fn new(vm: Rc<Vm>, memory: Bytes, home: Node, nic: Option<(usize, Rc<Vnic>)>) -> Self {
        Self { vm, memory, home: Cell::new(home), nic, seen: Cell::default() }
    }
}

/// What the manager has seen and done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// Periods.
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
    kernel: Weak<Kernel>,
    networks: Vec<Rc<Network>>,
    vms: RefCell<BTreeMap<VmId, Rc<Managed>>>,
    scheduler: RefCell<Scheduler>,
    period: Duration,
    /// By network and context: time when it was looked at last.
    seen: RefCell<Vec<Vec<Duration>>>,
    done: Cell<Done>,
}

impl Manager {
    /// Begins to manage virtual machines above networks. What `scheduler` says at first is done in the first period.
    pub fn start(
        kernel: &Rc<Kernel>,
        networks: Vec<Rc<Network>>,
        vms: Vec<Managed>,
        scheduler: Scheduler,
        period: Duration,
    ) -> Rc<Self> {
        let manager = Rc::new(Self {
            kernel: Rc::downgrade(kernel),
            seen: RefCell::new(
                networks.iter().map(|network| vec![Duration::ZERO; network.contexts().len()]).collect(),
            ),
            networks,
            vms: RefCell::new((0..).map(VmId).zip(vms.into_iter().map(Rc::new)).collect()),
            scheduler: RefCell::new(scheduler),
            period,
            done: Cell::default(),
        });
        let own = Rc::downgrade(&manager);
        kernel.spawn(TaskParams::named("vm-scheduler"), move |cpu| {
            Box::pin(async move {
                let _part = cpu.book(Part::Scheduler);
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
        let mut done = self.done.get();
        done.periods += 1;
        for action in actions {
            match self.act(cpu, &kernel, action).await {
                Ok(()) => done.moves += u64::from(matches!(action, Action::Move(..))),
                Err(_) => done.refused += 1,
            }
        }
        self.done.set(done);
    }

    /// What was counted since it was looked at last.
    fn look(&self, cpu: &Cpu, kernel: &Rc<Kernel>) -> Loads {
        let face = kernel.face();
        let time = |task: Option<TaskId>| {
            cpu.work(LOOK);
            let parts = Part::ALL.iter().filter_map(|&part| Some(kernel.task_time(task?, part)));
            parts.fold(Duration::ZERO, |all, part| all + part)
        };
        let memory = kernel.memory();
        let cores = (0..face.cpus()).map(CpuId);
        let nodes = memory.iter().map(|node| Capacity {
            cores: cores.clone().filter(|&core| face.node_of(core) == node.node).count(),
            free: node.free,
        });
        let nodes = nodes.collect();
        let mut seen = self.seen.borrow_mut();
        let devices = self.networks.iter().zip(&mut *seen).map(|(network, seen)| {
            let threads = network.contexts().iter().zip(seen).map(|(context, before)| {
                let now = time(context.task());
                let used = now.saturating_sub(std::mem::replace(before, now));
                (network.rings_at(context.number).unwrap_or(Node(0)), used)
            });
            DeviceLoad { threads: threads.collect(), nodes: network.node().into_iter().collect() }
        });
        let devices = devices.collect();
        let vms = self.vms.borrow();
        let vms = vms.iter().map(|(&id, own)| {
            let all = own.vm.tasks().into_iter().map(|task| time(Some(task)));
            let busy = all.fold(Duration::ZERO, |all, one| all + one);
            let counters = own.nic.as_ref().map(|(_, nic)| nic.counters()).unwrap_or_default();
            let packets = counters.received + counters.sent + counters.dropped;
            let (before, packets_before) = own.seen.replace((busy, packets));
            let load = VmLoad {
                home: own.home.get(),
                vcpus: own.vm.tasks().len(),
                memory: own.memory,
                pinned: own.vm.memory().pinned() > Bytes::new(0),
                busy: busy.saturating_sub(before),
                io: own.nic.as_ref().map(|(device, _)| (DeviceId(*device), packets - packets_before)),
            };
            (id, load)
        });
        Loads { period: self.period, nodes, devices, vms: vms.collect() }
    }

    async fn act(&self, cpu: &Cpu, kernel: &Rc<Kernel>, action: Action) -> Result<(), platform::Error> {
        let face = kernel.face();
        let cores = |node: Node| -> Vec<CpuId> {
            (0..face.cpus()).map(CpuId).filter(|&core| face.node_of(core) == node).collect()
        };
        match action {
            Action::Pin(DeviceId(device), context, node) => {
                self.networks[device].pin(cpu, context, &cores(node)).await
            }
            Action::Serve(vm, context) => {
                let own = self.vms.borrow().get(&vm).cloned();
                match own.as_ref().and_then(|own| own.nic.as_ref()) {
                    Some((network, nic)) => {
                        // A virtual NIC that is still changing from one queue to another is waited for.
                        while self.networks[*network].assign(cpu, nic, context) == Err(platform::Error::Busy)
                        {
                            cpu.sleep(Duration::from_us(100)).await;
                        }
                        Ok(())
                    }
                    None => Ok(()),
                }
            }
            Action::Move(vm, node) => {
                let own = self.vms.borrow().get(&vm).cloned();
                let Some(own) = own else { return Ok(()) };
                own.vm.move_to(cpu, &cores(node), node).await?;
                own.home.set(node);
                Ok(())
            }
        }
    }
}
