//! Guest-physical memory.
//!
//! Guest memory consists of 2 MiB pages of the host, wherever the host had room. Real tables in host memory map them,
//! in the format of VT-d's second level, which equals EPT in all bits used here. Accesses of a vCPU follow its TLB
//! and these tables.

mod tlb;

use std::cell::{Cell, Ref, RefCell};
use std::rc::{Rc, Weak};

use kernel::{Ground, Kernel};
use platform::Error;
use platform::cpu::{Cpu, CpuId, Node};
use platform::memory::{PAGE, Pages, PhysAddr, Policy};
use units::{Bytes, HostPhysical, Iova, Time};
use wire::vtd::tables::{FrameAllocator, PageTable};
use wire::vtd::{Features, PageSize, Permissions};

use tlb::Tlb;

/// Guest memory below 4 GiB; the rest starts at 4 GiB to leave room for BARs.
const LOW: u64 = 2 << 30;
const HIGH: u64 = 4 << 30;
/// Bytes of a page.
pub const LARGE: u64 = 2 << 20;
/// Allocation order of such a page.
const ORDER: u8 = 9;
/// Address bits of a table entry.
const FRAME: u64 = 0x000f_ffff_ffff_f000;

/// Memory of a guest's node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestNode {
    /// Size, a multiple of 2 MiB.
    pub memory: Bytes,
    /// Host node that it comes from at first.
    pub host: Node,
}

/// A contiguous range of guest and host memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Guest-physical address.
    pub guest: PhysAddr,
    /// Host-physical address.
    pub host: PhysAddr,
    /// Bytes.
    pub length: u64,
}

/// A 2 MiB page of guest memory.
struct Page {
    host: Pages,
    /// Pins, by devices of the guest and by requests of host devices.
    pins: u32,
    requests: u32,
    /// Accesses wait until then, while the page is being moved.
    away_until: Time,
}

/// Pages of a host that a guest sees as its own memory, on one node or several.
pub struct GuestMemory {
    host: Weak<Kernel>,
    ground: Rc<dyn Ground>,
    /// Bytes of each node, in order of addresses.
    nodes: Vec<u64>,
    /// Pages by guest-physical address, without the gap between low and high memory.
    pages: RefCell<Vec<Page>>,
    table: PageTable,
    frames: RefCell<Vec<Pages>>,
    /// TLB of each vCPU.
    tlbs: Vec<Tlb>,
    /// Limit of pinned bytes (Linux: `RLIMIT_MEMLOCK`).
    pin_limit: u64,
    pinned: Cell<u64>,
    moved: Cell<u64>,
    violations: Cell<u64>,
}

/// Frames allocated in advance.
struct Taken(Vec<HostPhysical>);

impl FrameAllocator for Taken {
    fn allocate_frame(&mut self) -> Option<HostPhysical> {
        self.0.pop()
    }
}

/// Index of the page at a guest address, if memory can be there.
const fn number_of(at: PhysAddr) -> Option<usize> {
    match at.0 {
        at if at < LOW => Some((at / LARGE) as usize),
        at if at >= HIGH => Some(((at - HIGH + LOW) / LARGE) as usize),
        _ => None,
    }
}

/// Guest address of a page.
const fn address_of(number: usize) -> PhysAddr {
    let at = number as u64 * LARGE;
    PhysAddr(if at < LOW { at } else { at - LOW + HIGH })
}

impl GuestMemory {
    /// Allocates host memory for a guest with so many `cores`, and builds the tables. At most `pin_limit` bytes can
    /// be pinned.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`Error::Invalid`] if a node's memory is not a multiple of 2 MiB, or there is none.
    pub fn new(
        host: &Rc<Kernel>,
        cpu: &Cpu,
        nodes: &[GuestNode],
        cores: usize,
        pin_limit: Option<Bytes>,
    ) -> Result<Self, Error> {
        if nodes.is_empty() || nodes.iter().any(|n| n.memory.get() == 0 || n.memory.get() % LARGE != 0) {
            return Err(Error::Invalid);
        }
        let (ground, face) = (host.ground(), host.face());
        let mut taken: Vec<Pages> = Vec::new();
        let take = |taken: &mut Vec<Pages>, order, node| {
            taken.push(face.alloc_pages(cpu, order, Policy::Bind(node))?);
            Ok(())
        };
        let pages = nodes
            .iter()
            .flat_map(|node| std::iter::repeat_n((ORDER, node.host), (node.memory.get() / LARGE) as usize));
        let pages: Vec<_> = pages.collect();
        // A table for each GiB, and two levels above.
        let tables = pages.len().div_ceil(512) + 6;
        let frames = std::iter::repeat_n((0, nodes[0].host), tables);
        let all = pages.iter().copied().chain(frames);
        let got: Result<(), Error> =
            all.into_iter().try_for_each(|(order, node)| take(&mut taken, order, node));
        if let Err(error) = got {
            taken.into_iter().for_each(|pages| face.free_pages(cpu, pages));
            return Err(error);
        }
        let frames = taken.split_off(pages.len());
        let mut free = Taken(frames.iter().map(|page| HostPhysical::new(page.start.0)).collect());
        let features = Features { pages_1gib: false, ..Features::ALL };
        let mut table = None;
        ground.edit_tables(&mut |memory| {
            table = PageTable::new(memory, &mut free, 4, features).ok();
        });
        let table = table.ok_or(Error::NoMemory)?;
        for (n, page) in taken.iter().enumerate() {
            enter(&*ground, &table, &mut free, address_of(n), page.start)?;
        }
        let pages = taken.into_iter().map(|host| Page { host, pins: 0, requests: 0, away_until: Time::ZERO });
        Ok(Self {
            host: Rc::downgrade(host),
            ground,
            nodes: nodes.iter().map(|node| node.memory.get()).collect(),
            pages: RefCell::new(pages.collect()),
            table,
            frames: RefCell::new(frames),
            tlbs: (0..cores).map(|_| Tlb::new()).collect(),
            pin_limit: pin_limit.map_or(u64::MAX, Bytes::get),
            pinned: Cell::new(0),
            moved: Cell::new(0),
            violations: Cell::new(0),
        })
    }

    /// Address ranges of each node: start and bytes.
    pub fn ranges(&self) -> Vec<Vec<(PhysAddr, u64)>> {
        let mut begin = 0;
        let range = |&bytes: &u64| {
            let (from, to) = (begin, begin + bytes);
            begin = to;
            let low = (from < LOW).then(|| (PhysAddr(from), to.min(LOW) - from));
            let high = (to > LOW).then(|| {
                let from = from.max(LOW);
                (PhysAddr(from - LOW + HIGH), to - from)
            });
            low.into_iter().chain(high).collect()
        };
        self.nodes.iter().map(range).collect()
    }

    /// Size of the memory on all nodes.
    pub fn size(&self) -> Bytes {
        Bytes::new(self.nodes.iter().sum())
    }

    fn page(&self, at: PhysAddr) -> Option<Ref<'_, Page>> {
        let number = number_of(at)?;
        Ref::filter_map(self.pages.borrow(), |pages| pages.get(number)).ok()
    }

    /// Host address of a guest address, and the contiguous bytes from there; `None` if it is not memory.
    pub fn place(&self, at: PhysAddr) -> Option<(PhysAddr, u64)> {
        let offset = at.offset_in(LARGE);
        self.page(at).map(|page| (page.host.start + offset, LARGE - offset))
    }

    /// Whether all of a range is memory.
    pub fn is_memory(&self, at: PhysAddr, length: u64) -> bool {
        let mut done = 0;
        while done < length {
            let Some((_, room)) = self.place(at + done) else { return false };
            done += room;
        }
        true
    }

    /// Host node of a guest address.
    pub fn node_of(&self, at: PhysAddr) -> Option<Node> {
        let (place, _) = self.place(at)?;
        self.host.upgrade()?.face().node_of_address(place)
    }

    /// Translates an address for a vCPU at time `now` on the host's core `own`. Returns when the translation is
    /// known, the host address and the contiguous bytes from there; no address if it is not mapped.
    pub fn translate(
        &self,
        core: usize,
        own: CpuId,
        now: Time,
        at: PhysAddr,
    ) -> (Time, Option<(PhysAddr, u64)>) {
        let (page, offset) = (at.0 / LARGE, at.offset_in(LARGE));
        let tlb = &self.tlbs[core];
        if let Some(frame) = tlb.find(page) {
            return (now, Some((frame + offset, LARGE - offset)));
        }
        let (mut now, frame) = self.walk(own, now, at);
        let Some(frame) = frame else { return (now, None) };
        // The page is being moved: the vCPU exits, and waits until the move is complete.
        let away_until = self.page(at).map_or(Time::ZERO, |page| page.away_until);
        if away_until > now {
            self.violations.set(self.violations.get() + 1);
            now = away_until;
        }
        tlb.fill(page, frame);
        (now, Some((frame + offset, LARGE - offset)))
    }

    /// Walks the tables after a TLB miss. Returns when the entries have been read, and the frame.
    fn walk(&self, core: CpuId, mut now: Time, at: PhysAddr) -> (Time, Option<PhysAddr>) {
        let mut table = PhysAddr(self.table.root().get());
        for level in (2..=self.table.levels()).rev() {
            let index = at.0 >> (12 + 9 * (u32::from(level) - 1)) & 0x1ff;
            let mut entry = [0; 8];
            now = self.ground.load(core, now, table + index * 8, &mut entry);
            let entry = u64::from_le_bytes(entry);
            if entry & 3 == 0 {
                return (now, None);
            }
            table = PhysAddr(entry & FRAME);
        }
        (now, Some(table))
    }

    /// Pins a range for access by devices. Returns its host addresses.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the range is not all memory or not aligned to 2 MiB; [`Error::NoMemory`] if the pin
    /// limit is exceeded.
    pub fn pin(&self, at: PhysAddr, length: u64) -> Result<Vec<Block>, Error> {
        let numbers = self.whole_pages(at, length)?;
        let mut pages = self.pages.borrow_mut();
        let fresh = numbers.iter().filter(|&&n| pages[n].pins == 0).count() as u64 * LARGE;
        if self.pinned.get() + fresh > self.pin_limit {
            return Err(Error::NoMemory);
        }
        self.pinned.set(self.pinned.get() + fresh);
        let blocks = numbers.into_iter().map(|n| {
            pages[n].pins += 1;
            Block { guest: address_of(n), host: pages[n].host.start, length: LARGE }
        });
        Ok(blocks.collect())
    }

    /// Unpins a range from [`pin`](Self::pin).
    pub fn unpin(&self, at: PhysAddr, length: u64) {
        let Ok(numbers) = self.whole_pages(at, length) else { return };
        let mut pages = self.pages.borrow_mut();
        for n in numbers {
            pages[n].pins = pages[n].pins.saturating_sub(1);
            if pages[n].pins == 0 {
                self.pinned.set(self.pinned.get() - LARGE);
            }
        }
    }

    /// Pins the page of each address for a request of a host device. Not limited, since it only lasts for one request
    /// (Linux: pages of direct I/O).
    pub(crate) fn hold(&self, at: impl Iterator<Item = PhysAddr>) {
        self.count_requests(at, |page| page.requests += 1);
    }

    /// Unpins pages from [`hold`](Self::hold).
    pub(crate) fn let_go(&self, at: impl Iterator<Item = PhysAddr>) {
        self.count_requests(at, |page| page.requests -= 1);
    }

    fn count_requests(&self, at: impl Iterator<Item = PhysAddr>, count: impl Fn(&mut Page)) {
        let mut pages = self.pages.borrow_mut();
        for number in at.filter_map(number_of) {
            pages.get_mut(number).into_iter().for_each(&count);
        }
    }

    fn whole_pages(&self, at: PhysAddr, length: u64) -> Result<Vec<usize>, Error> {
        if length == 0 || (at.0 | length) % LARGE != 0 {
            return Err(Error::Invalid);
        }
        let numbers: Option<Vec<usize>> = (0..length / LARGE).map(|n| number_of(at + n * LARGE)).collect();
        let pages = self.pages.borrow().len();
        numbers.filter(|numbers| numbers.iter().all(|&n| n < pages)).ok_or(Error::Invalid)
    }

    /// How much of it is pinned: a page counts once, however often it is pinned.
    pub fn pinned(&self) -> Bytes {
        Bytes::new(self.pinned.get())
    }

    /// Moves the 2 MiB page at an address to another host node. Accesses wait meanwhile.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such page, [`Error::Busy`] if it is pinned, [`Error::NoMemory`] if the node
    /// has no room.
    pub fn move_page(&self, cpu: &Cpu, at: PhysAddr, to: Node) -> Result<(), Error> {
        let number = number_of(at).ok_or(Error::Invalid)?;
        let host = self.host.upgrade().ok_or(Error::NoDevice)?;
        let from = {
            let page = self.page(at).ok_or(Error::Invalid)?;
            if page.pins > 0 || page.requests > 0 {
                return Err(Error::Busy);
            }
            page.host
        };
        let pages = host.face().move_pages(cpu, from, to)?;
        let at = address_of(number);
        let (iova, mut freed) = (Iova::new(at.0), Taken(Vec::new()));
        let mut undone = None;
        self.ground.edit_tables(&mut |memory| {
            undone = self.table.unmap(memory, &mut freed, iova, Bytes::new(LARGE)).ok();
        });
        freed.0.extend(undone.into_iter().flat_map(|undone| undone.tables));
        enter(&*self.ground, &self.table, &mut freed, at, pages.start)?;
        self.tlbs.iter().for_each(|tlb| tlb.forget(at.0 / LARGE));
        let page = &mut self.pages.borrow_mut()[number];
        page.host = pages;
        page.away_until = cpu.now();
        self.moved.set(self.moved.get() + 1);
        Ok(())
    }

    /// Number of pages moved.
    pub fn moved(&self) -> u64 {
        self.moved.get()
    }

    /// TLB misses of all vCPUs.
    pub fn tlb_misses(&self) -> u64 {
        self.tlbs.iter().map(Tlb::misses).sum()
    }

    /// Accesses to pages that were being moved.
    pub fn violations(&self) -> u64 {
        self.violations.get()
    }

    /// Frees all memory. Nothing may access it any more.
    pub fn close(&self, cpu: &Cpu) {
        let Some(host) = self.host.upgrade() else { return };
        let face = host.face();
        self.tlbs.iter().for_each(Tlb::clear);
        let pages = self.pages.take().into_iter().map(|page| page.host);
        pages.chain(self.frames.take()).for_each(|pages| face.free_pages(cpu, pages));
        self.pinned.set(0);
    }
}

/// Maps a guest page to a host page.
fn enter(
    ground: &dyn Ground,
    table: &PageTable,
    frames: &mut Taken,
    guest: PhysAddr,
    host: PhysAddr,
) -> Result<(), Error> {
    let (from, to) = (Iova::new(guest.0), HostPhysical::new(host.0));
    let mut entered = Err(Error::NoMemory);
    ground.edit_tables(&mut |memory| {
        let (length, rights) = (Bytes::new(LARGE), Permissions::READ_WRITE);
        let mapped = table.map(memory, frames, from, to, length, rights, PageSize::Size2MiB);
        entered = mapped.map(drop).map_err(|_| Error::NoMemory);
    });
    entered
}

const _: () = assert!(PAGE << ORDER == LARGE);
