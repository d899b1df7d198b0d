//! netperf: measures the throughput of a stream or the rate of transactions.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu, CpuId};
use platform::kernel::{Kernel, TaskParams};
use platform::socket::{BufferSizes, TcpStream};
use platform::storage::BlockFile;
use units::{Duration, Time};

use super::control::{self, Test, TestLength, TestOrder};
use super::options::{Netperf, TestOptions};
use super::selectors::TestSummary;
use super::{Alarm, Memory, is_going_on, receive_all};
use crate::latency::Latencies;
use crate::options::duration;
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, MeasuredSpan, Program, Report};
use crate::usage::{busy, busy_since};

/// Time after the end of a test before its last request counts as lost (assumed: many round trips).
const PATIENCE: Duration = Duration::from_ms(1);

/// What a test did.
#[derive(Default)]
struct Outcome {
    latencies: Latencies,
    transactions: u64,
    /// Datagrams and bytes of a stream of datagrams that were sent.
    sent: (u64, u64),
    /// Unanswered transactions.
    lost: u64,
    /// Segments sent again.
    again: u64,
    notes: Vec<String>,
}

/// A test's result.
struct TestResult {
    outcome: Outcome,
    took: Duration,
    /// Bytes of a stream that were received.
    received: u64,
    /// CPU time on both sides, all cores together, and the numbers of cores.
    busy: [Duration; 2],
    cores: [f64; 2],
}

impl TestResult {
    /// Throughput (Mbit/s), or transactions per second.
    fn rate(&self, streams: bool) -> f64 {
        let seconds = self.took.as_ns_f64() / 1e9;
        match streams {
            true => self.received as f64 * 8.0 / seconds / 1e6,
            false => self.outcome.transactions as f64 / seconds,
        }
    }
}

/// Interim results (`-D`).
struct InterimResults<'n> {
    netperf: &'n Netperf,
    began: Time,
    /// When the current interval began, and what had been done.
    since: Time,
    before: u64,
    lines: Vec<String>,
}

impl<'n> InterimResults<'n> {
    fn new(netperf: &'n Netperf, cpu: &Cpu) -> Self {
        Self { netperf, began: cpu.now(), since: cpu.now(), before: 0, lines: Vec::new() }
    }

    /// So many bytes or transactions have been done by now.
    fn tell(&mut self, cpu: &Cpu, streams: bool, done: u64) {
        let Some(interval) = self.netperf.interim.map(duration) else { return };
        let took = cpu.now().since(self.since);
        if took < interval {
            return;
        }
        let seconds = took.as_s_f64();
        let (rate, unit) = match streams {
            true => ((done - self.before) as f64 * 8.0 / seconds / 1e6, "10^6bits/s"),
            false => ((done - self.before) as f64 / seconds, "Trans/s"),
        };
        let at = cpu.now().since(self.began).as_s_f64();
        self.lines
            .push(format!("Interim result: {rate:.2} {unit} over {seconds:.6} seconds ending at {at:.6}"));
        (self.since, self.before) = (cpu.now(), done);
    }
}

/// A test under way.
struct TestRun<'n> {
    netperf: &'n Netperf,
    test: Test,
    options: &'n TestOptions,
    data: Memory,
    began: Time,
    interim: InterimResults<'n>,
}

impl TestRun<'_> {
    fn is_going_on(&self, cpu: &Cpu, done: u64) -> bool {
        is_going_on(cpu, self.began, self.netperf.length, done)
    }

    async fn stream(&mut self, cpu: &Cpu, stream: &dyn TcpStream) -> Result<Outcome, Error> {
        let mut bytes = 0;
        while self.is_going_on(cpu, bytes) {
            stream.send(cpu, self.data.segment()).await?;
            bytes += u64::from(self.data.length);
            self.interim.tell(cpu, true, bytes);
        }
        Ok(streamed(cpu, stream))
    }

    /// Receives a stream to its end.
    async fn maerts(&mut self, cpu: &Cpu, stream: &dyn TcpStream) -> Result<Outcome, Error> {
        let mut bytes = 0;
        loop {
            match stream.recv(cpu, self.data.segment()).await? {
                0 => break,
                taken => bytes += u64::from(taken),
            }
            self.interim.tell(cpu, true, bytes);
        }
        Ok(Outcome { sent: (0, bytes), ..Outcome::default() })
    }

    /// Sends a file from the page cache, `send` bytes at a time, repeatedly from start to end.
    async fn send_file(
        &mut self,
        cpu: &Cpu,
        stream: &dyn TcpStream,
        file: &dyn BlockFile,
    ) -> Result<Outcome, Error> {
        let length = self.options.file().min(file.bytes());
        let (mut at, mut bytes) = (0, 0);
        while self.is_going_on(cpu, bytes) {
            let piece = u64::from(self.options.send(self.test)).min(length - at);
            stream.sendfile(cpu, file, at, piece).await?;
            at = (at + piece) % length;
            bytes += piece;
            self.interim.tell(cpu, true, bytes);
        }
        Ok(streamed(cpu, stream))
    }

    async fn transactions(&mut self, cpu: &Cpu, stream: &dyn TcpStream) -> Result<Outcome, Error> {
        let (sizes, burst) = (self.options.sizes(), self.options.burst());
        let mut outcome = Outcome::default();
        let mut under_way = VecDeque::new();
        stream.set_no_delay(true);
        loop {
            let begun = outcome.transactions + under_way.len() as u64;
            if under_way.len() <= burst && self.is_going_on(cpu, begun) {
                under_way.push_back(cpu.now());
                stream.send(cpu, self.data.first(sizes.0)).await?;
                if under_way.len() <= burst {
                    continue;
                }
            }
            let Some(began) = under_way.pop_front() else { break };
            if !receive_all(cpu, stream, &self.data, sizes.1).await? {
                return Err(Error::Ended);
            }
            outcome.latencies.add(cpu.now().since(began));
            outcome.transactions += 1;
            self.interim.tell(cpu, false, outcome.transactions);
        }
        outcome.again = stream.info().retransmissions;
        stream.shutdown(cpu);
        Ok(outcome)
    }

    /// Transactions on a connection each, the first of which is open.
    async fn connections(
        &mut self,
        cpu: &Cpu,
        kernel: &Rc<dyn Kernel>,
        to: SocketAddrV4,
        first: &Rc<dyn TcpStream>,
    ) -> Result<Outcome, Error> {
        let sizes = self.options.sizes();
        let mut outcome = Outcome::default();
        let mut open = Some(Rc::clone(first));
        while self.is_going_on(cpu, outcome.transactions) {
            let began = cpu.now();
            let stream = match open.take() {
                Some(stream) => stream,
                None => kernel.network().connect_from(cpu, self.netperf.from(), to).await?,
            };
            stream.set_no_delay(true);
            stream.send(cpu, self.data.first(sizes.0)).await?;
            if !receive_all(cpu, &*stream, &self.data, sizes.1).await? {
                return Err(Error::Ended);
            }
            stream.close(cpu);
            outcome.latencies.add(cpu.now().since(began));
            outcome.transactions += 1;
            self.interim.tell(cpu, false, outcome.transactions);
        }
        // A connection without a request ends the test.
        let last = match open {
            Some(stream) => stream,
            None => kernel.network().connect_from(cpu, self.netperf.from(), to).await?,
        };
        last.close(cpu);
        Ok(outcome)
    }

    async fn datagrams(
        &mut self,
        cpu: &Cpu,
        kernel: &Rc<dyn Kernel>,
        to: SocketAddrV4,
    ) -> Result<Outcome, Error> {
        let (sizes, burst) = (self.options.sizes(), self.options.burst());
        let mut outcome = Outcome::default();
        let mut under_way = VecDeque::new();
        let socket = kernel.network().udp(cpu, self.netperf.from())?;
        set_buffers(self.options, |sizes| socket.set_buffers(sizes));
        let until = match self.netperf.length {
            TestLength::Time(length) => self.began + length,
            TestLength::Count(_) => Time::NEVER,
        };
        // Without an end, a lost datagram is noticed after as long as a test usually takes.
        let mut alarm =
            Alarm::at(cpu, if until == Time::NEVER { self.began + PATIENCE * 100 } else { until + PATIENCE });
        loop {
            let begun = outcome.transactions + under_way.len() as u64;
            if under_way.len() <= burst && self.is_going_on(cpu, begun) {
                under_way.push_back(cpu.now());
                socket.send_to(cpu, to, self.data.first(sizes.0)).await?;
                cpu.sync().await;
                if under_way.len() <= burst {
                    continue;
                }
            }
            let Some(began) = under_way.pop_front() else { break };
            let Some(answer) = alarm.unless(socket.recv_from(cpu, self.data.segment())).await else {
                outcome.lost += 1 + under_way.len() as u64;
                let left = until.min(cpu.now()).since(began).as_ns_f64() / 1e3;
                outcome.notes.push(format!(
                    "a datagram was lost; as the real netperf, this one does not send again and waited {left:.0} µs, to the end"
                ));
                break;
            };
            answer?;
            outcome.latencies.add(cpu.now().since(began));
            outcome.transactions += 1;
            self.interim.tell(cpu, false, outcome.transactions);
        }
        // An empty datagram ends the test.
        socket.send_to(cpu, to, self.data.first(0)).await?;
        socket.close(cpu);
        Ok(outcome)
    }

    /// Sends datagrams without answers.
    async fn datagram_stream(
        &mut self,
        cpu: &Cpu,
        kernel: &Rc<dyn Kernel>,
        to: SocketAddrV4,
    ) -> Result<Outcome, Error> {
        let socket = kernel.network().udp(cpu, self.netperf.from())?;
        set_buffers(self.options, |sizes| socket.set_buffers(sizes));
        let (mut datagrams, mut bytes) = (0, 0);
        while self.is_going_on(cpu, bytes) {
            socket.send_to(cpu, to, self.data.segment()).await?;
            datagrams += 1;
            bytes += u64::from(self.data.length);
            self.interim.tell(cpu, true, bytes);
            cpu.sync().await;
        }
        Ok(Outcome { sent: (datagrams, bytes), ..Outcome::default() }).inspect(|_| socket.close(cpu))
    }
}

/// Sets the sizes of a socket's buffers if `-s` does.
fn set_buffers(options: &TestOptions, set: impl FnOnce(BufferSizes)) {
    if let Some(size) = options.local_buffers {
        set(BufferSizes { send: Some(size), receive: Some(size) });
    }
}

/// Closes a stream and reports its statistics.
fn streamed(cpu: &Cpu, stream: &dyn TcpStream) -> Outcome {
    stream.shutdown(cpu);
    let info = stream.info();
    let mut outcome = Outcome { again: info.retransmissions, ..Outcome::default() };
    if info.retransmissions > 0 {
        let text = format!("{} segments were sent again, {} timeouts", info.retransmissions, info.timeouts);
        outcome.notes.push(text);
    }
    outcome
}

impl Netperf {
    fn from(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.local, 0)
    }

    /// Runs one test.
    async fn measure(
        &self,
        cpu: &Cpu,
        kernel: &Rc<dyn Kernel>,
        printed: &mut Vec<String>,
    ) -> Result<TestResult, Failure> {
        let (test, options) = self.test()?;
        let network = kernel.network();
        let sizes = options.sizes();
        let at = |port| SocketAddrV4::new(self.host, port);
        let fail = |error| Failure::of_connection(format!("netperf to {}", self.host), error, "netserver");
        let order = TestOrder {
            test,
            core: self.cores.and_then(|cores| cores.remote),
            sizes,
            calls: (options.send(test), options.receive()),
            extent: self.length,
            buffers: options.remote_buffers.unwrap_or(0),
        };
        let file = match test {
            Test::TcpSendfile => {
                let file = kernel.open_block(&self.file);
                Some(file.ok_or_else(|| Failure(format!("netperf: {}: no such device", self.file)))?)
            }
            _ => None,
        };
        let memory = Memory::take(kernel, cpu, 64)?;
        let call = if test == Test::TcpMaerts { options.receive() } else { options.send(test) };
        let size = call.max(sizes.0).max(sizes.1);
        let data = Memory::take(kernel, cpu, size)?;
        let length = if test.streams() && test != Test::TcpSendfile { call } else { size };
        let data = Memory { length, ..data };
        let pages = data.pages;
        let control = network.connect_from(cpu, self.from(), at(self.port)).await.map_err(fail)?;
        control::send(cpu, &*control, &memory, order.message()).await.map_err(fail)?;
        let answer = control::receive(cpu, &*control, &memory).await.map_err(fail)?;
        let port = answer.ok_or_else(|| fail(Error::Ended))?[0] as u16;
        if let (0, Some(core)) = (port, order.core) {
            return Err(Failure(format!("netperf: -T: the host of the server has no core {}", core.0)));
        }
        let stream = match test.is_udp() {
            true => None,
            false => Some(network.connect_from(cpu, self.from(), at(port)).await.map_err(fail)?),
        };
        if let Some(stream) = &stream {
            set_buffers(&options, |sizes| stream.set_buffers(sizes));
            if options.no_delay {
                stream.set_no_delay(true);
            }
        }
        if self.wait > 0.0 {
            cpu.sleep(duration(self.wait)).await;
        }
        let before = busy(kernel);
        let began = cpu.now();
        let interim = InterimResults::new(self, cpu);
        let mut run = TestRun { netperf: self, test, options: &options, data, began, interim };
        let outcome = match (test, &stream) {
            (Test::TcpStream, Some(stream)) => run.stream(cpu, &**stream).await,
            (Test::TcpMaerts, Some(stream)) => run.maerts(cpu, &**stream).await,
            (Test::TcpSendfile, Some(stream)) => match &file {
                Some(file) => run.send_file(cpu, &**stream, &**file).await,
                None => Err(Error::Invalid),
            },
            (Test::TcpCrr, Some(stream)) => run.connections(cpu, kernel, at(port), stream).await,
            (_, Some(stream)) => run.transactions(cpu, &**stream).await,
            (Test::UdpStream, None) => run.datagram_stream(cpu, kernel, at(port)).await,
            (_, None) => run.datagrams(cpu, kernel, at(port)).await,
        };
        printed.append(&mut run.interim.lines);
        if let Some(stream) = stream.filter(|_| test != Test::TcpCrr) {
            stream.close(cpu);
        }
        let mut outcome = outcome.map_err(fail)?;
        let mut took = cpu.now().since(began);
        if let (true, TestLength::Time(length)) = (outcome.lost > 0, self.length) {
            took = length;
        }
        if test == Test::UdpStream {
            end_datagrams(cpu, kernel, at(port), &run.data).await.map_err(fail)?;
        }
        // When the server sends its result, it has received everything.
        let result = control::receive(cpu, &*control, &memory).await.map_err(fail)?;
        let [bytes, remote_busy, remote_cores, again, _] = result.ok_or_else(|| fail(Error::Ended))?;
        if matches!(test, Test::TcpStream | Test::TcpSendfile) {
            took = cpu.now().since(began);
        }
        control.close(cpu);
        kernel.free_pages(cpu, memory.pages);
        kernel.free_pages(cpu, pages);
        if test == Test::TcpMaerts {
            outcome.again = again;
        }
        let received = if test == Test::TcpMaerts { outcome.sent.1 } else { bytes };
        let busy = [busy_since(kernel, before), Duration::from_ps(remote_busy)];
        let cores = [f64::from(kernel.cpus()), remote_cores as f64];
        Ok(TestResult { outcome, took, received, busy, cores })
    }

    /// Repeats the test as often as `-i` and `-I` say, and reports the means.
    async fn session(
        self: Rc<Self>,
        cpu: &Cpu,
        kernel: &Rc<dyn Kernel>,
        span: &MeasuredSpan,
    ) -> Result<Report, Failure> {
        let (test, options) = self.test()?;
        let ((most, least), confidence) = (self.repetitions(), self.confidence.unwrap_or_default());
        let (mut all, mut rates, mut printed) = (Vec::new(), Vec::new(), Vec::new());
        let mut width = f64::INFINITY;
        while all.len() < most.into() {
            // Each of several has connections and tasks of its own.
            if most > 1 {
                span.begin();
            }
            let measured = self.measure(cpu, kernel, &mut printed).await;
            if most > 1 {
                span.end();
            }
            let measured = measured?;
            rates.push(measured.rate(test.streams()));
            all.push(measured);
            width = confidence.reached(&rates);
            if all.len() >= least.into() && width <= confidence.width {
                break;
            }
        }
        let mut report = self.report(test, &mut all);
        if most > 1 {
            report.add("tests", "", all.len() as f64);
            report.add("confidence width", "% of the mean", width);
            let level = confidence.level;
            report.notes.push(match width <= confidence.width {
                true => format!("the mean has a {level} % confidence interval of {width:.2} % of it"),
                false => format!(
                    "the desired confidence was not achieved: {level} % intervals are {width:.2} % wide after {most} tests"
                ),
            });
        }
        // Interim results are followed by the result.
        if let Some(output) = options.output(!printed.is_empty())? {
            let direction = match test {
                Test::TcpMaerts => "Receive",
                test if test.streams() => "Send",
                _ => "Send|Recv",
            };
            let again = all.iter().map(|measured| measured.outcome.again).sum();
            let summary = TestSummary {
                report: &report,
                protocol: if test.is_udp() { "UDP" } else { "TCP" },
                direction,
                sizes: options.sizes(),
                calls: (options.send(test), options.receive()),
                again,
                streams: test.streams(),
            };
            printed.push(output.print(&summary));
        }
        report.text = (!printed.is_empty()).then(|| printed.join("\n"));
        Ok(report)
    }

    /// Sums of all tests, and rates over their whole time.
    fn report(&self, test: Test, all: &mut [TestResult]) -> Report {
        let took: Duration = all.iter().map(|measured| measured.took).sum();
        let seconds = took.as_ns_f64() / 1e9;
        let sum = |of: fn(&TestResult) -> u64| all.iter().map(of).sum::<u64>() as f64;
        let mut report = Report::default();
        report.add("time", "µs", took.as_ns_f64() / 1e3);
        let work = if test.streams() {
            if test == Test::UdpStream {
                report.add("sent", "messages", sum(|measured| measured.outcome.sent.0));
                let bytes = sum(|measured| measured.outcome.sent.1);
                report.add("sent throughput", "Mbit/s", bytes * 8.0 / seconds / 1e6);
            }
            let bytes = sum(|measured| measured.received);
            report.add("received", "bytes", bytes);
            report.add("throughput", "Mbit/s", bytes * 8.0 / seconds / 1e6);
            bytes / 1024.0
        } else {
            let transactions = sum(|measured| measured.outcome.transactions);
            report.add("transactions", "", transactions);
            report.add("rate", "transactions/s", transactions / seconds);
            if test == Test::UdpRr {
                report.add("lost", "transactions", sum(|measured| measured.outcome.lost));
            }
            let mut latencies = Latencies::default();
            all.iter_mut()
                .for_each(|measured| latencies.join(core::mem::take(&mut measured.outcome.latencies)));
            latencies.report(&mut report, "latency");
            transactions
        };
        let unit = if test.streams() { "µs/KB" } else { "µs/transaction" };
        let sides = [("local", self.local_cpu), ("remote", self.remote_cpu)];
        let busy =
            [0, 1].map(|side| all.iter().map(|measured| measured.busy[side]).sum::<Duration>().as_ns_f64());
        for ((name, _), busy) in sides.into_iter().zip(busy) {
            report.add(format!("{name} cpu"), "% of a core", 100.0 * busy / took.as_ns_f64());
        }
        for (side, (name, _)) in sides.into_iter().enumerate().filter(|(_, (_, is_asked))| *is_asked) {
            let share = 100.0 * busy[side] / took.as_ns_f64() / all[0].cores[side];
            report.add(format!("{name} cpu utilization"), "% of the host's cores", share);
            report.add(format!("{name} service demand"), unit, busy[side] / 1e3 / work);
        }
        report.notes =
            all.iter_mut().flat_map(|measured| core::mem::take(&mut measured.outcome.notes)).collect();
        report
    }
}

/// An empty datagram ends a stream of them.
async fn end_datagrams(
    cpu: &Cpu,
    kernel: &Rc<dyn Kernel>,
    to: SocketAddrV4,
    data: &Memory,
) -> Result<(), Error> {
    let socket = kernel.network().udp(cpu, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
    socket.send_to(cpu, to, data.first(0)).await?;
    socket.close(cpu);
    Ok(())
}

impl Program for Netperf {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let (test, options) = self.test()?;
        premises.peer("netperf", self.host)?;
        if let Some(core) = self.cores.and_then(|cores| cores.local) {
            let message = format!("netperf: -T: there is no core {}", core.0);
            let all = premises.all_cores;
            Refused::unless(
                usize::from(core.0) < all,
                message,
                format!("cores 0 to {}", all.saturating_sub(1)),
            )?;
        }
        if test == Test::TcpSendfile {
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
        match self.length {
            TestLength::Time(length) => Some(length * u64::from(self.repetitions().1)),
            TestLength::Count(_) => None,
        }
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let Environment { kernel, span, .. } = environment;
            let local: Option<CpuId> = self.cores.and_then(|cores| cores.local);
            let Some(core) = local else { return self.session(&cpu, &kernel, &span).await };
            let face = Rc::clone(&kernel);
            let session = async move |cpu: Cpu| self.session(&cpu, &face, &span).await;
            kernel.run(TaskParams::named("netperf").on(core).of(&cpu), session).wait().await
        })
    }
}
