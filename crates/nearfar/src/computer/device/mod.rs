//! Devices, from their files into slots.

mod blocks;
mod card;
mod drive;
mod gpu;
mod kpio;
mod nic;
mod ntb;

use devices::nic::NicHandle;
use std::collections::BTreeMap;
use std::rc::Rc;

use drivers::card::CardDriver;
use drivers::gpu::GpuDriver;
use drivers::nic::{NicDriver, NicDriverParams, NicPollDriver};
use drivers::nvme::NvmeDriver;
use drivers::team::TeamParams;
use drivers::vfio::VfioDriver;
use engine::Seed;
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::link::LinkId;
use hardware::root::HostId;
use hardware::switch::SwitchId;
use machine::{DeviceFile, DeviceSetup, Host, HostSetup, LinkCapability, LinkSetup, SlotSetup};
use platform::pci::{PciDriver, PciMatch};
use wire::pcie::{Generation, Width};

use super::error::ComputerError;
use crate::counters::Kind;
use crate::tenth::more;
use crate::topology;

pub use blocks::BlockFiles;

/// Where a device goes, and what a device's file may ask for on the way.
struct Slot<'a> {
    fabric: &'a mut Fabric,
    host: HostId,
    machine: &'a Host,
    /// All hosts, by their numbers.
    places: &'a [HostSlots<'a>],
    /// Where its upstream links lead.
    links: &'a [LinkSetup],
    /// The device's number in its host.
    number: usize,
    blocks: &'a BlockFiles,
    seed: Seed,
}

impl Slot<'_> {
    /// The links to a device that can do `device`, port 0 first, with what the fastest of them agreed on.
    fn links(&mut self, device: &LinkCapability) -> (Vec<LinkId>, Generation, Width) {
        let mut links = Vec::new();
        let mut best = (Generation::Gen1, Width::X1);
        for at in self.links {
            let (link, generation, width) = link_to(self.fabric, &self.places[at.host], at, device);
            best = best.max((generation, width));
            links.push(link);
        }
        (links, best.0, best.1)
    }
}

/// A host while what is in its slots is put together.
pub struct HostSlots<'a> {
    pub host: HostId,
    /// What the scenario says of it.
    pub setup: &'a HostSetup,
    /// Its switches, as far as they are in their slots.
    pub switches: Vec<Option<(SwitchId, LinkId)>>,
}

impl<'a> HostSlots<'a> {
    /// A host without anything in its slots.
    pub fn new(host: HostId, setup: &'a HostSetup) -> Self {
        Self { host, setup, switches: vec![None; setup.switches.len()] }
    }

    /// Puts its switches into their slots, those that others are below first.
    pub fn plug_switches(&mut self, fabric: &mut Fabric) {
        while let Some(next) = (0..self.switches.len()).find(|&n| self.can_plug(n)) {
            let setup = &self.setup.switches[next];
            let [at] = &setup.links[..] else { unreachable!("each switch has found its place") };
            let mut params = setup.file.link.clone();
            if at.lanes < params.width.value.get() {
                params.width.value = machine::LinkWidth::new(at.lanes).unwrap_or(params.width.value);
            }
            let (link, ..) = link_to(fabric, self, at, &params);
            let id = fabric.add_switch(topology::switch_params(&setup.file), link);
            self.switches[next] = Some((id, link));
        }
    }

    fn can_plug(&self, switch: usize) -> bool {
        let is_ready = |at: &LinkSetup| match at.slot {
            SlotSetup::Root(_) => true,
            SlotSetup::Switch(above, _) => self.switches[above].is_some(),
        };
        self.switches[switch].is_none() && self.setup.switches[switch].links.iter().all(is_ready)
    }
}

/// The link from a slot to what can do `device`.
fn link_to(
    fabric: &mut Fabric,
    place: &HostSlots<'_>,
    at: &LinkSetup,
    device: &LinkCapability,
) -> (LinkId, Generation, Width) {
    match &at.slot {
        SlotSetup::Root(slot) => {
            let machine = &place.setup.machine.host;
            // The kernel numbers the buses.
            topology::add_slot(fabric, place.host, machine, (&machine.port[slot], at.lanes), device, 0..=0)
        }
        SlotSetup::Switch(switch, port) => {
            let (id, _) = place.switches[*switch].expect("switches are there before what is below them");
            let file = &place.setup.switches[*switch].file;
            topology::add_switch_slot(fabric, id, file, (*port, at.lanes), device)
        }
    }
}

/// The link of a device's file, to change it.
pub fn link_of(device: &mut DeviceFile) -> &mut LinkCapability {
    match device {
        DeviceFile::Drive(drive) => &mut drive.file.link,
        DeviceFile::Nic(nic) => &mut nic.link,
        DeviceFile::Gpu(gpu) => &mut gpu.link,
        DeviceFile::Card(part) => &mut part.link,
        DeviceFile::Ntb(ntb) => &mut ntb.link,
    }
}

/// Raises what stands for a resource of a device by a tenth: a stage by its name, or tags or a buffer. `None` if no figure stands
/// for it alone.
pub fn raise(device: &mut DeviceFile, kind: Kind, part: &str) -> Option<()> {
    match device {
        DeviceFile::Drive(drive) => drive::raise(&mut drive.file, kind, part),
        DeviceFile::Nic(nic) => nic::raise(nic, kind, part),
        DeviceFile::Gpu(gpu) => gpu::raise(gpu, kind, part),
        DeviceFile::Card(part) => card::raise(part, kind),
        DeviceFile::Ntb(ntb) => (kind == Kind::Tags).then(|| more(&mut ntb.requesters.value)),
    }
}

/// Puts a device into its slot; an NTB adapter is called `node` in the cluster.
///
/// # Errors
/// If the device cannot be built.
pub fn plug(
    fabric: &mut Fabric,
    places: &[HostSlots<'_>],
    own: usize,
    (number, device, node): (usize, &DeviceSetup, u8),
    blocks: &BlockFiles,
    seed: Seed,
) -> Result<(EndpointId, Option<NicHandle>), ComputerError> {
    let (host, machine) = (places[own].host, &places[own].setup.machine.host);
    let slot = Slot { fabric, host, machine, places, links: &device.links, number, blocks, seed };
    match &device.kind {
        DeviceFile::Drive(drive) => Ok((drive::plug(slot, drive)?, None)),
        DeviceFile::Nic(nic) => {
            nic::plug(slot, nic, &device.ports).map(|(nic, handle)| (nic, Some(handle))).map_err(Into::into)
        }
        DeviceFile::Gpu(gpu) => Ok((gpu::plug(slot, gpu)?, None)),
        DeviceFile::Card(part) => Ok((card::plug(slot, part)?, None)),
        DeviceFile::Ntb(ntb) => Ok((ntb::plug(slot, ntb, node)?, None)),
    }
}

/// Links from the slots to which events can give links of a host's devices, by the device and the link: the usual slot's first. The others
/// are empty.
pub fn other_slots(
    fabric: &mut Fabric,
    places: &[HostSlots<'_>],
    host: &HostSetup,
    devices: &[EndpointId],
) -> BTreeMap<(usize, u8), Vec<LinkId>> {
    let mut all = BTreeMap::new();
    for (number, (device, &id)) in host.devices.iter().zip(devices).enumerate() {
        let usual: Vec<LinkId> = fabric.endpoint(id).links().collect();
        for (n, (at, usual)) in (0..).zip(device.links.iter().zip(usual)) {
            let mut other =
                |at: &LinkSetup| link_to(fabric, &places[at.host], at, device.kind.model().link()).0;
            let others: Vec<LinkId> = at.others.iter().map(&mut other).collect();
            if !others.is_empty() {
                all.insert((number, n), std::iter::once(usual).chain(others).collect());
            }
        }
    }
    all
}

/// The drivers of a host's kernel.
pub fn drivers(host: &HostSetup) -> Vec<Rc<dyn PciDriver>> {
    let mut nvme = drive::options(host.nvme_driver.as_ref());
    // What is wrong with them has been said when the kernel's parameters were read.
    if let Ok(costs) = super::kernel::driver_costs(host) {
        nvme.costs = costs.nvme;
    }
    let drives: Rc<dyn PciDriver> = match host.has_user_drives() {
        true => Rc::new(VfioDriver::nvme()),
        false => Rc::new(NvmeDriver::new(nvme)),
    };
    let nics: Rc<dyn PciDriver> = match host.has_user_nics() {
        true => Rc::new(NicPollDriver),
        false => nic_driver(host, nic_driver_params(host)),
    };
    let (vendor, device) = topology::CARD_IDS;
    let cards = CardDriver::new(vec![PciMatch::device(vendor, device)]);
    vec![nics, drives, Rc::new(GpuDriver), Rc::new(cards)]
}

/// A host's network devices that are made of others.
///
/// # Errors
/// If the kernel's file lacks what their code costs.
pub fn teams(host: &HostSetup) -> Result<Vec<TeamParams>, ComputerError> {
    let costs = super::kernel::driver_costs(host)?.team;
    let team = |team: &machine::TeamSetup| TeamParams {
        name: team.name.clone(),
        mode: team.mode,
        hash_policy: team.hash_policy,
        members: team.members.iter().map(|member| member.name.clone()).collect(),
        costs,
    };
    Ok(host.teams.iter().map(team).collect())
}

/// How a scenario has the NIC's driver loaded.
pub fn nic_driver_params(host: &HostSetup) -> NicDriverParams {
    let mut nics = host.devices.iter().filter_map(|device| device.kind.nic());
    let of_nic = nics.next().and_then(|nic| nic.driver.as_ref());
    nic::driver_params(host.nic_driver.as_ref(), of_nic)
}

/// The NIC's driver, whose code costs what the host's kernel file says.
pub fn nic_driver(host: &HostSetup, mut params: NicDriverParams) -> Rc<NicDriver> {
    if let Ok(costs) = super::kernel::driver_costs(host) {
        params.costs = costs.nic;
        if let Some(kpio) = &mut params.kpio {
            kpio.costs = costs.kpio;
        }
    }
    NicDriver::new(params)
}
