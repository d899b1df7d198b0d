//! The functions that a host has borrowed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use drivers::ntb::Mapping;
use platform::Error;
use platform::cpu::Cpu;
use wire::pcie::{Bdf, FunctionAddress, Segment};

use crate::message::{Reply, Request, Terms};
use crate::service::Service;
use crate::way::Way;

/// A function that is borrowed.
#[derive(Clone, Copy)]
struct Borrowed {
    alias: Bdf,
    bars: [Option<Mapping>; 6],
}

/// The functions that a host has borrowed: by lender, and which there. None while it is on its way.
#[derive(Default)]
pub(crate) struct Borrower {
    all: RefCell<BTreeMap<(u8, Bdf), Option<Borrowed>>>,
}

/// Where a function of another node is found here: each node has a segment, beside the own fabric's.
pub(crate) fn address(node: u8, function: Bdf) -> FunctionAddress {
    FunctionAddress { segment: Segment(u16::from(node) + 1), bdf: function }
}

impl Borrower {
    /// Functions borrowed from a node, and where.
    pub fn from(&self, node: u8) -> Vec<Bdf> {
        let all = self.all.borrow();
        all.iter().filter(|((of, _), is)| *of == node && is.is_some()).map(|((_, bdf), _)| *bdf).collect()
    }

    /// Nodes that something is borrowed from.
    pub fn lenders(&self) -> Vec<u8> {
        let mut nodes: Vec<u8> = self.all.borrow().keys().map(|(node, _)| *node).collect();
        nodes.dedup();
        nodes
    }

    /// How many are borrowed.
    pub fn count(&self) -> usize {
        self.all.borrow().len()
    }

    /// Borrows a function and lets a driver have it.
    ///
    /// # Errors
    /// [`Error::Busy`] if somebody has it; what the lender says; what the kernel says.
    pub async fn borrow(
        &self,
        cpu: &Cpu,
        service: &Rc<Service>,
        (node, function): (u8, Bdf),
    ) -> Result<FunctionAddress, Error> {
        if self.all.borrow().contains_key(&(node, function)) {
            return Err(Error::Busy);
        }
        self.all.borrow_mut().insert((node, function), None);
        let window = service.window();
        let asked = service.ask(cpu, node, Request::Borrow { function, window }).await;
        let terms = match asked {
            Ok(Reply::Lent(terms)) => Ok(terms),
            Ok(_) => Err(Error::Io),
            Err(error) => Err(error),
        };
        let added = match terms {
            Ok(terms) => self.add(cpu, service, (node, function), &terms).await,
            Err(error) => Err(error),
        };
        match added {
            Ok(borrowed) => {
                self.all.borrow_mut().insert((node, function), Some(borrowed));
                Ok(address(node, function))
            }
            Err(error) => {
                self.all.borrow_mut().remove(&(node, function));
                if terms.is_ok() {
                    let _ = service.ask(cpu, node, Request::Return { function }).await;
                }
                Err(error)
            }
        }
    }

    /// Puts a function that is lent into the own tree.
    async fn add(
        &self,
        cpu: &Cpu,
        service: &Rc<Service>,
        (node, function): (u8, Bdf),
        terms: &Terms,
    ) -> Result<Borrowed, Error> {
        let (adapter, kernel) = (&service.adapter, service.kernel().ok_or(Error::NoDevice)?);
        let alias = adapter.add_remote(cpu, node, terms.place)?;
        let mut borrowed = Borrowed { alias, bars: [None; 6] };
        for (own, &(at, length)) in borrowed.bars.iter_mut().zip(&terms.bars) {
            if length == 0 {
                continue;
            }
            match adapter.map(cpu, node, at, length) {
                Ok(mapping) => *own = Some(mapping),
                Err(error) => {
                    borrowed.end(cpu, service);
                    return Err(error);
                }
            }
        }
        let own = adapter.address();
        let way = Way {
            service: Rc::downgrade(service),
            node,
            function,
            alias,
            adapter: own.bdf,
            root: kernel.root_port_of(own).unwrap_or_default(),
            bars: borrowed.bars,
            window: (terms.window, service.window()),
            messages: terms.messages,
        };
        let added = kernel.add_function(address(node, function), Rc::new(way)).await;
        if added.is_err() {
            borrowed.end(cpu, service);
        }
        added.map(|()| borrowed)
    }

    /// Takes a function out of the own tree, and gives it back unless it has `gone`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not borrowed; what the lender says.
    pub async fn give_back(
        &self,
        cpu: &Cpu,
        service: &Service,
        (node, function): (u8, Bdf),
        gone: bool,
    ) -> Result<(), Error> {
        let taken = match self.all.borrow_mut().get_mut(&(node, function)) {
            Some(borrowed) => borrowed.take(),
            None => None,
        };
        let borrowed = taken.ok_or(Error::Invalid)?;
        if let Some(kernel) = service.kernel() {
            kernel.remove_function(address(node, function), gone).await?;
        }
        borrowed.end(cpu, service);
        self.all.borrow_mut().remove(&(node, function));
        match gone {
            true => Ok(()),
            false => service.ask(cpu, node, Request::Return { function }).await.map(drop),
        }
    }
}

impl Borrowed {
    fn end(&self, cpu: &Cpu, service: &Service) {
        for mapping in self.bars.iter().flatten() {
            service.adapter.unmap(cpu, *mapping);
        }
        service.adapter.remove_remote(cpu, self.alias);
    }
}
