//! Domains managed by their owner: a guest's memory at guest-physical addresses, or memory that a lender opens to a
//! borrower.

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
use crate::kernel::Inner;
use crate::pci::Pci;

/// A domain managed by its owner, who attaches and detaches functions. A function without a domain and without a
/// driver can access nothing.
pub struct IommuDomain {
    dma: Rc<Dma>,
    pci: Weak<Pci>,
    domain: Rc<Domain>,
    functions: RefCell<BTreeMap<FunctionAddress, (Rc<Group>, Member)>>,
}

/// Mappings beside those of drivers, by [`Kernel::iommu`](crate::Kernel::iommu).
pub struct Iommu<'a>(pub(crate) &'a Inner);

impl Iommu<'_> {
    /// Maps scattered pages to consecutive addresses of a function, beside the mappings of its driver (Linux:
    /// `dma_map_sg` with an IOMMU).
    ///
    /// # Errors
    /// [`Error::NotSupported`] where addresses are not translated, [`Error::NoDevice`], [`Error::NoMemory`].
    pub fn map_row(&self, cpu: &Cpu, at: FunctionAddress, blocks: &[(PhysAddr, u64)]) -> Result<Iova, Error> {
        let _part = cpu.book(Part::Dma);
        let pci = &self.0.pci;
        let function = pci.topology.function(at).ok_or(Error::NoDevice)?;
        pci.topology.dma_of(&function).map_row(cpu, blocks)
    }

    /// Unmaps such a range at once, without a lazy flush.
    pub fn unmap_row(&self, cpu: &Cpu, at: FunctionAddress, row: Iova, length: u64) {
        let _part = cpu.book(Part::Dma);
        let pci = &self.0.pci;
        if let Some(function) = pci.topology.function(at) {
            pci.topology.dma_of(&function).unmap_row(cpu, row, length);
        }
    }

    /// Creates an empty domain of a node's IOMMU.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if there is no IOMMU or it is off, [`Error::NoMemory`].
    pub fn domain(&self, node: Node) -> Result<IommuDomain, Error> {
        let dma = Rc::clone(&self.0.dma);
        let unit = dma.units.of(node).filter(|_| dma.is_on());
        let domain = Domain::owned(&dma.base, unit.ok_or(Error::NotSupported)?)?;
        Ok(IommuDomain { dma, pci: Rc::downgrade(&self.0.pci), domain, functions: RefCell::default() })
    }
}

impl IommuDomain {
    /// ID under which the IOMMU keeps its translations.
    pub fn id(&self) -> u16 {
        self.domain.id.0
    }

    /// Maps whole pages from `at` to an address chosen by the caller.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the range is not page-aligned, or overlaps the interrupt range or the end of the address
    /// space; [`Error::Busy`] if part of it is mapped; [`Error::NoMemory`].
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

    /// Maps `length` bytes from `at` to a free address.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `length` is zero, [`Error::NoMemory`].
    pub fn map(&self, cpu: &Cpu, at: PhysAddr, length: u64, direction: Direction) -> Result<Iova, Error> {
        if length == 0 {
            return Err(Error::Invalid);
        }
        let _part = cpu.book(Part::Dma);
        self.domain.map(cpu, at, length, permissions(direction), 48)
    }

    /// Unmaps a range at once, without a lazy flush.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not mapped.
    pub fn unmap(&self, cpu: &Cpu, iova: Iova, length: u64) -> Result<(), Error> {
        let _part = cpu.book(Part::Dma);
        self.domain.unmap(cpu, iova, length)
    }

    /// Attaches a function to this domain.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if it does not exist, [`Error::Invalid`] if it is behind another IOMMU, [`Error::Busy`] if
    /// it or its group is attached elsewhere.
    pub fn attach(&self, cpu: &Cpu, at: FunctionAddress) -> Result<(), Error> {
        let _part = cpu.book(Part::Dma);
        let pci = self.pci.upgrade().ok_or(Error::NoDevice)?;
        let function = pci.topology.function(at).ok_or(Error::NoDevice)?;
        if self.functions.borrow().contains_key(&at) {
            return Err(Error::Busy);
        }
        let unit = self.dma.units.of(function.node()).ok_or(Error::Invalid)?;
        if !Rc::ptr_eq(&unit, &self.domain.unit()) {
            return Err(Error::Invalid);
        }
        let member = pci.topology.member(&function);
        let group = self.dma.groups.join_domain(cpu, &self.domain, member)?;
        self.functions.borrow_mut().insert(at, (group, member));
        Ok(())
    }

    /// Detaches a function. It can access nothing until it is attached again or has a driver.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not attached here.
    pub fn detach(&self, cpu: &Cpu, at: FunctionAddress) -> Result<(), Error> {
        let _part = cpu.book(Part::Dma);
        let (group, member) = self.functions.borrow_mut().remove(&at).ok_or(Error::Invalid)?;
        self.dma.groups.leave(cpu, &group, member.requester);
        Ok(())
    }

    /// Detaches all functions and frees the tables.
    pub fn close(self, cpu: &Cpu) {
        let _part = cpu.book(Part::Dma);
        for (group, member) in self.functions.take().into_values() {
            self.dma.groups.leave(cpu, &group, member.requester);
        }
        self.domain.close();
    }
}
