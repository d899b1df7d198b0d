//! IOTLB: translations of pages of any size, tagged by domain.

use super::cache::TaggedCache;
use super::params::Geometry;
use engine::Rng;
use units::{HostPhysical, Iova, Time};
use wire::vtd::{DomainId, PageSize, Permissions, Scope};

/// Result of a walk: a page and its permissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Leaf {
    pub(crate) frame: HostPhysical,
    pub(crate) size: PageSize,
    pub(crate) permissions: Permissions,
    /// When the walk ended.
    pub(crate) known_from: Time,
}

impl Leaf {
    /// Host-physical address of `address`, which lies in this page.
    #[inline]
    pub(crate) fn resolve(&self, address: Iova) -> HostPhysical {
        HostPhysical::new(self.frame.get() | address.offset_in(self.size.get()))
    }
}

/// Tags: domain 63:48, page size 47:46, page number 45:0 (57-bit addresses have at most 45 bits of it).
#[inline]
fn tag(domain: DomainId, size: PageSize, address: Iova) -> u64 {
    (domain.0 as u64) << 48 | (size as u64) << 46 | address.get() >> size.shift()
}
fn domain_of(tag: u64) -> DomainId {
    DomainId((tag >> 48) as u16)
}
fn size_of(tag: u64) -> PageSize {
    PageSize::ALL[(tag >> 46 & 3) as usize]
}
fn base_of(tag: u64) -> Iova {
    Iova::new((tag & ((1 << 46) - 1)) << size_of(tag).shift())
}

#[derive(Debug, Clone)]
pub(crate) struct Iotlb {
    /// Frame with permissions in bits 1:0, and when the entry became valid.
    cache: TaggedCache<(u64, Time)>,
    /// Entries by page size, so that lookups skip absent sizes.
    held: [u32; 3],
}

impl Iotlb {
    pub(crate) fn new(geometry: Geometry, random: Rng) -> Self {
        Self { cache: TaggedCache::new(geometry, random), held: [0; 3] }
    }

    #[inline]
    pub(crate) fn lookup(&mut self, domain: DomainId, address: Iova) -> Option<Leaf> {
        for size in PageSize::ALL {
            if self.held[size as usize] != 0
                && let Some((word, known_from)) = self.cache.lookup(tag(domain, size, address))
            {
                let permissions = Permissions { read: word & 1 != 0, write: word & 2 != 0 };
                return Some(Leaf { frame: HostPhysical::new(word & !0xfff), size, permissions, known_from });
            }
        }
        None
    }

    pub(crate) fn insert(&mut self, domain: DomainId, address: Iova, leaf: Leaf) {
        let tag = tag(domain, leaf.size, address);
        let word = leaf.frame.get() | leaf.permissions.read as u64 | (leaf.permissions.write as u64) << 1;
        let had = self.cache.peek(tag).is_some();
        let displaced = self.cache.insert(tag, address.get() >> leaf.size.shift(), (word, leaf.known_from));
        if let Some(gone) = displaced {
            self.held[size_of(gone) as usize] -= 1;
        }
        if !had && self.cache.peek(tag).is_some() {
            self.held[leaf.size as usize] += 1;
        }
    }

    /// Invalidates the entries in `scope`. Returns how many there were.
    pub(crate) fn invalidate(&mut self, scope: Scope) -> usize {
        if let Scope::Pages { domain, address, mask } = scope
            && mask == 0
        {
            // Fast path for strict unmapping of single pages: no scan.
            let mut removed = 0;
            for size in PageSize::ALL {
                if self.held[size as usize] != 0 && self.cache.remove(tag(domain, size, address)) {
                    self.held[size as usize] -= 1;
                    removed += 1;
                }
            }
            return removed;
        }
        let held = &mut self.held;
        self.cache.remove_where(|tag, _| {
            let size = size_of(tag);
            let stale = scope.covers(domain_of(tag), base_of(tag), size.get());
            held[size as usize] -= stale as u32;
            stale
        })
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        assert_eq!(self.held.iter().sum::<u32>() as usize, self.cache.len());
        self.cache.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iommu::params::IotlbReplacement;
    use engine::Seed;

    fn leaf(frame: u64, size: PageSize) -> Leaf {
        Leaf { frame: HostPhysical::new(frame), size, permissions: Permissions::READ, known_from: Time::ZERO }
    }

    #[test]
    fn sizes_and_domains_share_the_entries() {
        let mut tlb = Iotlb::new(
            Geometry::fully_associative(4, IotlbReplacement::Lru),
            Seed::new(0).component("iotlb"),
        );
        let (a, b) = (DomainId(1), DomainId(2));
        tlb.insert(a, Iova::new(0x20_0000), leaf(0x4000_0000, PageSize::Size2MiB));
        tlb.insert(b, Iova::new(0x20_1000), leaf(0x5000, PageSize::Size4KiB));
        tlb.insert(b, Iova::new(0x20_1000), leaf(0x6000, PageSize::Size4KiB));
        assert_eq!(tlb.len(), 2);
        let hit = tlb.lookup(a, Iova::new(0x20_1234)).unwrap();
        assert_eq!(hit.resolve(Iova::new(0x20_1234)), HostPhysical::new(0x4000_1234));
        assert_eq!(tlb.lookup(b, Iova::new(0x20_1000)).unwrap().frame, HostPhysical::new(0x6000));
        assert_eq!(tlb.lookup(b, Iova::new(0x20_0000)), None);
        for n in 0..4 {
            tlb.insert(b, Iova::new(n << 12), leaf(n << 12, PageSize::Size4KiB));
        }
        assert_eq!(tlb.len(), 4);
        assert_eq!(tlb.lookup(a, Iova::new(0x20_0000)), None);
    }

    #[test]
    fn a_page_invalidation_takes_the_superpage_around_it() {
        let mut tlb = Iotlb::new(
            Geometry::fully_associative(8, IotlbReplacement::Lru),
            Seed::new(0).component("iotlb"),
        );
        let d = DomainId(1);
        for mask in [0, 3] {
            tlb.insert(d, Iova::new(0x20_0000), leaf(0, PageSize::Size2MiB));
            tlb.insert(d, Iova::new(0x40_0000), leaf(0, PageSize::Size2MiB));
            let scope = Scope::Pages { domain: d, address: Iova::new(0x21_0000), mask };
            assert_eq!(tlb.invalidate(scope), 1);
            assert_eq!(tlb.len(), 1);
        }
    }
}
