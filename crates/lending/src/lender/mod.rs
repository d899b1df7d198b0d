//! Functions that this host lends.
//!
//! | module | subject |
//! |---|---|
//! | `driver` | claims functions |
//! | `function` | a claimed function: whether it is lent, its configuration space |
//! | `lease` | what a lent function accesses, and who accesses it: windows, the IOMMU domain, peers |
//! | `sizes` | sizes of TLPs |

mod driver;
mod function;
mod lease;
mod sizes;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::irq::{Affinity, IrqReturn};
use platform::pci::PciDevice;
use wire::pcie::Bdf;

pub(crate) use driver::LENDER;
pub use driver::{LenderDriver, Offers};
use function::LentFunction;
use lease::Lease;

use crate::host::LocalHost;
use crate::message::{BarMapping, Bars, Forwarding, Peer, Request, Terms};

/// The functions that this host lends.
#[derive(Default)]
pub(crate) struct Lender {
    held: RefCell<BTreeMap<Bdf, Rc<LentFunction>>>,
}

impl Lender {
    /// A function has been claimed.
    fn hold(&self, device: PciDevice) {
        self.held.borrow_mut().insert(device.address().bdf, Rc::new(LentFunction::new(device)));
    }

    /// A function is no longer claimed.
    fn let_go(&self, function: Bdf) {
        self.held.borrow_mut().remove(&function);
    }

    fn held(&self, function: Bdf) -> Result<Rc<LentFunction>, Error> {
        self.held.borrow().get(&function).cloned().ok_or(Error::NoDevice)
    }

    /// The `n`th function to lend, and the node that has it.
    pub fn offer(&self, n: usize) -> Option<(Bdf, Option<u8>)> {
        let held = self.held.borrow();
        let (&function, held) = held.iter().nth(n)?;
        Some((function, held.to()))
    }

    /// Functions lent to a node.
    pub fn lent_to(&self, node: u8) -> Vec<Bdf> {
        let held = self.held.borrow();
        held.iter().filter(|(_, held)| held.to() == Some(node)).map(|(&function, _)| function).collect()
    }

    /// All lent functions with their borrowers.
    pub fn leases(&self) -> Vec<(Bdf, u8)> {
        self.held.borrow().iter().filter_map(|(&function, held)| Some((function, held.to()?))).collect()
    }

    /// Number of lent functions with an IOMMU domain of their own.
    pub fn isolated(&self) -> usize {
        let is = |held: &&Rc<LentFunction>| held.with_lease(|lease| lease.is_isolated()) == Some(true);
        self.held.borrow().values().filter(is).count()
    }

    /// Pairs of functions of this `node`, both lent, of which the first can access the second.
    pub fn joined(&self, node: u8) -> usize {
        let of = |held: &Rc<LentFunction>| held.with_lease(|lease| lease.peers_of(node));
        self.held.borrow().values().filter_map(of).sum()
    }

    /// Lends a function to a node. The function can access `window` bytes of that node by TLPs of at most `payload`
    /// bytes; for a guest it can access nothing yet.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is lent already, [`Error::NotSupported`] if it has no message interrupts or its payload
    /// size cannot be reduced enough, [`Error::NoSpace`] if a table of the adapter is full.
    pub async fn lend(
        &self,
        cpu: &Cpu,
        host: &LocalHost,
        to: u8,
        function: Bdf,
        (window, payload): (Option<u64>, u16),
    ) -> Result<Terms, Error> {
        let held = self.held(function)?;
        let terms = held.lend(cpu, host, to, (window, payload)).await?;
        // If it or the adapter was removed meanwhile, nobody would end the lease.
        let is_held = self.held.borrow().get(&function).is_some_and(|now| Rc::ptr_eq(now, &held));
        if is_held && host.adapter.is_present() {
            return Ok(terms);
        }
        held.take_lease(to)?.end(cpu, &host.adapter);
        held.end_lease(true);
        Err(Error::NoDevice)
    }

    /// Takes a function back from a node and ends the lease.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the node does not have it.
    pub async fn take_back(&self, cpu: &Cpu, host: &LocalHost, from: u8, function: Bdf) -> Result<(), Error> {
        let held = self.held(function)?;
        let lease = held.take_lease(from)?;
        self.part_all(cpu, host, function);
        // Stop its requests before its windows are removed.
        held.device.set_master(cpu, false).await;
        let reset = held.device.reset(cpu).await;
        // A reset restores the settings, including bus mastering.
        held.device.set_master(cpu, false).await;
        let is_clean = reset.is_ok() || !held.device.is_present();
        if let Err(error) = reset
            && !is_clean
        {
            host.log(format!("{function} cannot be reset ({error}) and is no longer lent"));
        }
        if lease.forwards() {
            held.device.free_irqs(cpu).await;
        }
        lease.end(cpu, &host.adapter);
        held.end_lease(is_clean);
        Ok(())
    }

    /// Takes a function back, whatever its borrower is doing. Does nothing if it is not lent.
    pub async fn revoke(&self, cpu: &Cpu, host: &LocalHost, function: Bdf) {
        let lease = self.leases().into_iter().find(|(lent, _)| *lent == function);
        if let Some((_, node)) = lease {
            // Do not wait for the borrower: it may be gone, and finds out otherwise.
            let _ = host.mail.ask(cpu, node, Request::Revoke { function }).await;
            let _ = self.take_back(cpu, host, node, function).await;
        }
    }

    /// Parts a function from everything lent here, even if its borrower cannot: another node may get it next.
    fn part_all(&self, cpu: &Cpu, host: &LocalHost, function: Bdf) {
        let gone = Peer { node: host.node(), function };
        for held in self.held.borrow().values() {
            held.with_lease(|lease| lease.unreach(cpu, &host.adapter, gone));
        }
    }

    /// Opens a guest's memory to its function: `low` plus `high` bytes, contiguous from `at` in the borrower's
    /// addresses.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is open already, [`Error::NoSpace`] if the window is too small.
    pub fn open(
        &self,
        cpu: &Cpu,
        host: &LocalHost,
        (to, function): (u8, Bdf),
        memory: (u64, u64, u64),
    ) -> Result<(), Error> {
        self.lease(to, function, |lease, _| lease.open(cpu, &host.adapter, memory))
    }

    /// Forwards up to the `wanted` interrupts of a function to its borrower, or no more if none are. Returns how many.
    pub async fn forward(
        &self,
        cpu: &Cpu,
        host: &Rc<LocalHost>,
        (to, function): (u8, Bdf),
        wanted: Forwarding,
    ) -> Result<u8, Error> {
        let Forwarding { first, count, legacy } = wanted;
        let held = self.held(function)?;
        let forwarded = self.lease(to, function, |lease, _| lease.stop_forwarding())?;
        if forwarded {
            held.device.free_irqs(cpu).await;
        }
        if count == 0 {
            return Ok(0);
        }
        // The doorbell has no more bits.
        if u32::from(first) + u32::from(count) > wire::ntb::LINK_CHANGED.trailing_zeros() {
            return Err(Error::Invalid);
        }
        let irqs = match legacy {
            true => vec![held.device.alloc_intx(cpu, Affinity::Spread).await?],
            false => held.device.alloc_irqs(cpu, 1, count.into(), Affinity::Spread).await?,
        };
        // The lease may have ended meanwhile.
        let kept = self.lease(to, function, |lease, _| {
            lease.start_forwarding(legacy.then_some(first));
            Ok(())
        });
        if kept.is_err() {
            held.device.free_irqs(cpu).await;
            return Err(Error::NotPermitted);
        }
        let granted = irqs.len() as u8;
        for (bit, irq) in (first..).zip(irqs) {
            let host = Rc::downgrade(host);
            let forward = move |cpu: &Cpu| {
                if let Some(host) = host.upgrade() {
                    host.forward(cpu, to, bit);
                }
            };
            if legacy {
                // The line may be shared: check the function's status, and mask it until the guest has handled it.
                let (device, forward) = (held.device.clone(), Rc::new(forward));
                let thread = move |cpu: Cpu| -> Async<'static, ()> {
                    let (device, forward) = (device.clone(), Rc::clone(&forward));
                    Box::pin(async move {
                        if device.set_intx_masked_if_due(&cpu, true).await {
                            forward(&cpu);
                        }
                    })
                };
                let handler = Rc::new(|_: &Cpu| IrqReturn::WakeThread);
                held.device.request_irq(irq, "lender", handler, Some(Rc::new(thread)))?;
                continue;
            }
            let handler = Rc::new(move |cpu: &Cpu| {
                forward(cpu);
                IrqReturn::Handled
            });
            held.device.request_irq(irq, "lender", handler, None)?;
        }
        Ok(granted)
    }

    /// Unmasks a legacy interrupt after the guest has handled it. If the cause remains, it is forwarded again.
    pub async fn unmask(&self, cpu: &Cpu, host: &LocalHost, (to, function): (u8, Bdf)) -> Result<(), Error> {
        let bit = self.lease(to, function, |lease, _| lease.line().ok_or(Error::Invalid))?;
        if !self.held(function)?.device.set_intx_masked_if_due(cpu, false).await {
            host.forward(cpu, to, bit);
        }
        Ok(())
    }

    /// Reads configuration space of a function to lend, whoever has it.
    pub async fn inspect(&self, cpu: &Cpu, function: Bdf, register: u16) -> Result<u32, Error> {
        self.held(function)?.inspect(cpu, register).await
    }

    /// Local addresses of its BARs.
    pub fn describe(&self, function: Bdf) -> Result<Bars, Error> {
        Ok(self.held(function)?.own_bars())
    }

    /// Lets a guest's function access a BAR of another one of the guest.
    pub fn join_guest(
        &self,
        cpu: &Cpu,
        host: &LocalHost,
        (to, function): (u8, Bdf),
        peer: Peer,
        mapping: BarMapping,
    ) -> Result<(), Error> {
        let target = match peer.node == host.adapter.node() {
            false => (mapping.target, mapping.length),
            true => {
                let bars = self.own_peer(to, function, peer.function)?;
                bars.get(usize::from(mapping.bar)).copied().ok_or(Error::Invalid)?
            }
        };
        self.lease(to, function, |lease, _| {
            lease.join_guest(cpu, &host.adapter, (peer, target), mapping.guest_address)
        })?;
        self.leaves_half(cpu, host, (to, function), peer)
    }

    /// Lets a function of a node access another one of the same node.
    pub fn join(
        &self,
        cpu: &Cpu,
        host: &LocalHost,
        (to, function): (u8, Bdf),
        peer: Peer,
        bars: Bars,
    ) -> Result<Bars, Error> {
        let bars = match peer.node == host.adapter.node() {
            false => bars,
            true => self.own_peer(to, function, peer.function)?,
        };
        let found = self.lease(to, function, |lease, _| lease.join(cpu, host, peer, bars))?;
        self.leaves_half(cpu, host, (to, function), peer)?;
        Ok(found)
    }

    /// Windows to other nodes' functions may take at most half of the segments: removes the last one if it exceeds
    /// that.
    fn leaves_half(
        &self,
        cpu: &Cpu,
        host: &LocalHost,
        (to, function): (u8, Bdf),
        last: Peer,
    ) -> Result<(), Error> {
        let of = |held: &Rc<LentFunction>| held.with_lease(|lease| lease.peer_segments());
        let taken: usize = self.held.borrow().values().filter_map(of).sum();
        if 2 * taken <= host.adapter.segments() {
            return Ok(());
        }
        self.lease(to, function, |lease, _| {
            lease.unreach(cpu, &host.adapter, last);
            Err(Error::NoSpace)
        })
    }

    /// The BARs of a function that a node has, for another function of that node.
    fn own_peer(&self, to: u8, function: Bdf, peer: Bdf) -> Result<Bars, Error> {
        let payload = self.lease(to, function, |lease, _| Ok(lease.sizes().payload()))?;
        self.lease(to, peer, |lease, held| {
            fits(payload, lease.sizes().payload())?;
            Ok(held.own_bars())
        })
    }

    /// Parts two functions.
    pub fn part(
        &self,
        cpu: &Cpu,
        host: &LocalHost,
        (to, function): (u8, Bdf),
        peer: Peer,
    ) -> Result<(), Error> {
        self.lease(to, function, |lease, _| {
            lease.part(cpu, &host.adapter, peer);
            Ok(())
        })
    }

    /// Lets a function of another node, with payloads of at most `payload` bytes, access one lent to `to`.
    pub fn admit(
        &self,
        cpu: &Cpu,
        host: &LocalHost,
        (to, function): (u8, Bdf),
        guest: (Peer, u8),
        payload: u16,
    ) -> Result<Bars, Error> {
        // Functions that only access others leave half of the table to lent functions.
        if host.adapter.is_half_full() {
            return Err(Error::NoSpace);
        }
        self.lease(to, function, |lease, held| {
            fits(payload, lease.sizes().payload())?;
            lease.admit(cpu, host, guest, &held.device)
        })
    }

    /// Calls a function with a node's lease.
    fn lease<T>(
        &self,
        to: u8,
        function: Bdf,
        act: impl FnOnce(&mut Lease, &LentFunction) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let held = self.held(function)?;
        let acted = held.with_lease(|lease| (lease.to() == to).then(|| act(lease, &held)));
        acted.flatten().unwrap_or(Err(Error::NotPermitted))
    }

    /// Reads configuration space of a function lent to a node.
    pub async fn config_read(&self, cpu: &Cpu, to: u8, function: Bdf, register: u16) -> Result<u32, Error> {
        let held = self.held(function)?;
        if held.to() != Some(to) {
            return Err(Error::NotPermitted);
        }
        held.shown_read(cpu, register).await
    }

    /// Writes configuration space of a function lent to a node.
    pub async fn config_write(
        &self,
        cpu: &Cpu,
        to: u8,
        function: Bdf,
        register: u16,
        (value, enables): (u32, u8),
    ) -> Result<(), Error> {
        let held = self.held(function)?;
        if held.to() != Some(to) {
            return Err(Error::NotPermitted);
        }
        held.shown_write(cpu, register, (value, enables)).await
    }
}

/// Whether payloads of `payload` bytes fit where `takes` are accepted.
fn fits(payload: u16, takes: u16) -> Result<(), Error> {
    if payload <= takes { Ok(()) } else { Err(Error::NotSupported) }
}
