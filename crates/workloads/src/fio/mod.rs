//! fio, the flexible I/O tester, for block devices.
//!
//! | file | subject |
//! |---|---|
//! | `command` | the command line: jobs, job files, forms of the report |
//! | `jobfile` | sections of a job file |
//! | `options`, `values` | the options of a job, and the syntax of their values |
//! | `pattern` | which request comes next |
//! | `pace` | when it may be submitted |
//! | `job` | a process of a job: keeps requests in flight |
//! | `verify` | writes, reads back and compares |
//! | `tally` | counters and latencies |
//! | `text` | what the original prints |

mod command;
mod job;
mod jobfile;
mod options;
mod pace;
mod pattern;
mod tally;
mod text;
mod values;
mod verify;

use std::cell::Cell;
use std::rc::Rc;

use platform::cpu::{Async, Cpu, CpuId, Node};
use platform::kernel::{Priority, TaskParams};
use platform::memory::Policy;
use platform::storage::BlockFile;
use platform::sync::Completion;
use units::Duration;

use crate::command_line::JobFiles;
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
pub(crate) use verify::{holds, store};

use command::{Console, line, names_file};
use job::{Job, ProcessPlace};
use options::{JobOptions, Sharing};
use tally::RequestTally;
use values::MemoryPlace;

/// fio with its parsed command line.
#[derive(Clone, PartialEq, Debug)]
pub struct Fio {
    console: Console,
    jobs: Vec<JobOptions>,
    /// The first job of each group, whose jobs run together after those of the group before.
    groups: Vec<usize>,
    /// Options without effect.
    ignored: Vec<String>,
}

/// What the processes of a job measured.
struct JobResult {
    /// Number of the job.
    job: usize,
    group: usize,
    tally: RequestTally,
}

impl Fio {
    /// Reads a command line with its first word, and job files by name.
    pub(crate) fn read(words: &[String], files: &JobFiles) -> Result<Rc<dyn Program>, Refused> {
        let line = line(words.get(1..).unwrap_or_default(), files)?;
        let starts =
            |(n, (job, begins)): (usize, &(JobOptions, bool))| n == 0 || *begins || job.stonewall == 1;
        let groups = line.jobs.iter().enumerate().filter(|one| starts(*one)).map(|(n, _)| n).collect();
        let jobs = line.jobs.into_iter().map(|(job, _)| job).collect();
        Ok(Rc::new(Self { console: line.console, jobs, groups, ignored: line.ignored }))
    }

    /// Its options, for help texts.
    pub(crate) fn options() -> clap::Command {
        command::everything()
    }

    /// Jobs of each group.
    fn groups(&self) -> impl Iterator<Item = core::ops::Range<usize>> + '_ {
        let ends = self.groups.iter().skip(1).copied().chain([self.jobs.len()]);
        self.groups.iter().copied().zip(ends).map(|(first, end)| first..end)
    }

    /// The group in whose report a job is that runs in `group`.
    fn reported_in(&self, job: usize, group: usize) -> usize {
        let begins = |n: &usize| self.jobs[*n].new_group == 1 && !self.groups.contains(n);
        group + (0..=job).filter(begins).count()
    }

    fn check_job(&self, job: &JobOptions, premises: &Premises) -> Result<(), Refused> {
        job.agree()?;
        let writes = job.rw.writes() || job.rw.trims();
        Refused::unless(
            !(self.console.readonly && writes),
            "fio: --readonly, and a job writes",
            "--rw=read",
        )?;
        for name in &job.files() {
            let disk = premises.disk("fio", name)?;
            for number in [0, job.numjobs - 1] {
                job.range(number, disk.bytes, disk.block)?;
            }
        }
        let cores: Vec<u16> = premises.cpus.iter().map(|(core, _)| *core).collect();
        if let Some(wanted) = job.cpus_allowed.as_ref().or(job.cpumask.as_ref()) {
            let outside = wanted.0.iter().find(|core| !cores.contains(core));
            let message = format!("fio: core {} is not one of the program's", outside.unwrap_or(&0));
            Refused::unless(
                outside.is_none(),
                message,
                "the scenario's `cpus` says which these are; all without it",
            )?;
        }
        if let Some(wanted) = &job.numa_cpu_nodes {
            let lacks =
                wanted.0.iter().find(|node| !premises.cpus.iter().any(|(_, of)| u16::from(*of) == **node));
            let message = format!("fio: none of the program's cores is on node {}", lacks.unwrap_or(&0));
            Refused::unless(
                lacks.is_none(),
                message,
                "the scenario's `cpus` says which these are; all without it",
            )?;
        }
        let last = u16::from(premises.nodes).saturating_sub(1);
        match &job.numa_mem_policy {
            Some(MemoryPlace::Bind(nodes)) if nodes.len() > 1 && nodes.len() <= usize::from(last) => {
                return Err(Refused::new(
                    "fio: memory of some of several nodes is not simulated",
                    "one node, or all",
                ));
            }
            Some(MemoryPlace::Bind(nodes)) => {
                let most = nodes.iter().max().copied().unwrap_or(0);
                Refused::unless(
                    most <= last,
                    format!("fio: there is no node {most}"),
                    format!("0 to {last}"),
                )?;
            }
            Some(MemoryPlace::Preferred(node)) => {
                Refused::unless(
                    *node <= last,
                    format!("fio: there is no node {node}"),
                    format!("0 to {last}"),
                )?;
            }
            _ => {}
        }
        let buffers = [job.depth().into(), job.numjobs.into(), u128::from(job.most())].into_iter().product();
        premises.holds("fio", "buffers of --bs for --iodepth and --numjobs", buffers)
    }
}

impl Program for Fio {
    fn lasts(&self) -> Option<Duration> {
        let of = |job: &JobOptions| Some(job.startdelay + job.ramp_time + job.limit()?);
        let group = |jobs: core::ops::Range<usize>| {
            let all: Option<Vec<Duration>> = self.jobs[jobs].iter().map(of).collect();
            all.and_then(|all| all.into_iter().max())
        };
        self.groups().map(group).try_fold(Duration::ZERO, |sum, group| Some(sum + group?))
    }

    fn parts(&self) -> Vec<String> {
        if self.groups.len() == 1 {
            return Vec::new();
        }
        let names = |jobs: core::ops::Range<usize>| {
            let mut names: Vec<&str> = self.jobs[jobs].iter().map(|job| &*job.name).collect();
            names.dedup();
            names.join(", ")
        };
        self.groups().map(names).collect()
    }

    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        self.jobs.iter().try_for_each(|job| self.check_job(job, premises))
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let (mut files, mut names): (Vec<Rc<dyn BlockFile>>, Vec<String>) = (Vec::new(), Vec::new());
            for name in self.jobs.iter().flat_map(JobOptions::files) {
                if !names.contains(&name) {
                    let file = environment.kernel.open_block(&name);
                    files.push(file.ok_or_else(|| Failure(format!("fio: {name}: no such device")))?);
                    names.push(name);
                }
            }
            let merges = || files.iter().map(|file| file.counters().merges).sum::<u64>();
            let before = merges();
            let (mut measured, mut verified, mut number) = (Vec::new(), None, 0);
            let are_apart = self.groups.len() > 1;
            for (group, jobs) in self.groups().enumerate() {
                if are_apart {
                    environment.span.begin();
                }
                let mut running = Vec::new();
                let stopped = Rc::new(Cell::new(false));
                for job in jobs {
                    let options = &self.jobs[job];
                    options.agree()?;
                    let own = options.files();
                    let own = own.iter().filter_map(|name| names.iter().position(|known| known == name));
                    let own: Vec<Rc<dyn BlockFile>> = own.map(|n| Rc::clone(&files[n])).collect();
                    let seed = options.randseed.unwrap_or(environment.seed);
                    let environment = Environment { seed, ..environment.clone() };
                    if options.verifies() {
                        let range = options.range(0, own[0].bytes(), own[0].block_bytes().into())?;
                        let (tally, bytes) =
                            verify::run(options, &cpu, &environment, &*own[0], range).await?;
                        verified = Some(verified.unwrap_or(0) + bytes);
                        measured.push(JobResult { job, group: self.reported_in(job, group), tally });
                        continue;
                    }
                    for process in 0..options.numjobs {
                        let (files, stopped) = (own.clone(), Rc::clone(&stopped));
                        let place = ProcessPlace { process, number, files, stopped };
                        number += 1;
                        let started = self.start(options, &cpu, &environment, place)?;
                        running.push((job, started));
                    }
                }
                for (job, done) in running {
                    let group = self.reported_in(job, group);
                    measured.push(JobResult { job, group, tally: done.wait().await? });
                }
                if are_apart {
                    environment.span.end();
                }
            }
            let mut report = self.report(&measured);
            if let Some(bytes) = verified {
                report.add("verified", "B", bytes as f64);
            } else {
                report.add("merged requests", "", (merges() - before) as f64);
            }
            report.text = text::text(&self.console.formats, &self.jobs, &measured);
            Ok(report)
        })
    }
}

impl Fio {
    /// Starts a process of a job.
    fn start(
        &self,
        options: &JobOptions,
        cpu: &Cpu,
        environment: &Environment,
        place: ProcessPlace,
    ) -> Result<Completion<Result<RequestTally, Failure>>, Failure> {
        let kernel = &environment.kernel;
        let turn = |cpus: &[CpuId]| vec![cpus[place.process as usize % cpus.len()]];
        let wanted = options.cpus_allowed.as_ref().or(options.cpumask.as_ref()).map(|wanted| &wanted.0);
        let allowed: Option<Vec<CpuId>> = match (wanted, &options.numa_cpu_nodes) {
            (Some(wanted), _) => Some(wanted.iter().copied().map(CpuId).collect()),
            (None, Some(nodes)) => {
                let is_there = |core: &CpuId| nodes.0.contains(&kernel.node_of(*core).0.into());
                Some(environment.cpus.iter().copied().filter(is_there).collect())
            }
            (None, None) => None,
        };
        let cpus = match allowed {
            None => vec![environment.cpus[place.number as usize % environment.cpus.len()]],
            Some(cpus) if cpus.is_empty() => return Err(Failure("fio: no core is allowed".into())),
            Some(cpus) if options.cpus_allowed_policy == Sharing::Split => turn(&cpus),
            Some(cpus) => cpus,
        };
        let mut params = TaskParams::named(format!("fio/{}", place.number)).of(cpu);
        params.cpus = cpus;
        params.priority = options.nice.map_or(params.priority, Priority::Nice);
        match &options.numa_mem_policy {
            None => {}
            Some(MemoryPlace::Bind(nodes)) if nodes.len() == 1 => {
                params.policy = Policy::Bind(Node(nodes[0] as u8))
            }
            Some(MemoryPlace::Bind(_) | MemoryPlace::Local) => params.policy = Policy::Local,
            Some(MemoryPlace::Preferred(node)) => params.policy = Policy::Preferred(Node(*node as u8)),
            Some(MemoryPlace::Interleave) => params.policy = Policy::Interleave,
        }
        let job = Job::new(options, environment, place)?;
        Ok(kernel.run(params, async move |cpu: Cpu| {
            let result = job.run(&cpu).await;
            cpu.sync().await;
            result
        }))
    }

    /// Readings of all jobs together if they ran together, and of each if they are several and not reported together.
    fn report(&self, measured: &[JobResult]) -> Report {
        let mut report = Report::default();
        let sum = |of: &dyn Fn(&JobResult) -> bool| {
            let mut sum = RequestTally::default();
            measured.iter().filter(|one| of(one)).for_each(|one| sum.add(&one.tally));
            sum
        };
        let jobs = self.jobs.iter().enumerate();
        let paces: Option<Vec<_>> = jobs.map(|(n, job)| pace::kept(job, &sum(&|one| one.job == n))).collect();
        report.pace = paces.and_then(|paces| paces.first().map(|&option| option.to_owned()));
        let default = [50.0, 99.0, 99.9];
        let percentiles = |job: &JobOptions| {
            job.percentile_list.as_ref().map_or_else(|| default.to_vec(), |list| list.0.clone())
        };
        let is_together = self.groups.len() == 1;
        if is_together {
            sum(&|_| true).report(&mut report, "", &percentiles(&self.jobs[0]));
        }
        let are_apart = self.jobs.len() > 1 && self.jobs.iter().all(|job| job.group_reporting == 0);
        if are_apart || !is_together {
            for (n, job) in self.jobs.iter().enumerate() {
                let namesakes = self.jobs[..n].iter().filter(|other| other.name == job.name).count();
                let name = match namesakes {
                    0 => format!("{}: ", job.name),
                    _ => format!("{}.{namesakes}: ", job.name),
                };
                sum(&|one| one.job == n).report(&mut report, &name, &percentiles(job));
            }
        }
        let mut notes: Vec<String> = self.jobs.iter().flat_map(JobOptions::notes).collect();
        if !self.ignored.is_empty() {
            let writes = self.ignored.iter().any(|word| names_file(word));
            let instead = "; no file is written, `nearfar run --json FILE` has all results";
            let instead = if writes { instead } else { "" };
            notes.push(format!("without effect here: {}{instead}", self.ignored.join(" ")));
        }
        for note in notes {
            let note = format!("fio: {note}");
            if !report.notes.contains(&note) {
                report.notes.push(note);
            }
        }
        report
    }
}
