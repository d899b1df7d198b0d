//! All functions, and what their positions imply: hierarchies, IOMMU groups, owners of addresses.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use platform::memory::PhysAddr;
use wire::pcie::FunctionAddress;

use super::function::Function;
use crate::dma::{BarOwners, Dma, FunctionDma, Member};

/// All functions of a kernel.
pub(crate) struct Topology {
    me: Weak<Self>,
    dma: Rc<Dma>,
    /// By address. Those of the own fabric are in [`OWN_SEGMENT`](super::backend::OWN_SEGMENT).
    functions: RefCell<BTreeMap<FunctionAddress, Rc<Function>>>,
}

impl Topology {
    pub fn new(dma: Rc<Dma>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self { me: Weak::clone(me), dma, functions: RefCell::default() })
    }

    pub fn function(&self, at: FunctionAddress) -> Option<Rc<Function>> {
        self.functions.borrow().get(&at).cloned()
    }

    /// All functions by address.
    pub fn all(&self) -> Vec<Rc<Function>> {
        self.functions.borrow().values().cloned().collect()
    }

    pub fn add(&self, function: &Rc<Function>) {
        self.functions.borrow_mut().insert(function.at(), Rc::clone(function));
    }

    /// Removes a function and closes its backend.
    pub fn remove(&self, function: &Function) {
        self.functions.borrow_mut().remove(&function.at());
        function.backend.close();
    }

    /// Drops all functions.
    pub fn clear(&self) {
        self.functions.borrow_mut().clear();
    }

    /// Everything below a function's root port, and the port.
    pub fn hierarchy(&self, of: &Function) -> Vec<Rc<Function>> {
        self.all().into_iter().filter(|f| f.segment == of.segment && f.root == of.root).collect()
    }

    /// Functions behind a bridge, bridges before what is behind them.
    pub fn behind(&self, bridge: &Function) -> Vec<Rc<Function>> {
        self.all().into_iter().filter(|f| f.is_behind(bridge)).collect()
    }

    /// The bridge above a function.
    pub fn above(&self, function: &Function) -> Option<Rc<Function>> {
        self.function(function.beside(function.parent?))
    }

    /// All bridges above a function, the root port first.
    pub fn path_to(&self, function: &Function) -> Vec<Rc<Function>> {
        let mut path: Vec<_> = std::iter::successors(self.above(function), |port| self.above(port)).collect();
        path.reverse();
        path
    }

    /// Whether any function can access a byte of a range of memory.
    pub fn reach(&self, at: PhysAddr, length: u64) -> bool {
        self.all().iter().any(|function| {
            let dma = function.dma.borrow().clone();
            dma.is_some_and(|dma| dma.reaches(at, length))
        })
    }

    /// A function's membership in an IOMMU group. It shares a domain with everything below the topmost switch above it
    /// whose ports do not isolate. Root ports always isolate.
    pub fn member(&self, function: &Function) -> Member {
        let requester = function.backend.requester();
        let leader = function.backend.shares_domain_of().unwrap_or(requester);
        let mut member = Member { requester, leader };
        let mut above = self.above(function);
        while let Some(port) = above.filter(|port| port.bdf != function.root) {
            if !port.isolates.get() {
                member.leader = port.parent.unwrap_or(port.bdf);
            }
            above = self.above(&port);
        }
        member
    }

    /// The other functions in a function's IOMMU group.
    pub fn group_of(&self, function: &Function) -> Vec<Rc<Function>> {
        let leader = self.member(function).leader;
        let shares = |other: &Rc<Function>| {
            let is_other = other.bdf != function.bdf && !other.is_bridge();
            is_other && self.member(other).leader == leader
        };
        self.hierarchy(function).into_iter().filter(shares).collect()
    }

    /// A function's DMA API, created on first use.
    pub fn dma_of(&self, function: &Function) -> Rc<FunctionDma> {
        let mut dma = function.dma.borrow_mut();
        let made = dma.get_or_insert_with(|| {
            let owners = Weak::<Self>::clone(&self.me);
            FunctionDma::new(
                Rc::clone(&self.dma),
                owners,
                self.member(function),
                function.root,
                function.node,
            )
        });
        Rc::clone(made)
    }
}

impl BarOwners for Topology {
    fn owner_of(&self, at: PhysAddr, length: u64) -> Option<FunctionAddress> {
        let end = at.0.checked_add(length)?;
        let functions = self.functions.borrow();
        let all = functions.values().filter(|function| function.reach.is_present() && !function.is_bridge());
        let bars = all.flat_map(|function| {
            let here = |bar| function.backend.map_bar(bar, function.bar(bar)?).ok();
            (0..6).filter_map(here).map(|range| (range, function.at())).collect::<Vec<_>>()
        });
        // The BAR of a borrowed function lies inside the BAR of the NTB adapter: choose the innermost.
        let holding = bars.filter(|(range, _)| range.start <= at && end - range.start.0 <= range.length);
        holding.min_by_key(|(range, _)| range.length).map(|(_, owner)| owner)
    }
}
