//! Domains that their owner fills: a guest's memory at the guest's addresses, what a lender lets a borrower reach.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Cpu, Node, Part};
use platform::dma::Direction;
use platform::memory::PhysAddr;
use units::Iova;
use wire::pcie::FunctionAddress;

use super::Dma;
use super::domain::Domain;
use super::function::permissions;
use super::group::{Group, Member};
use crate::kernel::Kernel;
use crate::pci::Pci;

/// A domain that its owner fills. Functions are put into it and taken out; one that is in none, and has no driver, reaches
/// nothing.
pub struct IommuDomain {
    dma: Rc<Dma>,
    pci: Weak<Pci>,
    domain: Rc<Domain>,
    functions: RefCell<BTreeMap<FunctionAddress, (Rc<Group>, Member)>>,
}

impl Kernel {
    /// Lets a function reach whole pages that are here and there as one row of addresses, beside what its driver maps (Linux:
    /// `dma_map_sg` where an IOMMU translates).
    ///
    /// # Errors
    /// [`Error::NotSupported`] where addresses are not translated, [`Error::NoDevice`], [`Error::NoMemory`].
    pub fn map_row(&self, cpu: &Cpu, at: FunctionAddress, blocks: &[(PhysAddr, u64)]) -> Result<Iova, Error> {
        let _part = cpu.book(Part::Dma);
        self.inner().pci.function(at).ok_or(Error::NoDevice)?.dma_api().map_row(cpu, blocks)
    }

    /// Takes a row back; it is out of reach at once.
    pub fn unmap_row(&self, cpu: &Cpu, at: FunctionAddress, row: Iova, length: u64) {
        let _part = cpu.book(Part::Dma);
        if let Some(function) = self.inner().pci.function(at) {
            function.dma_api().unmap_row(cpu, row, length);
        }
    }

    /// An empty domain behind the IOMMU of a node.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if that is off or there is none, [`Error::NoMemory`].
    pub fn iommu_domain(&self, node: Node) -> Result<IommuDomain, Error> {
        let kernel = self.inner();
        let dma = Rc::clone(&kernel.dma);
        let unit = dma.unit_of(node).filter(|_| dma.is_on());
        let domain = Domain::owned(&dma.base, unit.ok_or(Error::NotSupported)?)?;
        Ok(IommuDomain { dma, pci: Rc::downgrade(&kernel.pci), domain, functions: RefCell::default() })
    }
}

impl IommuDomain {
    /// Its number.
    pub fn id(&self) -> u16 {
        self.domain.id.0
    }

    /// Maps whole pages from `at` at an address of the caller's choice.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they are no whole pages, or meet addresses of interrupts or beyond the tables; [`Error::Busy`] if some
    /// of them are mapped; [`Error::NoMemory`].
    pub fn map_at(
        &self,
        cpu: &Cpu,
        iova: Iova,
        at: PhysAddr,
        length: u64,
        direction: Direction,
    ) -> Result<(), Error> {
        let _part = cpu.book(Part::Dma);
        self.domain.map_at(cpu, (iova, at), length, permissions(direction))
    }

    /// Maps `length` bytes from `at` where there is room.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is nothing to map, [`Error::NoMemory`].
    pub fn map(&self, cpu: &Cpu, at: PhysAddr, length: u64, direction: Direction) -> Result<Iova, Error> {
        if length == 0 {
            return Err(Error::Invalid);
        }
        let _part = cpu.book(Part::Dma);
        self.domain.map(cpu, at, length, permissions(direction), 48)
    }

    /// Unmaps what was mapped so; it is out of reach at once.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it was not.
    pub fn unmap(&self, cpu: &Cpu, iova: Iova, length: u64) -> Result<(), Error> {
        let _part = cpu.book(Part::Dma);
        self.domain.unmap(cpu, iova, length)
    }

    /// Lets a function's requests lead here.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is none, [`Error::Invalid`] if another IOMMU is in its way, [`Error::Busy`] if it, or one that
    /// shares a domain with it, is in another.
    pub fn attach(&self, cpu: &Cpu, at: FunctionAddress) -> Result<(), Error> {
        let _part = cpu.book(Part::Dma);
        let function = self.pci.upgrade().and_then(|pci| pci.function(at)).ok_or(Error::NoDevice)?;
        if self.functions.borrow().contains_key(&at) {
            return Err(Error::Busy);
        }
        let unit = self.dma.unit_of(function.node()).ok_or(Error::Invalid)?;
        if !Rc::ptr_eq(&unit, &self.domain.unit()) {
            return Err(Error::Invalid);
        }
        let member = function.member();
        let group = self.dma.join_domain(cpu, &self.domain, member)?;
        self.functions.borrow_mut().insert(at, (group, member));
        Ok(())
    }

    /// Takes a function out: it reaches nothing, until it is in another or has a driver.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not in this one.
    pub fn detach(&self, cpu: &Cpu, at: FunctionAddress) -> Result<(), Error> {
        let _part = cpu.book(Part::Dma);
        let (group, member) = self.functions.borrow_mut().remove(&at).ok_or(Error::Invalid)?;
        self.dma.leave(cpu, &group, member.requester);
        Ok(())
    }

    /// Takes all functions out and gives the tables back.
    pub fn close(self, cpu: &Cpu) {
        let _part = cpu.book(Part::Dma);
        for (group, member) in self.functions.take().into_values() {
            self.dma.leave(cpu, &group, member.requester);
        }
        self.domain.close();
    }
}
