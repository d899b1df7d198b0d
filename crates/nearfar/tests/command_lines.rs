//! Command lines of programs that cannot be are refused before anything runs, at their line, with what would be right.

use crate::scenario::octo::{LINKS, TEAM, octo};
use crate::scenario::{self, HEAD, cable, host, host_with_nic, loaded};

/// A host with a drive, a NIC on a cable and one without, and a program on four of its cores.
fn check(run: &str) -> Result<(), String> {
    let devices = "change.host.dram.size = \"4 GiB\"\n[[host.device]]\ndrive = \"optane-900p\"\nnamespaces = [\"1 GiB\", \"16 MiB\"]\n\
                   [[host.device]]\nnic = \"modern\"\n[[host.device]]\nnic = \"82575eb\"";
    let nic = "[[host.device]]\nnic = \"modern\"";
    let program = format!("[[program]]\nhost = \"a\"\ncpus = \"0-3\"\nrun = \"{run}\"\n");
    let hosts = [host("a", "dell-t430", devices), host("b", "dell-t430", nic)].concat();
    let text = [HEAD, &program, &hosts, &cable("a", "b", "")].concat();
    let checked = scenario::load(&text).and_then(|setup| scenario::check(&setup));
    checked.map_err(|error| error.render(false))
}

#[test]
fn what_cannot_be_is_refused_at_its_line() {
    let mut wrong = Vec::new();
    for (run, words) in [
        (
            "sleep 1",
            "the programs are all_reduce_perf, bandwidthTest, core-to-core-latency, dd, dpdk-testpmd",
        ),
        // What is for a shell
        ("fio --size=1m > out.txt", "the command alone"),
        ("sync; fio --size=1m", "`sync;` is for a shell"),
        ("fio --size=1m --name='x", "a quote is not closed"),
        ("CUDA_VISIBLE_DEVICES=0,1 bandwidthTest", "`--device=0`"),
        ("fio --rw=rw --rate=, --size=1m", "40m,10m of reads and writes"),
        // Nobody's addresses
        ("netperf -H 10.0.0.9 -l 1", "b has 10.0.0.2"),
        ("netperf -H 10.0.0.2,inet6 -l 1", "`inet6` is not a family"),
        ("iperf -c 10.0.9.9 -t 1", "b has 10.0.0.2"),
        ("iperf3 -c 10.0.9.9 -t 1", "b has 10.0.0.2"),
        ("sockperf pp -i 10.0.9.9 -t 1", "b has 10.0.0.2"),
        ("memaslap -s 10.0.9.9:11211", "b has 10.0.0.2"),
        ("memaslap -s 10.0.0.2", "an address and a port, such as 10.0.0.2:11211"),
        // pcimem
        ("pcimem /sys/bus/pci/devices/0000:01:00.0/resource0 0 w", "a `[[host.device]]` with `card`"),
        ("pcimem /dev/mem", "is not a BAR"),
        // a card's DMA engine
        ("dd if=/dev/xdma0_c2h_0 of=/dev/null bs=1M count=1", "a `[[host.device]]` with `card`"),
        ("dd if=/dev/xdma0_h2c_0 of=/dev/null bs=1M count=1", "`/dev/xdma0_c2h_0`"),
        ("dd if=/dev/zero of=/dev/xdma0_c2h_0 bs=1M count=1", "`/dev/xdma0_h2c_0`"),
        ("dd if=/dev/xdma0_c2h_0 of=/dev/null bs=1M", "give count="),
        ("l2fwd -l 0-1 -- -p 0x3", "`dpdk-testpmd -l CORES -- --forward-mode=mac`"),
        ("pktgen -n 0", "a run ends"),
        ("OMP_NUM_THREADS=5 stream", "OMP_NUM_THREADS=4 at most"),
        ("KMP_AFFINITY=compact stream", "`GOMP_CPU_AFFINITY=0-3 stream`"),
        // What there is instead
        ("lspci -vv", "`nearfar tree SCENARIO`"),
        ("ib_write_bw", "there is no RDMA"),
        ("timeout 10 iperf3 -c 10.0.0.2", "its length"),
        ("perf stat fio --size=1m", "--counters"),
        ("fio --cmdhelp", "`nearfar programs fio`"),
        ("fio --size=1m --ss=iops:1%", "--ramp_time"),
        ("fio --size=1m --zonemode=zbd", "no zones"),
        ("fio --size=1m --ioengine=spdk", "`nvm-latency`"),
        ("fio --size=1m --ioscheduler=bfq", "ioscheduler=none"),
        ("fio --size=1m --cmdprio_percentage=10", "the same priority"),
        ("fio --size=1m --rw=write --verify=md5 --verify_backlog=8", "once all is written"),
        ("fio --size=1m --sync=maybe", "none, sync or dsync"),
        ("iperf3 -c 10.0.0.2 -C bbr", "the kernel has CUBIC"),
        ("ethtool -T eth0", "`nearfar trace`"),
        ("ethtool --set-priv-flags eth0 rx_cqe_compress on", "`change`"),
        ("sockperf tp -i 10.0.0.2 --msg-size-range 10", "`nearfar sweep"),
        ("dd if=/dev/zero of=/tmp/x bs=1M count=1", "the host has /dev/nvme0n1"),
        ("pktgen_sample02_multiqueue.sh -i eth0 -p 9-10", "the discard port"),
        // ping
        ("ping -c 0 10.0.0.2", "1..=65535"),
        ("ping -k 0 10.0.0.2", "unexpected argument '-k'"),
        ("ping -6 10.0.0.2", "hosts have IPv4 addresses"),
        ("ping -I eth9 10.0.0.2", "the host has eth0, eth1"),
        ("ping -s 65508 10.0.0.2", "0..=65507"),
        ("ping -i -1 10.0.0.2", "-i"),
        ("ping -W 0 10.0.0.2", "not a number of seconds above 0"),
        ("ping 0.0.0.0", "not an IPv4 address of a host"),
        ("ping nobody", "no name of a host of the scenario"),
        ("netperf -H nobody -l 1", "such as 10.0.0.2"),
        // mlc
        ("mlc --idle_latency -c 9", "core 9 is none of the program's"),
        ("mlc --idle_latency -j 2", "there is no node 2"),
        ("mlc --loaded_latency -W 4", "2, 3, 5, 6, 7, 8 or 10"),
        ("mlc --latency_matrix --c2c_latency", "cannot be used with"),
        // fio
        ("fio --bs=0 --runtime=1ms", "a multiple of the device's 512 bytes"),
        ("fio --bs=3000 --runtime=1ms", "a multiple of the device's 512 bytes"),
        ("fio --bs=128m --runtime=1ms", "up to 64m"),
        ("fio --bs=2300 --runtime=1ms", "such as 2048 or 2560"),
        ("fio --size=1m --thinktime_spin=5", "a part of --thinktime"),
        ("fio --size=1m --continue_on_error=some", "none, read, write, io, verify or all"),
        ("fio --size=1m --nice=20", "-20..=19"),
        ("nice -n x fio --size=1m", "`x` is not a priority"),
        ("numactl -N netdev:eth7 fio --size=1m", "the host's network devices are `eth0`"),
        ("numactl -N block:nvme0n1 fio --size=1m", "`nearfar tree SCENARIO`"),
        ("ethtool -n eth0 rx-flow-hash sctp4", "rx-flow-hash tcp4"),
        ("fio --offset=100 --runtime=1ms", "is between blocks"),
        ("fio --size=999t", "the device has 1073741824 bytes"),
        ("fio --filename=/dev/sda --runtime=1ms", "the host has /dev/nvme0n1, /dev/nvme0n2"),
        (
            "fio --filename=/dev/disk/by-id/nvme-x --runtime=1ms",
            "the host has /dev/disk/by-id/nvme-OPTANE-900P-0-0",
        ),
        ("fio --filename=/dev/nvme0n2 --size=17m", "the device has 16777216 bytes"),
        ("fio --rw=read", "give --runtime above 0, or --size"),
        ("fio --runtime=0", "give --runtime above 0"),
        ("fio --size=101%", "up to 100%"),
        ("fio --runtime=100000s", "a day at most"),
        ("fio --size=1m --time_based", "--runtime"),
        ("fio --verify=pattern --rw=write --runtime=1ms", "give --size"),
        ("fio --verify=pattern --size=1m", "--rw=write or --rw=randwrite"),
        ("fio --verify=pattern --rw=write --size=1m --numjobs=2", "--numjobs=1"),
        ("fio --direct=0 --ioengine=io_uring --iodepth=4 --size=1m", "--iodepth=1"),
        ("fio --direct=0 --hipri --size=1m", "--direct=1"),
        ("fio --iodepth_batch=4 --size=1m", "up to --iodepth"),
        ("fio --hipri --size=1m", "--ioengine=io_uring or --ioengine=pvsync2"),
        ("fio --ioengine=rdma --size=1m", "sync, psync, vsync, pvsync, pvsync2, libaio, io_uring, posixaio"),
        ("fio --direct=1 --buffered=1 --size=1m", "one of them"),
        ("fio --rw=reed --size=1m", "randtrim, randrw"),
        ("fio --bssplit=4k/60:8k/30 --size=1m", "do not add up to 100"),
        ("fio --bsrange=4k-6k --bs=4k,3k --size=1m --rw=rw --bssplit=4k/100", "one of them"),
        ("fio --random_distribution=zipf:1 --size=1m", "not 1"),
        ("fio --random_distribution=zoned:50/5 --size=1m", "random, zipf:THETA or pareto:H"),
        ("fio --cpus_allowed=2-5 --size=1m", "core 4 is not one of the program's"),
        ("fio --numa_cpu_nodes=1 --size=1m", "none of the program's cores is on node 1"),
        ("fio --numa_mem_policy=bind:2 --size=1m", "0 to 1"),
        ("fio --numa_mem_policy=never --size=1m", "bind:NODES"),
        ("fio --filename=/dev/nvme0n1:/dev/nvme7n1 --size=1m", "no block device `/dev/nvme7n1`"),
        ("fio --rwmixread=30 --rwmixwrite=30 --size=1m", "do not add up to 100"),
        ("fio --name=a --size=1m --name=b --bs=0 --size=1m", "--bs=0"),
        ("fio --name=a --size=1m --name=b --iodepht=2", "there is `--iodepth`"),
        ("fio --name=a --bs=4q --size=1m --name=b --size=1m", "in --name=a"),
        ("fio --client=b --size=1m", "a `[[program]]` for each host"),
        ("fio --readonly --rw=write --size=1m", "--readonly"),
        ("fio job.fio", "there is no job file `job.fio`"),
        ("fio ../job.fio", "not below the scenario's folder"),
        ("fio /etc/passwd", "not below the scenario's folder"),
        // what comes before programs
        ("taskset -c 4 fio --size=1m", "core 4 is not in `cpus = "),
        ("taskset -c 99 fio --size=1m", "there is no core 99"),
        ("numactl -N 1 fio --size=1m", "is not in `cpus = "),
        ("numactl -m 2 fio --size=1m", "there is no node 2"),
        ("numactl --hardware", "`nearfar tree SCENARIO`"),
        ("fio --ioengine=libaio --iodepth=65536 --bs=64m --runtime=1ms", "bytes of memory"),
        // GPUs, and a drive of a program's own
        ("bandwidthTest", "there is no GPU 0"),
        ("gpu-copy --through=net", "peer, read, ram"),
        ("nvm-latency", "`user_space = true`"),
        ("spdk_nvme_perf -q 8 -o 4k -w randread", "`user_space = true`"),
        ("spdk_nvme_perf -q 8 -o 4k -w randwr", "read, randread, write, randwrite, rw, randrw"),
        ("all_reduce_perf", "there is no GPU 1"),
        ("all_reduce_perf -b 2m -e 1m", "there is no GPU 1"),
        // caches
        ("core-to-core-latency 0", "1.."),
        ("core-to-core-latency -b 2", "compare and exchange"),
        // dd
        ("dd if=/dev/zero of=/dev/null", "give count="),
        ("dd if=/dev/zero of=/dev/null count=0", "nothing is to be copied"),
        ("dd if=/dev/zero of=/dev/null count=1 skip=9223372036854775812", "no file is as long"),
        ("dd if=/dev/zero of=/dev/null count=1 seek=36028797018963968", "no file is as long"),
        ("dd if=/dev/nvme0n1 of=/dev/null skip=999g", "within the devices"),
        ("dd if=/dev/nvme3n1 of=/dev/null count=1", "the host has /dev/nvme0n1"),
        ("dd of=/dev/null count=1", "give if="),
        ("dd if=/dev/zero count=1", "give of="),
        ("dd if=/dev/zero of=/dev/nvme0n1 bs=0 count=1", "1 to 64m"),
        ("dd if=/dev/zero of=/dev/nvme0n1 bs=3000 oflag=direct count=1", "a multiple of 512"),
        ("dd if=/dev/zero of=/dev/null iflag=direct count=1", "leave iflag out"),
        ("dd if=/dev/zero of=/dev/null conv=fsync count=1", "conv=fsync needs a device"),
        ("dd if=/dev/zero of=/dev/null verify=yes count=1", "verify=yes needs a device"),
        ("dd if=/dev/zero of=/dev/null size=1", "the keys are if, of"),
        ("dd if=/dev/zero of=/dev/null count=1 conv=ucase", "it can be fsync, fdatasync, notrunc"),
        ("dd if=/dev/zero of=/dev/null count=1 oflag=append", "it can be direct, dsync, sync"),
        ("dd if=/dev/zero of=/dev/null count=1 status=all", "none, noxfer or progress"),
        ("dd if=/dev/zero of=/dev/null count=1 ibs=4k obs=8k", "ibs= and obs= alike"),
        ("dd if=/dev/zero of=/dev/nvme0n1 bs=4k count=1 oflag=direct seek=100B", "cannot begin at byte 100"),
        // netperf, iperf
        ("netperf -H 10.0.0.2 -l 0", "not a number of seconds above 0"),
        ("netperf -H 10.0.0.2 -p 0", "1..=65535"),
        ("netperf -H 10.0.0.2 -t TCP_RR -- -m 64", "it is for -t TCP_STREAM"),
        ("netperf -H 10.0.0.2 -- -r 64,64", "it is for -t TCP_RR"),
        ("netperf -H 10.0.0.2 -- -m 0", "1..=4194304"),
        ("netperf -H 10.0.0.2 -- -x", "unexpected argument '-x'"),
        ("netperf -H 10.0.0.2 -t UDP_RR -- -r 70000,1", "up to 65507"),
        ("netperf -H 10.0.0.2 -t TCP_SENDFILE -F /dev/sda", "no block device `/dev/sda`"),
        ("netperf -H 10.0.0.2 -t TCP_SENDFILE -- -f 256q", "'256q' for '-f"),
        ("netperf -H 10.0.0.2 -t TCP_SENDFILE -- -f 256kk", "'256kk' for '-f"),
        ("netperf -H 10.0.0.2 -T 20", "cores 0 to 19"),
        ("netperf -H 10.0.0.2 -T x,1", "such as `0,1`"),
        ("netperf -H 10.0.0.2 -T 99999,1", "such as `0,1`"),
        ("netperf -H 10.0.0.2 -i 3,10", "such as `10,3`"),
        ("netperf -H 10.0.0.2 -I 90,5", "95 or 99"),
        ("netperf -H 10.0.0.2 -l -18446744073709551616", "number of bytes"),
        ("netperf -H 10.0.0.2 -t omni -- -d up", "-d stream, rr"),
        ("netperf -H 10.0.0.2 -- -T udp", "it is for -t omni"),
        ("netperf -H 10.0.0.2 -- -k THROUGHPUTS", "results are PROTOCOL"),
        ("netperf -H 10.0.0.2 -t UDP_STREAM -- -m 64K", "-m up to 65507"),
        ("netperf -H 10.0.0.2 -t TCP_SENDFILE -- -f 2000000000", "-f up to 1073741824"),
        ("netserver -p 0", "1..=65535"),
        ("iperf -c 10.0.0.2 -t 0", "not a number of seconds above 0"),
        ("iperf -c 10.0.0.2 -P 0", "1..=65535"),
        ("iperf", "-s"),
        ("iperf -c 10.0.0.2 -w 4096G", "not in 1..="),
        ("iperf -c 10.0.0.2 -l 18446744073709551616", "not a size"),
        ("iperf -c 10.0.0.2 -n 99999999999G", "not a size"),
        ("iperf -c 10.0.0.2 -u -l 70000", "-l 16 to 65507"),
        ("iperf -c 10.0.0.2 -d", "a second program `iperf -c`"),
        ("iperf -c 10.0.0.2 -R", "`iperf3 -R`"),
        ("iperf -c 10.0.0.2 -V", "hosts have IPv4 addresses"),
        ("iperf3 -c 10.0.0.2 -Z", "`netperf -t TCP_SENDFILE`"),
        ("iperf3 -c 10.0.0.2 -A 20", "cores 0 to 19"),
        ("iperf3 -c 10.0.0.2 -P 129", "1..=128"),
        ("iperf3 -c 10.0.0.2 -b 1G/0", "burst of 1 to 1000"),
        ("iperf3 -c 10.0.0.2 -t 1e300", "not a number of seconds"),
        // sockperf, memcached
        ("sockperf under-load -i 10.0.0.2 --mps 0", "messages per second"),
        ("sockperf pp -i 10.0.0.2 -m 13", "14..=65507"),
        ("sockperf tp -i 10.0.0.2 -t 86401", "not a number of seconds"),
        ("sockperf pp -i 10.0.0.2 -F epoll", "waited for by itself"),
        ("memcached -U 11211", "not in 0..=0"),
        ("iperf3 -c 10.0.0.2 -b 1 -k 1000", "a day, at most"),
        ("iperf -c 10.0.0.2 -u -b 8 -n 1G", "a day, at most"),
        ("ping -c 65535 -i 86400 10.0.0.2", "a day, at most"),
        ("pktgen -n 18446744073709551615 -w 1000000000", "a day, at most"),
        ("memcached -I 2g", "not in 1024..="),
        ("memcached -m 4294967296", "1..=1048576"),
        // pktgen, ethtool, stream
        ("pktgen -t 1000", "-t 1 to 4"),
        ("pktgen -t 0", "1..=65535"),
        ("pktgen -s 20", "60..=9014"),
        ("pktgen -m 0", "-m"),
        ("pktgen -i eth9", "the host has eth0, eth1"),
        ("pktgen -i eth1", "no carrier"),
        ("pktgen -w 99999999999", "1000000000"),
        ("ethtool -S eth9", "the host has eth0, eth1"),
        ("ethtool -S eth0 rx-usecs 1", "`rx-usecs 1` is left over"),
        ("ethtool -C eth0", "does not say what to set"),
        ("ethtool -C eth0 tx-usecs 7", "as in `rx-usecs 3 tx-usecs 3`"),
        ("ethtool -C eth0 rx-usecs 3 tx-usecs 7", "tx-usecs is that of rx-usecs"),
        ("ethtool -C eth0 sample-interval 7", "rx-usecs, rx-frames and adaptive-rx"),
        ("ethtool -G eth0 rx 1000", "a power of two from 8 to 32768"),
        ("ethtool -G eth0 rx-mini 8", "-G takes rx and tx"),
        ("ethtool -L eth0 combined 4", "set `channels = 4` in `[host.nic_driver]`"),
        ("ethtool -L eth0 rx 4", "RX and TX queues are pairs"),
        ("ethtool -K eth0 lro on", "no device here has lro"),
        ("ethtool -K eth0 tso maybe", "tso is on or off"),
        ("ethtool -K eth0 fast on", "tso, gro, rx, tx, rxhash and ntuple"),
        ("ethtool -A eth0 rx off tx off", "`[flow_control]` in the NIC's file"),
        ("ethtool -s eth0 speed 1000", "set `rate` of the `[[cable]]`"),
        ("ethtool -N eth0 flow-type tcp4 dst-port 5001 action 1", "match a whole flow"),
        ("ethtool -N eth0 rx-flow-hash udp4 sd", "`sdfn`"),
        ("ethtool -X eth0 default 3", "`3` is left over"),
        ("ethtool", "of which device?"),
        ("ethtool -C eth0 rx-usecs", "not a number for rx-usecs"),
        ("ethtool -C eth0 rx-usecs 2000000", "0 to 1000000"),
        ("ethtool -X eth0 equal 21", "queues 0 to 19"),
        ("ethtool -X eth1 weight 1 1 1 1 1", "queues 0 to 3"),
        ("ethtool -X eth0 equal 0", "names no queue"),
        ("l2fwd -i eth0 -t 5", "`user_space = true` in `[host.nic_driver]`"),
        ("dpdk-testpmd -l 0-1 -n 4 -- --forward-mode=io", "`user_space = true` in `[host.nic_driver]`"),
        ("dpdk-testpmd -l 0-20 -n 4 -- --forward-mode=io", "cores 0 to 19"),
        ("testpmd -l 0 -n 4 -- --forward-mode=io", "-l with a core more"),
        ("testpmd -l 0-1 -- --forward-mode=csum", "io, mac, macswap, rxonly, txonly"),
        ("testpmd -l 0-1 -- --burst=513", "1..=512"),
        ("testpmd -l 0-1 -- --rxd=1000", "a power of two"),
        ("testpmd -l 0-1 -a 03:00.0 -- --burst=16", "`--portlist`"),
        ("l2fwd -t 9223372036854775812", "not in 1..=86400000"),
        ("stream --array-size 4294967296", "bytes of memory"),
        ("stream --ntimes 1", "1"),
    ] {
        match check(run) {
            Err(said) if said.contains("test.toml:6:7") && said.contains(words) => {}
            said => wrong.push(format!("`{run}` should speak of `{words}`: {said:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Linux's pktgen refuses `clone_skb` and `burst` on a device without `IFF_TX_SKB_SHARING`, such as a team.
/// The card's other interface is reached by an address that the card changes.
#[test]
fn a_looped_card_has_addresses_of_its_own() {
    let text = include_str!("../../../scenarios/kpio-ping.toml");
    scenario::load(text).and_then(|setup| scenario::check(&setup)).unwrap();
}

#[test]
fn no_packet_is_repeated_on_a_team() {
    let check = |options: &str| {
        let program = format!("[[program]]\nhost = \"a\"\nrun = \"pktgen -i team0{options}\"\n");
        let text =
            [HEAD, &program, &octo(LINKS, "connectx4-octo", TEAM), &host_with_nic("b"), &cable("a", "b", "")];
        scenario::check(&loaded(&text.concat())).map_err(|error| error.render(false))
    };
    assert_eq!(check(""), Ok(()));
    for options in [" -c 1000", " -b 32"] {
        let said = check(options).expect_err(options);
        assert!(said.contains("test.toml:5:7") && said.contains("leave -c and -b out"), "{options}: {said}");
    }
}

/// All lines that are not understood are told at once, and, when the hosts have booted, all that ask for what is not there.
#[test]
fn every_wrong_line_is_told() {
    let wrong = |runs: [&str; 3]| {
        let programs = runs.map(|run| format!("[[program]]\nrun = \"{run}\"\n")).concat();
        let said =
            scenario::check(&loaded(&[HEAD, &host("a", "dell-t430", ""), &programs].concat())).unwrap_err();
        said.iter().map(|one| one.line).collect::<Vec<_>>()
    };
    assert_eq!(wrong(["fio", "stream", "ping"]), [12]);
    assert_eq!(wrong(["fio --rw=reed", "stream", "ping"]), [8, 12]);
    assert_eq!(wrong(["fio --size=1m", "stream", "dd if=/dev/nvme0n1 of=/dev/null"]), [8, 12]);
}

#[test]
fn what_can_be_is_taken() {
    for run in [
        "ping -c 1 -i 0 -s 0 127.0.0.1",
        "fio --description='my test' --filename='/dev/nvme0n1' --size=1m --output=x.txt --write_bw_log=x",
        "fio --rw=randrw --rate=40m, --size=1m",
        "fio --rw=rw --bs=,8k --rate_iops=,5000 --size=1m",
        "fio --filename=/dev/nvme0n1 --filename=nvme0n2 --size=1m",
        "fio --name=a --size=1m --exitall --name=b --size=2m",
        "LC_ALL=C NCCL_DEBUG=INFO fio --size=1m",
        "netperf -H 10.0.0.2 -l 1 -- -P ,5000 -m ,16K",
        "fio --filename=nvme0n2 --rw=randrw --rwmixread=70 --size=16m --fsync=8 --ioengine=libaio --iodepth=4 --iodepth_batch=4",
        "fio --rw=write --bs=3000 --direct=0 --size=1m",
        "fio --size=1m --ramp_time=1ms --rwmixread=70 --fsync=8",
        "fio --direct=0 --ioengine=libaio --iodepth=4 --size=1m",
        "fio --name=global --bs=8k --name=a --size=1m --name=b --size=2m --stonewall",
        "fio --filename=nvme0n1:nvme0n2 --rw=randtrim --size=1m --bs=4k,8k,64k",
        "fio --rw=randread:8 --bsrange=4ki-64ki --size=50% --offset=10% --io_size=4Mi --kb_base=1000",
        "fio --cpus_allowed=0,2-3 --cpus_allowed_policy=split --numjobs=3 --size=1m",
        "fio --numa_cpu_nodes=0 --numa_mem_policy=interleave:all --size=1m --eta always --debug=io",
        "fio --rate_iops=1k,500 --rate_process=poisson --rate_min=1k --size=1m --loops=2 --number_ios=100",
        "/usr/bin/taskset -c 0-2 numactl --membind=1 fio --size=1m",
        "fio --name x --filename /dev/nvme0n1 --rw randread --bs 4k --ioengine libaio --iodepth 8 --size 1m",
        "sudo time fio --size=1m --rw=write --verify=crc32c --do_verify=1",
        "OMP_NUM_THREADS=2 ./stream_c.exe",
        "OMP_NUM_THREADS=16 fio --size=1m",
        "OMP_NUM_THREADS=2 OMP_PROC_BIND=spread OMP_PLACES=cores ./stream",
        "taskset -ac 0 stream",
        "fio --name=j --sync=1 --rw=write --bs=4k --runtime=1ms --time_based --group_reporting",
        "fio --name=w --size=1m --filesize=10G --bs=1M --nrfiles=1 --sync=0 --rw=write --end_fsync=1",
        "fio --size=1m --verify=0 --verify_fatal=0 --iodepth_batch_complete_max=16 --log_avg_msec=1000 --zonemode=none",
        "fio --filesize=1m --io_submit_mode=inline --ioscheduler none --write_hint=short --nowait=1 --new_group",
        "fio --size=1m --max_latency=10ms,20ms --continue_on_error=all --disk_util=0 --nice=-5",
        "fio --size=1m --thinktime=10 --thinktime_spin=5us --continue_on_error --size=100%",
        "nice -n 5 ionice -c 2 -n 0 time chrt -f 10 fio --size=1m",
        "numactl --membind=netdev:eth0 fio --size=1m",
        "netperf -H b -l 1",
        "netperf -Hb,inet -L a -l 1",
        "iperf3 --client=b -t 1",
        "iperf -c b -t 1",
        "ping -c 1 b",
        "ping -q -I eth0 localhost -c 1",
        "sockperf pp -i b -t 1",
        "sockperf sr --tcp -i 10.0.0.1 -p 12345",
        "memaslap -s b:11211 -T 4 -S 1s",
        "lat_mem_rd -t 1 128",
        "mlc --peak_injection_bandwidth -t10",
        "iperf3 -c 10.0.0.2 -C cubic -t 1",
        "iperf -c 10.0.0.2 -Z cubic -t 1",
        "ethtool -n eth0 rx-flow-hash udp4",
        "ethtool -n eth0 rx-flow-hash tcp4",
        "sockperf server --tcp -p 12345 --daemonize",
        "pktgen_sample03_burst_single_flow.sh -vi eth0 -t 2 -b 32 -n 10 -x",
        "netperf -H 10.0.0.2,inet -t UDP_STREAM -l 1 -- -R 1",
        "pktgen_sample01_simple.sh -i eth0 -d 10.0.0.2 -s 60 -n 10",
        "taskset 0x3 stream_c.exe",
        "numactl --interleave=all ./stream_c --array-size 1000000",
        "dd if=/dev/zero of=/dev/nvme0n1 bs=2x512K count=1MB iflag=fullblock,count_bytes oflag=direct,dsync conv=notrunc,fdatasync status=none",
        "dd if=/dev/nvme0n1 of=/dev/nvme0n2 bs=3000 count=1",
        "netperf -H 10.0.0.2 -t TCP_SENDFILE -- -m 1 -M 1 -f 4096",
        "netperf -H 10.0.0.2 -t TCP_MAERTS -l 0.005",
        "netperf -H 10.0.0.2 -t UDP_STREAM -l 0.005 -- -m 1472",
        "netperf -H 10.0.0.2 -t TCP_RR -l 0.005 -c -C",
        "netperf -H 10.0.0.2 -t TCP_RR -l 0.005 -T 0,0",
        "netperf -H 10.0.0.2 -t TCP_STREAM -l 0.005 -P 0 -v 2 -D 0.001 -i 10,3 -I 95,5",
        "netperf -H 10.0.0.2 -t omni -l -1000 -- -d rr -T udp -k THROUGHPUT,P99_LATENCY -b 4 -r 1K,16k",
        "netperf -H 10.0.0.2 -t TCP_CRR -- -O all -s 128K,64K",
        "netserver -D -4",
        "iperf3 -s -D",
        "iperf3 -c 10.0.0.2 -t 0.005 -P 4 -R",
        "iperf3 -c 10.0.0.2 -u -b 2.5G -l 1K -w 1M -i 0.001 -J -A 0,1 --logfile x",
        "iperf -c 10.0.0.2 -t 0.005 -P 4 -w 416k -i 1",
        "iperf -s -D",
        "iperf -c 10.0.0.2 -u -b 1G -t 0.005",
        "sockperf ping-pong --tcp -i 10.0.0.2 -t 0.005",
        "sockperf under-load -i 10.0.0.2 --mps 50000 --reply-every 10 -t 0.005 --full-rtt",
        "sockperf tp -i 10.0.0.2 --mps max -m 1400",
        "memcached -u nobody -l 10.0.0.2 -d -c 1024 -U 0",
        "ethtool -N eth0 rx-flow-hash udp4 sdfn",
        "netperf -L 10.0.0.1 -H 10.0.0.2 -l 1",
        "iperf3 -c 10.0.0.2 -B 10.0.0.1 -t 1 -b 1",
        "sockperf pp -i 10.0.0.2 --pps 1000 -t 1",
        "memaslap -s 10.0.0.2:11211 -T 4 -S 1s",
        "pktgen -t 4 -s 1514 -m 02:00:00:00:00:01",
        "ethtool -X eth1 weight 0 0 0 1",
        "ethtool -X eth0 default",
        "ethtool -C eth0 adaptive-rx off rx-usecs 3 tx-usecs 3",
        "ethtool -G eth0 rx 1024 tx 1024",
        "ethtool -L eth0 combined 20",
        "ethtool -K eth0 gro off tso off lro off",
        "ethtool -N eth0 flow-type udp4 src-ip 10.0.0.2 dst-ip 10.0.0.1 src-port 1 dst-port 2 action 3",
        "ethtool eth0",
        "ping -q -c 5 10.0.0.2",
        "ping -f -c 100 10.0.0.2",
        "ping -M do -s 1472 -c 3 10.0.0.2",
        "ping -I eth0 -w 0.01 -qn 10.0.0.2",
    ] {
        check(run).unwrap_or_else(|said| panic!("{run}: {said}"));
    }
}

/// What leaves a port that is at no cable goes nowhere.
#[test]
fn a_polled_port_needs_a_cable() {
    let check = |cable: &str| {
        let polled =
            |name| host(name, "dell-t430", "nic_driver.user_space = true\n[[host.device]]\nnic = \"modern\"");
        let program =
            "[[program]]\nhost = \"a\"\nrun = \"dpdk-testpmd -l 0-1 -- --forward-mode=txonly --time=1\"\n";
        scenario::check(&loaded(&[HEAD, program, &polled("a"), &polled("b"), cable].concat()))
    };
    assert!(check(&cable("a", "b", "")).is_ok());
    let said = check("").unwrap_err().render(false);
    assert!(said.contains("`uio0` has no carrier") && said.contains("`[[cable]]`"), "{said}");
}

/// All that is wrong with one line is told at once.
#[test]
fn every_wrong_option_is_told() {
    for (run, words) in [
        ("fio --rw=reed --iodepht=2 --ss=iops:1% --size=1m", &["reed", "--iodepth", "--ramp_time"][..]),
        ("fio --direct=1 --buffered=1 --rw=read", &["one of them", "--runtime above 0"]),
        ("ethtool -T eth0 --frob 3", &["nearfar trace", "--frob"]),
        ("netperf -H 10.0.0.2 -l 0 -p 0 -Q", &["above 0", "1..=65535", "'-Q'"]),
        ("fio --name=a --bs=4q --size=1m --name=b --bs=5q --size=1m", &["in --name=a", "in --name=b"]),
    ] {
        let said = check(run).expect_err(run);
        let missing: Vec<_> = words.iter().filter(|word| !said.contains(**word)).collect();
        assert!(missing.is_empty(), "{run}: {missing:?} in {said}");
    }
}

/// Lines of bug reports: <https://github.com/axboe/fio/issues/141>, 694 there, and manuals.
#[test]
fn usual_lines_of_fio_and_dd_are_taken() {
    for options in [
        "--runtime=2ms --time_based=1",
        "--runtime=2ms --group_reporting=1",
        "--runtime=2ms --norandommap --randrepeat=0",
        "--runtime=2ms --thread",
        "--ioengine=psync --direct=1 --runtime=2ms",
        "--runtime=2ms --numa_cpu_nodes=0 --numa_mem_policy=bind:0",
        "--runtime=2ms --cpus_allowed=0-3",
        "--filename=/dev/nvme0n1:/dev/nvme0n2 --runtime=2ms",
        "--rw=randrw --rwmixwrite=30 --runtime=2ms",
        "--io_size=4m",
        "--output-format=json --runtime=2ms --percentile_list=50:99:99.9 --invalidate=1 --eta=never",
    ] {
        let run =
            format!("fio --name=x --filename=/dev/nvme0n1 --rw=randread --bs=4k --iodepth=32 {options}");
        check(&run).unwrap_or_else(|said| panic!("{run}: {said}"));
    }
    check("fio -name=x -filename=/dev/nvme0n1 -rw=randread -bs=4k -iodepth=32 -runtime=2ms").unwrap();
    check("dd if=/dev/zero of=/dev/nvme0n1 bs=1M count=8 oflag=direct status=progress").unwrap();
}

/// Words of command lines, and what stands where a number or a name is expected.
const WORDS: &[&str] = &[
    "-t",
    "-s",
    "-n",
    "-c",
    "-i",
    "-m",
    "-M",
    "-H",
    "-l",
    "-p",
    "-P",
    "-r",
    "-f",
    "-F",
    "-b",
    "-w",
    "-d",
    "-C",
    "-X",
    "-S",
    "-x",
    "--",
    "--bs",
    "--size",
    "--offset",
    "--runtime",
    "--ramp_time",
    "--iodepth",
    "--numjobs",
    "--direct",
    "--rw",
    "--verify",
    "--fsync",
    "--array-size",
    "--ntimes",
    "TCP_STREAM",
    "TCP_SENDFILE",
    "UDP_RR",
    "TCP_RR",
    "randrw",
    "write",
    "pattern",
    "equal",
    "weight",
    "rx-usecs",
    "adaptive-rx",
    "on",
    "eth0",
    "eth1",
    "/dev/nvme0n2",
    "10.0.0.2",
    "0",
    "1",
    "-1",
    "4k",
    "3000",
    "1,1",
    "nan",
    "1e400",
    "18446744073709551615",
    "16777215t",
    "1ms",
    "86400s",
    "if=/dev/zero",
    "of=/dev/nvme0n2",
    "of=/dev/null",
    "bs=0",
    "bs=512",
    "count=1",
    "count=16777215t",
    "seek=16777215t",
    "skip=1",
    "iflag=direct",
    "oflag=direct",
    "conv=fsync",
    "status=progress",
    "--name=a",
    "-name=global",
    "--bssplit=4k/50:8k/50",
    "--filename=a:b",
    "--ioengine=libaio",
    "--rate",
    "--kb_base=1000",
    "--time_based=1",
    "--thread",
    "job.fio",
    "verify=yes",
    "\u{fffd}",
];

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 2000, ..Default::default() })]

    /// Any line of such words is taken, or refused with a message; nothing panics.
    #[test]
    fn any_line_is_taken_or_refused(
        program in 0..workloads::PROGRAMS.len(),
        words in proptest::collection::vec(proptest::sample::select(WORDS), 0..8),
    ) {
        let line = [&[workloads::PROGRAMS[program].name], &words[..]].concat().join(" ");
        let disk = workloads::Disk { name: Some("nvme0n2".into()), id: None, bytes: 16 << 20, block: 512 };
        let link = workloads::Link { name: "eth0".into(), queues: 4, max_frame: 1514, has_carrier: true, shares_packets: true };
        let premises = workloads::Premises {
            cores: 4,
            all_cores: 4,
            cpus: (0..4).map(|core| (core, 0)).collect(),
            nodes: 2,
            memory: 1 << 30,
            disks: vec![disk],
            links: vec![link],
            polled: vec![("uio0".into(), true)],
            gpus: 2,
            user_drives: 1,
            cards: 1,
            functions: vec!["a:ssd".to_owned()],
            peers: vec![("b".to_owned(), [10, 0, 0, 2].into())],
        };
        let refused = workloads::parse(&line).and_then(|program| program.check(&premises)).err();
        proptest::prop_assert!(refused.is_none_or(|refused| !refused.message.is_empty()));
    }
}
