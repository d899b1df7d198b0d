//! A connection's socket, which joins the protocol's state machine and the memory. `program` has the interface for
//! programs, `transmit` the transmit path.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use inet::tcp::{Connection, State};
use platform::Error;
use platform::cpu::{Cpu, CpuId, Part};
use platform::lock::SpinLock;
use platform::memory::PhysAddr;
use platform::net::TxFlow;
use platform::socket::TcpStream;
use platform::sync::WaitQueue;
use units::Time;
use wire::ip::TcpHeader;

use super::super::buffers::{Piece, Sender, waits_below};
use super::super::timers::Owner;
use super::buffer::SendBuffer;
use super::listener::Listener;
use super::{Came, Ends, Tcp, error_of};

/// Most bytes of a connection in the device and its queue (Linux: TCP small queues, `tcp_limit_output_bytes`).
const MOST_BELOW: u64 = 262_144;
/// Minimum and maximum size of the send buffer (Linux: `net.ipv4.tcp_wmem`).
const BUFFER: (u64, u64) = (87_040, 4 << 20);
/// Bytes of the socket structure that an operation touches (Linux: `struct tcp_sock`'s hot lines).
const HOT: usize = 256;

/// A connection.
pub struct TcpSocket {
    pub(super) tcp: Weak<Tcp>,
    pub(super) me: Weak<Self>,
    pub number: Owner,
    pub(super) ends: Ends,
    pub(super) connection: RefCell<Connection<Piece>>,
    pub(super) buffer: RefCell<SendBuffer>,
    pub(super) flow: Rc<TxFlow>,
    lock: SpinLock,
    /// Address of the socket structure.
    pub memory: PhysAddr,
    listener: RefCell<Option<Weak<Listener>>>,
    pub(super) readable: WaitQueue,
    pub(super) writable: WaitQueue,
    /// Core that last had a reason to set it.
    timer_core: Cell<CpuId>,
    pushing: Cell<bool>,
    /// Data waits until the device has sent more.
    pub(super) held_back: Cell<bool>,
    /// When the pages kept for future writes are freed.
    pub(super) pages_until: Cell<Option<Time>>,
    pub(super) closed: Cell<bool>,
    no_way: Cell<bool>,
    /// Size of the send buffer, if set by the program.
    pub(super) send_buffer: Cell<Option<u32>>,
}

impl Sender for TcpSocket {
    fn packet_gone(&self, cpu: &Cpu) {
        if self.held_back.get() && !self.is_full_below() {
            self.push(cpu);
        }
    }
}

impl TcpSocket {
    pub(super) fn new(
        tcp: Weak<Tcp>,
        number: Owner,
        ends: Ends,
        connection: Connection<Piece>,
        memory: PhysAddr,
        listener: Option<Weak<Listener>>,
    ) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            tcp,
            me: me.clone(),
            number,
            ends,
            connection: RefCell::new(connection),
            buffer: RefCell::default(),
            flow: Rc::default(),
            lock: SpinLock::default(),
            memory,
            listener: RefCell::new(listener),
            readable: WaitQueue::new(),
            writable: WaitQueue::new(),
            timer_core: Cell::new(CpuId(0)),
            pushing: Cell::new(false),
            held_back: Cell::new(false),
            pages_until: Cell::new(None),
            closed: Cell::new(false),
            no_way: Cell::new(false),
            send_buffer: Cell::new(None),
        })
    }

    /// Locks the socket and accesses its structure, whose lines move between the cores that use it.
    pub(super) fn touch(&self, cpu: &Cpu) {
        drop(self.lock.lock(cpu));
        cpu.load(self.memory, &mut [0; HOT]);
        cpu.store(self.memory, &[0; HOT / 2]);
    }

    /// Handles a received packet.
    pub(super) fn input(&self, cpu: &Cpu, header: &TcpHeader, piece: Piece, came: Came) {
        self.touch(cpu);
        if came.marked {
            self.connection.borrow_mut().congestion_experienced();
        }
        if self.connection.borrow().lacks_memory(&piece) {
            self.collapse(cpu);
        }
        let mut connection = self.connection.borrow_mut();
        let before = connection.counters().out_of_order;
        connection.receive(cpu.now(), header, piece, came.segments);
        let early = connection.counters().out_of_order - before;
        drop(connection);
        if let Some(tcp) = self.tcp.upgrade().filter(|_| early > 0) {
            tcp.means.count(|c| c.tcp_out_of_order += early);
        }
        self.push(cpu);
    }

    /// The timer has expired.
    pub fn timer(&self, cpu: &Cpu) {
        self.touch(cpu);
        let (Some(deadline), Some(tcp)) = (self.deadline(), self.tcp.upgrade()) else { return };
        let core = self.timer_core.get();
        if core != cpu.id() || deadline > cpu.now() {
            return tcp.timers.arm_on(cpu, core, self.number, deadline);
        }
        if self.pages_until.get().is_some_and(|until| until <= cpu.now()) {
            self.buffer.borrow_mut().clear(cpu);
        }
        let timeouts = || self.connection.borrow().counters().timeouts;
        let before = timeouts();
        self.connection.borrow_mut().timer(cpu.now());
        tcp.means.count(|c| c.tcp_timeouts += timeouts() - before);
        self.push(cpu);
    }

    /// When the timer should expire.
    pub fn deadline(&self) -> Option<Time> {
        let deadlines = [self.connection.borrow().deadline(), self.pages_until.get()];
        deadlines.into_iter().flatten().min()
    }

    /// The peer's next hop does not answer.
    pub fn unreachable(&self, cpu: &Cpu) {
        if self.connection.borrow().state() == State::SynSent {
            self.no_way.set(true);
            self.connection.borrow_mut().abort();
            self.push(cpu);
        }
    }

    /// Whether the connection has reached its limit in the device and its queue.
    pub(super) fn is_full_below(&self) -> bool {
        waits_below(&self.flow) >= MOST_BELOW
    }

    /// Sends what can be sent, and wakes waiters of what has changed.
    pub fn push(&self, cpu: &Cpu) {
        let Some(tcp) = self.tcp.upgrade() else { return };
        // Dropped packets call back here at once.
        if self.pushing.replace(true) {
            return;
        }
        let _part = cpu.book(Part::Net);
        let lock = self.lock.lock(cpu);
        let probes = || self.connection.borrow().counters().tail_probes;
        let before = probes();
        self.send_segments(cpu, &tcp);
        tcp.means.count(|c| c.tcp_tail_probes += probes() - before);
        self.pushing.set(false);
        let discarded: Vec<Piece> = self.connection.borrow_mut().discarded().collect();
        discarded.into_iter().for_each(|piece| piece.release(cpu));
        let orphaned = self.tell(cpu, &tcp);
        self.set_timer(cpu, &tcp);
        drop(lock);
        if orphaned {
            self.close(cpu);
        }
        if self.connection.borrow().state() == State::Closed {
            self.buffer.borrow_mut().clear(cpu);
            if self.closed.get() {
                tcp.remove_socket(cpu, self);
            }
        }
    }

    /// Wakes waiters. Returns true if the connection was just established but its listener is gone.
    fn tell(&self, cpu: &Cpu, tcp: &Tcp) -> bool {
        let connection = self.connection.borrow();
        let (state, readable) = (connection.state(), connection.readable() > 0 || connection.at_end());
        drop(connection);
        let wake = |queue: &WaitQueue| {
            if !queue.is_empty() {
                cpu.work(tcp.means.costs().wake_up);
                queue.wake_all();
            }
        };
        if readable || state == State::Closed {
            wake(&self.readable);
        }
        if state > State::SynReceived && self.room() > 0 || state == State::Closed {
            wake(&self.writable);
        }
        if state <= State::SynReceived {
            return false;
        }
        let Some(listener) = self.listener.borrow_mut().take() else { return false };
        let open = state != State::Closed;
        if !open {
            // No program can close it any more.
            self.closed.set(true);
        }
        let taken =
            listener.upgrade().is_some_and(|listener| listener.came(self.me.upgrade().filter(|_| open)));
        open && !taken
    }

    pub(super) fn set_timer(&self, cpu: &Cpu, tcp: &Tcp) {
        self.timer_core.set(cpu.id());
        tcp.timers.arm(cpu, self.number, self.deadline());
    }

    /// Room in the send buffer: its set size, or twice the congestion window.
    pub(super) fn room(&self) -> u64 {
        let connection = self.connection.borrow();
        let most = match self.send_buffer.get() {
            Some(set) => u64::from(set),
            None => (2 * connection.congestion_window()).clamp(BUFFER.0, BUFFER.1),
        };
        // Report little room as none: waking a writer would cost more than it gains.
        let room = most.saturating_sub(connection.unacknowledged());
        if room >= most / 3 { room } else { 0 }
    }

    /// Waits until the connection is established.
    pub async fn opened(&self) -> Result<(), Error> {
        let ready = || match self.connection.borrow().state() {
            State::SynSent | State::SynReceived => None,
            State::Closed if self.no_way.get() => Some(Err(Error::Unreachable)),
            State::Closed => Some(Err(error_of(&self.connection.borrow()).unwrap_or(Error::Ended))),
            _ => Some(Ok(())),
        };
        self.writable.wait_for(ready).await
    }
}
