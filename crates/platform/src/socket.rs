//! Sockets as programs use them. User memory is named by its physical place; system calls cost what the kernel says.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use units::Duration;

use crate::block::Segment;
use crate::cpu::{Async, Cpu};
use crate::error::Error;
use crate::storage::BlockFile;

/// What a network interface is called and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceInfo {
    /// The device's name.
    pub device: String,
    /// The address; 0.0.0.0 if it has none.
    pub address: Ipv4Addr,
    /// Bits of it that name the network.
    pub prefix: u8,
}

/// What the protocols have seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InetCounters {
    /// Packets received, from devices and from this host itself. These and [`reassembled`](Self::reassembled) ones are
    /// each either [`refused`](Self::refused), counted in [`bad_checksums`](Self::bad_checksums), or one of the next
    /// four or [`fragments_in`](Self::fragments_in).
    pub packets_in: u64,
    /// ARP messages received.
    pub arp_in: u64,
    /// UDP datagrams received, for sockets or for nobody.
    pub udp_in: u64,
    /// ICMP messages received.
    pub icmp_in: u64,
    /// Packets that were refused: malformed, of unknown kinds, not for this host.
    pub refused: u64,
    /// Packets whose checksum was wrong.
    pub bad_checksums: u64,
    /// TCP segments received, as they came from devices.
    pub tcp_segments_in: u64,
    /// Those that another one was joined to.
    pub coalesced: u64,
    /// Those that were copied together with others, as they kept much more memory than they showed.
    pub collapsed: u64,
    /// TCP packets sent, each for one or more segments.
    pub tcp_packets_out: u64,
    /// Resets sent.
    pub resets: u64,
    /// Packets that no socket wanted.
    pub unwanted: u64,
    /// Packets dropped since a socket's buffer was full.
    pub socket_full: u64,
    /// Packets dropped since a neighbour did not answer.
    pub unreachable: u64,
    /// Packets dropped for lack of memory.
    pub no_memory: u64,
    /// Fragments received.
    pub fragments_in: u64,
    /// Fragments sent.
    pub fragments_out: u64,
    /// Packets put together from fragments.
    pub reassembled: u64,
    /// Packets of which fragments came and others lacked for too long, contradicted them or found no memory.
    pub reassembly_failed: u64,
    /// How often a device was told to steer a flow to the queue of the core that reads it.
    pub steered: u64,
    /// How often it could not.
    pub steer_failed: u64,
    /// Rules that it was told to forget, their flows being silent.
    pub steer_expired: u64,
    /// Packets that waited for older ones of their flow in another receiving queue.
    pub steer_held: u64,
    /// Packets that went to another core to be dealt with.
    pub to_other_core: u64,
    /// Packets dropped since too many waited for a core.
    pub backlog_full: u64,
}

/// What a TCP connection knows of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpInfo {
    /// Smoothed round-trip time.
    pub round_trip: Option<Duration>,
    /// Congestion window, in bytes.
    pub congestion_window: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Times that the retransmission timer went off.
    pub timeouts: u64,
    /// Segments sent since nothing was heard of the last ones.
    pub tail_probes: u64,
    /// Segments received that a router had marked (ECN).
    pub marked: u64,
    /// Times that the peer told of marked segments and the congestion window was reduced.
    pub echoes: u64,
    /// Times that a reduction of the congestion window was undone, as nothing had been lost.
    pub undone: u64,
    /// Segments that came before others that were sent earlier.
    pub out_of_order: u64,
    /// Bytes of memory that received data keeps (`SO_MEMINFO`).
    pub receive_memory: u64,
    /// Received segments that were let go for want of such memory, and are to come again.
    pub pruned: u64,
    /// Bytes that programs have put into the socket's buffer so far: how far a [`send`](TcpStream::send) came that was
    /// given up.
    pub written: u64,
}

/// What a socket may hold (`SO_SNDBUF`, `SO_RCVBUF`): bytes of payload, beside which as much memory again is for the packets
/// that carry them, as Linux doubles what it is asked for. From then on a size stays; `None` leaves it to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BufferSizes {
    /// What is to be sent.
    pub send: Option<u32>,
    /// What was received. A TCP connection does not take back what it has offered.
    pub receive: Option<u32>,
}

/// How an idle connection is kept alive (Linux: `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// From one probe to the next.
    pub interval: Duration,
    /// Probes without an answer after which the connection is given up.
    pub probes: u8,
}

impl KeepAlive {
    /// Linux's defaults: `net.ipv4.tcp_keepalive_time`, `tcp_keepalive_intvl` and `tcp_keepalive_probes`.
    pub const fn linux() -> Self {
        Self { idle: Duration::from_ms(7_200_000), interval: Duration::from_ms(75_000), probes: 9 }
    }
}

/// A TCP connection. Dropping it closes nothing: [`close`](Self::close) does.
///
/// A call that is dropped before it ends has taken no bytes, [`send`](Self::send) and [`sendfile`](Self::sendfile) excepted:
/// a part may be under way by then, whose end [`TcpInfo::written`] tells.
pub trait TcpStream {
    /// Own end.
    fn local(&self) -> SocketAddrV4;
    /// The other end.
    fn peer(&self) -> SocketAddrV4;
    /// Sends bytes from user memory; ends when all of them are in the socket's buffer.
    ///
    /// # Errors
    /// If the connection has ended; [`Error::NoMemory`].
    fn send<'a>(&'a self, cpu: &'a Cpu, from: Segment) -> Async<'a, Result<(), Error>>;
    /// Waits for room and sends as many bytes as there is room for; gives how many.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn send_some<'a>(&'a self, cpu: &'a Cpu, from: Segment) -> Async<'a, Result<u32, Error>>;
    /// Sends as many bytes as there is room for now; gives how many.
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
    /// Waits for bytes and takes as many as there are and fit; 0 at the end of the stream.
    ///
    /// # Errors
    /// If the connection broke.
    fn recv<'a>(&'a self, cpu: &'a Cpu, into: Segment) -> Async<'a, Result<u32, Error>>;
    /// Takes as many bytes as there are and fit; 0 at the end of the stream.
    ///
    /// # Errors
    /// As [`recv`](Self::recv); [`Error::WouldBlock`] if there are none.
    fn try_recv(&self, cpu: &Cpu, into: Segment) -> Result<u32, Error>;
    /// Waits until there are bytes, or the stream has ended or broken: until [`try_recv`](Self::try_recv) would not block.
    fn readable(&self) -> Async<'_, ()>;
    /// Waits until there is room, or the stream has ended or broken: until [`try_send`](Self::try_send) would not block.
    fn writable(&self) -> Async<'_, ()>;
    /// Ends the own direction of the stream.
    fn shutdown(&self, cpu: &Cpu);
    /// Gives the socket back: the connection ends in the background.
    fn close(&self, cpu: &Cpu);
    /// Sends small pieces at once (`TCP_NODELAY`).
    fn set_no_delay(&self, on: bool);
    /// Asks the peer now and then whether it is still there while nothing is sent (`SO_KEEPALIVE`).
    fn set_keep_alive(&self, cpu: &Cpu, how: Option<KeepAlive>);
    /// Sets how much it may hold.
    fn set_buffers(&self, sizes: BufferSizes);
    /// What it knows of itself.
    fn info(&self) -> TcpInfo;
}

/// A socket that connections come to.
pub trait TcpListener {
    /// Where it listens.
    fn local(&self) -> SocketAddrV4;
    /// Waits for a connection.
    ///
    /// # Errors
    /// If the socket was closed.
    fn accept<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<Rc<dyn TcpStream>, Error>>;
    /// A connection, if one is there.
    ///
    /// # Errors
    /// As [`accept`](Self::accept); [`Error::WouldBlock`] if there is none.
    fn try_accept(&self, cpu: &Cpu) -> Result<Rc<dyn TcpStream>, Error>;
    /// Waits until there is one, or the socket is closed.
    fn readable(&self) -> Async<'_, ()>;
    /// Listens no longer.
    fn close(&self, cpu: &Cpu);
}

/// A socket for datagrams, bound to a port.
pub trait UdpSocket {
    /// Where it is.
    fn local(&self) -> SocketAddrV4;
    /// Sends a datagram from user memory, once fewer wait to be sent than the socket may hold. What is larger than a frame
    /// is sent in fragments. A queue below that has no room drops it without a word, as Linux does: the device counts it.
    ///
    /// # Errors
    /// If it is larger than 65,507 bytes or nobody is there; [`Error::Ended`] if the socket was closed,
    /// [`Error::NoMemory`].
    fn send_to<'a>(&'a self, cpu: &'a Cpu, to: SocketAddrV4, from: Segment) -> Async<'a, Result<(), Error>>;
    /// As [`send_to`](Self::send_to), now or not at all.
    ///
    /// # Errors
    /// As there; [`Error::WouldBlock`] if as much waits as the socket may hold.
    fn try_send_to(&self, cpu: &Cpu, to: SocketAddrV4, from: Segment) -> Result<(), Error>;
    /// Waits for a datagram; what does not fit is lost. Gives its size and sender.
    ///
    /// # Errors
    /// If the socket was closed.
    fn recv_from<'a>(&'a self, cpu: &'a Cpu, into: Segment) -> Async<'a, Result<(u32, SocketAddrV4), Error>>;
    /// A datagram, if one is there; what does not fit is lost.
    ///
    /// # Errors
    /// If the socket was closed; [`Error::WouldBlock`] if there is none.
    fn try_recv_from(&self, cpu: &Cpu, into: Segment) -> Result<(u32, SocketAddrV4), Error>;
    /// Waits until there is one, or the socket is closed.
    fn readable(&self) -> Async<'_, ()>;
    /// Waits until no more than half of what may wait to be sent does, or the socket is closed.
    fn writable(&self) -> Async<'_, ()>;
    /// Sets how much it may hold.
    fn set_buffers(&self, sizes: BufferSizes);
    /// Gives the port back.
    fn close(&self, cpu: &Cpu);
}

/// An answer to an echo request, or that there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo {
    /// Which request.
    pub sequence: u16,
    /// Who answered.
    pub from: Ipv4Addr,
    /// Bytes of ICMP header and data.
    pub bytes: u32,
    /// What was left of the packet's time to live.
    pub ttl: u8,
    /// The data is what was sent.
    pub intact: bool,
}

/// A socket for ICMP echo.
pub trait PingSocket {
    /// Sends an echo request with so many bytes of data.
    ///
    /// # Errors
    /// If nobody is there or there is no room.
    fn send(&self, cpu: &Cpu, to: Ipv4Addr, sequence: u16, data: u16) -> Result<(), Error>;
    /// Waits for an answer until `deadline`.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if none came, [`Error::Unreachable`] if the host cannot be found.
    fn recv<'a>(&'a self, cpu: &'a Cpu, deadline: units::Time) -> Async<'a, Result<Echo, Error>>;
}

/// A way to a network, as `ip route add NETWORK/PREFIX [via GATEWAY] [dev DEVICE]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The network's address.
    pub network: Ipv4Addr,
    /// Bits of it that count, 0 to 32.
    pub prefix: u8,
    /// The interface; the gateway's if not given.
    pub device: Option<String>,
    /// Who passes packets on; the network is right at the interface's link if not given.
    pub gateway: Option<Ipv4Addr>,
}

/// The Internet protocols of a kernel.
pub trait Network {
    /// All that `ip address` shows, the loopback included.
    fn interfaces(&self) -> Vec<InterfaceInfo>;
    /// Gives a device an address, and opens it.
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
    /// Adds a route. Of those that lead to an address, the one with the longest prefix counts; packets that none leads are refused
    /// with [`Error::Unreachable`].
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no such interface, [`Error::Unreachable`] if the gateway is not right at it,
    /// [`Error::Invalid`] if neither is given or the prefix is too long.
    fn add_route(&self, route: &Route) -> Result<(), Error>;
    /// Opens a connection from any port of the address that leads there. One that is given up meanwhile is closed.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::TimedOut`], [`Error::Unreachable`].
    fn connect<'a>(&'a self, cpu: &'a Cpu, to: SocketAddrV4) -> Async<'a, Result<Rc<dyn TcpStream>, Error>> {
        self.connect_from(cpu, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), to)
    }
    /// Opens a connection from an own address and port, as bind(2) before connect(2); 0.0.0.0 is the address that leads
    /// there, port 0 any that is free.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); [`Error::Invalid`] if the address is not this host's, [`Error::AddressInUse`].
    fn connect_from<'a>(
        &'a self,
        cpu: &'a Cpu,
        from: SocketAddrV4,
        to: SocketAddrV4,
    ) -> Async<'a, Result<Rc<dyn TcpStream>, Error>>;
    /// Waits for connections; address 0.0.0.0 is all addresses.
    ///
    /// # Errors
    /// [`Error::AddressInUse`].
    fn listen(&self, cpu: &Cpu, at: SocketAddrV4, backlog: usize) -> Result<Rc<dyn TcpListener>, Error>;
    /// A UDP socket; port 0 is any that is free.
    ///
    /// # Errors
    /// [`Error::AddressInUse`].
    fn udp(&self, cpu: &Cpu, at: SocketAddrV4) -> Result<Rc<dyn UdpSocket>, Error>;
    /// A socket for echo requests.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are too many.
    fn ping(&self, cpu: &Cpu) -> Result<Rc<dyn PingSocket>, Error>;
    /// What the protocols have seen.
    fn counters(&self) -> InetCounters;
}
