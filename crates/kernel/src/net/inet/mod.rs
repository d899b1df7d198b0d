//! The Internet protocols: what arrives finds its socket, what programs send finds its way.
//!
//! The protocols themselves are state machines of the `inet` crate; here they get their packets, their time, their
//! memory and their costs.
//!
//! | file | subject |
//! |---|---|
//! | `buffers` | memory of packets, views of received ones |
//! | `output` | the way down: headers, checksums, neighbours |
//! | `input` | the way up: checks, ARP, who gets what |
//! | `interfaces` | devices with addresses, ways, neighbours |
//! | `fragments` | packets larger than a frame, cut and put together |
//! | `loopback` | packets of the host to itself |
//! | `steering` | packets follow the programs that read them |
//! | `timers` | one task that wakes sockets and asks neighbours again |
//! | `icmp`, `udp` | echo and datagrams |
//! | `tcp` | connections: buffers, coalescing, sockets |
//! | `face` | what programs see |

mod buffers;
mod face;
mod fragments;
mod icmp;
mod input;
mod interfaces;
mod loopback;
mod output;
mod steering;
mod tcp;
mod timers;
mod udp;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use inet::fragments::Reassembly;
use platform::costs::linux;
use platform::socket::InetCounters;

pub use inet::fragments::FragmentParams;
pub use inet::tcp::EcnMode;

use super::Net;
use crate::base::Base;
use crate::costs::KernelCosts;
use crate::irq::Softirqs;
use buffers::{Heads, Piece};
use icmp::Icmp;
use interfaces::Interfaces;
use loopback::Loopback;
use steering::Steering;
pub use steering::SteeringParams;
use tcp::{Tcp, TcpSocket};
use timers::Timers;
use udp::Udp;
use units::Duration;

/// First port for sockets that do not ask for one (Linux: `ip_local_port_range`).
const FIRST_PORT: u16 = 32_768;
/// The last of them.
const LAST_PORT: u16 = 60_999;

/// How a kernel's protocols are set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InetParams {
    /// Whether TCP uses explicit congestion notification.
    pub ecn: EcnMode,
    /// Whether a segment that is not full waits while the device has others of its connection (Linux: `tcp_autocorking`).
    pub autocorking: bool,
    /// Bounds of fragments that wait for others.
    pub fragments: FragmentParams,
    /// How received packets find the cores of those who read them.
    pub steering: SteeringParams,
}

impl InetParams {
    /// Linux's defaults.
    pub const fn linux() -> Self {
        Self {
            ecn: EcnMode::Accept,
            autocorking: const { linux("inet", "autocorking") } == 1,
            fragments: FragmentParams {
                memory: const { linux("inet", "fragment_memory") },
                time: Duration::from_ps(const { linux("inet", "fragment_time") }),
            },
            steering: SteeringParams::linux(),
        }
    }
}

/// A kernel's Internet protocols.
pub(crate) struct Stack {
    me: Weak<Self>,
    base: Base,
    softirqs: Rc<Softirqs>,
    /// The devices, which hold the protocols.
    net: Weak<Net>,
    interfaces: Interfaces,
    heads: Rc<Heads>,
    loopback: Loopback,
    params: InetParams,
    fragments: RefCell<Reassembly<Piece>>,
    steering: Steering,
    timers: Timers,
    tcp: Tcp,
    /// Connections to be closed, as nobody waits for them to open any more.
    abandoned: RefCell<Vec<Rc<TcpSocket>>>,
    udp: Udp,
    icmp: Icmp,
    counters: Cell<InetCounters>,
    identification: Cell<u16>,
    next_port: Cell<u16>,
}

impl Stack {
    /// Above devices, on parts of the kernel.
    pub fn new(base: Base, softirqs: Rc<Softirqs>, net: Weak<Net>, params: InetParams) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            interfaces: Interfaces::default(),
            heads: Heads::new(base.clone()),
            loopback: Loopback::new(me.clone(), Rc::clone(&softirqs)),
            base,
            softirqs,
            net,
            params,
            fragments: RefCell::new(Reassembly::new(params.fragments)),
            steering: Steering::new(params.steering),
            timers: Timers::default(),
            tcp: Tcp::default(),
            abandoned: RefCell::default(),
            udp: Udp::default(),
            icmp: Icmp::default(),
            counters: Cell::default(),
            identification: Cell::new(1),
            next_port: Cell::new(FIRST_PORT),
        })
    }

    /// Others with the same settings.
    pub fn another(&self) -> Rc<Self> {
        Self::new(self.base.clone(), Rc::clone(&self.softirqs), Weak::clone(&self.net), self.params)
    }

    fn costs(&self) -> &KernelCosts {
        self.base.costs()
    }

    fn count(&self, change: impl FnOnce(&mut InetCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// A port for a socket that did not ask for one, if one is free.
    fn free_port(&self, is_free: impl Fn(u16) -> bool) -> Option<u16> {
        for _ in FIRST_PORT..=LAST_PORT {
            let port = self.next_port.get();
            self.next_port.set(if port == LAST_PORT { FIRST_PORT } else { port + 1 });
            if is_free(port) {
                return Some(port);
            }
        }
        None
    }

    /// Lets go of everything that holds the kernel.
    pub fn clear(&self) {
        self.interfaces.clear();
        self.tcp.clear();
        self.abandoned.borrow_mut().clear();
        self.udp.clear();
        self.icmp.clear();
        self.loopback.clear();
        self.steering.clear();
        self.fragments.borrow_mut().clear();
        self.fragments.borrow_mut().discarded().for_each(drop);
    }
}
