//! "Flexible device compositions and dynamic resource sharing in PCIe interconnected clusters using Device Lending", Cluster
//! Computing 23 (2020).
//!
//! Each run is a scenario: the paper's hosts in one of its topologies, running one of its programs.
//!
//! | file | subject |
//! |---|---|
//! | `topology` | hosts, switches, GPUs and adapters as in Figures 9, 11, 15 and 20 |
//! | `gpus` | the programs on GPUs: Figures 10, 12 and 14 |
//! | `reads` | how a root complex splits a peer's reads (section 7.1) |
//! | `one_way` | memory to memory latency (sections 7.2 and 7.4) |
//! | `drives` | reads of a drive: Figure 19 |
//! | `training` | an epoch on two GPUs: Figure 21 |

mod drives;
mod gpus;
mod one_way;
mod reads;
mod topology;
mod training;

use machine::Diagnostics;
use nearfar::Progress;
use results::claims::ClaimFile;

use super::runs::{self as all, NamedRun, Values};
use super::{AskedClaims, Options, Reproduction, selection};
use topology::{CHASSIS, IN_GUESTS, ONE_GPU, TWO_GPUS};
use training::Training;

/// All runs, the longest first.
fn runs(file: &ClaimFile) -> Vec<NamedRun<Options>> {
    let training = Training::of(file);
    let mut runs: Vec<NamedRun<Options>> = Vec::new();
    let mut add = |name: String, run| runs.push(NamedRun { name, run });
    for name in ["NatLoc", "NatRem-SW", "NatRem-IOMMU", "VMLoc", "VMRem"] {
        add(format!("training {name}"), Box::new(move |options| training.run(options, name)));
    }
    for scenario in TWO_GPUS.iter().chain(&CHASSIS).chain(&IN_GUESTS).rev() {
        add(format!("copies {}", scenario.name), Box::new(move |options| gpus::copies(options, scenario)));
    }
    for scenario in ONE_GPU.iter().rev() {
        for way in [gpus::CopyDirection::In, gpus::CopyDirection::Out] {
            let name = format!("bandwidthTest {} {way:?}", scenario.name);
            add(name, Box::new(move |options| gpus::bandwidth(options, scenario, way)));
        }
    }
    for scenario in TWO_GPUS.iter().chain(&CHASSIS).chain(&IN_GUESTS) {
        add(
            format!("ping-pong {}", scenario.name),
            Box::new(move |options| gpus::ping_pong(options, scenario)),
        );
    }
    add("peer reads".into(), Box::new(reads::run));
    add("one way".into(), Box::new(one_way::run));
    add("drive NatLoc".into(), Box::new(drives::local));
    add("drive NatRem".into(), Box::new(drives::remote));
    add("drive VMRem".into(), Box::new(drives::remote_guest));
    runs
}

/// Runs everything and judges the claims and figures by the results.
///
/// # Errors
/// If a machine, part or scenario file is invalid.
pub(super) fn reproduce(options: &Options, progress: &dyn Progress) -> Result<Reproduction, Diagnostics> {
    let all = ClaimFile::of("device-lending");
    let asked = asked(options);
    let mut runs = runs(&all);
    runs.retain(|run| asked.wants(&run.name));
    let mut file = asked.file;
    let copies = runs.iter().any(|run| run.name.starts_with("copies"));
    let made = all::make(
        ("device-lending", options),
        &runs,
        progress,
        |run| &run.name,
        |run, options| (run.run)(options),
    );
    let mut observed = made.values.clone();
    observed.extend(what_adapters_add(&observed));
    selection::keep_known(&mut file, &observed, &made.failed, options);
    let evidence = all::evidence(&file, &observed, &made, gives, options);
    let values = all::told(&observed, options);
    let mut notes = made.failed;
    if copies {
        notes.push(format!(
            "Copies of more than {} MiB are composed: each further byte takes as long as those between the two largest \
             sizes that were simulated.",
            gpus::SIMULATED >> 20
        ));
    }
    if let Some(scale) = made.values.get("training/scale") {
        notes.push(format!(
            "The epoch of training is composed from one step of each of its two passes, times {scale:.0}; what else is assumed \
             stands in published/device-lending.toml."
        ));
    }
    let of = Reproduction::new("Device Lending, simulated", file, evidence, made.count, Vec::new(), notes);
    Ok(of.with_values(values).resting_on(made.rests))
}

/// Nanoseconds that a pair of adapters adds to one way: half of what a second lender adds to a ping-pong.
fn what_adapters_add(values: &Values) -> Values {
    let [two, one] = ["2L", "1L"].map(|lenders| values.get(&format!("ping-pong/{lenders}-P2P-SW")));
    let added = two.zip(one).map(|(two, one)| ("ntb/one-way-adds".to_owned(), (two - one) / 2.0 * 1e3));
    added.into_iter().collect()
}

/// What of the paper is asked for.
pub(super) fn asked(options: &Options) -> AskedClaims {
    let file = ClaimFile::of("device-lending");
    let names = runs(&file).into_iter().map(|run| run.name).collect();
    AskedClaims::new(file, names, gives, options)
}

/// Whether a run gives a value: the first part of the value's name and the paper's scenario are those of the run.
fn gives(run: &str, key: &str) -> bool {
    let (mut words, mut parts) = (run.split(' '), key.split('/'));
    let (kind, part) = (words.next().unwrap_or_default(), parts.next().unwrap_or_default());
    match part {
        "copy" => kind == "copies" && words.next() == parts.next(),
        "bandwidth" => kind == "bandwidthTest" && words.next() == parts.next(),
        "reads" => run == "peer reads",
        "one-way" => run == "one way",
        "ntb" => ["ping-pong 1L-P2P-SW", "ping-pong 2L-P2P-SW"].contains(&run),
        _ => kind == part && words.next() == parts.next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{Rig, of};

    pub(super) fn options() -> Options {
        Options::whole(1)
    }

    /// Every value used by a claim is produced by a run.
    #[test]
    fn claims_name_what_runs_give() {
        let file = ClaimFile::of("device-lending");
        let names: Vec<String> = runs(&file).into_iter().map(|run| run.name).collect();
        assert!(names.iter().collect::<std::collections::BTreeSet<_>>().len() == names.len());
        for key in file.observed() {
            assert!(names.iter().any(|run| gives(run, &key)), "{key}");
        }
    }

    /// Cost of a hop: a longer latency of one switch delays a round trip of posted writes once per traversal.
    #[test]
    fn a_slower_switch_moves_a_ping_pong_by_its_traversals() {
        let at = |latency: &str| {
            let text = topology::Scenario::named("Loc-P2P-SW")
                .text()
                .replace("part = \"", &format!("change.latency = \"{latency}\"\npart = \""));
            let rig = Rig::boot(&options(), "device-lending", &text).unwrap();
            of(&rig.run("gpu-pingpong --count=64").unwrap(), "round trip").unwrap()
        };
        let (slow, fast) = (at("1110 ns"), at("110 ns"));
        // Two traversals per round trip; each side polls, which adds some jitter.
        assert!((slow - fast - 2.0).abs() < 0.11, "{slow} {fast}");
    }

    /// Clocks that drift apart meet all phases of the looks at a GPU's own memory, so that neither a seed nor how far the
    /// host is decides a round trip.
    #[test]
    fn a_ping_pong_by_peers_hangs_on_no_phase() {
        let round_trip = |name: &str, seed: u64| {
            let scenario = IN_GUESTS.iter().chain(&CHASSIS).find(|scenario| scenario.name == name).unwrap();
            let rig = Rig::boot(&Options { seed, ..options() }, "device-lending", &scenario.text()).unwrap();
            of(&rig.run("gpu-pingpong --count=5000").unwrap(), "round trip").unwrap()
        };
        let runs = [("VMRem-P2P", 1), ("NatRem-P2P-IOMMU", 1), ("VMRem-P2P", 2), ("NatRem-P2P-IOMMU", 2)];
        let all = runs.map(|(name, seed)| round_trip(name, seed));
        let (least, most) = all.iter().fold((f64::MAX, 0f64), |(low, high), &us| (low.min(us), high.max(us)));
        assert!(most < 1.003 * least, "{all:?}");
    }

    /// Why the root has a lower bandwidth: it splits a peer's writes into cache lines.
    #[test]
    fn a_root_that_does_not_cut_writes_carries_them_as_fast_as_a_switch() {
        let rate = |text: &str| {
            let rig = Rig::boot(&options(), "device-lending", text).unwrap();
            of(&rig.run("gpu-copy --bytes=1m --count=2").unwrap(), "bandwidth").unwrap()
        };
        let root = topology::Scenario::named("Loc-P2P-Root").text();
        let zen =
            root.replacen("machine = ", "change.host.root_complex.peer_write = \"4 KiB\"\nmachine = ", 1);
        let (cut, whole, switch) =
            (rate(&root), rate(&zen), rate(&topology::Scenario::named("Loc-P2P-SW").text()));
        assert!(cut < 0.95 * switch && whole > 0.98 * switch, "{cut} {whole} {switch}");
    }
}
