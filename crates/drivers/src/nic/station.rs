//! Functions of one card that share an Ethernet address, one per node. Data in another node's memory is read through
//! that node's function (IOctopus, 3.3: IOctoSG).

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use platform::cpu::Node;
use platform::dma::DmaOps;
use platform::kernel::Kernel;
use platform::memory::PhysAddr;

use super::state::{AdapterState, Shown};

/// A function and the others with its address.
pub(super) struct Station {
    kernel: Rc<dyn Kernel>,
    node: Node,
    own: Hand,
    state: Shown,
    others: RefCell<Vec<Weak<Self>>>,
}

/// A function that can read memory for another: its number, and its DMA mapping.
#[derive(Clone)]
pub(super) struct Hand {
    pub function: u8,
    pub dma: Rc<dyn DmaOps>,
}

impl Station {
    /// A function at a node, with no others yet.
    pub fn new(kernel: Rc<dyn Kernel>, node: Node, own: Hand, state: Shown) -> Self {
        Self { kernel, node, own, state, others: RefCell::default() }
    }

    /// Adds another function.
    pub fn add(&self, other: &Rc<Self>) {
        let mut others = self.others.borrow_mut();
        others.retain(|other| other.strong_count() > 0);
        others.push(Rc::downgrade(other));
    }

    /// Whether another function runs, which can send and receive in place of this one.
    pub fn has_stand_in(&self) -> bool {
        let others = self.others.borrow();
        others.iter().filter_map(Weak::upgrade).any(|other| other.state.get() == AdapterState::Up)
    }

    /// The running function, if any, that is closer to some memory than this one.
    pub fn nearer(&self, at: PhysAddr) -> Option<Hand> {
        let others = self.others.borrow();
        if others.is_empty() {
            return None;
        }
        let node = self.kernel.node_of_address(at).filter(|&node| node != self.node)?;
        let mut up =
            others.iter().filter_map(Weak::upgrade).filter(|other| other.state.get() == AdapterState::Up);
        up.find(|other| other.node == node).map(|other| other.own.clone())
    }
}
