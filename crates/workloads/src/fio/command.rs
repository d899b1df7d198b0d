//! fio's command line: options of its own, jobs, and job files.

use std::collections::BTreeMap;

use clap::{Args, FromArgMatches, Parser};

use super::jobfile::{JobSection, sections};
use super::options::{JobOptions, with_base};
use super::values::UnitBase;
use crate::command_line::{forgiving, near, refused};
use crate::premises::Refused;

/// Form of fio's own report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
#[value(rename_all = "lower")]
pub(super) enum ReportForm {
    /// For people.
    Normal,
    /// Semicolons between values.
    Terse,
    /// JSON.
    Json,
    /// JSON; the original adds all latencies.
    #[value(name = "json+")]
    JsonPlus,
}

/// Options that are not a job's.
#[derive(clap::Args, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Console {
    /// Print what fio itself prints, in these forms.
    #[arg(long = "output-format", value_enum, value_delimiter = ',')]
    pub formats: Vec<ReportForm>,
    /// As `--output-format=terse`.
    #[arg(long)]
    minimal: bool,
    /// Also print what `--output-format=terse` prints.
    #[arg(long = "append-terse")]
    append_terse: bool,
    /// Only run this job of a job file; may be given several times.
    #[arg(long)]
    section: Vec<String>,
    /// Refuse jobs that write.
    #[arg(long)]
    pub readonly: bool,
}

/// All options, for the help and for who asks what there is.
#[derive(Parser, Clone, PartialEq, Debug)]
#[command(
    name = "fio",
    about = "Reads and writes block devices in various patterns and measures rates and latencies",
    after_help = format!(
        "A job file may follow the options: its sections have the same options, one a line, without dashes. It lies \
         beside the scenario, or in a folder below. Options may be written with one dash, and flags with `=1`.\n\n\
         Accepted without effect here: {}",
        WITHOUT_EFFECT.join(", ")
    )
)]
struct Everything {
    #[command(flatten)]
    job: JobOptions,
    #[command(flatten)]
    console: Console,
    /// Job files.
    #[arg(value_name = "FILE")]
    files: Vec<String>,
}

/// Options that change nothing here: how progress is shown, what a buffer holds, how the original measures itself.
/// Those in the second list have no value.
const WITHOUT_EFFECT: &[&str] = &[
    "alloc-size",
    "allow_file_create",
    "allow_mounted_write",
    "allrandrepeat",
    "aux-path",
    "buffer_compress_chunk",
    "buffer_compress_percentage",
    "buffer_pattern",
    "bwavgtime",
    "clat_percentiles",
    "clocksource",
    "create_fsync",
    "create_on_open",
    "create_serialize",
    "debug",
    "dedupe_percentage",
    "description",
    "disk_util",
    "disable_bw",
    "disable_bw_measurement",
    "disable_clat",
    "disable_lat",
    "disable_slat",
    "error_dump",
    "eta",
    "eta-interval",
    "eta-newline",
    "exitall_on_error",
    "fadvise_hint",
    "fallocate",
    "filetype",
    "fixedbufs",
    "gtod_cpu",
    "gtod_reduce",
    "hugepage-size",
    "idle-prof",
    "iodepth_batch_complete_max",
    "iomem",
    "iomem_align",
    "iopsavgtime",
    "lat_percentiles",
    "lockmem",
    "log_avg_msec",
    "log_compression",
    "log_hist_msec",
    "log_max_value",
    "log_offset",
    "log_unix_epoch",
    "max-jobs",
    "mem",
    "mem_align",
    "nonvectored",
    "norandommap_seed",
    "nowait",
    "nrfiles",
    "openfiles",
    "overwrite",
    "per_job_logs",
    "random_generator",
    "randrepeat",
    "refill_buffers",
    "registerfiles",
    "rwmixcycle",
    "scramble_buffers",
    "serialize_overlap",
    "significant_figures",
    "slat_percentiles",
    "softrandommap",
    "status-interval",
    "terse-version",
    "thread",
    "uncached",
    "unified_rw_reporting",
    "unit_base",
    "unlink",
    "userspace_reap",
    "verify_async",
    "verify_dump",
    "verify_fatal",
    "verify_pattern",
    "warnings-fatal",
    "write_hint",
    "zero_buffers",
];

/// Of these, those that take no value unless after `=`.
const FLAGS: &[&str] = &[
    "allrandrepeat",
    "disable_bw",
    "disable_bw_measurement",
    "disable_clat",
    "disable_lat",
    "disable_slat",
    "fixedbufs",
    "gtod_reduce",
    "nonvectored",
    "randrepeat",
    "refill_buffers",
    "registerfiles",
    "scramble_buffers",
    "serialize_overlap",
    "softrandommap",
    "thread",
    "userspace_reap",
    "verify_fatal",
    "warnings-fatal",
    "zero_buffers",
];

/// Of these, those that name a file, which is not written.
const FILES: &[&str] = &[
    "output",
    "write_bw_log",
    "write_lat_log",
    "write_iops_log",
    "write_hist_log",
    "bandwidth-log",
    "latency-log",
];

/// Whether an option names a file, which is not written.
pub(super) fn names_file(word: &str) -> bool {
    FILES.contains(&key(word))
}

/// Options of the original that cannot be, and what there is instead.
const INSTEAD: &[(&[&str], &str)] = &[
    (&["read_iolog", "write_iolog", "replay_redirect"], "`nearfar trace` writes what crosses the links"),
    (&["client", "server", "daemonize", "remote-config"], "a `[[program]]` for each host of the scenario"),
    (
        &["directory", "filename_format", "file_append", "opendir"],
        "there are block devices and no files: --filename, --size",
    ),
    (
        &["prio", "prioclass", "cmdprio", "cmdprio_percentage", "cmdprio_class"],
        "all requests have the same priority",
    ),
    (
        &["ss", "steadystate", "ss_dur", "steadystate_duration", "ss_ramp_time", "steadystate_ramp_time"],
        "--runtime with --ramp_time",
    ),
    (
        &["zonesize", "zonerange", "zoneskip", "zonecapacity"],
        "drives have no zones: --rw=read:64k leaves out as much",
    ),
    (&["verify_backlog", "verify_interval", "verify_offset"], "--verify reads back once all is written"),
    (&["verify_only"], "--rw=read with --verify and the --randseed of what was written"),
    (&["exec_prerun", "exec_postrun"], "a `[[program]]` with the key `start`"),
    (&["sync_file_range"], "--fsync or --sync=dsync"),
    (&["fill_device", "fill_fs"], "--size=100%"),
    (&["enghelp"], "`nearfar programs fio` explains the options"),
    (&["include"], "copy the lines of that file"),
    (&["latency_target", "latency_window", "latency_percentile"], "`nearfar sweep` varies --iodepth"),
    (&["file_service_type"], "several devices of a job get requests in turn"),
    (&["sqthread_poll"], "--hipri polls for completions"),
    (&["blockalign", "ba"], "random places are multiples of the smallest size of --bs"),
];

/// A command line, taken apart.
pub(super) struct ParsedLine {
    pub console: Console,
    pub jobs: Vec<(JobOptions, bool)>,
    /// Options without effect, as they were given.
    pub ignored: Vec<String>,
}

/// The command for help texts.
pub(super) fn everything() -> clap::Command {
    <Everything as clap::CommandFactory>::command()
}

fn key(word: &str) -> &str {
    word.trim_start_matches("--").split('=').next().unwrap_or_default()
}

/// Takes a command line apart, without its first word. `files` are the job files by name.
pub(super) fn line(words: &[String], files: &BTreeMap<String, String>) -> Result<ParsedLine, Refused> {
    let all = everything();
    let of_console = Console::augment_args(clap::Command::new("fio"));
    let knows = |command: &clap::Command, key: &str| {
        command.get_arguments().any(|argument| {
            argument.get_long() == Some(key)
                || argument.get_all_aliases().is_some_and(|all| all.contains(&key))
        })
    };
    let takes_next = |key: &str| {
        let is_of_device = ["filesize", "ioscheduler", "io_submit_mode", "output", "zonemode"].contains(&key);
        is_of_device
            || WITHOUT_EFFECT.contains(&key) && !FLAGS.contains(&key)
            || all.get_arguments().any(|argument| {
                let is_it = argument.get_long() == Some(key)
                    || argument.get_all_aliases().is_some_and(|all| all.contains(&key));
                is_it && argument.get_action().takes_values() && !argument.is_require_equals_set()
            })
    };
    let (mut own, mut common, mut jobs, mut paths): (Vec<String>, Vec<String>, Vec<JobSection>, Vec<&str>) =
        (vec!["fio".into()], Vec::new(), Vec::new(), Vec::new());
    let mut is_common = true;
    let mut left = words.iter();
    while let Some(word) = left.next() {
        let Some(option) = word.strip_prefix('-').filter(|option| !option.is_empty()) else {
            paths.push(word);
            continue;
        };
        // Long options may have one dash.
        let mut word = format!("--{}", option.trim_start_matches('-'));
        if takes_next(key(&word))
            && !word.contains('=')
            && let Some(value) = left.next()
        {
            word = format!("{word}={value}");
        }
        match word.strip_prefix("--name=") {
            _ if knows(&of_console, key(&word)) => own.push(word),
            Some("global") => is_common = true,
            Some(name) => {
                is_common = false;
                let words = common.iter().cloned().chain([word.clone()]).collect();
                jobs.push(JobSection { place: format!("--name={name}"), words, begins_file: false });
            }
            None => match jobs.last_mut().filter(|_| !is_common) {
                Some(job) => job.words.push(word),
                None => common.push(word),
            },
        }
    }
    let console = parsed::<Console>(&of_console, &own)?;
    for path in paths {
        let text = files.get(path).ok_or_else(|| {
            let message = format!("fio: there is no job file `{path}`");
            Refused::new(message, "a file beside the scenario, or in a folder below; options begin with `--`")
        })?;
        jobs.extend(sections(path, text, &common)?);
    }
    let is_chosen = |section: &JobSection| {
        let name = section.words.iter().rev().find_map(|word| word.strip_prefix("--name="));
        console.section.is_empty()
            || name.is_some_and(|name| console.section.iter().any(|chosen| chosen == name))
    };
    if jobs.is_empty() {
        jobs.push(JobSection { words: common, ..JobSection::default() });
    }
    jobs.retain(is_chosen);
    if jobs.is_empty() {
        return Err(Refused::new("fio: --section names no job", "the name of a section of the job file"));
    }
    // Places are of help where there are several.
    let has_places = jobs.len() > 1 || jobs[0].place.contains('[');
    let mut ignored = Vec::new();
    let (mut read, mut wrong) = (Vec::new(), Vec::<Refused>::new());
    for section in &jobs {
        match job(section, &mut ignored) {
            Ok(job) => read.push((job, section.begins_file)),
            Err(refused) => wrong.extend(refused.apart().into_iter().map(|one| match has_places {
                true => Refused { message: format!("{} in {}", one.message, section.place), ..one },
                false => one,
            })),
        }
    }
    if let Some(refused) = Refused::together(wrong) {
        return Err(refused);
    }
    Ok(ParsedLine { console: console.complete(), jobs: read, ignored })
}

impl Console {
    fn complete(mut self) -> Self {
        if self.minimal {
            self.formats = vec![ReportForm::Terse];
        }
        if self.append_terse && !self.formats.contains(&ReportForm::Terse) {
            self.formats.push(ReportForm::Terse);
        }
        self
    }
}

fn parsed<T: FromArgMatches>(command: &clap::Command, words: &[String]) -> Result<T, Refused> {
    let (matches, mut wrong) = forgiving("fio", command, words);
    // What there is instead is looked for among all options.
    for one in &mut wrong {
        if let Some(given) = one.message.strip_prefix("fio: unexpected argument '") {
            let given = given.split('\'').next().unwrap_or_default();
            one.help = Some(near("fio", &everything(), given));
        }
    }
    match (Refused::together(wrong), matches) {
        (None, Some(matches)) => {
            T::from_arg_matches(&matches).map_err(|error| refused("fio", &everything(), &error))
        }
        (Some(refused), _) => Err(refused),
        (None, None) => {
            Err(Refused::new("fio: not understood", "`nearfar programs fio` explains the options"))
        }
    }
}

/// Whether an option has no effect here.
///
/// # Errors
/// If it cannot be, with what there is instead.
fn has_no_effect(word: &str) -> Result<bool, Refused> {
    let (key, value) = (key(word), word.split_once('=').map_or("", |(_, value)| value));
    if let Some((_, instead)) = INSTEAD.iter().find(|(known, _)| known.contains(&key)) {
        return Err(Refused::new(format!("fio: `--{key}` is not possible"), *instead));
    }
    if key == "terse-version" && !word.ends_with("=3") {
        return Err(Refused::new("fio: `--terse-version` is 3 here", "leave it out"));
    }
    let only = |holds: bool, help: &str| {
        Refused::unless(holds, format!("fio: `{}` is not possible", word.trim_start_matches("--")), help)
    };
    match key {
        "ioscheduler" => {
            only(value == "none", "the block layer submits as with ioscheduler=none").map(|()| true)
        }
        "io_submit_mode" => {
            only(value == "inline", "a job submits itself: io_submit_mode=inline").map(|()| true)
        }
        "zonemode" => only(value == "none", "drives have no zones").map(|()| true),
        "ioengine" if value == "spdk" || value.starts_with("external") => {
            only(false, "`nvm-latency` drives a drive without the kernel").map(|()| true)
        }
        // What the original takes for none.
        "verify" if value == "0" => Ok(true),
        _ => Ok(WITHOUT_EFFECT.contains(&key) || FILES.contains(&key)),
    }
}

fn job(section: &JobSection, ignored: &mut Vec<String>) -> Result<JobOptions, Refused> {
    let mut words = vec!["fio".to_owned()];
    let mut base = UnitBase::BINARY;
    let mut wrong = Vec::new();
    for word in &section.words {
        let (key, value) = (key(word), word.split_once('=').map_or("", |(_, value)| value));
        if key == "kb_base" && word.ends_with("=1000") {
            base = UnitBase(1000);
        }
        let without = match has_no_effect(word) {
            Ok(without) => without,
            Err(refused) => {
                wrong.push(refused);
                continue;
            }
        };
        match without {
            true if !ignored.contains(word) => ignored.push(word.clone()),
            true => {}
            // A file is as long as it says, a device at least.
            false if key == "filesize" && section.words.iter().any(|word| self::key(word) == "size") => {}
            false if key == "filesize" => words.push(format!("--size={value}")),
            // Each adds devices.
            false if key == "filename" => match words.iter_mut().find(|known| self::key(known) == "filename")
            {
                Some(known) => *known = format!("{known}:{value}"),
                None => words.push(word.clone()),
            },
            false => words.push(word.clone()),
        }
    }
    let command = JobOptions::augment_args(clap::Command::new("fio")).args_override_self(true);
    let parsed = parsed(&with_base(command, base), &words);
    wrong.extend(parsed.as_ref().err().cloned());
    Refused::together(wrong).map_or(parsed, Err)
}
