//! iperf: parallel streams from client to server.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use platform::Error;
use platform::block::Segment;
use platform::cpu::{Async, Cpu};
use platform::kernel::{Kernel, TaskParams};
use platform::memory::{Pages, Policy};
use platform::socket::TcpStream;
use units::Duration;

use crate::options::{length, peer};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};

/// Sends parallel TCP streams and measures their throughput: a server with `-s`, a client with `-c`.
#[derive(clap::Parser, Clone, PartialEq, Debug)]
#[command(name = "iperf", disable_help_flag = true)]
pub struct Iperf {
    /// Run as a server.
    #[arg(short = 's', required_unless_present = "client")]
    server: bool,
    /// Send to this server.
    #[arg(short = 'c', conflicts_with = "server", value_parser = peer)]
    client: Option<Ipv4Addr>,
    /// TCP port: the server listens there, the client connects to it.
    #[arg(short = 'p', default_value_t = 5001, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Seconds to send. The real default of 10 would be long for a simulation.
    #[arg(short = 't', default_value_t = 0.01, value_parser = length)]
    time: f64,
    /// Bytes per send or receive call.
    #[arg(short = 'l', default_value_t = 131_072, value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    length: u32,
    /// Number of streams.
    #[arg(short = 'P', default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    parallel: u16,
    /// Send small segments at once (no Nagle).
    #[arg(short = 'N')]
    no_delay: bool,
}

impl Iperf {
    async fn send(&self, cpu: &Cpu, kernel: &Rc<dyn Kernel>, to: SocketAddrV4) -> Result<(u64, u64), Error> {
        let pages = kernel.alloc_pages(cpu, Pages::order_for(self.length.into()), Policy::Task)?;
        let stream = kernel.network().connect(cpu, to).await?;
        stream.set_no_delay(self.no_delay);
        let until = cpu.now() + Duration::from_ps((self.time * 1e12) as u64);
        let mut bytes = 0;
        while cpu.now() < until {
            stream.send(cpu, Segment { at: pages.start, length: self.length }).await?;
            bytes += u64::from(self.length);
        }
        stream.shutdown(cpu);
        // The server closes after it has received everything.
        stream.recv(cpu, Segment { at: pages.start, length: 1 }).await?;
        let again = stream.info().retransmissions;
        stream.close(cpu);
        kernel.free_pages(cpu, pages);
        Ok((bytes, again))
    }

    async fn serve(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Result<Report, Failure> {
        let Environment { kernel, .. } = environment;
        let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, self.port);
        let listener = kernel.network().listen(&cpu, at, 128);
        let listener =
            listener.map_err(|error| Failure::about(format!("iperf, port {}", self.port), error))?;
        loop {
            let stream = listener.accept(&cpu).await?;
            let (face, length) = (Rc::clone(&kernel), self.length);
            let drain = move |cpu: Cpu| -> Async<'static, ()> {
                Box::pin(async move {
                    // A client that disconnects reports the reason itself.
                    let _ = drain(&cpu, &face, &*stream, length).await;
                    stream.close(&cpu);
                })
            };
            kernel.spawn(TaskParams::named("iperf").of(&cpu), Box::new(drain));
        }
    }
}

async fn drain(cpu: &Cpu, kernel: &Rc<dyn Kernel>, stream: &dyn TcpStream, length: u32) -> Result<(), Error> {
    let pages = kernel.alloc_pages(cpu, Pages::order_for(length.into()), Policy::Task)?;
    while stream.recv(cpu, Segment { at: pages.start, length }).await? > 0 {}
    kernel.free_pages(cpu, pages);
    Ok(())
}

impl Program for Iperf {
    fn serves(&self) -> bool {
        self.server
    }

    fn lasts(&self) -> Option<Duration> {
        Some(Duration::from_ps((self.time * 1e12) as u64))
    }

    /// All requirements are checked by the options.
    fn check(&self, _: &Premises) -> Result<(), Refused> {
        Ok(())
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let Some(host) = self.client else { return self.serve(cpu, environment).await };
            let to = SocketAddrV4::new(host, self.port);
            let fail = |error| Failure::about(format!("iperf to {to}"), error);
            let (began, cpus) = (cpu.now(), environment.cpus.len());
            let again = Rc::new(Cell::new(0));
            let mut streams = Vec::new();
            for n in 0..self.parallel {
                let (me, kernel) = (Rc::clone(&self), Rc::clone(&environment.kernel));
                let again = Rc::clone(&again);
                let send = async move |cpu: Cpu| {
                    let sent = me.send(&cpu, &kernel, to).await;
                    sent.map(|(bytes, resent)| {
                        again.set(again.get() + resent);
                        bytes
                    })
                };
                let on = environment.cpus[usize::from(n) % cpus];
                let params = TaskParams::named(format!("iperf/{n}")).on(on).of(&cpu);
                streams.push(environment.kernel.run(params, send));
            }
            let mut bytes = 0;
            for stream in streams {
                bytes += stream.wait().await.map_err(fail)?;
            }
            let took = cpu.now().since(began).as_ns_f64();
            let mut report = Report::default();
            report.add("time", "µs", took / 1e3);
            report.add("transfer", "bytes", bytes as f64);
            report.add("bandwidth", "Mbit/s", bytes as f64 * 8.0 / took * 1e3);
            report.add("sent again", "segments", again.get() as f64);
            Ok(report)
        })
    }
}
