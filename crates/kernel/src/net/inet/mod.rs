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
mod loopback;
mod output;
mod steering;
mod tcp;
mod timers;
mod udp;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::rc::{Rc, Weak};

use inet::arp::Neighbours;
use inet::fragments::Reassembly;
use inet::route::Routes;
use platform::socket::InetCounters;

pub use inet::fragments::FragmentParams;
pub use inet::tcp::EcnMode;

use super::NetDevice;
use crate::kernel::Inner;
use buffers::{Heads, Piece};
use icmp::Icmp;
use loopback::Loopback;
use output::Waiting;
use steering::Steering;
pub use steering::SteeringParams;
use tcp::{Tcp, TcpSocket};
use timers::Timers;
use udp::Udp;

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
            autocorking: true,
            fragments: FragmentParams::linux(),
            steering: SteeringParams::linux(),
        }
    }
}

/// A device with an address.
struct Interface {
    /// Gone if the device is.
    device: Option<Rc<NetDevice>>,
    name: String,
    address: Ipv4Addr,
    prefix: u8,
    neighbours: Neighbours,
}

/// A kernel's Internet protocols.
pub(crate) struct Stack {
    me: Weak<Self>,
    kernel: Weak<Inner>,
    interfaces: RefCell<Vec<Interface>>,
    routes: RefCell<Routes>,
    waiting: RefCell<BTreeMap<(usize, Ipv4Addr), Vec<Waiting>>>,
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
    /// For a kernel with so many nodes.
    pub fn new(kernel: &Weak<Inner>, nodes: usize, params: InetParams) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            kernel: kernel.clone(),
            interfaces: RefCell::default(),
            routes: RefCell::default(),
            waiting: RefCell::default(),
            heads: Heads::new(kernel.clone(), nodes),
            loopback: Loopback::new(me.clone()),
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
    pub fn another(&self, nodes: usize) -> Rc<Self> {
        Self::new(&self.kernel, nodes, self.params)
    }

    fn count(&self, change: impl FnOnce(&mut InetCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// A device by its number.
    fn device(&self, number: u32) -> Option<Rc<NetDevice>> {
        let interfaces = self.interfaces.borrow();
        interfaces.iter().filter_map(|i| i.device.as_ref()).find(|d| d.number() == number).cloned()
    }

    /// Whether an address is this host's.
    fn is_own(&self, address: Ipv4Addr) -> bool {
        address.is_loopback()
            || self.interfaces.borrow().iter().any(|i| i.address == address && i.device.is_some())
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
        self.interfaces.borrow_mut().clear();
        self.waiting.borrow_mut().clear();
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
