//! Functions that this host has borrowed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use drivers::ntb::Mapping;
use kernel::{FunctionInfo, Kernel};
use platform::Error;
use platform::cpu::Cpu;
use platform::sync::Semaphore;
use wire::pcie::{Bdf, FunctionAddress, Segment};

use crate::backend::{BorrowedBackend, LostFunctions, PeerBar, Peers};
use crate::host::LocalHost;
use crate::lender::LENDER;
use crate::message::{Bars, Peer, Reply, Request, Terms};

/// A borrowed function.
#[derive(Clone)]
struct Borrowed {
    /// Its index in the lender's requester table, and its requester ID on this host.
    place: u8,
    alias: Bdf,
    /// Largest payload that it sends (bytes).
    payload: u16,
    bars: [Option<Mapping>; 6],
    /// Other functions that it can access.
    peers: Peers,
    /// Table entries of this host's functions that can access it.
    own: Vec<u8>,
}

/// Borrowed functions by lender and BDF there; `None` while being borrowed.
pub(crate) struct Borrower {
    all: RefCell<BTreeMap<(u8, Bdf), Option<Borrowed>>>,
    lost: LostFunctions,
    /// Serialises borrowing and returning, so that each sees all other functions to join or part.
    turn: Semaphore,
}

impl Default for Borrower {
    fn default() -> Self {
        Self { all: RefCell::default(), lost: LostFunctions::default(), turn: Semaphore::new(1) }
    }
}

/// Local address of another node's function: each node has a segment, beside that of the own fabric.
pub(crate) fn address(node: u8, function: Bdf) -> FunctionAddress {
    FunctionAddress { segment: Segment(u16::from(node) + 1), bdf: function }
}

impl Borrower {
    /// Functions borrowed from a node.
    pub fn from(&self, node: u8) -> Vec<Bdf> {
        let all = self.all.borrow();
        all.iter().filter(|((of, _), is)| *of == node && is.is_some()).map(|((_, bdf), _)| *bdf).collect()
    }

    /// All borrowed functions, with their nodes.
    pub fn all(&self) -> Vec<(u8, Bdf)> {
        let all = self.all.borrow();
        all.iter().filter(|(_, is)| is.is_some()).map(|(of, _)| *of).collect()
    }

    /// Whether a function is borrowed, or is being borrowed or returned.
    pub fn has(&self, node: u8, function: Bdf) -> bool {
        self.all.borrow().contains_key(&(node, function))
    }

    /// Number of borrowed functions.
    pub fn count(&self) -> usize {
        self.all.borrow().len()
    }

    /// Borrows a function and binds a driver to it.
    ///
    /// # Errors
    /// [`Error::Busy`] if the function is in use; errors of the lender or of the kernel.
    pub async fn borrow(
        &self,
        cpu: &Cpu,
        host: &Rc<LocalHost>,
        (node, function): (u8, Bdf),
    ) -> Result<FunctionAddress, Error> {
        if self.all.borrow().contains_key(&(node, function)) {
            return Err(Error::Busy);
        }
        self.all.borrow_mut().insert((node, function), None);
        self.lost.borrow_mut().remove(&(node, function));
        self.turn.acquire().await;
        let borrowed = self.borrow_alone(cpu, host, (node, function)).await;
        self.turn.release();
        borrowed
    }

    async fn borrow_alone(
        &self,
        cpu: &Cpu,
        host: &Rc<LocalHost>,
        (node, function): (u8, Bdf),
    ) -> Result<FunctionAddress, Error> {
        let window = host.window;
        let asked = host.ask(cpu, node, Request::Borrow { function, window, payload: host.payload() }).await;
        let terms = match asked {
            Ok(Reply::Lent(terms)) => Ok(terms),
            Ok(_) => Err(Error::Io),
            Err(error) => Err(error),
        };
        let added = match terms {
            Ok(terms) => self.add(cpu, host, (node, function), &terms).await,
            Err(error) => Err(error),
        };
        match added {
            Ok(borrowed) => {
                if self.lost.borrow_mut().remove(&(node, function)) {
                    self.give_back_alone(cpu, host, (node, function), (borrowed, true)).await?;
                    return Err(Error::NoDevice);
                }
                self.all.borrow_mut().insert((node, function), Some(borrowed));
                Ok(address(node, function))
            }
            Err(error) => {
                self.all.borrow_mut().remove(&(node, function));
                let is_lost = self.lost.borrow_mut().remove(&(node, function));
                if terms.is_ok() && !is_lost {
                    let _ = host.ask(cpu, node, Request::Return { function }).await;
                }
                Err(error)
            }
        }
    }

    /// All borrowed functions except `me`.
    fn others(&self, me: Peer) -> Vec<(Peer, Borrowed)> {
        let all = self.all.borrow();
        let named = all
            .iter()
            .filter_map(|(&(node, function), borrowed)| Some((Peer { node, function }, borrowed.clone()?)));
        named.filter(|(peer, _)| *peer != me).collect()
    }

    /// Adds a lent function to this host's PCI functions.
    async fn add(
        &self,
        cpu: &Cpu,
        host: &Rc<LocalHost>,
        (node, function): (u8, Bdf),
        terms: &Terms,
    ) -> Result<Borrowed, Error> {
        let (adapter, kernel) = (&host.adapter, host.kernel().ok_or(Error::NoDevice)?);
        let alias = adapter.add_remote(cpu, node, terms.place)?;
        let mut borrowed = Borrowed {
            place: terms.place,
            alias,
            payload: terms.payload,
            bars: [None; 6],
            peers: Peers::default(),
            own: Vec::new(),
        };
        for (own, &(at, length)) in borrowed.bars.iter_mut().zip(&terms.bars) {
            if length == 0 {
                continue;
            }
            match adapter.map(cpu, node, at, length) {
                Ok(mapping) => *own = Some(mapping),
                Err(error) => {
                    borrowed.end(cpu, host);
                    return Err(error);
                }
            }
        }
        let own = adapter.address();
        let way = BorrowedBackend {
            host: Rc::downgrade(host),
            node,
            function,
            alias,
            adapter: own.bdf,
            root: kernel.root_port_of(own).unwrap_or_default(),
            bars: borrowed.bars,
            window: (terms.window, host.window),
            messages: terms.messages,
            peers: Rc::clone(&borrowed.peers),
            lost: Rc::clone(&self.lost),
        };
        let me = Peer { node, function };
        for (peer, other) in self.others(me) {
            for (from, to) in [((me, &borrowed), (peer, &other)), ((peer, &other), (me, &borrowed))] {
                if self.is_lost((node, function)) {
                    break;
                }
                if let Err(error) = join(cpu, host, from, to).await {
                    host.log(format!(
                        "{function} of node {node} and {peer:?} cannot access each other: {error}"
                    ));
                }
            }
        }
        borrowed.own = admit_own(cpu, host, &kernel, me).await;
        let added = kernel.add_function(address(node, function), Rc::new(way)).await;
        if added.is_err() {
            borrowed.end(cpu, host);
            self.part(cpu, host, me).await;
        }
        added.map(|()| borrowed)
    }

    /// Parts a function from all other borrowed functions, as another host may borrow it next.
    async fn part(&self, cpu: &Cpu, host: &LocalHost, me: Peer) {
        for (peer, other) in self.others(me) {
            other.peers.borrow_mut().retain(|bar| bar.peer != me);
            let _ = host.ask(cpu, peer.node, Request::Part { function: peer.function, peer: me }).await;
        }
    }

    /// A lender is gone: cancels borrowing from it.
    pub fn lost(&self, node: u8) {
        let all = self.all.borrow();
        let on_their_way = all.iter().filter(|((of, _), is)| *of == node && is.is_none());
        self.lost.borrow_mut().extend(on_their_way.map(|(of, _)| *of));
    }

    /// Whether a function was revoked while being borrowed.
    fn is_lost(&self, of: (u8, Bdf)) -> bool {
        self.lost.borrow().contains(&of)
    }

    /// The lender has revoked a function: removes it, now or once borrowing is complete.
    ///
    /// # Errors
    /// As of the kernel.
    pub async fn revoke(&self, cpu: &Cpu, host: &LocalHost, of: (u8, Bdf)) -> Result<(), Error> {
        if matches!(self.all.borrow().get(&of), Some(None)) {
            self.lost.borrow_mut().insert(of);
            return Ok(());
        }
        self.give_back(cpu, host, of, true).await
    }

    /// Removes a function, and returns it to the lender unless that has `gone`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not borrowed; errors of the lender.
    pub async fn give_back(
        &self,
        cpu: &Cpu,
        host: &LocalHost,
        (node, function): (u8, Bdf),
        gone: bool,
    ) -> Result<(), Error> {
        let taken = match self.all.borrow_mut().get_mut(&(node, function)) {
            Some(borrowed) => borrowed.take(),
            None => None,
        };
        let borrowed = taken.ok_or(Error::Invalid)?;
        self.turn.acquire().await;
        let given = self.give_back_alone(cpu, host, (node, function), (borrowed, gone)).await;
        self.turn.release();
        given
    }

    async fn give_back_alone(
        &self,
        cpu: &Cpu,
        host: &LocalHost,
        (node, function): (u8, Bdf),
        (borrowed, gone): (Borrowed, bool),
    ) -> Result<(), Error> {
        let removed = match host.kernel() {
            Some(kernel) => kernel.remove_function(address(node, function), gone).await,
            None => Ok(()),
        };
        borrowed.end(cpu, host);
        self.part(cpu, host, Peer { node, function }).await;
        let returned = match gone {
            true => Ok(()),
            false => host.ask(cpu, node, Request::Return { function }).await.map(drop),
        };
        self.all.borrow_mut().remove(&(node, function));
        self.lost.borrow_mut().remove(&(node, function));
        removed.and(returned)
    }
}

/// Lets a borrowed function access another: at its lender, or through a window from its lender to the other's.
async fn join(
    cpu: &Cpu,
    host: &LocalHost,
    (from, source): (Peer, &Borrowed),
    (to, target): (Peer, &Borrowed),
) -> Result<(), Error> {
    let bars = |reply: Reply| match reply {
        Reply::Bars(bars) => Ok(bars),
        _ => Err(Error::Io),
    };
    let there = match from.node == to.node {
        true => Bars::default(),
        false => {
            let (place, payload) = (source.place, source.payload);
            let admit = Request::Admit { function: to.function, peer: from, place, payload };
            bars(host.ask(cpu, to.node, admit).await?)?
        }
    };
    let request = Request::Join { function: from.function, peer: to, bars: there };
    let reached = bars(host.ask(cpu, from.node, request).await?)?;
    let both = target.bars.iter().zip(reached).filter(|(_, (_, length))| *length > 0);
    let found =
        both.filter_map(|(own, (there, length))| Some(PeerBar { peer: to, at: (*own)?.at, length, there }));
    source.peers.borrow_mut().extend(found);
    Ok(())
}

/// Lets functions of this host that have a driver access a borrowed one, through the windows of its BARs. Returns
/// their table entries. They get at most half of a table; others cannot access it.
async fn admit_own(cpu: &Cpu, host: &LocalHost, kernel: &Kernel, borrowed: Peer) -> Vec<u8> {
    let (adapter, mut places) = (&host.adapter, Vec::new());
    let here = adapter.address();
    let has_driver = |driver: Option<&str>| driver.is_some_and(|name| name != LENDER);
    let is_own = |f: &FunctionInfo| f.segment == here.segment && f.bdf != here.bdf && f.buses.is_none();
    for own in kernel.pci().into_iter().filter(|f| is_own(f) && has_driver(f.driver)) {
        let place =
            if adapter.is_half_full() { Err(Error::NoSpace) } else { adapter.add_local(cpu, own.bdf) };
        let Ok(place) = place else {
            host.log(format!("{} gets no entry in the adapter's requester table", own.bdf));
            break;
        };
        let peer = Peer { node: host.node(), function: own.bdf };
        let payload = own.max_payload as u16;
        let admit = Request::Admit { function: borrowed.function, peer, place, payload };
        match host.ask(cpu, borrowed.node, admit).await {
            Ok(_) => places.push(place),
            Err(error) => {
                adapter.remove_local(cpu, place);
                host.log(format!("{} cannot access {borrowed:?}: {error}", own.bdf));
            }
        }
    }
    places
}

impl Borrowed {
    fn end(&self, cpu: &Cpu, host: &LocalHost) {
        self.own.iter().for_each(|&place| host.adapter.remove_local(cpu, place));
        for mapping in self.bars.iter().flatten() {
            host.adapter.unmap(cpu, *mapping);
        }
        host.adapter.remove_remote(cpu, self.alias);
    }
}
