//! ping: measures the round trip of ICMP echoes.

use std::net::Ipv4Addr;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::socket::PingSocket;
use units::{Duration, Time};

use crate::latency::Latencies;
use crate::options::{length, peer, seconds};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};

/// Maximum data length: an IPv4 packet of 65535 B minus two headers.
const MOST: i64 = 65_507;

/// Sends echo requests to a host and measures the round trip time.
#[derive(clap::Parser, Clone, PartialEq, Debug)]
#[command(name = "ping", disable_help_flag = true)]
pub struct Ping {
    /// Number of requests.
    #[arg(short = 'c', default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    count: u16,
    /// Seconds between requests.
    #[arg(short = 'i', default_value_t = 0.001, value_parser = seconds)]
    interval: f64,
    /// Bytes of data.
    #[arg(short = 's', default_value_t = 56, value_parser = clap::value_parser!(u16).range(..=MOST))]
    size: u16,
    /// Timeout for an answer in seconds.
    #[arg(short = 'W', default_value_t = 1.0, value_parser = length)]
    wait: f64,
    /// Address of the host that answers.
    #[arg(value_parser = peer)]
    host: Ipv4Addr,
}

impl Ping {
    /// Waits for the reply to a request; `None` on timeout.
    async fn answer(
        &self,
        cpu: &Cpu,
        socket: &dyn PingSocket,
        sequence: u16,
        deadline: Time,
    ) -> Result<Option<bool>, Error> {
        loop {
            match socket.recv(cpu, deadline).await {
                Ok(echo) if echo.sequence == sequence => return Ok(Some(echo.intact)),
                // A late reply to an earlier request.
                Ok(_) => {}
                Err(Error::TimedOut) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Program for Ping {
    fn lasts(&self) -> Option<Duration> {
        Some(Duration::from_ps((self.interval * f64::from(self.count - 1) * 1e12) as u64))
    }

    /// All requirements are checked by the options.
    fn check(&self, _: &Premises) -> Result<(), Refused> {
        Ok(())
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let network = environment.kernel.network();
            let fail = |error| Failure::about(format!("ping {}", self.host), error);
            let socket = network.ping(&cpu).map_err(fail)?;
            let mut times = Latencies::default();
            let (mut answers, mut damaged) = (0u32, 0u32);
            let mut next = cpu.now();
            for sequence in 1..=self.count {
                let began = cpu.now();
                match socket.send(&cpu, self.host, sequence, self.size) {
                    // Without a carrier, the packet is lost; like the original, report it and continue.
                    Ok(()) | Err(Error::Io) => {}
                    Err(error) => return Err(fail(error)),
                }
                cpu.sync().await;
                let deadline = began + Duration::from_ps((self.wait * 1e12) as u64);
                let answer = self.answer(&cpu, &*socket, sequence, deadline).await.map_err(fail)?;
                if let Some(intact) = answer {
                    answers += 1;
                    damaged += u32::from(!intact);
                    times.add(cpu.now().since(began));
                }
                next += Duration::from_ps((self.interval * 1e12) as u64);
                if sequence < self.count && next > cpu.now() {
                    cpu.sleep_until(next).await;
                }
            }
            let mut report = Report::default();
            report.add("sent", "packets", self.count.into());
            report.add("received", "packets", answers.into());
            report.add("loss", "%", 100.0 * (1.0 - f64::from(answers) / f64::from(self.count)));
            times.report(&mut report, "round trip");
            if damaged > 0 {
                report.notes.push(format!("{damaged} answers brought other data back"));
            }
            Ok(report)
        })
    }
}
