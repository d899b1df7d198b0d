//! Groups of functions that share an IOMMU domain (Linux: `iommu_group`): functions that the IOMMU cannot tell apart,
//! and functions that can reach each other below a port that does not forward their requests upstream.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::Error;
use platform::cpu::Cpu;
use wire::pcie::Bdf;

use super::base::{DmaBase, DmaMode};
use super::domain::Domain;
use super::unit::{Unit, pass_through};
use wire::vtd::{ContextEntry, DomainId};

/// What a group is attached to.
#[derive(Clone)]
enum Attached {
    /// Nothing: addresses pass untranslated.
    Passes(DomainId),
    /// The domain of the DMA API.
    Default(Rc<Domain>),
    /// A domain managed by somebody else.
    Other(Rc<Domain>),
}

/// Functions that share a domain; never empty.
pub(super) struct Group {
    unit: Rc<Unit>,
    leader: Bdf,
    attached: Attached,
    /// Requester IDs, with the number of functions that use each.
    members: RefCell<BTreeMap<Bdf, usize>>,
}

/// A function that joins a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    /// Its requester ID.
    pub requester: Bdf,
    /// Requester ID that identifies its group.
    pub leader: Bdf,
}

impl Group {
    fn entry(&self) -> ContextEntry {
        match &self.attached {
            Attached::Passes(id) => pass_through(*id, self.unit.features),
            Attached::Default(domain) | Attached::Other(domain) => domain.entry(),
        }
    }

    /// The DMA API's domain, if addresses are translated.
    ///
    /// # Errors
    /// [`Error::Busy`] if the group is attached to another domain.
    pub fn domain(&self) -> Result<Option<Rc<Domain>>, Error> {
        match &self.attached {
            Attached::Passes(_) => Ok(None),
            Attached::Default(domain) => Ok(Some(Rc::clone(domain))),
            Attached::Other(_) => Err(Error::Busy),
        }
    }

    /// ID under which the IOMMU keeps translations of the group's domain.
    pub fn id(&self) -> DomainId {
        match &self.attached {
            Attached::Passes(id) => *id,
            Attached::Default(domain) | Attached::Other(domain) => domain.id,
        }
    }

    /// Adds a function and attaches its requester ID to the group's domain.
    pub fn join(&self, cpu: &Cpu, requester: Bdf) -> Result<(), Error> {
        let is_known = self.members.borrow().contains_key(&requester);
        if !is_known {
            self.unit.attach(cpu, requester, self.entry())?;
        }
        *self.members.borrow_mut().entry(requester).or_default() += 1;
        Ok(())
    }

    /// Removes a function. Blocks its requester ID unless another function uses it. Returns whether the group is
    /// empty now.
    fn leave(&self, cpu: &Cpu, requester: Bdf) -> bool {
        let (is_last, is_empty) = {
            let mut members = self.members.borrow_mut();
            let count = members.get_mut(&requester).expect("a function leaves a group that it has joined");
            *count -= 1;
            let is_last = *count == 0;
            if is_last {
                members.remove(&requester);
            }
            (is_last, members.is_empty())
        };
        if let (Attached::Default(domain), true) = (&self.attached, is_empty) {
            domain.flush_all(cpu);
        }
        if is_last {
            self.unit.block(cpu, requester);
        }
        is_empty
    }
}

/// The groups of a host, created when their first function appears.
pub(super) struct Groups {
    base: Rc<DmaBase>,
    /// By IOMMU and by the requester ID that identifies the group.
    all: RefCell<BTreeMap<(usize, Bdf), Rc<Group>>>,
}

impl Groups {
    pub fn new(base: Rc<DmaBase>) -> Self {
        Self { base, all: RefCell::default() }
    }

    /// Adds a function to its group. A new group uses the DMA API's domain.
    pub fn join_group(&self, cpu: &Cpu, unit: Rc<Unit>, member: Member) -> Result<Rc<Group>, Error> {
        let base = &self.base;
        self.join(cpu, unit, member, |unit| match base.params.mode {
            DmaMode::Off | DmaMode::PassThrough => Ok(Attached::Passes(DomainId(base.domains.take()?))),
            DmaMode::Strict | DmaMode::Lazy => Ok(Attached::Default(Domain::new(base, Rc::clone(unit))?)),
        })
    }

    /// Attaches a function and its group to a domain managed by somebody else.
    ///
    /// # Errors
    /// [`Error::Busy`] if the group is attached to another domain.
    pub fn join_domain(&self, cpu: &Cpu, domain: &Rc<Domain>, member: Member) -> Result<Rc<Group>, Error> {
        let other = || Ok(Attached::Other(Rc::clone(domain)));
        let group = self.join(cpu, domain.unit(), member, |_| other())?;
        if group.id() == domain.id {
            return Ok(group);
        }
        self.leave(cpu, &group, member.requester);
        Err(Error::Busy)
    }

    fn join(
        &self,
        cpu: &Cpu,
        unit: Rc<Unit>,
        member: Member,
        attach: impl FnOnce(&Rc<Unit>) -> Result<Attached, Error>,
    ) -> Result<Rc<Group>, Error> {
        let place = (unit.index, member.leader);
        let known = self.all.borrow().get(&place).cloned();
        let group = match known {
            Some(group) => group,
            None => {
                let attached = attach(&unit)?;
                Rc::new(Group { unit, leader: member.leader, attached, members: RefCell::default() })
            }
        };
        self.all.borrow_mut().insert(place, Rc::clone(&group));
        if let Err(error) = group.join(cpu, member.requester) {
            if group.members.borrow().is_empty() {
                self.end(&group);
            }
            return Err(error);
        }
        Ok(group)
    }

    /// Removes a function from its group, and the domain with the last function.
    pub fn leave(&self, cpu: &Cpu, group: &Group, requester: Bdf) {
        if group.leave(cpu, requester) {
            self.end(group);
        }
    }

    /// Ends an empty group.
    fn end(&self, group: &Group) {
        self.all.borrow_mut().remove(&(group.unit.index, group.leader));
        match &group.attached {
            Attached::Passes(id) => self.base.domains.give(id.0),
            Attached::Default(domain) => domain.close(),
            // Its manager may still use it.
            Attached::Other(_) => {}
        }
    }
}
