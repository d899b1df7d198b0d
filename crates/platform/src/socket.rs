//! Sockets for programs. User memory is given by physical address; system calls cost what the kernel charges.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use units::Duration;

use crate::block::Segment;
use crate::cpu::{Async, Cpu};
use crate::error::Error;
use crate::storage::BlockFile;

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceInfo {
    /// The device's name.
    pub device: String,
    /// Address; 0.0.0.0 if it has none.
    pub address: Ipv4Addr,
    /// Bits of it that name the network.
    pub prefix: u8,
    /// Largest packet without its Ethernet header.
    pub mtu: u16,
}

/// Counters of the Internet protocols.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InetCounters {
    /// Packets received from devices and from this host itself. Each of these and each
    /// [`reassembled`](Self::reassembled) one is counted once more: as [`refused`](Self::refused), in
    /// [`bad_checksums`](Self::bad_checksums), in one of the next four, or in [`fragments_in`](Self::fragments_in).
    pub packets_in: u64,
    /// ARP messages received.
    pub arp_in: u64,
    /// UDP datagrams received, with or without a socket.
    pub udp_in: u64,
    /// ICMP messages received.
    pub icmp_in: u64,
    /// Packets refused: malformed, of unknown type, or not for this host.
    pub refused: u64,
    /// Packets with a wrong checksum.
    pub bad_checksums: u64,
    /// TCP segments received, before coalescing.
    pub tcp_segments_in: u64,
    /// Segments coalesced into an earlier one.
    pub coalesced: u64,
    /// Segments copied together with others because they used much more memory than their data.
    pub collapsed: u64,
    /// TCP packets received ahead of data that was still missing (Linux: `TCPOFOQueue`), after coalescing.
    pub tcp_out_of_order: u64,
    /// Expirations of retransmission timers (Linux: `TCPTimeouts`).
    pub tcp_timeouts: u64,
    /// Tail loss probes sent (Linux: `TCPLossProbes`).
    pub tcp_tail_probes: u64,
    /// Segments sent again (Linux: `TcpRetransSegs`).
    pub tcp_segments_again: u64,
    /// TCP packets sent, each of one or more segments.
    pub tcp_packets_out: u64,
    /// Resets sent.
    pub resets: u64,
    /// Packets without a socket.
    pub unwanted: u64,
    /// Packets dropped because a socket's buffer was full.
    pub socket_full: u64,
    /// Packets dropped because a neighbour did not answer.
    pub unreachable: u64,
    /// Packets dropped for lack of memory.
    pub no_memory: u64,
    /// Fragments received.
    pub fragments_in: u64,
    /// Fragments sent.
    pub fragments_out: u64,
    /// Packets reassembled from fragments.
    pub reassembled: u64,
    /// Packets not reassembled: timeout, contradicting fragments, or no memory.
    pub reassembly_failed: u64,
    /// Flows steered to the queue of their reader's core.
    pub steered: u64,
    /// Failed attempts of that.
    pub steer_failed: u64,
    /// Rules removed because their flows were idle.
    pub steer_expired: u64,
    /// Packets that waited for older ones of their flow in another RX queue.
    pub steer_held: u64,
    /// Packets passed to another core for processing.
    pub to_other_core: u64,
    /// Packets dropped because a core's backlog was full.
    pub backlog_full: u64,
}

/// State and counters of a TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpInfo {
    /// Smoothed round-trip time.
    pub round_trip: Option<Duration>,
    /// Congestion window, in bytes.
    pub congestion_window: u64,
    /// Segments retransmitted.
    pub retransmissions: u64,
    /// Expirations of the retransmission timer.
    pub timeouts: u64,
    /// Tail loss probes sent.
    pub tail_probes: u64,
    /// Segments received with an ECN mark.
    pub marked: u64,
    /// Reductions of the congestion window after the peer reported ECN marks.
    pub echoes: u64,
    /// Reductions of the congestion window undone because nothing had been lost.
    pub undone: u64,
    /// Segments received out of order.
    pub out_of_order: u64,
    /// Memory used by received data (bytes; `SO_MEMINFO`).
    pub receive_memory: u64,
    /// Received segments dropped for lack of memory, to be retransmitted.
    pub pruned: u64,
    /// Bytes that programs have written to the socket's buffer so far. Shows the progress of a
    /// [`send`](TcpStream::send) that was dropped.
    pub written: u64,
}

/// Socket buffer sizes (`SO_SNDBUF`, `SO_RCVBUF`) in bytes of payload; the same amount is added for packet overhead,
/// as Linux doubles the requested size. Disables automatic sizing; `None` leaves a size unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BufferSizes {
    /// Send buffer.
    pub send: Option<u32>,
    /// Receive buffer. A TCP connection does not shrink the window that it has advertised.
    pub receive: Option<u32>,
}

/// Keep-alive of an idle connection (Linux: `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// Idle time before the first probe.
    pub idle: Duration,
    /// Interval between probes.
    pub interval: Duration,
    /// Unanswered probes after which the connection is closed.
    pub probes: u8,
}

impl KeepAlive {
    /// Linux's defaults: `net.ipv4.tcp_keepalive_time`, `tcp_keepalive_intvl` and `tcp_keepalive_probes`.
    pub const fn linux() -> Self {
        Self { idle: Duration::from_ms(7_200_000), interval: Duration::from_ms(75_000), probes: 9 }
    }
}

/// A TCP connection. Dropping it does not close it; use [`close`](Self::close).
///
/// A call dropped before it completes has transferred no bytes, except for [`send`](Self::send) and
/// [`sendfile`](Self::sendfile): part of their data may have been taken, as [`TcpInfo::written`] tells.
pub trait TcpStream {
    /// Local endpoint.
    fn local(&self) -> SocketAddrV4;
    /// Remote endpoint.
    fn peer(&self) -> SocketAddrV4;
    /// Sends bytes from user memory; completes when all are in the socket's buffer.
    ///
    /// # Errors
    /// If the connection has ended; [`Error::NoMemory`].
    fn send<'a>(&'a self, cpu: &'a Cpu, from: Segment) -> Async<'a, Result<(), Error>>;
    /// Waits for room and sends as many bytes as fit. Returns the number.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn send_some<'a>(&'a self, cpu: &'a Cpu, from: Segment) -> Async<'a, Result<u32, Error>>;
    /// Sends as many bytes as fit now. Returns the number.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`Error::WouldBlock`] if there is no room.
    fn try_send(&self, cpu: &Cpu, from: Segment) -> Result<u32, Error>;
    /// Sends a range of a file from the page cache without copying it.
    ///
    /// # Errors
    /// As [`send`](Self::send), and the file's.
    fn sendfile<'a>(
        &'a self,
        cpu: &'a Cpu,
        file: &'a dyn BlockFile,
        offset: u64,
        length: u64,
    ) -> Async<'a, Result<(), Error>>;
    /// Waits for data and receives as much as fits; 0 at the end of the stream.
    ///
    /// # Errors
    /// If the connection failed.
    fn recv<'a>(&'a self, cpu: &'a Cpu, into: Segment) -> Async<'a, Result<u32, Error>>;
    /// Receives available data, as much as fits; 0 at the end of the stream.
    ///
    /// # Errors
    /// As [`recv`](Self::recv); [`Error::WouldBlock`] if there is none.
    fn try_recv(&self, cpu: &Cpu, into: Segment) -> Result<u32, Error>;
    /// Waits until there is data, or the stream has ended or failed: until [`try_recv`](Self::try_recv) would not
    /// block.
    fn readable(&self) -> Async<'_, ()>;
    /// Waits until there is room, or the stream has ended or failed: until [`try_send`](Self::try_send) would not
    /// block.
    fn writable(&self) -> Async<'_, ()>;
    /// Ends the sending direction of the stream.
    fn shutdown(&self, cpu: &Cpu);
    /// Closes the socket; the connection ends in the background.
    fn close(&self, cpu: &Cpu);
    /// Sends small segments at once (`TCP_NODELAY`).
    fn set_no_delay(&self, on: bool);
    /// Sets keep-alive probing of an idle peer (`SO_KEEPALIVE`).
    fn set_keep_alive(&self, cpu: &Cpu, how: Option<KeepAlive>);
    /// Sets the sizes of the send and receive buffers.
    fn set_buffers(&self, sizes: BufferSizes);
    /// State and counters.
    fn info(&self) -> TcpInfo;
}

/// A TCP socket that accepts connections.
pub trait TcpListener {
    /// Local endpoint.
    fn local(&self) -> SocketAddrV4;
    /// Waits for a connection.
    ///
    /// # Errors
    /// If the socket is closed.
    fn accept<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<Rc<dyn TcpStream>, Error>>;
    /// Takes a connection, if there is one.
    ///
    /// # Errors
    /// As [`accept`](Self::accept); [`Error::WouldBlock`] if there is none.
    fn try_accept(&self, cpu: &Cpu) -> Result<Rc<dyn TcpStream>, Error>;
    /// Waits until there is one, or the socket is closed.
    fn readable(&self) -> Async<'_, ()>;
    /// Stops listening.
    fn close(&self, cpu: &Cpu);
}

/// A UDP socket: datagrams, which may be lost or change their order.
pub trait UdpSocket {
    /// Local endpoint.
    fn local(&self) -> SocketAddrV4;
    /// Sends a datagram from user memory, once the send buffer has room. Larger ones are fragmented. If a queue below
    /// is full, the datagram is dropped silently, as in Linux; the device counts it.
    ///
    /// # Errors
    /// If it is larger than 65,507 bytes or the destination is unreachable; [`Error::Ended`] if the socket is closed,
    /// [`Error::NoMemory`].
    fn send_to<'a>(&'a self, cpu: &'a Cpu, to: SocketAddrV4, from: Segment) -> Async<'a, Result<(), Error>>;
    /// As [`send_to`](Self::send_to), without waiting.
    ///
    /// # Errors
    /// As there; [`Error::WouldBlock`] if the send buffer is full.
    fn try_send_to(&self, cpu: &Cpu, to: SocketAddrV4, from: Segment) -> Result<(), Error>;
    /// Waits for a datagram; excess bytes are lost. Returns its size and sender.
    ///
    /// # Errors
    /// If the socket is closed.
    fn recv_from<'a>(&'a self, cpu: &'a Cpu, into: Segment) -> Async<'a, Result<(u32, SocketAddrV4), Error>>;
    /// Takes a datagram, if there is one; excess bytes are lost.
    ///
    /// # Errors
    /// If the socket is closed; [`Error::WouldBlock`] if there is none.
    fn try_recv_from(&self, cpu: &Cpu, into: Segment) -> Result<(u32, SocketAddrV4), Error>;
    /// Waits until there is one, or the socket is closed.
    fn readable(&self) -> Async<'_, ()>;
    /// Waits until the send buffer is at most half full, or the socket is closed.
    fn writable(&self) -> Async<'_, ()>;
    /// Sets the sizes of the send and receive buffers.
    fn set_buffers(&self, sizes: BufferSizes);
    /// Closes the socket and frees the port.
    fn close(&self, cpu: &Cpu);
}

/// A reply to an echo request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo {
    /// Sequence number of the request.
    pub sequence: u16,
    /// Sender of the reply.
    pub from: Ipv4Addr,
    /// Bytes of ICMP header and data.
    pub bytes: u32,
    /// Remaining time to live of the packet.
    pub ttl: u8,
    /// Whether the data equals the request's.
    pub intact: bool,
}

/// A socket for ICMP echo.
pub trait PingSocket {
    /// Sends an echo request with `data` bytes of payload.
    ///
    /// # Errors
    /// If the host is unreachable or there is no room.
    fn send(&self, cpu: &Cpu, to: Ipv4Addr, sequence: u16, data: u16) -> Result<(), Error>;
    /// Waits for a reply until `deadline`.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if none came, [`Error::Unreachable`] if the host is unreachable.
    fn recv<'a>(&'a self, cpu: &'a Cpu, deadline: units::Time) -> Async<'a, Result<Echo, Error>>;
}

/// A route, as in `ip route add NETWORK/PREFIX [via GATEWAY] [dev DEVICE]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The network's address.
    pub network: Ipv4Addr,
    /// Prefix length, 0 to 32.
    pub prefix: u8,
    /// Interface; by default the gateway's.
    pub device: Option<String>,
    /// Gateway; by default the network is directly connected.
    pub gateway: Option<Ipv4Addr>,
}

/// The Internet protocols of a kernel.
pub trait Network {
    /// Interfaces as in `ip address`, including the loopback.
    fn interfaces(&self) -> Vec<InterfaceInfo>;
    /// Assigns an address to a device and opens it.
    ///
    /// # Errors
    /// If there is no such device, or it cannot be opened.
    fn configure<'a>(
        &'a self,
        cpu: &'a Cpu,
        device: &'a str,
        address: Ipv4Addr,
        prefix: u8,
    ) -> Async<'a, Result<(), Error>>;
    /// Adds a route. The route with the longest matching prefix is used; packets without a route fail with
    /// [`Error::Unreachable`].
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no such interface, [`Error::Unreachable`] if the gateway is not directly
    /// connected, [`Error::Invalid`] if neither is given or the prefix is too long.
    fn add_route(&self, route: &Route) -> Result<(), Error>;
    /// Opens a connection from a suitable address and a free port. If the call is dropped, the connection is closed.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::TimedOut`], [`Error::Unreachable`].
    fn connect<'a>(&'a self, cpu: &'a Cpu, to: SocketAddrV4) -> Async<'a, Result<Rc<dyn TcpStream>, Error>> {
        self.connect_from(cpu, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), to)
    }
    /// Opens a connection from a given address and port, as bind(2) before connect(2). 0.0.0.0 selects a suitable
    /// address, port 0 a free port.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); [`Error::Invalid`] if the address is not local, [`Error::AddressInUse`].
    fn connect_from<'a>(
        &'a self,
        cpu: &'a Cpu,
        from: SocketAddrV4,
        to: SocketAddrV4,
    ) -> Async<'a, Result<Rc<dyn TcpStream>, Error>>;
    /// Listens for connections; 0.0.0.0 means all addresses.
    ///
    /// # Errors
    /// [`Error::AddressInUse`].
    fn listen(&self, cpu: &Cpu, at: SocketAddrV4, backlog: usize) -> Result<Rc<dyn TcpListener>, Error>;
    /// Creates a UDP socket; port 0 selects a free port.
    ///
    /// # Errors
    /// [`Error::AddressInUse`].
    fn udp(&self, cpu: &Cpu, at: SocketAddrV4) -> Result<Rc<dyn UdpSocket>, Error>;
    /// Creates a socket for ICMP echo.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are too many.
    fn ping(&self, cpu: &Cpu) -> Result<Rc<dyn PingSocket>, Error>;
    /// The interface by which packets to a host leave, as in `ip route get`; `None` if there is no route, or they go to
    /// this host itself.
    fn route_to(&self, to: Ipv4Addr) -> Option<InterfaceInfo>;
    /// Counters of the protocols.
    fn counters(&self) -> InetCounters;
}
