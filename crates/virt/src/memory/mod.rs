//! Guest-physical memory.
//!
//! A guest's memory is made of pages of 2 MiB of its host's, each where the host had room. The tables that say so are real ones in
//! the host's memory, in the format of VT-d's second level, which is that of EPT but for bits that nobody looks at here. A core of
//! the guest goes where its TLB and these tables lead.

mod tlb;

use std::cell::{Cell, Ref, RefCell};
use std::rc::{Rc, Weak};

use hardware::iommu::tables::{FrameAllocator, PageTable};
use hardware::iommu::{Features, PageSize, Permissions};
use kernel::{Ground, Kernel};
use platform::Error;
use platform::cpu::{Cpu, CpuId, Node};
use platform::memory::{PAGE, Pages, PhysAddr, Policy};
use units::{Bytes, HostPhysical, Iova, Time};

use tlb::Tlb;

/// Memory below 4 GiB that a guest may have; the rest begins at 4 GiB, so that there is room for BARs.
const LOW: u64 = 2 << 30;
const HIGH: u64 = 4 << 30;
/// Bytes of a page of the tables.
pub const LARGE: u64 = 2 << 20;
/// The same as a power of two of small pages.
const ORDER: u8 = 9;
/// An entry's address of what is below it.
const FRAME: u64 = 0x000f_ffff_ffff_f000;

/// Memory of one of a guest's nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestNode {
    /// How much, a multiple of 2 MiB.
    pub memory: Bytes,
    /// The host's node that it is from at first.
    pub host: Node,
}

/// A piece of guest memory that is one piece of the host's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Where the guest sees it.
    pub guest: PhysAddr,
    /// Where it is.
    pub host: PhysAddr,
    /// Bytes.
    pub length: u64,
}

/// A page of guest memory.
struct Page {
    host: Pages,
    /// How many hold it where it is: for devices of the guest, for requests of the host's devices that reach it.
    pins: u32,
    requests: u32,
    /// Until when it is being moved: nobody reaches it before.
    away_until: Time,
}

/// A guest's memory.
pub struct GuestMemory {
    host: Weak<Kernel>,
    ground: Rc<dyn Ground>,
    /// The nodes' bytes, in the order of their addresses.
    nodes: Vec<u64>,
    /// By guest-physical address, that between low and high memory left out.
    pages: RefCell<Vec<Page>>,
    table: PageTable,
    frames: RefCell<Vec<Pages>>,
    /// By core of the guest.
    tlbs: Vec<Tlb>,
    /// How many bytes may be held where they are (Linux: `RLIMIT_MEMLOCK`).
    pin_limit: u64,
    pinned: Cell<u64>,
    moved: Cell<u64>,
    violations: Cell<u64>,
}

/// Frames that were taken before.
struct Taken(Vec<HostPhysical>);

impl FrameAllocator for Taken {
    fn allocate_frame(&mut self) -> Option<HostPhysical> {
        self.0.pop()
    }
}

/// The number of a guest's page, if it may have one there.
const fn number_of(at: PhysAddr) -> Option<usize> {
    match at.0 {
        at if at < LOW => Some((at / LARGE) as usize),
        at if at >= HIGH => Some(((at - HIGH + LOW) / LARGE) as usize),
        _ => None,
    }
}

/// Where the guest sees a page.
const fn address_of(number: usize) -> PhysAddr {
    let at = number as u64 * LARGE;
    PhysAddr(if at < LOW { at } else { at - LOW + HIGH })
}

impl GuestMemory {
    /// Takes memory of a host for a guest with so many `cores`, and builds the tables. No more than `pin_limit` of it can be held
    /// where it is.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`Error::Invalid`] if a node's memory is no multiple of 2 MiB, or there is none.
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
        // A table for each GiB that is touched, and two above them.
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

    /// The guest's nodes: ranges of addresses, each with its first address and its bytes.
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

    /// All of a guest's memory, on whatever nodes.
    pub fn size(&self) -> Bytes {
        Bytes::new(self.nodes.iter().sum())
    }

    fn page(&self, at: PhysAddr) -> Option<Ref<'_, Page>> {
        let number = number_of(at)?;
        Ref::filter_map(self.pages.borrow(), |pages| pages.get(number)).ok()
    }

    /// Where an address is now, and how many bytes from there on are one piece; `None` where there is no memory.
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

    /// The host's node that an address is on.
    pub fn node_of(&self, at: PhysAddr) -> Option<Node> {
        let (place, _) = self.place(at)?;
        self.host.upgrade()?.face().node_of_address(place)
    }

    /// When a core of the guest that is at `now`, on the host's core `own`, knows where an address is, where that is, and how many
    /// bytes from there on are one piece; no place where the tables have none.
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
        // The guest was left when it met the page on its way, and waits until it has arrived.
        let away_until = self.page(at).map_or(Time::ZERO, |page| page.away_until);
        if away_until > now {
            self.violations.set(self.violations.get() + 1);
            now = away_until;
        }
        tlb.fill(page, frame);
        (now, Some((frame + offset, LARGE - offset)))
    }

    /// Reads the entries on the way to an address, as a core does whose TLB lacks it: when it has them, and the frame.
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

    /// Holds a range where it is, for who lets devices reach it, and says where that is.
    ///
    /// # Errors
    /// [`Error::Invalid`] if some of it is no memory, or it is no whole pages of 2 MiB; [`Error::NoMemory`] if that is more than
    /// may be held.
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

    /// Lets a range go that [`pin`](Self::pin) holds.
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

    /// Holds the page of each address where it is while a device of the host reaches it. No limit counts that, which lasts for one
    /// request (Linux: pages of direct I/O).
    pub(crate) fn hold(&self, at: impl Iterator<Item = PhysAddr>) {
        self.count_requests(at, |page| page.requests += 1);
    }

    /// Lets pages go that [`hold`](Self::hold) holds.
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

    /// Bytes that are held where they are.
    pub fn pinned(&self) -> Bytes {
        Bytes::new(self.pinned.get())
    }

    /// Moves the page of 2 MiB at an address to another of the host's nodes. Who reaches for it meanwhile waits.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none, [`Error::Busy`] if a device reaches it, [`Error::NoMemory`] if the node has no room.
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

    /// Pages of 2 MiB that were moved.
    pub fn moved(&self) -> u64 {
        self.moved.get()
    }

    /// Misses of the cores' TLBs.
    pub fn tlb_misses(&self) -> u64 {
        self.tlbs.iter().map(Tlb::misses).sum()
    }

    /// How often a core met a page that was being moved.
    pub fn violations(&self) -> u64 {
        self.violations.get()
    }

    /// Gives all of it back. Nobody reaches it any more.
    pub fn close(&self, cpu: &Cpu) {
        let Some(host) = self.host.upgrade() else { return };
        let face = host.face();
        self.tlbs.iter().for_each(Tlb::clear);
        let pages = self.pages.take().into_iter().map(|page| page.host);
        pages.chain(self.frames.take()).for_each(|pages| face.free_pages(cpu, pages));
        self.pinned.set(0);
    }
}

/// Lets the tables lead from a guest's page to one of the host's.
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
