//! A connection's interface for programs.

use std::net::SocketAddrV4;
use std::rc::Rc;

use inet::tcp::{Payload, State};
use platform::Error;
use platform::block::Segment;
use platform::cpu::{Async, Cpu, Part};
use platform::memory::PhysAddr;
use platform::socket::{BufferSizes, KeepAlive, TcpInfo, TcpStream};
use platform::storage::BlockFile;
use wire::ip::protocol;

use super::super::buffers::{Hold, copy_out};
use super::super::steering::flow_key;
use super::buffer::ORDER;
use super::socket::TcpSocket;
use super::{Tcp, error_of};

impl TcpSocket {
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
        let taken = self.copy_in(cpu, tcp, from, room.min(most))?;
        let before = self.whole_packets(tcp);
        self.connection.borrow_mut().write(taken);
        if self.whole_packets(tcp) > before {
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

    /// Copies user memory into the buffer's pages. Returns the bytes copied.
    fn copy_in(&self, cpu: &Cpu, tcp: &Tcp, from: PhysAddr, most: u64) -> Result<u64, Error> {
        let room = self.buffer.borrow().room();
        let (at, room) = match room {
            Some(room) => room,
            None => {
                let pages = Hold::pages(tcp.means.memory(), cpu, ORDER)?;
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
