//! Finds the machine and card files for a directory of measured results.

use crate::diagnostic::Diagnostics;
use crate::doc::Doc;
use crate::host::Machine;
use crate::library::Library;
use crate::part::Part;
use crate::suggest;

/// How similar a file's machine is to the measured one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nearness {
    /// The same CPU in the same chassis.
    Same,
    /// The same CPU in another chassis.
    SameCpu,
    /// Another CPU of the same generation and kind of machine.
    SameGeneration,
    /// Another generation or kind of machine.
    Distant,
}

/// What the name of a directory of results says about its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasuredNames<'a> {
    /// The CPU, such as `E5-2630v4`.
    pub cpu: &'a str,
    /// The chassis, such as `dell-t430`.
    pub system: &'a str,
    /// The CPU's generation in pcie-bench's short form, such as `bdw`.
    pub generation: &'a str,
}

/// Similarity, distance of generations, whether nothing was measured, whether the chassis differs; lower is better.
type Rank = (Nearness, u32, bool, bool);

/// The file most similar to a measured machine: same CPU and chassis, same CPU, same generation and kind (server or
/// desktop), or whatever comes closest. Files of measured machines are preferred.
///
/// # Errors
/// If no file describes a measured machine, or a file is invalid.
pub fn find_machine(
    library: &Library,
    wanted: MeasuredNames<'_>,
) -> Result<(Doc<Machine>, Nearness), Diagnostics> {
    // A box that stalls without a pattern stands for no other.
    let is_steady = |machine: &Machine| {
        machine.measured_as.as_ref().is_none_or(|known| known.unsteady.is_none()) || is_of(machine, wanted)
    };
    nearest(library, wanted, is_steady)?.ok_or_else(|| {
        let names = library.names("machines");
        let what = format!("no machine file is about a measured machine, to stand for `{}`", wanted.system);
        let help = format!("name one with --machine: {}", suggest::list(names.iter().map(String::as_str)));
        Diagnostics::about(wanted.cpu, what, Some(help))
    })
}

/// The file most similar to a measured machine, among those for other measured CPUs with at least `sockets` sockets,
/// as if the machine had no file of its own.
///
/// # Errors
/// If there is none, or a file is invalid.
pub fn find_relative(
    library: &Library,
    wanted: MeasuredNames<'_>,
    sockets: u32,
) -> Result<Doc<Machine>, Diagnostics> {
    // A file that only has related machines' figures may have them from this very machine.
    let was_measured =
        |machine: &Machine| machine.measured_as.as_ref().is_some_and(|known| !known.directories.is_empty());
    let serves = |machine: &Machine| {
        !is_of(machine, wanted) && was_measured(machine) && machine.host.sockets.value.get() >= sockets
    };
    let found = nearest(library, wanted, serves)?;
    found.map(|(doc, _)| doc).ok_or_else(|| {
        let what = format!("no machine file is about a relative of `{}`", wanted.system);
        Diagnostics::about(wanted.cpu, what, Some("name a machine with --machine".into()))
    })
}

/// The most similar machine with at least `sockets` sockets, for its interconnect: the machine itself, or one of its
/// `relatives`; `None` if no measured one has as many.
///
/// # Errors
/// If a file is invalid.
pub fn find_joined(
    library: &Library,
    wanted: MeasuredNames<'_>,
    sockets: u32,
    relatives: bool,
) -> Result<Option<Machine>, Diagnostics> {
    let serves = |machine: &Machine| {
        machine.host.sockets.value.get() == sockets && !(relatives && is_of(machine, wanted))
    };
    let found = nearest(library, wanted, serves)?;
    found.map(|(doc, _)| doc.read()).transpose()
}

/// Whether the machine's file describes that CPU.
fn is_of(machine: &Machine, wanted: MeasuredNames<'_>) -> bool {
    machine.measured_as.as_ref().is_some_and(|known| same(&known.cpu, wanted.cpu))
}

/// The most similar file among those accepted by `serves`.
fn nearest(
    library: &Library,
    wanted: MeasuredNames<'_>,
    serves: impl Fn(&Machine) -> bool,
) -> Result<Option<(Doc<Machine>, Nearness)>, Diagnostics> {
    let mut best: Option<(Rank, &String)> = None;
    let (names, aside) = (library.names("machines"), library.aside());
    for name in &names {
        let machine = Doc::<Machine>::load(&aside, name)?.read()?;
        let Some(known) = machine.measured_as.as_ref().filter(|_| serves(&machine)) else { continue };
        let same_box = known.system.as_deref().is_some_and(|s| same(s, wanted.system));
        let distance = distance(&machine.host.microarchitecture, wanted);
        let nearness = match (same(&known.cpu, wanted.cpu), same_box, distance) {
            (true, true, _) => Nearness::Same,
            (true, false, _) => Nearness::SameCpu,
            (false, _, 0) => Nearness::SameGeneration,
            _ => Nearness::Distant,
        };
        let rank = (nearness, distance, known.directories.is_empty(), !same_box);
        if best.as_ref().is_none_or(|(least, _)| rank < *least) {
            best = Some((rank, name));
        }
    }
    let found = |((nearness, ..), name): (Rank, &String)| Ok((Doc::load(library, name)?, nearness));
    best.map(found).transpose()
}

/// Whether two names differ only in case and separators.
fn same(a: &str, b: &str) -> bool {
    let bare = |text: &str| text.to_ascii_lowercase().replace(['-', '_', ' '], "");
    bare(a) == bare(b)
}

/// CPU generations: pcie-bench's short name, name in machine files, and order.
const GENERATIONS: [(&str, &str, u32); 17] = [
    ("snb", "sandy-bridge", 0),
    ("ib", "ivy-bridge", 1),
    ("ivb", "ivy-bridge", 1),
    ("hsw", "haswell", 2),
    ("bdw", "broadwell", 3),
    ("skx", "skylake", 4),
    ("clx", "cascade-lake", 5),
    ("icx", "ice-lake", 6),
    ("spr", "sapphire-rapids", 7),
    ("emr", "emerald-rapids", 8),
    ("gnr", "granite-rapids", 9),
    ("zen1", "zen-1", OTHER_VENDOR),
    ("zen2", "zen-2", OTHER_VENDOR + 1),
    ("zen3", "zen-3", OTHER_VENDOR + 2),
    ("zen4", "zen-4", OTHER_VENDOR + 3),
    ("zen5", "zen-5", OTHER_VENDOR + 4),
    ("grace", "neoverse-v2", 2 * OTHER_VENDOR),
];
/// Where another vendor's generations begin: farther than all of one.
const OTHER_VENDOR: u32 = 40;
/// The last generation that pcie-bench was measured on: what is not known is nearest to it, but not of it.
const MEASURED: u32 = 3;
/// How many generations a desktop is from a server of its own: their meshes, roots and links differ, but those of a desktop many
/// generations older differ more.
const OTHER_KIND: u32 = 3;

/// Distance of a microarchitecture from the CPU: zero for the same generation and kind. Servers and desktops differ
/// more than neighbouring generations.
fn distance(microarchitecture: &str, wanted: MeasuredNames<'_>) -> u32 {
    let of_cpu = GENERATIONS.iter().find(|(short, ..)| *short == wanted.generation);
    let of_design = GENERATIONS.iter().find(|(_, long, _)| microarchitecture.starts_with(long));
    let number = |generation: Option<&(_, _, u32)>| generation.map_or(MEASURED, |(.., number)| *number);
    let is_known = of_cpu.is_some() && of_design.is_some();
    let generations = number(of_cpu).abs_diff(number(of_design)) + u32::from(!is_known);
    // Desktops are E3 and Core; E5, E7, D, Silver, Gold and Platinum are servers.
    let server = !["E3", "i3", "i5", "i7", "i9"].iter().any(|begin| wanted.cpu.starts_with(begin));
    let of_servers = ["-ep", "-sp", "-ap"].iter().any(|end| microarchitecture.ends_with(end));
    let other_kind = (of_servers || microarchitecture.starts_with("zen")) != server;
    generations + u32::from(other_kind) * OTHER_KIND
}

/// The file of the card that results call `card`, such as `nfp6000-1.2GHz`.
///
/// # Errors
/// If there is none.
pub fn find_card(library: &Library, card: &str) -> Result<Doc<Part>, Diagnostics> {
    let card = card.split('-').next().unwrap_or(card);
    let names = library.names("machines/parts");
    for name in &names {
        let known = Doc::<Part>::load(&library.aside(), name)?.read()?.measured_as;
        if known.is_some_and(|known| known.eq_ignore_ascii_case(card)) {
            return Doc::load(library, name);
        }
    }
    let help = format!(
        "there are {}; `nearfar compare --card` names one",
        suggest::list(names.iter().map(String::as_str))
    );
    Err(Diagnostics::about(card, format!("no part file is about a `{card}`"), Some(help)))
}
