//! What a hypervisor does with a function that it passes through.

use std::cell::RefCell;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId};
use platform::irq::{Affinity, Irq, IrqReturn};
use platform::memory::PhysAddr;
use platform::pci::{BarRange, Identity, PciDevice};

use super::Container;
use crate::bus::BarPart;

/// Told which of a function's interrupts has come, by the core that it came to.
pub type Signal = Rc<dyn Fn(&Cpu, u16)>;

/// What a hypervisor does with a function that it passes through (Linux: the calls of a VFIO device's file). Functions of the host
/// are such ([`HostFunction`]); whoever mediates a function of another kind is asked the same.
pub trait VfioDevice {
    /// Vendor, device and class, as configuration space says.
    fn identity(&self) -> Identity;

    /// Reads a doubleword of its configuration space: what the guest is shown is made after it.
    fn config_read<'a>(&'a self, cpu: &'a Cpu, register: u16) -> Async<'a, u32>;

    /// Where a capability is.
    fn capability(&self, id: u8) -> Option<u16>;

    /// What a BAR asks for.
    fn bar(&self, bar: u8) -> Option<BarRange>;

    /// Where the host's cores find a BAR, while they do.
    fn registers(&self, bar: u8) -> Option<PhysAddr>;

    /// The guest lets it send requests, or does not.
    fn set_master<'a>(&'a self, cpu: &'a Cpu, on: bool) -> Async<'a, ()>;

    /// Resets it. It sends no requests and no interrupts afterwards.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if it cannot be reset alone, [`Error::NoDevice`] if it is gone.
    fn reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>>;

    /// Lets its interrupts come to `signal`, the n-th by the n-th of these cores; none without cores.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are fewer, [`Error::NoDevice`] if it is gone.
    fn set_interrupts<'a>(
        &'a self,
        cpu: &'a Cpu,
        cores: Vec<CpuId>,
        signal: Signal,
    ) -> Async<'a, Result<(), Error>>;

    /// Lets its legacy interrupt come to `signal`, by this core. It is held back in the function then until it is
    /// [`unmasked`](Self::unmask_line).
    ///
    /// # Errors
    /// [`Error::NotSupported`] if it has none, [`Error::NoDevice`] if it is gone.
    fn set_line<'a>(&'a self, cpu: &'a Cpu, core: CpuId, signal: Signal) -> Async<'a, Result<(), Error>>;

    /// The guest has dealt with it: it is signalled again if it still has a cause, or else when it has one.
    fn unmask_line<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;

    /// Lets an interrupt be noted for a guest's core from now on, in its descriptor under its vector, or signalled again without one.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if the host cannot do so, [`Error::Invalid`] if there is no such interrupt.
    fn post(&self, cpu: &Cpu, number: u16, to: Option<(PhysAddr, u8)>) -> Result<(), Error> {
        let _ = (cpu, number, to);
        Err(Error::NotSupported)
    }

    /// The guest sees its BARs there now: other functions of the guest may reach them.
    fn bars_moved(&self, cpu: &Cpu, parts: &[BarPart]);

    /// Says who is to be told when the guest has lost it for good, as when its host wants it back (Linux: `VFIO_PCI_REQ_IRQ_INDEX`).
    fn on_loss(&self, _told: Box<dyn FnOnce()>) {}

    /// The guest has it no longer: it is reset, and reaches nothing of the guest.
    fn close<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()>;
}

/// A function of the host that is passed through to a guest.
pub struct HostFunction {
    device: PciDevice,
    container: Rc<Container>,
    irqs: RefCell<Vec<Irq>>,
    /// Who is told of its legacy interrupt.
    line: RefCell<Option<Signal>>,
    eventfd: u64,
}

impl HostFunction {
    /// Lets a function's requests lead where the container's do. To signal an interrupt takes its handler `eventfd` cycles.
    ///
    /// # Errors
    /// [`Error::NotSupported`] without an IOMMU that translates, [`Error::Busy`] if its group is somebody else's,
    /// [`Error::NoMemory`] if the guest's memory cannot be held.
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
    /// Vendor, device and class, as configuration space says.
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
            // A reset by the kernel leaves the function as its driver had it.
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
            // Others may be on the line: the function is asked, which takes a while.
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
        self.container.host()?.post_irq(cpu, irq, to)
    }

    fn bars_moved(&self, cpu: &Cpu, parts: &[BarPart]) {
        self.container.set_bars(cpu, self.device.address(), parts);
    }

    fn close<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            // Out of reach first, so that nothing of it meets memory that is somebody else's by then.
            self.container.detach(cpu, self.device.address());
            // One that cannot be reset is left as it is: without a domain it reaches nothing.
            let _ = self.reset(cpu).await;
        })
    }
}
