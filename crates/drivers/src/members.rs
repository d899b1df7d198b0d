//! What devices made of several members have in common: [teams](crate::team), and the functions of one card behind one
//! network device. Queues of the whole are those of its members, one after the other.

use std::cell::RefCell;
use std::rc::Rc;

use platform::cpu::{Cpu, Node};
use platform::net::{DeviceStatistics, MacAddr, NetCore, NetDriver, TxStatistics};
use platform::{Error, cpu::CpuId};

/// Returns a member's driver, unless it is gone.
pub(crate) type MemberDriver = Box<dyn Fn(usize) -> Option<Rc<dyn NetDriver>>>;

/// What devices that were members have counted.
#[derive(Default)]
pub(crate) struct FormerMembers {
    tx: RefCell<TxStatistics>,
    others: RefCell<DeviceStatistics>,
}

impl FormerMembers {
    pub fn add(&self, tx: &TxStatistics, others: &DeviceStatistics) {
        self.tx.borrow_mut().add(tx);
        self.others.borrow_mut().add(others);
    }

    pub fn tx(&self) -> TxStatistics {
        self.tx.borrow().clone()
    }

    pub fn others(&self) -> DeviceStatistics {
        self.others.borrow().clone()
    }
}

/// What a device is to the network device made of several.
pub(crate) trait Member {
    /// Its driver, unless it is gone.
    fn driver(&self) -> Option<Rc<dyn NetDriver>>;
    /// Whether it can send and receive.
    fn is_usable(&self) -> bool;
    /// Its first TX queue among those of the whole.
    fn first_tx(&self) -> u16;
    /// Its first RX queue among those of the whole.
    fn first_rx(&self) -> u16;
    /// Numbers of its TX and RX queues.
    fn queues(&self) -> (u16, u16);

    /// Whether an RX queue may still deliver packets: it has a ring.
    fn delivers(&self, queue: u16) -> bool {
        self.driver().is_some_and(|driver| driver.rx_outstanding(queue).is_some())
    }

    /// Its node, unless it is gone.
    fn node(&self) -> Option<Node> {
        self.driver()?.node_of(0)
    }
}

/// The member for cores of a node: one there, a usable one if possible, or else any usable one. One that is being reset
/// keeps its cores, so that their flows are back with it at once.
fn member_for<M: Member>(members: &[M], node: Node) -> Option<usize> {
    let is_near = |member: &M| member.node() == Some(node);
    let near = members.iter().position(|member| member.is_usable() && is_near(member));
    near.or_else(|| members.iter().position(is_near)).or_else(|| members.iter().position(M::is_usable))
}

/// A core's queue at a member, and the member.
pub(crate) fn tx_queue_for(members: &[impl Member], cpu: CpuId, node: Node) -> Option<(usize, u16)> {
    let member = member_for(members, node)?;
    Some((member, members[member].driver()?.tx_queue_for(cpu)))
}

/// A core's queue at a usable member, and the member, for a packet whose own member is not usable.
pub(crate) fn stand_in_for<M: Member>(members: &[M], cpu: &Cpu) -> Option<(usize, u16)> {
    let near = |member: &M| member.is_usable() && member.node() == Some(cpu.node());
    let member = members.iter().position(near).or_else(|| members.iter().position(M::is_usable))?;
    Some((member, members[member].driver()?.tx_queue_for(cpu.id())))
}

/// The RX queue for a core.
pub(crate) fn rx_queue_for(members: &[impl Member], cpu: CpuId, node: Node) -> Option<u16> {
    let member = &members[member_for(members, node)?];
    Some(member.first_rx() + member.driver()?.rx_queue_for(cpu))
}

/// The member behind a TX queue, and the queue's number there.
pub(crate) fn tx_place(members: &[impl Member], queue: u16) -> (usize, u16) {
    place(members, queue, Member::first_tx)
}

/// The member behind an RX queue, and the queue's number there.
pub(crate) fn rx_place(members: &[impl Member], queue: u16) -> (usize, u16) {
    place(members, queue, Member::first_rx)
}

fn place<M>(members: &[M], queue: u16, first: impl Fn(&M) -> u16) -> (usize, u16) {
    let member = members.iter().rposition(|member| first(member) <= queue).unwrap_or(0);
    (member, queue - first(&members[member]))
}

/// The driver behind an RX queue, and the queue's number there.
pub(crate) fn receiver(members: &[impl Member], queue: u16) -> Option<(Rc<dyn NetDriver>, u16)> {
    let (member, own) = rx_place(members, queue);
    Some((members.get(member)?.driver()?, own))
}

/// Assigns an address to an RX queue, or removes it. Other members release it last, so that some member always accepts
/// its frames.
///
/// # Errors
/// Those of the queue's member; [`Error::NoDevice`] if it is gone.
pub(crate) fn set_address(
    members: &[impl Member],
    cpu: &Cpu,
    mac: MacAddr,
    queue: Option<u16>,
) -> Result<(), Error> {
    let place = queue.map(|queue| rx_place(members, queue));
    if let Some((member, own)) = place {
        let driver = members[member].driver().ok_or(Error::NoDevice)?;
        driver.set_address(cpu, mac, Some(own))?;
    }
    for (number, member) in members.iter().enumerate() {
        if place.is_none_or(|(own, _)| own != number)
            && let Some(driver) = member.driver()
        {
            // A member that never had the address has nothing to release.
            let _ = driver.set_address(cpu, mac, None);
        }
    }
    Ok(())
}

/// Wakes everything that waits for members that are down: packets take other ways, and RX queues without a ring are
/// empty. `tx` returns the whole's number of a member's TX queue.
pub(crate) fn skip_lost(
    members: &[impl Member],
    cpu: &Cpu,
    core: &dyn NetCore,
    tx: impl Fn(usize, u16) -> u16,
) {
    for (number, member) in members.iter().enumerate().filter(|(_, member)| !member.is_usable()) {
        let (tx_queues, rx_queues) = member.queues();
        for queue in (0..rx_queues).filter(|&queue| !member.delivers(queue)) {
            core.poll_end(cpu, member.first_rx() + queue, true);
        }
        (0..tx_queues).for_each(|queue| core.wake_queue(cpu, tx(number, queue)));
    }
}
