//! What a host offers to programs when it has booted, so that invalid command lines are rejected where they are written.

use std::fmt;
use std::net::Ipv4Addr;

use settings::{BY_ID, is_disk};

use crate::program::Failure;

/// Why a command line is rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The problem, with the option.
    pub message: String,
    /// What would be valid.
    pub help: Option<String>,
    /// What else is wrong with the same line.
    pub others: Vec<Refused>,
}

impl Refused {
    /// Creates a rejection with a remedy.
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: Some(help.into()), others: Vec::new() }
    }

    /// All that is wrong with a line as one; `None` of nothing.
    pub(crate) fn together(all: Vec<Self>) -> Option<Self> {
        let mut all = all.into_iter();
        let mut first = all.next()?;
        first.others.extend(all.flat_map(Self::apart));
        Some(first)
    }

    /// Each problem by itself.
    pub fn apart(self) -> Vec<Self> {
        let Self { message, help, others } = self;
        [Self { message, help, others: Vec::new() }].into_iter().chain(others).collect()
    }

    /// Rejects with `message` and `help` unless `holds`.
    pub(crate) fn unless(
        holds: bool,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self::new(message, help)) }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.help.iter().try_for_each(|help| write!(f, " ({help})"))?;
        self.others.iter().try_for_each(|other| write!(f, "; {other}"))
    }
}

/// For programs run without a prior check.
impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self(refused.to_string())
    }
}

/// Addresses that a message tells.
const PEERS_TOLD: usize = 6;

/// What a program will find on its host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Premises {
    /// Number of cores that it may use.
    pub cores: usize,
    /// Number of cores of its host.
    pub all_cores: usize,
    /// These cores, each with its node.
    pub cpus: Vec<(u16, u8)>,
    /// Number of nodes with memory.
    pub nodes: u8,
    /// Bytes of the host's memory.
    pub memory: u64,
    /// Block devices.
    pub disks: Vec<Disk>,
    /// Network devices.
    pub links: Vec<Link>,
    /// Network devices that a program takes from the kernel and polls, each with whether it has a link partner.
    pub polled: Vec<(String, bool)>,
    /// Number of GPUs.
    pub gpus: u32,
    /// Number of drives reserved for programs.
    pub user_drives: u32,
    /// Number of cards with a DMA engine, which programs may map.
    pub cards: u32,
    /// Functions with names, as events call them.
    pub functions: Vec<String>,
    /// Who else has an address, and which; empty if that is not known.
    pub peers: Vec<(String, Ipv4Addr)>,
}

/// A block device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disk {
    /// Its name, such as `nvme0n1`; `None` if it is yet to come, so that the kernel has given it none.
    pub name: Option<String>,
    /// Its name below `/dev/disk/by-id`.
    pub id: Option<String>,
    /// Size in bytes.
    pub bytes: u64,
    /// Block size in bytes.
    pub block: u64,
}

impl Disk {
    /// The disk that a name below `/dev` means.
    pub fn find<'a>(disks: &'a [Self], name: &str) -> Option<&'a Self> {
        let is_it = |disk: &&Self| is_disk(name, disk.name.as_deref().unwrap_or(""), disk.id.as_deref());
        let may_come = || disks.iter().filter(|disk| disk.name.is_none() && name.starts_with("nvme"));
        disks.iter().find(is_it).or_else(|| may_come().max_by_key(|disk| disk.bytes))
    }
}

/// A network device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Number of receive queues.
    pub queues: u16,
    /// Maximum frame size without check sequence, bytes.
    pub max_frame: u64,
    /// Whether it has a link partner.
    pub has_carrier: bool,
    /// Whether a packet may be sent again while it is still in the device.
    pub shares_packets: bool,
}

impl Premises {
    /// The block device with this name, `/dev/` path or path below `/dev/disk/by-id`. A kernel's name that none has yet
    /// is that of the largest that are to come.
    pub(crate) fn disk(&self, program: &str, path: &str) -> Result<&Disk, Refused> {
        let name = path.strip_prefix("/dev/").unwrap_or(path);
        if let Some(found) = Disk::find(&self.disks, name) {
            return Ok(found);
        }
        let known =
            self.disks.iter().filter_map(|disk| match disk.id.as_ref().filter(|_| name.starts_with(BY_ID)) {
                Some(own) => Some(format!("/dev/{BY_ID}{own}")),
                None => disk.name.as_ref().map(|name| format!("/dev/{name}")),
            });
        Err(missing(&format!("{program}: there is no block device `{path}`"), known.collect()))
    }

    /// The network device with this name.
    pub(crate) fn link(&self, program: &str, name: &str) -> Result<&Link, Refused> {
        let known = self.links.iter().map(|link| link.name.clone());
        let found = self.links.iter().find(|link| link.name == name);
        found.ok_or_else(|| {
            missing(&format!("{program}: there is no network device `{name}`"), known.collect())
        })
    }

    /// Checks that a program can take this network device from the kernel and poll it.
    pub(crate) fn polled(&self, program: &str, name: &str) -> Result<(), Refused> {
        let name = name.strip_prefix("/dev/").unwrap_or(name);
        let message = format!("{program}: there is no device `{name}` to poll");
        let help = match &self.polled[..] {
            [] => "what can be polled is a host's NIC, with `user_space = true` in `[host.nic_driver]`, or the virtual NIC \
                   `uio0` of a guest with `polled = true` and `uplink`"
                .to_owned(),
            there => {
                let names: Vec<&str> = there.iter().map(|(name, _)| name.as_str()).collect();
                format!("there is {}", names.join(", "))
            }
        };
        let Some((_, has_partner)) = self.polled.iter().find(|(there, _)| there == name) else {
            return Err(Refused::new(message, help));
        };
        let message = format!("{program}: `{name}` has no carrier, so that nothing leaves it or arrives");
        Refused::unless(*has_partner, message, "a `[[cable]]` with an end at that NIC, or other ports")
    }

    /// Checks that the host has this GPU.
    pub(crate) fn gpu(&self, program: &str, number: u32) -> Result<(), Refused> {
        let message = format!("{program}: there is no GPU {number}");
        match self.gpus {
            0 => Err(missing(&message, Vec::new())),
            count => Refused::unless(number < count, message, format!("GPUs 0 to {}", count - 1)),
        }
    }

    /// Checks that a server's address is somebody's. A host alone may call whom it likes: nobody answers.
    pub(crate) fn peer(&self, program: &str, address: Ipv4Addr) -> Result<(), Refused> {
        let is_alone = self.peers.iter().all(|(host, _)| *host == self.peers[0].0);
        let is_there =
            is_alone || address.is_loopback() || self.peers.iter().any(|(_, other)| *other == address);
        let there = self.peers.iter().take(PEERS_TOLD).map(|(host, own)| format!("{host} has {own}"));
        let more = if self.peers.len() > PEERS_TOLD { ", and others theirs" } else { "" };
        let help = there.collect::<Vec<_>>().join(", ") + more;
        Refused::unless(is_there, format!("{program}: nobody has the address {address}"), help)
    }

    /// Checks that the host's memory can hold buffers of this size.
    pub(crate) fn holds(&self, program: &str, what: &str, bytes: u128) -> Result<(), Refused> {
        let message = format!("{program}: {what} take {bytes} bytes");
        Refused::unless(
            bytes <= self.memory.into(),
            message,
            format!("the host has {} bytes of memory", self.memory),
        )
    }
}

fn missing(message: &str, known: Vec<String>) -> Refused {
    match known.is_empty() {
        true => Refused::new(message, "the host has none: add one to it, `[[host.device]]`"),
        false => Refused::new(message, format!("the host has {}", known.join(", "))),
    }
}
