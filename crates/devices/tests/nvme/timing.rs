//! Latency of commands, and where their bytes are stored.

use devices::nvme::{FileMedia, Nvme, NvmeParams};
use platform::testing::Bench;
use units::{ByteRate, Bytes, Duration};
use wire::nvme::io::Blocks;
use wire::nvme::*;

use super::back_end::MEMORY;
use super::driver::Driver;

/// Time until a command's completion, to 10 ns.
fn time(d: &mut Driver, command: IoCommand, length: u64) -> Duration {
    let at = d.pages(length.div_ceil(4096));
    let pointer = d.prp(at, length);
    d.submit(1, command.command(0, 1).with_data(pointer));
    let mut taken = Duration::ZERO;
    while d.poll(1).is_none() {
        d.host.run_for(Duration::from_ns(10));
        taken += Duration::from_ns(10);
    }
    taken
}

fn within(taken: Duration, expected: Duration) {
    let difference = taken.saturating_sub(expected) + expected.saturating_sub(taken);
    assert!(difference <= Duration::from_ns(20), "{taken}, not {expected}");
}

#[test]
fn a_read_takes_the_sum_of_its_stages() {
    let params = NvmeParams::example();
    let (timing, media) = (params.timing, params.media);
    let mut d = Driver::on_bench(params).ready();
    let page = Bytes::new(4096);
    let stages = timing.fetch
        + timing.decode
        + media.read
        + media.channel.time_for(page)
        + timing.data_path.time_for(page)
        + timing.completion;
    within(time(&mut d, IoCommand::Read(Blocks::new(0, 8)), 4096), stages);
}

#[test]
fn a_buffered_write_does_not_wait_for_the_media_and_a_forced_one_does() {
    let params = NvmeParams::example();
    let (timing, media) = (params.timing, params.media);
    let mut d = Driver::on_bench(params).ready();
    let page = Bytes::new(4096);
    let front = timing.fetch + timing.decode + timing.data_path.time_for(page) + timing.completion;
    within(time(&mut d, IoCommand::Write(Blocks::new(0, 8)), 4096), front);
    d.host.run_for(Duration::from_ms(1));
    let forced = Blocks { force_unit_access: true, ..Blocks::new(0, 8) };
    let back = media.channel.time_for(page) + media.program;
    within(time(&mut d, IoCommand::Write(forced), 4096), front + back);
}

#[test]
fn pieces_on_different_channels_are_read_at_once() {
    let mut params = NvmeParams::example();
    params.timing.data_path = ByteRate::gb_per_s(1000);
    let (timing, media) = (params.timing, params.media);
    let mut d = Driver::on_bench(params).ready();
    // Eight units on four channels: two dies per channel work at once, then share the channel.
    let unit = Bytes::new(4096);
    let stages =
        timing.fetch + timing.decode + media.read + media.channel.time_for(unit) * 2 + timing.completion;
    within(time(&mut d, IoCommand::Read(Blocks::new(0, 64)), 8 * 4096), stages);
}

#[test]
fn blocks_are_in_a_file_that_stays_sparse() {
    let path = std::env::temp_dir().join(format!("nearfar-nvme-{}", std::process::id()));
    let open = || {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).open(&path).unwrap()
    };
    let params = || NvmeParams { namespaces: vec![Bytes::gib(4)], ..NvmeParams::example() };
    let data: Vec<u8> = (0..8192u32).map(|n| ((n * 13) >> 3) as u8).collect();
    let start = |file| {
        let media = FileMedia::temporary(file, 4 << 30).unwrap();
        let drive = Nvme::new(params(), Box::new(media)).unwrap();
        let control = drive.control();
        Driver::new(Box::new(Bench::new(drive, MEMORY)), control).ready()
    };
    let mut d = start(open());
    assert!(d.write_blocks(5_000_000, &data).is_success());
    assert!(d.flush().is_success());
    drop(d);
    assert_eq!(open().metadata().unwrap().len(), 4 << 30);
    let mut d = start(open());
    assert_eq!(d.read_blocks(5_000_000, 8192).unwrap(), data);
    std::fs::remove_file(&path).unwrap();
}
