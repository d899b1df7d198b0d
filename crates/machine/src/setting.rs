//! Settings that an event changes under way, as real systems change them while they run; other parameters are read once.

use crate::nic::RINGS;
use crate::nic_driver::NicDriverEntry;
use crate::nvme_driver::NvmeDriverEntry;
use crate::placed::Placed;
use crate::read::Read;
use crate::shape::Shape;
use crate::suggest;
use units::Duration;

/// A setting of a network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetSetting {
    /// Maximum delay from a packet to its interrupt, for all receive queues (`ethtool -C`).
    Coalescing(Duration),
    /// Number of packets that triggers an interrupt immediately.
    CoalescingPackets(u32),
    /// Whether the device shortens the delay at low load.
    Adaptive(bool),
    /// Descriptors of each TX ring; the device restarts (`ethtool -G`).
    TxRing(u32),
    /// Descriptors of each RX ring.
    RxRing(u32),
    /// RX queues to which the values of the RSS hash are assigned in turn (`ethtool -X`).
    Rss(Vec<u16>),
    /// Whether the device segments (`ethtool -K`).
    Tso(bool),
    /// MTU.
    Mtu(u16),
}

/// Settings of network devices.
pub(crate) const NET: [&str; 8] =
    ["coalescing", "coalescing_packets", "adaptive", "tx_ring", "rx_ring", "rss", "tso", "mtu"];
/// What else can be set.
const OTHERS: &str = "`a:nvme0n1.io_timeout`, `a:nvme_driver.sgl_threshold`, `a:netperf.memory`, \
                      `a:nic_driver.kpio`, `a:hypervisor.placement`";
/// Longest interrupt delay.
const LONGEST: Duration = Duration::from_ms(10);

/// What can be set.
pub(crate) fn known() -> String {
    format!("network devices have {}, as in `a:eth0.mtu`; there are also {OTHERS}", suggest::list(NET))
}

impl NetSetting {
    /// Reads the value of a setting. Whether the device can have it is for [`check`](Self::check) to say.
    ///
    /// # Errors
    /// What it can be.
    pub(crate) fn parse(setting: &str, value: &str) -> Result<Self, String> {
        fn of<T: std::str::FromStr>(value: &str) -> Option<T> {
            value.trim().parse().ok()
        }
        let ring =
            || of(value).filter(|&entries: &u32| entries.is_power_of_two() && RINGS.contains(&entries));
        let (read, help) = match setting {
            "coalescing" => {
                let time = of(value).filter(|&time| time <= LONGEST);
                (time.map(Self::Coalescing), "a time up to 10 ms, such as `20 us`")
            }
            "coalescing_packets" => {
                (of(value).map(Self::CoalescingPackets), "a number of packets; 0 for no limit")
            }
            "adaptive" => (of(value).map(Self::Adaptive), "`true` or `false`"),
            "tso" => (of(value).map(Self::Tso), "`true` or `false`"),
            "tx_ring" => (ring().map(Self::TxRing), "a power of two from 8 to 32768"),
            "rx_ring" => (ring().map(Self::RxRing), "a power of two from 8 to 32768"),
            "rss" => {
                let queues: Option<_> = value.split(',').map(of).collect();
                (queues.map(Self::Rss), "numbers of queues, such as `0,1`")
            }
            _ => (of(value).map(Self::Mtu), "a number of bytes"),
        };
        read.ok_or_else(|| help.to_owned())
    }

    /// What scenarios call it.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Coalescing(_) => "coalescing",
            Self::CoalescingPackets(_) => "coalescing_packets",
            Self::Adaptive(_) => "adaptive",
            Self::TxRing(_) => "tx_ring",
            Self::RxRing(_) => "rx_ring",
            Self::Rss(_) => "rss",
            Self::Tso(_) => "tso",
            Self::Mtu(_) => "mtu",
        }
    }

    /// Checks it for a device with a largest MTU and so many RX queues.
    ///
    /// # Errors
    /// What it can be.
    pub(crate) fn check(&self, (max_mtu, rx_queues): (u16, u16)) -> Result<(), String> {
        match self {
            Self::Rss(queues) if queues.iter().any(|queue| *queue >= rx_queues) => Err(match rx_queues {
                1 => "its only queue, `0`".to_owned(),
                queues => format!("numbers of queues, such as `0,{0}`, from 0 to {0}", queues - 1),
            }),
            Self::Mtu(mtu) if !(68..=max_mtu).contains(mtu) => Err(format!("from 68 to {max_mtu}")),
            _ => Ok(()),
        }
    }
}

/// That a setting has a wrong value.
pub(crate) fn cannot_be(setting: &str, value: &Placed<String>) -> String {
    format!("`{setting}` cannot be `{}`", value.value)
}

/// Why a parameter that a driver only reads when it is loaded, or an unknown one, is not set. `elsewhere` says how else some
/// are set.
fn only_at_load<D: Read>(
    driver: &str,
    parameter: &str,
    elsewhere: impl Fn(&str) -> Option<String>,
) -> (String, String) {
    let Shape::Table(keys) = D::shape() else { unreachable!("a driver's parameters are a table") };
    let names = || keys.iter().map(|key| key.name);
    if !names().any(|name| name == parameter) {
        let all = suggest::among(parameter, names(), "there are");
        return (format!("`{driver}` has no parameter `{parameter}`"), all);
    }
    match elsewhere(parameter) {
        Some(help) => (format!("`{parameter}` is not set at the driver"), help),
        None => {
            let message = format!("the driver reads `{parameter}` only when it is loaded");
            (message, format!("set it in `[host.{driver}]`; it holds for the whole run"))
        }
    }
}

/// Why a parameter of a host's NIC driver is not set there, and what to do instead.
pub(crate) fn of_nic_driver(host: &str, parameter: &str) -> (String, String) {
    only_at_load::<NicDriverEntry>("nic_driver", parameter, |name| match name {
        "kpio_first_port" | "kpio_last_port" | "kpio_up_to" => {
            Some(format!("set `{host}:nic_driver.kpio`, to `tcp-ports 5001-5010` or `up-to 256 B`"))
        }
        name => {
            let is_net = NET.contains(&name);
            is_net.then(|| format!("set it at each network device, as in `{host}:eth0.{name}`"))
        }
    })
}

/// As [`of_nic_driver`], of the NVMe driver.
pub(crate) fn of_nvme_driver(host: &str, parameter: &str) -> (String, String) {
    only_at_load::<NvmeDriverEntry>("nvme_driver", parameter, |name| {
        let is_timeout = name == "io_timeout";
        is_timeout.then(|| format!("set it at each block device, as in `{host}:nvme0n1.io_timeout`"))
    })
}
