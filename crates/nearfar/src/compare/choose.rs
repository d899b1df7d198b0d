//! Chooses the machine, card and memory placement for a directory of measured results.
//!
//! The command line has priority, then the directory's name, then what the host reported about itself. Contradictions
//! are reported.

use std::collections::BTreeSet;
use std::path::Path;

use machine::{
    Count, Diagnostics, Doc, Figure, IommuMode, Kind, Listed, Machine, MeasuredNames, Nearness, Part,
    Provenance, RootPort, Sockets, find_card, find_joined, find_machine, find_relative, slot_of,
};
use results::pciebench::{HostFacts, Setup};

use super::{CompareOptions, MachineSource, apply};
use crate::bench::Bench;

/// A bench, and the reasons for its choice.
#[derive(Debug)]
pub struct Chosen {
    /// Machine, card, sockets, IOMMU and seed to simulate.
    pub bench: Bench,
    /// Notes for the reader on the choice.
    pub notes: Vec<String>,
    /// Whether figures of the machine were fitted to this very directory.
    pub seen: bool,
}

/// The bench for the directory at `path`, with the options' changes.
///
/// # Errors
/// If neither its name nor the options give a machine, a file is wrong, or the machine lacks a socket, slot or IOMMU.
pub fn choose(path: &Path, options: &CompareOptions) -> Result<Chosen, Diagnostics> {
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = resolved.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let mut notes = Vec::new();
    let setup = match Setup::parse(&name) {
        Ok(setup) => Some(setup),
        Err(missing) if options.machine.is_some() => {
            notes.push(format!("the directory's name does not say {missing}; what --sockets and --iommu do not say is s0-s0-s0 and off"));
            None
        }
        Err(missing) => {
            let help = "such as `nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s1-s1-iommu-nosp`; or name the machine with --machine";
            return Err(Diagnostics::about(
                &name,
                format!("the directory's name does not say {missing}"),
                Some(help.into()),
            ));
        }
    };
    notes.extend(setup.iter().flat_map(|setup| setup.doubts.iter().cloned()));
    let mut machine = match (&options.machine, &setup) {
        (Some(machine), _) => {
            let (file, _) = super::tools::machine_file(&options.library, machine);
            Doc::<Machine>::load(&options.library, &file)?
        }
        (None, Some(setup)) => nearest(setup, options, &mut notes)?,
        (None, None) => unreachable!("told above"),
    };
    let mut card: Doc<Part> = match (&options.card, &setup) {
        (Some(card), _) => Doc::load(&options.library, card)?,
        (None, Some(setup)) => find_card(&options.library, &setup.card)?,
        (None, None) => Doc::load(&options.library, "nfp6000")?,
    };
    let facts = HostFacts::read(&resolved);
    let named = setup.as_ref().map(|setup| setup.sockets).unwrap_or_default();
    let named = Sockets { device: named.device, memory: named.memory, warming: named.program };
    let sockets = options.sockets.clone().unwrap_or(named);
    let spoken_of = sockets.device.max(sockets.memory).max(sockets.warming) + 1;
    let count = spoken_of.max(machine.read()?.host.sockets.value.get());
    fit_memory(&mut machine, count, &facts, &mut notes)?;
    apply(&mut machine, "--set", &options.set)?;
    apply(&mut card, "--card-set", &options.card_set)?;
    let iommu = options.iommu.or(setup.as_ref().map(|setup| setup.iommu)).unwrap_or_default();
    let mut machine = machine.read()?;
    if let (Some(setup), None) = (&setup, &options.machine) {
        join(&mut machine, count, setup, options, &mut notes)?;
    }
    if options.machine.is_some() {
        take_slot(&mut machine, sockets.device, &mut notes);
    }
    let bench = Bench { machine, card: card.read()?, sockets, iommu, seed: options.seed };
    check(&name, &bench)?;
    contradictions(&bench, &facts, &mut notes);
    if let Some(unsteady) = bench.machine.measured_as.as_ref().and_then(|known| known.unsteady.as_ref()) {
        notes.push(format!(
            "{} does not repeat its own results: half of the rows measured twice lie {} % or more apart ({})",
            bench.machine.name, unsteady.apart_pct, unsteady.evidence
        ));
    }
    let known = bench.machine.measured_as.as_ref();
    let seen = known.is_some_and(|known| known.directories.contains(&name));
    Ok(Chosen { bench, notes, seen })
}

/// Leaves the card's socket the one slot that the card was in: `slot`, as imports call the one of the sources' own card, or else the
/// widest. Others have other devices.
fn take_slot(machine: &mut Machine, socket: u32, notes: &mut Vec<String>) {
    let is_here = |port: &RootPort| port.socket.value == socket && port.count() > 0;
    let here = machine.host.port.values().filter(|port| is_here(port)).count();
    let own = machine.host.port.get("slot").filter(|port| is_here(port)).map(|_| "slot".to_owned());
    let Some(taken) = own.or_else(|| slot_of(machine, socket)).filter(|_| here > 1) else { return };
    machine.host.port.retain(|name, port| *name == taken || !is_here(port));
    notes.push(format!("the card is in port `{taken}` of {here} at socket {socket} of {}", machine.name));
}

/// Card, sockets and IOMMU in words.
pub(super) fn describe(bench: &Bench) -> String {
    let Sockets { device, memory, warming } = bench.sockets;
    let iommu = match bench.iommu {
        IommuMode::Off => "off",
        IommuMode::Pages4k => "on, 4 KiB pages",
        IommuMode::Superpages => "on, superpages",
    };
    format!("{}, s{device}-s{memory}-s{warming}, IOMMU {iommu}", bench.card.name)
}

/// The names of the machine that a directory was measured on.
pub(crate) fn wanted(setup: &Setup) -> MeasuredNames<'_> {
    let cpu = setup.cpu.trim_start_matches("Xeon-");
    MeasuredNames { cpu, system: &setup.chassis, generation: &setup.generation }
}

fn nearest(
    setup: &Setup,
    options: &CompareOptions,
    notes: &mut Vec<String>,
) -> Result<Doc<Machine>, Diagnostics> {
    let wanted = wanted(setup);
    let cpu = wanted.cpu;
    let relative = || -> Result<(Doc<Machine>, String), Diagnostics> {
        let doc = find_relative(&options.library, wanted, 1)?;
        let name = doc.read()?.name;
        Ok((doc, name))
    };
    match &options.known {
        MachineSource::Own => {}
        MachineSource::File(doc) => return Ok((**doc).clone()),
        MachineSource::Relative => {
            let (mut doc, name) = relative()?;
            doc.stand_in();
            notes.push(format!(
                "{name} stands in for the {cpu}, as asked{}",
                borrowed(options, wanted, &doc)?
            ));
            return Ok(doc);
        }
        MachineSource::DataSheet => {
            let ((mut doc, name), (own, _)) = (relative()?, find_machine(&options.library, wanted)?);
            let borrowed = borrowed(options, wanted, &doc)?;
            doc.stand_in();
            let laid = lay_what_is_public(&mut doc, &own)?;
            notes.push(format!(
                "{name} stands in for the {cpu}, as asked, but for {laid} figures that data sheets, standards or the machine itself give{borrowed}"
            ));
            return Ok(doc);
        }
    }
    let (mut doc, nearness) = find_machine(&options.library, wanted)?;
    let name = doc.read()?.name;
    if matches!(nearness, Nearness::SameGeneration | Nearness::Distant) {
        doc.stand_in();
    }
    let system = &setup.chassis;
    match nearness {
        Nearness::Same => {}
        Nearness::SameCpu => notes.push(format!("no machine file is about `{system}`; {name} has the same CPU")),
        Nearness::SameGeneration => notes.push(format!(
            "no machine file is about an {cpu}: {name} is only the nearest relative, of generation `{}`, and will be off by what the CPUs differ",
            setup.generation
        )),
        Nearness::Distant => notes.push(format!(
            "no machine file is about an {cpu} nor about another of its kind and generation `{}`: {name} stands in and nothing but the shape of the curves can be expected to hold; describe the machine in a file of its own and name it with --machine",
            setup.generation
        )),
    }
    Ok(doc)
}

/// Figures of a stand-in that come from the machine that it stands for; a clause for a note.
fn borrowed(
    options: &CompareOptions,
    wanted: MeasuredNames<'_>,
    stand_in: &Doc<Machine>,
) -> Result<String, Diagnostics> {
    let own = find_machine(&options.library, wanted)?.0.read()?.name;
    let from = format!("relative: {own}");
    let count = stand_in.list()?.iter().filter(|figure| figure.provenance.source.starts_with(&from)).count();
    Ok(match count {
        0 => String::new(),
        count => format!("; {count} of its figures are {own}'s own, which is no test of them"),
    })
}

/// Copies figures of `own` that are public, not measured through a model, into `doc`, and returns their number. The
/// number of sockets and their interconnect are given by the directory.
pub(crate) fn lay_what_is_public(doc: &mut Doc<Machine>, own: &Doc<Machine>) -> Result<usize, Diagnostics> {
    let known: BTreeSet<String> = doc.list()?.into_iter().map(|figure| figure.path).collect();
    let is_public = |figure: &Listed| {
        matches!(figure.provenance.kind, Kind::Datasheet | Kind::Specification | Kind::Measured)
            && known.contains(&figure.path)
            && figure.path != "host.sockets"
    };
    let public: Vec<Listed> = own.list()?.into_iter().filter(is_public).collect();
    for figure in &public {
        doc.set_figure(&figure.path, figure.value.trim(), figure.provenance.clone())?;
    }
    Ok(public.len())
}

/// Extends a machine with fewer sockets than the directory's name mentions: all sockets are alike, and the
/// interconnect is taken from the nearest relative that has one.
fn join(
    machine: &mut Machine,
    count: u32,
    setup: &Setup,
    options: &CompareOptions,
    notes: &mut Vec<String>,
) -> Result<(), Diagnostics> {
    let relatives = !matches!(options.known, MachineSource::Own);
    let known = machine.host.sockets.value.get();
    if count <= known {
        return Ok(());
    }
    let relative = find_joined(&options.library, wanted(setup), count, relatives)?;
    let Some((relative, count)) = relative.and_then(|found| Some((found, Count::new(count)?))) else {
        // `check` reports what is missing.
        return Ok(());
    };
    notes.push(format!(
        "{} was only seen with sockets below {known}; what joins the others is taken from {}",
        machine.name, relative.name
    ));
    let source = format!("relative: {}", relative.name);
    let provenance =
        Provenance { source, kind: Kind::Relative, determined: None, uncertainty: None, without: None };
    machine.host.sockets = Figure { value: count, provenance: provenance.clone() };
    machine.host.interconnect = relative.host.interconnect;
    let slots: Vec<_> = machine.host.port.iter().map(|(name, slot)| (name.clone(), slot.clone())).collect();
    for socket in known..count.get() {
        for (name, slot) in &slots {
            let mut slot = slot.clone();
            slot.socket = Figure { value: socket, provenance: provenance.clone() };
            machine.host.port.insert(format!("{name}-socket{socket}"), slot);
        }
    }
    Ok(())
}

/// Sets the memory size reported in the directory, which decides the memory that the card's commands reach.
fn fit_memory(
    doc: &mut Doc<Machine>,
    sockets: u32,
    facts: &HostFacts,
    notes: &mut Vec<String>,
) -> Result<(), Diagnostics> {
    let machine = doc.read()?;
    let Some(&gib) = facts.node_gib.iter().max() else { return Ok(()) };
    let known = machine.host.dram.size.value.get() >> 30;
    if facts.node_gib.len() == sockets as usize && gib != known {
        notes.push(format!("the directory speaks of {gib} GiB of memory on each socket, {}'s file of {known}; taken as measured", machine.name));
        doc.set("host.dram.size", &format!("{gib} GiB"))?;
    }
    Ok(())
}

/// Checks that the machine has the sockets, slot and IOMMU of a bench. `name` is the origin of the request.
///
/// # Errors
/// What it lacks.
pub fn check(name: &str, bench: &Bench) -> Result<(), Diagnostics> {
    let Bench { machine, sockets: Sockets { device, memory, warming }, .. } = bench;
    let count = machine.host.sockets.value.get();
    let most = device.max(memory).max(warming);
    let wrong = |what: String, help: String| Err(Diagnostics::about(name, what, Some(help)));
    if *most >= count {
        let help = match count {
            1 => "its only socket is 0; name another machine with --machine or others with --sockets".into(),
            _ => format!("its sockets are numbered 0 to {}; name others with --sockets", count - 1),
        };
        return wrong(format!("{} has no socket {most}", machine.name), help);
    }
    if slot_of(machine, *device).is_none() {
        return wrong(
            format!("{} has no slot at socket {device}", machine.name),
            "name others with --sockets".into(),
        );
    }
    if bench.iommu != IommuMode::Off && machine.host.iommu.is_none() {
        let help = "name another machine with --machine, or --iommu off".into();
        return wrong(format!("{} has no IOMMU", machine.name), help);
    }
    Ok(())
}

/// Adds notes on what the host reported about itself that contradicts the bench.
fn contradictions(bench: &Bench, facts: &HostFacts, notes: &mut Vec<String>) {
    if let Some(measured) = facts.iommu.filter(|measured| *measured != bench.iommu) {
        let word = match measured {
            IommuMode::Off => "off",
            IommuMode::Pages4k => "on with 4 KiB pages",
            IommuMode::Superpages => "on with superpages",
        };
        notes.push(format!("sys-kernel-cmdline.txt has the IOMMU {word}; simulated is {}", describe(bench)));
    }
    let (count, known) = (facts.node_gib.len(), bench.machine.host.sockets.value.get() as usize);
    if count > 0 && count != known {
        notes.push(format!(
            "the directory speaks of {count} nodes with memory, {} has {known}",
            bench.machine.name
        ));
    }
    let model = |text: &str| text.to_ascii_lowercase().replace([' ', '-'], "").replace("(r)", "");
    if let (Some(cpu), Some(known)) = (&facts.cpu, &bench.machine.measured_as)
        && !model(cpu).contains(&model(&known.cpu))
    {
        notes.push(format!(
            "sys-cpuinfo.txt is of an {cpu}, {} has an {}",
            bench.machine.name, bench.machine.host.cpu
        ));
    }
    let slot =
        slot_of(&bench.machine, bench.sockets.device).and_then(|slot| bench.machine.host.port.get(&slot));
    if let (Some(payload), Some(port)) = (facts.payload_bytes, slot)
        && payload != port.mps_bytes.value.get()
    {
        let known = port.mps_bytes.value.get();
        notes.push(format!(
            "sys-lspci.txt has a payload limit of {payload} bytes, {}'s slot {known}",
            bench.machine.name
        ));
    }
}
