//! Whatever hosts borrow, give back and revoke, crash, reboot, cut and mend: each function has one user at most, who is its
//! lender's lessee, and whoever has one can use it.

mod common;

use common::Cluster;
use kernel::DmaMode;
use proptest::prelude::*;
use units::Duration;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Two borrow at the same time, or one twice.
    Borrow(usize, usize, usize),
    Return(usize, usize),
    Revoke(usize),
    Cable(usize, bool),
    Copy(usize),
    Pause(u64),
    Crash(usize),
    /// Of a host that has crashed, or runs.
    Reboot(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..3, 0usize..3, 0usize..3).prop_map(|(a, b, of)| Step::Borrow(a, b, of)),
        2 => (0usize..3, 0usize..3).prop_map(|(by, of)| Step::Return(by, of)),
        1 => (0usize..3).prop_map(Step::Revoke),
        2 => (0usize..3, any::<bool>()).prop_map(|(cable, up)| Step::Cable(cable, up)),
        3 => (0usize..3).prop_map(Step::Copy),
        1 => (1u64..80).prop_map(Step::Pause),
        1 => (0usize..3).prop_map(Step::Crash),
        1 => (0usize..3).prop_map(Step::Reboot),
    ]
}

/// Who of those that have not crashed has whose function in its tree.
fn users(cluster: &Cluster) -> Vec<(usize, usize)> {
    let hosts = cluster.hosts.iter().enumerate().filter(|(_, host)| !host.kernel.is_halted());
    hosts
        .flat_map(|(by, host)| {
            let all = host.kernel.pci().into_iter().filter(|f| f.segment.0 > 0);
            all.map(move |f| (by, usize::from(f.segment.0) - 2)).collect::<Vec<_>>()
        })
        .collect()
}

fn check(cluster: &Cluster, settled: bool) {
    let users = users(cluster);
    for of in 0..3 {
        let having: Vec<usize> = users.iter().filter(|(_, lent)| *lent == of).map(|(by, _)| *by).collect();
        assert!(having.len() <= 1, "{having:?} have the function of {of}");
        let leases = cluster.service(of).leases();
        assert!(leases.len() <= 1);
        if settled && !cluster.hosts[of].kernel.is_halted() {
            let lessee: Vec<usize> = leases.iter().map(|(_, to)| usize::from(*to) - 1).collect();
            assert_eq!(having, lessee, "what is borrowed is lent");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn a_function_has_one_user(all in prop::collection::vec(steps(), 1..14), strict in any::<[bool; 3]>()) {
        let mode = |strict| if strict { DmaMode::Strict } else { DmaMode::Off };
        let mut cluster = Cluster::new(&strict.map(mode), 1);
        let mut value = 100;
        let runs = |cluster: &Cluster, host: usize| !cluster.hosts[host].kernel.is_halted();
        for step in all {
            match step {
                Step::Borrow(a, b, of) => {
                    let asked: Vec<_> = [a, b]
                        .into_iter()
                        .filter(|&by| by != of && runs(&cluster, by))
                        .map(|by| cluster.service(by).borrow(cluster.node(of), cluster.function(of, 0)))
                        .collect();
                    let outcomes = cluster.simulation.block_on(async move {
                        let mut outcomes = Vec::new();
                        for asked in asked {
                            outcomes.push(asked.await);
                        }
                        outcomes
                    });
                    let won = outcomes.unwrap().iter().filter(|outcome| outcome.is_ok()).count();
                    prop_assert!(won <= 1);
                }
                Step::Return(by, of) if runs(&cluster, by) => {
                    let has = users(&cluster).contains(&(by, of));
                    let outcome = cluster.give_back(by, of, 0);
                    prop_assert!(has || outcome.is_err());
                }
                Step::Revoke(of) if runs(&cluster, of) => {
                    let taken = cluster.service(of).take_back(cluster.function(of, 0));
                    prop_assert_eq!(cluster.simulation.block_on(taken), Ok(Ok(())));
                }
                Step::Cable(cable, up) => {
                    let (a, b, _) = cluster.cables[cable];
                    cluster.set_cable(a, b, up);
                }
                Step::Copy(by) if runs(&cluster, by) => {
                    let last = cluster.hosts[by].driver.bound.borrow().last().cloned();
                    if let Some(copier) = last.filter(|copier| !copier.removed.get()) {
                        value += 1;
                        // A cable may have gone.
                        let copied = cluster.copies(by, value);
                        prop_assert!(copied || !copier.device.is_present() || copier.removed.get());
                    }
                }
                Step::Pause(ms) => cluster.run_for(Duration::from_ms(ms)),
                Step::Crash(host) => cluster.hosts[host].kernel.halt(),
                Step::Reboot(host) => cluster.reboot(host),
                _ => {}
            }
            check(&cluster, false);
        }
        for cable in 0..3 {
            let (a, b, _) = cluster.cables[cable];
            cluster.set_cable(a, b, true);
        }
        // All have noticed what there was to be noticed.
        cluster.run_for(Duration::from_ms(2_000));
        check(&cluster, true);
        for (by, of) in users(&cluster) {
            // What a host lent that crashed is gone.
            prop_assert!(cluster.give_back(by, of, 0).is_ok() || !runs(&cluster, of));
        }
        for host in (0..3).filter(|&host| runs(&cluster, host)) {
            let counters = cluster.service(host).counters();
            prop_assert_eq!((counters.lent, counters.borrowed), (0, 0));
            prop_assert_eq!(counters.isolated, 0);
            // Mail of two neighbours at most, and nothing else.
            let [segments, local, remote] = counters.in_use;
            prop_assert!(segments <= 4 && local == 1 && remote == 2, "{:?}", counters.in_use);
        }
        // Everything can be had again.
        if runs(&cluster, 0) && runs(&cluster, 1) {
            prop_assert!(cluster.borrow(0, 1, 0).is_ok());
            prop_assert!(cluster.copies(0, 7));
        }
    }
}
