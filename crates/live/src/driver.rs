//! Claims the functions of a live host, as VFIO does.

use std::cell::RefCell;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::pci::{ChannelState, PciBinding, PciDevice, PciDriver, PciMatch, Recovery};

use crate::function::LiveFunction;
use crate::memory::LiveMemory;

/// The functions of a live host that are present.
pub type Present = Rc<RefCell<Vec<Rc<LiveFunction>>>>;

/// The driver of all functions of a live host.
pub struct LiveDriver {
    memory: Rc<LiveMemory>,
    present: Present,
}

impl LiveDriver {
    /// Adds what it finds to `present`.
    pub fn new(memory: Rc<LiveMemory>, present: Present) -> Self {
        Self { memory, present }
    }
}

impl PciDriver for LiveDriver {
    fn name(&self) -> &'static str {
        "vfio-user"
    }

    fn ids(&self) -> &[PciMatch] {
        &[PciMatch::ANY]
    }

    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            device.dma().set_mask(64)?;
            let function = Rc::new(LiveFunction::new(cpu, device, Rc::clone(&self.memory)).await?);
            self.present.borrow_mut().push(Rc::clone(&function));
            Ok(Rc::new(LiveBinding { function, present: Rc::clone(&self.present) }) as Rc<dyn PciBinding>)
        })
    }
}

struct LiveBinding {
    function: Rc<LiveFunction>,
    present: Present,
}

impl PciBinding for LiveBinding {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            self.present.borrow_mut().retain(|function| !Rc::ptr_eq(function, &self.function));
            self.function.device.free_irqs(cpu).await;
        })
    }

    fn error_detected(&self, _: &Cpu, state: ChannelState) -> Recovery {
        match state {
            // The guest's driver finds out, and resets the function if it wants to.
            ChannelState::Normal => Recovery::CanRecover,
            ChannelState::Frozen => Recovery::NeedReset,
            ChannelState::Gone => Recovery::Disconnect,
        }
    }

    fn slot_reset<'a>(&'a self, _: &'a Cpu) -> Async<'a, Recovery> {
        Box::pin(async { Recovery::CanRecover })
    }

    fn configure_sriov<'a>(&'a self, cpu: &'a Cpu, count: u16) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            match count {
                0 => self.function.device.disable_sriov(cpu).await,
                count => self.function.device.enable_sriov(cpu, count).await?,
            }
            Ok(())
        })
    }
}
