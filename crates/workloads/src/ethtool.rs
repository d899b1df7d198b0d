//! ethtool: shows and changes settings of a network device.
//!
//! | command | what it does |
//! |---|---|
//! | `ethtool -S eth0` | counters of frames sent and dropped |
//! | `ethtool -c eth0` | interrupt coalescing |
//! | `ethtool -C eth0 rx-usecs 20 rx-frames 16 adaptive-rx off` | changes coalescing of all queues |
//! | `ethtool -x eth0` | the queue for each value of the receive hash |
//! | `ethtool -X eth0 equal 2` or `ethtool -X eth0 weight 3 1` | changes the queues |

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::net::{Coalescing, PacketDevice};
use units::Duration;

use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};

/// Shows or sets a network device's counters, coalescing and receive queues.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "ethtool", disable_help_flag = true)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct Ethtool {
    /// Shows counters of frames sent and dropped.
    #[arg(short = 'S', value_name = "DEVICE", group = "what")]
    statistics: Option<String>,
    /// Shows interrupt coalescing.
    #[arg(short = 'c', value_name = "DEVICE", group = "what")]
    show_coalescing: Option<String>,
    /// Sets interrupt coalescing: `rx-usecs N`, `rx-frames N`, `adaptive-rx on|off`.
    #[arg(short = 'C', value_name = "DEVICE", group = "what")]
    coalescing: Option<String>,
    /// Shows the queue for each value of the receive hash.
    #[arg(short = 'x', value_name = "DEVICE", group = "what")]
    show_table: Option<String>,
    /// Sets the queues of the receive hash: `equal N`, `weight W0 W1 ...`.
    #[arg(short = 'X', value_name = "DEVICE", group = "what")]
    table: Option<String>,
    /// What `-C` or `-X` sets, as names and values.
    settings: Vec<String>,
}

/// Maximum interrupt delay (µs): one second.
const LONGEST: u64 = 1_000_000;

fn number<T: std::str::FromStr>(word: Option<&String>, what: &str) -> Result<T, Refused> {
    let word = word.map_or("", String::as_str);
    let message = || format!("ethtool: `{word}` is not a number for {what}");
    word.parse().map_err(|_| Refused::new(message(), format!("as in `{what} 1`")))
}

impl Ethtool {
    fn changed(&self, mut coalescing: Coalescing) -> Result<Coalescing, Refused> {
        for pair in self.settings.chunks(2) {
            let (name, value) = (pair[0].as_str(), pair.get(1));
            match name {
                "rx-usecs" => {
                    let most = "ethtool: no interrupt waits so long";
                    let us = number(value, name)?;
                    Refused::unless(us <= LONGEST, most, format!("rx-usecs 0 to {LONGEST}"))?;
                    coalescing.time = Duration::from_us(us);
                }
                "rx-frames" => coalescing.packets = number(value, name)?,
                "adaptive-rx" => {
                    coalescing.adaptive = match value.map(String::as_str) {
                        Some("on") => true,
                        Some("off") => false,
                        _ => {
                            let help = "as in `adaptive-rx on`";
                            return Err(Refused::new("ethtool: adaptive-rx is on or off", help));
                        }
                    }
                }
                _ => {
                    let known = "rx-usecs, rx-frames and adaptive-rx";
                    let message = format!("ethtool: -C takes {known}, not `{name}`");
                    return Err(Refused::new(message, "as in `rx-usecs 20 rx-frames 16`"));
                }
            }
        }
        Ok(coalescing)
    }

    /// The device's name.
    fn device(&self) -> &str {
        let all = [&self.statistics, &self.show_coalescing, &self.coalescing, &self.show_table, &self.table];
        all.into_iter().flatten().next().map_or("", String::as_str)
    }

    /// Queues that the hash values are assigned to in turn, on a device with `there` queues.
    fn queues(&self, there: u16) -> Result<Vec<u16>, Refused> {
        let queues = self.listed()?;
        let holds = !queues.is_empty() && queues.iter().all(|&queue| queue < there);
        let help = format!("queues 0 to {}", there.saturating_sub(1));
        Refused::unless(holds, "ethtool: -X names no queue, or one that the device has not got", help)?;
        Ok(queues)
    }

    fn listed(&self) -> Result<Vec<u16>, Refused> {
        let (how, numbers) = self.settings.split_first().map_or(("", &[][..]), |(how, n)| (how.as_str(), n));
        match how {
            "equal" => Ok((0..number::<u16>(numbers.first(), "equal")?).collect()),
            "weight" => {
                let weights = numbers.iter().map(|word| number::<u16>(Some(word), "weight"));
                let weights = weights.collect::<Result<Vec<_>, _>>()?;
                Ok((0u16..)
                    .zip(weights)
                    .flat_map(|(queue, weight)| std::iter::repeat_n(queue, weight.into()))
                    .collect())
            }
            _ => Err(Refused::new("ethtool: -X says to which queues", "`equal N` or `weight W0 W1 ...`")),
        }
    }

    async fn show_statistics(cpu: &Cpu, device: &dyn PacketDevice) -> Report {
        let (hardware, kernel) = (device.statistics(cpu).await, device.counters());
        let others = device.device_statistics(cpu).await;
        let mut report = Report::default();
        let first = [
            ("rx_packets", kernel.rx_packets),
            ("rx_bytes", kernel.rx_bytes),
            ("tx_packets", kernel.tx_packets),
            ("tx_bytes", kernel.tx_bytes),
            ("tx_frames_sent", hardware.frames),
            ("tx_failed", hardware.failed),
            ("tx_no_carrier", hardware.no_carrier),
            ("tx_lost", hardware.lost),
            ("tx_refused", hardware.refused),
            ("resets", hardware.resets),
        ];
        let last = [
            ("rx_no_buffer", others.rx_no_buffer),
            ("rx_overflow", others.rx_overflow),
            ("rx_crc_errors", others.rx_damaged),
            ("rx_length_errors", others.rx_length_errors),
            ("rx_filtered", others.rx_filtered),
            ("rx_no_queue", others.rx_no_queue),
            ("rx_unwanted", kernel.rx_unwanted),
            ("tx_dropped", kernel.tx_dropped),
            ("tx_no_link", kernel.tx_no_link),
            ("tx_timeouts", kernel.tx_timeouts),
        ];
        for (name, value) in first.into_iter().chain(hardware.own).chain(others.own).chain(last) {
            report.add(name, "", value as f64);
        }
        report
    }

    fn coalescing_of(device: &dyn PacketDevice) -> Report {
        let mut report = Report::default();
        for queue in 0..device.limits().rx_queues {
            if let Some(coalescing) = device.coalescing(queue) {
                report.add(format!("rx-{queue} usecs"), "µs", coalescing.time.as_ns_f64() / 1e3);
                report.add(format!("rx-{queue} frames"), "", f64::from(coalescing.packets));
                report.add(format!("rx-{queue} adaptive"), "", f64::from(u8::from(coalescing.adaptive)));
            }
        }
        report
    }

    fn table_of(device: &dyn PacketDevice) -> Report {
        let table = device.indirection();
        let mut report = Report::default();
        for queue in 0..device.limits().rx_queues {
            let values = table.iter().filter(|&&to| to == queue).count();
            report.add(format!("rx-{queue}"), "values of the hash", values as f64);
        }
        report
    }
}

impl Program for Ethtool {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let link = premises.link("ethtool", self.device())?;
        if self.table.is_some() {
            return self.queues(link.queues).map(drop);
        }
        if self.coalescing.is_some() {
            let help = "rx-usecs N, rx-frames N, adaptive-rx on|off";
            Refused::unless(!self.settings.is_empty(), "ethtool: -C does not say what to set", help)?;
            return self.changed(Coalescing::default()).map(drop);
        }
        let message = format!("ethtool: `{}` is left over", self.settings.join(" "));
        Refused::unless(self.settings.is_empty(), message, "-C and -X set what follows the device's name")
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let name = self.device();
            let device = environment.kernel.packet_device(name);
            let device = device.ok_or_else(|| Failure::about(name, Error::NoDevice))?;
            let fail = |error| Failure::about(name, error);
            if self.statistics.is_some() {
                return Ok(Self::show_statistics(&cpu, &*device).await);
            }
            if self.coalescing.is_some() {
                for queue in 0..device.limits().rx_queues {
                    let wanted = self.changed(device.coalescing(queue).unwrap_or_default())?;
                    device.set_coalescing(&cpu, queue, wanted).map_err(fail)?;
                }
            }
            if self.table.is_some() {
                let queues = self.queues(device.limits().rx_queues)?;
                device.set_indirection(&cpu, &queues).map_err(fail)?;
            }
            Ok(match self.show_table.is_some() || self.table.is_some() {
                true => Self::table_of(&*device),
                false => Self::coalescing_of(&*device),
            })
        })
    }
}
