//! The driver of the NIC whose programming interface is [`wire::nic`].
//!
//! | file | subject |
//! |---|---|
//! | `adapter` | one function: start, stop and reset |
//! | `limits`, `features`, `state` | capabilities and state of a function |
//! | `beside` | the seam for a transmit path beside the rings |
//! | `service` | the task that detects lost interrupts |
//! | `counters` | the driver's counters |
//! | `counted` | device counters, kept across resets |
//! | `netdev` | the function as a network device |
//! | `combined` | one network device for several functions |
//! | `channels` | a function's channels and interrupts |
//! | `channel` | an interrupt and its two queues, polled together |
//! | `tx`, `rx`, `ring` | the queues |
//! | `events` | event queues of interrupts |
//! | `pool` | receive buffers |
//! | `inline` | doorbells that carry packet and descriptor |
//! | `poll` | a function in the hands of a program that polls it |
//! | `path` | what transmit paths have in common |
//! | `kpio` | such a path: transmit by programmed I/O |
//! | `steering` | receive hash and flow rules |
//! | `station` | functions that share an address |
//!
//! Each core has a channel of its own, as far as the device has queues. A packet is first offered to the path beside the
//! rings, if there is one. A combined device is to each of its adapters as the kernel is. Nothing that the device writes is trusted: a
//! malformed completion, a stopped queue or one that makes no progress causes a reset, which is counted. All packets
//! in flight then return to their owners.

mod adapter;
mod beside;
mod channel;
mod channels;
mod combined;
mod counted;
mod counters;
mod events;
mod features;
mod inline;
mod kpio;
mod limits;
mod netdev;
mod params;
mod path;
mod poll;
mod pool;
mod ring;
mod rx;
mod service;
mod state;
mod station;
mod steering;
mod tx;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::mmio::MemoryType;
use platform::net::NetDriver;
use platform::pci::{ChannelState, PciBinding, PciDevice, PciDriver, PciMatch, Recovery};
use wire::nic::registers::{INLINE_BAR, WINDOW_BAR, feature};
use wire::nic::{CLASS, DEVICE, VENDOR};

pub use counters::{Count, Counters};
pub use kpio::{Ending, Flow, KpioCosts, KpioParams, PacketSelect, Stores};
pub use params::{HeldParams, InlineParams, Loads, NicCosts, NicDriverParams};
pub use poll::NicPollDriver;

use adapter::Adapter;
use combined::Combined;
use limits::Limits;

/// One driver instance for all NICs of a host, physical and virtual functions alike.
#[derive(Default)]
pub struct NicDriver {
    params: NicDriverParams,
    /// The selection that was set last, if any: functions that are bound later get it, too.
    select: Cell<Option<PacketSelect>>,
    bound: RefCell<Vec<Weak<NicBinding>>>,
    combined: RefCell<Vec<Weak<Combined>>>,
}

impl NicDriver {
    /// A driver with these settings for all its functions.
    pub fn new(params: NicDriverParams) -> Rc<Self> {
        Rc::new(Self { params, ..Self::default() })
    }

    /// Changes which packets go beside the rings, on all functions that can, now and later. No packet is lost, and the
    /// packets of a connection stay in order.
    pub fn set_select(&self, cpu: &Cpu, select: PacketSelect) {
        self.select.set(Some(select));
        for bound in self.bound.borrow().iter().filter_map(Weak::upgrade) {
            // A function without the queues for it keeps using its rings.
            if let Some(beside) = &bound.0.beside {
                beside.set_select(cpu, &bound.0.channels.all(), select);
            }
        }
    }

    /// Makes a function a network device, or adds it to the one that it shares.
    async fn register(&self, cpu: &Cpu, adapter: &Rc<Adapter>) {
        let has_others = adapter.limits.features & feature::STATION != 0 && adapter.limits.sharing > 1;
        if !self.params.multi_pf || !has_others {
            let core = adapter.kernel.register_net(Rc::clone(adapter) as Rc<dyn NetDriver>);
            return adapter.set_core(Some(core));
        }
        self.combined.borrow_mut().retain(|combined| combined.strong_count() > 0);
        let of =
            self.combined.borrow().iter().filter_map(Weak::upgrade).find(|combined| combined.takes(adapter));
        match of {
            Some(combined) => combined.add(cpu, adapter).await,
            None => self.combined.borrow_mut().push(Rc::downgrade(&Combined::register(adapter))),
        }
    }

    /// Device names and counters of all bound functions, in probe order.
    pub fn functions(&self) -> Vec<(String, Rc<Counters>)> {
        let bound = self.bound.borrow();
        let adapters = bound.iter().filter_map(Weak::upgrade).map(|bound| Rc::clone(&bound.0));
        adapters.map(|adapter| (adapter.name(), Rc::clone(&adapter.counters))).collect()
    }
}

/// Binding of one function.
struct NicBinding(Rc<Adapter>);

impl PciDriver for NicDriver {
    fn name(&self) -> &'static str {
        "nic"
    }

    fn ids(&self) -> &[PciMatch] {
        const IDS: [PciMatch; 2] = [PciMatch::device(VENDOR, DEVICE), PciMatch::class(CLASS)];
        &IDS
    }

    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            let registers = device.ioremap_bar(0, MemoryType::Uncached)?;
            let limits = Limits::read(cpu, &registers).await?;
            device.dma().set_mask(64)?;
            let counters = Rc::default();
            let beside =
                kpio::probe(&device, &registers, &self.params, self.select.get(), &limits, &counters)?;
            let pages = match self.params.inline {
                Some(_) if limits.features & feature::INLINE != 0 => {
                    Some(device.ioremap_bar(INLINE_BAR, MemoryType::WriteCombining)?)
                }
                _ => None,
            };
            let held = match self.params.held {
                Some(held) if limits.windows.is_some() => {
                    let kind = match held.loads {
                        Loads::Streaming => MemoryType::WriteCombining,
                        Loads::Uncached => MemoryType::Uncached,
                    };
                    Some(device.ioremap_bar(WINDOW_BAR, kind)?)
                }
                _ => None,
            };
            let bars = (registers, pages, held);
            let adapter = Adapter::new(device, bars, limits, self.params.clone(), counters, beside);
            adapter.prepare_channels(cpu).await?;
            self.register(cpu, &adapter).await;
            let bound = Rc::new(NicBinding(adapter));
            self.bound.borrow_mut().retain(|bound| bound.strong_count() > 0);
            for other in self.bound.borrow().iter().filter_map(Weak::upgrade) {
                if bound.0.is_same_station(&other.0) {
                    bound.0.station.add(&other.0.station);
                    other.0.station.add(&bound.0.station);
                }
            }
            self.bound.borrow_mut().push(Rc::downgrade(&bound));
            Ok(bound as Rc<dyn PciBinding>)
        })
    }
}

impl PciBinding for NicBinding {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(self.0.remove(cpu))
    }

    fn configure_sriov<'a>(&'a self, cpu: &'a Cpu, count: u16) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            match count {
                0 => self.0.device.disable_sriov(cpu).await,
                _ => self.0.device.enable_sriov(cpu, count).await?,
            }
            Ok(())
        })
    }

    fn error_detected(&self, _: &Cpu, state: ChannelState) -> Recovery {
        match state {
            ChannelState::Normal => Recovery::CanRecover,
            ChannelState::Frozen => {
                self.0.give_way();
                Recovery::NeedReset
            }
            ChannelState::Gone => {
                self.0.vanish();
                Recovery::Disconnect
            }
        }
    }

    fn slot_reset<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Recovery> {
        Box::pin(async move {
            if self.0.answers(cpu).await { Recovery::CanRecover } else { Recovery::Disconnect }
        })
    }

    fn resume(&self, _: &Cpu) {
        self.0.recover("after an error of the bus");
    }
}
