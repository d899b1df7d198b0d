//! What a host's administrator has laid down for its network devices, as rules of udev: each is called as the scenario says, by which
//! port of which device it is, whenever it comes; one that comes while the host runs is started, or taken back by the team that had it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use ::kernel::{Kernel, NetRules};
use drivers::team::Team;
use engine::Handle;
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use machine::InterfaceSetup;
use platform::device::PortIndex;
use platform::kernel::{Kernel as KernelFace, TaskParams};
use units::Duration;
use wire::pcie::FunctionAddress;

/// From a device's coming until it is started (assumed: what udev takes to run its rules).
const REACTION: Duration = Duration::from_ms(1);

/// The rules of a host.
pub(super) struct Rules {
    hw: Handle<Fabric>,
    kernel: Weak<Kernel>,
    /// Physical functions' network devices: the segment, the device, its link, which of the functions there, and the name.
    places: Vec<(u16, EndpointId, PortIndex, usize, String)>,
    interfaces: Vec<InterfaceSetup>,
    /// Of namespaces that have a device of their own.
    namespaces: BTreeMap<String, Rc<dyn KernelFace>>,
    /// Devices above others, which take theirs back when they come again.
    teams: RefCell<Vec<Rc<Team>>>,
    /// Devices that come are started from now on.
    is_running: Cell<bool>,
}

impl Rules {
    /// The rules for a host whose kernel has not booted; `endpoint` gives a device of the scenario.
    pub fn new(
        hw: Handle<Fabric>,
        kernel: &Rc<Kernel>,
        interfaces: &[InterfaceSetup],
        namespaces: &BTreeMap<String, Rc<dyn KernelFace>>,
        endpoint: impl Fn(usize, usize) -> EndpointId,
    ) -> Rc<Self> {
        let place = |interface: &InterfaceSetup| {
            let (host, device, port) = interface.port;
            let link = PortIndex(interface.link as u8);
            (interface.segment, endpoint(host, device), link, usize::from(port), interface.name.clone())
        };
        let physical = interfaces.iter().filter(|interface| !interface.is_virtual);
        Rc::new(Self {
            hw,
            kernel: Rc::downgrade(kernel),
            places: physical.map(place).collect(),
            interfaces: interfaces.to_vec(),
            namespaces: namespaces.clone(),
            teams: RefCell::default(),
            is_running: Cell::new(false),
        })
    }

    /// The rules for a guest that has booted: what comes from now on is started, and called in the order in which it comes.
    pub fn of_guest(hw: Handle<Fabric>, kernel: &Rc<Kernel>, interfaces: &[InterfaceSetup]) -> Rc<Self> {
        Rc::new(Self {
            hw,
            kernel: Rc::downgrade(kernel),
            places: Vec::new(),
            interfaces: interfaces.to_vec(),
            namespaces: BTreeMap::new(),
            teams: RefCell::default(),
            is_running: Cell::new(true),
        })
    }

    /// The host's own start is over; it has made these.
    pub fn run(&self, teams: Vec<Rc<Team>>) {
        self.teams.replace(teams);
        self.is_running.set(true);
    }
}

impl NetRules for Rules {
    fn name(&self, of: FunctionAddress) -> Option<String> {
        // Where functions of other hosts are, each host that lends has a segment.
        self.hw.with(|fabric, _| {
            let is_there = |(segment, device, link, n, _): &&(u16, EndpointId, PortIndex, usize, String)| {
                let registers = &fabric.endpoint(*device).core.registers;
                let function = registers.physical_below(*link).nth(*n);
                *segment == of.segment.0 && function.is_some_and(|function| registers.id(function) == of.bdf)
            };
            self.places.iter().find(is_there).map(|(.., name)| name.clone())
        })
    }

    fn is_kept(&self, name: &str) -> bool {
        self.places.iter().any(|(.., kept)| kept == name)
    }

    fn added(&self, name: &str) {
        let Some(kernel) = self.kernel.upgrade().filter(|_| self.is_running.get()) else { return };
        let team = self.teams.borrow().iter().find(|team| team.has_member(name)).cloned();
        if let Some(team) = team {
            let name = name.to_owned();
            kernel.spawn(TaskParams::named("teamd"), move |cpu| {
                Box::pin(async move {
                    cpu.sleep(REACTION).await;
                    // What is gone again by now is not taken.
                    let _ = team.take_back(&cpu, &name).await;
                })
            });
            return;
        }
        let Some(interface) = self.interfaces.iter().find(|interface| interface.name == name) else { return };
        let own = kernel.face();
        let network = self.namespaces.get(name).unwrap_or(&own).network();
        let (name, address, prefix) = (interface.name.clone(), interface.address, interface.prefix);
        kernel.spawn(TaskParams::named("ifup"), move |cpu| {
            Box::pin(async move {
                cpu.sleep(REACTION).await;
                // What is gone again by now is not started.
                let _ = network.configure(&cpu, &name, address, prefix).await;
            })
        });
    }
}
