//! In steady state nothing is allocated.

use engine::{Completer, Oneshots, Scheduler, Semaphore, Simulation, World, channel};
use std::rc::Rc;
use units::{Duration, Time};

/// Answers requests, each after the same while.
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
fn events_sleeps_requests_and_permits_need_no_memory() {
    let simulation = Simulation::new(Memory::default());
    let permits = Rc::new(Semaphore::new(3));
    let (sender, mut receiver) = channel(4);
    for i in 0..8 {
        let (handle, permits, sender) = (simulation.handle(), Rc::clone(&permits), sender.clone());
        simulation.spawn(async move {
            loop {
                let _permit = permits.acquire(1).await;
                let answer = handle.with(|memory, scheduler| {
                    let (completer, completion) = memory.oneshots.pair();
                    memory.requests.push_back(completer);
                    scheduler.after(Duration::from_ns(80), ());
                    completion
                });
                sender.send(answer.await.unwrap()).await.unwrap();
                // Now and then beyond the near wheel.
                handle.sleep(Duration::from_ns(7 * i)).await;
                handle.sleep(Duration::from_us(i)).await;
            }
        });
    }
    simulation.spawn(async move { while receiver.recv().await.is_some() {} });
    simulation.run_until(Time::ZERO + Duration::from_ms(1));
    let before = simulation.processed();
    let counted = allocation_counter::measure(|| simulation.run_until(Time::ZERO + Duration::from_ms(11)));
    assert!(simulation.processed() - before > 10_000);
    assert_eq!(counted.count_total, 0);
}
