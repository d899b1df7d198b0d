//! Programs of a scenario: where they run, memory policy, command line.

use std::collections::BTreeMap;
use std::path::Path;

use crate::computer::{HostSetup, sockets_of};
use crate::diagnostic::Diagnostic;
use crate::host_names::resolved;
use crate::library::Library;
use crate::names;
use crate::placed::Placed;
use crate::placement::{MemoryPolicy, cores_help, cpu_list};
use crate::prefix::{self, Numa, Prefixed};
use crate::read::record;
use units::Duration;

record! {
    /// A program of a scenario.
    pub struct ProgramEntry {
        /// Name, if something else refers to it.
        name: Option<Placed<String>>,
        /// The host; not needed if there is only one.
        host: Option<Placed<String>>,
        /// The cores in taskset syntax (`0-3,8`); all if not given.
        cpus: Option<Placed<String>>,
        /// Memory policy, also for the page cache, in numactl's terms: `local`, its core's node; `node1`, only that
        /// node; `preferred node1`, that node first; `interleave`, all in turn. `local` if not given.
        memory: Option<Placed<String>>,
        /// The command line, in the real tool's syntax. `taskset` and `numactl` may be before it.
        run: Placed<String>,
        /// Start time, counted from when all hosts have booted; zero if not given.
        start: Option<Duration>,
        /// A network device, such as `eth1`: the program runs in a network namespace with only this device, like a
        /// container. All programs that name it share the namespace; other programs do not see the device. The host's
        /// namespace if not given.
        namespace: Option<Placed<String>>,
    }
}

/// How a program shares its cores with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramPriority {
    /// It runs when nothing else does.
    Idle,
    /// −20 to 19, as nice(1) gives it.
    Nice(i8),
    /// 1 to 99, before all others.
    RealTime(u8),
}

/// A program and its placement.
#[derive(Debug, Clone)]
pub struct ProgramSetup {
    /// Name in the scenario, if events or reports refer to it.
    pub name: Option<String>,
    /// Index of the host.
    pub host: usize,
    /// Index of its virtual machine; `None` for the host itself.
    pub vm: Option<usize>,
    /// The cores; empty for all.
    pub cpus: Vec<u16>,
    /// Where its memory comes from.
    pub memory: MemoryPolicy,
    /// The command line.
    pub run: Placed<String>,
    /// Its priority, nice 0 unless `nice` or `chrt` says another.
    pub priority: ProgramPriority,
    /// The command line without `taskset` and `numactl` before it, and with addresses for names of hosts.
    pub command: String,
    /// Files that the command line names, such as job files of fio: texts by name.
    pub files: BTreeMap<String, String>,
    /// Start time.
    pub start: Duration,
    /// The only device of its network namespace.
    pub namespace: Option<Placed<String>>,
}

impl ProgramSetup {
    /// Resolves an entry.
    pub(crate) fn find(
        (library, folder): (&Library, &Path),
        hosts: &[HostSetup],
        entry: &ProgramEntry,
        wrong: &mut Vec<Diagnostic>,
    ) -> Option<Self> {
        let (host, vm) = match &entry.host {
            None if hosts.len() == 1 => (0, None),
            None => {
                let names = crate::suggest::list(hosts.iter().map(|host| host.name.as_str()));
                let message = "it does not say on which host the program runs";
                let help = format!("add `host`: the hosts are {names}");
                wrong.push(Diagnostic::new(&entry.run.place, message).help(help));
                return None;
            }
            Some(name) => match names::place(hosts, &name.value) {
                Ok(place) => place,
                Err((message, help)) => {
                    wrong.push(Diagnostic::new(&name.place, message).help(help));
                    return None;
                }
            },
        };
        let described = &hosts[host].machine.host;
        let (cores, nodes) = match vm {
            None => (hosts[host].cores(), described.nodes()),
            Some(vm) => (hosts[host].vms[vm].vcpus.len() as u32, 1),
        };
        if let Some(name) = &entry.namespace {
            let refused = match vm {
                None => names::interface(&hosts[host].interfaces, &name.value).err(),
                Some(_) => Some((
                    "a guest has one network namespace".to_owned(),
                    "leave `namespace` out, or run it on the host".to_owned(),
                )),
            };
            if let Some((message, help)) = refused {
                wrong.push(Diagnostic::new(&name.place, message).help(help));
                return None;
            }
        }
        let cpus = match &entry.cpus {
            None => Vec::new(),
            Some(text) => match cpu_list(&text.value, cores) {
                Ok(cpus) => cpus,
                Err(message) => {
                    wrong.push(Diagnostic::new(&text.place, message).help(cores_help(cores)));
                    return None;
                }
            },
        };
        let memory = match &entry.memory {
            None => MemoryPolicy::Local,
            Some(text) => match MemoryPolicy::parse(&text.value, nodes) {
                Ok(memory) => memory,
                Err(message) => {
                    let help = MemoryPolicy::help(nodes);
                    wrong.push(Diagnostic::new(&text.place, message).help(help));
                    return None;
                }
            },
        };
        let on_node = |core| if vm.is_some() { 0 } else { hosts[host].node_of(core) };
        let of_net = |name: &str| {
            let interfaces = if vm.is_some() { &[][..] } else { &hosts[host].interfaces };
            let (host, device, _) = interfaces[names::interface(interfaces, name)?].port;
            let links = &hosts[host].devices[device].links;
            Ok(links.first().and_then(|link| sockets_of(hosts, link).first().copied()).unwrap_or(0) as u16)
        };
        let numa = Numa { cores, nodes, node_of: &on_node, node_of_net: &of_net };
        let placed = prefixed(entry, numa, cpus, memory).and_then(|(found, cpus, memory)| {
            let command = resolved(hosts, (host, vm), &found.command);
            let files = job_files((library, folder), &command)?;
            Ok((command, cpus, memory, files, found.priority.unwrap_or(ProgramPriority::Nice(0))))
        });
        let (command, cpus, memory, files, priority) = match placed {
            Ok(placed) => placed,
            Err((message, help)) => {
                wrong.push(Diagnostic::new(&entry.run.place, message).help(help));
                return None;
            }
        };
        let start = entry.start.unwrap_or(Duration::ZERO);
        let (run, namespace) = (entry.run.clone(), entry.namespace.clone());
        let name = entry.name.as_ref().map(|name| name.value.clone());
        Some(Self { name, host, vm, cpus, memory, run, priority, command, files, start, namespace })
    }
}

/// The program's own command line, and the cores and memory that prefixes and the scenario's keys agree on.
fn prefixed(
    entry: &ProgramEntry,
    numa: Numa<'_>,
    cpus: Vec<u16>,
    memory: MemoryPolicy,
) -> Result<(Prefixed, Vec<u16>, MemoryPolicy), (String, String)> {
    let mut found = prefix::take(&entry.run.value, numa)?;
    let cpus = match found.cpus.take() {
        None => cpus,
        Some(own) => {
            let outside = own.iter().find(|core| !cpus.is_empty() && !cpus.contains(core));
            if let (Some(core), Some(key)) = (outside, &entry.cpus) {
                let message = format!("core {core} is not in `cpus = \"{}\"`", key.value);
                return Err((message, "leave out `cpus`, or what is before the program".into()));
            }
            own
        }
    };
    let cpus = match found.threads {
        None => cpus,
        Some(threads) => thread_cores(cpus, threads, found.spread, numa.cores)?,
    };
    let memory = match (found.memory, &entry.memory) {
        (None, _) => memory,
        (Some(own), Some(key)) if own != memory => {
            let message = format!("`numactl` contradicts `memory = \"{}\"`", key.value);
            return Err((message, "leave out `memory`, or `numactl`".into()));
        }
        (Some(own), _) => own,
    };
    Ok((found, cpus, memory))
}

/// As many of a program's cores as it has threads, the first ones or, if they are `spread`, far from each other; without `cpus`,
/// all are its own.
fn thread_cores(
    cpus: Vec<u16>,
    threads: usize,
    spread: bool,
    cores: u32,
) -> Result<Vec<u16>, (String, String)> {
    let mut own = if cpus.is_empty() { (0..cores as u16).collect() } else { cpus };
    if threads > own.len() {
        let help = format!("OMP_NUM_THREADS={} at most, or more cores", own.len());
        return Err((format!("{threads} threads have {} cores", own.len()), help));
    }
    if spread {
        return Ok((0..threads).map(|thread| own[thread * own.len() / threads]).collect());
    }
    own.truncate(threads);
    Ok(own)
}

/// Texts of the files that a command line of fio names; it tells itself what is missing.
fn job_files(
    (library, folder): (&Library, &Path),
    command: &str,
) -> Result<BTreeMap<String, String>, (String, String)> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let is_fio = words.first().is_some_and(|word| word.rsplit('/').next() == Some("fio"));
    let mut found = BTreeMap::new();
    for pair in words.windows(2).filter(|pair| is_fio && !pair[1].starts_with('-')) {
        let may_be_a_value = pair[0].starts_with('-') && !pair[0].contains('=');
        match library.beside(pair[1], folder) {
            Ok(Some(text)) => _ = found.insert(pair[1].to_owned(), text),
            Ok(None) => {}
            Err(_) if may_be_a_value => {}
            Err(wrong) => return Err(wrong),
        }
    }
    Ok(found)
}
