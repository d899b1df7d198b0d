//! This host, as what it lends and borrows uses it: kernel, adapter, mailbox, doorbell.

use std::cell::{Cell, OnceCell};
use std::rc::{Rc, Weak};

use drivers::ntb::NtbAdapter;
use kernel::{DmaMode, FunctionInfo, Kernel};
use platform::Error;
use platform::cpu::Cpu;
use platform::kernel::TaskParams;
use settings::{FunctionHolder, isolation};
use units::Duration;
use virt::VirtCosts;
use wire::pcie::{Bdf, FunctionAddress};

use crate::doorbell::Doorbell;
use crate::mail::Mail;
use crate::message::{Reply, Request};

/// Payload size that every function accepts (bytes; base spec 7.5.3.4).
pub(crate) const LEAST_PAYLOAD: u16 = 128;
/// Address and size of the interrupt message range (Intel SDM volume 3, message signalled interrupts).
pub(crate) const MESSAGES: (u64, u64) = (0xfee0_0000, 1 << 20);
/// Guest memory starts here, below and above the PCI hole (same for all PC guests).
pub(crate) const LOW_MEMORY: u64 = 0;
pub(crate) const HIGH_MEMORY: u64 = 4 << 30;

/// How a host lends and borrows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LendingParams {
    /// Size of the range of bus addresses that a borrowed function can access if the borrower's IOMMU is on: a power
    /// of two (bytes).
    pub window: u64,
    /// Mode of this host's IOMMU. If it does not translate, a borrowed function can access all of memory.
    pub iommu: DmaMode,
    /// Timeout for a reply.
    pub patience: Duration,
    /// Interval at which both sides of a lease check that the other still exists.
    pub heartbeat: Duration,
    /// Cycles of a handler that forwards an interrupt to another host, without its doorbell write.
    pub forward: u64,
}

impl Default for LendingParams {
    fn default() -> Self {
        Self {
            window: 1 << 30,
            iommu: DmaMode::Off,
            patience: Duration::from_ms(500),
            heartbeat: Duration::from_ms(200),
            forward: VirtCosts::linux().forward,
        }
    }
}

/// Who looks after leases.
pub(crate) trait LeaseKeeper {
    /// There is a new lease.
    fn leased(&self);

    /// Another node is gone.
    fn lost(&self, node: u8);
}

/// A host that lends and borrows.
pub(crate) struct LocalHost {
    kernel: Weak<Kernel>,
    pub adapter: Rc<NtbAdapter>,
    pub params: LendingParams,
    /// Size of the window for borrowed functions (bytes).
    pub window: u64,
    pub mail: Mail,
    pub doorbell: Doorbell,
    keeper: OnceCell<Weak<dyn LeaseKeeper>>,
    /// Interrupts forwarded.
    forwarded: Cell<u64>,
}

impl LocalHost {
    /// Prepares the adapter and the mailbox.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the adapter's tables are too small, [`Error::NoMemory`], [`Error::NoDevice`] if the adapter is gone.
    pub fn new(
        cpu: &Cpu,
        kernel: &Rc<Kernel>,
        adapter: Rc<NtbAdapter>,
        params: LendingParams,
    ) -> Result<Self, Error> {
        let root = kernel.root_port_of(adapter.address()).ok_or(Error::NoDevice)?;
        // Accesses of cores carry the ID of the root port above the adapter.
        adapter.add_local(cpu, root)?;
        let window = match params.iommu.translates() {
            true => params.window,
            false => kernel.memory_end().0,
        };
        let mail = Mail::new(cpu, Rc::clone(&adapter), params.patience)?;
        let (doorbell, keeper, forwarded) = Default::default();
        Ok(Self { kernel: Rc::downgrade(kernel), adapter, params, window, mail, doorbell, keeper, forwarded })
    }

    pub fn kernel(&self) -> Option<Rc<Kernel>> {
        self.kernel.upgrade()
    }

    /// Its node number.
    pub fn node(&self) -> u8 {
        self.adapter.node()
    }

    /// Largest payload between this host and its adapter (bytes).
    pub fn payload(&self) -> u16 {
        self.function(self.adapter.address()).map_or(LEAST_PAYLOAD, |own| own.max_payload as u16)
    }

    /// Description of a function.
    pub fn function(&self, at: FunctionAddress) -> Option<FunctionInfo> {
        self.kernel()?.pci().into_iter().find(|function| function.address() == at)
    }

    /// Whether a function of this host may be given to a guest of another one.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if nothing would confine it.
    pub fn may_lend_to_guest(&self) -> Result<(), Error> {
        // What the guest's host needs is checked there.
        let confined = isolation(self.params.iommu, FunctionHolder::RemoteGuest(DmaMode::Strict));
        confined.map(drop).map_err(|_| Error::NotSupported)
    }

    /// Whether this host's IOMMU translates addresses of functions.
    pub fn translates(&self) -> bool {
        self.params.iommu.translates()
    }

    pub fn log(&self, line: String) {
        if let Some(kernel) = self.kernel() {
            kernel.face().log(format!("lending: {line}"));
        }
    }

    /// Says who looks after its leases from now on.
    pub fn kept_by(&self, keeper: Weak<dyn LeaseKeeper>) {
        let _ = self.keeper.set(keeper);
    }

    fn keeper(&self) -> Option<Rc<dyn LeaseKeeper>> {
        self.keeper.get()?.upgrade()
    }

    /// There is a new lease.
    pub fn leased(&self) {
        if let Some(keeper) = self.keeper() {
            keeper.leased();
        }
    }

    /// Number of interrupts forwarded.
    pub fn forwarded(&self) -> u64 {
        self.forwarded.get()
    }

    /// Forwards an interrupt to the node whose guest has the function.
    pub fn forward(&self, cpu: &Cpu, node: u8, bit: u8) {
        cpu.work(self.params.forward);
        self.forwarded.set(self.forwarded.get() + 1);
        self.mail.ring(cpu, node, 1 << bit);
    }

    /// Sends a request to another node. A node that also fails to answer a check is considered lost.
    ///
    /// # Errors
    /// As of [`Mail::ask`], or the error in the reply.
    pub async fn ask(&self, cpu: &Cpu, node: u8, request: Request) -> Result<Reply, Error> {
        let answer = self.mail.ask(cpu, node, request).await;
        if answer == Err(Error::TimedOut) {
            let is_there = Request::Check { function: Bdf::default(), lent: false };
            if self.mail.ask(cpu, node, is_there).await.is_err() {
                self.give_up(cpu, node);
            }
        }
        match answer? {
            Reply::Failed(error) => Err(error),
            reply => Ok(reply),
        }
    }

    /// A node is gone.
    pub fn give_up(&self, cpu: &Cpu, node: u8) {
        self.mail.disconnect(cpu, node);
        if let Some(keeper) = self.keeper() {
            keeper.lost(node);
        }
    }

    /// Runs `work` in a task that goes on even if the future is dropped.
    pub fn start<T, W>(&self, work: W) -> impl Future<Output = Result<T, Error>> + use<T, W>
    where
        T: 'static,
        W: AsyncFnOnce(&Cpu) -> Result<T, Error> + 'static,
    {
        let done = self
            .kernel()
            .map(|kernel| kernel.run(TaskParams::named("lending"), async move |cpu: Cpu| work(&cpu).await));
        async move { done.ok_or(Error::NoDevice)?.wait().await }
    }
}
