//! A host of two nodes as files: what is planned, written, undone, and what happens if a write fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use place::{AskedFor, GuestPlacer, HostRoot, HostView, LoadSample, PlaceError, apply, plan, undo};

struct Host {
    folder: tempfile::TempDir,
}

const DEVICE: &str = "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0";

impl Host {
    /// Eight CPUs on two nodes, `eth0` with four queues at node 1, and a process called memcached.
    fn new() -> Self {
        let host = Self { folder: tempfile::tempdir().unwrap() };
        for cpu in 0..8 {
            let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            host.file(&format!("{topology}/core_id"), &format!("{}", cpu % 4 / 2));
            host.file(&format!("{topology}/physical_package_id"), &format!("{}", cpu / 4));
        }
        for (node, cpus) in [(0, "0-3"), (1, "4-7")] {
            let folder = format!("sys/devices/system/node/node{node}");
            host.file(&format!("{folder}/cpulist"), cpus);
            host.file(
                &format!("{folder}/meminfo"),
                &format!("Node {node} MemTotal: 67108864 kB\nNode {node} MemFree: 60000000 kB"),
            );
        }
        host.file(&format!("{DEVICE}/numa_node"), "1");
        host.file(&format!("{DEVICE}/class"), "0x020000");
        host.file(&format!("{DEVICE}/config"), "");
        host.link("sys/bus/pci/devices/0000:81:00.0", &format!("../../../../{DEVICE}"));
        host.link("sys/class/net/eth0", &format!("../../../{DEVICE}/net/eth0"));
        host.link(&format!("{DEVICE}/net/eth0/device"), "../../../0000:81:00.0");
        let mut interrupts = "      CPU0 CPU1 CPU2 CPU3 CPU4 CPU5 CPU6 CPU7\n".to_owned();
        for queue in 0..4 {
            let irq = 40 + queue;
            host.file(&format!("{DEVICE}/msi_irqs/{irq}"), "msix");
            host.file(&format!("proc/irq/{irq}/smp_affinity_list"), "0");
            interrupts += &format!(" {irq}: 9 0 0 0 0 0 0 0 IR-PCI-MSI {irq}-edge eth0-TxRx-{queue}\n");
            let queues = format!("{DEVICE}/net/eth0/queues");
            host.file(&format!("{queues}/tx-{queue}/xps_cpus"), "00");
            host.file(&format!("{queues}/rx-{queue}/rps_cpus"), "00");
            host.file(&format!("{queues}/rx-{queue}/rps_flow_cnt"), "0");
        }
        host.file("proc/interrupts", &interrupts);
        host.file("proc/sys/net/core/rps_sock_flow_entries", "0");
        host.process(100, "memcached", &[(100, "memcached"), (101, "worker")]);
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn link(&self, name: &str, target: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap().trim().to_owned()
    }

    fn process(&self, pid: u32, name: &str, threads: &[(u32, &str)]) {
        self.file(&format!("proc/{pid}/comm"), name);
        self.file(&format!("proc/{pid}/numa_maps"), "7f00 default anon=3 N0=3");
        for (thread, name) in threads {
            let task = format!("proc/{pid}/task/{thread}");
            self.file(&format!("{task}/comm"), name);
            self.file(&format!("{task}/stat"), &format!("{thread} (x) y) S 1 {}", "1 ".repeat(17) + "777 0"));
            self.file(
                &format!("{task}/status"),
                &format!("Name:\t{name}\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0-1"),
            );
            self.file(&format!("{task}/schedstat"), "0 0 0");
        }
    }

    /// A guest with a vhost thread, a vCPU and a tap at eth0's bridge, its memory at node 0.
    fn guest(&self, pid: u32) {
        let threads = [(pid, "qemu-system-x86"), (pid + 1, "CPU 0/KVM"), (pid + 2, "IO iothread1")];
        self.process(pid, "qemu-system-x86", &threads);
        self.file(&format!("proc/{pid}/status"), "Name:\tqemu-system-x86\nVmRSS:\t12 kB");
        let worker = pid + 3;
        self.process(worker, &format!("vhost-{pid}"), &[(worker, "vhost")]);
        let tap = format!("tap{pid}");
        self.file(&format!("proc/{pid}/fdinfo/9"), &format!("pos:\t0\niff:\t{tap}"));
        self.link(&format!("sys/class/net/{tap}/master"), "../br0");
        self.file(&format!("sys/class/net/{tap}/statistics/rx_packets"), "0");
        self.file("sys/class/net/br0/brif/eth0/state", "3");
    }

    /// A guest's load until now: of its vhost thread and its vCPU in milliseconds, and packets.
    fn load(&self, pid: u32, vhost: u64, vcpu: u64, packets: u64) {
        let ms = 1_000_000;
        let worker = pid + 3;
        self.file(&format!("proc/{worker}/task/{worker}/schedstat"), &format!("{} 0 1", vhost * ms));
        self.file(&format!("proc/{pid}/task/{}/schedstat", pid + 1), &format!("{} 0 1", vcpu * ms));
        self.file(&format!("sys/class/net/tap{pid}/statistics/rx_packets"), &packets.to_string());
    }

    fn view(&self) -> HostView {
        HostView::new(HostRoot::new(self.folder.path()).unwrap()).unwrap()
    }

    fn undo_file(&self) -> PathBuf {
        self.path("run/nearfar/place.undo.json")
    }

    fn cpus(&self, pid: u32, thread: u32) -> String {
        let status = self.text(&format!("proc/{pid}/task/{thread}/status"));
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
    }

    /// All files and links with their texts.
    fn all(&self) -> Vec<(PathBuf, String)> {
        fn walk(folder: &Path, into: &mut Vec<(PathBuf, String)>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.symlink_metadata().unwrap() {
                    about if about.is_symlink() => {}
                    about if about.is_dir() => walk(&path, into),
                    _ => into.push((path.clone(), fs::read_to_string(&path).unwrap().trim().to_owned())),
                }
            }
        }
        let mut all = Vec::new();
        walk(self.folder.path(), &mut all);
        all.retain(|(path, _)| !path.to_string_lossy().contains("/run/nearfar/"));
        all.sort();
        all
    }
}

fn asked(interfaces: &[&str], processes: &[&str], guests: bool) -> AskedFor {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    AskedFor { interfaces: owned(interfaces), processes: owned(processes), guests }
}

#[test]
fn interrupts_queues_and_processes_go_to_the_device_and_back() {
    let host = Host::new();
    let before = host.all();
    let view = host.view();
    let planned = plan(&view, &asked(&["eth0"], &["memcached"], false), &GuestPlacer::default()).unwrap();
    assert_eq!(host.all(), before, "a plan writes nothing");
    assert!(planned.notes.iter().any(|note| note.contains("migratepages 100 all 1")), "{:?}", planned.notes);
    apply(&view.root, &planned.writes, &host.undo_file()).unwrap();
    // First threads of cores before second ones.
    let irqs: Vec<String> =
        (40..44).map(|irq| host.text(&format!("proc/irq/{irq}/smp_affinity_list"))).collect();
    assert_eq!(irqs, ["4", "6", "5", "7"]);
    let xps = |queue: u32| host.text(&format!("{DEVICE}/net/eth0/queues/tx-{queue}/xps_cpus"));
    assert_eq!([xps(0), xps(1), xps(2), xps(3)], ["00000011", "00000044", "00000022", "00000088"]);
    assert_eq!(host.text(&format!("{DEVICE}/net/eth0/queues/rx-0/rps_cpus")), "00", "a queue for each CPU");
    assert_eq!((host.cpus(100, 100), host.cpus(100, 101)), ("4-7".into(), "4-7".into()));
    // Nothing is left to do, and a second one changes nothing of what `undo` restores.
    let view = host.view();
    let again = plan(&view, &asked(&["eth0"], &["memcached"], false), &GuestPlacer::default()).unwrap();
    assert_eq!(again.writes, []);
    apply(&view.root, &again.writes, &host.undo_file()).unwrap();
    let (count, notes) = undo(&view.root, &host.undo_file()).unwrap();
    assert_eq!((count, notes), (10, Vec::new()));
    assert_eq!(host.all(), before);
    assert!(!host.undo_file().exists());
    assert!(matches!(undo(&view.root, &host.undo_file()), Err(PlaceError::Nothing(_))));
}

#[test]
fn few_queues_are_spread_by_software() {
    let host = Host::new();
    for queue in 1..4 {
        fs::remove_dir_all(host.path(&format!("{DEVICE}/net/eth0/queues/rx-{queue}"))).unwrap();
    }
    let planned = plan(&host.view(), &asked(&["eth0"], &[], false), &GuestPlacer::default()).unwrap();
    let find =
        |end: &str| planned.writes.iter().find(|write| write.target.to_string().ends_with(end)).unwrap();
    assert_eq!(find("rx-0/rps_cpus").after, "000000f0");
    assert_eq!(find("rx-0/rps_flow_cnt").after, "32768");
    assert_eq!(find("rps_sock_flow_entries").after, "32768");
}

/// A device that goes between plan and apply, or a value that the kernel does not take: everything is as before.
#[test]
fn nothing_is_half_done() {
    let host = Host::new();
    let view = host.view();
    let planned = plan(&view, &asked(&["eth0"], &["memcached"], false), &GuestPlacer::default()).unwrap();
    // It reads as before, and takes no other value: a link to a file outside.
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(outside.path(), "00\n").unwrap();
    let last = host.path(&format!("{DEVICE}/net/eth0/queues/tx-3/xps_cpus"));
    fs::remove_file(&last).unwrap();
    std::os::unix::fs::symlink(outside.path(), &last).unwrap();
    let before = host.all();
    let told = apply(&view.root, &planned.writes, &host.undo_file()).unwrap_err().to_string();
    assert!(told.contains("outside of") && told.contains("is as it was"), "{told}");
    assert_eq!((host.all(), fs::read_to_string(outside.path()).unwrap()), (before.clone(), "00\n".into()));
    assert!(!host.undo_file().exists(), "nothing is left to undo");
    // It is gone.
    fs::remove_file(&last).unwrap();
    let told = apply(&view.root, &planned.writes, &host.undo_file()).unwrap_err().to_string();
    assert!(told.contains("tx-3/xps_cpus"), "{told}");
    assert_eq!(host.all(), before);
    // Somebody else was there meanwhile.
    host.file("proc/irq/40/smp_affinity_list", "3");
    let told = apply(&view.root, &planned.writes, &host.undo_file()).unwrap_err();
    assert!(matches!(told, PlaceError::Changed(..)), "{told}");
    // A thread's number that belongs to another one now.
    host.file("proc/irq/40/smp_affinity_list", "0");
    host.file(&format!("{DEVICE}/net/eth0/queues/tx-3/xps_cpus"), "00");
    host.file("proc/100/task/101/stat", &format!("101 (x) S 1 {}", "1 ".repeat(17) + "999 0"));
    let told = apply(&view.root, &planned.writes, &host.undo_file()).unwrap_err().to_string();
    assert!(told.contains("thread 101"), "{told}");
    assert_eq!(host.text("proc/irq/40/smp_affinity_list"), "0");
}

#[test]
fn undo_leaves_what_others_changed() {
    let host = Host::new();
    let view = host.view();
    let planned = plan(&view, &asked(&["eth0"], &[], false), &GuestPlacer::default()).unwrap();
    apply(&view.root, &planned.writes, &host.undo_file()).unwrap();
    host.file("proc/irq/41/smp_affinity_list", "2");
    fs::remove_dir_all(host.path("proc/irq/42")).unwrap();
    let (count, notes) = undo(&view.root, &host.undo_file()).unwrap();
    assert_eq!(count, planned.writes.len() - 2);
    assert!(notes.iter().any(|note| note.contains("41") && note.contains("somebody else")), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("42") && note.contains("gone")), "{notes:?}");
    assert_eq!(host.text("proc/irq/41/smp_affinity_list"), "2");
    // A record that leads elsewhere is not followed.
    host.file("etc/passwd", "root");
    let entry = r#"{"target":{"file":{"path":"/sys/../etc/passwd","form":"number"}},"before":"x","after":"root","why":""}"#;
    host.file("run/nearfar/place.undo.json", &format!("{{\"writes\":[{entry}]}}"));
    let (count, notes) = undo(&view.root, &host.undo_file()).unwrap();
    assert!(count == 0 && notes[0].contains("outside of /sys and /proc"), "{notes:?}");
    assert_eq!(host.text("etc/passwd"), "root");
    host.file("run/nearfar/place.undo.json", "{");
    assert!(matches!(undo(&view.root, &host.undo_file()), Err(PlaceError::Damaged(..))));
}

/// What cannot be read at the moment, such as after a loss of rights, is not forgotten.
#[test]
fn undo_keeps_what_it_cannot_read() {
    let host = Host::new();
    let view = host.view();
    let planned = plan(&view, &asked(&["eth0"], &[], false), &GuestPlacer::default()).unwrap();
    apply(&view.root, &planned.writes, &host.undo_file()).unwrap();
    let (path, name) = (host.path("proc/irq/41/smp_affinity_list"), "proc/irq/41/smp_affinity_list");
    let written = host.text(name);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let (count, notes) = undo(&view.root, &host.undo_file()).unwrap();
    assert_eq!(count, planned.writes.len() - 1);
    assert!(notes.iter().any(|note| note.contains("41") && note.contains("stays recorded")), "{notes:?}");
    fs::remove_dir(&path).unwrap();
    host.file(name, &written);
    assert_eq!(undo(&view.root, &host.undo_file()).unwrap(), (1, Vec::new()));
    assert_eq!(host.text(name), "0");
}

/// Numbers that no machine has, in a copy of a tree.
#[test]
fn damage_in_a_tree_is_survived() {
    let host = Host::new();
    host.file("sys/devices/system/node/node4294967295/cpulist", "0-3");
    host.file("proc/stat", &format!("cpu0 0 0 0 0 0 {0} {0}\ncpu1 0 0 0 0 0 {0} 1\n", u64::MAX));
    let view = host.view();
    let mut placer = GuestPlacer::default();
    let sample = LoadSample::new(&view);
    placer.decide(&view, [&LoadSample::default(), &sample], Duration::from_secs(1));
    assert!(view.nodes.keys().eq(&[0, 1]), "{:?}", view.nodes);
}

#[test]
fn one_at_a_time() {
    let host = Host::new();
    let view = host.view();
    let planned = plan(&view, &asked(&["eth0"], &[], false), &GuestPlacer::default()).unwrap();
    fs::create_dir_all(host.path("run/nearfar")).unwrap();
    let lock = fs::File::create(host.path("run/nearfar/place.undo.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let told = apply(&view.root, &planned.writes, &host.undo_file()).unwrap_err();
    assert!(matches!(told, PlaceError::Locked(_)), "{told}");
    drop(lock);
    apply(&view.root, &planned.writes, &host.undo_file()).unwrap();
}

#[test]
fn what_is_not_there_is_told() {
    let host = Host::new();
    let told = |of: AskedFor| plan(&host.view(), &of, &GuestPlacer::default()).unwrap_err();
    assert!(told(asked(&["eth1"], &[], false)).contains("there are eth0"));
    assert!(told(asked(&["../../etc"], &[], false)).contains("no network interface"));
    assert!(told(asked(&["eth0"], &["no-such"], false)).contains("no process `no-such`"));
    assert!(told(asked(&[], &["memcached"], false)).contains("no node is known"));
}

/// Light load: all vhost threads at the device's node, and the guest that uses it most is drawn there.
#[test]
fn light_load_draws_guests_to_the_device() {
    let host = Host::new();
    host.guest(200);
    host.guest(300);
    let mut placer = GuestPlacer::default();
    let view = host.view();
    assert_eq!(view.guests.len(), 2);
    assert_eq!((view.guests[0].home(), view.guests[0].uplink.as_deref()), (Some(0), Some("eth0")));
    let before = LoadSample::new(&view);
    host.load(200, 200, 300, 9_000);
    host.load(300, 5, 600, 100);
    placer.decide(&view, [&before, &LoadSample::new(&view)], Duration::from_secs(1));
    let planned = plan(&view, &asked(&[], &[], true), &placer).unwrap();
    apply(&view.root, &planned.writes, &host.undo_file()).unwrap();
    assert_eq!(
        (host.cpus(203, 203), host.cpus(303, 303), host.cpus(200, 202)),
        ("4-7".into(), "4-7".into(), "4-7".into())
    );
    assert_eq!(
        (host.cpus(200, 201), host.cpus(300, 301)),
        ("4-7".into(), "0-7".into()),
        "the other one is left"
    );
    assert!(planned.notes.iter().any(|note| note.contains("migratepages 200 all 1")), "{:?}", planned.notes);
    undo(&view.root, &host.undo_file()).unwrap();
    assert_eq!(host.cpus(200, 201), "0-7");
}

/// Heavy load, for two periods: I/O threads at the guests' homes. A single period does not change it.
#[test]
fn heavy_load_serves_guests_at_their_homes() {
    let host = Host::new();
    host.guest(200);
    host.guest(300);
    host.file("proc/300/numa_maps", "7f00 default anon=3 N1=3");
    let (mut placer, view) = (GuestPlacer::default(), host.view());
    let mut last = LoadSample::new(&view);
    let mut modes = Vec::new();
    for turn in 1..=4 {
        host.load(200, 500 * turn, 500 * turn, 9_000 * turn);
        host.load(300, 500 * turn, 500 * turn, 9_000 * turn);
        let now = LoadSample::new(&view);
        placer.decide(&view, [&last, &now], Duration::from_secs(1));
        modes.push(placer.switches());
        last = now;
    }
    assert_eq!(modes, [0, 1, 1, 1]);
    let planned = plan(&view, &asked(&[], &[], true), &placer).unwrap();
    apply(&view.root, &planned.writes, &host.undo_file()).unwrap();
    assert_eq!(host.cpus(303, 303), "4-7");
    let home = placer_home(&host);
    assert_eq!(host.cpus(203, 203), home, "its vhost thread is where its vCPU is");
}

/// CPUs of guest 200's vCPU, or of its memory's node if it was not moved.
fn placer_home(host: &Host) -> String {
    match host.cpus(200, 201).as_str() {
        "0-7" => "0-3".into(),
        moved => moved.to_owned(),
    }
}

/// libvirt's cgroups move vCPUs and memory.
#[test]
fn cgroups_of_libvirt_move_the_memory_too() {
    let host = Host::new();
    host.guest(200);
    host.file("proc/200/cgroup", "0::/machine.slice/m.scope/libvirt/emulator");
    let folder = "sys/fs/cgroup/machine.slice/m.scope/libvirt";
    for part in ["vcpu0", "emulator"] {
        host.file(&format!("{folder}/{part}/cpuset.cpus"), "");
        host.file(&format!("{folder}/{part}/cpuset.mems"), "");
    }
    let (mut placer, view) = (GuestPlacer::default(), host.view());
    let before = LoadSample::new(&view);
    host.load(200, 300, 300, 9_000);
    placer.decide(&view, [&before, &LoadSample::new(&view)], Duration::from_secs(1));
    let planned = plan(&view, &asked(&[], &[], true), &placer).unwrap();
    apply(&view.root, &planned.writes, &host.undo_file()).unwrap();
    assert_eq!(host.text(&format!("{folder}/vcpu0/cpuset.cpus")), "4-7");
    assert_eq!(host.text(&format!("{folder}/emulator/cpuset.mems")), "1");
    assert_eq!(host.cpus(200, 201), "0-7", "its cgroup holds it");
    undo(&view.root, &host.undo_file()).unwrap();
    assert_eq!(host.text(&format!("{folder}/vcpu0/cpuset.cpus")), "");
}

/// A guest whose memory or threads are elsewhere is found; one that may run near its device is not.
#[test]
fn guests_far_from_their_device_are_found() {
    let host = Host::new();
    host.guest(200);
    let ids = || {
        let survey = survey::Survey::read(&[host.folder.path()]).unwrap();
        let found = survey.findings().into_iter().filter(|finding| finding.id.starts_with("guest-far/"));
        found.map(|finding| (finding.id, finding.evidence)).collect::<Vec<_>>()
    };
    let found = ids();
    assert_eq!(found.len(), 1, "its memory is at node 0");
    assert!(found[0].0 == "guest-far/200" && found[0].1[0].contains("memory are at node 0"), "{found:?}");
    host.file("proc/200/numa_maps", "7f00 default anon=3 N1=3");
    assert_eq!(ids(), []);
    host.file("proc/203/task/203/status", "Name:\tvhost\nCpus_allowed_list:\t0-1");
    let found = ids();
    assert!(found[0].1[0].contains("vhost thread 203 may use CPUs 0-1"), "{found:?}");
}
