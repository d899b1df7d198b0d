//! netperf: measures the throughput of a stream or the rate of transactions.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use clap::{CommandFactory, Parser};
use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::kernel::Kernel;
use platform::socket::TcpStream;
use platform::storage::BlockFile;
use units::{Duration, Time};

use super::control::{self, Test};
use super::{Alarm, Memory, PORT, busy, busy_since, receive_all};
use crate::latency::Latencies;
use crate::options::{length, peer};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::registry::refused;

/// Time after the end of a test before its last request counts as lost (assumed: many round trips).
const PATIENCE: Duration = Duration::from_ms(1);

/// Measures the throughput of a TCP stream or the rate of transactions. Test-specific options follow `--`.
#[derive(Parser, Clone, PartialEq, Debug)]
#[command(name = "netperf", disable_help_flag = true)]
pub struct Netperf {
    /// The server's address.
    #[arg(short = 'H', value_parser = peer)]
    host: Ipv4Addr,
    /// What to measure.
    #[arg(short = 't', value_enum, default_value_t)]
    test: Test,
    /// Duration in seconds. The real default of 10 would be long for a simulation.
    #[arg(short = 'l', default_value_t = 0.01, value_parser = length)]
    length: f64,
    /// Port of the control connection.
    #[arg(short = 'p', default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// The file that `TCP_SENDFILE` sends: a block device.
    #[arg(short = 'F', default_value = "/dev/nvme0n1")]
    file: String,
    /// Test-specific options: `-m BYTES` per send, `-M BYTES` per receive, `-r REQUEST,RESPONSE`, `-f BYTES` for the
    /// part of a device that counts as the file.
    #[arg(last = true)]
    options: Vec<String>,
}

/// Test-specific options.
#[derive(Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "netperf --", disable_help_flag = true, no_binary_name = true)]
struct TestOptions {
    /// Bytes per send; 16384 by default.
    #[arg(short = 'm', value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    send: Option<u32>,
    /// Bytes per receive; 131072 by default.
    #[arg(short = 'M', value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    receive: Option<u32>,
    /// Bytes of the file, which is sent repeatedly; 1 MiB by default. A whole device would not end within a test.
    #[arg(short = 'f', value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    file: Option<u64>,
    /// Bytes of request and response; 1,1 by default.
    #[arg(short = 'r', value_parser = request_response)]
    sizes: Option<(u32, u32)>,
}

/// Maximum datagram size: an IPv4 packet of 65535 B minus two headers.
const DATAGRAM: u32 = 65_507;

impl TestOptions {
    /// Parses the options after `--`.
    fn read(options: &[String]) -> Result<Self, Refused> {
        Self::try_parse_from(options).map_err(|error| refused("netperf", &Self::command(), &error))
    }

    fn send(&self) -> u32 {
        self.send.unwrap_or(16_384)
    }

    fn receive(&self) -> u32 {
        self.receive.unwrap_or(131_072)
    }

    fn file(&self) -> u64 {
        self.file.unwrap_or(1 << 20)
    }

    fn sizes(&self) -> (u32, u32) {
        self.sizes.unwrap_or((1, 1))
    }

    /// Checks that the options apply to this test.
    fn agree(&self, test: Test) -> Result<(), Refused> {
        let streams = test.streams();
        for (option, given, takes, tests) in [
            ("-m", self.send.is_some(), streams, "TCP_STREAM and TCP_SENDFILE"),
            ("-M", self.receive.is_some(), streams, "TCP_STREAM and TCP_SENDFILE"),
            ("-f", self.file.is_some(), test == Test::TcpSendfile, "TCP_SENDFILE"),
            ("-r", self.sizes.is_some(), !streams, "TCP_RR and UDP_RR"),
        ] {
            let message = format!("netperf: this test does not take {option}");
            Refused::unless(!given || takes, message, format!("it is for -t {tests}"))?;
        }
        let (request, response) = self.sizes();
        let fits = test != Test::UdpRr || request.max(response) <= DATAGRAM;
        Refused::unless(fits, "netperf: no datagram is as long", format!("-r up to {DATAGRAM},{DATAGRAM}"))
    }
}

fn request_response(text: &str) -> Result<(u32, u32), String> {
    let (request, response) = text.split_once(',').unwrap_or((text, text));
    let size = |part: &str| match part.trim().parse::<u32>() {
        Ok(size @ 1..=4_194_304) => Ok(size),
        _ => Err(format!("`{part}` is not a size from 1 to 4194304")),
    };
    Ok((size(request)?, size(response)?))
}

/// Result of a test.
#[derive(Default)]
struct Outcome {
    latencies: Latencies,
    transactions: u64,
    /// Unanswered transactions.
    lost: u64,
    notes: Vec<String>,
}

impl Netperf {
    async fn stream(
        &self,
        cpu: &Cpu,
        stream: &dyn TcpStream,
        data: &Memory,
        until: Time,
    ) -> Result<Outcome, Error> {
        while cpu.now() < until {
            stream.send(cpu, data.segment()).await?;
        }
        Ok(streamed(cpu, stream))
    }

    /// Sends a file from the page cache, `send` bytes at a time, repeatedly from start to end.
    async fn send_file(
        &self,
        cpu: &Cpu,
        stream: &dyn TcpStream,
        file: &dyn BlockFile,
        options: &TestOptions,
        until: Time,
    ) -> Result<Outcome, Error> {
        let length = options.file().min(file.bytes());
        let mut at = 0;
        while cpu.now() < until {
            let piece = u64::from(options.send()).min(length - at);
            stream.sendfile(cpu, file, at, piece).await?;
            at = (at + piece) % length;
        }
        Ok(streamed(cpu, stream))
    }

    async fn transactions(
        &self,
        cpu: &Cpu,
        stream: &dyn TcpStream,
        data: &Memory,
        sizes: (u32, u32),
        until: Time,
    ) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        stream.set_no_delay(true);
        while cpu.now() < until {
            let began = cpu.now();
            stream.send(cpu, data.first(sizes.0)).await?;
            if !receive_all(cpu, stream, data, sizes.1).await? {
                return Err(Error::Ended);
            }
            outcome.latencies.add(cpu.now().since(began));
            outcome.transactions += 1;
        }
        stream.shutdown(cpu);
        Ok(outcome)
    }

    async fn datagrams(
        &self,
        cpu: &Cpu,
        kernel: &Rc<dyn Kernel>,
        to: SocketAddrV4,
        data: &Memory,
        sizes: (u32, u32),
        until: Time,
    ) -> Result<Outcome, Error> {
        let mut outcome = Outcome::default();
        let socket = kernel.network().udp(cpu, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        let mut alarm = Alarm::at(cpu, until + PATIENCE);
        while cpu.now() < until {
            let began = cpu.now();
            socket.send_to(cpu, to, data.first(sizes.0)).await?;
            cpu.sync().await;
            let Some(answer) = alarm.unless(socket.recv_from(cpu, data.segment())).await else {
                outcome.lost += 1;
                let left = until.since(began).as_ns_f64() / 1e3;
                outcome.notes.push(format!(
                    "a datagram was lost; as the real netperf, this one does not send again and waited {left:.0} µs, to the end"
                ));
                break;
            };
            answer?;
            outcome.latencies.add(cpu.now().since(began));
            outcome.transactions += 1;
        }
        // An empty datagram ends the test.
        socket.send_to(cpu, to, data.first(0)).await?;
        socket.close(cpu);
        Ok(outcome)
    }
}

/// Closes a stream and reports its statistics.
fn streamed(cpu: &Cpu, stream: &dyn TcpStream) -> Outcome {
    stream.shutdown(cpu);
    let info = stream.info();
    let mut outcome = Outcome::default();
    if info.retransmissions > 0 {
        let text = format!("{} segments were sent again, {} timeouts", info.retransmissions, info.timeouts);
        outcome.notes.push(text);
    }
    outcome
}

impl Program for Netperf {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let options = TestOptions::read(&self.options)?;
        options.agree(self.test)?;
        if self.test == Test::TcpSendfile {
            let disk = premises.disk("netperf", &self.file)?;
            let message = format!("netperf: {} has {} bytes", self.file, disk.bytes);
            return Refused::unless(
                options.file() <= disk.bytes,
                message,
                format!("-f up to {}", disk.bytes),
            );
        }
        Ok(())
    }

    fn lasts(&self) -> Option<Duration> {
        Some(Duration::from_ps((self.length * 1e12) as u64))
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let kernel = environment.kernel;
            let network = kernel.network();
            let options = TestOptions::read(&self.options)?;
            let sizes = options.sizes();
            let at = |port| SocketAddrV4::new(self.host, port);
            let fail = |error| Failure::about(format!("netperf to {}", self.host), error);
            let length = Duration::from_ps((self.length * 1e12) as u64);
            let order = control::order(self.test, sizes, options.receive(), length);
            let file = match self.test {
                Test::TcpSendfile => {
                    let file = kernel.open_block(&self.file);
                    Some(file.ok_or_else(|| Failure(format!("netperf: {}: no such device", self.file)))?)
                }
                _ => None,
            };
            let memory = Memory::take(&kernel, &cpu, 64)?;
            let size = options.send().max(sizes.0).max(sizes.1);
            let data = Memory::take(&kernel, &cpu, size)?;
            let data =
                Memory { length: if self.test == Test::TcpStream { options.send() } else { size }, ..data };
            let control = network.connect(&cpu, at(self.port)).await.map_err(fail)?;
            control::send(&cpu, &*control, &memory, order).await.map_err(fail)?;
            let answer = control::receive(&cpu, &*control, &memory).await.map_err(fail)?;
            let port = answer.ok_or_else(|| fail(Error::Ended))?[0] as u16;
            let stream = match self.test {
                Test::UdpRr => None,
                _ => Some(network.connect(&cpu, at(port)).await.map_err(fail)?),
            };
            let before = busy(&kernel);
            let began = cpu.now();
            let until = began + length;
            let outcome = match (self.test, &stream) {
                (Test::TcpStream, Some(stream)) => self.stream(&cpu, &**stream, &data, until).await,
                (Test::TcpSendfile, Some(stream)) => match &file {
                    Some(file) => self.send_file(&cpu, &**stream, &**file, &options, until).await,
                    None => Err(Error::Invalid),
                },
                (_, Some(stream)) => self.transactions(&cpu, &**stream, &data, sizes, until).await,
                (_, None) => self.datagrams(&cpu, &kernel, at(port), &data, sizes, until).await,
            };
            if let Some(stream) = stream {
                stream.close(&cpu);
            }
            let mut outcome = outcome.map_err(fail)?;
            let mut took = cpu.now().since(began);
            if outcome.lost > 0 {
                took = length;
            }
            // When the server sends its result, it has received everything.
            let result = control::receive(&cpu, &*control, &memory).await.map_err(fail)?;
            let [bytes, remote_busy, ..] = result.ok_or_else(|| fail(Error::Ended))?;
            if self.test.streams() {
                took = cpu.now().since(began);
            }
            control.close(&cpu);
            kernel.free_pages(&cpu, memory.pages);
            kernel.free_pages(&cpu, data.pages);
            let seconds = took.as_ns_f64() / 1e9;
            let busy = [busy_since(&kernel, before), Duration::from_ps(remote_busy)];
            let mut report = Report::default();
            report.add("time", "µs", took.as_ns_f64() / 1e3);
            if self.test.streams() {
                report.add("received", "bytes", bytes as f64);
                report.add("throughput", "Mbit/s", bytes as f64 * 8.0 / seconds / 1e6);
            } else {
                report.add("transactions", "", outcome.transactions as f64);
                report.add("rate", "transactions/s", outcome.transactions as f64 / seconds);
                if self.test == Test::UdpRr {
                    report.add("lost", "transactions", outcome.lost as f64);
                }
                outcome.latencies.report(&mut report, "latency");
            }
            for (name, busy) in ["local cpu", "remote cpu"].into_iter().zip(busy) {
                report.add(name, "% of a core", 100.0 * busy.as_ns_f64() / took.as_ns_f64());
            }
            report.notes = outcome.notes;
            Ok(report)
        })
    }
}
