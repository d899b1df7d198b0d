//! Features of a controller (sections 5.13 and 5.21).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use wire::nvme::{ALL_NAMESPACES, Feature, Status, feature};

use super::drive::Drive;

/// When completions of a vector share an interrupt (section 5.21.1.8).
#[derive(Clone, Copy)]
pub(super) struct Coalescing {
    /// Completions that may wait.
    pub threshold: u8,
    /// How long the first may wait, in units of 100 µs.
    pub time: u8,
}

/// Values of features that differ from their defaults.
pub(super) struct Features {
    drive: Rc<Drive>,
    values: RefCell<BTreeMap<u8, u32>>,
    /// Vectors with coalescing disabled.
    uncoalesced: RefCell<BTreeSet<u16>>,
}

impl Features {
    pub fn new(drive: Rc<Drive>) -> Self {
        Self { drive, values: RefCell::default(), uncoalesced: RefCell::default() }
    }

    /// A feature's value, or its default.
    pub fn value(&self, id: u8) -> u32 {
        self.values.borrow().get(&id).copied().unwrap_or_else(|| self.default_value(id))
    }

    /// How interrupts of an I/O queue's vector are coalesced, if they are.
    pub fn coalescing(&self, vector: u16) -> Option<Coalescing> {
        let [threshold, time, ..] = self.value(feature::INTERRUPT_COALESCING).to_le_bytes();
        let coalesced = time > 0 && !self.uncoalesced.borrow().contains(&vector);
        coalesced.then_some(Coalescing { threshold, time })
    }

    /// A write is complete as soon as it is in the write buffer.
    pub fn writes_are_buffered(&self) -> bool {
        let allowed =
            !self.drive.params.volatile_buffer || self.value(feature::VOLATILE_WRITE_CACHE) & 1 == 1;
        allowed && self.drive.store.borrow().has_buffer()
    }

    /// Executes Set Features. The number of queues is settled once there are I/O queues.
    pub fn set(
        &self,
        namespace: u32,
        id: u8,
        save: bool,
        value: u32,
        has_io_queues: bool,
    ) -> Result<u32, Status> {
        if save {
            return Err(Status::NOT_SAVEABLE.dnr());
        }
        if namespace != 0 && namespace != ALL_NAMESPACES && self.supports(id) {
            return Err(Status::NOT_NAMESPACE_SPECIFIC.dnr());
        }
        match Feature::from_bits(id, value) {
            Some(Feature::NumberOfQueues { submission, completion }) => {
                if submission == u16::MAX || completion == u16::MAX {
                    return Err(Status::INVALID_FIELD.dnr());
                }
                if has_io_queues {
                    return Err(Status::SEQUENCE_ERROR.dnr());
                }
                return Ok(self.default_value(id));
            }
            Some(Feature::VolatileWriteCache { .. }) if !self.drive.has_volatile_cache() => {
                return Err(Status::INVALID_FIELD.dnr());
            }
            Some(Feature::PowerManagement { state, .. }) if state > 0 => {
                return Err(Status::INVALID_FIELD.dnr());
            }
            Some(Feature::InterruptVector { vector, no_coalescing }) => {
                self.check_vector(vector)?;
                if no_coalescing {
                    self.uncoalesced.borrow_mut().insert(vector);
                } else {
                    self.uncoalesced.borrow_mut().remove(&vector);
                }
                return Ok(0);
            }
            None if !self.supports(id) => return Err(Status::INVALID_FIELD.dnr()),
            _ => {}
        }
        self.values.borrow_mut().insert(id, value);
        Ok(0)
    }

    /// Executes Get Features.
    pub fn get(&self, id: u8, select: u8, value: u32) -> Result<u32, Status> {
        /// Changeable, not saveable, not namespace-specific.
        const CAPABILITIES: u32 = 1 << 2;
        if !self.supports(id) {
            return Err(Status::INVALID_FIELD.dnr());
        }
        match select {
            0 if id == feature::INTERRUPT_VECTOR => {
                let vector = value as u16;
                self.check_vector(vector)?;
                let no_coalescing = self.uncoalesced.borrow().contains(&vector);
                Ok(Feature::InterruptVector { vector, no_coalescing }.to_bits())
            }
            0 => Ok(self.value(id)),
            1 | 2 => Ok(self.default_value(id)),
            3 => Ok(CAPABILITIES),
            _ => Err(Status::INVALID_FIELD.dnr()),
        }
    }

    /// Restores the defaults.
    pub fn reset(&self) {
        self.values.borrow_mut().clear();
        self.uncoalesced.borrow_mut().clear();
    }

    fn check_vector(&self, vector: u16) -> Result<(), Status> {
        let is_known = vector < self.drive.params.vectors.max(1);
        if is_known { Ok(()) } else { Err(Status::INVALID_FIELD.dnr()) }
    }

    fn supports(&self, id: u8) -> bool {
        matches!(id, feature::TEMPERATURE_THRESHOLD | feature::ERROR_RECOVERY)
            || Feature::from_bits(id, 0).is_some()
                && (id != feature::VOLATILE_WRITE_CACHE || self.drive.has_volatile_cache())
    }

    fn default_value(&self, id: u8) -> u32 {
        match id {
            feature::ARBITRATION => Feature::Arbitration { burst: 3, low: 0, medium: 0, high: 0 }.to_bits(),
            // 70 °C, in kelvin.
            feature::TEMPERATURE_THRESHOLD => 343,
            feature::VOLATILE_WRITE_CACHE => u32::from(self.drive.has_volatile_cache()),
            feature::NUMBER_OF_QUEUES => {
                let last = self.drive.params.io_queues.saturating_sub(1);
                Feature::NumberOfQueues { submission: last, completion: last }.to_bits()
            }
            _ => 0,
        }
    }
}
