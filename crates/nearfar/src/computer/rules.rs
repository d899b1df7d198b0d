//! Rules for network devices, like udev rules. A device gets the name in the scenario, by its port, whenever it
//! appears. A device that appears while the host runs is started, or joins its team.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use ::kernel::{Kernel, NetRules};
use drivers::team::{Team, TeamParams};
use engine::Handle;
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use machine::{HostSetup, InterfaceSetup};
use platform::Error;
use platform::cpu::Cpu;
use platform::device::PortIndex;
use platform::kernel::{Kernel as KernelFace, TaskParams};
use units::Duration;
use wire::pcie::FunctionAddress;

/// Delay from a device's appearance to its start (assumed: the time udev takes to run its rules).
const REACTION: Duration = Duration::from_ms(1);

/// A team that a host should have.
pub(super) struct OwnTeam {
    params: TeamParams,
    /// The team, once a member has been there.
    made: RefCell<Option<Rc<Team>>>,
}

impl OwnTeam {
    /// Creates the team if a member is there.
    ///
    /// # Errors
    /// Those of [`Team::create`], except that no member is there.
    pub fn make(kernel: Rc<dyn KernelFace>, params: &TeamParams) -> Result<Self, Error> {
        let made = match Team::create(kernel, params.clone()) {
            Err(Error::NoDevice) => None,
            made => Some(made?),
        };
        Ok(Self { params: params.clone(), made: RefCell::new(made) })
    }

    /// Whether this is the network device of a team that has no member yet.
    pub fn is_awaited(&self, name: &str) -> bool {
        self.params.name == name && self.made.borrow().is_none()
    }

    fn has_member(&self, name: &str) -> bool {
        self.params.members.iter().any(|member| member == name)
    }

    /// A member has appeared; the first one makes the team.
    async fn join(&self, kernel: &Kernel, cpu: &Cpu, member: &str) -> Result<(), Error> {
        let made = self.made.borrow().clone();
        match made {
            Some(team) => team.take_back(cpu, member).await,
            None => {
                let team = Team::create(kernel.face(), self.params.clone())?;
                self.made.replace(Some(team));
                Ok(())
            }
        }
    }
}

/// Rules of a host.
pub(super) struct Rules {
    hw: Handle<Fabric>,
    kernel: Weak<Kernel>,
    /// Network devices of physical functions: segment, device, link, index of the function there, and name.
    places: Vec<(u16, EndpointId, PortIndex, usize, String)>,
    interfaces: Vec<InterfaceSetup>,
    /// Namespaces with a device of their own.
    namespaces: BTreeMap<String, Rc<dyn KernelFace>>,
    /// Teams, which members join when they appear.
    teams: RefCell<Vec<Rc<OwnTeam>>>,
    /// Whether new devices are started.
    is_running: Cell<bool>,
}

impl Rules {
    /// Rules for a host before boot. `endpoint` returns a device of the scenario.
    pub fn new(
        hw: Handle<Fabric>,
        kernel: &Rc<Kernel>,
        host: &HostSetup,
        namespaces: &BTreeMap<String, Rc<dyn KernelFace>>,
        endpoint: impl Fn(usize, usize) -> EndpointId,
    ) -> Rc<Self> {
        let places = |interface: &InterfaceSetup| {
            let (host, device, port) = interface.port;
            let (segment, endpoint, name) =
                (interface.segment, endpoint(host, device), interface.name.clone());
            let links = interface.links.clone().into_iter();
            links.map(move |link| (segment, endpoint, PortIndex(link as u8), usize::from(port), name.clone()))
        };
        let members = host.teams.iter().flat_map(|team| &team.members);
        let physical = host.interfaces.iter().chain(members).filter(|interface| !interface.is_virtual);
        Rc::new(Self {
            hw,
            kernel: Rc::downgrade(kernel),
            places: physical.flat_map(places).collect(),
            interfaces: host.interfaces.clone(),
            namespaces: namespaces.clone(),
            teams: RefCell::default(),
            is_running: Cell::new(false),
        })
    }

    /// Rules for a booted guest: devices that appear are started, and named in order of appearance.
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

    /// The host's init is complete and has made these teams.
    pub fn run(&self, teams: Vec<OwnTeam>) {
        self.teams.replace(teams.into_iter().map(Rc::new).collect());
        self.is_running.set(true);
    }
}

impl NetRules for Rules {
    fn name(&self, of: FunctionAddress) -> Option<String> {
        // Functions of each lending host are in a segment of their own.
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
            let (name, own) = (name.to_owned(), Weak::clone(&self.kernel));
            kernel.spawn(TaskParams::named("teamd"), move |cpu| {
                Box::pin(async move {
                    cpu.sleep(REACTION).await;
                    let Some(kernel) = own.upgrade() else { return };
                    // Ignore it if it is gone again by now.
                    let _ = team.join(&kernel, &cpu, &name).await;
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
                // Do not start it if it is gone again by now.
                let _ = network.configure(&cpu, &name, address, prefix).await;
            })
        });
    }
}
