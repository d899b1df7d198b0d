//! A network core for kernels without one: whatever is received is dropped.

use std::rc::Rc;

use platform::cpu::{Async, Cpu};
use platform::irq::NapiHandle;
use platform::net::{NetCore, Packet};

/// Takes packets and drops them.
pub(crate) struct Nowhere;

impl NetCore for Nowhere {
    fn name(&self) -> String {
        "none".into()
    }
    fn receive(&self, cpu: &Cpu, _: &NapiHandle, _: u16, packet: Packet) {
        packet.release(cpu);
    }
    fn wake_queue(&self, _: &Cpu, _: u16) {}
    fn set_carrier(&self, _: bool) {}
    fn unregister<'a>(self: Rc<Self>, _: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async {})
    }
}
