//! The steps of a host's init after boot.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::rc::Rc;

use ::kernel::Kernel;
use drivers::team::TeamParams;
use machine::InterfaceSetup;
use platform::kernel::{Kernel as KernelFace, TaskParams};
use platform::socket::{Network, Route};
use platform::sync::Completion;
use wire::pcie::{Bdf, FunctionAddress};

use super::error::ComputerError;
use super::rules::OwnTeam;

/// The steps of a host's init.
pub(super) struct Init {
    pub host: String,
    pub kernel: Rc<Kernel>,
    pub namespaces: BTreeMap<String, Rc<dyn KernelFace>>,
    pub routes: Vec<machine::RouteSetup>,
}

impl Init {
    pub fn face(&self, namespace: Option<&str>) -> Rc<dyn KernelFace> {
        match namespace.and_then(|name| self.namespaces.get(name)) {
            Some(face) => Rc::clone(face),
            None => self.kernel.face(),
        }
    }

    fn problem(&self, device: &dyn ToString) -> impl FnOnce(platform::Error) -> ComputerError + use<> {
        let (host, device) = (self.host.clone(), device.to_string());
        move |problem| ComputerError::Network { host, device, problem }
    }

    /// Whether the kernel has found a function.
    pub fn finds(&self, bdf: Bdf) -> bool {
        self.kernel.root_port_of(FunctionAddress { bdf, ..FunctionAddress::default() }).is_some()
    }

    /// Enables virtual functions.
    pub async fn enable(&self, bdf: Bdf, count: u16) -> Result<(), ComputerError> {
        let at = FunctionAddress { bdf, ..FunctionAddress::default() };
        self.kernel.set_virtual_functions(at, count).await.map_err(self.problem(&bdf))
    }

    /// Creates the teams that have a member.
    pub fn make(&self, teams: &[TeamParams]) -> Result<Vec<OwnTeam>, ComputerError> {
        let make = |team: &TeamParams| OwnTeam::make(self.face(None), team).map_err(self.problem(&team.name));
        teams.iter().map(make).collect()
    }

    /// Starts a network device; starts at once.
    pub fn start(
        &self,
        interface: &InterfaceSetup,
    ) -> impl Future<Output = Result<(), ComputerError>> + use<> {
        let (network, name) = (self.face(Some(&interface.name)).network(), interface.name.clone());
        let started = if_up(&self.kernel, network, name, (interface.address, interface.prefix));
        let problem = self.problem(&interface.name);
        async move { started.wait().await.map_err(problem) }
    }

    pub fn add_routes(&self) -> Result<(), ComputerError> {
        self.routes.iter().try_for_each(|route| {
            let (network, prefix) = route.network.value;
            let (device, gateway) = (route.device.clone(), route.gateway);
            let face = self.face(device.as_deref());
            let added = face.network().add_route(&Route { network, prefix, device, gateway });
            added.map_err(|problem| {
                let message = format!("no route to {network}/{prefix}: {problem}");
                route.network.complaint(message, None).into()
            })
        })
    }
}

/// Starts a network device.
fn if_up(
    kernel: &Kernel,
    network: Rc<dyn Network>,
    name: String,
    (address, prefix): (Ipv4Addr, u8),
) -> Completion<Result<(), platform::Error>> {
    let params = TaskParams::named("ifup");
    kernel.run(params, async move |cpu| network.configure(&cpu, &name, address, prefix).await)
}
