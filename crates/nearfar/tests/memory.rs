//! The simulator's memory does not grow with what programs write, read, send and receive.

use crate::scenario::{self, HEAD, cable, host_with_drive, host_with_nic, loaded, program};
use allocation_counter::measure;
use nearfar::Silent;
use nearfar::computer::run;

/// Most bytes that were allocated at once during a run.
fn peak(text: &str) -> u64 {
    let setup = loaded(text);
    let run = || {
        let done = run(&setup, &Silent).unwrap();
        assert!(done.iter().all(|done| done.outcome.is_ok()), "{done:?}");
    };
    measure(run).bytes_max
}

/// What a run of four times the length may need in addition: lists of reports, rounding of buffers to powers of two.
const MORE: u64 = 1 << 20;

fn assert_bounded(what: &str, text: impl Fn(u64) -> String) {
    let (short, long) = (peak(&text(1)), peak(&text(4)));
    assert!(long <= short + MORE, "{what}: {short} bytes, and {long} for four times as much");
}

/// Blocks are in a file; what the drive's buffer holds is less than the shorter run writes.
#[test]
fn memory_does_not_grow_with_what_drives_write_and_read() {
    let buffer =
        "\nchange.media.write_buffer = { value = \"1 MiB\", source = \"assumed: less than is written\" }\n";
    let jobs = [
        ("pm1725a", "--rw=write --bs=64k --iodepth=1"),
        ("pm1725a", "--rw=write --bs=64k --iodepth=4"),
        ("optane-900p", "--rw=write --bs=64k --iodepth=1"),
        ("pm1725a", "--rw=write --bs=64k --iodepth=2 --verify=pattern"),
        ("optane-900p", "--rw=randread --bs=4k --iodepth=4"),
    ];
    for (drive, job) in jobs {
        let with = if drive == "pm1725a" { buffer } else { "" };
        assert_bounded(job, |times| {
            let fio = format!("fio --ioengine=libaio {job} --size={}m", 4 * times);
            [HEAD, &(host_with_drive(drive, "off") + with), &program("a", "0", &fio)].concat()
        });
    }
}

/// The page cache has a limit, too.
#[test]
fn memory_does_not_grow_with_what_goes_through_the_page_cache() {
    let limits = "change_kernel.block.cache_limit = { value = \"1 MiB\", source = \"assumed: less than is written\" }\n\
                  change_kernel.block.dirty_limit = { value = \"512 KiB\", source = \"assumed: less than is written\" }\n";
    for job in [
        "dd if=/dev/urandom of=/dev/nvme0n1 bs=64k count=COUNT",
        "dd if=/dev/nvme0n1 of=/dev/null bs=64k count=COUNT",
    ] {
        assert_bounded(job, |times| {
            let dd = job.replace("COUNT", &(64 * times).to_string());
            let host = scenario::host(
                "a",
                "dell-t430",
                &format!("{limits}[[host.device]]\ndrive = \"optane-900p\""),
            );
            [HEAD, &host, &program("a", "0", &dd)].concat()
        });
    }
}

#[test]
fn memory_does_not_grow_with_what_networks_carry() {
    let hosts = [HEAD, &host_with_nic("a"), &host_with_nic("b"), &cable("a", "b", "")].concat();
    let server = program("b", "0", "netserver");
    for client in ["netperf -H 10.0.0.2 -t TCP_STREAM -l", "netperf -H 10.0.0.2 -t TCP_RR -l"] {
        assert_bounded(client, |times| {
            let client = format!("{client} {}", 0.016 * times as f64);
            [&hosts[..], &server, &program("a", "0", &client)].concat()
        });
    }
}
