//! ethtool: shows and changes settings of a network device.
//!
//! | command | what it does |
//! |---|---|
//! | `ethtool eth0`, `-i` | speed and link; place on the bus |
//! | `ethtool -S eth0` | counters of frames sent and dropped |
//! | `ethtool -c eth0`, `-C eth0 rx-usecs 20 rx-frames 16 adaptive-rx off` | interrupt coalescing of all queues |
//! | `ethtool -g eth0`, `-G eth0 rx 1024 tx 1024` | descriptors of the rings |
//! | `ethtool -l eth0`, `-L eth0 combined 4` | pairs of queues, which the driver sets up when it is loaded |
//! | `ethtool -k eth0`, `-K eth0 tso off gro off` | offloads of the device and of the stack |
//! | `ethtool -a eth0`, `-A eth0 rx off tx off` | pause frames, which are a property of the card |
//! | `ethtool -n eth0`, `-N eth0 flow-type tcp4 ... action 3` | rules that steer flows to queues |
//! | `ethtool -x eth0`, `-X eth0 equal 2`, `weight 3 1`, `default` | the queue for each value of the receive hash |
//!
//! | file | subject |
//! |---|---|
//! | `settings` | the words after the device's name |

mod settings;

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::net::{Coalescing, NetDriver, PacketDevice};

use crate::premises::{Link, Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::unmodelled::Unmodelled;
use settings::{HashQueues, Offload};

/// Shows or sets a network device's counters, coalescing, rings, offloads and receive queues.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "ethtool", disable_help_flag = true)]
#[command(group = clap::ArgGroup::new("what"))]
pub struct Ethtool {
    /// Shows counters of frames sent and dropped.
    #[arg(short = 'S', long, value_name = "DEVICE", group = "what")]
    statistics: Option<String>,
    /// Shows the device's place on the bus.
    #[arg(short = 'i', long, value_name = "DEVICE", group = "what")]
    driver: Option<String>,
    /// Shows interrupt coalescing.
    #[arg(short = 'c', long, value_name = "DEVICE", group = "what")]
    show_coalesce: Option<String>,
    /// Sets interrupt coalescing: `rx-usecs N`, `rx-frames N`, `adaptive-rx on|off`. `tx-usecs`, `tx-frames` and
    /// `adaptive-tx` have the same values, as a pair of queues has one interrupt.
    #[arg(short = 'C', long, value_name = "DEVICE", group = "what")]
    coalesce: Option<String>,
    /// Shows the descriptors of a ring.
    #[arg(short = 'g', long, value_name = "DEVICE", group = "what")]
    show_ring: Option<String>,
    /// Sets the descriptors of all rings: `rx N`, `tx N`. The device restarts.
    #[arg(short = 'G', long, value_name = "DEVICE", group = "what")]
    set_ring: Option<String>,
    /// Shows the number of queue pairs.
    #[arg(short = 'l', long, value_name = "DEVICE", group = "what")]
    show_channels: Option<String>,
    /// `combined N`: the driver has its queue pairs from `[host.nic_driver]`, and another number is refused.
    #[arg(short = 'L', long, value_name = "DEVICE", group = "what")]
    set_channels: Option<String>,
    /// Shows offloads.
    #[arg(short = 'k', long, visible_alias = "show-offload", value_name = "DEVICE", group = "what")]
    show_features: Option<String>,
    /// Sets offloads: `tso`, `gro`, `rx`, `tx`, `rxhash`, `ntuple`, each `on` or `off`.
    #[arg(short = 'K', long, visible_alias = "offload", value_name = "DEVICE", group = "what")]
    features: Option<String>,
    /// Shows pause frames.
    #[arg(short = 'a', long, value_name = "DEVICE", group = "what")]
    show_pause: Option<String>,
    /// Pause frames are a property of the card, and a change is refused.
    #[arg(short = 'A', long, value_name = "DEVICE", group = "what")]
    pause: Option<String>,
    /// Shows the number of receive queues that rules can name.
    #[arg(
        short = 'n',
        short_alias = 'u',
        long,
        visible_alias = "show-nfc",
        value_name = "DEVICE",
        group = "what"
    )]
    show_ntuple: Option<String>,
    /// Steers a flow to a queue: `flow-type tcp4|udp4 src-ip A dst-ip A src-port N dst-port N action QUEUE`.
    #[arg(
        short = 'N',
        short_alias = 'U',
        long,
        visible_alias = "config-nfc",
        value_name = "DEVICE",
        group = "what"
    )]
    config_ntuple: Option<String>,
    /// Speed, duplex and autonegotiation are properties of the cable, and a change is refused.
    #[arg(short = 's', long, value_name = "DEVICE", group = "what")]
    change: Option<String>,
    /// Shows the queue for each value of the receive hash.
    #[arg(short = 'x', long, visible_alias = "show-rxfh", value_name = "DEVICE", group = "what")]
    show_rxfh_indir: Option<String>,
    /// Sets the queues of the receive hash: `equal N`, `weight W0 W1 ...`, `default`.
    #[arg(short = 'X', long, visible_alias = "rxfh", value_name = "DEVICE", group = "what")]
    set_rxfh_indir: Option<String>,
    /// What is set, as names and values; without an option, the device whose speed and link are shown.
    settings: Vec<String>,
}

/// What the original shows or does and cards here have not.
pub(crate) const UNMODELLED: &[Unmodelled] = &[
    Unmodelled::refused("-T, --show-time-stamping DEVICE", "`nearfar trace` has the time of each packet"),
    Unmodelled::refused("-m, --module-info DEVICE", "cables have no modules"),
    Unmodelled::refused("-p, --identify DEVICE", "there is no light"),
    Unmodelled::refused("-t, --test DEVICE", "`ping` tries a device"),
    Unmodelled::refused("-r, --negotiate DEVICE", "an `[[event]]` with `do = \"cut\"` takes a cable away"),
    Unmodelled::refused("-d, --register-dump DEVICE", "`nearfar trace` has accesses to registers"),
    Unmodelled::refused("-e, --eeprom-dump DEVICE", "cards have no memory of this kind"),
    Unmodelled::refused("-P, --show-permaddr DEVICE", "`[[host.device]]` has the key `mac`"),
    Unmodelled::refused("--reset DEVICE", "events `remove` and `plug` take a card out and put it back"),
    Unmodelled::refused("--show-priv-flags DEVICE", "figures of a card are in its file"),
    Unmodelled::refused(
        "--set-priv-flags DEVICE",
        "`change` at the `[[host.device]]` changes figures of a card",
    ),
    Unmodelled::refused("--show-fec DEVICE", "cables have `corruption` and no correction"),
    Unmodelled::refused("--show-eee DEVICE", "links do not sleep"),
    Unmodelled::refused("--set-eee DEVICE", "links do not sleep"),
];

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EthtoolAction {
    Link,
    Statistics,
    Driver,
    ShowCoalescing,
    Coalescing,
    ShowRings,
    Rings,
    ShowChannels,
    Channels,
    ShowOffloads,
    Offloads,
    ShowPause,
    Pause,
    ShowRules,
    Rule,
    Speed,
    ShowTable,
    Table,
}

impl EthtoolAction {
    /// Whether it sets what the words after the device's name say.
    fn sets(self) -> bool {
        use EthtoolAction::{Channels, Coalescing, Offloads, Pause, Rings, Rule, Speed, Table};
        matches!(self, Coalescing | Rings | Channels | Offloads | Pause | Rule | Speed | Table)
    }
}

impl Ethtool {
    /// What is to be done, with which device, and the words behind its name.
    fn asked(&self) -> (EthtoolAction, &str, &[String]) {
        use EthtoolAction as A;
        let all = [
            (A::Statistics, &self.statistics),
            (A::Driver, &self.driver),
            (A::ShowCoalescing, &self.show_coalesce),
            (A::Coalescing, &self.coalesce),
            (A::ShowRings, &self.show_ring),
            (A::Rings, &self.set_ring),
            (A::ShowChannels, &self.show_channels),
            (A::Channels, &self.set_channels),
            (A::ShowOffloads, &self.show_features),
            (A::Offloads, &self.features),
            (A::ShowPause, &self.show_pause),
            (A::Pause, &self.pause),
            (A::ShowRules, &self.show_ntuple),
            (A::Rule, &self.config_ntuple),
            (A::Speed, &self.change),
            (A::ShowTable, &self.show_rxfh_indir),
            (A::Table, &self.set_rxfh_indir),
        ];
        let named = all.into_iter().find_map(|(action, device)| device.as_deref().map(|name| (action, name)));
        match (named, self.settings.split_first()) {
            (Some((action, device)), _) => (action, device, &self.settings),
            (None, Some((device, rest))) => (A::Link, device, rest),
            (None, None) => (A::Link, "", &[]),
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

    fn rings_of(driver: &dyn NetDriver) -> Report {
        let mut report = Report::default();
        if let Some(rings) = driver.rings() {
            report.add("rx ring", "descriptors", rings.rx.into());
            report.add("tx ring", "descriptors", rings.tx.into());
        }
        report
    }

    fn offloads_of(device: &dyn PacketDevice) -> Report {
        let mut offloads = device.offloads();
        let mut report = Report::default();
        for offload in Offload::ALL {
            report.add(offload.name, "", f64::from(u8::from(*(offload.of)(&mut offloads))));
        }
        report
    }

    fn link_of(device: &dyn PacketDevice) -> Report {
        let mut report = Report::default();
        report.add("speed", "Mbit/s", device.limits().speed.bits_per_s() as f64 / 1e6);
        report.add("link detected", "", f64::from(u8::from(device.has_carrier())));
        report.add("mtu", "bytes", device.mtu().into());
        report
    }

    /// Sets what the command says; nothing for one that shows.
    async fn set(&self, cpu: &Cpu, device: &dyn PacketDevice, driver: &dyn NetDriver) -> Result<(), Failure> {
        let (action, name, words) = self.asked();
        let fail = |error| Failure::about(name, error);
        let queues = device.limits().rx_queues;
        match action {
            EthtoolAction::Coalescing => {
                for queue in 0..queues {
                    let wanted = settings::coalescing(words, device.coalescing(queue).unwrap_or_default())?;
                    device.set_coalescing(cpu, queue, wanted).map_err(fail)?;
                }
            }
            EthtoolAction::Rings => {
                let now = driver.rings().ok_or_else(|| fail(Error::NotSupported))?;
                let wanted = settings::rings(words, now)?;
                if wanted != now {
                    driver.set_rings(cpu, wanted).await.map_err(fail)?;
                }
            }
            EthtoolAction::Offloads => {
                let wanted = settings::offloads(words, device.offloads())?;
                let on = device.set_offloads(cpu, &wanted);
                let missing = Offload::ALL
                    .iter()
                    .find(|offload| *(offload.of)(&mut on.clone()) != *(offload.of)(&mut wanted.clone()));
                if let Some(offload) = missing {
                    return Err(Failure(format!("{name}: the device has no {}", offload.name)));
                }
            }
            EthtoolAction::Rule => {
                if let Some(rule) = settings::rule(words, queues)? {
                    driver.steer(cpu, rule.flow, rule.queue).map_err(fail)?;
                }
            }
            EthtoolAction::Table => {
                device.set_indirection(cpu, &HashQueues::read(words, queues)?.0).map_err(fail)?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Checks the words after a device's name.
fn check(action: EthtoolAction, words: &[String], link: &Link) -> Result<(), Refused> {
    let instead = |what: &str, instead: String| Err(Refused::new(format!("ethtool: {what}"), instead));
    match action {
        EthtoolAction::Coalescing => settings::coalescing(words, Coalescing::default()).map(drop),
        EthtoolAction::Rings => settings::rings(words, settings::NO_RINGS).map(drop),
        EthtoolAction::Offloads => settings::offloads(words, platform::net::Offloads::default()).map(drop),
        EthtoolAction::Rule => settings::rule(words, link.queues).map(drop),
        EthtoolAction::ShowRules if !words.is_empty() => settings::hashed(words).map(drop),
        EthtoolAction::Table => HashQueues::read(words, link.queues).map(drop),
        EthtoolAction::Channels => match settings::channels(words)? {
            count if count == link.queues => Ok(()),
            count => instead(
                &format!("{} has {} queue pairs while the driver runs", link.name, link.queues),
                format!("set `channels = {count}` in `[host.nic_driver]`"),
            ),
        },
        EthtoolAction::Pause => instead(
            "pause frames are a property of the card",
            "`[flow_control]` in the NIC's file, or `change.flow_control` at its `[[host.device]]`"
                .to_owned(),
        ),
        EthtoolAction::Speed => instead(
            "speed and duplex are properties of card and cable",
            "set `rate` of the `[[cable]]`, or `change.controller.rate` at the `[[host.device]]`".to_owned(),
        ),
        _ => Ok(()),
    }
}

impl Program for Ethtool {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let (action, device, words) = self.asked();
        Refused::unless(!device.is_empty(), "ethtool: of which device?", "as in `ethtool eth0`")?;
        let link = premises.link("ethtool", device)?;
        let (message, help) = match action.sets() {
            true => ("ethtool: the command does not say what to set".to_owned(), settings::KNOWN),
            false => (
                format!("ethtool: `{}` is left over", words.join(" ")),
                "-C, -G, -K, -N and -X set what follows",
            ),
        };
        // `-n eth0 rx-flow-hash udp4` asks what is hashed.
        let asks =
            action == EthtoolAction::ShowRules && words.first().is_some_and(|word| word == "rx-flow-hash");
        Refused::unless(asks || action.sets() != words.is_empty(), message, help)?;
        check(action, words, link)
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let (action, name, _) = self.asked();
            let gone = || Failure::about(name, Error::NoDevice);
            let device = environment.kernel.packet_device(name).ok_or_else(gone)?;
            if action == EthtoolAction::Statistics {
                return Ok(Self::show_statistics(&cpu, &*device).await);
            }
            let driver = device.driver().ok_or_else(gone)?;
            self.set(&cpu, &*device, &*driver).await?;
            let mut report = Report::default();
            match action {
                EthtoolAction::Rings | EthtoolAction::ShowRings => report = Self::rings_of(&*driver),
                EthtoolAction::Channels | EthtoolAction::ShowChannels => {
                    report.add("combined", "queue pairs", device.limits().rx_queues.into());
                }
                EthtoolAction::Offloads | EthtoolAction::ShowOffloads => report = Self::offloads_of(&*device),
                EthtoolAction::ShowRules if !self.settings.is_empty() => {
                    report.text = Some(settings::hashed(&self.settings)?);
                }
                EthtoolAction::Rule | EthtoolAction::ShowRules => {
                    report.add("rx rings available", "", device.limits().rx_queues.into());
                }
                EthtoolAction::Table | EthtoolAction::ShowTable => report = Self::table_of(&*device),
                EthtoolAction::Coalescing | EthtoolAction::ShowCoalescing => {
                    report = Self::coalescing_of(&*device)
                }
                EthtoolAction::Driver => {
                    let place = driver.function().map_or_else(|| "none".to_owned(), |at| at.to_string());
                    report = Self::link_of(&*device);
                    report.text = Some(format!("bus-info: {place}"));
                }
                EthtoolAction::ShowPause => {
                    report
                        .notes
                        .push("pause frames are on if the NIC's file has `[flow_control]`".to_owned());
                }
                _ => report = Self::link_of(&*device),
            }
            Ok(report)
        })
    }
}
