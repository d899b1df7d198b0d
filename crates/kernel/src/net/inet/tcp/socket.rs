//! A connection's socket: between the protocol's machine, its memory, and the program.

use std::cell::{Cell, RefCell};
use std::net::SocketAddrV4;
use std::rc::{Rc, Weak};

use inet::tcp::{Connection, Payload, Segment as TcpSegment, State};
use platform::Error;
use platform::block::Segment;
use platform::cpu::{Async, Cpu, Part};
use platform::lock::SpinLock;
use platform::memory::PhysAddr;
use platform::net::TxFlow;
use platform::socket::{BufferSizes, KeepAlive, TcpInfo, TcpStream};
use platform::storage::BlockFile;
use platform::sync::WaitQueue;
use units::{Duration, Time};
use wire::ip::{TcpHeader, protocol};

use super::super::Stack;
use super::super::buffers::{Hold, Piece, Sender, copy_out, waits_below};
use super::super::output::Outgoing;
use super::super::steering::flow_key;
use super::super::timers::Owner;
use super::buffer::{ORDER, SendBuffer};
use super::listener::Listener;
use super::{Came, Ends, error_of};

/// Bytes of a connection that may be with the device or before it (Linux: TCP small queues, `tcp_limit_output_bytes`).
const MOST_BELOW: u64 = 262_144;
/// Bytes that a socket's buffer holds at least and at most (Linux: `net.ipv4.tcp_wmem`).
const BUFFER: (u64, u64) = (87_040, 4 << 20);
/// For how long pages are kept for what may be written next when all that was has been acknowledged (assumed: Linux keeps
/// such pages with the task that writes, so that connections at rest have none).
const KEEP_PAGES: Duration = Duration::from_ms(1000);
/// Bytes of the socket's structure that an operation on it touches (Linux: `struct tcp_sock`'s hot lines).
const HOT: usize = 256;

/// A connection.
pub struct TcpSocket {
    pub(super) stack: Weak<Stack>,
    me: Weak<Self>,
    pub number: Owner,
    pub(super) ends: Ends,
    pub(super) connection: RefCell<Connection<Piece>>,
    buffer: RefCell<SendBuffer>,
    flow: Rc<TxFlow>,
    lock: SpinLock,
    /// Where its structure lies.
    pub memory: PhysAddr,
    listener: RefCell<Option<Weak<Listener>>>,
    readable: WaitQueue,
    writable: WaitQueue,
    /// When the timer is set to go off.
    armed: Cell<Option<Time>>,
    pushing: Cell<bool>,
    /// Something waits until the device has sent more.
    held_back: Cell<bool>,
    /// When the pages go that are kept for what may be written next.
    pages_until: Cell<Option<Time>>,
    closed: Cell<bool>,
    no_way: Cell<bool>,
    /// Bytes that its buffer is to take, if somebody said.
    send_buffer: Cell<Option<u32>>,
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
        stack: Weak<Stack>,
        number: Owner,
        ends: Ends,
        connection: Connection<Piece>,
        memory: PhysAddr,
        listener: Option<Weak<Listener>>,
    ) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            stack,
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
            armed: Cell::new(None),
            pushing: Cell::new(false),
            held_back: Cell::new(false),
            pages_until: Cell::new(None),
            closed: Cell::new(false),
            no_way: Cell::new(false),
            send_buffer: Cell::new(None),
        })
    }

    /// Locks the socket, and loads and stores its structure, which moves between the cores that use it.
    fn touch(&self, cpu: &Cpu) {
        drop(self.lock.lock(cpu));
        cpu.load(self.memory, &mut [0; HOT]);
        cpu.store(self.memory, &[0; HOT / 2]);
    }

    /// A segment arrived.
    pub(super) fn input(&self, cpu: &Cpu, header: &TcpHeader, piece: Piece, came: Came) {
        self.touch(cpu);
        if came.marked {
            self.connection.borrow_mut().congestion_experienced();
        }
        if self.connection.borrow().lacks_memory(&piece) {
            self.collapse(cpu);
        }
        self.connection.borrow_mut().receive(cpu.now(), header, piece, came.segments);
        self.push(cpu);
    }

    /// The timer is due.
    pub fn timer(&self, cpu: &Cpu) {
        self.armed.set(None);
        self.touch(cpu);
        if self.pages_until.get().is_some_and(|until| until <= cpu.now()) {
            self.buffer.borrow_mut().clear(cpu);
        }
        self.connection.borrow_mut().timer(cpu.now());
        self.push(cpu);
    }

    /// When it wants to be called.
    pub fn deadline(&self) -> Option<Time> {
        let deadlines = [self.connection.borrow().deadline(), self.pages_until.get()];
        deadlines.into_iter().flatten().min()
    }

    /// Nobody answers for the peer's address.
    pub fn unreachable(&self, cpu: &Cpu) {
        if self.connection.borrow().state() == State::SynSent {
            self.no_way.set(true);
            self.connection.borrow_mut().abort();
            self.push(cpu);
        }
    }

    /// Whether no more of it may go to the device, where it would wait.
    fn is_full_below(&self) -> bool {
        waits_below(&self.flow) >= MOST_BELOW
    }

    /// Sends what there is to send, and tells whoever waits what has changed.
    pub fn push(&self, cpu: &Cpu) {
        let Some(stack) = self.stack.upgrade() else { return };
        // Packets that are dropped on the spot come back here.
        if self.pushing.replace(true) {
            return;
        }
        let _part = cpu.book(Part::Net);
        let lock = self.lock.lock(cpu);
        self.send_segments(cpu, &stack);
        self.pushing.set(false);
        let discarded: Vec<Piece> = self.connection.borrow_mut().discarded().collect();
        discarded.into_iter().for_each(|piece| piece.release(cpu));
        let orphaned = self.tell(cpu, &stack);
        self.set_timer(cpu, &stack);
        drop(lock);
        if orphaned {
            self.close(cpu);
        }
        if self.connection.borrow().state() == State::Closed {
            self.buffer.borrow_mut().clear(cpu);
            if self.closed.get() {
                stack.remove_socket(cpu, self);
            }
        }
    }

    fn send_segments(&self, cpu: &Cpu, stack: &Stack) {
        let Some(kernel) = stack.kernel.upgrade() else { return };
        let (limit, pieces) = self.limits(stack);
        self.held_back.set(false);
        loop {
            let full = self.is_full_below();
            let mut connection = self.connection.borrow_mut();
            let segment = if full && connection.unsent() > 0 {
                // Acknowledgements and resets go out whatever the queues below hold.
                self.held_back.set(true);
                connection.transmit_control(cpu.now())
            } else {
                // Not more than fits into a packet's pieces.
                let next = connection.acknowledged() + connection.unacknowledged() - connection.unsent();
                let reach = self.buffer.borrow().reach(next, pieces).min(limit.into()) as u32;
                connection.transmit(cpu.now(), if limit == 0 { 0 } else { reach })
            };
            drop(connection);
            let Some(segment) = segment else { break };
            cpu.work(kernel.cores.costs.tcp_output);
            stack.count(|c| c.tcp_packets_out += 1);
            self.send_segment(cpu, stack, &segment, pieces);
        }
        let (acknowledged, may_write) =
            (self.connection.borrow().acknowledged(), self.connection.borrow().may_write());
        let mut buffer = self.buffer.borrow_mut();
        buffer.acknowledge(cpu, acknowledged);
        // What has sent its last keeps no pages while it waits for the peer, or for old segments to die.
        if buffer.is_empty() && !may_write {
            buffer.clear(cpu);
        }
        let rests = buffer.is_empty() && buffer.is_open();
        self.pages_until.set(rests.then(|| self.pages_until.get().unwrap_or(cpu.now() + KEEP_PAGES)));
    }

    /// Bytes that a packet may carry beyond a segment's, and its pieces beside the headers.
    fn limits(&self, stack: &Stack) -> (u32, usize) {
        let device = stack.way(*self.ends.peer.ip()).and_then(|(interface, _, _)| {
            stack.interfaces.borrow().get(interface).and_then(|i| i.device.clone())
        });
        let Some(device) = device else { return (0, usize::MAX) };
        let features = device.features();
        let pieces = usize::from(features.max_fragments).saturating_sub(1).max(1);
        // Headers, and no more than IPv4 can say.
        let most = features.tso_max.min(65_535).saturating_sub(120);
        (if features.tso { most } else { 0 }, pieces)
    }

    fn send_segment(&self, cpu: &Cpu, stack: &Stack, segment: &TcpSegment, pieces: usize) {
        let mut bytes = [0; 60];
        let length = segment.header.emit(&mut bytes);
        let data = segment.data.end - segment.data.start;
        let (payload, holds) = match data {
            0 => (Vec::new(), Vec::new()),
            _ => self.buffer.borrow().runs(segment.data.clone(), pieces),
        };
        let carried: u64 = payload.iter().map(|f| u64::from(f.length)).sum();
        if carried < data {
            // A segment in more pieces than the device takes: into one.
            holds.into_iter().for_each(|hold| hold.let_go(cpu));
            return self.send_in_one(cpu, stack, segment, &bytes[..length]);
        }
        let cut = data > u64::from(segment.size);
        let (own, peer) = (*self.ends.local.ip(), *self.ends.peer.ip());
        let _ = stack.send(
            cpu,
            Outgoing {
                payload,
                holds,
                segment: if cut { segment.size } else { 0 },
                flow: Some(&self.flow),
                socket: Some(self.me.clone() as _),
                ecn: segment.ecn,
                ..Outgoing::bare(own, peer, protocol::TCP, &bytes[..length])
            },
        );
    }

    /// Sends a segment whose data lies in many pieces from a copy.
    fn send_in_one(&self, cpu: &Cpu, stack: &Stack, segment: &TcpSegment, header: &[u8]) {
        let (runs, holds) = self.buffer.borrow().runs(segment.data.clone(), usize::MAX);
        let length: u64 = runs.iter().map(|f| u64::from(f.length)).sum();
        let Some(kernel) = stack.kernel.upgrade() else { return };
        let order = platform::memory::Pages::order_for(length);
        let copy = Hold::pages(&kernel, &stack.kernel, cpu, order);
        if let Ok(copy) = copy {
            if copy.pages.len() >= length {
                let mut done = 0;
                for run in &runs {
                    cpu.copy(copy.pages.start + done, run.at, run.length.into());
                    done += u64::from(run.length);
                }
                let fragment =
                    platform::net::Fragment { pages: None, at: copy.pages.start, length: length as u32 };
                let (own, peer) = (*self.ends.local.ip(), *self.ends.peer.ip());
                let _ = stack.send(
                    cpu,
                    Outgoing {
                        payload: vec![fragment],
                        holds: vec![Hold::Pages(copy)],
                        segment: if length > u64::from(segment.size) { segment.size } else { 0 },
                        flow: Some(&self.flow),
                        socket: Some(self.me.clone() as _),
                        ecn: segment.ecn,
                        ..Outgoing::bare(own, peer, protocol::TCP, header)
                    },
                );
            } else {
                Hold::Pages(copy).let_go(cpu);
                stack.count(|c| c.no_memory += 1);
            }
        } else {
            // It is sent again when the timer goes off.
            stack.count(|c| c.no_memory += 1);
        }
        holds.into_iter().for_each(|hold| hold.let_go(cpu));
    }

    /// Wakes whoever waits for what is there now. True if the connection is open and whoever listened for it is gone.
    fn tell(&self, cpu: &Cpu, stack: &Stack) -> bool {
        let connection = self.connection.borrow();
        let (state, readable) = (connection.state(), connection.readable() > 0 || connection.at_end());
        drop(connection);
        let wake = |queue: &WaitQueue| {
            if !queue.is_empty()
                && let Some(kernel) = stack.kernel.upgrade()
            {
                cpu.work(kernel.cores.costs.wake_up);
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
            // No program has it: nobody else will.
            self.closed.set(true);
        }
        let taken =
            listener.upgrade().is_some_and(|listener| listener.came(self.me.upgrade().filter(|_| open)));
        open && !taken
    }

    fn set_timer(&self, cpu: &Cpu, stack: &Stack) {
        let Some(deadline) = self.deadline() else { return };
        // A timer that goes off early looks again: it is cheaper than moving it for each segment.
        if self.armed.get().is_none_or(|at| deadline < at) {
            self.armed.set(Some(deadline));
            stack.arm_at(cpu, self.number, deadline);
        }
    }

    /// Bytes that the buffer takes: as many as it was told, or twice what may be under way.
    fn room(&self) -> u64 {
        let connection = self.connection.borrow();
        let most = match self.send_buffer.get() {
            Some(set) => u64::from(set),
            None => (2 * connection.congestion_window()).clamp(BUFFER.0, BUFFER.1),
        };
        // A little room is none: waking a writer for it costs more than it brings.
        let room = most.saturating_sub(connection.unacknowledged());
        if room >= most / 3 { room } else { 0 }
    }

    /// Waits until the connection is open.
    pub async fn opened(&self) -> Result<(), Error> {
        let ready = || match self.connection.borrow().state() {
            State::SynSent | State::SynReceived => None,
            State::Closed if self.no_way.get() => Some(Err(Error::Unreachable)),
            State::Closed => Some(Err(error_of(&self.connection.borrow()).unwrap_or(Error::Ended))),
            _ => Some(Ok(())),
        };
        self.writable.wait_for(ready).await
    }

    /// Room in the buffer, if there is any, or why nothing can be written any more.
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

    /// Waits for room in the buffer, or for the simulation to catch up: whoever always finds room would run away from it.
    async fn wait_for_room(&self, cpu: &Cpu) -> Result<u64, Error> {
        if self.may_send().is_some() {
            cpu.sync().await;
        }
        self.writable.wait_for(|| self.may_send()).await
    }

    /// Whether there are bytes to read (not so at the end of the stream), or why there will be none; `None` if nobody knows.
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

    /// Copies as much as there is room for into the buffer and sends what may go; how much it was.
    fn send_now(&self, cpu: &Cpu, stack: &Stack, room: u64, from: PhysAddr, most: u64) -> Result<u64, Error> {
        self.touch(cpu);
        let taken = self.copy_in(cpu, stack, from, room.min(most))?;
        self.connection.borrow_mut().write(taken);
        self.push(cpu);
        Ok(taken)
    }

    /// Copies what has been received to user memory, as far as it fits; how much it was.
    fn recv_now(&self, cpu: &Cpu, stack: &Stack, into: Segment) -> u32 {
        // It may have woken on another core.
        self.used_here(cpu, stack);
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

    fn enter(&self, cpu: &Cpu) -> Result<Rc<Stack>, Error> {
        let stack = self.stack.upgrade().ok_or(Error::NoDevice)?;
        let kernel = stack.kernel.upgrade().ok_or(Error::NoDevice)?;
        cpu.work(kernel.cores.costs.syscall + kernel.cores.costs.socket);
        self.used_here(cpu, &stack);
        Ok(stack)
    }

    /// A program uses it on this core: packets may come here.
    fn used_here(&self, cpu: &Cpu, stack: &Stack) {
        stack.used_here(cpu, flow_key(protocol::TCP, self.ends.peer, self.ends.local));
    }

    /// Copies user memory into the buffer's pages; how much went in.
    fn copy_in(&self, cpu: &Cpu, stack: &Stack, from: PhysAddr, most: u64) -> Result<u64, Error> {
        let room = self.buffer.borrow().room();
        let (at, room) = match room {
            Some(room) => room,
            None => {
                let kernel = stack.kernel.upgrade().ok_or(Error::NoDevice)?;
                let pages = Hold::pages(&kernel, &stack.kernel, cpu, ORDER)?;
                self.buffer.borrow_mut().open(cpu, pages);
                self.buffer.borrow().room().ok_or(Error::NoMemory)?
            }
        };
        let length = room.min(most);
        {
            let _part = cpu.book(Part::Copy);
            cpu.copy(at, from, length);
        }
        self.buffer.borrow_mut().filled(length as u32);
        Ok(length)
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
            let stack = self.enter(cpu)?;
            let (mut done, length) = (0, u64::from(from.length));
            while done < length {
                let room = self.wait_for_room(cpu).await?;
                done += self.send_now(cpu, &stack, room, from.at + done, length - done)?;
            }
            Ok(())
        })
    }

    fn send_some<'a>(&'a self, cpu: &'a Cpu, from: Segment) -> Async<'a, Result<u32, Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Net);
            let stack = self.enter(cpu)?;
            if from.length == 0 {
                return Ok(0);
            }
            let room = self.wait_for_room(cpu).await?;
            self.send_now(cpu, &stack, room, from.at, from.length.into()).map(|taken| taken as u32)
        })
    }

    fn try_send(&self, cpu: &Cpu, from: Segment) -> Result<u32, Error> {
        let _part = cpu.book(Part::Net);
        let stack = self.enter(cpu)?;
        if from.length == 0 {
            return Ok(0);
        }
        let room = self.may_send().unwrap_or(Err(Error::WouldBlock))?;
        self.send_now(cpu, &stack, room, from.at, from.length.into()).map(|taken| taken as u32)
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
                // As many pages as a pipe holds (Linux: 16, 64 KiB).
                let most = self.wait_for_room(cpu).await?.min(length - done).min(64 << 10);
                let range = file.cached(cpu, offset + done, most, Default::default()).await?;
                if !self.connection.borrow().may_write() {
                    return Err(error_of(&self.connection.borrow()).unwrap_or(Error::Ended));
                }
                let mut taken = 0;
                for segment in &range.segments {
                    let hold = Hold::Cached(Rc::clone(&range.hold));
                    self.buffer.borrow_mut().append(segment.at, segment.length, hold);
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
            let stack = self.enter(cpu)?;
            // Before anything is taken, so that nothing is lost if nobody waits for the rest.
            if self.may_recv().is_some() {
                cpu.sync().await;
            }
            let some = self.readable.wait_for(|| self.may_recv()).await?;
            Ok(if some { self.recv_now(cpu, &stack, into) } else { 0 })
        })
    }

    fn try_recv(&self, cpu: &Cpu, into: Segment) -> Result<u32, Error> {
        let _part = cpu.book(Part::Net);
        let stack = self.enter(cpu)?;
        let some = self.may_recv().unwrap_or(Err(Error::WouldBlock))?;
        Ok(if some { self.recv_now(cpu, &stack, into) } else { 0 })
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
        let Ok(stack) = self.enter(cpu) else { return };
        let how =
            how.map(|KeepAlive { idle, interval, probes }| inet::tcp::KeepAlive { idle, interval, probes });
        self.connection.borrow_mut().set_keep_alive(how);
        self.set_timer(cpu, &stack);
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
