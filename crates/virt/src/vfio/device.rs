//! The hypervisor's interface to a passed-through function.

use std::cell::RefCell;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId};
use platform::irq::{Affinity, Irq, IrqReturn};
use platform::memory::PhysAddr;
use platform::pci::{BarRange, Identity, PciDevice};

use super::Container;
use crate::bus::BarPart;

/// Called on the core that got the interrupt, with its number.
pub type Signal = Rc<dyn Fn(&Cpu, u16)>;

/// A function that can be passed through (Linux: a VFIO device file). Implemented by functions of the host
/// ([`HostFunction`]) and by mediated functions.
pub trait VfioDevice {
    /// Vendor, device and class.
    fn identity(&self) -> Identity;

    /// Reads a doubleword of configuration space, from which the guest's view is built.
    fn config_read<'a>(&'a self, cpu: &'a Cpu, register: u16) -> Async<'a, u32>;

    /// Offset of a capability.
    fn capability(&self, id: u8) -> Option<u16>;

    /// Size and address of a BAR.
    fn bar(&self, bar: u8) -> Option<BarRange>;

    /// Host address of a BAR, while there is one.
    fn registers(&self, bar: u8) -> Option<PhysAddr>;

    /// Turns bus mastering on or off.
    fn set_master<'a>(&'a self, cpu: &'a Cpu, on: bool) -> Async<'a, ()>;

    /// Resets the function, which then sends neither requests nor interrupts.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if it cannot be reset on its own, [`Error::NoDevice`] if it is gone.
    fn reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>>;

    /// Allocates an interrupt for each of these cores and reports them to `signal`; none without cores.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are fewer, [`Error::NoDevice`] if it is gone.
    fn set_interrupts<'a>(
        &'a self,
        cpu: &'a Cpu,
        cores: Vec<CpuId>,
        signal: Signal,
    ) -> Async<'a, Result<(), Error>>;

    /// Reports its legacy interrupt to `signal` on this core. The interrupt is then masked until
    /// [`unmasked`](Self::unmask_line).
    ///
    /// # Errors
    /// [`Error::NotSupported`] if it has none, [`Error::NoDevice`] if it is gone.
    fn set_line<'a>(&'a self, cpu: &'a Cpu, core: CpuId, signal: Signal) -> Async<'a, Result<(), Error>>;

    /// Unmasks the legacy interrupt after the guest has handled it. If the cause remains, it is signalled again.
    fn unmask_line<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;

    /// Posts an interrupt to a vCPU's descriptor with this vector, or with `None`, signals it again.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the host cannot post, [`Error::Invalid`] if there is no such interrupt.
    fn post(&self, cpu: &Cpu, number: u16, to: Option<(PhysAddr, u8)>) -> Result<(), Error> {
        let _ = (cpu, number, to);
        Err(Error::NotSupported)
    }

    /// Its BARs have moved in the guest, where other functions may access them.
    fn bars_moved(&self, cpu: &Cpu, parts: &[BarPart]);

    /// Sets the callback for when the guest has lost the function for good, such as on a request of its host (Linux:
    /// `VFIO_PCI_REQ_IRQ_INDEX`).
    fn on_loss(&self, _told: Box<dyn FnOnce()>) {}

    /// Detaches the function from the guest and resets it.
    fn close<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;
}

/// A function of the host that is passed through.
pub struct HostFunction {
    device: PciDevice,
    container: Rc<Container>,
    irqs: RefCell<Vec<Irq>>,
    /// Handler of its legacy interrupt.
    line: RefCell<Option<Signal>>,
    eventfd: u64,
}

impl HostFunction {
    /// Attaches a function to the container. Its interrupt handlers take `eventfd` cycles.
    ///
    /// # Errors
    /// [`Error::NotSupported`] without an IOMMU that translates, [`Error::Busy`] if its group is in use elsewhere,
    /// [`Error::NoMemory`] if the guest's memory cannot be pinned.
    pub fn open(
        cpu: &Cpu,
        container: &Rc<Container>,
        device: PciDevice,
        eventfd: u64,
    ) -> Result<Rc<Self>, Error> {
        container.attach(cpu, &device)?;
        let container = Rc::clone(container);
        let (irqs, line) = Default::default();
        Ok(Rc::new(Self { device, container, irqs, line, eventfd }))
    }

    async fn free_interrupts(&self, cpu: &Cpu) {
        self.line.take();
        if !self.irqs.take().is_empty() {
            self.device.free_irqs(cpu).await;
        }
    }
}

impl VfioDevice for HostFunction {
    /// Vendor, device and class.
    fn identity(&self) -> Identity {
        self.device.identity()
    }

    fn config_read<'a>(&'a self, cpu: &'a Cpu, register: u16) -> Async<'a, u32> {
        self.device.config_read(cpu, register)
    }

    fn capability(&self, id: u8) -> Option<u16> {
        self.device.capability(id)
    }

    fn bar(&self, bar: u8) -> Option<BarRange> {
        self.device.bar(bar)
    }

    fn registers(&self, bar: u8) -> Option<PhysAddr> {
        self.device.bar(bar).filter(|_| self.device.is_present()).map(|range| range.start)
    }

    fn set_master<'a>(&'a self, cpu: &'a Cpu, on: bool) -> Async<'a, ()> {
        self.device.set_master(cpu, on)
    }

    fn reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            self.free_interrupts(cpu).await;
            if !self.device.is_present() {
                return Err(Error::NoDevice);
            }
            self.device.set_master(cpu, false).await;
            let done = self.device.reset(cpu).await;
            // The kernel's reset restores bus mastering, which the guest has not enabled.
            self.device.set_master(cpu, false).await;
            done
        })
    }

    fn set_interrupts<'a>(
        &'a self,
        cpu: &'a Cpu,
        cores: Vec<CpuId>,
        signal: Signal,
    ) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            self.free_interrupts(cpu).await;
            if cores.is_empty() {
                return Ok(());
            }
            let (count, eventfd) = (cores.len() as u16, self.eventfd);
            let irqs = self.device.alloc_irqs(cpu, 1, count, Affinity::Cpus(cores)).await?;
            self.irqs.borrow_mut().clone_from(&irqs);
            let got = irqs.len() as u16;
            for (number, irq) in (0u16..).zip(irqs) {
                let signal = Rc::clone(&signal);
                let handler = Rc::new(move |cpu: &Cpu| {
                    cpu.work(eventfd);
                    signal(cpu, number);
                    IrqReturn::Handled
                });
                self.device.request_irq(irq, "vfio", handler, None)?;
            }
            if got < count { Err(Error::NoSpace) } else { Ok(()) }
        })
    }

    fn set_line<'a>(&'a self, cpu: &'a Cpu, core: CpuId, signal: Signal) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            self.free_interrupts(cpu).await;
            let irq = self.device.alloc_intx(cpu, Affinity::Cpu(core)).await?;
            *self.irqs.borrow_mut() = vec![irq];
            *self.line.borrow_mut() = Some(Rc::clone(&signal));
            // The line may be shared, so check the function's own status, which takes a while.
            let (device, eventfd) = (self.device.clone(), self.eventfd);
            let thread = move |cpu: Cpu| -> Async<'static, ()> {
                let (device, signal) = (device.clone(), Rc::clone(&signal));
                Box::pin(async move {
                    if device.set_intx_masked_if_due(&cpu, true).await {
                        cpu.work(eventfd);
                        signal(&cpu, 0);
                    }
                })
            };
            self.device.request_irq(
                irq,
                "vfio-intx",
                Rc::new(|_| IrqReturn::WakeThread),
                Some(Rc::new(thread)),
            )
        })
    }

    fn unmask_line<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            let signal = self.line.borrow().clone();
            if let Some(signal) = signal.filter(|_| self.device.is_present())
                && !self.device.set_intx_masked_if_due(cpu, false).await
            {
                signal(cpu, 0);
            }
        })
    }

    fn post(&self, cpu: &Cpu, number: u16, to: Option<(PhysAddr, u8)>) -> Result<(), Error> {
        let irq = self.irqs.borrow().get(usize::from(number)).copied().ok_or(Error::Invalid)?;
        self.container.host()?.guest_interrupts().post_irq(cpu, irq, to)
    }

    fn bars_moved(&self, cpu: &Cpu, parts: &[BarPart]) {
        self.container.set_bars(cpu, self.device.address(), parts);
    }

    fn close<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            // The reset ends what it has under way (Linux: `vfio_pci_core_disable`). If it fails, the function can access
            // nothing without a domain.
            let _ = self.reset(cpu).await;
            self.container.detach(cpu, self.device.address());
        })
    }
}
