//! `taskset`, `numactl` and `OMP_NUM_THREADS` before a program's command line: its cores and its memory, as the scenario's
//! keys `cpus` and `memory` give them, and `nice` and `chrt`: its priority. `sudo`, `time` and `ionice` may stand there, too.

use crate::placement::{MemoryPolicy, cores_help, cpu_list};
use crate::program::ProgramPriority;

/// A problem, and what would be right.
pub(crate) type Misplaced = (String, String);

/// A command line without what was before it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefixed {
    /// The command line of the program itself.
    pub command: String,
    /// Its cores, if a prefix names some.
    pub cpus: Option<Vec<u16>>,
    /// Its memory, if a prefix says where it is.
    pub memory: Option<MemoryPolicy>,
    /// Its priority, if a prefix gives it one.
    pub priority: Option<ProgramPriority>,
    /// Number of threads of a program that uses OpenMP, each of which has a core.
    pub threads: Option<usize>,
    /// Whether these threads are far from each other.
    pub spread: bool,
}

/// What stands before programs elsewhere, and what there is instead.
const INSTEAD: [(&[&str], &str); 6] = [
    (&["timeout"], "the program's own option for its length, or an `[[event]]`"),
    (&["perf"], "`nearfar run --counters`, or `--accounting` for the cores' time"),
    (&["strace", "ltrace"], "`nearfar trace` has what crosses the links"),
    (&["ip"], "the program's key `namespace` is a network namespace"),
    (&["cgexec", "systemd-run", "docker"], "the program's keys `cpus` and `memory`"),
    (&["bash", "sh"], "the program's own command line"),
];

/// Programs that use OpenMP, by all their names.
const OPENMP: [&str; 5] = ["pr", "stream", "stream.exe", "stream_c", "stream_c.exe"];

/// A host as prefixes see it.
#[derive(Clone, Copy)]
pub(crate) struct Numa<'a> {
    /// Number of cores.
    pub cores: u32,
    /// Number of nodes with memory.
    pub nodes: u32,
    /// The node of a core.
    pub node_of: &'a dyn Fn(u16) -> u8,
    /// The node of a network device's slot.
    pub node_of_net: &'a dyn Fn(&str) -> Result<u16, Misplaced>,
}

/// Takes the prefixes off a command line.
pub(crate) fn take(line: &str, numa: Numa<'_>) -> Result<Prefixed, Misplaced> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let mut found = Prefixed::default();
    loop {
        let name = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
        let used = match name {
            "taskset" => taskset(&words, numa, &mut found)?,
            "numactl" => numactl(&words, numa, &mut found)?,
            "nice" => nice(&words, &mut found)?,
            "chrt" => chrt(&words, &mut found)?,
            "ionice" => ionice(&words)?,
            // Programs have no user, and are timed.
            "sudo" | "time" | "stdbuf" => {
                let options = words.iter().skip(1).take_while(|word| word.starts_with('-'));
                let others = options.clone().find(|word| {
                    let known: &[&str] = match name {
                        "sudo" => &["-E", "-n", "-H"],
                        "time" => &["-p", "-v"],
                        _ => &["-oL", "-o0", "-eL", "-e0"],
                    };
                    !known.contains(word)
                });
                if let Some(other) = others {
                    return Err((format!("`{name}` has no option `{other}` here"), "leave it out".into()));
                }
                1 + options.count()
            }
            "env" | "nohup" => 1,
            _ if is_variable(words[0]) => variable(words[0], numa, &mut found)?,
            _ => {
                // SPDK's examples had short names. Linux's perf has no such option.
                let is_spdk = name == "perf" && words.contains(&"-w");
                let instead = INSTEAD.iter().find(|(names, _)| names.contains(&name) && !is_spdk);
                if let Some((_, instead)) = instead {
                    return Err((format!("`{name}` is not carried out here"), (*instead).into()));
                }
                break;
            }
        };
        if used >= words.len() {
            return Err((format!("`{name}` runs no program"), format!("{} PROGRAM", words.join(" "))));
        }
        words.drain(..used);
    }
    let program = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    if !OPENMP.contains(&program) {
        found.threads = None;
    }
    let is_all = words.len() == line.split_whitespace().count();
    found.command = if is_all { line.into() } else { words.join(" ") };
    Ok(found)
}

/// `nice -n 5`, `nice -5`, `nice --adjustment=5`: 10 without a number.
fn nice(words: &[&str], found: &mut Prefixed) -> Result<usize, Misplaced> {
    let (number, used) = match words.get(1).copied().unwrap_or_default() {
        "-n" | "--adjustment" => (words.get(2).copied().unwrap_or_default(), 3),
        word => {
            match word.strip_prefix("--adjustment=").or(word.strip_prefix("-n")).or(word.strip_prefix('-')) {
                Some(number) => (number, 2),
                None => ("10", 1),
            }
        }
    };
    let number: i32 = number.parse().map_err(|_| {
        (format!("`nice`: `{number}` is not a priority"), "`nice -n N PROGRAM`, from -20 to 19".to_owned())
    })?;
    found.priority = Some(ProgramPriority::Nice(number.clamp(-20, 19) as i8));
    Ok(used)
}

/// `chrt -f 50`: a class, and a priority within it; round robin without one.
fn chrt(words: &[&str], found: &mut Prefixed) -> Result<usize, Misplaced> {
    let help =
        || "`chrt -f 50 PROGRAM` (1 to 99), `-r`, `-i 0` for idle, `-o 0` for the usual class".to_owned();
    let mut class = 'r';
    let mut at = 1;
    while let Some(option) = words.get(at).filter(|word| word.starts_with('-')) {
        match *option {
            "-f" | "--fifo" => class = 'f',
            "-r" | "--rr" => class = 'r',
            "-i" | "--idle" => class = 'i',
            "-o" | "--other" | "-b" | "--batch" => class = 'o',
            "-v" | "--verbose" | "-R" | "--reset-on-fork" => {}
            _ => return Err((format!("`chrt` has no option `{option}` here"), help())),
        }
        at += 1;
    }
    let number = words.get(at).copied().unwrap_or_default();
    let priority = match (class, number.parse::<u8>()) {
        ('o', Ok(0)) => ProgramPriority::Nice(0),
        ('i', Ok(0)) => ProgramPriority::Idle,
        ('f' | 'r', Ok(number @ 1..=99)) => ProgramPriority::RealTime(number),
        _ => return Err((format!("`chrt`: `{number}` is not a priority of this class"), help())),
    };
    found.priority = Some(priority);
    Ok(at + 1)
}

/// Requests are submitted as they come, as Linux does for NVMe drives without a scheduler: classes change nothing.
fn ionice(words: &[&str]) -> Result<usize, Misplaced> {
    let mut at = 1;
    while let Some(option) = words.get(at).filter(|word| word.starts_with('-')) {
        at += match *option {
            "-c" | "-n" | "--class" | "--classdata" => 2,
            "-t" | "--ignore" => 1,
            _ if ["-c", "-n", "--class=", "--classdata="].iter().any(|known| option.starts_with(known)) => 1,
            _ => {
                let help = "`ionice -c 2 -n 0 PROGRAM`, which changes nothing here".to_owned();
                return Err((format!("`ionice` has no option `{option}` here"), help));
            }
        };
    }
    Ok(at)
}

/// Whether a word sets a variable, as in `OMP_NUM_THREADS=4`.
fn is_variable(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    word.split_once('=').is_some_and(|(name, _)| !name.is_empty() && name.chars().all(is_part))
}

fn variable(word: &str, numa: Numa<'_>, found: &mut Prefixed) -> Result<usize, Misplaced> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let help = match name {
        "CUDA_VISIBLE_DEVICES" => {
            "the tool's own option names GPUs, such as `--device=0`, `-g 2` or `--flows`"
        }
        "LD_PRELOAD" => "`user_space = true` in `[host.nic_driver]` is a NIC without the kernel",
        _ if name.starts_with("KMP_") => {
            "`GOMP_CPU_AFFINITY=0-3 stream` and `OMP_PROC_BIND=close` bind threads"
        }
        _ => "`OMP_NUM_THREADS=4 stream`; a program's keys `cpus` and `memory` say where it runs",
    };
    let has_no_meaning = || (format!("`{word}` has no meaning here"), help.to_owned());
    match (name, value) {
        ("OMP_NUM_THREADS", _) => {
            let number = value.parse().ok().filter(|number| *number > 0);
            found.threads = Some(number.ok_or_else(has_no_meaning)?);
        }
        // What is printed, and how much.
        ("LANG" | "LANGUAGE" | "TZ" | "NCCL_DEBUG" | "NCCL_DEBUG_SUBSYS", _) => {}
        _ if name.starts_with("LC_") => {}
        ("NCCL_ALGO", "Ring" | "ring" | "RING") => {}
        // A thread stays on its core, and neighbours have neighbouring ones.
        ("OMP_PROC_BIND", "true" | "close") | ("OMP_PLACES", "cores" | "threads") => {}
        ("OMP_PROC_BIND", "spread") => found.spread = true,
        ("GOMP_CPU_AFFINITY", _) => found.cpus = Some(cores(value, numa)?),
        _ => return Err(has_no_meaning()),
    }
    Ok(1)
}

/// What a later prefix says replaces what an earlier one said, as the last system call decides.
fn taskset(words: &[&str], numa: Numa<'_>, found: &mut Prefixed) -> Result<usize, Misplaced> {
    let help = || "`taskset -c 0-3,8 PROGRAM`, or `taskset 0xf PROGRAM`".to_owned();
    let mut is_list = false;
    let mut at = 1;
    while let Some(option) = words.get(at).filter(|word| word.starts_with('-')) {
        match *option {
            "-c" | "--cpu-list" => is_list = true,
            "-a" | "--all-tasks" => {}
            "-ac" | "-ca" => is_list = true,
            "-p" | "--pid" => {
                let help = "an `[[event]]` with `do = \"move-task\"` moves a program that runs".to_owned();
                return Err(("`taskset -p` is for a program that runs".into(), help));
            }
            _ => return Err((format!("`taskset` has no option `{option}`"), help())),
        }
        at += 1;
    }
    let text = words.get(at).ok_or_else(|| ("`taskset` names no cores".to_owned(), help()))?;
    let cpus = if is_list { cores(text, numa)? } else { masked(text, numa)? };
    found.cpus = Some(cpus);
    Ok(at + 1)
}

/// The cores of a mask, in hexadecimal.
fn masked(text: &str, numa: Numa<'_>) -> Result<Vec<u16>, Misplaced> {
    let digits: Vec<u32> =
        text.trim_start_matches("0x").replace(',', "").chars().rev().map_while(|c| c.to_digit(16)).collect();
    let length = text.trim_start_matches("0x").replace(',', "").chars().count();
    let wrong = || (format!("`{text}` is not a mask of cores"), "such as `0xf`, or `-c 0-3`".to_owned());
    if length == 0 || length != digits.len() {
        return Err(wrong());
    }
    let bits = (0u32..)
        .zip(&digits)
        .flat_map(|(n, digit)| (0..4).filter(move |bit| digit >> bit & 1 == 1).map(move |bit| 4 * n + bit));
    // As the kernel, it ignores cores that there are not, unless none is left.
    let cpus: Vec<u16> = bits.filter(|core| *core < numa.cores).map(|core| core as u16).collect();
    if cpus.is_empty() {
        return Err((
            format!("`{text}` names no core of the host"),
            format!("its cores are 0 to {}", numa.cores - 1),
        ));
    }
    Ok(cpus)
}

/// Cores as a list, of which a range may have a stride: `0-10:2`.
fn cores(text: &str, numa: Numa<'_>) -> Result<Vec<u16>, Misplaced> {
    let help = || cores_help(numa.cores);
    if text == "all" {
        return Ok((0..numa.cores as u16).collect());
    }
    let mut all = Vec::new();
    for piece in text.split(',') {
        let (range, stride) = piece.split_once(':').map_or((piece, "1"), |(range, stride)| (range, stride));
        let stride = stride.parse().ok().filter(|stride| *stride > 0);
        let stride = stride.ok_or_else(|| (format!("`{piece}` has no stride"), help()))?;
        let own = cpu_list(range, numa.cores).map_err(|message| (message, help()))?;
        all.extend(own.into_iter().step_by(stride).filter(|core| !all.contains(core)).collect::<Vec<_>>());
    }
    Ok(all)
}

/// Nodes as a list, or `all`.
fn nodes(text: &str, numa: Numa<'_>) -> Result<Vec<u16>, Misplaced> {
    if let Some(name) = text.strip_prefix("netdev:") {
        return (numa.node_of_net)(name).map(|node| vec![node]);
    }
    if ["block:", "file:", "ip:", "pci:"].iter().any(|kind| text.starts_with(kind)) {
        let help = "a number, or `netdev:eth0`; `nearfar tree SCENARIO` shows where devices are".to_owned();
        return Err((format!("`{text}` does not tell a node here"), help));
    }
    let all =
        (0..numa.cores as u16).map(numa.node_of).max().map_or(1, |last| u32::from(last) + 1).max(numa.nodes);
    if text == "all" {
        return Ok((0..all as u16).collect());
    }
    let help = || format!("numbers and ranges from 0 to {}, such as `0`, or `all`", all - 1);
    cpu_list(text, all).map_err(|message| (message.replace("core", "node"), help()))
}

/// `(short, long)` names of numactl's options with a value.
const WITH_VALUE: [(&str, &str); 5] = [
    ("-N", "--cpunodebind"),
    ("-C", "--physcpubind"),
    ("-m", "--membind"),
    ("-i", "--interleave"),
    ("-p", "--preferred"),
];

fn numactl(words: &[&str], numa: Numa<'_>, found: &mut Prefixed) -> Result<usize, Misplaced> {
    let help = || {
        "-N NODES (--cpunodebind), -C CORES (--physcpubind), -m NODES (--membind), -i NODES (--interleave), -p NODE \
         (--preferred), -l (--localalloc)"
            .to_owned()
    };
    let mut at = 1;
    while let Some(option) = words.get(at).filter(|word| word.starts_with('-')) {
        at += 1;
        match *option {
            "--" => break,
            "-s" | "--show" | "-H" | "--hardware" => {
                return Err((
                    format!("`numactl {option}` runs no program"),
                    "`nearfar tree SCENARIO` shows nodes and cores".into(),
                ));
            }
            "-l" | "--localalloc" => {
                found.memory = Some(MemoryPolicy::Local);
                continue;
            }
            "-a" | "--all" => continue,
            _ => {}
        }
        let (name, value) = match option.split_once('=').filter(|_| option.starts_with("--")) {
            Some((name, value)) => (name, Some(value)),
            None if option.starts_with("--") => (*option, None),
            None => (option.get(..2).unwrap_or(option), option.get(2..).filter(|value| !value.is_empty())),
        };
        let (short, long) = WITH_VALUE
            .iter()
            .find(|(short, long)| {
                *short == name || *long == name || (*short == "-N" && ["--cpubind", "-c"].contains(&name))
            })
            .ok_or_else(|| (format!("`numactl` has no option `{name}`"), help()))?;
        let value = match value {
            Some(value) => value,
            None => {
                at += 1;
                words.get(at - 1).ok_or_else(|| (format!("`numactl {long}` lacks its value"), help()))?
            }
        };
        match *short {
            "-N" => {
                let nodes = nodes(value, numa)?;
                let own = (0..numa.cores as u16).filter(|core| nodes.contains(&(numa.node_of)(*core).into()));
                let own: Vec<u16> = own.collect();
                if own.is_empty() {
                    return Err((
                        format!("`numactl {long}={value}`: there are no cores"),
                        "another node".into(),
                    ));
                }
                found.cpus = Some(own);
            }
            "-C" => found.cpus = Some(cores(value, numa)?),
            _ => found.memory = Some(memory(short, long, value, numa)?),
        }
    }
    if found.cpus.is_none() && found.memory.is_none() {
        return Err(("`numactl` says neither which cores nor which memory".into(), help()));
    }
    Ok(at)
}

fn memory(short: &str, long: &str, value: &str, numa: Numa<'_>) -> Result<MemoryPolicy, Misplaced> {
    let given = nodes(value, numa)?;
    let without = given.iter().find(|node| u32::from(**node) >= numa.nodes);
    if let Some(node) = without.filter(|_| value != "all") {
        let help = format!("nodes from 0 to {} have", numa.nodes - 1);
        return Err((format!("`numactl {long}`: node {node} has no memory"), help));
    }
    let is_all = given.len() as u32 >= numa.nodes;
    match (short, &given[..]) {
        ("-m", _) if is_all && given.len() > 1 => Ok(MemoryPolicy::Local),
        ("-i", _) if is_all => Ok(MemoryPolicy::Interleave),
        ("-m" | "-i", [node]) => Ok(MemoryPolicy::Bind(*node as u8)),
        ("-p", [node]) => Ok(MemoryPolicy::Preferred(*node as u8)),
        ("-p", _) => Err((format!("`numactl {long}` takes one node"), "such as `-p 0`".into())),
        _ => Err((
            format!("`numactl {long}` with some of several nodes is not simulated"),
            "one node, or `all`".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(line: &str) -> Result<Prefixed, Misplaced> {
        let node_of_net = |name: &str| match name {
            "eth0" => Ok(1),
            _ => Err((format!("no network device `{name}`"), "eth0".to_owned())),
        };
        take(line, Numa { cores: 8, nodes: 2, node_of: &|core| (core / 4) as u8, node_of_net: &node_of_net })
    }

    #[test]
    fn prefixes_give_cores_and_memory() {
        for (line, cpus, memory) in [
            ("taskset -c 0-2 fio", Some(vec![0, 1, 2]), None),
            ("taskset --cpu-list 0-7:2 fio", Some(vec![0, 2, 4, 6]), None),
            ("taskset 0xc fio", Some(vec![2, 3]), None),
            ("/usr/bin/taskset ff0 fio", Some(vec![4, 5, 6, 7]), None),
            ("numactl -N 1 -m 0 fio", Some(vec![4, 5, 6, 7]), Some(MemoryPolicy::Bind(0))),
            ("numactl --cpunodebind=1 --membind=all fio", Some(vec![4, 5, 6, 7]), Some(MemoryPolicy::Local)),
            ("numactl --physcpubind=3 --interleave=all fio", Some(vec![3]), Some(MemoryPolicy::Interleave)),
            ("numactl -C3 -p1 -- fio", Some(vec![3]), Some(MemoryPolicy::Preferred(1))),
            ("numactl --preferred 1 taskset -c 5 fio", Some(vec![5]), Some(MemoryPolicy::Preferred(1))),
            ("sudo time taskset -c 5 fio", Some(vec![5]), None),
            ("sudo fio", None, None),
            ("nohup sudo -E stdbuf -oL time -p fio", None, None),
            (
                "numactl --cpunodebind=netdev:eth0 --membind netdev:eth0 fio",
                Some(vec![4, 5, 6, 7]),
                Some(MemoryPolicy::Bind(1)),
            ),
            ("ionice -c 2 -n0 nice time fio", None, None),
            ("taskset -ac 1 numactl -c 0 fio", Some(vec![0, 1, 2, 3]), None),
            ("fio", None, None),
        ] {
            let found = taken(line).unwrap_or_else(|wrong| panic!("{line}: {wrong:?}"));
            assert_eq!((found.command.as_str(), found.cpus, found.memory), ("fio", cpus, memory), "{line}");
        }
    }

    #[test]
    fn priorities_are_those_of_nice_and_chrt() {
        use ProgramPriority::{Idle, Nice, RealTime};
        for (line, priority) in [
            ("nice fio", Nice(10)),
            ("nice -n -20 fio", Nice(-20)),
            ("nice -5 fio", Nice(5)),
            ("nice --5 fio", Nice(-5)),
            ("nice --adjustment=99 fio", Nice(19)),
            ("chrt 10 fio", RealTime(10)),
            ("sudo chrt -f 99 fio", RealTime(99)),
            ("chrt --idle 0 fio", Idle),
            ("chrt -f 1 nice -n3 fio", Nice(3)),
        ] {
            let found = taken(line).unwrap_or_else(|wrong| panic!("{line}: {wrong:?}"));
            assert_eq!((found.command.as_str(), found.priority), ("fio", Some(priority)), "{line}");
        }
    }

    #[test]
    fn threads_are_given_by_a_variable() {
        let found = taken("OMP_NUM_THREADS=2 numactl -N 1 stream_c").unwrap();
        assert_eq!((found.threads, found.command.as_str()), (Some(2), "stream_c"));
        assert_eq!(found.cpus, Some(vec![4, 5, 6, 7]));
        assert_eq!(taken("OMP_NUM_THREADS=2 ./stream_c.exe").unwrap().threads, Some(2));
        let found = taken("OMP_NUM_THREADS=2 OMP_PLACES=cores OMP_PROC_BIND=spread stream").unwrap();
        assert_eq!((found.threads, found.spread), (Some(2), true));
        assert_eq!(taken("GOMP_CPU_AFFINITY=2-3 stream").unwrap().cpus, Some(vec![2, 3]));
    }

    #[test]
    fn threads_are_those_of_programs_that_use_openmp() {
        for line in ["OMP_NUM_THREADS=2 fio", "sudo OMP_NUM_THREADS=64 /usr/bin/netperf"] {
            assert_eq!(taken(line).unwrap().threads, None, "{line}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_there_is() {
        for (line, words) in [
            ("taskset -c 9 fio", "there is no core 9"),
            ("taskset 100 fio", "names no core"),
            ("taskset xyz fio", "not a mask"),
            ("taskset -c 1", "runs no program"),
            ("taskset -pc 1 100", "has no option `-pc`"),
            ("taskset -p 1 100", "for a program that runs"),
            ("numactl -N 2 fio", "there is no node 2"),
            ("numactl -m", "lacks its value"),
            ("numactl -H", "runs no program"),
            ("nice -n x fio", "`x` is not a priority"),
            ("chrt -f 0 fio", "`0` is not a priority"),
            ("chrt -d 0 fio", "has no option `-d`"),
            ("ionice -p 100 fio", "has no option `-p`"),
            ("numactl -N netdev:eth9 fio", "no network device `eth9`"),
            ("numactl -N block:sda fio", "does not tell a node"),
            ("ip netns exec x ping", "`ip` is not carried out"),
            ("numactl --touch fio", "has no option `--touch`"),
            ("numactl -p 0,1 fio", "takes one node"),
            ("numactl fio", "neither which cores"),
            ("taskset", "names no cores"),
            ("sudo -u nobody fio", "has no option `-u`"),
            ("OMP_NUM_THREADS=0 stream", "no meaning"),
            ("KMP_AFFINITY=compact stream", "no meaning"),
        ] {
            let (message, help) = taken(line).expect_err(line);
            assert!(message.contains(words) && !help.is_empty(), "{line}: {message}");
        }
    }
}
