//! Functions that are not on the host's own fabric.

use std::rc::Rc;

use kernel::{Backend, Message};
use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::dma::DmaOps;
use platform::pci::BarRange;
use wire::pcie::Bdf;
use wire::pcie::config::ConfigSpace;

use super::VENDOR;

/// Their device ID.
pub const BEHIND: u16 = 0x00c7;

/// A function behind a bridge that gives all requests this requester ID.
pub struct Behind(pub Bdf);

impl Backend for Behind {
    fn config_read<'a>(&'a self, _: &'a Cpu, register: u16) -> Async<'a, u32> {
        let config = ConfigSpace::endpoint(VENDOR, BEHIND, 0x08_8000).build().unwrap();
        Box::pin(async move { config.dword(register) })
    }

    fn config_write<'a>(&'a self, _: &'a Cpu, _: u16, _: u32, _: u8) -> Async<'a, ()> {
        Box::pin(async {})
    }

    fn map_bar(&self, _: u8, range: BarRange) -> Result<BarRange, Error> {
        Ok(range)
    }

    fn requester(&self) -> Bdf {
        self.0
    }

    fn root_port(&self) -> Bdf {
        Bdf::new(0, 1, 0)
    }

    fn virtual_function(&self, _: Bdf) -> Option<Rc<dyn Backend>> {
        None
    }

    fn dma(&self, own: Rc<dyn DmaOps>) -> Rc<dyn DmaOps> {
        own
    }

    fn message(&self, _: u16, message: Message) -> Result<Message, Error> {
        Ok(message)
    }

    fn close(&self) {}
}
