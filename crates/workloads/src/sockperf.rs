//! sockperf: latency of UDP messages in ping-pong.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use platform::block::Segment;
use platform::cpu::{Async, Cpu};
use platform::memory::{Pages, Policy};
use units::Duration;

use crate::latency::Latencies;
use crate::options::{length, peer};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};

/// sockperf's port.
const PORT: u16 = 11_111;
/// Maximum message size: an IPv4 packet of 65535 B minus two headers.
const MOST: i64 = 65_507;

/// Measures the latency of UDP messages between a client and a server that echoes them. As in the original, latency
/// is half the round trip.
#[derive(clap::Parser, Clone, PartialEq, Debug)]
#[command(name = "sockperf", disable_help_flag = true)]
pub struct Sockperf {
    #[command(subcommand)]
    side: Role,
}

/// Client or server.
#[derive(clap::Subcommand, Clone, PartialEq, Debug)]
enum Role {
    /// Echoes each message.
    #[command(alias = "sr", disable_help_flag = true)]
    Server {
        /// UDP port to listen at.
        #[arg(short = 'p', default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
        port: u16,
    },
    /// Sends messages and waits for the echo of each.
    #[command(alias = "pp", disable_help_flag = true)]
    PingPong {
        /// The server's address.
        #[arg(short = 'i', value_parser = peer)]
        address: Ipv4Addr,
        /// The server's UDP port.
        #[arg(short = 'p', default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
        port: u16,
        /// Bytes per message; 14 is the size of the original's header.
        #[arg(short = 'm', default_value_t = 14, value_parser = clap::value_parser!(u32).range(14..=MOST))]
        message: u32,
        /// Duration in seconds. The real default of 1 would be long for a simulation.
        #[arg(short = 't', default_value_t = 0.01, value_parser = length)]
        time: f64,
    },
}

impl Program for Sockperf {
    fn serves(&self) -> bool {
        matches!(self.side, Role::Server { .. })
    }

    /// All requirements are checked by the options.
    fn check(&self, _: &Premises) -> Result<(), Refused> {
        Ok(())
    }

    fn lasts(&self) -> Option<Duration> {
        match self.side {
            Role::Server { .. } => None,
            Role::PingPong { time, .. } => Some(Duration::from_ps((time * 1e12) as u64)),
        }
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let (kernel, fail) = (environment.kernel, |error| Failure::about("sockperf", error));
            let pages =
                kernel.alloc_pages(&cpu, Pages::order_for(MOST as u64), Policy::Task).map_err(fail)?;
            let own = |port| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
            let room = Segment { at: pages.start, length: MOST as u32 };
            let (to, message, time) = match self.side {
                Role::Server { port } => {
                    let socket = kernel.network().udp(&cpu, own(port)).map_err(fail)?;
                    loop {
                        let (length, from) = socket.recv_from(&cpu, room).await.map_err(fail)?;
                        let back = Segment { at: pages.start, length };
                        socket.send_to(&cpu, from, back).await.map_err(fail)?;
                    }
                }
                Role::PingPong { address, port, message, time } => {
                    (SocketAddrV4::new(address, port), message, Duration::from_ps((time * 1e12) as u64))
                }
            };
            let socket = kernel.network().udp(&cpu, own(0)).map_err(fail)?;
            let (mut latencies, mut wrong) = (Latencies::default(), 0);
            let until = cpu.now() + time;
            let mut number = 0u64;
            while cpu.now() < until {
                number += 1;
                let began = cpu.now();
                cpu.store_u64(pages.start, number);
                socket.send_to(&cpu, to, Segment { at: pages.start, length: message }).await.map_err(fail)?;
                // A lost message ends the program: the original would wait forever.
                let (length, _) = socket.recv_from(&cpu, room).await.map_err(fail)?;
                wrong += u64::from(length != message || cpu.load_u64(pages.start) != number);
                latencies.add(cpu.now().since(began) / 2);
            }
            socket.close(&cpu);
            kernel.free_pages(&cpu, pages);
            let mut report = Report::default();
            report.add("messages", "", number as f64);
            report.add("wrong", "messages", wrong as f64);
            latencies.report(&mut report, "latency");
            Ok(report)
        })
    }
}
