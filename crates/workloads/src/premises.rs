//! What is known of a program's surroundings before anything runs, so that a command line is refused where it is written.

use std::fmt;

use crate::program::Failure;

/// Why a command line is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// What is wrong, with the option.
    pub message: String,
    /// What would be right.
    pub help: Option<String>,
}

impl Refused {
    /// What is wrong, and what would be right.
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: Some(help.into()) }
    }

    /// Refuses with `message` and `help` unless `holds`.
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
        self.help.iter().try_for_each(|help| write!(f, " ({help})"))
    }
}

/// What one that was not asked beforehand says when it runs.
impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self(refused.to_string())
    }
}

/// What a program will find where it runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Premises {
    /// Cores that it may run on.
    pub cores: usize,
    /// Bytes of its host's memory.
    pub memory: u64,
    /// Block devices.
    pub disks: Vec<Disk>,
    /// Network devices.
    pub links: Vec<Link>,
    /// How many GPUs there are.
    pub gpus: u32,
    /// How many drives there are that programs drive by themselves.
    pub user_drives: u32,
}

/// A block device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disk {
    /// Its name, such as `nvme0n1`.
    pub name: String,
    /// How many bytes it holds.
    pub bytes: u64,
    /// How many make a block.
    pub block: u64,
}

/// A network device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Its queues to receive.
    pub queues: u16,
    /// Bytes of its longest frame without the check sequence.
    pub max_frame: u64,
    /// Whether anything is at the other end.
    pub has_carrier: bool,
}

impl Premises {
    /// The block device that `program` names, with or without `/dev/`.
    pub(crate) fn disk(&self, program: &str, path: &str) -> Result<&Disk, Refused> {
        let name = path.strip_prefix("/dev/").unwrap_or(path);
        let known = self.disks.iter().map(|disk| format!("/dev/{}", disk.name));
        let found = self.disks.iter().find(|disk| disk.name == name);
        found
            .ok_or_else(|| missing(&format!("{program}: there is no block device `{path}`"), known.collect()))
    }

    /// The network device that `program` names.
    pub(crate) fn link(&self, program: &str, name: &str) -> Result<&Link, Refused> {
        let known = self.links.iter().map(|link| link.name.clone());
        let found = self.links.iter().find(|link| link.name == name);
        found.ok_or_else(|| {
            missing(&format!("{program}: there is no network device `{name}`"), known.collect())
        })
    }

    /// Refuses a GPU that the host does not have.
    pub(crate) fn gpu(&self, program: &str, number: u32) -> Result<(), Refused> {
        let message = format!("{program}: there is no GPU {number}");
        match self.gpus {
            0 => Err(missing(&message, Vec::new())),
            count => Refused::unless(number < count, message, format!("GPUs 0 to {}", count - 1)),
        }
    }

    /// Refuses buffers that the host's memory cannot hold.
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
