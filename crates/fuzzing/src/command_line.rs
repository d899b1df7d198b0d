//! Command lines of programs: the first line of the input, and a job file after it.

use workloads::{Disk, JobFiles, Link, Premises};

/// Whatever is written is accepted, or refused with a message.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (line, file) = text.split_once('\n').unwrap_or((&text, ""));
    let files = JobFiles::from([("job.fio".to_owned(), file.to_owned())]);
    let premises = Premises {
        cores: 4,
        all_cores: 4,
        cpus: (0..4).map(|core| (core, 0)).collect(),
        nodes: 2,
        memory: 1 << 30,
        disks: vec![Disk { name: Some("nvme0n1".into()), id: Some("x".into()), bytes: 16 << 20, block: 512 }],
        links: vec![Link {
            name: "eth0".into(),
            queues: 4,
            max_frame: 1514,
            has_carrier: true,
            shares_packets: true,
        }],
        gpus: 1,
        user_drives: 1,
        cards: 1,
        functions: vec!["a:ssd".to_owned()],
        polled: Vec::new(),
        peers: vec![("b".to_owned(), [10, 0, 0, 2].into())],
    };
    let program = workloads::parse_with(line, &files).and_then(|program| {
        program.check(&premises)?;
        Ok(program)
    });
    match program {
        Ok(program) => drop((program.serves(), program.lasts())),
        Err(refused) => assert!(!refused.message.is_empty(), "`{line}` is refused without a word"),
    }
}
