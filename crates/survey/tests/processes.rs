//! Processes and guests: what is read of them, what is far from its devices, and what a capture leaves out.

use survey::Survey;

struct Made {
    folder: tempfile::TempDir,
}

const DRIVE: &str = "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0";

impl Made {
    /// Two nodes of four CPUs, and a drive at the second.
    fn new() -> Self {
        let made = Self { folder: tempfile::tempdir().unwrap() };
        for cpu in 0..8 {
            made.file(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_id"), &cpu.to_string());
        }
        for (node, cpus) in [(0, "0-3"), (1, "4-7")] {
            made.file(&format!("sys/devices/system/node/node{node}/cpulist"), cpus);
        }
        for (key, value) in [("class", "0x010802"), ("numa_node", "1"), ("config", "")] {
            made.file(&format!("{DRIVE}/{key}"), value);
        }
        made.file(&format!("{DRIVE}/nvme/nvme0/queue_count"), "5");
        for queue in 0..4 {
            let list = format!("{queue}, {}", queue + 4);
            made.file(&format!("{DRIVE}/nvme/nvme0/nvme0n1/mq/{queue}/cpu_list"), &list);
        }
        made.link("sys/bus/pci/devices/0000:81:00.0", &format!("../../../../{DRIVE}"));
        made.link("sys/class/nvme/nvme0", &format!("../../../{DRIVE}/nvme/nvme0"));
        made.link(&format!("{DRIVE}/nvme/nvme0/device"), "../../../0000:81:00.0");
        made
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    fn link(&self, name: &str, target: &str) {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    fn process(&self, pid: u32, name: &str, cpus: &str, maps: &str, files: &[&str]) {
        self.file(&format!("proc/{pid}/comm"), name);
        let status = format!(
            "Name:\t{name}\nUid:\t4711\nVmRSS:\t 2048 kB\nThreads:\t3\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0-1"
        );
        self.file(&format!("proc/{pid}/status"), &status);
        self.file(&format!("proc/{pid}/numa_maps"), maps);
        for (number, file) in files.iter().enumerate() {
            self.link(&format!("proc/{pid}/fd/{number}"), file);
        }
    }

    fn survey(&self) -> Survey {
        Survey::read(&[self.folder.path()]).unwrap()
    }
}

fn found(survey: &Survey) -> Vec<(String, Vec<String>, String)> {
    let all = survey.findings().into_iter().filter(|finding| finding.id.starts_with("process-far/"));
    all.map(|finding| (finding.id, finding.evidence, finding.cure)).collect()
}

#[test]
fn a_process_far_from_a_drive_that_it_has_open_is_found() {
    let made = Made::new();
    // Huge pages count as what they are.
    let maps = "7f00 default file=/home/someone/data anon=1 N1=10 kernelpagesize_kB=4\n7f10 default huge N0=2 kernelpagesize_kB=2048";
    made.process(100, "database", "0-3", maps, &["/home/someone/secret", "/dev/nvme0n1p2"]);
    let survey = made.survey();
    let process = &survey.processes[&100];
    assert_eq!(process.memory_bytes.get().unwrap().0, [(0, 4 << 20), (1, 40_960)].into());
    assert_eq!(survey.devices["nvme0"].queue_cpus.get().unwrap().0.len(), 4);
    let far = found(&survey);
    assert_eq!(far[0].0, "process-far/100/0000:81:00.0");
    assert!(
        far[0].1[0].contains("it may use CPUs 0-3 alone") && far[0].1[1].contains("memory are at node 0"),
        "{far:?}"
    );
    assert_eq!(far[0].2, "taskset -acp 4-7 100; migratepages 100 0 1");
    // Where it may run near, and has its memory there, nothing is wrong.
    made.process(100, "database", "2-5", "7f00 default anon=1 N1=10 kernelpagesize_kB=4", &[]);
    assert_eq!(found(&made.survey()), []);
}

#[test]
fn other_device_files_lead_to_functions() {
    let made = Made::new();
    made.link(&format!("{DRIVE}/iommu_group"), "../../../../kernel/iommu_groups/42");
    made.link("sys/class/infiniband_verbs/uverbs0/device", &format!("../../../../{DRIVE}"));
    made.file(
        "proc/driver/nvidia/gpus/0000:81:00.0/information",
        "Model: \t x\nGPU UUID:\t GPU-1\nDevice Minor: \t 3",
    );
    for (pid, file) in
        [(10, "/dev/vfio/42"), (11, "/dev/infiniband/uverbs0"), (12, "/dev/nvidia3"), (13, "/dev/vfio/vfio")]
    {
        made.process(pid, "x", "0", "", &[file]);
    }
    let survey = made.survey();
    let functions =
        |pid: u32| survey.processes[&pid].functions.get().map(ToString::to_string).unwrap_or_default();
    assert_eq!([10, 11, 12, 13].map(functions), ["0000:81:00.0", "0000:81:00.0", "0000:81:00.0", ""]);
}

/// A capture has what is told of processes, and nothing else of them.
#[test]
fn a_capture_leaves_processes_alone() {
    let made = Made::new();
    let maps = "7f00 default file=/home/someone/data anon=1 N0=10 kernelpagesize_kB=4";
    made.process(100, "database", "0-3", maps, &["/home/someone/secret", "/dev/nvme0n1"]);
    made.process(200, "mailreader", "0-7", maps, &["/home/someone/mail"]);
    made.file("proc/100/cmdline", "database --password=hunter2");
    let mut archive = Vec::new();
    survey::capture(made.folder.path(), false, &mut archive).unwrap();
    let captured = Survey::from_bytes("capture", &archive).unwrap();
    assert_eq!(found(&captured), found(&made.survey()));
    assert!(!found(&captured).is_empty() && !captured.processes.contains_key(&200));
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&archive[..]), &mut unpacked).unwrap();
    for secret in ["someone", "mailreader", "hunter2", "4711", "7f00"] {
        assert!(!unpacked.windows(secret.len()).any(|bytes| bytes == secret.as_bytes()), "{secret}");
    }
}
