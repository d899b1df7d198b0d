//! A connection's socket: joins the protocol's state machine and the memory, for the network and for programs.

use std::cell::{Cell, RefCell};
use std::net::SocketAddrV4;
use std::rc::{Rc, Weak};

use inet::tcp::{Connection, Payload, State};
use platform::Error;
use platform::block::Segment;
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::lock::SpinLock;
use platform::memory::PhysAddr;
use platform::socket::{BufferSizes, KeepAlive, TcpInfo, TcpStream};
use platform::storage::BlockFile;
use platform::sync::WaitQueue;
use units::Time;
use wire::ip::{TcpHeader, protocol};

use super::super::buffers::{Hold, Piece, Sender, copy_out};
use super::super::timers::Owner;
use super::super::upward::{Came, Ends, flow_key};
use super::collapse::collapse;
use super::listener::Listener;
use super::transmit::Transmit;
use super::{Tcp, error_of};

/// Minimum and maximum size of the send buffer (Linux: `net.ipv4.tcp_wmem`).
const BUFFER: (u64, u64) = (87_040, 4 << 20);
/// Bytes of the socket structure that an operation touches (Linux: `struct tcp_sock`'s hot lines).
const HOT: usize = 256;

/// A connection.
pub struct TcpSocket {
    tcp: Weak<Tcp>,
    me: Weak<Self>,
    pub number: Owner,
    pub(super) ends: Ends,
    connection: RefCell<Connection<Piece>>,
    transmit: Transmit,
    lock: SpinLock,
    /// Address of the socket structure.
    pub memory: PhysAddr,
    listener: RefCell<Option<Weak<Listener>>>,
    readable: WaitQueue,
    writable: WaitQueue,
    /// Core that last had a reason to set it.
    timer_core: Cell<CpuId>,
    pushing: Cell<bool>,
    pub(super) closed: Cell<bool>,
    no_way: Cell<bool>,
    /// Size of the send buffer, if set by the program.
    send_buffer: Cell<Option<u32>>,
}

impl Sender for TcpSocket {
    fn packet_gone(&self, cpu: &Cpu) {
        if self.transmit.may_go_on() {
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
            transmit: Transmit::new(ends, me.clone() as _),
            lock: SpinLock::default(),
            memory,
            listener: RefCell::new(listener),
            readable: WaitQueue::new(),
            writable: WaitQueue::new(),
            timer_core: Cell::new(CpuId(0)),
            pushing: Cell::new(false),
            closed: Cell::new(false),
            no_way: Cell::new(false),
            send_buffer: Cell::new(None),
        })
    }

    /// Locks the socket and accesses its structure, whose lines move between the cores that use it.
    fn touch(&self, cpu: &Cpu) {
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
        let lacks_memory = self.connection.borrow().lacks_memory(&piece);
        if let Some(tcp) = self.tcp.upgrade().filter(|_| lacks_memory) {
            let collapsed = collapse(cpu, tcp.means.memory(), &self.connection);
            tcp.means.count(|c| c.collapsed += collapsed);
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
        self.transmit.timer(cpu);
        let timeouts = || self.connection.borrow().counters().timeouts;
        let before = timeouts();
        self.connection.borrow_mut().timer(cpu.now());
        tcp.means.count(|c| c.tcp_timeouts += timeouts() - before);
        self.push(cpu);
    }

    /// When the timer should expire.
    pub fn deadline(&self) -> Option<Time> {
        let deadlines = [self.connection.borrow().deadline(), self.transmit.deadline()];
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

    /// Sends what can be sent, and wakes waiters of what has changed.
    pub fn push(&self, cpu: &Cpu) {
        let Some(tcp) = self.tcp.upgrade() else { return };
        // Dropped packets call back here at once.
        if self.pushing.replace(true) {
            return;
        }
        let _part = cpu.book(Part::Net);
        let lock = self.lock.lock(cpu);
        let counted = || {
            let connection = self.connection.borrow();
            let counters = connection.counters();
            (counters.tail_probes, counters.retransmissions)
        };
        let (probes, again) = counted();
        self.transmit.send_segments(cpu, &tcp, &self.connection);
        let after = counted();
        tcp.means.count(|c| {
            c.tcp_tail_probes += after.0 - probes;
            c.tcp_segments_again += after.1 - again;
        });
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
            self.transmit.clear(cpu);
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

    /// Sends the end of a program's write.
    fn push_rest(&self, cpu: &Cpu, tcp: &Tcp) {
        let corks = self.transmit.corks(tcp, &self.connection.borrow());
        if !corks {
            self.push(cpu);
        }
    }

    fn set_timer(&self, cpu: &Cpu, tcp: &Tcp) {
        self.timer_core.set(cpu.id());
        tcp.timers.arm(cpu, self.number, self.deadline());
    }

    /// Room in the send buffer: its set size, or twice the congestion window.
    fn room(&self) -> u64 {
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

    // For programs.

    /// Room in the send buffer, if any, or why no more can be written.
    fn may_send(&self) -> Option<Result<u64, Error>> {
        let connection = self.connection.borrow();
        if let Some(error) = error_of(&connection) {
            return Some(Err(error));
        }
        if !connection.may_write() {
            return Some(Err(Error::Ended));
        }
        drop(connection);
        Some(self.room()).filter(|&room| room > 0).map(Ok)
    }

    /// Waits for room in the send buffer. Always syncs, so that a program that always finds room cannot run ahead
    /// without limit.
    async fn wait_for_room(&self, cpu: &Cpu) -> Result<u64, Error> {
        if self.may_send().is_some() {
            cpu.sync().await;
        }
        self.writable.wait_for(|| self.may_send()).await
    }

    /// `Some(true)` if there is data, `Some(false)` at the end of the stream, an error if none will come, and `None`
    /// while waiting.
    fn may_recv(&self) -> Option<Result<bool, Error>> {
        let connection = self.connection.borrow();
        match (connection.readable() > 0, connection.at_end()) {
            (true, _) => Some(Ok(true)),
            (false, true) => match error_of(&connection) {
                None | Some(Error::Ended) => Some(Ok(false)),
                Some(error) => Some(Err(error)),
            },
            _ => None,
        }
    }

    /// Copies as much as fits into the send buffer and sends packets that are complete. Returns the bytes copied.
    fn take_in(&self, cpu: &Cpu, tcp: &Tcp, room: u64, from: PhysAddr, most: u64) -> Result<u64, Error> {
        self.touch(cpu);
        let taken = self.transmit.copy_in(cpu, tcp, from, room.min(most))?;
        let whole_packets = || self.transmit.whole_packets(tcp, &self.connection.borrow());
        let before = whole_packets();
        self.connection.borrow_mut().write(taken);
        if whole_packets() > before {
            self.push(cpu);
        }
        Ok(taken)
    }

    /// As [`take_in`](Self::take_in), for the end of a program's write.
    fn take_last(&self, cpu: &Cpu, tcp: &Tcp, room: u64, from: Segment) -> Result<u32, Error> {
        let taken = self.take_in(cpu, tcp, room, from.at, from.length.into());
        self.push_rest(cpu, tcp);
        taken.map(|taken| taken as u32)
    }

    /// Copies all data into the send buffer, waiting for room as needed.
    async fn take_all(&self, cpu: &Cpu, tcp: &Tcp, from: Segment) -> Result<(), Error> {
        let (mut done, length) = (0, u64::from(from.length));
        while done < length {
            if self.may_send().is_none() {
                self.push(cpu);
            }
            let room = self.wait_for_room(cpu).await?;
            done += self.take_in(cpu, tcp, room, from.at + done, length - done)?;
        }
        Ok(())
    }

    /// Copies received data to user memory, as far as it fits. Returns the bytes copied.
    fn recv_now(&self, cpu: &Cpu, tcp: &Tcp, into: Segment) -> u32 {
        // The program may have woken up on another core.
        self.used_here(cpu, tcp);
        self.touch(cpu);
        let mut done = 0;
        while done < into.length {
            let piece = self.connection.borrow_mut().read(cpu.now());
            let Some(mut piece) = piece else { break };
            let copied = {
                let _part = cpu.book(Part::Copy);
                copy_out(cpu, &piece, into.at + u64::from(done), into.length - done)
            };
            done += copied;
            if copied < piece.len() {
                piece.drop_front(copied);
                self.connection.borrow_mut().unread(piece);
                break;
            }
            piece.release(cpu);
        }
        self.connection.borrow_mut().reading_done();
        self.push(cpu);
        done
    }

    fn enter(&self, cpu: &Cpu) -> Result<Rc<Tcp>, Error> {
        let tcp = self.tcp.upgrade().ok_or(Error::NoDevice)?;
        cpu.work(tcp.means.costs().syscall + tcp.means.costs().socket);
        self.used_here(cpu, &tcp);
        Ok(tcp)
    }

    /// Records that a program uses the socket on this core, for flow steering.
    fn used_here(&self, cpu: &Cpu, tcp: &Tcp) {
        tcp.steering.used_here(cpu, flow_key(protocol::TCP, self.ends.peer, self.ends.local));
    }
}

impl TcpStream for TcpSocket {
    fn local(&self) -> SocketAddrV4 {
        self.ends.local
    }

    fn peer(&self) -> SocketAddrV4 {
        self.ends.peer
    }

    fn send<'a>(&'a self, cpu: &'a Cpu, from: Segment) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Net);
            let tcp = self.enter(cpu)?;
            let taken = self.take_all(cpu, &tcp, from).await;
            self.push_rest(cpu, &tcp);
            taken
        })
    }

    fn send_some<'a>(&'a self, cpu: &'a Cpu, from: Segment) -> Async<'a, Result<u32, Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Net);
            let tcp = self.enter(cpu)?;
            if from.length == 0 {
                return Ok(0);
            }
            let room = self.wait_for_room(cpu).await?;
            self.take_last(cpu, &tcp, room, from)
        })
    }

    fn try_send(&self, cpu: &Cpu, from: Segment) -> Result<u32, Error> {
        let _part = cpu.book(Part::Net);
        let tcp = self.enter(cpu)?;
        if from.length == 0 {
            return Ok(0);
        }
        let room = self.may_send().unwrap_or(Err(Error::WouldBlock))?;
        self.take_last(cpu, &tcp, room, from)
    }

    fn sendfile<'a>(
        &'a self,
        cpu: &'a Cpu,
        file: &'a dyn BlockFile,
        offset: u64,
        length: u64,
    ) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Net);
            self.enter(cpu)?;
            let mut done = 0;
            while done < length {
                // At most the pages of a pipe (Linux: 16, 64 KiB).
                let most = self.wait_for_room(cpu).await?.min(length - done).min(64 << 10);
                let range = file.cached(cpu, offset + done, most, Default::default()).await?;
                if !self.connection.borrow().may_write() {
                    return Err(error_of(&self.connection.borrow()).unwrap_or(Error::Ended));
                }
                let mut taken = 0;
                for segment in &range.segments {
                    let hold = Hold::Cached(Rc::clone(&range.hold));
                    self.transmit.append(segment.at, segment.length, hold);
                    taken += u64::from(segment.length);
                }
                self.connection.borrow_mut().write(taken);
                done += taken;
                self.touch(cpu);
                self.push(cpu);
            }
            Ok(())
        })
    }

    fn recv<'a>(&'a self, cpu: &'a Cpu, into: Segment) -> Async<'a, Result<u32, Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Net);
            let tcp = self.enter(cpu)?;
            // Wait before taking any data, so that nothing is lost if the caller stops waiting.
            if self.may_recv().is_some() {
                cpu.sync().await;
            }
            let some = self.readable.wait_for(|| self.may_recv()).await?;
            Ok(if some { self.recv_now(cpu, &tcp, into) } else { 0 })
        })
    }

    fn try_recv(&self, cpu: &Cpu, into: Segment) -> Result<u32, Error> {
        let _part = cpu.book(Part::Net);
        let tcp = self.enter(cpu)?;
        let some = self.may_recv().unwrap_or(Err(Error::WouldBlock))?;
        Ok(if some { self.recv_now(cpu, &tcp, into) } else { 0 })
    }

    fn readable(&self) -> Async<'_, ()> {
        Box::pin(self.readable.wait_for(|| self.may_recv().map(|_| ())))
    }

    fn writable(&self) -> Async<'_, ()> {
        Box::pin(self.writable.wait_for(|| self.may_send().map(|_| ())))
    }

    fn set_buffers(&self, sizes: BufferSizes) {
        // Linux: SOCK_MIN_SNDBUF and SOCK_MIN_RCVBUF, half of which is payload.
        if let Some(send) = sizes.send {
            self.send_buffer.set(Some(send.max(2_304)));
        }
        if let Some(receive) = sizes.receive {
            self.connection.borrow_mut().set_receive_buffer(receive.max(1_152));
        }
    }

    fn shutdown(&self, cpu: &Cpu) {
        if self.enter(cpu).is_ok() && self.connection.borrow().may_write() {
            self.connection.borrow_mut().finish();
            self.push(cpu);
        }
    }

    fn close(&self, cpu: &Cpu) {
        if self.closed.replace(true) {
            return;
        }
        let _ = self.enter(cpu);
        if self.connection.borrow().state() != State::Closed {
            self.connection.borrow_mut().close(cpu.now());
        }
        self.push(cpu);
    }

    fn set_no_delay(&self, on: bool) {
        self.connection.borrow_mut().set_no_delay(on);
    }

    fn set_keep_alive(&self, cpu: &Cpu, how: Option<KeepAlive>) {
        let Ok(tcp) = self.enter(cpu) else { return };
        let how =
            how.map(|KeepAlive { idle, interval, probes }| inet::tcp::KeepAlive { idle, interval, probes });
        self.connection.borrow_mut().set_keep_alive(how);
        self.set_timer(cpu, &tcp);
    }

    fn info(&self) -> TcpInfo {
        let connection = self.connection.borrow();
        let counters = connection.counters();
        TcpInfo {
            round_trip: connection.round_trip(),
            congestion_window: connection.congestion_window(),
            retransmissions: counters.retransmissions,
            timeouts: counters.timeouts,
            tail_probes: counters.tail_probes,
            marked: counters.marked,
            echoes: counters.echoes,
            undone: counters.undone,
            out_of_order: counters.out_of_order,
            receive_memory: connection.memory(),
            pruned: connection.pruned(),
            written: connection.acknowledged() + connection.unacknowledged(),
        }
    }
}
