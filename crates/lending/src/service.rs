//! A host's service: lender and borrower at once.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use drivers::ntb::NtbAdapter;
use kernel::{FunctionInfo, Kernel};
use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::kernel::TaskParams;
use units::Duration;
use virt::VirtCosts;
use wire::pcie::{Bdf, FunctionAddress};

use crate::borrower::Borrower;
use crate::doorbell::Doorbell;
use crate::lender::{Lender, LenderDriver, Offers};
use crate::mail::{Asked, Mail, NODES};
use crate::mediated::AllMediated;
use crate::message::{Reply, Request};

/// Bytes of a payload that all pass (base spec 7.5.3.4).
pub(crate) const LEAST_PAYLOAD: u16 = 128;

/// How a service works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LendingParams {
    /// Bytes of a borrower's addresses that a borrowed function reaches, where the borrower's IOMMU gives them out: a power of two.
    pub window: u64,
    /// Whether it does. If not, the function reaches all of memory.
    pub translated: bool,
    /// How long a reply may take.
    pub patience: Duration,
    /// How often both sides of a lease ask whether the other is still there.
    pub heartbeat: Duration,
    /// Cycles of a handler that passes an interrupt on to another host, beside its write.
    pub forward: u64,
}

impl Default for LendingParams {
    fn default() -> Self {
        Self {
            window: 1 << 30,
            translated: false,
            patience: Duration::from_ms(500),
            heartbeat: Duration::from_ms(200),
            forward: VirtCosts::linux().forward,
        }
    }
}

/// What a service has done, and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages that it has written. None belongs to I/O of a borrowed function.
    pub messages: u64,
    /// Functions that are lent.
    pub lent: usize,
    /// Of those, such as the IOMMU lets reach their windows alone.
    pub isolated: usize,
    /// Pairs of them of which the first reaches the second.
    pub joined: usize,
    /// Functions that are borrowed, those of guests included.
    pub borrowed: usize,
    /// Interrupts of functions that guests of other nodes have, which were passed on.
    pub forwarded: u64,
    /// Of the adapter: segments, own requesters, requesters of others in use.
    pub in_use: [usize; 3],
}

/// A host's service.
pub struct Service {
    me: Weak<Self>,
    kernel: Weak<Kernel>,
    pub(crate) adapter: Rc<NtbAdapter>,
    pub(crate) params: LendingParams,
    window: u64,
    mail: Mail,
    lender: Rc<Lender>,
    borrower: Borrower,
    /// Functions that guests have, or may have.
    pub(crate) mediated: AllMediated,
    pub(crate) doorbell: Doorbell,
    /// What requests of other nodes' cores are called here.
    aliases: RefCell<BTreeMap<u8, Bdf>>,
    /// Nodes that are gone, with which leases have not all ended.
    losing: RefCell<BTreeSet<u8>>,
    /// Somebody asks whether the others are still there.
    beats: Cell<bool>,
    /// Interrupts passed on.
    forwarded: Cell<u64>,
}

/// What a host needs before its service can start: a driver for the functions that it lends.
pub struct Lendable {
    lender: Rc<Lender>,
    service: Rc<RefCell<Weak<Service>>>,
}

impl Lendable {
    /// The driver that holds functions that are to be lent, to be offered to the kernel before all others, and what the service
    /// needs of it.
    pub fn new(offers: Offers) -> (LenderDriver, Self) {
        let lendable = Self { lender: Rc::default(), service: Rc::default() };
        let driver = LenderDriver::new(offers, Rc::clone(&lendable.lender), Rc::clone(&lendable.service));
        (driver, lendable)
    }
}

impl Service {
    /// Starts the service of a host whose kernel has booted, in a task of its own. The future ends when it answers others.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the adapter's tables are too small for its neighbours, [`Error::NoMemory`].
    pub fn start(
        kernel: &Rc<Kernel>,
        adapter: Rc<NtbAdapter>,
        lendable: &Lendable,
        params: LendingParams,
    ) -> impl Future<Output = Result<Rc<Self>, Error>> + use<> {
        let (weak, lender) = (Rc::downgrade(kernel), Rc::clone(&lendable.lender));
        let slot = Rc::clone(&lendable.service);
        let done = kernel.run(TaskParams::named("lending"), async move |cpu: Cpu| {
            let started = Self::begin(&cpu, weak, adapter, lender, params).await;
            if let Ok(service) = &started {
                *slot.borrow_mut() = Rc::downgrade(service);
            }
            started
        });
        async move { done.wait().await }
    }

    async fn begin(
        cpu: &Cpu,
        kernel: Weak<Kernel>,
        adapter: Rc<NtbAdapter>,
        lender: Rc<Lender>,
        params: LendingParams,
    ) -> Result<Rc<Self>, Error> {
        let there = kernel.upgrade().ok_or(Error::NoDevice)?;
        let root = there.root_port_of(adapter.address()).ok_or(Error::NoDevice)?;
        // What cores ask comes from the root port above the adapter.
        adapter.add_local(cpu, root)?;
        let window = match params.translated {
            true => params.window,
            false => there.memory_end().0,
        };
        let mail = Mail::new(cpu, Rc::clone(&adapter), params.patience)?;
        let service = Rc::new_cyclic(|me: &Weak<Self>| Self {
            me: me.clone(),
            kernel,
            adapter,
            params,
            window,
            mail,
            lender,
            borrower: Borrower::default(),
            mediated: AllMediated::default(),
            doorbell: Doorbell::default(),
            aliases: RefCell::default(),
            losing: RefCell::default(),
            beats: Cell::new(false),
            forwarded: Cell::new(0),
        });
        service.admit_neighbours(cpu).await?;
        let me = Rc::downgrade(&service);
        service.adapter.on_ring(Rc::new(move |cpu, bits| -> Async<'static, ()> {
            let service = me.upgrade();
            Box::pin(async move {
                if let Some(service) = service {
                    service.rung(&cpu, bits).await;
                }
            })
        }));
        Ok(service)
    }

    pub(crate) fn kernel(&self) -> Option<Rc<Kernel>> {
        self.kernel.upgrade()
    }

    /// Bytes of this host's addresses that a borrowed function reaches.
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Most bytes of a TLP's payload that pass between this host and its adapter.
    pub(crate) fn payload(&self) -> u16 {
        self.function(self.adapter.address()).map_or(LEAST_PAYLOAD, |own| own.max_payload as u16)
    }

    /// What the kernel knows of a function.
    pub(crate) fn function(&self, at: FunctionAddress) -> Option<FunctionInfo> {
        self.kernel()?.pci().into_iter().find(|function| function.address() == at)
    }

    /// Whether this host's IOMMU gives out the addresses that functions use.
    pub(crate) fn translates(&self) -> bool {
        self.params.translated
    }

    pub(crate) fn log(&self, line: String) {
        if let Some(kernel) = self.kernel() {
            kernel.face().log(format!("lending: {line}"));
        }
    }

    /// Its number in the cluster.
    pub fn node(&self) -> u8 {
        self.adapter.node()
    }

    /// What it has done, and what it holds.
    pub fn counters(&self) -> Counters {
        Counters {
            messages: self.mail.written.get(),
            lent: self.lender.leases().len(),
            isolated: self.lender.isolated(),
            joined: self.lender.joined(self.node()),
            borrowed: self.borrower.count() + self.mediated.all().len(),
            forwarded: self.forwarded.get(),
            in_use: self.adapter.in_use(),
        }
    }

    /// Who has which function.
    pub fn leases(&self) -> Vec<(Bdf, u8)> {
        self.lender.leases()
    }

    /// Itself, for those that it may outlive.
    pub(crate) fn me(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    /// Passes an interrupt of a function on to the node whose guest has it.
    pub(crate) fn forward(&self, cpu: &Cpu, node: u8, bit: u8) {
        cpu.work(self.params.forward);
        self.forwarded.set(self.forwarded.get() + 1);
        self.mail.ring(cpu, node, 1 << bit);
    }

    /// Asks another node. One that answers neither in time nor whether it is there is lost.
    ///
    /// # Errors
    /// As [`Mail::ask`]; what it says.
    pub(crate) async fn ask(&self, cpu: &Cpu, node: u8, request: Request) -> Result<Reply, Error> {
        let answer = self.mail.ask(cpu, node, request).await;
        if answer == Err(Error::TimedOut) {
            let is_there = Request::Check { function: Bdf::default(), lent: false };
            if self.mail.ask(cpu, node, is_there).await.is_err() {
                self.mail.disconnect(cpu, node);
                self.lost(node);
            }
        }
        match answer? {
            Reply::Failed(error) => Err(error),
            reply => Ok(reply),
        }
    }

    /// Whether a function that is on its way here is no longer lent.
    pub(crate) fn is_lost(&self, node: u8, function: Bdf) -> bool {
        self.borrower.is_lost((node, function))
    }

    /// Lets cores of nodes that a cable leads to write their mail here.
    async fn admit_neighbours(&self, cpu: &Cpu) -> Result<(), Error> {
        // Nothing was agreed with a stranger: its cable may have been loose before.
        let is_stranger =
            |node: &u8| !self.aliases.borrow().contains_key(node) && !self.losing.borrow().contains(node);
        let strangers = (0..NODES).filter(is_stranger).fold(0, |nodes, node| nodes | 1 << node);
        self.adapter.admit_nodes(cpu, strangers);
        let reachable = self.adapter.reachable(cpu).await;
        for node in (0..NODES).filter(|node| reachable >> node & 1 == 1) {
            if self.aliases.borrow().contains_key(&node) {
                continue;
            }
            // The root port is the first entry of every service's table.
            let alias = self.adapter.add_remote(cpu, node, 0)?;
            self.adapter.admit(cpu, alias)?;
            self.aliases.borrow_mut().insert(node, alias);
        }
        Ok(())
    }

    /// A doorbell has rung, or a cable has gone or come.
    async fn rung(&self, cpu: &Cpu, bits: u32) {
        if bits & wire::ntb::LINK_CHANGED != 0 {
            self.cables_changed(cpu).await;
        }
        self.doorbell.ring(cpu, bits);
        for asked in self.mail.collect(cpu) {
            let me = self.me.upgrade();
            if let (Some(kernel), Some(me)) = (self.kernel(), me) {
                kernel.spawn(TaskParams::named("lender"), move |cpu| {
                    Box::pin(async move { me.serve(&cpu, asked).await })
                });
            }
        }
    }

    async fn cables_changed(&self, cpu: &Cpu) {
        let reachable = self.adapter.reachable(cpu).await;
        if let Err(error) = self.admit_neighbours(cpu).await {
            self.log(format!("a neighbour finds no place: {error}"));
        }
        let known: Vec<u8> = self.aliases.borrow().keys().copied().collect();
        for node in known.into_iter().filter(|node| reachable >> node & 1 == 0) {
            self.mail.disconnect(cpu, node);
            self.lost(node);
        }
    }

    /// A node is no longer there: what it has lent is gone, what it has borrowed comes back. Done in a task of its own; afterwards the
    /// node may come again.
    fn lost(&self, node: u8) {
        self.borrower.lost(node);
        let (Some(kernel), Some(me)) = (self.kernel(), self.me.upgrade()) else { return };
        if !self.losing.borrow_mut().insert(node) {
            return;
        }
        kernel.spawn(TaskParams::named("lending"), move |cpu| {
            Box::pin(async move {
                let (borrowed, mediated) = (me.borrower.from(node), me.mediated.from(node));
                let lent = me.lender.lent_to(node);
                if borrowed.len() + mediated.len() + lent.len() > 0 {
                    me.log(format!("node {node} is gone"));
                }
                for function in borrowed {
                    let _ = me.borrower.give_back(&cpu, &me, (node, function), true).await;
                }
                mediated.iter().for_each(|mediated| mediated.lost(&cpu));
                for function in lent {
                    let _ = me.lender.take_back(&cpu, &me, node, function).await;
                }
                me.losing.borrow_mut().remove(&node);
                me.adapter.admit_nodes(&cpu, 1 << (node % NODES));
            })
        });
    }

    async fn serve(&self, cpu: &Cpu, asked: Asked) {
        let Asked { node, sequence, request } = asked;
        let reply = match request {
            Some(request) => self.reply(cpu, node, request).await.unwrap_or_else(Reply::Failed),
            None => Reply::Failed(Error::Invalid),
        };
        self.mail.answer(cpu, node, sequence, reply).await;
    }

    async fn reply(&self, cpu: &Cpu, node: u8, request: Request) -> Result<Reply, Error> {
        let lender = &self.lender;
        match request {
            Request::Check { function, lent } => {
                let holds = match lent {
                    true => self.borrower.has(node, function) || self.mediated.has(node, function),
                    false => lender.lent_to(node).contains(&function),
                };
                if holds { Ok(Reply::Done) } else { Err(Error::NoDevice) }
            }
            Request::Offer(n) => {
                let (function, to) = lender.offer(n.into()).ok_or(Error::NoDevice)?;
                Ok(Reply::Offer { function, to })
            }
            Request::Borrow { function, window, payload } => {
                self.lend(cpu, node, function, (Some(window), payload)).await
            }
            Request::BorrowForGuest { function, payload } => {
                self.lend(cpu, node, function, (None, payload)).await
            }
            Request::Return { function } => {
                lender.take_back(cpu, self, node, function).await?;
                self.log(format!("{function} is back from node {node}"));
                Ok(Reply::Done)
            }
            Request::ConfigRead { function, register } => {
                lender.config_read(cpu, node, function, register).await.map(Reply::Value)
            }
            Request::ConfigWrite { function, register, value, enables } => {
                lender.config_write(cpu, node, function, register, (value, enables)).await?;
                Ok(Reply::Done)
            }
            Request::Admit { function, peer, place, payload } => {
                lender.admit(cpu, self, (node, function), (peer, place), payload).map(Reply::Bars)
            }
            Request::Join { function, peer, bars } => {
                lender.join(cpu, self, (node, function), peer, bars).map(Reply::Bars)
            }
            Request::Part { function, peer } => {
                lender.part(cpu, self, (node, function), peer)?;
                Ok(Reply::Done)
            }
            Request::Inspect { function, register } => {
                lender.inspect(cpu, function, register).await.map(Reply::Value)
            }
            Request::Describe { function } => lender.describe(function).map(Reply::Bars),
            Request::Open { function, at, low, high } => {
                lender.open(cpu, self, (node, function), (at, low, high))?;
                Ok(Reply::Done)
            }
            Request::Interrupts { function, first, count, legacy } => {
                let granted = lender.forward(cpu, self, (node, function), (first, count), legacy).await?;
                Ok(Reply::Value(granted.into()))
            }
            Request::Unmask { function } => {
                lender.unmask(cpu, self, (node, function)).await?;
                Ok(Reply::Done)
            }
            Request::JoinGuest { function, peer, bar, there, seen } => {
                lender.join_guest(cpu, self, (node, function), (peer, bar), (there, seen))?;
                Ok(Reply::Done)
            }
            Request::Revoke { function } => {
                match self.mediated.of(node, function) {
                    Some(mediated) => mediated.lost(cpu),
                    None => self.borrower.revoke(cpu, self, (node, function)).await?,
                }
                self.log(format!("node {node} has taken {function} back"));
                Ok(Reply::Done)
            }
        }
    }

    /// Lends a function to a node, or to a guest there.
    async fn lend(
        &self,
        cpu: &Cpu,
        node: u8,
        function: Bdf,
        wanted: (Option<u64>, u16),
    ) -> Result<Reply, Error> {
        let terms = self.lender.lend(cpu, self, node, function, wanted).await?;
        self.log(format!("{function} is lent to node {node}"));
        self.beat();
        Ok(Reply::Lent(terms))
    }

    /// Takes a function that is lent back, whatever its borrower is doing; nothing if nobody has it.
    pub(crate) async fn revoke(&self, cpu: &Cpu, function: Bdf) {
        let lease = self.lender.leases().into_iter().find(|(lent, _)| *lent == function);
        if let Some((_, node)) = lease {
            // It may not hear it any more: others find out, this does not wait for it.
            let _ = self.mail.ask(cpu, node, Request::Revoke { function }).await;
            let _ = self.lender.take_back(cpu, self, node, function).await;
        }
    }

    /// As long as there are leases, asks their other sides now and then whether they are still there.
    pub(crate) fn beat(&self) {
        let (Some(kernel), Some(me)) = (self.kernel(), self.me.upgrade()) else { return };
        if self.beats.replace(true) {
            return;
        }
        kernel.spawn(TaskParams::named("lending"), move |cpu| {
            Box::pin(async move {
                loop {
                    cpu.sleep(me.params.heartbeat).await;
                    let (lent, mut borrowed) = (me.lender.leases(), me.borrower.all());
                    borrowed.extend(me.mediated.all());
                    if lent.is_empty() && borrowed.is_empty() {
                        break;
                    }
                    let lent = lent.into_iter().map(|(function, to)| (to, function, true));
                    let borrowed = borrowed.into_iter().map(|(of, function)| (of, function, false));
                    for (node, function, lent) in lent.chain(borrowed) {
                        me.check(&cpu, node, function, lent).await;
                    }
                }
                me.beats.set(false);
            })
        });
    }

    /// Asks the other side of a lease whether it is still there; ends the lease if not.
    async fn check(&self, cpu: &Cpu, node: u8, function: Bdf, lent: bool) {
        match self.ask(cpu, node, Request::Check { function, lent }).await {
            Ok(_) => {}
            // It is there, and knows nothing of the lease: an answer was lost.
            Err(Error::NoDevice) if lent => {
                let _ = self.lender.take_back(cpu, self, node, function).await;
            }
            Err(Error::NoDevice) => match self.mediated.of(node, function) {
                Some(mediated) => mediated.lost(cpu),
                None => drop(self.borrower.give_back(cpu, self, (node, function), true).await),
            },
            Err(_) => {
                self.mail.disconnect(cpu, node);
                self.lost(node);
            }
        }
    }

    /// Borrows a function of another node, in a task of its own. The future ends with its address here when a driver has had the
    /// chance to take it, and need not be polled for it to happen.
    ///
    /// # Errors
    /// [`Error::Busy`] if somebody has it, [`Error::NoDevice`] if it is not to be lent, [`Error::Unreachable`] if no cable leads
    /// there, [`Error::NoSpace`] if a window or a table is too small, [`Error::NotSupported`] if it has only legacy interrupts.
    pub fn borrow(
        &self,
        node: u8,
        function: Bdf,
    ) -> impl Future<Output = Result<FunctionAddress, Error>> + use<> {
        self.as_task(async move |me: &Rc<Self>, cpu: &Cpu| {
            let at = me.borrower.borrow(cpu, me, (node, function)).await?;
            me.beat();
            Ok(at)
        })
    }

    /// Gives a borrowed function back, likewise.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not borrowed; what the lender says.
    pub fn give_back(&self, node: u8, function: Bdf) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task(async move |me: &Rc<Self>, cpu: &Cpu| {
            me.borrower.give_back(cpu, me, (node, function), false).await
        })
    }

    /// Takes a function that is lent back from whoever has it, likewise.
    pub fn take_back(&self, function: Bdf) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task(async move |me: &Rc<Self>, cpu: &Cpu| {
            me.revoke(cpu, function).await;
            Ok(())
        })
    }

    /// What another node lends, and who has it.
    pub fn offers(&self, node: u8) -> impl Future<Output = Result<Vec<(Bdf, Option<u8>)>, Error>> + use<> {
        self.as_task(async move |me: &Rc<Self>, cpu: &Cpu| {
            let mut all = Vec::new();
            loop {
                match me.ask(cpu, node, Request::Offer(all.len() as u16)).await {
                    Ok(Reply::Offer { function, to }) => all.push((function, to)),
                    Err(Error::NoDevice) => return Ok(all),
                    Ok(_) => return Err(Error::Io),
                    Err(error) => return Err(error),
                }
            }
        })
    }

    pub(crate) fn as_task<T: 'static, W>(&self, work: W) -> impl Future<Output = Result<T, Error>> + use<T, W>
    where
        W: AsyncFnOnce(&Rc<Self>, &Cpu) -> Result<T, Error> + 'static,
    {
        let done = self.kernel().zip(self.me.upgrade()).map(|(kernel, me)| {
            kernel.run(TaskParams::named("lending"), async move |cpu: Cpu| work(&me, &cpu).await)
        });
        async move { done.ok_or(Error::NoDevice)?.wait().await }
    }
}
