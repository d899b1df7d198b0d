//! The guests' memory, as functions of a host access it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::rc::Rc;

use hardware::root::OutsideMemory;
use units::{HostPhysical, Iova};
use vfio_user::ClientMemory;
use wire::pcie::Bdf;
use wire::vtd::Access;

use crate::iommu::GuestIommu;
use crate::recording::{MemoryRecorder, of_requester};

/// A BAR, as a guest and as its host have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestBar {
    /// The guest's address.
    pub guest: u64,
    /// The host's address.
    pub host: u64,
    /// Bytes.
    pub length: u64,
}

/// A guest's IOMMU.
struct Translation {
    iommu: Rc<GuestIommu>,
    /// The guest's IDs of functions.
    ids: BTreeMap<u16, Bdf>,
}

/// What each function of a host may access.
#[derive(Default)]
pub struct LiveMemory {
    maps: RefCell<BTreeMap<u16, ClientMemory>>,
    /// The guest's BARs, by function and number: functions reach each other's as by VFIO, which maps them as memory.
    bars: RefCell<BTreeMap<(u16, u8), GuestBar>>,
    /// The guest's IOMMU, if it has one.
    translation: RefCell<Option<Translation>>,
    /// Keeps what functions read and write.
    recorder: RefCell<Option<MemoryRecorder>>,
}

impl LiveMemory {
    /// Changes what a function may access.
    pub fn of<R>(&self, function: Bdf, change: impl FnOnce(&mut ClientMemory) -> R) -> R {
        change(self.maps.borrow_mut().entry(function.bits()).or_default())
    }

    /// A function accesses nothing any more.
    pub fn forget(&self, function: Bdf) {
        self.maps.borrow_mut().remove(&function.bits());
    }

    /// From now on, what functions read and write is kept.
    pub fn record(&self, recorder: MemoryRecorder) {
        *self.recorder.borrow_mut() = Some(recorder);
    }

    /// What functions access, the guest's IOMMU translates, by the guest's IDs of them.
    pub fn translate_by(&self, iommu: Rc<GuestIommu>, ids: BTreeMap<u16, Bdf>) {
        *self.translation.borrow_mut() = Some(Translation { iommu, ids });
    }

    /// The guest's address of what a function accesses. What is refused is counted if it is to be.
    fn translated(&self, requester: Bdf, address: Iova, access: Access, counts: bool) -> Option<u64> {
        let translation = self.translation.borrow();
        let Some(Translation { iommu, ids }) = &*translation else { return Some(address.get()) };
        let own = *of_requester(ids, requester)?;
        let translated = iommu.translate(own, address.get(), access);
        let refused = |why| {
            if counts {
                iommu.refuse(own, address.get(), access, why)
            }
        };
        translated.inspect_err(|&why| refused(why)).ok()
    }

    /// Says where the guest has a function's BAR, if it is on.
    pub fn place_bar(&self, function: Bdf, number: u8, bar: Option<GuestBar>) {
        let mut bars = self.bars.borrow_mut();
        match bar {
            Some(bar) => drop(bars.insert((function.bits(), number), bar)),
            None => drop(bars.remove(&(function.bits(), number))),
        }
    }

    fn with<R>(&self, requester: Bdf, access: impl FnOnce(&ClientMemory) -> R) -> Option<R> {
        of_requester(&self.maps.borrow(), requester).map(access)
    }
}

/// Whether a client and its devices see what the other one writes to memory: not if it is no file, and not if the client has mapped
/// the file for itself alone. Where the client's mappings cannot be seen, a file is taken for shared.
pub fn is_shared(memory: &ClientMemory, client: BorrowedFd<'_>) -> bool {
    let Some(file) = memory.largest_file() else { return memory.is_empty() };
    let process = rustix::net::sockopt::socket_peercred(client).ok();
    let path = process.map(|process| format!("/proc/{}/maps", process.pid.as_raw_nonzero()));
    let mappings = path.and_then(|path| fs::read_to_string(path).ok());
    let inode = file.metadata().map(|metadata| metadata.ino()).ok();
    mappings.zip(inode).is_none_or(|(mappings, inode)| !maps_privately(&mappings, inode))
}

/// Whether a process has mapped a file, and for itself alone (`/proc/PID/maps`: range, rights, offset, device, inode).
fn maps_privately(mappings: &str, inode: u64) -> bool {
    let inode = inode.to_string();
    let words = mappings.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let mut rights = words.filter(|words| words.get(4) == Some(&&*inode)).map(|words| words[1].to_owned());
    rights.next().is_some_and(|first| first.ends_with('p') && rights.all(|other| other.ends_with('p')))
}

impl OutsideMemory for LiveMemory {
    fn place(&self, requester: Bdf, address: Iova, length: u32, writes: bool) -> Option<u64> {
        let at = self.translated(requester, address, access_of(writes), false)?;
        self.with(requester, |memory| {
            let is_allowed = memory.allows(at, length.max(1) as usize, writes);
            memory.place(at).filter(|_| is_allowed)
        })?
    }

    fn read(&self, requester: Bdf, address: Iova, into: &mut [u8]) {
        // Like a bus on which nothing answers, if the range was unmapped or its file cut short meanwhile.
        let at = self.translated(requester, address, Access::Read, false);
        let done = at.and_then(|at| self.with(requester, |memory| memory.read(at, into)));
        if done != Some(true) {
            into.fill(0xff);
        }
        if let Some(recorder) = &*self.recorder.borrow() {
            recorder.fetched(requester, address.get(), into);
        }
    }

    fn write(&self, requester: Bdf, address: Iova, from: &[u8]) {
        let at = self.translated(requester, address, Access::Write, false);
        at.and_then(|at| self.with(requester, |memory| memory.write(at, from)));
        if let Some(recorder) = &*self.recorder.borrow() {
            recorder.stored(requester, address.get(), from.len());
        }
    }

    fn device(&self, requester: Bdf, address: Iova, length: u32, writes: bool) -> Option<HostPhysical> {
        self.with(requester, |_| ())?;
        let at = self.translated(requester, address, access_of(writes), true)?;
        let end = at.checked_add(length.max(1).into())?;
        let bars = self.bars.borrow();
        let holds = |bar: &&GuestBar| bar.guest <= at && end <= bar.guest.saturating_add(bar.length);
        bars.values().find(holds).map(|bar| HostPhysical::new(bar.host + (at - bar.guest)))
    }
}

const fn access_of(writes: bool) -> Access {
    if writes { Access::Write } else { Access::Read }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_reach_the_bars_of_others_where_the_guest_has_them() {
        let memory = LiveMemory::default();
        let (drive, adapter) = (Bdf::new(2, 0, 0), Bdf::new(3, 0, 0));
        let bar = GuestBar { guest: 0x8000, host: 0x9_0000, length: 0x1000 };
        memory.place_bar(drive, 0, Some(bar));
        let reaches =
            |who, at, length| memory.device(who, Iova::new(at), length, false).map(HostPhysical::get);
        assert_eq!(reaches(adapter, 0x8010, 4), None, "who has no client reaches nothing");
        memory.of(adapter, |_| ());
        assert_eq!(reaches(adapter, 0x8010, 4), Some(0x9_0010));
        assert_eq!(reaches(Bdf::new(3, 5, 0), 0x8ffc, 4), Some(0x9_0ffc), "a requester behind it");
        assert_eq!([reaches(adapter, 0x8ffe, 4), reaches(adapter, 0x7fff, 1)], [None, None]);
        memory.place_bar(drive, 0, None);
        assert_eq!(reaches(adapter, 0x8010, 4), None);
    }

    #[test]
    fn a_file_is_private_if_no_mapping_shares_it() {
        let line = |rights: &str, inode| {
            format!("7f00-7f10 {rights} 00000000 00:01 {inode}  /memfd:memory0 (deleted)\n")
        };
        assert!(maps_privately(&(line("rw-s", 8) + &line("rw-p", 7)), 7));
        assert!(!maps_privately(&(line("rw-s", 7) + &line("rw-p", 7)), 7));
        assert!(!maps_privately(&line("rw-p", 8), 7), "it has not mapped it yet");
        assert!(!maps_privately("7f00-7f10 rw-p\nnonsense", 7));
    }

    #[test]
    fn a_guests_iommu_has_to_know_a_function() {
        let memory = LiveMemory::default();
        let (drive, adapter) = (Bdf::new(2, 0, 0), Bdf::new(3, 0, 0));
        memory.place_bar(drive, 0, Some(GuestBar { guest: 0x8000, host: 0x9_0000, length: 0x1000 }));
        for own in [drive, adapter] {
            memory.of(own, |_| ());
        }
        memory.translate_by(Rc::default(), [(adapter.bits(), Bdf::new(1, 0, 0))].into());
        let reaches = |who| memory.device(who, Iova::new(0x8010), 4, true).is_some();
        assert_eq!([reaches(adapter), reaches(Bdf::new(3, 5, 0)), reaches(drive)], [true, true, false]);
    }
}
