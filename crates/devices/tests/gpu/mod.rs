//! The GPU without a fabric: channels, windows, copies, semaphores, programs, faults, resets.

use devices::gpu::{Gpu, GpuHandle, GpuParams};
use platform::device::{FunctionIndex, Reset};
use platform::testing::Bench;
use proptest::prelude::*;
use units::Duration;
use wire::gpu::{
    self as regs, Entry, Fault, GpuCommand, Launch, MEMORY_BAR, Place, Program, REGISTER_BAR, WindowKind,
};

/// Host memory, and what is where in it.
const MEMORY: usize = 1 << 20;
const COMMANDS: u64 = 0x1000;
const SEMAPHORES: u64 = 0x4000;
const NOTIFIERS: u64 = 0x5000;
const RINGS: u64 = 0x6000;
const DATA: u64 = 0x10000;
/// Windows: all of host memory, all of the GPU's.
const HOST: u16 = 0;
const LOCAL: u16 = 1;
const CONTEXT: u32 = 3;

struct Host {
    bench: Bench<Gpu>,
    gpu: GpuHandle,
    put: [u32; 4],
    next_command: u64,
}

fn host(offset: u64) -> Place {
    Place { window: HOST, offset }
}

fn local(offset: u64) -> Place {
    Place { window: LOCAL, offset }
}

impl Host {
    fn new() -> Self {
        Self::of(GpuParams::example())
    }

    fn of(params: GpuParams) -> Self {
        let memory = params.memory.get();
        let gpu = Gpu::new(params).unwrap();
        let handle = gpu.handle();
        let mut host =
            Self { bench: Bench::new(gpu, MEMORY), gpu: handle, put: [0; 4], next_command: COMMANDS };
        host.window(HOST, WindowKind::Bus, 0, MEMORY as u64);
        host.window(LOCAL, WindowKind::Local, 0, memory);
        // A channel to the engine that computes, and one to each that copies.
        (0..3).for_each(|channel| host.channel(channel, channel));
        host
    }

    fn write(&mut self, register: u64, value: u32) {
        self.bench.bar_write(FunctionIndex(0), REGISTER_BAR, register, &value.to_le_bytes());
    }

    fn write_wide(&mut self, register: u64, value: u64) {
        self.bench.bar_write(FunctionIndex(0), REGISTER_BAR, register, &value.to_le_bytes());
    }

    fn window(&mut self, number: u16, kind: WindowKind, base: u64, length: u64) {
        self.write(regs::WINDOW_SELECT, CONTEXT << 16 | u32::from(number));
        self.write_wide(regs::WINDOW_BASE, base);
        self.write_wide(regs::WINDOW_LENGTH, length);
        self.write(regs::WINDOW_KIND, kind as u32);
    }

    fn channel(&mut self, number: u32, engine: u32) {
        self.write(regs::CHANNEL_SELECT, number);
        self.write_wide(regs::CHANNEL_RING, RINGS + 0x100 * u64::from(number));
        self.write(regs::CHANNEL_ENTRIES, 8);
        self.write(regs::CHANNEL_ENGINE, engine);
        self.write(regs::CHANNEL_CONTEXT, CONTEXT);
        self.write_wide(regs::CHANNEL_NOTIFIER, NOTIFIERS + 8 * u64::from(number));
        self.write(regs::CHANNEL_ENABLE, 1);
        self.put[number as usize] = 0;
    }

    fn poke(&mut self, at: u64, bytes: &[u8]) {
        self.bench.world.memory[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(*self.bench.world.memory[at as usize..].first_chunk().unwrap())
    }

    /// Gives a channel raw commands, in one entry.
    fn give_raw(&mut self, channel: usize, commands: &[[u8; GpuCommand::BYTES]]) {
        let at = self.next_command;
        commands.iter().for_each(|command| {
            let at = self.next_command;
            self.poke(at, command);
            self.next_command += GpuCommand::BYTES as u64;
        });
        let entry = Entry { window: HOST, count: commands.len() as u16, offset: at as u32 };
        let place = RINGS + 0x100 * channel as u64 + 8 * u64::from(self.put[channel] % 8);
        self.poke(place, &entry.emit());
        self.put[channel] += 1;
        self.write(regs::doorbell(channel as u16), self.put[channel]);
    }

    fn give(&mut self, channel: usize, commands: &[GpuCommand]) {
        let raw: Vec<_> = commands.iter().map(|command| command.emit()).collect();
        self.give_raw(channel, &raw);
    }

    fn run(&mut self) {
        self.bench.run_for(Duration::from_us(500));
    }

    fn fault(&self, channel: u64) -> Option<Fault> {
        Fault::from_number(self.word(NOTIFIERS + 8 * channel))
    }

    fn local(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.gpu.peek(at, &mut bytes);
        bytes
    }
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 7 + n / 256) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Whatever lies where, what was copied in, within and out again is what was there, and nothing beside it has changed.
    #[test]
    fn copies_bring_every_byte(from in 0u64..5000, at in 0u64..70_000, to in 0u64..5000, length in 1usize..9000) {
        let mut gpu = Host::new();
        let bytes = content(length);
        gpu.poke(DATA + from, &bytes);
        let (back, length) = (0x80000 + to, length as u64);
        gpu.give(1, &[
            GpuCommand::Copy { from: host(DATA + from), to: local(at), bytes: length },
            GpuCommand::Copy { from: local(at), to: local(at + 0x20_0000), bytes: length },
            GpuCommand::Copy { from: local(at + 0x20_0000), to: host(back), bytes: length },
            GpuCommand::Copy { from: host(back), to: host(back + 0x10000), bytes: length },
            GpuCommand::Release { at: host(SEMAPHORES), value: 9 },
        ]);
        gpu.run();
        prop_assert_eq!(gpu.word(SEMAPHORES), 9);
        prop_assert_eq!(gpu.local(at, bytes.len()), &bytes[..]);
        for place in [back, back + 0x10000] {
            let memory = &gpu.bench.world.memory;
            prop_assert_eq!(&memory[place as usize..][..bytes.len()], &bytes[..]);
            prop_assert_eq!((memory[place as usize - 1], memory[place as usize + bytes.len()]), (0, 0));
        }
        prop_assert_eq!(gpu.fault(1), None);
    }
}

#[test]
fn engines_share_the_tags_that_are_too_few_for_all() {
    const BYTES: u64 = 200_000;
    let all_tags = GpuParams::example().tags + 4;
    let mut gpu = Host::of(GpuParams { all_tags, ..GpuParams::example() });
    let bytes = content(BYTES as usize);
    gpu.poke(DATA, &bytes);
    for engine in [1, 2] {
        let copy = GpuCommand::Copy { from: host(DATA), to: local(engine * BYTES), bytes: BYTES };
        let done = GpuCommand::Release { at: host(SEMAPHORES + 16 * engine), value: 1 };
        gpu.give(engine as usize, &[copy, done]);
    }
    let mut most = 0;
    while gpu.bench.step() {
        // One more reads commands.
        most = most.max(gpu.bench.world.reads_in_flight());
    }
    assert!((usize::from(all_tags)..=usize::from(all_tags) + 1).contains(&most), "{most}");
    assert!([1, 2].iter().all(|engine| gpu.word(SEMAPHORES + 16 * engine) == 1));
    assert!([1, 2].iter().all(|engine| gpu.local(engine * BYTES, bytes.len()) == bytes));
}

#[test]
fn a_channel_waits_for_anothers_semaphore_and_goes_on_where_it_was() {
    let mut gpu = Host::new();
    gpu.poke(DATA, &content(64));
    let copy = GpuCommand::Copy { from: host(DATA), to: local(0), bytes: 64 };
    let done = |value| GpuCommand::Release { at: host(SEMAPHORES + 16), value };
    // Something of the same entry goes before, and must not be done again.
    gpu.give(1, &[done(1), GpuCommand::Acquire { at: host(SEMAPHORES), value: 5 }, copy, done(2)]);
    gpu.run();
    assert_eq!((gpu.word(SEMAPHORES + 16), gpu.local(0, 64)), (1, vec![0; 64]));
    gpu.poke(SEMAPHORES + 16, &[0; 8]);
    gpu.give(2, &[GpuCommand::Release { at: host(SEMAPHORES), value: 5 }]);
    gpu.run();
    assert_eq!((gpu.word(SEMAPHORES + 16), gpu.local(0, 64)), (2, content(64)));
    assert_eq!(gpu.gpu.counters().waits, 1);
    // Its time stands behind its payload.
    assert!(gpu.word(SEMAPHORES + 24) > gpu.word(SEMAPHORES + 8));
}

#[test]
fn rings_wrap_and_a_doorbell_beyond_them_is_not_heeded() {
    let mut gpu = Host::new();
    for round in 1..=20 {
        gpu.next_command = COMMANDS;
        gpu.give(0, &[GpuCommand::Release { at: host(SEMAPHORES), value: round }]);
        gpu.run();
        assert_eq!(gpu.word(SEMAPHORES), round);
    }
    gpu.write(regs::doorbell(0), 20 + 9);
    gpu.write(regs::doorbell(60), 1);
    gpu.run();
    assert_eq!((gpu.fault(0), gpu.bench.world.faults), (None, 0));
}

#[test]
fn a_context_reaches_its_windows_alone() {
    let none = Place { window: 7, offset: 0 };
    let wide = Place { window: regs::WINDOWS, offset: 0 };
    let bad = [
        GpuCommand::Copy { from: none, to: local(0), bytes: 8 },
        GpuCommand::Copy { from: host(MEMORY as u64 - 4), to: local(0), bytes: 8 },
        GpuCommand::Copy { from: host(0), to: local(u64::MAX), bytes: 8 },
        GpuCommand::Copy { from: host(0), to: wide, bytes: 8 },
        GpuCommand::Acquire { at: none, value: 0 },
        GpuCommand::Release { at: host(MEMORY as u64 - 8), value: 0 },
    ];
    for command in bad {
        let mut gpu = Host::new();
        gpu.give(1, &[command, GpuCommand::Release { at: host(SEMAPHORES), value: 1 }]);
        // Others go on.
        gpu.give(2, &[GpuCommand::Release { at: host(SEMAPHORES + 16), value: 1 }]);
        gpu.run();
        assert_eq!((gpu.fault(1), gpu.fault(2)), (Some(Fault::Address), None), "{command:?}");
        assert_eq!((gpu.word(SEMAPHORES), gpu.word(SEMAPHORES + 16)), (0, 1));
        assert_eq!((gpu.bench.world.interrupts.len(), gpu.bench.world.faults), (1, 0));
        assert_eq!(gpu.gpu.counters().faults, 1);
    }
}

#[test]
fn nonsense_stops_its_channel_and_a_new_ring_begins_anew() {
    let mut gpu = Host::new();
    gpu.give_raw(1, &[[0xff; GpuCommand::BYTES]]);
    gpu.give(
        2,
        &[GpuCommand::Launch(Launch {
            program: Program::Busy,
            polled: host(0),
            written: host(0),
            result: host(0),
            count: 1,
        })],
    );
    gpu.run();
    // No copy engine runs programs.
    assert_eq!((gpu.fault(1), gpu.fault(2)), (Some(Fault::Malformed), Some(Fault::Malformed)));
    gpu.give(1, &[GpuCommand::Release { at: host(SEMAPHORES), value: 1 }]);
    gpu.run();
    assert_eq!(gpu.word(SEMAPHORES), 0);
    gpu.channel(1, 1);
    gpu.give(1, &[GpuCommand::Release { at: host(SEMAPHORES), value: 1 }]);
    gpu.run();
    assert_eq!(gpu.word(SEMAPHORES), 1);
}

#[test]
fn a_read_without_data_stops_its_channel() {
    let mut gpu = Host::new();
    gpu.window(9, WindowKind::Bus, MEMORY as u64 - 0x400, 0x1000);
    let beyond = Place { window: 9, offset: 0 };
    gpu.give(1, &[GpuCommand::Copy { from: beyond, to: local(0), bytes: 0x1000 }]);
    gpu.run();
    assert_eq!(gpu.fault(1), Some(Fault::Bus));
}

#[test]
fn ping_and_pong_on_two_channels_count_together() {
    // One engine computes: pong's side is played by the host, which copies the counter back.
    let mut gpu = Host::new();
    let launch = Launch {
        program: Program::Ping,
        polled: local(64),
        written: local(0),
        result: host(SEMAPHORES),
        count: 3,
    };
    gpu.give(0, &[GpuCommand::Launch(launch)]);
    for round in 1..=3u64 {
        gpu.run();
        assert_eq!((gpu.local(0, 8), gpu.word(SEMAPHORES)), (round.to_le_bytes().to_vec(), 0));
        gpu.bench.bar_write(FunctionIndex(0), MEMORY_BAR, 64, &round.to_le_bytes());
    }
    gpu.run();
    assert!(gpu.word(SEMAPHORES) > 1_000_000, "{} ns", gpu.word(SEMAPHORES));
}

/// Loads go one after the other, over the bus as in its own memory; a place that is not all there is refused.
#[test]
fn a_chase_takes_as_long_as_its_loads() {
    let took = |polled: Place, count: u32| {
        let mut gpu = Host::new();
        let launch =
            Launch { program: Program::Chase, polled, written: polled, result: host(SEMAPHORES), count };
        gpu.give(0, &[GpuCommand::Launch(launch)]);
        gpu.run();
        (gpu.word(SEMAPHORES), gpu.fault(0))
    };
    let [few, many] = [10, 1000].map(|count| took(host(0), count).0);
    assert!(few >= 4_000 && many.abs_diff(100 * few) < few, "two accesses of 200 ns each: {few} {many}");
    assert_eq!(took(local(0), 1000), (300_000, None));
    assert_eq!(took(host(MEMORY as u64 - 128), 1), (0, Some(Fault::Address)));
}

#[test]
fn a_reset_forgets_everything_and_lets_nothing_out() {
    let mut gpu = Host::new();
    gpu.poke(DATA, &content(0x8000));
    gpu.give(
        1,
        &[
            GpuCommand::Copy { from: host(DATA), to: local(0), bytes: 0x8000 },
            GpuCommand::Release { at: host(SEMAPHORES), value: 1 },
        ],
    );
    gpu.bench.run_for(Duration::from_us(2));
    gpu.bench.reset(Reset::Hot);
    gpu.run();
    assert_eq!((gpu.word(SEMAPHORES), gpu.local(0, 64)), (0, vec![0; 64]));
    // It is there again once it has been set up.
    let mut bytes = [0; 4];
    gpu.bench.bar_read(FunctionIndex(0), REGISTER_BAR, regs::COPY_ENGINES, &mut bytes);
    assert_eq!(bytes, 2u32.to_le_bytes());
    gpu.window(HOST, WindowKind::Bus, 0, MEMORY as u64);
    gpu.channel(1, 1);
    gpu.give(1, &[GpuCommand::Release { at: host(SEMAPHORES), value: 1 }]);
    gpu.run();
    assert_eq!(gpu.word(SEMAPHORES), 1);
}
