//! The kernel's state as a tree of attributes, as in sysfs.
//!
//! ```text
//! devices/pci0000:00/0000:00:01.0/0000:01:00.0/     a function, below the bridges above it
//!                                 msi_irqs/N/       its interrupts
//!                                 net/eth0/         what its driver made of it
//!                                 block/nvme0n1/
//! devices/system/node/node0/                        nodes: cores, memory, distances
//! ```
//! Names follow sysfs where it has them. Things that sysfs joins by links are nested here. Attributes that are device
//! registers are read from the device.

mod devices;
mod pci;
mod system;

use std::fmt;

use platform::cpu::{Cpu, CpuId};

use crate::kernel::Inner;

/// A directory of the tree.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SysNode {
    /// Name in its directory, such as `0000:01:00.0` or `eth0`.
    pub name: String,
    /// Attributes: name and value.
    pub attributes: Vec<(String, String)>,
    /// Subdirectories.
    pub children: Vec<SysNode>,
}

impl SysNode {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Adds an attribute.
    pub(crate) fn with(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.attributes.push((name.into(), value.to_string()));
        self
    }

    /// Adds subdirectories under a directory of their own, if there are any.
    pub(crate) fn with_folder(mut self, name: &str, children: Vec<Self>) -> Self {
        if !children.is_empty() {
            self.children.push(Self { name: name.into(), children, ..Self::default() });
        }
        self
    }

    /// A directory by its path from here.
    pub fn folder(&self, path: &str) -> Option<&Self> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .try_fold(self, |folder, name| folder.children.iter().find(|child| child.name == name))
    }

    /// An attribute by its path from here.
    pub fn get(&self, path: &str) -> Option<&str> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let attributes = &self.folder(folder)?.attributes;
        attributes.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The first directory of that name anywhere below.
    pub fn find(&self, name: &str) -> Option<&Self> {
        let here = self.children.iter().find(|child| child.name == name);
        here.or_else(|| self.children.iter().find_map(|child| child.find(name)))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        writeln!(f, "{:1$}{2}/", "", 2 * depth, self.name)?;
        for (name, value) in &self.attributes {
            writeln!(f, "{:1$}{name} = {value}", "", 2 * depth + 2)?;
        }
        self.children.iter().try_for_each(|child| child.write(f, depth + 1))
    }
}

impl fmt::Display for SysNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

/// A core list in sysfs's format: `0-3,8`.
pub(crate) fn cpu_list(cpus: impl IntoIterator<Item = CpuId>) -> String {
    let mut cpus: Vec<u16> = cpus.into_iter().map(|cpu| cpu.0).collect();
    cpus.sort_unstable();
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if cpu == *last + 1 => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let run = |&(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

/// The tree of a kernel, read on a core.
pub(crate) async fn tree(kernel: &Inner, cpu: &Cpu) -> SysNode {
    let children = vec![pci::tree(kernel, cpu).await, system::tree(kernel)];
    let devices = SysNode { children, ..SysNode::new("devices") };
    SysNode { children: vec![devices], ..SysNode::new("sys") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_listed_as_sysfs_does() {
        assert_eq!(cpu_list([3, 0, 1, 2, 8, 10, 11].map(CpuId)), "0-3,8,10-11");
        assert_eq!(cpu_list([]), "");
    }

    #[test]
    fn attributes_have_paths() {
        let leaf = SysNode::new("eth0").with("mtu", 1500);
        let tree = SysNode::new("sys").with_folder("net", vec![leaf]);
        assert_eq!(tree.get("net/eth0/mtu"), Some("1500"));
        assert_eq!((tree.get("net/eth1/mtu"), tree.get("mtu")), (None, None));
        assert_eq!(tree.find("eth0").unwrap().get("mtu"), Some("1500"));
        assert_eq!(tree.to_string(), "sys/\n  net/\n    eth0/\n      mtu = 1500\n");
    }
}
