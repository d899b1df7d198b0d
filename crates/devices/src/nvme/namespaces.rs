//! Namespaces of a drive (sections 5.19, 5.20 and 5.23).

use wire::nvme::{ALL_NAMESPACES, Status};

use super::params::NvmeParams;
use super::store::Store;

/// Supported LBA formats, as log2 of the block size.
pub(super) const FORMATS: [u8; 2] = [9, 12];

/// A namespace: a range of the media.
#[derive(Clone)]
pub(super) struct Namespace {
    pub id: u32,
    /// Start offset on the media in bytes.
    pub base: u64,
    pub bytes: u64,
    /// Log2 of the block size in bytes.
    pub shift: u8,
    /// Bitmap of attached controllers.
    attached: u16,
}

impl Namespace {
    pub fn blocks(&self) -> u64 {
        self.bytes >> self.shift
    }

    pub fn is_attached(&self, controller: u16) -> bool {
        self.attached >> controller & 1 == 1
    }
}

/// The namespaces of a drive, in the order of their identifiers. There are never more than the drive came with.
pub(super) struct Namespaces {
    list: Vec<Namespace>,
    most: u32,
    /// Bytes of all namespaces together.
    capacity: u64,
}

impl Namespaces {
    pub fn new(params: &NvmeParams) -> Self {
        let shift = params.block_shift;
        let mut base = 0;
        let mut list = Vec::new();
        for (id, bytes) in (1..).zip(&params.namespaces) {
            let bytes = bytes.get() >> shift << shift;
            list.push(Namespace { id, base, bytes, shift, attached: u16::MAX });
            base += bytes;
        }
        let capacity = params.namespaces.iter().map(|bytes| bytes.get()).sum();
        Self { most: list.len() as u32, list, capacity }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.list.iter()
    }

    pub fn get(&self, id: u32) -> Option<&Namespace> {
        self.iter().find(|ns| ns.id == id)
    }

    /// Whether there can be a namespace with this identifier.
    pub fn is_valid(&self, id: u32) -> bool {
        (1..=self.most).contains(&id)
    }

    /// Maximum number of namespaces.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Bytes of all namespaces that there can be.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Changes the LBA format of a namespace or of all, whose data is lost.
    pub fn format(&mut self, id: u32, format: u8, store: &mut Store) -> Result<(), Status> {
        let &shift = FORMATS.get(usize::from(format)).ok_or(Status::INVALID_FORMAT.dnr())?;
        self.check_meant(id)?;
        for namespace in self.list.iter_mut().filter(|ns| is_meant(ns, id)) {
            namespace.shift = shift;
            store.discard(namespace.base, namespace.bytes).map_err(|_| Status::WRITE_FAULT)?;
        }
        Ok(())
    }

    /// Creates a namespace of `blocks` from the space of deleted ones, attached to no controller. Returns its
    /// identifier.
    pub fn create(&mut self, blocks: u64, format: u8) -> Result<u32, Status> {
        let &shift = FORMATS.get(usize::from(format)).ok_or(Status::INVALID_FORMAT.dnr())?;
        let bytes = blocks.checked_mul(1 << shift).ok_or(Status::INSUFFICIENT_CAPACITY.dnr())?;
        let unused = |&id: &u32| self.get(id).is_none();
        let id = (1..=self.most).find(unused).ok_or(Status::NAMESPACE_ID_UNAVAILABLE.dnr())?;
        let mut taken: Vec<_> = self.iter().map(|ns| (ns.base, ns.base + ns.bytes)).collect();
        taken.sort_unstable();
        let mut base = 0_u64;
        for (from, to) in taken.into_iter().chain([(self.capacity, self.capacity)]) {
            if base.saturating_add(bytes) <= from {
                break;
            }
            base = to;
        }
        if base.saturating_add(bytes) > self.capacity {
            return Err(Status::INSUFFICIENT_CAPACITY.dnr());
        }
        self.list.push(Namespace { id, base, bytes, shift, attached: 0 });
        self.list.sort_by_key(|ns| ns.id);
        Ok(id)
    }

    /// Deletes a namespace or all.
    pub fn delete(&mut self, id: u32, store: &mut Store) -> Result<(), Status> {
        self.check_meant(id)?;
        for namespace in self.list.iter().filter(|ns| is_meant(ns, id)) {
            store.discard(namespace.base, namespace.bytes).map_err(|_| Status::WRITE_FAULT)?;
        }
        self.list.retain(|ns| !is_meant(ns, id));
        Ok(())
    }

    /// Attaches a namespace to controllers (`select` 0) or detaches it (1).
    pub fn attach(&mut self, id: u32, controllers: &[u16], select: u8) -> Result<(), Status> {
        let mask = controllers.iter().fold(0, |mask, number| mask | 1 << number);
        let known = self.list.iter_mut().find(|ns| ns.id == id);
        let namespace = known.ok_or(Status::INVALID_NAMESPACE.dnr())?;
        match select {
            0 if namespace.attached & mask != 0 => return Err(Status::ALREADY_ATTACHED.dnr()),
            0 => namespace.attached |= mask,
            1 if namespace.attached & mask != mask => return Err(Status::NOT_ATTACHED.dnr()),
            1 => namespace.attached &= !mask,
            _ => return Err(Status::INVALID_FIELD.dnr()),
        }
        Ok(())
    }

    fn check_meant(&self, id: u32) -> Result<(), Status> {
        let any = self.iter().any(|ns| is_meant(ns, id));
        if any { Ok(()) } else { Err(Status::INVALID_NAMESPACE.dnr()) }
    }
}

fn is_meant(namespace: &Namespace, id: u32) -> bool {
    id == ALL_NAMESPACES || namespace.id == id
}
