//! A host's lending service, both lender and borrower.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use drivers::ntb::NtbAdapter;
use kernel::{DmaMode, Kernel};
use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::kernel::TaskParams;
use settings::{FunctionHolder, isolation};
use virt::GuestMemory;
use wire::pcie::{Bdf, FunctionAddress};

use crate::borrower::Borrower;
use crate::host::{LeaseKeeper, LendingParams, LocalHost};
use crate::lender::{Lender, LenderDriver, Offers};
use crate::mail::{Asked, NODES};
use crate::mediated::{AllMediated, Mediated};
use crate::message::{Peer, Reply, Request};

/// What a service has done so far, and what it lends and borrows now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages written. I/O of borrowed functions needs none.
    pub messages: u64,
    /// Functions lent.
    pub lent: usize,
    /// Lent functions that the IOMMU restricts to their windows.
    pub isolated: usize,
    /// Pairs of lent functions of which the first can access the second.
    pub joined: usize,
    /// Functions borrowed, including those for guests.
    pub borrowed: usize,
    /// Interrupts forwarded to guests of other nodes.
    pub forwarded: u64,
    /// Adapter resources in use: segments, own requesters, other nodes' requesters.
    pub in_use: [usize; 3],
}

/// A host's lending service.
pub struct Service {
    me: Weak<Self>,
    host: Rc<LocalHost>,
    lender: Rc<Lender>,
    borrower: Borrower,
    /// Functions that guests have or may have.
    mediated: Rc<AllMediated>,
    /// Requester ID on this host of each other node's cores.
    aliases: RefCell<BTreeMap<u8, Bdf>>,
    /// Nodes that are gone and whose leases are still being ended.
    losing: RefCell<BTreeSet<u8>>,
    /// Whether the heartbeat task is running.
    beats: Cell<bool>,
}

/// Prerequisites of a service: the driver of the functions to lend.
#[derive(Clone)]
pub struct Lendable {
    lender: Rc<Lender>,
    host: Rc<RefCell<Weak<LocalHost>>>,
}

impl Lendable {
    /// Returns the driver that claims functions to lend, which has to be registered before all others, and the
    /// service's connection to it.
    pub fn new(offers: Offers) -> (LenderDriver, Self) {
        let lendable = Self { lender: Rc::default(), host: Rc::default() };
        let driver = LenderDriver::new(offers, Rc::clone(&lendable.lender), Rc::clone(&lendable.host));
        (driver, lendable)
    }
}

impl Service {
    /// Starts the service of a booted host in a task of its own. The future resolves when it answers requests.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the adapter's tables are too small for its neighbours, [`Error::NoMemory`].
    pub fn start(
        kernel: &Rc<Kernel>,
        adapter: Rc<NtbAdapter>,
        lendable: &Lendable,
        params: LendingParams,
    ) -> impl Future<Output = Result<Rc<Self>, Error>> + use<> {
        let (weak, lendable) = (Rc::downgrade(kernel), lendable.clone());
        let done = kernel.run(TaskParams::named("lending"), async move |cpu: Cpu| {
            let kernel = weak.upgrade().ok_or(Error::NoDevice)?;
            Self::begin(&cpu, &kernel, adapter, &lendable, params).await
        });
        async move { done.wait().await }
    }

    /// As [`start`](Self::start), in the caller's task. The service ends when the adapter is lost.
    ///
    /// # Errors
    /// As of [`start`](Self::start); [`Error::NoDevice`] if the adapter is lost meanwhile.
    pub async fn begin(
        cpu: &Cpu,
        kernel: &Rc<Kernel>,
        adapter: Rc<NtbAdapter>,
        lendable: &Lendable,
        params: LendingParams,
    ) -> Result<Rc<Self>, Error> {
        let host = Rc::new(LocalHost::new(cpu, kernel, adapter, params)?);
        let service = Rc::new_cyclic(|me: &Weak<Self>| Self {
            me: me.clone(),
            host,
            lender: Rc::clone(&lendable.lender),
            borrower: Borrower::default(),
            mediated: Rc::default(),
            aliases: RefCell::default(),
            losing: RefCell::default(),
            beats: Cell::new(false),
        });
        let me = Rc::downgrade(&service);
        service.host.kept_by(me);
        service.admit_neighbours(cpu).await?;
        let me = Rc::downgrade(&service);
        service.host.adapter.on_ring(Rc::new(move |cpu, bits| -> Async<'static, ()> {
            let service = me.upgrade();
            Box::pin(async move {
                if let Some(service) = service {
                    service.rung(&cpu, bits).await;
                }
            })
        }));
        let me = Rc::downgrade(&service);
        service.host.adapter.on_loss(Rc::new(move |cpu| -> Async<'static, ()> {
            let service = me.upgrade();
            Box::pin(async move {
                if let Some(service) = service {
                    service.end(&cpu).await;
                }
            })
        }))?;
        *lendable.host.borrow_mut() = Rc::downgrade(&service.host);
        Ok(service)
    }

    /// The adapter is lost: what is under way fails, and all leases end.
    async fn end(&self, cpu: &Cpu) {
        self.host.log("the adapter is gone".to_owned());
        for node in 0..NODES {
            self.host.mail.disconnect(cpu, node);
            self.borrower.lost(node);
        }
        for node in 0..NODES {
            self.end_leases(cpu, node).await;
        }
        for alias in self.aliases.take().into_values() {
            self.host.adapter.dismiss(cpu, alias);
        }
        self.host.mail.close(cpu);
    }

    /// Its node number.
    pub fn node(&self) -> u8 {
        self.host.adapter.node()
    }

    /// What the service has done so far, and what is lent and borrowed now.
    pub fn counters(&self) -> Counters {
        Counters {
            messages: self.host.mail.written.get(),
            lent: self.lender.leases().len(),
            isolated: self.lender.isolated(),
            joined: self.lender.joined(self.node()),
            borrowed: self.borrower.count() + self.mediated.all().len(),
            forwarded: self.host.forwarded(),
            in_use: self.host.adapter.in_use(),
        }
    }

    /// All lent functions with their borrowers.
    pub fn leases(&self) -> Vec<(Bdf, u8)> {
        self.lender.leases()
    }

    /// Lets cores of connected nodes write to this mailbox.
    async fn admit_neighbours(&self, cpu: &Cpu) -> Result<(), Error> {
        // No state is shared with a new node, so it does not matter if its cable was down before.
        let is_stranger =
            |node: &u8| !self.aliases.borrow().contains_key(node) && !self.losing.borrow().contains(node);
        let strangers = (0..NODES).filter(is_stranger).fold(0, |nodes, node| nodes | 1 << node);
        self.host.adapter.admit_nodes(cpu, strangers);
        let reachable = self.host.adapter.reachable(cpu).await;
        for node in (0..NODES).filter(|node| reachable >> node & 1 == 1) {
            if self.aliases.borrow().contains_key(&node) {
                continue;
            }
            // The root port is the first entry of every node's requester table.
            let alias = self.host.adapter.add_remote(cpu, node, 0)?;
            self.host.adapter.admit(cpu, alias)?;
            self.aliases.borrow_mut().insert(node, alias);
        }
        Ok(())
    }

    /// A doorbell has rung, or a cable was connected or disconnected.
    async fn rung(&self, cpu: &Cpu, bits: u32) {
        if bits & wire::ntb::LINK_CHANGED != 0 {
            self.cables_changed(cpu).await;
        }
        self.host.doorbell.ring(cpu, bits);
        for asked in self.host.mail.collect(cpu) {
            let me = self.me.upgrade();
            if let (Some(kernel), Some(me)) = (self.host.kernel(), me) {
                kernel.spawn(TaskParams::named("lender"), move |cpu| {
                    Box::pin(async move { me.serve(&cpu, asked).await })
                });
            }
        }
    }

    async fn cables_changed(&self, cpu: &Cpu) {
        let reachable = self.host.adapter.reachable(cpu).await;
        if let Err(error) = self.admit_neighbours(cpu).await {
            self.host.log(format!("cannot admit a neighbour: {error}"));
        }
        let known: Vec<u8> = self.aliases.borrow().keys().copied().collect();
        for node in known.into_iter().filter(|node| reachable >> node & 1 == 0) {
            self.host.give_up(cpu, node);
        }
    }

    /// Ends all leases with a node that is gone.
    async fn end_leases(&self, cpu: &Cpu, node: u8) {
        let (borrowed, mediated) = (self.borrower.from(node), self.mediated.from(node));
        let lent = self.lender.lent_to(node);
        if borrowed.len() + mediated.len() + lent.len() > 0 {
            self.host.log(format!("node {node} is gone"));
        }
        for function in borrowed {
            let _ = self.borrower.give_back(cpu, &self.host, (node, function), true).await;
        }
        mediated.iter().for_each(|mediated| mediated.lost(cpu));
        for function in lent {
            let _ = self.lender.take_back(cpu, &self.host, node, function).await;
        }
    }

    async fn serve(&self, cpu: &Cpu, asked: Asked) {
        let Asked { node, sequence, request } = asked;
        let reply = match request {
            Some(request) => self.reply(cpu, node, request).await.unwrap_or_else(Reply::Failed),
            None => Reply::Failed(Error::Invalid),
        };
        self.host.mail.answer(cpu, node, sequence, reply).await;
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
                lender.take_back(cpu, &self.host, node, function).await?;
                self.host.log(format!("{function} was returned by node {node}"));
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
                lender.admit(cpu, &self.host, (node, function), (peer, place), payload).map(Reply::Bars)
            }
            Request::Join { function, peer, bars } => {
                lender.join(cpu, &self.host, (node, function), peer, bars).map(Reply::Bars)
            }
            Request::Part { function, peer } => {
                lender.part(cpu, &self.host, (node, function), peer)?;
                Ok(Reply::Done)
            }
            Request::Inspect { function, register } => {
                lender.inspect(cpu, function, register).await.map(Reply::Value)
            }
            Request::Describe { function } => lender.describe(function).map(Reply::Bars),
            Request::Open { function, at, low, high } => {
                lender.open(cpu, &self.host, (node, function), (at, low, high))?;
                Ok(Reply::Done)
            }
            Request::Interrupts { function, wanted } => {
                let granted = lender.forward(cpu, &self.host, (node, function), wanted).await?;
                Ok(Reply::Value(granted.into()))
            }
            Request::Unmask { function } => {
                lender.unmask(cpu, &self.host, (node, function)).await?;
                Ok(Reply::Done)
            }
            Request::JoinGuest { function, peer, mapping } => {
                lender.join_guest(cpu, &self.host, (node, function), peer, mapping)?;
                Ok(Reply::Done)
            }
            Request::Revoke { function } => {
                match self.mediated.of(node, function) {
                    Some(mediated) => mediated.lost(cpu),
                    None => self.borrower.revoke(cpu, &self.host, (node, function)).await?,
                }
                self.host.log(format!("node {node} has revoked {function}"));
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
        let terms = self.lender.lend(cpu, &self.host, node, function, wanted).await?;
        self.host.log(format!("{function} is lent to node {node}"));
        self.beat();
        Ok(Reply::Lent(terms))
    }

    /// While there are leases, checks at intervals that their other sides still exist.
    fn beat(&self) {
        let (Some(kernel), Some(me)) = (self.host.kernel(), self.me.upgrade()) else { return };
        if self.beats.replace(true) {
            return;
        }
        kernel.spawn(TaskParams::named("lending"), move |cpu| {
            Box::pin(async move {
                loop {
                    cpu.sleep(me.host.params.heartbeat).await;
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

    /// Checks the other side of a lease, and ends the lease if it is gone.
    async fn check(&self, cpu: &Cpu, node: u8, function: Bdf, lent: bool) {
        match self.host.ask(cpu, node, Request::Check { function, lent }).await {
            Ok(_) => {}
            // The node exists but does not know the lease: a reply was lost.
            Err(Error::NoDevice) if lent => {
                let _ = self.lender.take_back(cpu, &self.host, node, function).await;
            }
            Err(Error::NoDevice) => match self.mediated.of(node, function) {
                Some(mediated) => mediated.lost(cpu),
                None => drop(self.borrower.give_back(cpu, &self.host, (node, function), true).await),
            },
            Err(_) => {
                self.host.give_up(cpu, node);
            }
        }
    }

    /// Borrows a function of another node and offers it to the drivers. Returns its local address. Runs in a task
    /// that goes on even if the future is dropped.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is in use, [`Error::NoDevice`] if the node does not lend it, [`Error::Unreachable`] if
    /// no cable leads there, [`Error::NoSpace`] if a window or table is too small, [`Error::NotSupported`] if it has
    /// only legacy interrupts.
    pub fn borrow(
        &self,
        node: u8,
        function: Bdf,
    ) -> impl Future<Output = Result<FunctionAddress, Error>> + use<> {
        self.as_task(async move |me: &Rc<Self>, cpu: &Cpu| {
            let at = me.borrower.borrow(cpu, &me.host, (node, function)).await?;
            me.beat();
            Ok(at)
        })
    }

    /// Returns a borrowed function, in a task.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not borrowed; errors of the lender.
    pub fn give_back(&self, node: u8, function: Bdf) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task(async move |me: &Rc<Self>, cpu: &Cpu| {
            me.borrower.give_back(cpu, &me.host, (node, function), false).await
        })
    }

    /// Takes a lent function back, in a task.
    pub fn take_back(&self, function: Bdf) -> impl Future<Output = Result<(), Error>> + use<> {
        self.as_task(async move |me: &Rc<Self>, cpu: &Cpu| {
            me.lender.revoke(cpu, &me.host, function).await;
            Ok(())
        })
    }

    /// Functions that another node lends, and who has them.
    pub fn offers(&self, node: u8) -> impl Future<Output = Result<Vec<(Bdf, Option<u8>)>, Error>> + use<> {
        self.as_task(async move |me: &Rc<Self>, cpu: &Cpu| {
            let mut all = Vec::new();
            loop {
                match me.host.ask(cpu, node, Request::Offer(all.len() as u16)).await {
                    Ok(Reply::Offer { function, to }) => all.push((function, to)),
                    Err(Error::NoDevice) => return Ok(all),
                    Ok(_) => return Err(Error::Io),
                    Err(error) => return Err(error),
                }
            }
        })
    }

    /// Offers a function of another node to a guest with this memory, without borrowing it yet. Signalling an
    /// interrupt to the guest takes `eventfd` cycles. Runs in a task of its own.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if the node does not lend it, [`Error::Unreachable`] if no cable leads there,
    /// [`Error::NotSupported`] if this host's IOMMU does not translate.
    pub fn mediate(
        &self,
        node: u8,
        function: Bdf,
        memory: Rc<GuestMemory>,
        eventfd: u64,
    ) -> impl Future<Output = Result<Rc<Mediated>, Error>> + use<> {
        self.as_task(async move |me: &Rc<Self>, cpu: &Cpu| {
            // What the function's host needs is checked there.
            let possible = isolation(DmaMode::Strict, FunctionHolder::RemoteGuest(me.host.params.iommu));
            possible.map_err(|_| Error::NotSupported)?;
            me.mediated.add(cpu, &me.host, Peer { node, function }, memory, eventfd).await
        })
    }

    fn as_task<T: 'static, W>(&self, work: W) -> impl Future<Output = Result<T, Error>> + use<T, W>
    where
        W: AsyncFnOnce(&Rc<Self>, &Cpu) -> Result<T, Error> + 'static,
    {
        let started = self.me.upgrade().map(|me| {
            let host = Rc::clone(&me.host);
            host.start(async move |cpu: &Cpu| work(&me, cpu).await)
        });
        async move { started.ok_or(Error::NoDevice)?.await }
    }
}

impl LeaseKeeper for Service {
    fn leased(&self) {
        self.beat();
    }

    /// Ends all leases with the node, in a task of its own. Afterwards the node may connect again.
    fn lost(&self, node: u8) {
        self.borrower.lost(node);
        let (Some(kernel), Some(me)) = (self.host.kernel(), self.me.upgrade()) else { return };
        if !self.losing.borrow_mut().insert(node) {
            return;
        }
        kernel.spawn(TaskParams::named("lending"), move |cpu| {
            Box::pin(async move {
                me.end_leases(&cpu, node).await;
                me.losing.borrow_mut().remove(&node);
                me.host.adapter.admit_nodes(&cpu, 1 << (node % NODES));
            })
        });
    }
}
