//! In steady state nothing is allocated.

use engine::{Completer, Notify, Oneshots, Scheduler, Simulation, World};
use std::rc::Rc;
use units::{Duration, Time};

/// Answers requests after a constant delay.
#[derive(Default)]
struct Memory {
    requests: std::collections::VecDeque<Completer<u64>>,
    oneshots: Oneshots<u64>,
}

impl World for Memory {
    type Event = ();
    fn handle(&mut self, (): (), scheduler: &mut Scheduler<()>) {
        self.requests.pop_front().unwrap().complete(scheduler.now().as_ps());
    }
}

#[test]
fn events_sleeps_requests_and_notifications_need_no_memory() {
    let simulation = Simulation::new(Memory::default());
    let turn = Rc::new(Notify::new());
    turn.notify_one();
    for i in 0..8 {
        let (handle, turn) = (simulation.handle(), Rc::clone(&turn));
        simulation.spawn(async move {
            loop {
                turn.notified().await;
                let answer = handle.with(|memory, scheduler| {
                    let (completer, completion) = memory.oneshots.pair();
                    memory.requests.push_back(completer);
                    scheduler.after(Duration::from_ns(80), ());
                    completion
                });
                answer.await.unwrap();
                turn.notify_one();
                // Sometimes beyond the near wheel.
                handle.sleep(Duration::from_ns(7 * i)).await;
                handle.sleep(Duration::from_us(i)).await;
            }
        });
    }
    simulation.run_until(Time::ZERO + Duration::from_ms(1));
    let before = simulation.processed();
    let counted = allocation_counter::measure(|| simulation.run_until(Time::ZERO + Duration::from_ms(11)));
    assert!(simulation.processed() - before > 10_000);
    assert_eq!(counted.count_total, 0);
}
