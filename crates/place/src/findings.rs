//! Guests whose threads or memory are far from the device that they use.

use survey::{Finding, FindingCost, NumberSet};

use crate::view::{GuestProcess, HostView};

/// What holds the guests of a host up.
pub fn findings(view: &HostView) -> Vec<Finding> {
    view.guests.iter().filter_map(|guest| far(view, guest)).collect()
}

fn far(view: &HostView, guest: &GuestProcess) -> Option<Finding> {
    let uplink = guest.uplink.as_ref()?;
    let node = view.node_of(uplink)?;
    let near = view.set_of(node);
    let (pid, name) = (guest.pid, format!("the guest of process {}", guest.pid));
    let mut evidence = Vec::new();
    let mut of = |what: &str, threads: &mut dyn Iterator<Item = (u32, u32)>| {
        for (process, thread) in threads {
            let allowed = view.root.allowed(process, thread).and_then(|list| list.parse::<NumberSet>().ok());
            // A thread that may run near is left to the kernel.
            if let Some(cpus) = allowed.filter(|cpus| !cpus.meets(&near)) {
                evidence.push(format!(
                    "{what} {thread} may use CPUs {cpus} (/proc/{process}/task/{thread}/status)"
                ));
            }
        }
    };
    of("vhost thread", &mut guest.vhost.iter().copied());
    of("I/O thread", &mut guest.io.iter().map(|thread| (pid, *thread)));
    of("vCPU", &mut guest.vcpus.iter().map(|thread| (pid, *thread)));
    if let Some(home) = guest.home().filter(|home| *home != node) {
        evidence.push(format!("most of its memory is at node {home} (/proc/{pid}/numa_maps)"));
    }
    let function = view.survey().interfaces.get(uplink).and_then(|own| own.function.value());
    (!evidence.is_empty()).then(|| Finding {
        id: format!("guest-far/{pid}"),
        functions: function.into_iter().collect(),
        title: format!("{name} uses {uplink}, which is at node {node}, from another node"),
        evidence,
        cost: FindingCost {
            share: None,
            text: "packets are copied, and their lines fetched, over the way between sockets".into(),
            source: "docs/numa-io.md: throughput and CPU time of guests at the device's node and elsewhere",
        },
        cure: "nearfar place --guests --apply".into(),
    })
}
