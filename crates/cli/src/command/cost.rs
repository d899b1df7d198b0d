//! What findings cost: small simulations of the machine's import, each once for all findings that ask the same.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use machine::{Doc, Library, Machine};
use nearfar::Silent;
use nearfar::experiment::Experiment;
use serde_json::Value;
use survey::{Finding, FindingCost, Imported, LinkSetting, PciAddress, PciClass, Survey};

use crate::failure::Failure;
use crate::{Common, input, output};

/// The folder of the import's files, which exist in memory alone.
const FOLDER: &str = "inspected";

/// A simulation that tells what a finding costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trial {
    /// A device without own limits behind a link as it is, and as it could be.
    Link(LinkSetting, LinkSetting),
    /// The same, whose writes are strictly ordered, against relaxed ones.
    Strict(LinkSetting),
    /// The same behind a link, against a rate in Mbit/s each way.
    Rate(LinkSetting, u32),
    /// A NIC at another socket than the programs that use it.
    FarNic,
    /// A drive at another socket.
    FarDrive,
    /// A NIC before an IOMMU that takes addresses back at once, or later.
    Translated { strict: bool },
    /// Streams whose packets one core receives, instead of one each.
    OneCore,
    /// Copies of GPUs, redirected by access control.
    Redirected,
    /// Copies of the GPUs that are the farthest from each other, against the nearest.
    FarPeers,
}

/// What a trial found.
#[derive(Clone, Debug)]
struct TrialResult {
    share: f64,
    text: String,
}

/// What was simulated besides findings' own costs.
#[derive(Default)]
pub struct Costs {
    /// What a device at the other socket costs, whether there is one or not.
    pub far: Vec<FarCost>,
    /// Findings that were not simulated, with the reason.
    pub failed: Vec<String>,
}

/// What the machine pays for a device at another socket.
pub struct FarCost {
    what: String,
    unit: String,
    near: f64,
    far: f64,
    relative: String,
    /// As what it was simulated, and how far that is off.
    source: String,
}

impl FarCost {
    /// As a record.
    pub fn to_json(&self) -> Value {
        let Self { what, unit, near, far, relative, source } = self;
        serde_json::json!({
            "what": what, "unit": unit, "near": near, "far": far, "change_pct": 100.0 * (far / near - 1.0), "relative": relative,
            "source": source,
        })
    }
}

impl std::fmt::Display for FarCost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, unit, near, far, source, .. } = self;
        write!(
            f,
            "{what} {} {unit} with the device at the program's socket, {} at another one ({:+.1} %); {source}",
            output::number(*near),
            output::number(*far),
            100.0 * (far / near - 1.0)
        )
    }
}

/// Simulates what each finding costs, where that can be, and what a device at the other socket would.
pub fn simulate(common: &Common, survey: &Survey, findings: &mut [Finding]) -> Result<Costs, Failure> {
    let bench = Import::new(common, survey)?;
    let mut done: BTreeMap<Trial, Result<TrialResult, String>> = BTreeMap::new();
    let mut failed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for finding in findings.iter_mut() {
        let Some(trial) = trial_of(survey, finding) else { continue };
        let result = done.entry(trial).or_insert_with(|| bench.run(trial));
        match result {
            Ok(found) => {
                let of = bench.device_of(trial).filter(|device| !finding.functions.contains(device));
                let of = of.map_or(String::new(), |device| format!(", as of {device}"));
                finding.cost = FindingCost {
                    share: Some(found.share.max(0.0)),
                    text: format!("{}{of}", found.text),
                    source: bench.source(trial),
                };
            }
            Err(reason) => failed.entry(reason.clone()).or_default().push(finding.id.clone()),
        }
    }
    let failed = failed.into_iter().map(|(reason, ids)| {
        let were = if ids.len() == 1 { "was" } else { "were" };
        format!("{} {were} not simulated: {reason}", survey::some_of(&ids, 5))
    });
    findings.sort_by(|a, b| {
        let rank = |finding: &Finding| finding.cost.share.unwrap_or(-1.0);
        rank(b).total_cmp(&rank(a)).then_with(|| a.id.cmp(&b.id))
    });
    Ok(Costs { far: bench.far(), failed: failed.collect() })
}

/// What a finding's cost is found by, if anything.
fn trial_of(survey: &Survey, finding: &Finding) -> Option<Trial> {
    let kind = finding.id.split('/').next()?;
    let function = finding.functions.first().and_then(|address| survey.functions.get(address));
    // What other devices lose there is not that of a NIC.
    let far = || match function {
        Some(function) if function.is(PciClass::is_nvme) => Some(Trial::FarDrive),
        Some(function) if function.is(PciClass::is_network) => Some(Trial::FarNic),
        _ => None,
    };
    Some(match kind {
        "link-below-possible" | "slot-below-device" | "mps-small" | "mrrs-small" | "few-tags" => {
            let [now, then] = finding.links?;
            Trial::Link(now, then)
        }
        "relaxed-ordering-off" => {
            let [now, _] = finding.links?;
            Trial::Strict(now)
        }
        "rate-above-link" => {
            let [now, _] = finding.links?;
            let name = finding.id.split('/').nth(1)?;
            Trial::Rate(now, survey.interfaces.get(name)?.mbit_per_s.value()?)
        }
        "far-interrupts" | "far-queues" | "node-unknown" | "process-far" | "guest-far" => far()?,
        "translated" => {
            let mode = function.and_then(|function| function.iommu_mode.get());
            Trial::Translated { strict: mode.is_none_or(|mode| mode == "DMA") }
        }
        "one-core" if function.is_some_and(|function| function.is(PciClass::is_network)) => Trial::OneCore,
        "peers-redirected" => Trial::Redirected,
        // A NIC's requests take the way of another GPU's there.
        "peers-cross-root" | "peers-cross-socket" | "gpu-nic-other-root" | "gpu-nic-other-node" => {
            Trial::FarPeers
        }
        _ => return None,
    })
}

/// Gbit/s by test and size, or why there are none.
type Goodputs = Result<BTreeMap<String, f64>, String>;

/// The machine's import, and a library that has it.
struct Import {
    imported: Imported,
    library: Library,
    /// Goodput of links that were simulated already, with relaxed ordering or not.
    links: RefCell<BTreeMap<(LinkSetting, bool), Goodputs>>,
}

impl Import {
    fn new(common: &Common, survey: &Survey) -> Result<Self, Failure> {
        let library = input::library(common);
        let imported = survey::import(survey, &library, survey::ImportOptions { name: FOLDER, from: None })?;
        let texts = imported.files.iter().map(|(name, text)| (format!("{FOLDER}/{name}"), text.clone()));
        Ok(Self { library: library.with_texts(texts), imported, links: RefCell::default() })
    }

    fn run(&self, trial: Trial) -> Result<TrialResult, String> {
        match trial {
            Trial::Link(now, then) => lost("", [self.goodput(now, true)?, self.goodput(then, true)?]),
            Trial::Strict(link) => {
                lost(", in order instead of relaxed", [self.goodput(link, false)?, self.goodput(link, true)?])
            }
            Trial::Rate(link, mbit) => self.rate(link, mbit),
            Trial::FarNic => self.worst(
                "netperf.toml",
                &[],
                &self.elsewhere("netperf.toml")?,
                "with the NIC at another socket",
            ),
            Trial::FarDrive => {
                self.worst("fio.toml", &[], &self.elsewhere("fio.toml")?, "with the drive at another socket")
            }
            Trial::Translated { strict } => {
                let mode = if strict { "strict" } else { "lazy" };
                let changes = [("host.a.iommu", mode), ("host.b.iommu", mode)];
                let off = [("host.a.iommu", "off"), ("host.b.iommu", "off")];
                self.worst("netperf.toml", &off, &changes, &format!("with the IOMMU in mode {mode}"))
            }
            Trial::OneCore => {
                let one = [("host.b.nic_driver.channels", "1")];
                self.worst("streams.toml", &[], &one, "with one core for all that is received")
            }
            Trial::Redirected => self.redirected(),
            Trial::FarPeers => self.far_peers(),
        }
    }

    /// What puts a scenario's device at another socket than its programs.
    fn elsewhere(&self, name: &str) -> Result<[(&str, &str); 1], String> {
        self.has(name)?;
        let place = self.imported.far.iter().find(|place| place.scenario == name);
        place.map(|place| [(&*place.key, &*place.far)]).ok_or_else(|| "one node: no slot is far".into())
    }

    /// The device that a trial's scenario has, where one stands for others.
    fn device_of(&self, trial: Trial) -> Option<PciAddress> {
        let name = match trial {
            Trial::FarNic => "netperf.toml",
            Trial::FarDrive => "fio.toml",
            _ => return None,
        };
        self.imported.far.iter().find(|place| place.scenario == name).map(|place| place.device)
    }

    /// As what a trial was simulated, and how far that is off as known.
    fn source(&self, trial: Trial) -> String {
        let kind = match trial {
            Trial::Link(..) | Trial::Strict(_) | Trial::Rate(..) => None,
            Trial::FarDrive => Some("drive"),
            Trial::FarNic | Trial::Translated { .. } | Trial::OneCore => Some("nic"),
            Trial::Redirected | Trial::FarPeers => Some("gpu"),
        };
        let relative = &self.imported.relative;
        let mut text = format!("simulated as {relative}");
        let device = self.device_of(trial);
        let stands = self.imported.parts.iter().filter(|part| {
            Some(part.kind) == kind && !part.is_own && device.is_none_or(|device| device == part.device)
        });
        let stands: BTreeSet<&str> = stands.map(|part| part.relative.as_str()).collect();
        if let Some(kind) = kind.filter(|_| !stands.is_empty()) {
            let all = stands.into_iter().collect::<Vec<_>>().join(" and ");
            let kind = if kind == "drive" { kind.to_owned() } else { kind.to_uppercase() };
            text += &format!(" with the {kind} as {all}, whose own limits bound it");
        }
        let was_measured = || {
            let machine = Doc::<Machine>::load(&self.library, relative).and_then(|doc| doc.read()).ok();
            machine.and_then(|machine| machine.measured_as).is_some_and(|known| !known.directories.is_empty())
        };
        // Costs are of the relative's PCIe alone, which is what pcie-bench measured.
        text + match kind {
            None if was_measured() => {
                "; known errors of its PCIe: latencies 1.0 / 3.5 %, bandwidths 0.9 / 11.5 % (median / 90th percentile, docs/accuracy.md: a \
                 relative's file)"
            }
            None => "; no error is known: nobody has measured its PCIe with pcie-bench",
            Some(_) => "; no error of such costs is known",
        }
    }

    fn has(&self, name: &str) -> Result<(), String> {
        let is_there = self.imported.files.iter().any(|(file, _)| file == name);
        is_there.then_some(()).ok_or_else(|| {
            let what = match name {
                "netperf.toml" | "streams.toml" => "no NIC that can be simulated",
                "fio.toml" => "no drive that can be simulated",
                _ => "no two GPUs that can be simulated",
            };
            format!("the machine has {what}")
        })
    }

    /// What a scenario reads before and after changes.
    fn apart(
        &self,
        name: &str,
        before: &[(&str, &str)],
        after: &[(&str, &str)],
    ) -> Result<Vec<(String, String, [f64; 2])>, String> {
        self.has(name)?;
        let before = readings(&self.records(name, before)?);
        let after = readings(&self.records(name, after)?);
        let each = before.into_iter().filter_map(|(what, unit, was)| {
            let (.., is) = after.iter().find(|(own, ..)| *own == what)?;
            Some((what, unit, [was, *is]))
        });
        Ok(each.collect())
    }

    /// The quantity that changes lose most of.
    fn worst(
        &self,
        name: &str,
        before: &[(&str, &str)],
        after: &[(&str, &str)],
        words: &str,
    ) -> Result<TrialResult, String> {
        let each = self.apart(name, before, after)?.into_iter().map(|(what, unit, [was, is])| TrialResult {
            share: if unit == "µs" { 1.0 - was / is } else { 1.0 - is / was },
            text: format!(
                "{} {unit} instead of {} {words} ({what})",
                output::number(is),
                output::number(was)
            ),
        });
        let worst = each.max_by(|a, b| a.share.total_cmp(&b.share));
        worst.ok_or_else(|| "its simulation has no result to compare".into())
    }

    /// What a NIC, or else a drive, at the other socket costs; nothing if there is one socket.
    fn far(&self) -> Vec<FarCost> {
        let tries = [("netperf.toml", Trial::FarNic), ("fio.toml", Trial::FarDrive)];
        let found = tries.into_iter().find_map(|(name, trial)| {
            let each = self.apart(name, &[], &self.elsewhere(name).ok()?).ok()?;
            Some((each, self.source(trial)))
        });
        let (all, source) = found.unwrap_or_default();
        let relative = || self.imported.relative.clone();
        let cost = |(what, unit, [near, far]): (String, String, [f64; 2])| FarCost {
            what,
            unit,
            near,
            far,
            relative: relative(),
            source: source.clone(),
        };
        all.into_iter().map(cost).collect()
    }

    fn records(&self, name: &str, changes: &[(&str, &str)]) -> Result<Vec<Value>, String> {
        let changes: Vec<_> =
            changes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let load = Experiment::load(&self.library, &format!("{FOLDER}/{name}"), "--cost", &changes);
        let experiment = load.map_err(|error| first_line(&error.to_string()))?;
        experiment.run(false, &Silent).map_err(|error| first_line(&error.to_string()))
    }

    /// Gbit/s of reads and writes, small and large, through a link, whose order is relaxed or strict.
    fn goodput(&self, link: LinkSetting, is_relaxed: bool) -> Goodputs {
        if let Some(known) = self.links.borrow().get(&(link, is_relaxed)) {
            return known.clone();
        }
        let found = self.goodput_anew(link, is_relaxed);
        self.links.borrow_mut().insert((link, is_relaxed), found.clone());
        found
    }

    fn goodput_anew(&self, link: LinkSetting, is_relaxed: bool) -> Goodputs {
        let LinkSetting { generation, width, mps_bytes, mrrs_bytes, tags } = link;
        let generation = generation.min(5);
        let bits = if tags > 256 { 10 } else { 8 };
        let relative = Doc::<Machine>::load(&self.library, &self.imported.relative);
        let relative =
            relative.and_then(|doc| doc.read()).map_err(|error| first_line(&error.to_string()))?.host.port;
        let like =
            relative.get("slot").or_else(|| relative.values().next()).ok_or("the machine has no slot")?;
        let credits: Vec<String> = survey::credits_at(like, generation)
            .into_iter()
            .map(|(key, credits)| format!("{key} = {credits}"))
            .collect();
        let credits = credits.join(", ");
        let text = format!(
            "name = \"link\"\nsummary = \"a link\"\nmachine = \"{FOLDER}.toml\"\ncard = \"ideal\"\nslot = \"slot\"\n\
             change_card = {{ link = {{ generation = {generation}, width = {width}, tag_bits = {bits}, relaxed_ordering = {is_relaxed} }}, \
             dma_engine = {{ tags = {tags}, max_read_request = {mrrs_bytes} }} }}\n\
             change.host.port.slot = {{ socket = 0, generation = {generation}, width = {width}, mps_bytes = {mps_bytes}, mrrs_bytes = {mrrs_bytes}, \
             credits = {{ {credits} }} }}\n\
             [pcie_bench]\ntest = [\"BW_RD\", \"BW_WR\", \"BW_RDWR\"]\npattern = \"rand\"\ncache = \"host-warm\"\nwindow = \"256 KiB\"\n\
             transfer = [\"64 B\", \"1500 B\", \"2 KiB\"]\n"
        );
        let library = self.library.clone().with_texts([(format!("{FOLDER}/link.toml"), text)]);
        let load = Experiment::load(&library, &format!("{FOLDER}/link.toml"), "--cost", &[]);
        let experiment = load.map_err(|error| first_line(&error.to_string()))?;
        let rows = experiment.run(false, &Silent).map_err(|error| first_line(&error.to_string()))?;
        let each = rows.iter().filter_map(|row| {
            let what = format!("{} {}", row["test"].as_str()?, row["transfer_bytes"].as_u64()?);
            Some((what, row["goodput_gbit_per_s"].as_f64()?))
        });
        Ok(each.collect())
    }

    fn rate(&self, link: LinkSetting, mbit: u32) -> Result<TrialResult, String> {
        let found = self.goodput(link, true)?;
        let now = found.get("BW_DMA_RW 1500").ok_or("its simulation has no result")?;
        let wire = f64::from(mbit) / 1e3;
        let text = format!(
            "{now:.1} of {wire} Gbit/s each way, reads and writes of 1500 B by a device without own limits"
        );
        Ok(TrialResult { share: 1.0 - now / wire, text })
    }

    /// GB/s of copies that GPUs make of each other's memory, by command line: of the two nearest, and of the two farthest.
    fn pairs(&self, changes: &[(&str, &str)]) -> Result<BTreeMap<String, f64>, String> {
        self.has("p2p.toml")?;
        let each = readings(&self.records("p2p.toml", changes)?);
        let direct = each.into_iter().filter(|(what, ..)| !what.contains("--through=ram"));
        Ok(direct.map(|(what, _, rate)| (what, rate)).collect())
    }

    fn redirected(&self) -> Result<TrialResult, String> {
        let straight = self.pairs(&[("host.a.iommu", "off")])?;
        // The kernel redirects requests of peers where it translates them.
        let redirected = self.pairs(&[("host.a.iommu", "lazy")])?;
        let pairs = straight.iter().filter_map(|(pair, was)| Some((*was, *redirected.get(pair)?)));
        let worst = pairs.max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
        let (was, is) = worst.ok_or("its simulation has no result")?;
        let text = format!("{is:.1} of {was:.1} GB/s, copies between two GPUs, with and without redirection");
        Ok(TrialResult { share: 1.0 - is / was, text })
    }

    fn far_peers(&self) -> Result<TrialResult, String> {
        let pairs = self.pairs(&[])?;
        let by_rate = |a: &&f64, b: &&f64| a.total_cmp(b);
        let (Some(least), Some(most)) = (pairs.values().min_by(by_rate), pairs.values().max_by(by_rate))
        else {
            return Err("its simulation has no result".into());
        };
        let text = match pairs.len() > 1 {
            true => {
                format!("{least:.1} of {most:.1} GB/s, copies between the farthest and the nearest two GPUs")
            }
            false => format!("{least:.1} GB/s, copies between two GPUs; no two are nearer"),
        };
        Ok(TrialResult { share: 1.0 - least / most, text })
    }
}

/// What the test that loses most loses.
fn lost(how: &str, [now, then]: [BTreeMap<String, f64>; 2]) -> Result<TrialResult, String> {
    let mut worst: Option<TrialResult> = None;
    for (what, then) in &then {
        let Some(now) = now.get(what) else { continue };
        let share = 1.0 - now / then;
        let (test, bytes) = what.split_once(' ').unwrap_or((what, ""));
        let test = match test {
            "BW_DMA_RD" => "reads",
            "BW_DMA_WR" => "writes",
            _ => "reads and writes at once",
        };
        let text =
            format!("{now:.1} of {then:.1} Gbit/s, {test} of {bytes} B by a device without own limits{how}");
        if worst.as_ref().is_none_or(|worst| share > worst.share) {
            worst = Some(TrialResult { share, text });
        }
    }
    worst.ok_or_else(|| "its simulation has no result".into())
}

/// What a message says first.
fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.trim().trim_start_matches("error: ").to_owned()
}

/// Rates and latencies of programs, with their units.
fn readings(records: &[Value]) -> Vec<(String, String, f64)> {
    let wanted = ["throughput", "bandwidth", "rate", "read iops", "read clat mean"];
    let mut all = Vec::new();
    for row in records.iter().filter(|row| row["kind"] == "reading") {
        let (Some(quantity), Some(value)) = (row["quantity"].as_str(), row["value"].as_f64()) else {
            continue;
        };
        let run = row["run"].as_str().unwrap_or_default();
        let last = quantity.rsplit(": ").next().unwrap_or(quantity);
        // With many in flight, a latency is what is in flight over the rate.
        if !wanted.contains(&last) || last.ends_with("clat mean") && run.contains("libaio") {
            continue;
        }
        all.push((
            format!("`{run}`: {quantity}"),
            row["unit"].as_str().unwrap_or_default().to_owned(),
            value,
        ));
    }
    all
}
