//! The path that each connection's last packet took, so that packets stay in order when the path changes.

use std::cell::RefCell;
use std::rc::Rc;

use platform::Error;
use platform::cpu::Cpu;
use platform::kernel::Kernel;
use platform::memory::{Pages, Policy};
use wire::ip::Flow;

/// Entries of the table. Connections that hash to the same entry are treated as one.
const PLACES: usize = 256;
/// Bytes of an entry in memory.
const PLACE: u64 = 16;

/// A transmit path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    /// Descriptors and DMA.
    Ring,
    /// Lines of a kPIO queue.
    Lines,
}

/// Where a connection's last packet went.
#[derive(Clone, Copy, Debug)]
pub struct Last {
    pub path: Path,
    pub channel: u16,
    /// The packet has left once the path has reached this count of descriptors or lines.
    pub mark: u32,
    /// Packets in a row that stayed on this path although the other was preferred.
    pub stays: u16,
}

/// Table of last paths. Lookups cost loads through the core's caches.
pub struct FlowCache {
    kernel: Rc<dyn Kernel>,
    pages: Pages,
    places: RefCell<Vec<Option<Last>>>,
}

impl FlowCache {
    /// Creates an empty table in pages of its own.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(cpu: &Cpu, kernel: &Rc<dyn Kernel>) -> Result<Self, Error> {
        let order = Pages::order_for(PLACES as u64 * PLACE);
        let pages = kernel.alloc_pages(cpu, order, Policy::Local)?;
        Ok(Self { kernel: Rc::clone(kernel), pages, places: RefCell::new(vec![None; PLACES]) })
    }

    /// Frees the pages.
    pub fn free(&self, cpu: &Cpu) {
        self.kernel.free_pages(cpu, self.pages);
    }

    /// The table entry of a connection. Packets without a flow share one.
    pub fn place(flow: Option<&Flow>) -> usize {
        let Some(flow) = flow else { return 0 };
        let (source, destination) = flow.ports.unwrap_or_default();
        let fold = |address: std::net::IpAddr| match address {
            std::net::IpAddr::V4(address) => u32::from(address),
            std::net::IpAddr::V6(address) => address
                .octets()
                .chunks_exact(4)
                .fold(0, |all, four| all ^ u32::from_be_bytes([four[0], four[1], four[2], four[3]])),
        };
        let words =
            [fold(flow.source), fold(flow.destination), u32::from(source) << 16 | u32::from(destination)];
        // Multiplicative hash (Knuth, TAOCP 3, 6.4): the upper bits are well mixed.
        let hash = words.into_iter().fold(u32::from(flow.protocol), |hash, word| {
            (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b1)
        });
        (hash >> 24) as usize % PLACES
    }

    /// The path of the entry's last packet.
    pub fn get(&self, cpu: &Cpu, place: usize) -> Option<Last> {
        cpu.load_u64(self.pages.start + place as u64 * PLACE);
        self.places.borrow()[place]
    }

    /// Records the path of a packet.
    pub fn set(&self, cpu: &Cpu, place: usize, last: Last) {
        let word = u64::from(last.mark) << 32 | u64::from(last.channel) << 16 | u64::from(last.stays);
        cpu.store_u64(self.pages.start + place as u64 * PLACE, word);
        self.places.borrow_mut()[place] = Some(last);
    }

    /// Forgets all entries, once no packet is in flight.
    pub fn clear(&self) {
        self.places.borrow_mut().fill(None);
    }
}
