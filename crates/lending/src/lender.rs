//! Functions that this host lends. A driver claims them, as vfio-pci does, so that no other driver binds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use drivers::ntb::{Mapping, NtbAdapter};
use kernel::IommuDomain;
use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::dma::Direction;
use platform::irq::{Affinity, IrqReturn};
use platform::memory::{PAGE, PhysAddr};
use platform::pci::{ChannelState, PciBinding, PciDevice, PciDriver, PciMatch, Recovery};
use units::Iova;
use wire::pcie::config::caps::id;
use wire::pcie::config::{header, pcie_cap};
use wire::pcie::{Bdf, FunctionAddress};

use crate::message::{BarMapping, Bars, Forwarding, Peer, Terms};
use crate::service::{LEAST_PAYLOAD, Service};

/// Address and size of the interrupt message range (Intel SDM volume 3, message signalled interrupts).
pub(crate) const MESSAGES: (u64, u64) = (0xfee0_0000, 1 << 20);
/// Guest memory starts here, below and above the PCI hole (same for all PC guests).
pub(crate) const LOW_MEMORY: u64 = 0;
pub(crate) const HIGH_MEMORY: u64 = 4 << 30;
/// Name of the driver that claims lent functions.
pub(crate) const LENDER: &str = "lender";
/// Largest max read request size (bytes; base spec 7.5.3.4).
const LARGEST_REQUEST: u16 = 4096;
/// Expansion ROM base address register.
const ROM: u16 = 0x30;

/// Selects the functions to lend.
pub type Offers = Rc<dyn Fn(FunctionAddress) -> bool>;

/// A lease of a function.
struct Lease {
    /// The borrowing node.
    to: u8,
    /// Index in the adapter's requester table.
    place: u8,
    /// Windows that it can access: the borrower's addresses and interrupt controllers, or a guest's memory.
    windows: Vec<Mapping>,
    sizes: Sizes,
    /// Borrowed for a guest.
    for_guest: bool,
    /// Whether its interrupts arrive at this host and are forwarded.
    forwards: bool,
    /// Doorbell bit of its legacy interrupt.
    line: Option<u8>,
    /// The IOMMU domain that restricts it to its windows.
    domain: Option<IommuDomain>,
    /// Functions that it can access, with the windows and mappings used.
    peers: BTreeMap<Peer, Vec<Joined>>,
    /// Functions of other nodes that can access it.
    guests: Vec<Guest>,
    /// Its BARs as mapped for the borrower's cores.
    shown: Shown,
}

/// Largest payload and largest read request of a lent function (bytes).
///
/// A bridge does not split TLPs, so all payloads have to fit on both sides. A completer splits by its own side's
/// limit, but never sends more than was requested (Linux limits read requests in the same way if a root port may send
/// larger payloads than a device accepts: `pcie_bus_perf`, commit a1c473aa11e6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sizes {
    payload: u16,
    request: u16,
}

impl Sizes {
    /// Sizes for the payload limits at the lender and at the borrower.
    fn between(lender: u16, borrower: u16) -> Self {
        let request = if borrower > lender { lender } else { LARGEST_REQUEST };
        Self { payload: lender.min(borrower), request }
    }

    /// Device Control value (base spec 7.5.3.4) limited to these sizes.
    fn limit(self, control: u16) -> u16 {
        let field = |at: u32, most: u16| {
            let largest = pcie_cap::size_code(most.into()).unwrap_or(0);
            (control >> at & 7).min(largest) << at
        };
        control & !(7 << 5 | 7 << 12) | field(5, self.payload) | field(12, self.request)
    }
}

/// A BAR that a function can access.
struct Joined {
    /// Window, if it is on another node.
    window: Option<Mapping>,
    /// Mapping in the IOMMU, if that is on: address and length.
    mapped: Option<(Iova, u64)>,
}

impl Joined {
    fn segments(&self) -> usize {
        self.window.map_or(0, |window| window.segments())
    }
}

/// A function of another node that accesses a lent one.
struct Guest {
    who: Peer,
    /// Its requester ID on this host.
    alias: Bdf,
    shown: Shown,
}

/// A function's BARs as accessed by others through the adapter; mapped in its domain if the IOMMU is on.
#[derive(Default)]
struct Shown {
    bars: Bars,
    mapped: Vec<(Iova, u64)>,
}

impl Shown {
    fn new(cpu: &Cpu, service: &Service, device: &PciDevice) -> Result<Self, Error> {
        let (dma, mut shown) = (service.adapter.dma(), Self::default());
        for number in 0..6 {
            let Some(bar) = device.bar(number) else { continue };
            let mut at = Iova::new(bar.start.0);
            if service.translates() {
                let mapped = dma.map_resource(cpu, bar.start, bar.length, Direction::Bidirectional);
                at = mapped.inspect_err(|_| shown.end(cpu, &service.adapter))?;
                shown.mapped.push((at, bar.length));
            }
            shown.bars[usize::from(number)] = (at.get(), bar.length);
        }
        Ok(shown)
    }

    fn end(&self, cpu: &Cpu, adapter: &NtbAdapter) {
        for &(at, length) in &self.mapped {
            adapter.dma().unmap_resource(cpu, at, length, Direction::Bidirectional);
        }
    }
}

enum State {
    Free,
    /// Being lent or returned.
    Changing,
    Lent(Box<Lease>),
    /// It holds data of its last borrower, as it could not be reset.
    Unclean,
}

/// A function claimed for lending.
struct LentFunction {
    device: PciDevice,
    state: RefCell<State>,
    /// BAR registers as the borrower sees them; the real addresses stay with the lender.
    bars: RefCell<[u32; 6]>,
}

/// The functions that this host lends.
#[derive(Default)]
pub(crate) struct Lender {
    held: RefCell<BTreeMap<Bdf, Rc<LentFunction>>>,
}

/// Claims functions for lending.
pub struct LenderDriver {
    offers: Offers,
    lender: Rc<Lender>,
    /// The service, once it has started.
    service: Rc<RefCell<std::rc::Weak<Service>>>,
}

impl LenderDriver {
    pub(crate) fn new(
        offers: Offers,
        lender: Rc<Lender>,
        service: Rc<RefCell<std::rc::Weak<Service>>>,
    ) -> Self {
        Self { offers, lender, service }
    }
}

impl PciDriver for LenderDriver {
    fn name(&self) -> &'static str {
        LENDER
    }

    fn ids(&self) -> &[PciMatch] {
        &[PciMatch::ANY]
    }

    fn probe<'a>(&'a self, _: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            let at = device.address();
            // Borrowed functions are not lent on.
            if at.segment != FunctionAddress::default().segment || !(self.offers)(at) {
                return Err(Error::NotSupported);
            }
            let held =
                Rc::new(LentFunction { device, state: RefCell::new(State::Free), bars: RefCell::default() });
            self.lender.held.borrow_mut().insert(at.bdf, held);
            let (lender, service) = (Rc::clone(&self.lender), Rc::clone(&self.service));
            Ok(Rc::new(Hold { function: at.bdf, lender, service }) as Rc<dyn PciBinding>)
        })
    }
}

struct Hold {
    function: Bdf,
    lender: Rc<Lender>,
    service: Rc<RefCell<std::rc::Weak<Service>>>,
}

impl PciBinding for Hold {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            let service = self.service.borrow().upgrade();
            if let Some(service) = service {
                service.revoke(cpu, self.function).await;
            }
            self.lender.held.borrow_mut().remove(&self.function);
        })
    }

    fn error_detected(&self, _: &Cpu, state: ChannelState) -> Recovery {
        // The borrower's driver notices by what it reads.
        if state == ChannelState::Normal { Recovery::CanRecover } else { Recovery::Disconnect }
    }
}

impl Lender {
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
        let is = |held: &&Rc<LentFunction>| matches!(&*held.state.borrow(), State::Lent(lease) if lease.domain.is_some());
        self.held.borrow().values().filter(is).count()
    }

    /// Pairs of functions of this `node`, both lent, of which the first can access the second.
    pub fn joined(&self, node: u8) -> usize {
        let of = |held: &Rc<LentFunction>| match &*held.state.borrow() {
            State::Lent(lease) => lease.peers.keys().filter(|peer| peer.node == node).count(),
            _ => 0,
        };
        self.held.borrow().values().map(of).sum()
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
        service: &Service,
        to: u8,
        function: Bdf,
        (window, payload): (Option<u64>, u16),
    ) -> Result<Terms, Error> {
        let held = self.held(function)?;
        match *held.state.borrow() {
            State::Free => {}
            State::Changing | State::Lent(_) => return Err(Error::Busy),
            State::Unclean => return Err(Error::NotSupported),
        }
        // Legacy interrupts are not memory writes, so windows do not forward them. For guests, software does.
        let has_messages = held.device.capability(id::MSI).or(held.device.capability(id::MSIX)).is_some();
        if window.is_some() && !has_messages {
            return Err(Error::NotSupported);
        }
        held.state.replace(State::Changing);
        let made = Lease::new(cpu, service, &held, to, (window, payload)).await;
        // If it or the adapter was removed meanwhile, nobody would end the lease.
        let is_held = self.held.borrow().get(&function).is_some_and(|now| Rc::ptr_eq(now, &held));
        let is_here = is_held && service.adapter.is_present();
        let (state, terms) = match made {
            Ok((lease, _)) if !is_here => {
                lease.end(cpu, &service.adapter);
                (State::Free, Err(Error::NoDevice))
            }
            Ok((lease, terms)) => (State::Lent(Box::new(lease)), Ok(terms)),
            Err(error) => (State::Free, Err(error)),
        };
        held.state.replace(state);
        terms
    }

    /// Takes a function back from a node and ends the lease.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the node does not have it.
    pub async fn take_back(
        &self,
        cpu: &Cpu,
        service: &Service,
        from: u8,
        function: Bdf,
    ) -> Result<(), Error> {
        let held = self.held(function)?;
        if held.to() != Some(from) {
            return Err(Error::Invalid);
        }
        let State::Lent(lease) = held.state.replace(State::Changing) else { return Err(Error::Invalid) };
        self.part_all(cpu, service, function);
        // Stop its requests before its windows are removed.
        held.device.set_master(cpu, false).await;
        let reset = held.device.reset(cpu).await;
        // A reset restores the settings, including bus mastering.
        held.device.set_master(cpu, false).await;
        let is_clean = reset.is_ok() || !held.device.is_present();
        if let Err(error) = reset
            && !is_clean
        {
            service.log(format!("{function} cannot be reset ({error}) and is no longer lent"));
        }
        if lease.forwards {
            held.device.free_irqs(cpu).await;
        }
        lease.end(cpu, &service.adapter);
        held.state.replace(if is_clean { State::Free } else { State::Unclean });
        Ok(())
    }

    /// Parts a function from everything lent here, even if its borrower cannot: another node may get it next.
    fn part_all(&self, cpu: &Cpu, service: &Service, function: Bdf) {
        let gone = Peer { node: service.node(), function };
        for held in self.held.borrow().values() {
            if let State::Lent(lease) = &mut *held.state.borrow_mut() {
                lease.unreach(cpu, &service.adapter, gone);
            }
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
        service: &Service,
        (to, function): (u8, Bdf),
        memory: (u64, u64, u64),
    ) -> Result<(), Error> {
        self.lease(to, function, |lease, _| lease.open(cpu, &service.adapter, memory))
    }

    /// Forwards up to the `wanted` interrupts of a function to its borrower, or no more if none are. Returns how many.
    pub async fn forward(
        &self,
        cpu: &Cpu,
        service: &Service,
        (to, function): (u8, Bdf),
        wanted: Forwarding,
    ) -> Result<u8, Error> {
        let Forwarding { first, count, legacy } = wanted;
        let held = self.held(function)?;
        let forwarded = self.lease(to, function, |lease, _| match lease.for_guest {
            true => {
                lease.line = None;
                Ok(std::mem::take(&mut lease.forwards))
            }
            false => Err(Error::NotPermitted),
        })?;
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
            (lease.forwards, lease.line) = (true, legacy.then_some(first));
            Ok(())
        });
        if kept.is_err() {
            held.device.free_irqs(cpu).await;
            return Err(Error::NotPermitted);
        }
        let granted = irqs.len() as u8;
        for (bit, irq) in (first..).zip(irqs) {
            let service = service.me();
            let forward = move |cpu: &Cpu| {
                if let Some(service) = service.upgrade() {
                    service.forward(cpu, to, bit);
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
    pub async fn unmask(&self, cpu: &Cpu, service: &Service, (to, function): (u8, Bdf)) -> Result<(), Error> {
        let bit = self.lease(to, function, |lease, _| lease.line.ok_or(Error::Invalid))?;
        if !self.held(function)?.device.set_intx_masked_if_due(cpu, false).await {
            service.forward(cpu, to, bit);
        }
        Ok(())
    }

    /// Reads configuration space of a function to lend, whoever has it.
    pub async fn inspect(&self, cpu: &Cpu, function: Bdf, register: u16) -> Result<u32, Error> {
        let held = self.held(function)?;
        Ok(held.read(cpu, in_config(register & !3)?).await)
    }

    /// Local addresses of its BARs.
    pub fn describe(&self, function: Bdf) -> Result<Bars, Error> {
        Ok(own_bars(&self.held(function)?.device))
    }

    /// Lets a guest's function access a BAR of another one of the guest.
    pub fn join_guest(
        &self,
        cpu: &Cpu,
        service: &Service,
        (to, function): (u8, Bdf),
        peer: Peer,
        mapping: BarMapping,
    ) -> Result<(), Error> {
        let target = match peer.node == service.adapter.node() {
            false => (mapping.target, mapping.length),
            true => {
                let bars = self.own_peer(to, function, peer.function)?;
                bars.get(usize::from(mapping.bar)).copied().ok_or(Error::Invalid)?
            }
        };
        self.lease(to, function, |lease, _| {
            if !lease.for_guest {
                return Err(Error::NotPermitted);
            }
            let seen = Some(mapping.guest_address);
            let joined = lease.reach(cpu, &service.adapter, peer.node, target, seen)?;
            lease.peers.entry(peer).or_default().push(joined);
            Ok(())
        })?;
        self.leaves_half(cpu, service, (to, function), peer)
    }

    /// Lets a function of a node access another one of the same node.
    pub fn join(
        &self,
        cpu: &Cpu,
        service: &Service,
        (to, function): (u8, Bdf),
        peer: Peer,
        bars: Bars,
    ) -> Result<Bars, Error> {
        let bars = match peer.node == service.adapter.node() {
            false => bars,
            true => self.own_peer(to, function, peer.function)?,
        };
        let found = self.lease(to, function, |lease, _| lease.join(cpu, service, peer, bars))?;
        self.leaves_half(cpu, service, (to, function), peer)?;
        Ok(found)
    }

    /// Windows to other nodes' functions may take at most half of the segments: removes the last one if it exceeds
    /// that.
    fn leaves_half(
        &self,
        cpu: &Cpu,
        service: &Service,
        (to, function): (u8, Bdf),
        last: Peer,
    ) -> Result<(), Error> {
        let of = |held: &Rc<LentFunction>| match &*held.state.borrow() {
            State::Lent(lease) => lease.peers.values().flatten().map(Joined::segments).sum(),
            _ => 0,
        };
        let taken: usize = self.held.borrow().values().map(of).sum();
        if 2 * taken <= service.adapter.segments() {
            return Ok(());
        }
        self.lease(to, function, |lease, _| {
            lease.unreach(cpu, &service.adapter, last);
            Err(Error::NoSpace)
        })
    }

    /// The BARs of a function that a node has, for another function of that node.
    fn own_peer(&self, to: u8, function: Bdf, peer: Bdf) -> Result<Bars, Error> {
        let payload = self.lease(to, function, |lease, _| Ok(lease.sizes.payload))?;
        self.lease(to, peer, |lease, device| {
            fits(payload, lease.sizes.payload)?;
            Ok(own_bars(device))
        })
    }

    /// Parts two functions.
    pub fn part(
        &self,
        cpu: &Cpu,
        service: &Service,
        (to, function): (u8, Bdf),
        peer: Peer,
    ) -> Result<(), Error> {
        self.lease(to, function, |lease, _| {
            lease.part(cpu, &service.adapter, peer);
            Ok(())
        })
    }

    /// Lets a function of another node, with payloads of at most `payload` bytes, access one lent to `to`.
    pub fn admit(
        &self,
        cpu: &Cpu,
        service: &Service,
        (to, function): (u8, Bdf),
        guest: (Peer, u8),
        payload: u16,
    ) -> Result<Bars, Error> {
        // Functions that only access others leave half of the table to lent functions.
        if service.adapter.is_half_full() {
            return Err(Error::NoSpace);
        }
        self.lease(to, function, |lease, device| {
            fits(payload, lease.sizes.payload)?;
            lease.admit(cpu, service, guest, device)
        })
    }

    /// Calls a function with a node's lease.
    fn lease<T>(
        &self,
        to: u8,
        function: Bdf,
        act: impl FnOnce(&mut Lease, &PciDevice) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let held = self.held(function)?;
        let mut state = held.state.borrow_mut();
        match &mut *state {
            State::Lent(lease) if lease.to == to => act(lease, &held.device),
            _ => Err(Error::NotPermitted),
        }
    }

    /// Reads configuration space of a function lent to a node.
    pub async fn config_read(&self, cpu: &Cpu, to: u8, function: Bdf, register: u16) -> Result<u32, Error> {
        let held = self.held(function)?;
        if held.to() != Some(to) {
            return Err(Error::NotPermitted);
        }
        let register = in_config(register)?;
        match register {
            ROM => Ok(0),
            header::BAR0..ROM if bar_number(register).is_some() => {
                Ok(held.bars.borrow()[bar_number(register).unwrap_or_default()])
            }
            _ => Ok(held.read(cpu, register).await),
        }
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
        let register = in_config(register)?;
        if register == ROM {
            return Ok(());
        }
        if let Some(number) = bar_number(register) {
            held.set_bar(number, value);
            return Ok(());
        }
        let sizes = self.lease(to, function, |lease, _| Ok(lease.sizes))?;
        let is_control = held.device_control() == Some(register);
        if is_control && enables & 2 != 0 && value as u16 & pcie_cap::CONTROL_FLR != 0 {
            // The lender restores its own addresses and sizes.
            let reset = held.device.reset(cpu).await;
            held.limit(cpu, sizes).await;
            return reset;
        }
        let value = match register {
            // Memory decoding stays on, since windows lead to its registers.
            header::COMMAND if enables & 1 != 0 => value | u32::from(header::COMMAND_MEMORY),
            _ if is_control => value & 0xffff_0000 | u32::from(sizes.limit(value as u16)),
            _ => value,
        };
        held.device.config_write(cpu, register, value, enables).await;
        Ok(())
    }
}

impl Guest {
    fn leave(self, cpu: &Cpu, adapter: &NtbAdapter) {
        self.shown.end(cpu, adapter);
        // Other lent functions may still be accessed by it.
        if adapter.remove_remote(cpu, self.alias) {
            adapter.dismiss(cpu, self.alias);
        }
    }
}

/// Whether payloads of `payload` bytes fit where `takes` are accepted.
fn fits(payload: u16, takes: u16) -> Result<(), Error> {
    if payload <= takes { Ok(()) } else { Err(Error::NotSupported) }
}

/// Addresses of a function's BARs.
fn own_bars(device: &PciDevice) -> Bars {
    let mut bars = Bars::default();
    for (number, bar) in (0..).zip(&mut bars) {
        *bar = device.bar(number).map_or((0, 0), |range| (range.start.0, range.length));
    }
    bars
}

/// Checks a register number from another host: a doubleword of configuration space.
fn in_config(register: u16) -> Result<u16, Error> {
    if register < 4096 && register % 4 == 0 { Ok(register) } else { Err(Error::Invalid) }
}

fn bar_number(register: u16) -> Option<usize> {
    let number = usize::from(register.checked_sub(header::BAR0)? / 4);
    (number < 6).then_some(number)
}

impl LentFunction {
    fn to(&self) -> Option<u8> {
        match &*self.state.borrow() {
            State::Lent(lease) => Some(lease.to),
            _ => None,
        }
    }

    /// Reads configuration space. A virtual function's vendor and device IDs read as ones (base spec 9.3.4.1.1), but
    /// its borrower does not know the physical function, so they are filled in here.
    async fn read(&self, cpu: &Cpu, register: u16) -> u32 {
        let found = self.device.config_read(cpu, register).await;
        if register == header::VENDOR && found == u32::MAX && self.device.is_present() {
            let identity = self.device.identity();
            return u32::from(identity.device) << 16 | u32::from(identity.vendor);
        }
        found
    }

    /// Register with the TLP sizes.
    fn device_control(&self) -> Option<u16> {
        self.device.capability(id::PCI_EXPRESS).map(|at| at + pcie_cap::DEVICE_CONTROL)
    }

    /// TLP sizes for lending to a host that accepts payloads of at most `borrower` bytes.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for a virtual function that needs smaller ones: its sizes are those of the physical
    /// function (base spec 9.3.5.4).
    fn sizes(&self, service: &Service, borrower: u16) -> Result<Sizes, Error> {
        let own = service.function(self.device.address());
        let passes = own.as_ref().map_or(LEAST_PAYLOAD, |own| own.max_payload as u16);
        let lender = passes.min(service.payload());
        let sizes = Sizes::between(lender, borrower);
        let is_virtual = own.is_some_and(|own| own.physical.is_some());
        if is_virtual && sizes != Sizes::between(passes, passes) {
            service.log(format!(
                "{} cannot be lent: payloads of {passes} B pass to it, of {lender} B to the adapter, of {borrower} B to the \
                 borrower",
                self.device.address().bdf
            ));
            return Err(Error::NotSupported);
        }
        Ok(sizes)
    }

    /// Reduces its TLP sizes.
    async fn limit(&self, cpu: &Cpu, sizes: Sizes) {
        let Some(register) = self.device_control() else { return };
        let control = self.device.config_read(cpu, register).await as u16;
        if sizes.limit(control) != control {
            self.device.config_write(cpu, register, sizes.limit(control).into(), 3).await;
        }
    }

    /// Initial BAR registers for the borrower. A virtual function has no BAR registers (base spec 9.3.4.1.11); its
    /// BARs are presented as 64-bit ones.
    async fn bar_registers(&self, cpu: &Cpu) -> [u32; 6] {
        let mut registers = [0; 6];
        for (number, register) in (0u16..).zip(&mut registers) {
            *register = self.device.config_read(cpu, header::BAR0 + 4 * number).await;
        }
        for (number, (at, length)) in own_bars(&self.device).into_iter().enumerate() {
            if length > 0 && registers[number] == 0 && number < 5 {
                registers[number] = at as u32 | header::BAR_WIDE;
                registers[number + 1] = (at >> 32) as u32;
            }
        }
        registers
    }

    /// The borrower writes a BAR register. Reading it back gives the size, as on the real function.
    fn set_bar(&self, number: usize, value: u32) {
        let own = |number: usize| self.device.bar(number as u8).map(|bar| !(bar.length - 1));
        let (mask, fixed) = match (own(number), number.checked_sub(1).and_then(own)) {
            (Some(mask), _) => (mask as u32, self.bars.borrow()[number] & 0xf),
            (None, Some(mask)) => ((mask >> 32) as u32, 0),
            (None, None) => (0, 0),
        };
        self.bars.borrow_mut()[number] = value & mask | fixed;
    }
}

impl Lease {
    async fn new(
        cpu: &Cpu,
        service: &Service,
        held: &LentFunction,
        to: u8,
        (window, payload): (Option<u64>, u16),
    ) -> Result<(Self, Terms), Error> {
        let (device, adapter) = (&held.device, &*service.adapter);
        let sizes = held.sizes(service, payload)?;
        let registers = held.bar_registers(cpu).await;
        *held.bars.borrow_mut() = registers;
        let place = adapter.add_local(cpu, device.address().bdf)?;
        let mut lease = Self {
            to,
            place,
            windows: Vec::new(),
            sizes,
            for_guest: window.is_none(),
            forwards: false,
            line: None,
            domain: None,
            peers: BTreeMap::new(),
            guests: Vec::new(),
            shown: Shown::default(),
        };
        let reaches = window.map(|window| [(0, window), MESSAGES]);
        let mapped = reaches.into_iter().flatten().try_for_each(|(at, length)| {
            lease.windows.push(adapter.map(cpu, to, at, length)?);
            Ok(())
        });
        let isolated = mapped.and_then(|()| lease.isolate(cpu, service, device)).and_then(|domain| {
            lease.domain = domain;
            match lease.for_guest && lease.domain.is_none() {
                // Without an IOMMU nothing would restrict it to the guest's memory.
                true => Err(Error::NotSupported),
                false => Shown::new(cpu, service, device),
            }
        });
        match isolated {
            Ok(shown) => lease.shown = shown,
            Err(error) => {
                lease.end(cpu, adapter);
                return Err(error);
            }
        }
        let command = u32::from(header::COMMAND_MEMORY | header::COMMAND_INTX_DISABLE);
        device.config_write(cpu, header::COMMAND, command, 3).await;
        held.limit(cpu, sizes).await;
        let (bars, window) = (lease.shown.bars, |n: usize| lease.windows.get(n).map_or(0, |own| own.at.0));
        let terms = Terms { place, payload: sizes.payload, window: window(0), messages: window(1), bars };
        Ok((lease, terms))
    }

    /// If the IOMMU is on, restricts the function to its windows, at their own addresses.
    fn isolate(
        &self,
        cpu: &Cpu,
        service: &Service,
        device: &PciDevice,
    ) -> Result<Option<IommuDomain>, Error> {
        let Some(kernel) = service.kernel() else { return Err(Error::NoDevice) };
        let domain = match kernel.iommu().domain(device.node()) {
            Ok(domain) => domain,
            Err(Error::NotSupported) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mapped = self.windows.iter().try_for_each(|window| {
            domain.map_at(cpu, Iova::new(window.at.0), window.at, window.length, Direction::Bidirectional)
        });
        match mapped.and_then(|()| domain.attach(cpu, device.address())) {
            Ok(()) => Ok(Some(domain)),
            Err(error) => {
                domain.close(cpu);
                Err(error)
            }
        }
    }

    /// Lets the function access a peer's BARs, on this host or where another node reports them.
    fn join(&mut self, cpu: &Cpu, service: &Service, peer: Peer, bars: Bars) -> Result<Bars, Error> {
        let adapter = &service.adapter;
        self.unreach(cpu, adapter, peer);
        let mut joined = Vec::new();
        let mut found = Bars::default();
        let mut reach = || {
            for (own, &(at, length)) in found.iter_mut().zip(&bars).filter(|(_, (_, length))| *length > 0) {
                let one = self.reach(cpu, adapter, peer.node, (at, length), None)?;
                *own = (one.window.map_or(at, |window| window.at.0), length);
                joined.push(one);
            }
            Ok(())
        };
        let reached = reach();
        self.peers.insert(peer, joined);
        if reached.is_err() {
            self.unreach(cpu, adapter, peer);
        }
        reached.map(|()| found)
    }

    /// Lets the function access `length` bytes from `at` of this host or another. If the IOMMU is on, they appear at
    /// address `seen`, or at their own.
    fn reach(
        &self,
        cpu: &Cpu,
        adapter: &NtbAdapter,
        node: u8,
        (at, length): (u64, u64),
        seen: Option<u64>,
    ) -> Result<Joined, Error> {
        let window = match node == adapter.node() {
            true => None,
            false => Some(adapter.map(cpu, node, at, length)?),
        };
        let here = window.map_or(PhysAddr(at), |window| window.at);
        let Some(domain) = &self.domain else { return Ok(Joined { window, mapped: None }) };
        // The IOMMU maps whole pages.
        let (start, end) = (here.align_down(PAGE), (here.0 + length).next_multiple_of(PAGE));
        let (iova, pages) = (Iova::new(seen.map_or(start.0, |seen| seen & !(PAGE - 1))), end - start.0);
        match domain.map_at(cpu, iova, start, pages, Direction::Bidirectional) {
            Ok(()) => Ok(Joined { window, mapped: Some((iova, pages)) }),
            Err(error) => {
                window.into_iter().for_each(|window| adapter.unmap(cpu, window));
                Err(error)
            }
        }
    }

    /// Maps a guest's memory at the guest's addresses.
    fn open(
        &mut self,
        cpu: &Cpu,
        adapter: &NtbAdapter,
        (at, low, high): (u64, u64, u64),
    ) -> Result<(), Error> {
        let Some(domain) = self.domain.as_ref().filter(|_| self.for_guest) else {
            return Err(Error::NotPermitted);
        };
        if !self.windows.is_empty() {
            return Err(Error::Busy);
        }
        let bytes = low.checked_add(high).ok_or(Error::Invalid)?;
        let window = adapter.map(cpu, self.to, at, bytes)?;
        self.windows.push(window);
        let parts = [(LOW_MEMORY, window.at, low), (HIGH_MEMORY, window.at + low, high)];
        let parts = parts.into_iter().filter(|(.., length)| *length > 0);
        parts.into_iter().try_for_each(|(guest, at, length)| {
            domain.map_at(cpu, Iova::new(guest), at, length, Direction::Bidirectional)
        })
    }

    /// Ends access between two functions in both directions.
    fn part(&mut self, cpu: &Cpu, adapter: &NtbAdapter, peer: Peer) {
        let all = std::mem::take(&mut self.guests).into_iter();
        let (gone, kept): (Vec<Guest>, Vec<Guest>) = all.partition(|guest| guest.who == peer);
        self.guests = kept;
        gone.into_iter().for_each(|guest| guest.leave(cpu, adapter));
        self.unreach(cpu, adapter, peer);
    }

    /// Ends access to a peer.
    fn unreach(&mut self, cpu: &Cpu, adapter: &NtbAdapter, peer: Peer) {
        for joined in self.peers.remove(&peer).into_iter().flatten() {
            if let (Some(domain), Some((iova, length))) = (&self.domain, joined.mapped) {
                let _ = domain.unmap(cpu, iova, length);
            }
            if let Some(window) = joined.window {
                adapter.unmap(cpu, window);
            }
        }
    }

    /// Lets a function of another node access this one's BARs through the adapter. Returns the addresses to use.
    fn admit(
        &mut self,
        cpu: &Cpu,
        service: &Service,
        (who, place): (Peer, u8),
        device: &PciDevice,
    ) -> Result<Bars, Error> {
        let adapter = &service.adapter;
        let alias = adapter.add_remote(cpu, who.node, place)?;
        let mut guest = Guest { who, alias, shown: Shown::default() };
        let admitted = adapter.admit(cpu, alias).and_then(|()| Shown::new(cpu, service, device));
        match admitted {
            Ok(shown) => {
                guest.shown = shown;
                let bars = guest.shown.bars;
                self.guests.push(guest);
                Ok(bars)
            }
            Err(error) => {
                guest.leave(cpu, adapter);
                Err(error)
            }
        }
    }

    fn end(mut self, cpu: &Cpu, adapter: &NtbAdapter) {
        let peers: Vec<Peer> = self.peers.keys().copied().collect();
        peers.into_iter().for_each(|peer| self.unreach(cpu, adapter, peer));
        self.guests.drain(..).for_each(|guest| guest.leave(cpu, adapter));
        self.shown.end(cpu, adapter);
        if let Some(domain) = self.domain {
            domain.close(cpu);
        }
        for window in self.windows {
            adapter.unmap(cpu, window);
        }
        adapter.remove_local(cpu, self.place);
    }
}
