//! A network device made of several others, its members (Linux: the team driver).
//!
//! In **octo** mode (IOctopus, 3.4 and 4.2) the members are functions of one card at several nodes, with one Ethernet
//! address. The member local to the sending core transmits. Flow steering (ARFS) makes a flow arrive at the member
//! local to the program that reads it. If a member is down, the others take its flows. In **802.3ad** mode the
//! members are ports of a channel to a switch. A hash of the flow chooses the member that transmits; the switch
//! chooses the one that receives.
//!
//! The team needs no interface of the kernel for itself: a test (`crates/cli/tests/dependencies.rs`) checks that each one
//! has another user. [`NetUpper`] says which of its methods Linux has.

mod hash;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::costs;
use platform::cpu::{Async, Cpu, CpuId, Node, Part};
use platform::irq::{Irq, NapiHandle};
use platform::kernel::{Kernel, TaskParams};
use platform::net::{
    Coalescing, DeviceStatistics, FlowKey, MacAddr, NetCore, NetDriver, NetFeatures, NetLimits, NetUpper,
    Packet, PacketDevice, RuleId, TxStatistics,
};
use units::BitRate;

use crate::flows::SteeredFlows;
use crate::members::{self, FormerMembers, Member as _};

pub use settings::{HashPolicy, TeamMode};

costs! {
    /// CPU costs of a team, in cycles.
    TeamCosts in "team_cost" {
        /// To choose a member for a packet and pass it on.
        send,
        /// To pass on a flow's packets of one poll.
        receive,
    }
}

/// Bytes of headers that the flow hash reads: Ethernet with a VLAN tag, IP, ports.
const HEADERS: usize = 64;

/// Configuration of a team.
#[derive(Clone, Debug)]
pub struct TeamParams {
    /// Name of the network device, such as `team0`.
    pub name: String,
    /// How it uses its members.
    pub mode: TeamMode,
    /// What a channel hashes to choose the member that transmits.
    pub hash_policy: HashPolicy,
    /// Names of the members.
    pub members: Vec<String>,
    /// CPU costs.
    pub costs: TeamCosts,
}

/// A member, and the index of its first queues among the team's.
struct TeamMember {
    /// The device, once it has been there; keeps the last one if it is removed.
    device: RefCell<Option<Rc<dyn PacketDevice>>>,
    /// Its limits when the team was created; those of another member if it was absent.
    limits: NetLimits,
    first_tx: u16,
    first_rx: u16,
    /// The member's upper device, which passes packets to the team.
    port: Rc<UpperDevice>,
}

impl TeamMember {
    fn device(&self) -> Option<Rc<dyn PacketDevice>> {
        self.device.borrow().clone()
    }
}

impl members::Member for TeamMember {
    fn driver(&self) -> Option<Rc<dyn NetDriver>> {
        self.device.borrow().as_ref()?.driver()
    }

    fn is_usable(&self) -> bool {
        self.device.borrow().as_ref().is_some_and(|device| device.has_carrier() && device.driver().is_some())
    }

    fn first_tx(&self) -> u16 {
        self.first_tx
    }

    fn first_rx(&self) -> u16 {
        self.first_rx
    }

    fn queues(&self) -> (u16, u16) {
        (self.limits.tx_queues, self.limits.rx_queues)
    }
}

/// Upper device of a member.
struct UpperDevice {
    team: Weak<Team>,
    number: usize,
    /// Hash of the last packet in this poll.
    last: Cell<Option<u32>>,
}

/// A network device that passes its packets to its members.
pub struct Team {
    kernel: Rc<dyn Kernel>,
    params: TeamParams,
    limits: NetLimits,
    members: Vec<TeamMember>,
    core: RefCell<Option<Rc<dyn NetCore>>>,
    is_open: Cell<bool>,
    flows: Rc<SteeredFlows>,
    former: FormerMembers,
}

impl Team {
    /// Creates a team and registers it. Members may be absent, and [join](Self::take_back) it later; they are expected to
    /// be like the first one that is there.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if no member exists, [`Error::Busy`] if one belongs to another team, [`Error::Invalid`] if the
    /// members have different addresses.
    pub fn create(kernel: Rc<dyn Kernel>, params: TeamParams) -> Result<Rc<Self>, Error> {
        let devices: Vec<_> = params.members.iter().map(|name| kernel.packet_device(name)).collect();
        let usual = devices.iter().flatten().next().ok_or(Error::NoDevice)?.limits();
        let of = |device: &Option<Rc<dyn PacketDevice>>| {
            device.as_ref().map_or_else(|| usual.clone(), |device| device.limits())
        };
        let each: Vec<NetLimits> = devices.iter().map(of).collect();
        let limits = common(&params, &each).ok_or(Error::Invalid)?;
        let mut taken = Ok(());
        let team = Rc::new_cyclic(|me: &Weak<Self>| {
            let (mut tx, mut rx) = (0, 0);
            let member = |(number, (device, limits)): (usize, (Option<Rc<dyn PacketDevice>>, NetLimits))| {
                let port = Rc::new(UpperDevice { team: me.clone(), number, last: Cell::new(None) });
                if let Some(device) = &device {
                    taken = taken.and_then(|()| device.set_upper(port.as_upper()));
                }
                let member =
                    TeamMember { first_tx: tx, first_rx: rx, device: RefCell::new(device), limits, port };
                tx += member.limits.tx_queues;
                rx += member.limits.rx_queues;
                member
            };
            let members = devices.into_iter().zip(each).enumerate().map(member).collect();
            let own = me.clone();
            let driver_of = Box::new(move |member: usize| own.upgrade()?.members[member].driver());
            Self {
                kernel: Rc::clone(&kernel),
                params,
                limits,
                members,
                core: RefCell::new(None),
                is_open: Cell::new(false),
                flows: SteeredFlows::new(Rc::clone(&kernel), driver_of),
                former: FormerMembers::default(),
            }
        });
        taken?;
        let core = kernel.register_net(Rc::clone(&team) as Rc<dyn NetDriver>);
        *team.core.borrow_mut() = Some(core);
        Ok(team)
    }

    /// Adds a member's device that was removed and came back, or that was absent when the team was created. Opens it if
    /// the team is open; it gets its flow rules again once it has a carrier.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no such device or member, [`Error::Invalid`] if it differs from the previous or
    /// expected device, [`Error::Busy`] if a team has it, or the error from opening it.
    pub async fn take_back(&self, cpu: &Cpu, name: &str) -> Result<(), Error> {
        let number = self.params.members.iter().position(|member| member == name).ok_or(Error::NoDevice)?;
        let device = self.kernel.packet_device(name).ok_or(Error::NoDevice)?;
        let member = &self.members[number];
        let (now, before) = (device.limits(), &member.limits);
        let queues = |limits: &NetLimits| (limits.tx_queues, limits.rx_queues);
        if now.mac != before.mac || queues(&now) != queues(before) {
            return Err(Error::Invalid);
        }
        device.set_upper(member.port.as_upper())?;
        self.flows.lose(number);
        if let Some(former) = member.device() {
            let (tx, others) = (former.statistics(cpu).await, former.device_statistics(cpu).await);
            self.former.add(&tx, &others);
        }
        member.device.replace(Some(Rc::clone(&device)));
        if self.is_open.get() {
            device.open(cpu).await?;
        }
        Ok(())
    }

    fn core(&self) -> Option<Rc<dyn NetCore>> {
        self.core.borrow().clone()
    }

    /// The members' devices, as far as they have been there.
    fn devices(&self) -> impl Iterator<Item = Rc<dyn PacketDevice>> + '_ {
        self.members.iter().filter_map(TeamMember::device)
    }

    /// The member that a packet's flow is sent by.
    fn member_of_flow(&self, cpu: &Cpu, packet: &Packet) -> Option<usize> {
        let mut headers = [0; HEADERS];
        let length = packet.load(cpu, &mut headers);
        let hash = hash::transmit_hash(self.params.hash_policy, &headers[..length]);
        let usable: Vec<usize> =
            (0..self.members.len()).filter(|&member| self.members[member].is_usable()).collect();
        usable.get(hash as usize % usable.len().max(1)).copied()
    }

    /// Member and queue that a packet takes, and whether that is the team queue's own.
    fn way(&self, cpu: &Cpu, queue: u16, packet: &Packet) -> Option<(usize, u16, bool)> {
        match self.params.mode {
            TeamMode::Bond => self.member_of_flow(cpu, packet).map(|member| (member, queue, true)),
            TeamMode::Octo => {
                let (member, own) = members::tx_place(&self.members, queue);
                if self.members[member].is_usable() {
                    return Some((member, own, true));
                }
                let (member, own) = members::stand_in_for(&self.members, cpu)?;
                Some((member, own, false))
            }
        }
    }

    /// The team's number of a member's TX queue.
    fn tx_number(&self, member: usize, queue: u16) -> u16 {
        match self.params.mode {
            TeamMode::Octo => self.members[member].first_tx + queue,
            TeamMode::Bond => queue,
        }
    }

    fn skip_lost_members(&self, cpu: &Cpu, core: &dyn NetCore) {
        members::skip_lost(&self.members, cpu, core, |member, queue| self.tx_number(member, queue));
    }

    fn has_dead(&self) -> bool {
        !self.members.iter().all(TeamMember::is_usable)
    }
}

/// The combined limits of these members, if they can form a team.
fn common(params: &TeamParams, all: &[NetLimits]) -> Option<NetLimits> {
    let first = all.first()?;
    let is_octo = params.mode == TeamMode::Octo;
    if all.iter().any(|limits| limits.mac != first.mac) {
        return None;
    }
    let common =
        all.iter().skip(1).fold(first.features.clone(), |both, limits| both.of_both(&limits.features));
    let features = NetFeatures { flow_steering: is_octo && common.flow_steering, ..common };
    let queues = all.iter().map(|limits| limits.tx_queues);
    let speeds = all.iter().map(|limits| limits.speed.bits_per_s());
    Some(NetLimits {
        name: params.name.clone().into(),
        mac: first.mac,
        tx_queues: if is_octo { queues.sum() } else { queues.min()? },
        rx_queues: all.iter().map(|limits| limits.rx_queues).sum(),
        max_mtu: all.iter().map(|limits| limits.max_mtu).min()?,
        // Functions of one card share its port.
        speed: BitRate::from_bits_per_s(if is_octo { speeds.max()? } else { speeds.sum() }),
        features,
        // Stacked devices may change a packet on its way (Linux: `team_setup`, `bond_setup`).
        shares_packets: false,
    })
}

impl NetDriver for Team {
    fn limits(&self) -> NetLimits {
        self.limits.clone()
    }

    fn open<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            for device in self.devices() {
                device.open(cpu).await?;
            }
            self.is_open.set(true);
            if let Some(core) = self.core() {
                core.set_carrier(self.members.iter().any(TeamMember::is_usable));
            }
            Ok(())
        })
    }

    fn stop<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            self.is_open.set(false);
            for device in self.devices() {
                device.stop(cpu).await;
            }
            if let Some(core) = self.core() {
                core.set_carrier(false);
            }
        })
    }

    fn transmit(&self, cpu: &Cpu, queue: u16, packet: Packet, more: bool) -> Result<(), Packet> {
        let _part = cpu.book(Part::Driver);
        cpu.work(self.params.costs.send);
        let way = self.way(cpu, queue, &packet);
        let way =
            way.and_then(|(member, own, is_usual)| Some((self.members[member].device()?, own, is_usual)));
        let Some((device, own, is_usual)) = way else {
            let bytes = packet.length();
            packet.release(cpu);
            if let Some(core) = self.core() {
                core.sent(cpu, queue, 1, bytes.into());
            }
            return Ok(());
        };
        let bytes = packet.length();
        device.send_directly(cpu, own, packet, more && is_usual)?;
        if !is_usual && let Some(core) = self.core() {
            // The completion is reported for another queue, which never saw this packet.
            core.sent(cpu, queue, 1, bytes.into());
        }
        Ok(())
    }

    fn flush(&self, cpu: &Cpu, queue: u16) {
        let ring = |member: usize, own| {
            if let Some(driver) = self.members[member].driver() {
                driver.flush(cpu, own);
            }
        };
        match self.params.mode {
            TeamMode::Octo => {
                let (member, own) = members::tx_place(&self.members, queue);
                ring(member, own);
            }
            TeamMode::Bond => (0..self.members.len()).for_each(|member| ring(member, queue)),
        }
    }

    fn statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, TxStatistics> {
        Box::pin(async move {
            let mut sum = self.former.tx();
            for device in self.devices() {
                sum.add(&device.statistics(cpu).await);
            }
            sum
        })
    }

    fn device_statistics<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, DeviceStatistics> {
        Box::pin(async move {
            let mut sum = self.former.others();
            for device in self.devices() {
                sum.add(&device.device_statistics(cpu).await);
            }
            sum
        })
    }

    fn tx_queue_for(&self, cpu: CpuId) -> u16 {
        let place = members::tx_queue_for(&self.members, cpu, self.kernel.node_of(cpu));
        place.map_or(0, |(member, own)| self.tx_number(member, own))
    }

    fn rx_queue_for(&self, cpu: CpuId) -> u16 {
        members::rx_queue_for(&self.members, cpu, self.kernel.node_of(cpu)).unwrap_or(0)
    }

    fn node_of(&self, queue: u16) -> Option<Node> {
        let (member, own) = members::rx_place(&self.members, queue);
        let member = Some(&self.members[member]).filter(|member| member.is_usable())?;
        member.driver()?.node_of(own)
    }

    fn rx_outstanding(&self, queue: u16) -> Option<u32> {
        let (driver, own) = members::receiver(&self.members, queue)?;
        driver.rx_outstanding(own)
    }

    fn set_address(&self, cpu: &Cpu, mac: MacAddr, queue: Option<u16>) -> Result<(), Error> {
        if self.params.mode != TeamMode::Octo {
            return Err(Error::NotSupported);
        }
        members::set_address(&self.members, cpu, mac, queue)
    }

    fn poll_of(&self, queue: u16) -> Option<NapiHandle> {
        let (driver, own) = members::receiver(&self.members, queue)?;
        driver.poll_of(own)
    }

    fn interrupt_of(&self, queue: u16) -> Option<Irq> {
        let (driver, own) = members::receiver(&self.members, queue)?;
        driver.interrupt_of(own)
    }

    fn set_features(&self, cpu: &Cpu, wanted: &NetFeatures) -> NetFeatures {
        let mut left = self.limits.features.clone();
        for driver in self.members.iter().filter_map(|member| member.driver()) {
            left = left.of_both(&driver.set_features(cpu, wanted));
        }
        left
    }

    fn set_promiscuous(&self, cpu: &Cpu, on: bool) {
        self.devices().for_each(|device| device.set_promiscuous(cpu, on));
    }

    fn set_coalescing(&self, cpu: &Cpu, queue: u16, wanted: Coalescing) -> Result<(), Error> {
        let (member, own) = members::rx_place(&self.members, queue);
        self.members[member].device().ok_or(Error::NoDevice)?.set_coalescing(cpu, own, wanted)
    }

    fn coalescing(&self, queue: u16) -> Option<Coalescing> {
        let (member, own) = members::rx_place(&self.members, queue);
        self.members[member].device()?.coalescing(own)
    }

    fn steer(&self, _: &Cpu, flow: FlowKey, queue: u16) -> Result<RuleId, Error> {
        if !self.limits.features.flow_steering {
            return Err(Error::NotSupported);
        }
        self.flows.steer(flow, members::rx_place(&self.members, queue))
    }

    fn unsteer(&self, _: &Cpu, rule: RuleId) {
        self.flows.unsteer(rule);
    }
}

impl UpperDevice {
    fn as_upper(self: &Rc<Self>) -> Weak<dyn NetUpper> {
        let port: Weak<Self> = Rc::downgrade(self);
        port
    }
}

impl NetUpper for UpperDevice {
    fn receive(&self, cpu: &Cpu, napi: &NapiHandle, queue: u16, packet: Packet) {
        let team = self.team.upgrade().and_then(|team| Some((team.core()?, team)));
        let Some((core, team)) = team.filter(|(_, team)| team.is_open.get()) else {
            return packet.release(cpu);
        };
        let _part = cpu.book(Part::Driver);
        // Members coalesce a flow's packets of one poll before the team sees them (Linux: members do GRO).
        if self.last.replace(Some(packet.hash)) != Some(packet.hash) {
            cpu.work(team.params.costs.receive);
        }
        core.receive(cpu, napi, team.members[self.number].first_rx + queue, packet);
    }

    fn poll_end(&self, cpu: &Cpu, queue: u16, emptied: bool) {
        self.last.set(None);
        let Some(team) = self.team.upgrade() else { return };
        let Some(core) = team.core() else { return };
        core.poll_end(cpu, team.members[self.number].first_rx + queue, emptied);
        if team.has_dead() {
            team.skip_lost_members(cpu, &*core);
        }
    }

    fn sent(&self, cpu: &Cpu, queue: u16, packets: u32, bytes: u64) {
        let Some(team) = self.team.upgrade() else { return };
        if let Some(core) = team.core() {
            core.sent(cpu, team.tx_number(self.number, queue), packets, bytes);
        }
    }

    fn queue_woken(&self, cpu: &Cpu, queue: u16) {
        let Some(team) = self.team.upgrade() else { return };
        let Some(core) = team.core() else { return };
        core.wake_queue(cpu, team.tx_number(self.number, queue));
        if team.has_dead() {
            team.skip_lost_members(cpu, &*core);
        }
    }

    fn changed(&self) {
        let Some(team) = self.team.upgrade().filter(|team| team.is_open.get()) else { return };
        let Some(core) = team.core() else { return };
        core.set_carrier(team.members.iter().any(TeamMember::is_usable));
        let program = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move {
                for number in (0..team.members.len()).filter(|&number| team.members[number].is_usable()) {
                    team.flows.retry(number);
                }
                // Packets that waited for one member may take another now.
                (0..team.limits.tx_queues).for_each(|queue| core.wake_queue(&cpu, queue));
                team.skip_lost_members(&cpu, &*core);
                cpu.sync().await;
            })
        };
        let kernel = self.team.upgrade().map(|team| Rc::clone(&team.kernel));
        if let Some(kernel) = kernel {
            kernel.spawn(TaskParams::named("team"), Box::new(program));
        }
    }
}
