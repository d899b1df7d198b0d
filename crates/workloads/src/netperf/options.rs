//! netperf's options, and those of a test behind `--`.

use std::net::Ipv4Addr;

use clap::{CommandFactory, Parser};
use platform::cpu::CpuId;

use super::confidence::{self, Confidence};
use super::control::{Test, TestLength};
use super::selectors::NamedOutput;
use super::{MOST, PORT};
use crate::command_line::refused;
use crate::options::{duration, length, mixed_size, peer, seconds, within};
use crate::premises::Refused;
use crate::unmodelled::Unmodelled;

/// Options without an effect of their own here.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::harmless("-P PRINT", "the report has no banner"),
    Unmodelled::harmless("-v VERBOSITY", "the report has everything"),
    Unmodelled::harmless("-d", "there is no debug output"),
    Unmodelled::harmless("-j", "latencies are reported anyway"),
    Unmodelled::harmless("-f UNIT", "throughput is reported in Mbit/s"),
    Unmodelled::harmless("-B TEXT", "the command line names the result"),
    Unmodelled::harmless("-n CORES", "the number of cores is known"),
    Unmodelled::harmless("-S", "connections do not idle"),
    Unmodelled::harmless("-a ALIGNMENT", "buffers start at pages"),
    Unmodelled::harmless("-A ALIGNMENT", "buffers start at pages"),
    Unmodelled::harmless("-o OFFSET", "buffers start at pages"),
    Unmodelled::harmless("-O OFFSET", "buffers start at pages"),
    Unmodelled::harmless("-W WIDTHS", "contents of buffers take no time to choose"),
    Unmodelled::harmless("-Z PASSPHRASE", "everyone may order a test"),
    Unmodelled::harmless("-4", "hosts have IPv4 addresses"),
    Unmodelled::refused("-6", "hosts have IPv4 addresses"),
    Unmodelled::refused("-N", "there is no test without a control connection"),
    Unmodelled::refused(
        "-b BURST",
        "`iperf3 -b` sends at a rate; `-- -b N` keeps N further transactions under way",
    ),
    Unmodelled::refused("-w INTERVAL", "`iperf3 -b` sends at a rate"),
    Unmodelled::refused("-y PRIORITY", "`nice` or `chrt` before the program"),
    Unmodelled::refused("-Y PRIORITY", "`nice` or `chrt` before `netserver`"),
];

/// Measures the throughput of a stream or the rate of transactions. Test-specific options follow `--`.
#[derive(Parser, Clone, PartialEq, Debug)]
#[command(name = "netperf", disable_help_flag = true)]
pub struct Netperf {
    /// The server's address, perhaps with its family: `10.0.0.2,inet`.
    #[arg(short = 'H', value_parser = server)]
    pub(super) host: Ipv4Addr,
    /// The local address.
    #[arg(short = 'L', default_value = "0.0.0.0")]
    pub(super) local: Ipv4Addr,
    /// What to measure.
    #[arg(short = 't', value_enum, default_value_t, ignore_case = true)]
    test: Test,
    /// Duration in seconds; a negative number is one of bytes, or of transactions. The real default of 10 would be long
    /// for a simulation.
    #[arg(short = 'l', default_value = "0.01", value_parser = extent, allow_hyphen_values = true)]
    pub(super) length: TestLength,
    /// Port of the control connection.
    #[arg(short = 'p', default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) port: u16,
    /// The file that `TCP_SENDFILE` sends: a block device.
    #[arg(short = 'F', default_value = "/dev/nvme0n1")]
    pub(super) file: String,
    /// Cores of client and server: `LOCAL,REMOTE`, `LOCAL,`, `,REMOTE`, or one number for both.
    #[arg(short = 'T', value_parser = cores)]
    pub(super) cores: Option<BoundCores>,
    /// Reports the client's CPU utilisation and service demand.
    #[arg(short = 'c')]
    pub(super) local_cpu: bool,
    /// Reports the server's CPU utilisation and service demand.
    #[arg(short = 'C')]
    pub(super) remote_cpu: bool,
    /// Prints interim results at this interval in seconds.
    #[arg(short = 'D', value_parser = length)]
    pub(super) interim: Option<f64>,
    /// Repeats the test `MAX,MIN` times, until the mean has the confidence that `-I` asks for.
    #[arg(short = 'i', value_parser = confidence::repetitions)]
    pub(super) repetitions: Option<(u16, u16)>,
    /// Confidence of the mean: `LEVEL,WIDTH` in percent, 99,5 by default.
    #[arg(short = 'I', value_parser = Confidence::read)]
    pub(super) confidence: Option<Confidence>,
    /// Seconds between the connection and the test.
    #[arg(short = 's', default_value_t = 0.0, value_parser = seconds)]
    pub(super) wait: f64,
    /// Test-specific options: `-m BYTES` per send, `-M BYTES` per receive, `-r REQUEST,RESPONSE`, `-b N` further
    /// transactions under way, `-s BYTES` and `-S BYTES` of local and remote socket buffers, `-D` for no delay, `-f BYTES`
    /// for the part of a device that counts as the file, `-d` and `-T` for omni, `-k` and `-o` with names of results.
    #[arg(last = true)]
    options: Vec<String>,
}

/// Cores of client and server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoundCores {
    pub local: Option<CpuId>,
    pub remote: Option<CpuId>,
}

fn server(text: &str) -> Result<Ipv4Addr, String> {
    let (address, family) = text.split_once(',').unwrap_or((text, "inet"));
    match family {
        "inet" | "4" | "0" | "" => peer(address),
        _ => Err(format!("`{family}` is not a family of addresses here, which is inet")),
    }
}

fn cores(text: &str) -> Result<BoundCores, String> {
    let core = |text: &str| match text {
        "" => Ok(None),
        text => text.parse().map(|core| Some(CpuId(core))),
    };
    let (local, remote) = text.split_once(',').unwrap_or((text, text));
    match (core(local), core(remote)) {
        (Ok(local), Ok(remote)) if local.or(remote).is_some() => Ok(BoundCores { local, remote }),
        _ => Err(format!("`{text}` does not name cores, such as `0,1`, `0,` or `,1`")),
    }
}

fn extent(text: &str) -> Result<TestLength, String> {
    if let Some(count) = text.strip_prefix('-') {
        let count = mixed_size(count).ok().filter(|count| (1..=1 << 50).contains(count));
        return count
            .map(TestLength::Count)
            .ok_or_else(|| format!("`{text}` is not a number of bytes or transactions"));
    }
    length(text).map(|seconds| TestLength::Time(duration(seconds)))
}

/// Test-specific options.
#[derive(Parser, Clone, PartialEq, Debug)]
#[command(name = "netperf --", disable_help_flag = true, no_binary_name = true)]
pub(super) struct TestOptions {
    /// Bytes per send; 16384 by default, and as many as a datagram holds for UDP_STREAM.
    #[arg(short = 'm', value_parser = call)]
    send: Option<u32>,
    /// Bytes per receive; 131072 by default.
    #[arg(short = 'M', value_parser = call)]
    receive: Option<u32>,
    /// Bytes of the file, which is sent repeatedly; 1 MiB by default. A whole device would not end within a test.
    #[arg(short = 'f', value_parser = file)]
    file: Option<u64>,
    /// Bytes of request and response; 1,1 by default.
    #[arg(short = 'r', value_parser = request_response)]
    sizes: Option<(u32, u32)>,
    /// Further transactions under way.
    #[arg(short = 'b', value_parser = clap::value_parser!(u32).range(..=65_536))]
    burst: Option<u32>,
    /// Bytes of the local socket buffers.
    #[arg(short = 's', value_parser = buffer)]
    pub local_buffers: Option<u32>,
    /// Bytes of the remote socket buffers.
    #[arg(short = 'S', value_parser = buffer)]
    pub remote_buffers: Option<u32>,
    /// Sends small segments at once.
    #[arg(short = 'D')]
    pub no_delay: bool,
    /// Direction of omni: `stream` or `send`, `maerts` or `recv`, `rr`.
    #[arg(short = 'd')]
    direction: Option<String>,
    /// Protocol of omni: `tcp` or `udp`.
    #[arg(short = 'T')]
    protocol: Option<String>,
    /// Results by name, one per line as `NAME=VALUE`; usual ones without a list.
    #[arg(short = 'k', num_args = 0..=1, default_missing_value = "")]
    keys: Option<String>,
    /// Results by name, separated by commas.
    #[arg(short = 'o', num_args = 0..=1, default_missing_value = "")]
    commas: Option<String>,
    /// Results by name, one per line behind their descriptions.
    #[arg(short = 'O', num_args = 0..=1, default_missing_value = "")]
    lines: Option<String>,
    /// The only family of addresses.
    #[arg(short = '4')]
    is_ipv4: bool,
    /// Whether datagrams may leave by a router: there is none.
    #[arg(short = 'R', num_args = 0..=1)]
    route: Option<String>,
    /// Ports of the data connection, `LOCAL,REMOTE`: free ones here, as no other host or firewall looks at them.
    #[arg(short = 'P')]
    ports: Option<String>,
}

/// Maximum datagram size: an IPv4 packet of 65535 B minus two headers.
const DATAGRAM: u32 = 65_507;

/// Bytes per call; of `LOCAL,REMOTE`, the first that is there, as only one side sends or receives.
fn call(text: &str) -> Result<u32, String> {
    let size = text.split(',').find(|size| !size.is_empty()).unwrap_or(text);
    within(mixed_size(size)?, 1..=MOST)
}

fn buffer(text: &str) -> Result<u32, String> {
    // netperf takes `LOCAL,REMOTE` for send and receive buffers; both have one size here.
    within(mixed_size(text.split(',').next().unwrap_or_default())?, 1..=1 << 30)
}

fn file(text: &str) -> Result<u64, String> {
    mixed_size(text)?
        .checked_sub(1)
        .filter(|size| *size < 1 << 40)
        .map(|size| size + 1)
        .ok_or_else(|| format!("`{text}` is not in 1..={}", 1u64 << 40))
}

fn request_response(text: &str) -> Result<(u32, u32), String> {
    let (request, response) = text.split_once(',').unwrap_or((text, text));
    let size = |part: &str| {
        let size = mixed_size(part.trim()).ok().and_then(|size| within(size, 1..=MOST).ok());
        size.ok_or_else(|| format!("`{part}` is not a size from 1 to {MOST}"))
    };
    Ok((size(request)?, size(response)?))
}

impl TestOptions {
    pub fn send(&self, test: Test) -> u32 {
        self.send.unwrap_or(if test == Test::UdpStream { DATAGRAM } else { 16_384 })
    }

    pub fn receive(&self) -> u32 {
        self.receive.unwrap_or(131_072)
    }

    pub fn file(&self) -> u64 {
        self.file.unwrap_or(1 << 20)
    }

    pub fn sizes(&self) -> (u32, u32) {
        self.sizes.unwrap_or((1, 1))
    }

    pub fn burst(&self) -> usize {
        self.burst.unwrap_or(0) as usize
    }

    /// The results that are asked for by name, or usual ones if some `are_printed` in any case.
    ///
    /// # Errors
    /// If one is unknown.
    pub fn output(&self, are_printed: bool) -> Result<Option<NamedOutput>, Refused> {
        let lines = self.lines.as_deref().or(are_printed.then_some(""));
        NamedOutput::read(self.keys.as_deref(), self.commas.as_deref(), lines)
    }

    /// The test that omni's options choose.
    fn omni(&self) -> Result<Test, Refused> {
        let is_udp = match self.protocol.as_deref().map(str::to_ascii_lowercase).as_deref() {
            None | Some("tcp") => false,
            Some("udp") => true,
            Some(other) => {
                return Err(Refused::new(
                    format!("netperf: there is no protocol `{other}`"),
                    "-T tcp or udp",
                ));
            }
        };
        let transactions = self.sizes.is_some();
        let direction = self.direction.as_deref().unwrap_or(if transactions { "rr" } else { "stream" });
        match (direction.to_ascii_lowercase().as_str(), is_udp) {
            ("stream" | "send" | "xmit", false) => Ok(Test::TcpStream),
            ("stream" | "send" | "xmit", true) => Ok(Test::UdpStream),
            ("maerts" | "recv" | "receive", false) => Ok(Test::TcpMaerts),
            ("rr", false) => Ok(Test::TcpRr),
            ("rr", true) => Ok(Test::UdpRr),
            (other, _) => {
                let protocol = if is_udp { "udp" } else { "tcp" };
                let message = format!("netperf: omni has no direction `{other}` with {protocol}");
                Err(Refused::new(message, "-d stream, rr, and maerts with -T tcp"))
            }
        }
    }

    /// Checks that the options apply to this test.
    fn agree(&self, test: Test, is_omni: bool) -> Result<(), Refused> {
        let streams = test.streams();
        let (is_file, is_plain_rr) = (test == Test::TcpSendfile, matches!(test, Test::TcpRr | Test::UdpRr));
        for (option, given, takes, tests) in [
            ("-m", self.send.is_some(), streams, "TCP_STREAM, TCP_MAERTS, TCP_SENDFILE and UDP_STREAM"),
            ("-M", self.receive.is_some(), streams, "TCP_STREAM, TCP_MAERTS, TCP_SENDFILE and UDP_STREAM"),
            ("-f", self.file.is_some(), is_file, "TCP_SENDFILE"),
            ("-r", self.sizes.is_some(), !streams, "TCP_RR, TCP_CRR and UDP_RR"),
            ("-b", self.burst.is_some(), is_plain_rr, "TCP_RR and UDP_RR"),
            ("-d", self.direction.is_some(), is_omni, "omni"),
            ("-T", self.protocol.is_some(), is_omni, "omni; other tests have theirs in their names"),
        ] {
            let message = format!("netperf: this test does not take {option}");
            Refused::unless(!given || takes, message, format!("it is for -t {tests}"))?;
        }
        let (request, response) = self.sizes();
        let fits = test != Test::UdpRr || request.max(response) <= DATAGRAM;
        Refused::unless(fits, "netperf: no datagram is as long", format!("-r up to {DATAGRAM},{DATAGRAM}"))?;
        let fits = test != Test::UdpStream || self.send(test) <= DATAGRAM;
        Refused::unless(fits, "netperf: no datagram is as long", format!("-m up to {DATAGRAM}"))
    }
}

impl Netperf {
    /// The test and its options.
    ///
    /// # Errors
    /// If they do not fit.
    pub(super) fn test(&self) -> Result<(Test, TestOptions), Refused> {
        let options = TestOptions::try_parse_from(&self.options)
            .map_err(|error| refused("netperf", &TestOptions::command(), &error))?;
        let (test, is_omni) = match self.test {
            Test::Omni => (options.omni()?, true),
            test => (test, false),
        };
        options.agree(test, is_omni)?;
        options.output(false)?;
        Ok((test, options))
    }

    /// The highest and the lowest number of tests.
    pub(super) fn repetitions(&self) -> (u16, u16) {
        // As in the original, -I alone repeats as often as it takes.
        let default = if self.confidence.is_some() { (confidence::MOST, 3) } else { (1, 1) };
        self.repetitions.unwrap_or(default)
    }
}
