//! Whatever hosts borrow, give back and revoke, crash, reboot, cut, mend and pull out, with devices in the middle of copies: each
//! function has one user at most, who is its lender's lessee, reaches nothing that another has, and works for whoever has it.

use std::pin::Pin;
use std::rc::Rc;

use crate::common::copiers::CopierBinding;
use crate::common::{Cluster, Flight, Outcome};
use kernel::DmaMode;
use platform::Error;
use proptest::prelude::*;
use units::Duration;
use wire::pcie::Bdf;

/// Functions of each host.
const EACH: usize = 2;

/// What a service is asked to do.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Borrow(usize, (usize, usize)),
    Return(usize, (usize, usize)),
    Revoke((usize, usize)),
}

/// What happens meanwhile.
#[derive(Clone, Copy, Debug)]
enum Event {
    Cable(usize),
    Crash(usize),
    /// Of the function that is asked for.
    Pull,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Two borrow at the same time, or one twice.
    Borrow(usize, usize, (usize, usize)),
    Return(usize, (usize, usize)),
    Revoke((usize, usize)),
    Cable(usize, bool),
    /// Out of its slot, and in again.
    Pull((usize, usize)),
    Hang((usize, usize)),
    Pause(u64),
    Crash(usize),
    /// Of a host that has crashed, or runs.
    Reboot(usize),
    /// So many nanoseconds after it was asked for.
    Amid(Asked, u64, Event),
}

/// With the nanoseconds that copies, which all that can begin then, are under way before.
fn steps() -> impl Strategy<Value = (u64, Step)> {
    let function = || (0usize..3, 0..EACH);
    let asked = prop_oneof![
        4 => (0usize..3, function()).prop_map(|(by, of)| Asked::Borrow(by, of)),
        2 => (0usize..3, function()).prop_map(|(by, of)| Asked::Return(by, of)),
        1 => function().prop_map(Asked::Revoke),
    ];
    let event = prop_oneof![
        2 => (0usize..3).prop_map(Event::Cable),
        1 => (0usize..3).prop_map(Event::Crash),
        1 => Just(Event::Pull),
    ];
    let step = prop_oneof![
        3 => (asked, 0u64..200_000, event).prop_map(|(asked, after, event)| Step::Amid(asked, after, event)),
        5 => (0usize..3, 0usize..3, function()).prop_map(|(a, b, of)| Step::Borrow(a, b, of)),
        2 => (0usize..3, function()).prop_map(|(by, of)| Step::Return(by, of)),
        1 => function().prop_map(Step::Revoke),
        2 => (0usize..3, any::<bool>()).prop_map(|(cable, up)| Step::Cable(cable, up)),
        1 => function().prop_map(Step::Pull),
        1 => function().prop_map(Step::Hang),
        1 => (1u64..80).prop_map(Step::Pause),
        1 => (0usize..3).prop_map(Step::Crash),
        1 => (0usize..3).prop_map(Step::Reboot),
    ];
    (0u64..4_000, step)
}

/// Hosts, what their functions are called, and the copies that have been begun.
struct World {
    flights: Vec<Flight>,
    names: Vec<Vec<Bdf>>,
    cluster: Cluster,
    value: u8,
    /// Devices that have hung.
    hung: usize,
}

impl World {
    fn new(strict: [bool; 3]) -> Self {
        let mode = |strict| if strict { DmaMode::Strict } else { DmaMode::Off };
        let cluster = Cluster::new(&strict.map(mode), EACH);
        let names = (0..3).map(|host| (0..EACH).map(|n| cluster.function(host, n)).collect()).collect();
        Self { cluster, names, value: 100, flights: Vec::new(), hung: 0 }
    }

    fn runs(&self, host: usize) -> bool {
        !self.cluster.hosts[host].kernel.is_halted()
    }

    /// Copiers that drivers of running hosts have and that copy nothing.
    fn idle(&self) -> Vec<(usize, Rc<CopierBinding>)> {
        let flies = |copier: &Rc<CopierBinding>| {
            let mut same = self.flights.iter().filter(|flight| Rc::ptr_eq(&flight.copier, copier));
            same.next_back().is_some_and(|flight| flight.outcome() == Outcome::UnderWay)
        };
        let of = |host: usize| {
            let all = self.cluster.hosts[host].driver.bound.borrow().clone();
            all.into_iter().filter(|copier| !copier.removed.get()).map(move |copier| (host, copier))
        };
        let all = (0..3).filter(|&host| self.runs(host)).flat_map(of);
        all.filter(|(_, copier)| !flies(copier)).collect()
    }

    /// All that can begin to copy.
    fn begin(&mut self) {
        for (host, copier) in self.idle() {
            self.value = self.value.wrapping_add(1);
            self.flights.push(self.cluster.begin(host, &copier, self.value));
        }
    }

    /// Who of those that have not crashed has whose function in its tree.
    fn users(&self) -> Vec<(usize, (usize, usize))> {
        let own = |by: usize| {
            let all = self.cluster.hosts[by].kernel.pci().into_iter().filter(|f| f.segment.0 > 0);
            all.map(move |f| {
                let of = usize::from(f.segment.0) - 2;
                let n = self.names[of].iter().position(|&name| name == f.bdf);
                (by, (of, n.expect("a function that somebody lends")))
            })
            .collect::<Vec<_>>()
        };
        (0..3).filter(|&by| self.runs(by)).flat_map(own).collect()
    }

    fn check(&self, settled: bool) {
        let (cluster, users) = (&self.cluster, self.users());
        for of in 0..3 {
            let leases = cluster.service(of).leases();
            let mut pairs = 0;
            for (n, &name) in self.names[of].iter().enumerate() {
                let all = users.iter().filter(|(_, lent)| *lent == (of, n));
                let having: Vec<usize> = all.map(|(by, _)| *by).collect();
                assert!(having.len() <= 1, "{having:?} have {n} of {of}");
                let lessees = leases.iter().filter(|(function, _)| *function == name);
                let lessees: Vec<u8> = lessees.map(|(_, to)| *to).collect();
                assert!(lessees.len() <= 1);
                if settled && self.runs(of) {
                    let nodes: Vec<u8> = having.iter().map(|&by| cluster.node(by)).collect();
                    assert_eq!(nodes, lessees, "what is borrowed is lent");
                }
                // It may reach what the same host has.
                let same = |lease: &&(Bdf, u8)| lease.0 != name && lessees.contains(&lease.1);
                pairs += leases.iter().filter(same).count();
            }
            let joined = cluster.service(of).counters().joined;
            assert!(joined <= pairs, "{joined} reach others, of {pairs} that may");
        }
        for flight in &self.flights {
            assert_ne!(flight.outcome(), Outcome::Wrong, "a copy is said to be done that is not");
        }
    }

    fn borrow(&self, by: &[usize], (of, n): (usize, usize)) -> usize {
        let asked = by.iter().filter(|&&by| by != of && self.runs(by));
        let node = self.cluster.node(of);
        let asked: Vec<_> =
            asked.map(|&by| self.cluster.service(by).borrow(node, self.names[of][n])).collect();
        let outcomes = self.cluster.simulation.block_on(async move {
            let mut outcomes = Vec::new();
            for asked in asked {
                outcomes.push(asked.await);
            }
            outcomes
        });
        outcomes.expect("they end").iter().filter(|outcome| outcome.is_ok()).count()
    }

    fn give_back(&self, by: usize, (of, n): (usize, usize)) -> bool {
        let given = self.cluster.service(by).give_back(self.cluster.node(of), self.names[of][n]);
        self.cluster.simulation.block_on(given).expect("it ends").is_ok()
    }

    /// Asks, lets something happen, and waits for the end if who was asked still runs.
    fn amid(&mut self, asked: Asked, after: u64, event: Event) {
        let (cluster, names) = (&self.cluster, &self.names);
        let (who, function) = match asked {
            Asked::Borrow(by, of) | Asked::Return(by, of) => (by, of),
            Asked::Revoke(of) => (of.0, of),
        };
        let (of, n) = function;
        if !self.runs(who) || matches!(asked, Asked::Borrow(by, _) if by == of) {
            return;
        }
        let (node, name) = (cluster.node(of), names[of][n]);
        let service = cluster.service(who);
        let ended: Pin<Box<dyn Future<Output = Result<(), Error>>>> = match asked {
            Asked::Borrow(..) => {
                let borrowed = service.borrow(node, name);
                Box::pin(async move { borrowed.await.map(drop) })
            }
            Asked::Return(..) => Box::pin(service.give_back(node, name)),
            Asked::Revoke(_) => Box::pin(service.take_back(name)),
        };
        cluster.run_for(Duration::from_ns(after));
        match event {
            Event::Cable(cable) => self.take(Step::Cable(cable, false)),
            Event::Crash(host) => self.take(Step::Crash(host)),
            Event::Pull => self.take(Step::Pull(function)),
        }
        let ended = self.cluster.simulation.spawn(ended);
        // Whoever is asked waits for others no longer than he has patience, a few times.
        self.cluster.run_for(Duration::from_ms(2_000));
        assert!(ended.is_finished() || !self.runs(who), "{asked:?} does not end");
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Borrow(a, b, of) => assert!(self.borrow(&[a, b], of) <= 1),
            Step::Return(by, of) if self.runs(by) => {
                let has = self.users().contains(&(by, of));
                assert!(!self.give_back(by, of) || has);
            }
            Step::Revoke((of, n)) if self.runs(of) => {
                let taken = self.cluster.service(of).take_back(self.names[of][n]);
                assert_eq!(self.cluster.simulation.block_on(taken), Ok(Ok(())));
            }
            Step::Cable(cable, up) => {
                let (a, b, _) = self.cluster.cables[cable];
                self.cluster.set_cable(a, b, up);
            }
            Step::Pull((of, n)) => {
                for there in [false, true] {
                    self.cluster.set_there(of, n, there);
                    self.cluster.run_for(Duration::from_ms(150));
                }
            }
            // One that nobody has is not reset before it is lent.
            Step::Hang((of, n)) if self.users().iter().any(|(_, lent)| *lent == (of, n)) => {
                self.cluster.hang(of, n);
                self.hung += 1;
            }
            Step::Pause(ms) => self.cluster.run_for(Duration::from_ms(ms)),
            Step::Crash(host) => self.cluster.hosts[host].kernel.halt(),
            Step::Reboot(host) => self.cluster.reboot(host),
            Step::Amid(asked, after, event) => self.amid(asked, after, event),
            Step::Return(..) | Step::Revoke(..) | Step::Hang(..) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 400, ..ProptestConfig::default() })]
    #[test]
    fn a_function_has_one_user(all in prop::collection::vec(steps(), 1..16), strict in any::<[bool; 3]>()) {
        let mut world = World::new(strict);
        for (lead, step) in all {
            world.begin();
            world.cluster.run_for(Duration::from_ns(lead));
            world.take(step);
            world.check(false);
        }
        for cable in 0..3 {
            let (a, b, _) = world.cluster.cables[cable];
            world.cluster.set_cable(a, b, true);
        }
        // All have noticed what there was to be noticed.
        world.cluster.run_for(Duration::from_ms(2_000));
        world.check(true);
        // What somebody has works for him, if it does not hang.
        let first = world.flights.len();
        world.begin();
        world.cluster.run_for(Duration::from_ms(50));
        let failed = world.flights[first..].iter().filter(|flight| flight.outcome() != Outcome::Copied).count();
        prop_assert!(failed <= world.hung, "{} copies fail", failed);
        world.check(true);
        for (by, of) in world.users() {
            // What a host lent that crashed is gone.
            prop_assert!(world.give_back(by, of) || !world.runs(of.0));
        }
        for host in (0..3).filter(|&host| world.runs(host)) {
            let counters = world.cluster.service(host).counters();
            prop_assert_eq!((counters.lent, counters.borrowed), (0, 0));
            prop_assert_eq!((counters.isolated, counters.joined), (0, 0));
            // Mail of two neighbours at most, and nothing else.
            let [segments, local, remote] = counters.in_use;
            prop_assert!(segments <= 4 && local == 1 && remote == 2, "{:?}", counters.in_use);
        }
        // Everything can be had again, and works.
        for of in [1, 2] {
            if world.runs(0) && world.runs(of) {
                for n in 0..EACH {
                    prop_assert_eq!(world.borrow(&[0], (of, n)), 1, "{} of {}", n, of);
                    prop_assert!(world.cluster.copies(0, 7));
                }
            }
        }
    }
}
