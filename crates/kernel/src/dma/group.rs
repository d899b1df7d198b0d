//! Groups of functions that share a domain: those whose requests the IOMMU cannot tell apart, and those that reach each other below
//! a port that does not send their requests up (Linux: `iommu_group`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::Error;
use platform::cpu::Cpu;
use wire::pcie::Bdf;

use super::domain::Domain;
use super::unit::{Unit, pass_through};
use super::{Dma, DmaMode};
use crate::ground::formats::{ContextEntry, DomainId};

/// Where the requests of a group lead.
#[derive(Clone)]
enum Attached {
    /// To the addresses that they name.
    Passes(DomainId),
    /// Into the domain that the DMA API fills.
    Default(Rc<Domain>),
    /// Into a domain that somebody else fills.
    Other(Rc<Domain>),
}

/// Functions with one domain, of which at least one uses it.
pub(super) struct Group {
    unit: Rc<Unit>,
    leader: Bdf,
    attached: Attached,
    /// Requester IDs, and how many functions have each.
    members: RefCell<BTreeMap<Bdf, usize>>,
}

/// Who is asking to belong to a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    /// What its requests are known by.
    pub requester: Bdf,
    /// Who stands for all that share a domain with it.
    pub leader: Bdf,
}

impl Group {
    fn entry(&self) -> ContextEntry {
        match &self.attached {
            Attached::Passes(id) => pass_through(*id, self.unit.features),
            Attached::Default(domain) | Attached::Other(domain) => domain.entry(),
        }
    }

    /// The domain that the DMA API fills, if addresses are translated.
    ///
    /// # Errors
    /// [`Error::Busy`] if somebody else fills it.
    pub fn domain(&self) -> Result<Option<Rc<Domain>>, Error> {
        match &self.attached {
            Attached::Passes(_) => Ok(None),
            Attached::Default(domain) => Ok(Some(Rc::clone(domain))),
            Attached::Other(_) => Err(Error::Busy),
        }
    }

    /// The number of its domain.
    pub fn id(&self) -> DomainId {
        match &self.attached {
            Attached::Passes(id) => *id,
            Attached::Default(domain) | Attached::Other(domain) => domain.id,
        }
    }

    /// A function comes in: its requests lead where those of the others do.
    pub fn join(&self, cpu: &Cpu, requester: Bdf) -> Result<(), Error> {
        let is_known = self.members.borrow().contains_key(&requester);
        if !is_known {
            self.unit.attach(cpu, requester, self.entry())?;
        }
        *self.members.borrow_mut().entry(requester).or_default() += 1;
        Ok(())
    }

    /// A function leaves: when no other has its requester ID, its requests lead nowhere. Whether nobody is in it any more.
    fn leave(&self, cpu: &Cpu, requester: Bdf) -> bool {
        let (is_last, is_empty) = {
            let mut members = self.members.borrow_mut();
            let count = members.get_mut(&requester).expect("who leaves has joined");
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

impl Dma {
    /// Lets a function into its group, which uses the DMA API's domain if nobody is in it yet.
    pub(super) fn join_group(&self, cpu: &Cpu, unit: Rc<Unit>, member: Member) -> Result<Rc<Group>, Error> {
        let base = &self.base;
        self.join(cpu, unit, member, |unit| match base.params.mode {
            DmaMode::Off | DmaMode::PassThrough => Ok(Attached::Passes(DomainId(base.domains.take()?))),
            DmaMode::Strict | DmaMode::Lazy => Ok(Attached::Default(Domain::new(base, Rc::clone(unit))?)),
        })
    }

    /// Lets a function and its group into a domain that somebody else fills.
    ///
    /// # Errors
    /// [`Error::Busy`] if its group is in another one.
    pub(super) fn join_domain(
        &self,
        cpu: &Cpu,
        domain: &Rc<Domain>,
        member: Member,
    ) -> Result<Rc<Group>, Error> {
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
        let known = self.groups.borrow().get(&place).cloned();
        let group = match known {
            Some(group) => group,
            None => {
                let attached = attach(&unit)?;
                Rc::new(Group { unit, leader: member.leader, attached, members: RefCell::default() })
            }
        };
        self.groups.borrow_mut().insert(place, Rc::clone(&group));
        if let Err(error) = group.join(cpu, member.requester) {
            if group.members.borrow().is_empty() {
                self.end(&group);
            }
            return Err(error);
        }
        Ok(group)
    }

    /// A function leaves its group. The last one's domain goes with it.
    pub(super) fn leave(&self, cpu: &Cpu, group: &Group, requester: Bdf) {
        if group.leave(cpu, requester) {
            self.end(group);
        }
    }

    /// Nobody is in a group.
    fn end(&self, group: &Group) {
        self.groups.borrow_mut().remove(&(group.unit.index, group.leader));
        match &group.attached {
            Attached::Passes(id) => self.base.domains.give(id.0),
            Attached::Default(domain) => domain.close(),
            // It is somebody else's, who may have use for it.
            Attached::Other(_) => {}
        }
    }
}
