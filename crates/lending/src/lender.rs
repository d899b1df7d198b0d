//! The functions that a host lends: a driver holds them, as vfio-pci does, so that no other takes them, and hands them out.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use drivers::ntb::{Adapter, Mapping};
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

use crate::message::{Bars, Peer, Terms};
use crate::service::Service;

/// Where a host's interrupt controllers take messages (Intel SDM volume 3, message signalled interrupts), and how many bytes that
/// is.
pub(crate) const MESSAGES: (u64, u64) = (0xfee0_0000, 1 << 20);
/// Where a guest's memory begins, below and above the hole for devices (the PC's, which every guest has).
pub(crate) const LOW_MEMORY: u64 = 0;
pub(crate) const HIGH_MEMORY: u64 = 4 << 30;
/// What the driver of functions that are lent is called.
pub(crate) const LENDER: &str = "lender";
/// Register of the expansion ROM's address.
const ROM: u16 = 0x30;

/// Which functions are to be lent.
pub type Offers = Rc<dyn Fn(FunctionAddress) -> bool>;

/// Somebody has a function.
struct Lease {
    /// The node.
    to: u8,
    /// The function's place among the adapter's requesters.
    place: u8,
    /// What it reaches: the borrower's addresses, and its interrupt controllers; or a guest's memory.
    windows: Vec<Mapping>,
    /// Most bytes of a payload that it sends: the borrower's receivers take no more.
    payload: u16,
    /// It is a guest's.
    for_guest: bool,
    /// Its interrupts come to this host, and are passed on.
    forwards: bool,
    /// Of a legacy one: the bit of the doorbell.
    line: Option<u8>,
    /// Where the IOMMU lets it reach them alone.
    domain: Option<IommuDomain>,
    /// Functions that it reaches, and what of windows and of the IOMMU that takes.
    peers: BTreeMap<Peer, Vec<Joined>>,
    /// Functions of other nodes that reach it.
    guests: Vec<Guest>,
    /// Its BARs, for the borrower's cores.
    shown: Shown,
}

/// A BAR that a function reaches.
struct Joined {
    /// Of another node: the window.
    window: Option<Mapping>,
    /// Where the IOMMU is on: the address and the length that it lets pass.
    mapped: Option<(Iova, u64)>,
}

/// A function of another node that reaches one which is lent.
struct Guest {
    who: Peer,
    /// What its requests are called here.
    alias: Bdf,
    shown: Shown,
}

/// BARs of a function as others reach them by the adapter: where the IOMMU gives out addresses, its domain has them.
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

    fn end(&self, cpu: &Cpu, adapter: &Adapter) {
        for &(at, length) in &self.mapped {
            adapter.dma().unmap_resource(cpu, at, length, Direction::Bidirectional);
        }
    }
}

enum State {
    Free,
    /// It is being lent or taken back.
    Changing,
    Lent(Box<Lease>),
}

/// A function that is held to be lent.
struct Held {
    device: PciDevice,
    state: RefCell<State>,
    /// What the borrower finds in the registers of BARs: addresses there are the lender's business.
    bars: RefCell<[u32; 6]>,
}

/// The functions that a host lends.
#[derive(Default)]
pub(crate) struct Lender {
    held: RefCell<BTreeMap<Bdf, Rc<Held>>>,
}

/// Holds functions, so that they can be lent.
pub struct LenderDriver {
    offers: Offers,
    lender: Rc<Lender>,
    /// The service, once there is one.
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
        const { &[PciMatch { vendor: None, device: None, class: None }] }
    }

    fn probe<'a>(&'a self, _: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            let at = device.address();
            // What is borrowed itself is not lent on.
            if at.segment != FunctionAddress::default().segment || !(self.offers)(at) {
                return Err(Error::NotSupported);
            }
            let held = Rc::new(Held { device, state: RefCell::new(State::Free), bars: RefCell::default() });
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
        // The borrower's driver is told by what it reads.
        if state == ChannelState::Normal { Recovery::CanRecover } else { Recovery::Disconnect }
    }
}

impl Lender {
    fn held(&self, function: Bdf) -> Result<Rc<Held>, Error> {
        self.held.borrow().get(&function).cloned().ok_or(Error::NoDevice)
    }

    /// The `n`th function that is lent, and who has it.
    pub fn offer(&self, n: usize) -> Option<(Bdf, Option<u8>)> {
        let held = self.held.borrow();
        let (&function, held) = held.iter().nth(n)?;
        Some((function, held.to()))
    }

    /// Functions that a node has.
    pub fn lent_to(&self, node: u8) -> Vec<Bdf> {
        let held = self.held.borrow();
        held.iter().filter(|(_, held)| held.to() == Some(node)).map(|(&function, _)| function).collect()
    }

    /// Who has which function.
    pub fn leases(&self) -> Vec<(Bdf, u8)> {
        self.held.borrow().iter().filter_map(|(&function, held)| Some((function, held.to()?))).collect()
    }

    /// How many functions that are lent have an IOMMU domain to themselves.
    pub fn isolated(&self) -> usize {
        let is =
            |held: &&Rc<Held>| matches!(&*held.state.borrow(), State::Lent(lease) if lease.domain.is_some());
        self.held.borrow().values().filter(is).count()
    }

    /// Lends a function to a node, which it is to reach `window` bytes of, by TLPs of at most `payload` bytes; for a guest there it
    /// reaches nothing yet.
    ///
    /// # Errors
    /// [`Error::Busy`] if somebody has it, [`Error::NotSupported`] if it has no interrupt messages, [`Error::NoSpace`] if a table of the
    /// adapter is full.
    pub async fn lend(
        &self,
        cpu: &Cpu,
        service: &Service,
        to: u8,
        function: Bdf,
        (window, payload): (Option<u64>, u16),
    ) -> Result<Terms, Error> {
        let held = self.held(function)?;
        if !matches!(*held.state.borrow(), State::Free) {
            return Err(Error::Busy);
        }
        // Legacy interrupts are no writes: no window passes them. A guest's are forwarded by software.
        let has_messages = held.device.capability(id::MSI).or(held.device.capability(id::MSIX)).is_some();
        if window.is_some() && !has_messages {
            return Err(Error::NotSupported);
        }
        held.state.replace(State::Changing);
        let made = Lease::new(cpu, service, &held, to, (window, payload)).await;
        let (state, terms) = match made {
            Ok((lease, terms)) => (State::Lent(Box::new(lease)), Ok(terms)),
            Err(error) => (State::Free, Err(error)),
        };
        held.state.replace(state);
        terms
    }

    /// Takes a function back from a node that has it; nothing of the lease is left afterwards.
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
        // It is quiet before its ways are taken from it.
        held.device.set_master(cpu, false).await;
        let reset = held.device.reset(cpu).await;
        // A reset is followed by its settings as they were.
        held.device.set_master(cpu, false).await;
        if let Err(error) = reset
            && held.device.is_present()
        {
            service.log(format!("{function} cannot be reset: {error}"));
        }
        if lease.forwards {
            held.device.free_irqs(cpu).await;
        }
        lease.end(cpu, &service.adapter);
        held.state.replace(State::Free);
        Ok(())
    }

    /// Lets a guest's function reach the guest's memory: `low` and `high` bytes in a row from `at` of the borrower's addresses.
    ///
    /// # Errors
    /// [`Error::Busy`] if it does already, [`Error::NoSpace`] if the window is too small.
    pub fn open(
        &self,
        cpu: &Cpu,
        service: &Service,
        (to, function): (u8, Bdf),
        memory: (u64, u64, u64),
    ) -> Result<(), Error> {
        self.lease(to, function, |lease, _| lease.open(cpu, &service.adapter, memory))
    }

    /// Passes so many of a function's interrupts, or its `legacy` one, on to its borrower, from bit `first` of the doorbell on; none if
    /// `count` is 0. Gives how many there are.
    pub async fn forward(
        &self,
        cpu: &Cpu,
        service: &Service,
        (to, function): (u8, Bdf),
        (first, count): (u8, u8),
        legacy: bool,
    ) -> Result<u8, Error> {
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
                // Others may be on the line: the function is asked, and then held back until the guest has dealt with it.
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

    /// The guest has dealt with a function's legacy interrupt: it is passed on again if there is still a cause, or else when there is.
    pub async fn unmask(&self, cpu: &Cpu, service: &Service, (to, function): (u8, Bdf)) -> Result<(), Error> {
        let bit = self.lease(to, function, |lease, _| lease.line.ok_or(Error::Invalid))?;
        if !self.held(function)?.device.set_intx_masked_if_due(cpu, false).await {
            service.forward(cpu, to, bit);
        }
        Ok(())
    }

    /// A doubleword of the configuration space of a function that is lent, whoever has it.
    pub async fn inspect(&self, cpu: &Cpu, function: Bdf, register: u16) -> Result<u32, Error> {
        let held = self.held(function)?;
        Ok(held.read(cpu, register & !3).await)
    }

    /// Where its BARs are here.
    pub fn describe(&self, function: Bdf) -> Result<Bars, Error> {
        Ok(self.held(function)?.own_bars())
    }

    /// Lets a function that a guest has reach a BAR of another that it has, where the guest sees it.
    pub fn join_guest(
        &self,
        cpu: &Cpu,
        service: &Service,
        (to, function): (u8, Bdf),
        (peer, bar): (Peer, u8),
        (there, seen): ((u64, u64), u64),
    ) -> Result<(), Error> {
        let there = match peer.node == service.adapter.node() {
            false => there,
            true => {
                let held = self.held(peer.function)?;
                if held.to() != Some(to) {
                    return Err(Error::NotPermitted);
                }
                held.own_bars().get(usize::from(bar)).copied().ok_or(Error::Invalid)?
            }
        };
        self.lease(to, function, |lease, _| {
            if !lease.for_guest {
                return Err(Error::NotPermitted);
            }
            let joined = lease.reach(cpu, &service.adapter, peer.node, there, Some(seen))?;
            lease.peers.entry(peer).or_default().push(joined);
            Ok(())
        })
    }

    /// Lets a function that a node has reach another that it has.
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
            true => {
                let held = self.held(peer.function)?;
                if held.to() != Some(to) {
                    return Err(Error::NotPermitted);
                }
                held.own_bars()
            }
        };
        self.lease(to, function, |lease, _| lease.join(cpu, service, peer, bars))
    }

    /// Ends that.
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

    /// Lets a function of another node reach one that `to` has.
    pub fn admit(
        &self,
        cpu: &Cpu,
        service: &Service,
        (to, function): (u8, Bdf),
        guest: (Peer, u8),
    ) -> Result<Bars, Error> {
        // The borrower's own functions leave half of the places to those that are lent.
        if guest.0.node == to && service.adapter.is_half_full() {
            return Err(Error::NoSpace);
        }
        self.lease(to, function, |lease, device| lease.admit(cpu, service, guest, device))
    }

    /// Does something with the lease of a function that a node has.
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

    /// A doubleword of the configuration space of a function that a node has.
    pub async fn config_read(&self, cpu: &Cpu, to: u8, function: Bdf, register: u16) -> Result<u32, Error> {
        let held = self.held(function)?;
        if held.to() != Some(to) {
            return Err(Error::NotPermitted);
        }
        match register {
            ROM => Ok(0),
            header::BAR0..ROM if bar_number(register).is_some() => {
                Ok(held.bars.borrow()[bar_number(register).unwrap_or_default()])
            }
            _ => Ok(held.read(cpu, register).await),
        }
    }

    /// Writes bytes of one.
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
        if register == ROM {
            return Ok(());
        }
        if let Some(number) = bar_number(register) {
            held.set_bar(number, value);
            return Ok(());
        }
        let resets = held.device.capability(id::PCI_EXPRESS).is_some_and(|at| {
            register == at + pcie_cap::DEVICE_CONTROL
                && enables & 2 != 0
                && value as u16 & pcie_cap::CONTROL_FLR != 0
        });
        if resets {
            // Its addresses are the lender's to restore, and what it may send.
            let reset = held.device.reset(cpu).await;
            let payload = self.lease(to, function, |lease, _| Ok(lease.payload))?;
            held.limit_payload(cpu, payload).await;
            return reset;
        }
        let value = match register {
            // Its registers stay where the windows lead.
            header::COMMAND if enables & 1 != 0 => value | u32::from(header::COMMAND_MEMORY),
            _ => value,
        };
        held.device.config_write(cpu, register, value, enables).await;
        Ok(())
    }
}

impl Guest {
    fn leave(self, cpu: &Cpu, adapter: &Adapter) {
        self.shown.end(cpu, adapter);
        // Another function that is lent may be reached by it, too.
        if adapter.remove_remote(cpu, self.alias) {
            adapter.dismiss(cpu, self.alias);
        }
    }
}

fn bar_number(register: u16) -> Option<usize> {
    let number = usize::from(register.checked_sub(header::BAR0)? / 4);
    (number < 6).then_some(number)
}

impl Held {
    fn to(&self) -> Option<u8> {
        match &*self.state.borrow() {
            State::Lent(lease) => Some(lease.to),
            _ => None,
        }
    }

    /// A doubleword of its configuration space. A virtual function has no IDs of its own there (base spec 9.3.4.1.1): its borrower,
    /// which knows no physical one, finds those that it has here.
    async fn read(&self, cpu: &Cpu, register: u16) -> u32 {
        let found = self.device.config_read(cpu, register).await;
        if register == header::VENDOR && found == u32::MAX && self.device.is_present() {
            let identity = self.device.identity();
            return u32::from(identity.device) << 16 | u32::from(identity.vendor);
        }
        found
    }

    /// Lets it send payloads of at most so many bytes. A virtual function sends as much as its physical one.
    async fn limit_payload(&self, cpu: &Cpu, most: u16) {
        let Some(at) = self.device.capability(id::PCI_EXPRESS) else { return };
        let register = at + pcie_cap::DEVICE_CONTROL;
        let control = self.device.config_read(cpu, register).await;
        let Some(code) = pcie_cap::size_code(most.into()) else { return };
        if pcie_cap::size_bytes(control as u16 >> 5) > u32::from(most) {
            let control = control & !(7 << 5) | u32::from(code) << 5;
            self.device.config_write(cpu, register, control, 3).await;
        }
    }

    /// The registers of BARs as they are, from which the borrower goes on. A virtual function has BARs without registers (base spec
    /// 9.3.4.1.11), and is shown with wide ones.
    async fn bar_registers(&self, cpu: &Cpu) -> [u32; 6] {
        let mut registers = [0; 6];
        for (number, register) in (0u16..).zip(&mut registers) {
            *register = self.device.config_read(cpu, header::BAR0 + 4 * number).await;
        }
        for (number, (at, length)) in self.own_bars().into_iter().enumerate() {
            if length > 0 && registers[number] == 0 && number < 5 {
                registers[number] = at as u32 | header::BAR_WIDE;
                registers[number + 1] = (at >> 32) as u32;
            }
        }
        registers
    }

    /// Where its BARs are.
    fn own_bars(&self) -> Bars {
        let mut bars = Bars::default();
        for (number, bar) in (0..).zip(&mut bars) {
            *bar = self.device.bar(number).map_or((0, 0), |range| (range.start.0, range.length));
        }
        bars
    }

    /// The borrower writes to a BAR's register: what it reads then tells the size, as from the function itself.
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
        held: &Held,
        to: u8,
        (window, payload): (Option<u64>, u16),
    ) -> Result<(Self, Terms), Error> {
        let (device, adapter) = (&held.device, &*service.adapter);
        let registers = held.bar_registers(cpu).await;
        *held.bars.borrow_mut() = registers;
        let place = adapter.add_local(cpu, device.address().bdf)?;
        let mut lease = Self {
            to,
            place,
            windows: Vec::new(),
            payload,
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
                // Nothing would keep it from what is not the guest's.
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
        held.limit_payload(cpu, payload).await;
        let (bars, window) = (lease.shown.bars, |n: usize| lease.windows.get(n).map_or(0, |own| own.at.0));
        let terms = Terms { place, window: window(0), messages: window(1), bars };
        Ok((lease, terms))
    }

    /// Where the IOMMU is on, the function reaches its windows and nothing else, at their own addresses.
    fn isolate(
        &self,
        cpu: &Cpu,
        service: &Service,
        device: &PciDevice,
    ) -> Result<Option<IommuDomain>, Error> {
        let Some(kernel) = service.kernel() else { return Err(Error::NoDevice) };
        let domain = match kernel.iommu_domain(device.node()) {
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

    /// Lets the function reach BARs of a peer: of its own host, or where another node says that they are.
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

    /// Lets the function reach `length` bytes from `at` of this host or of another; where the IOMMU is on, at the address `seen`, or
    /// at their own.
    fn reach(
        &self,
        cpu: &Cpu,
        adapter: &Adapter,
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
        // The IOMMU knows pages.
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

    /// Lets it reach a guest's memory at the guest's addresses.
    fn open(&mut self, cpu: &Cpu, adapter: &Adapter, (at, low, high): (u64, u64, u64)) -> Result<(), Error> {
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

    /// Lets neither of the two reach the other any more.
    fn part(&mut self, cpu: &Cpu, adapter: &Adapter, peer: Peer) {
        let all = std::mem::take(&mut self.guests).into_iter();
        let (gone, kept): (Vec<Guest>, Vec<Guest>) = all.partition(|guest| guest.who == peer);
        self.guests = kept;
        gone.into_iter().for_each(|guest| guest.leave(cpu, adapter));
        self.unreach(cpu, adapter, peer);
    }

    /// Lets it reach a peer no more.
    fn unreach(&mut self, cpu: &Cpu, adapter: &Adapter, peer: Peer) {
        for joined in self.peers.remove(&peer).into_iter().flatten() {
            if let (Some(domain), Some((iova, length))) = (&self.domain, joined.mapped) {
                let _ = domain.unmap(cpu, iova, length);
            }
            if let Some(window) = joined.window {
                adapter.unmap(cpu, window);
            }
        }
    }

    /// Lets a function of another node reach this one's BARs, by the adapter; gives the addresses that it is to use.
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

    fn end(mut self, cpu: &Cpu, adapter: &Adapter) {
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
