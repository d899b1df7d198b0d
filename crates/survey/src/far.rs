//! Processes and guests that are far from the devices that they use.

use crate::findings::{Finding, FindingCost};
use crate::model::{HostProcess, Survey};
use crate::numbers::NumberSet;
use crate::pci::PciAddress;
use crate::show::size;

/// The share of a process's memory at other nodes from which on it is told.
const MOSTLY: f64 = 0.5;

impl Survey {
    /// Guests far from their uplink, and processes far from devices that they have open.
    pub(crate) fn far_processes(&self) -> Vec<Finding> {
        let with_cpus =
            self.nodes.values().filter(|node| node.cpus.get().is_some_and(|cpus| !cpus.is_empty()));
        if with_cpus.count() < 2 {
            return Vec::new();
        }
        let mut all = Vec::new();
        for (pid, process) in &self.processes {
            all.extend(self.far_guest(*pid, process));
            let functions = process.functions.get().map_or(&[][..], |names| &names.0[..]);
            let functions = functions.iter().filter_map(|name| name.parse::<PciAddress>().ok());
            all.extend(functions.filter_map(|function| self.far_process(*pid, process, function)));
        }
        all
    }

    /// CPUs of a node.
    fn cpus_of(&self, node: u32) -> Option<&NumberSet> {
        self.nodes.get(&node)?.cpus.get().filter(|cpus| !cpus.is_empty())
    }

    /// Where most of a process's memory is, if that is not this node.
    fn memory_elsewhere(&self, process: &HostProcess, node: u32) -> Option<String> {
        let bytes = &process.memory_bytes.get()?.0;
        let all = process.memory_bytes.get()?.total();
        let (most, there) =
            bytes.iter().filter(|(other, _)| **other != node).max_by_key(|(_, bytes)| **bytes)?;
        let share = 1.0 - bytes.get(&node).copied().unwrap_or(0) as f64 / all as f64;
        (share > MOSTLY)
            .then(|| format!("{} of its {} of memory are at node {most}", size(*there), size(all)))
    }

    fn far_guest(&self, pid: u32, process: &HostProcess) -> Option<Finding> {
        let uplink = process.uplink.get()?;
        let function = self.interfaces.get(uplink)?.function.value()?;
        let node = self.node_of(function)?;
        let near = self.cpus_of(node)?;
        let threads = self.threads.iter().filter(|(_, thread)| thread.process.value() == Some(pid));
        // A thread that may run near is left to the kernel.
        let far = threads.filter_map(|(number, thread)| {
            let (cpus, role) = thread.cpus.get().zip(thread.role.get())?;
            (!cpus.meets(near)).then(|| format!("{role} thread {number} may use CPUs {cpus}"))
        });
        let memory =
            self.memory_elsewhere(process, node).map(|text| format!("{text} (/proc/{pid}/numa_maps)"));
        let evidence: Vec<String> = far.chain(memory).collect();
        (!evidence.is_empty()).then(|| Finding {
            id: format!("guest-far/{pid}"),
            links: None,
            functions: vec![function],
            title: format!(
                "the guest of process {pid} uses {uplink}, which is at node {node}, from another node"
            ),
            evidence,
            cost: FindingCost::unknown(
                "packets are copied, and their lines fetched, over the way between sockets",
            ),
            cure: "nearfar place --guests --apply".into(),
        })
    }

    fn far_process(&self, pid: u32, process: &HostProcess, function: PciAddress) -> Option<Finding> {
        let node = self.node_of(function)?;
        let near = self.cpus_of(node)?;
        let far = process.cpus.get().filter(|cpus| !cpus.meets(near));
        let memory = self.memory_elsewhere(process, node);
        let mut evidence: Vec<String> = far
            .map(|cpus| format!("it may use CPUs {cpus} alone (/proc/{pid}/status)"))
            .into_iter()
            .collect();
        evidence.extend(memory.iter().map(|text| format!("{text} (/proc/{pid}/numa_maps)")));
        if evidence.is_empty() {
            return None;
        }
        let named = |name: &String| name.chars().filter(|c| c.is_ascii_graphic()).collect::<String>();
        let name = process.name.get().map_or_else(|| "a process".to_owned(), named);
        let device = self
            .names_of(function)
            .first()
            .map_or(function.to_string(), |name| format!("{name} ({function})"));
        let mut cures = Vec::new();
        if far.is_some() {
            cures.push(format!("taskset -acp {near} {pid}"));
        }
        if let Some(from) = memory.as_ref().and(process.memory_bytes.get()) {
            let others =
                from.0.keys().filter(|other| **other != node).map(u32::to_string).collect::<Vec<_>>();
            cures.push(format!("migratepages {pid} {} {node}", others.join(",")));
        }
        Some(Finding {
            id: format!("process-far/{pid}/{function}"),
            links: None,
            functions: vec![function],
            title: format!(
                "{name} (process {pid}) uses {device}, which is at node {node}, from another node"
            ),
            evidence,
            cost: FindingCost::unknown("each command's or packet's lines come from the other socket"),
            cure: cures.join("; "),
        })
    }
}
