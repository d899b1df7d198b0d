//! Interrupts, XPS, RPS and RFS of a network interface.

use survey::NumberSet;

use crate::plan::{HostPlan, SetForm};
use crate::view::HostView;

/// Flows that the kernel remembers for RFS in all.
const FLOWS: u32 = 32_768;
/// Words in the names of interrupts that are not of a queue.
const NOT_QUEUES: [&str; 10] =
    ["async", "misc", "mbx", "ctrl", "config", "fdir", "aeq", "ptp", "control", "other"];

/// The queue that an interrupt's name ends with: `eth0-TxRx-3`, `mlx5_comp3@pci:0000:01:00.0`, `virtio0-input.3`.
fn queue_of(action: &str) -> Option<u32> {
    let name = action.split('@').next().unwrap_or(action);
    let lower = name.to_ascii_lowercase();
    if NOT_QUEUES.iter().any(|word| lower.contains(word)) {
        return None;
    }
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (stem, number) = name.split_at(name.len() - digits);
    // `eth0` alone is the link's.
    stem.ends_with(['-', '.', 'p', 'x', 'q', '_']).then(|| number.parse().ok()).flatten()
}

/// Adds the writes for an interface whose packets belong on these CPUs.
pub fn place(view: &HostView, interface: &str, plan: &mut HostPlan) {
    let folder = format!("/sys/class/net/{interface}");
    let node = view.node_of(interface);
    let local = match node.and_then(|node| view.nodes.get(&node)) {
        Some(cpus) => cpus.clone(),
        None => {
            if view.nodes.len() > 1 {
                plan.notes.push(format!("{interface}: its node is not known, and all CPUs count as near"));
            }
            view.cpus()
        }
    };
    let near = node.map_or("its node".to_owned(), |node| format!("node {node}"));
    interrupts(view, interface, &local, &near, plan);
    let queues = |stem: &str| {
        let names = view.root.list(&format!("{folder}/queues"));
        let mut numbers: Vec<u32> =
            names.iter().filter_map(|name| name.strip_prefix(stem)?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    };
    let (rx, tx) = (queues("rx-"), queues("tx-"));
    let remote: Vec<u32> = view.cpus().into_iter().filter(|cpu| !local.contains(cpu)).collect();
    if tx.len() > 1 {
        for &queue in &tx {
            let place = queue as usize;
            let own = std::iter::once(local[place % local.len()]);
            let share = [&local, &remote].into_iter().flat_map(|cpus| {
                cpus.iter().enumerate().filter(|(n, _)| n % tx.len() == place).map(|(_, cpu)| *cpu)
            });
            let cpus: NumberSet = own.chain(share).collect();
            let why = "each CPU sends by the queue whose interrupt is near it";
            plan.file(
                view,
                &format!("{folder}/queues/tx-{queue}/xps_cpus"),
                SetForm::Mask,
                &cpus.to_mask(),
                why,
            );
        }
    }
    // With a queue for each CPU, interrupts spread the work.
    let spreads = !rx.is_empty() && rx.len() < local.len();
    for &queue in &rx {
        let own =
            local.iter().enumerate().filter(|(n, _)| n % rx.len() == queue as usize).map(|(_, cpu)| *cpu);
        let cpus: NumberSet = if spreads { own.collect() } else { NumberSet::default() };
        let why = match spreads {
            true => format!(
                "{} {} for {} CPUs of {near}: packets are spread over these",
                rx.len(),
                if rx.len() == 1 { "queue" } else { "queues" },
                local.len()
            ),
            false => "a queue for each CPU spreads packets already".to_owned(),
        };
        plan.file(
            view,
            &format!("{folder}/queues/rx-{queue}/rps_cpus"),
            SetForm::Mask,
            &cpus.to_mask(),
            &why,
        );
        if spreads {
            let flows = (FLOWS / rx.len() as u32).next_power_of_two().to_string();
            let why = "packets go to the CPU of the program that reads them";
            plan.file(
                view,
                &format!("{folder}/queues/rx-{queue}/rps_flow_cnt"),
                SetForm::Number,
                &flows,
                why,
            );
        }
    }
    if spreads {
        let name = "/proc/sys/net/core/rps_sock_flow_entries";
        let has_enough =
            view.root.text(name).and_then(|now| now.parse::<u32>().ok()).is_some_and(|now| now >= FLOWS);
        if !has_enough {
            plan.file(view, name, SetForm::Number, &FLOWS.to_string(), "the table of flows, for RFS");
        }
    }
    if rx.is_empty() && tx.is_empty() {
        plan.notes.push(format!("{interface} has no queues to place"));
    }
}

/// One CPU near the device for each queue.
fn interrupts(view: &HostView, interface: &str, local: &[u32], near: &str, plan: &mut HostPlan) {
    let messages = view.numbers(&format!("/sys/class/net/{interface}/device/msi_irqs"));
    let survey = view.survey();
    let mut queues: Vec<(u32, u32)> = messages
        .iter()
        .filter_map(|irq| Some((queue_of(survey.irqs.get(irq)?.action.get()?)?, *irq)))
        .collect();
    queues.sort_unstable();
    for (queue, irq) in queues {
        let cpu = local[queue as usize % local.len()];
        let why = format!("queue {queue}'s interrupt to a CPU of {near}");
        plan.file(view, &format!("/proc/irq/{irq}/smp_affinity_list"), SetForm::List, &cpu.to_string(), &why);
    }
}

#[cfg(test)]
mod tests {
    use super::queue_of;

    #[test]
    fn queues_are_told_by_the_names_of_interrupts() {
        for (name, queue) in [
            ("eth0-TxRx-3", Some(3)),
            ("mlx5_comp12@pci:0000:01:00.0", Some(12)),
            ("virtio0-input.1", Some(1)),
            ("i40e-eth1-TxRx-0", Some(0)),
            ("nfp-0000:03:00.0-rxtx-7", Some(7)),
            ("eth0", None),
            ("mlx5_async0@pci:0000:01:00.0", None),
            ("virtio0-config", None),
            ("ice-0000:01:00.0:misc", None),
            ("", None),
        ] {
            assert_eq!(queue_of(name), queue, "{name}");
        }
    }
}
