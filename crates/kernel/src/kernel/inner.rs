//! The parts of a kernel.

use std::cell::RefCell;
use std::rc::Rc;

use super::files::Files;
use crate::block::Block;
use crate::cpu::Cores;
use crate::dma::Dma;
use crate::irq::{Apics, Irqs, Softirqs};
use crate::log::Log;
use crate::mm::{Memory, Pins};
use crate::net::Net;
use crate::net::inet::Stack;
use crate::pci::Pci;
use crate::tasks::Tasks;

/// The parts of a kernel. Later ones depend on earlier ones.
pub(crate) struct Inner {
    pub cores: Rc<Cores>,
    pub log: Rc<Log>,
    pub memory: Rc<Memory>,
    pub tasks: Rc<Tasks>,
    pub apics: Rc<Apics>,
    pub softirqs: Rc<Softirqs>,
    pub irqs: Rc<Irqs>,
    pub dma: Rc<Dma>,
    pub pci: Rc<Pci>,
    pub pins: Rc<Pins>,
    pub files: Files,
    pub net: Rc<Net>,
    pub inet: Rc<Stack>,
    /// Network stacks of further network namespaces.
    pub namespaces: RefCell<Vec<Rc<Stack>>>,
    pub block: Block,
}
