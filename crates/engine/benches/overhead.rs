//! What the rest of the engine costs: events through a world, sleeps, oneshots, a trace that is off.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use engine::{Completer, Scheduler, Simulation, Trace, World, oneshot};
use units::{Duration, Time};

fn main() {
    divan::main();
}

const EVENTS: u64 = 100_000;

/// Events that follow one another in chains, and requests that are answered after a while.
#[derive(Default)]
struct Hardware {
    left: u64,
    request: Option<Completer<u64>>,
}

enum Event {
    Hop(u64),
    Answer,
}

impl World for Hardware {
    type Event = Event;
    #[inline]
    fn handle(&mut self, event: Event, scheduler: &mut Scheduler<Event>) {
        match event {
            Event::Hop(x) if self.left > 0 => {
                self.left -= 1;
                // Some hundreds of nanoseconds, different every time.
                let x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                scheduler.after(Duration::from_ps(x >> 44), Event::Hop(x));
            }
            Event::Hop(_) => {}
            Event::Answer => drop(self.request.take().map(|request| request.complete(1))),
        }
    }
}

#[divan::bench(args = [1, 200])]
fn world_events(bencher: Bencher, chains: u64) {
    let simulation = Simulation::new(Hardware::default());
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(move || {
        simulation.with(|world, scheduler| {
            world.left = EVENTS - chains;
            (0..chains).for_each(|i| scheduler.after(Duration::ZERO, Event::Hop(i)));
        });
        simulation.run();
    });
}

#[divan::bench(args = [1, 64])]
fn sleeps(bencher: Bencher, tasks: u64) {
    let simulation = Simulation::new(Hardware::default());
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(move || {
        for i in 0..tasks {
            let handle = simulation.handle();
            simulation.spawn(async move {
                for _ in 0..EVENTS / tasks {
                    handle.sleep(Duration::from_ps(5_000 + i)).await;
                }
            });
        }
        simulation.run();
    });
}

#[divan::bench]
fn requests(bencher: Bencher) {
    let simulation = Simulation::new(Hardware::default());
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(move || {
        let handle = simulation.handle();
        let program = async move {
            let mut sum = 0;
            for _ in 0..EVENTS {
                let answer = handle.with(|world, scheduler| {
                    let (completer, completion) = oneshot();
                    world.request = Some(completer);
                    scheduler.after(Duration::from_ns(80), Event::Answer);
                    completion
                });
                sum += answer.await.unwrap();
            }
            sum
        };
        simulation.block_on(program).unwrap()
    });
}

#[divan::bench]
fn spawns(bencher: Bencher) {
    let simulation = Simulation::new(Hardware::default());
    bencher.counter(ItemsCount::new(1_000u32)).bench_local(move || {
        (0..1_000).for_each(|_| drop(simulation.spawn(async {})));
        simulation.run();
    });
}

/// A record that costs something to build.
struct Record {
    _at: Time,
    _what: String,
}

/// The work that is traced: as little as a component ever does for an event.
#[inline(always)]
fn work(x: u64) -> u64 {
    black_box(x ^ (x << 13) ^ (x >> 7))
}

#[divan::bench]
fn untraced(bencher: Bencher) {
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| (0..EVENTS).fold(1, |x, _| work(x)));
}

#[divan::bench]
fn trace_off(bencher: Bencher) {
    let mut trace = black_box(Trace::<Record>::off());
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| {
        (0..EVENTS).fold(1, |x, i| {
            trace.record(|| Record { _at: Time::from_ps(i), _what: format!("{x}") });
            work(x)
        })
    });
}
