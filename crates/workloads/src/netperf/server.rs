//! netserver: the server side of netperf.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::kernel::{Kernel, TaskParams};
use platform::socket::{Network, TcpListener, TcpStream, UdpSocket};

use super::control::{self, Test};
use super::{Alarm, Memory, PORT, busy, busy_since, receive_all};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use units::{Duration, Time};

/// First port for data connections.
const DATA: u16 = 20_000;
/// Number of ports to try.
const TRIES: u16 = 1_000;

/// How much longer than a test the server waits for datagrams (netperf's `PAD_TIME` is 4 s; its clients start more
/// slowly).
const PAD: Duration = Duration::from_ms(10);

/// Waits for clients (`netperf`) and runs the tests that they order.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "netserver", disable_help_flag = true)]
pub struct Netserver {
    /// Port of control connections.
    #[arg(short = 'p', default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
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
            let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, self.port);
            let listener = kernel.network().listen(&cpu, at, 128);
            let listener =
                listener.map_err(|error| Failure::about(format!("netserver, port {}", self.port), error))?;
            loop {
                let control = listener.accept(&cpu).await?;
                let face = Rc::clone(&kernel);
                let serve = move |cpu: Cpu| -> Async<'static, ()> {
                    Box::pin(async move {
                        // A client that disconnects reports the reason itself.
                        let _ = serve(&cpu, &face, &*control).await;
                        control.close(&cpu);
                    })
                };
                kernel.spawn(TaskParams::named("netserver").of(&cpu), Box::new(serve));
            }
        })
    }
}

/// Serves one control connection.
async fn serve(cpu: &Cpu, kernel: &Rc<dyn Kernel>, control: &dyn TcpStream) -> Result<(), Error> {
    let network = kernel.network();
    let memory = Memory::take(kernel, cpu, 64)?;
    while let Some([test, request, response, buffer, length]) =
        control::receive(cpu, control, &memory).await?
    {
        let test = control::test_of(test).ok_or(Error::Invalid)?;
        let data = Memory::take(kernel, cpu, request.max(response).max(buffer) as u32)?;
        let (request, response) = (request as u32, response as u32);
        let before = busy(kernel);
        let bytes = match test {
            Test::TcpStream | Test::TcpSendfile | Test::TcpRr => {
                let listener = data_listener(cpu, &*network)?;
                let port = listener.local().port();
                control::send(cpu, control, &memory, [port.into(), 0, 0, 0, 0]).await?;
                let stream = listener.accept(cpu).await?;
                listener.close(cpu);
                stream.set_no_delay(test == Test::TcpRr);
                let bytes = match test {
                    Test::TcpStream | Test::TcpSendfile => drain(cpu, &*stream, &data).await?,
                    _ => answer(cpu, &*stream, &data, request, response).await?,
                };
                stream.close(cpu);
                bytes
            }
            Test::UdpRr => {
                let socket = network.udp(cpu, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
                let port = socket.local().port();
                control::send(cpu, control, &memory, [port.into(), 0, 0, 0, 0]).await?;
                let end = cpu.now() + Duration::from_ps(length) + PAD;
                let bytes = answer_datagrams(cpu, &*socket, &data, response, end).await?;
                socket.close(cpu);
                bytes
            }
        };
        let used = busy_since(kernel, before).as_ps();
        control::send(cpu, control, &memory, [bytes, used, 0, 0, 0]).await?;
        kernel.free_pages(cpu, data.pages);
    }
    kernel.free_pages(cpu, memory.pages);
    Ok(())
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
