//! netserver: the server side of netperf.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use platform::Error;
use platform::block::Segment;
use platform::cpu::{Async, Cpu};
use platform::kernel::{Kernel, TaskParams};
use platform::socket::{BufferSizes, Network, TcpListener, TcpStream, UdpSocket};

use super::control::{self, Message, Test, TestLength, TestOrder};
use super::{Alarm, Memory, PORT, receive_all};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::unmodelled::Unmodelled;
use crate::usage::{busy, busy_since};
use units::{Duration, Time};

/// First port for data connections.
const DATA: u16 = 20_000;
/// Number of ports to try.
const TRIES: u16 = 1_000;

/// How much longer than a test the server waits for datagrams (netperf's `PAD_TIME` is 4 s; its clients start more
/// slowly).
const PAD: Duration = Duration::from_ms(10);

/// How long the server waits for the datagrams of a test that ends by their number (assumed).
const COUNTED: Duration = Duration::from_ms(1_000);
/// Answer to an order for a core that the host does not have.
const NO_CORE: Message = [0, 1, 0, 0, 0];

/// Options without an effect of their own here.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("-D", "a server is a task like any other, and prints nothing"),
    Unmodelled::harmless("-f", "connections are served by tasks as needed"),
    Unmodelled::harmless("-N", "there is no debug output"),
    Unmodelled::harmless("-d", "there is no debug output"),
    Unmodelled::harmless("-4", "hosts have IPv4 addresses"),
    Unmodelled::harmless("-v VERBOSITY", "a server prints nothing"),
    Unmodelled::harmless("-Z PASSPHRASE", "everyone may order a test"),
    Unmodelled::refused("-6", "hosts have IPv4 addresses"),
];

/// Waits for clients (`netperf`) and runs the tests that they order.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "netserver", disable_help_flag = true)]
pub struct Netserver {
    /// Port of control connections.
    #[arg(short = 'p', default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Address to listen at; all by default.
    #[arg(short = 'L', default_value = "0.0.0.0")]
    address: Ipv4Addr,
}

impl Program for Netserver {
    fn serves(&self) -> bool {
        true
    }

    /// All requirements are checked by the options.
    fn check(&self, _: &Premises) -> Result<(), Refused> {
        Ok(())
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let Environment { kernel, .. } = environment;
            let at = SocketAddrV4::new(self.address, self.port);
            let listener = kernel.network().listen(&cpu, at, 128);
            let listener =
                listener.map_err(|error| Failure::about(format!("netserver, port {}", self.port), error))?;
            loop {
                let control = listener.accept(&cpu).await?;
                let face = Rc::clone(&kernel);
                let serve = move |cpu: Cpu| -> Async<'static, ()> {
                    Box::pin(async move {
                        // A client that disconnects reports the reason itself.
                        let _ = serve(&cpu, &face, &control).await;
                        control.close(&cpu);
                    })
                };
                kernel.spawn(TaskParams::named("netserver").of(&cpu), Box::new(serve));
            }
        })
    }
}

/// Serves one control connection.
async fn serve(cpu: &Cpu, kernel: &Rc<dyn Kernel>, control: &Rc<dyn TcpStream>) -> Result<(), Error> {
    let memory = Rc::new(Memory::take(kernel, cpu, 64)?);
    while let Some(message) = control::receive(cpu, &**control, &memory).await? {
        let order = TestOrder::of(message)?;
        match order.core {
            None => serve_test(cpu, kernel, &**control, &memory, order).await?,
            Some(core) if core.0 < kernel.cpus() => {
                let (face, control, memory) = (Rc::clone(kernel), Rc::clone(control), Rc::clone(&memory));
                let test = async move |cpu: Cpu| serve_test(&cpu, &face, &*control, &memory, order).await;
                kernel.run(TaskParams::named("netserver").on(core).of(cpu), test).wait().await?;
            }
            Some(_) => control::send(cpu, &**control, &memory, NO_CORE).await?,
        }
    }
    kernel.free_pages(cpu, memory.pages);
    Ok(())
}

/// Serves one test.
async fn serve_test(
    cpu: &Cpu,
    kernel: &Rc<dyn Kernel>,
    control: &dyn TcpStream,
    memory: &Memory,
    order: TestOrder,
) -> Result<(), Error> {
    let network = kernel.network();
    let ((request, response), (send, receive)) = (order.sizes, order.calls);
    let data = Memory::take(kernel, cpu, request.max(response).max(receive).max(send))?;
    let before = busy(kernel);
    let mut again = 0;
    let bytes = if order.test.is_udp() {
        let socket = network.udp(cpu, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        if order.buffers > 0 {
            socket.set_buffers(BufferSizes { send: Some(order.buffers), receive: Some(order.buffers) });
        }
        let port = socket.local().port();
        control::send(cpu, control, memory, [port.into(), 0, 0, 0, 0]).await?;
        let length = match order.extent {
            TestLength::Time(length) => length,
            TestLength::Count(_) => COUNTED,
        };
        let end = cpu.now() + length + PAD;
        let (datagrams, bytes) = match order.test {
            Test::UdpStream => take_datagrams(cpu, &*socket, &data, end).await?,
            _ => (answer_datagrams(cpu, &*socket, &data, response, end).await?, 0),
        };
        socket.close(cpu);
        again = datagrams;
        if order.test == Test::UdpStream { bytes } else { datagrams }
    } else {
        let listener = data_listener(cpu, &*network)?;
        let port = listener.local().port();
        control::send(cpu, control, memory, [port.into(), 0, 0, 0, 0]).await?;
        let stream = listener.accept(cpu).await?;
        let prepare = |stream: &dyn TcpStream| {
            if order.buffers > 0 {
                let sizes = BufferSizes { send: Some(order.buffers), receive: Some(order.buffers) };
                stream.set_buffers(sizes);
            }
            stream.set_no_delay(!order.test.streams());
        };
        prepare(&*stream);
        if order.test == Test::TcpCrr {
            let transactions = connections(cpu, &*listener, stream, &data, (request, response)).await?;
            listener.close(cpu);
            transactions
        } else {
            listener.close(cpu);
            let bytes = match order.test {
                Test::TcpMaerts => fill(cpu, &*stream, data.first(send), order.extent).await?,
                Test::TcpRr => answer(cpu, &*stream, &data, request, response).await?,
                _ => drain(cpu, &*stream, &data).await?,
            };
            again = stream.info().retransmissions;
            stream.close(cpu);
            bytes
        }
    };
    let used = busy_since(kernel, before).as_ps();
    control::send(cpu, control, memory, [bytes, used, kernel.cpus().into(), again, 0]).await?;
    kernel.free_pages(cpu, data.pages);
    Ok(())
}

/// Sends a stream until its time is over or enough has been sent. Returns its length in bytes.
async fn fill(cpu: &Cpu, stream: &dyn TcpStream, from: Segment, extent: TestLength) -> Result<u64, Error> {
    let began = cpu.now();
    let mut bytes = 0;
    while super::is_going_on(cpu, began, extent, bytes) {
        stream.send(cpu, from).await?;
        bytes += u64::from(from.length);
    }
    stream.shutdown(cpu);
    Ok(bytes)
}

/// Answers one request on each connection, until one brings none.
async fn connections(
    cpu: &Cpu,
    listener: &dyn TcpListener,
    first: Rc<dyn TcpStream>,
    data: &Memory,
    (request, response): (u32, u32),
) -> Result<u64, Error> {
    let (mut stream, mut transactions) = (first, 0);
    while receive_all(cpu, &*stream, data, request).await? {
        stream.send(cpu, data.first(response)).await?;
        stream.close(cpu);
        transactions += 1;
        stream = listener.accept(cpu).await?;
        stream.set_no_delay(true);
    }
    stream.close(cpu);
    Ok(transactions)
}

fn data_listener(cpu: &Cpu, network: &dyn Network) -> Result<Rc<dyn TcpListener>, Error> {
    let mut tries = (DATA..DATA + TRIES)
        .map(|port| network.listen(cpu, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port), 1));
    tries
        .find(|tried| *tried.as_ref().err().unwrap_or(&Error::Invalid) != Error::AddressInUse)
        .ok_or(Error::AddressInUse)?
}

/// Receives a stream to its end. Returns its length in bytes.
async fn drain(cpu: &Cpu, stream: &dyn TcpStream, data: &Memory) -> Result<u64, Error> {
    let mut bytes = 0;
    loop {
        match stream.recv(cpu, data.segment()).await? {
            0 => return Ok(bytes),
            taken => bytes += u64::from(taken),
        }
    }
}

async fn answer(
    cpu: &Cpu,
    stream: &dyn TcpStream,
    data: &Memory,
    request: u32,
    response: u32,
) -> Result<u64, Error> {
    let mut transactions = 0;
    while receive_all(cpu, stream, data, request).await? {
        stream.send(cpu, data.first(response)).await?;
        transactions += 1;
    }
    Ok(transactions)
}

/// Answers datagrams until an empty one arrives, or until `end` if that one is lost.
async fn answer_datagrams(
    cpu: &Cpu,
    socket: &dyn UdpSocket,
    data: &Memory,
    response: u32,
    end: Time,
) -> Result<u64, Error> {
    let mut transactions = 0;
    let mut alarm = Alarm::at(cpu, end);
    loop {
        let Some(received) = alarm.unless(socket.recv_from(cpu, data.segment())).await else {
            return Ok(transactions);
        };
        let (length, from) = received?;
        if length == 0 {
            return Ok(transactions);
        }
        socket.send_to(cpu, from, data.first(response)).await?;
        transactions += 1;
        cpu.sync().await;
    }
}

/// Takes datagrams until an empty one arrives, or until `end` if that one is lost. Returns how many, and their bytes.
async fn take_datagrams(
    cpu: &Cpu,
    socket: &dyn UdpSocket,
    data: &Memory,
    end: Time,
) -> Result<(u64, u64), Error> {
    let (mut datagrams, mut bytes) = (0, 0);
    let mut alarm = Alarm::at(cpu, end);
    loop {
        let Some(received) = alarm.unless(socket.recv_from(cpu, data.segment())).await else {
            return Ok((datagrams, bytes));
        };
        let (length, _) = received?;
        if length == 0 {
            return Ok((datagrams, bytes));
        }
        datagrams += 1;
        bytes += u64::from(length);
        cpu.sync().await;
    }
}
