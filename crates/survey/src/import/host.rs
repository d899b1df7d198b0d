//! The machine's file.

use machine::{Diagnostics, Doc, Library, Machine, MeasuredNames, RootPort, find_machine};

use super::{Extended, FileFigure, ImportOptions, Plugged, plain};
use crate::fact::Sourced;
use crate::model::Survey;
use crate::pci::{LaneSpeed, PciAddress, PciFunction};
use crate::show::size;

/// A machine's file.
pub struct HostFile {
    /// Its name.
    pub file_name: String,
    /// Its text.
    pub text: String,
    /// The machine that it extends.
    pub relative: String,
    /// The slots.
    pub slots: Vec<HostSlot>,
    /// Sockets.
    pub sockets: u32,
    /// Cores of each.
    pub cores: u32,
    /// The generation of PCIe that the relative has.
    pub generation: u32,
    /// Whether the relative has an IOMMU.
    pub has_iommu: bool,
}

/// A slot of the machine.
pub struct HostSlot {
    /// Its root port.
    pub root: PciAddress,
    /// Its name in the file.
    pub name: String,
    /// Its socket.
    pub socket: u32,
}

/// Sockets that a machine's file may have.
const MOST_SOCKETS: u32 = 8;
/// Sizes leave out what firmware and kernel take; modules have multiples of this many bytes.
const MODULE: u64 = 4 << 30;

/// The CPU as directories of results name it: `E5-2630v4`.
pub fn short_cpu(name: &str) -> String {
    let until = name.split('@').next().unwrap_or_default();
    let words = until.split([' ', ',']).map(|word| word.replace("(R)", "").replace("(TM)", ""));
    let left_out = [
        "",
        "Intel",
        "AMD",
        "NVIDIA",
        "Xeon",
        "CPU",
        "0",
        "Processor",
        "Core",
        "Gen",
        "Ryzen",
        "Threadripper",
        "PRO",
    ];
    let is_count = |word: &str| {
        let nth = word.strip_suffix("th").is_some_and(|number| number.bytes().all(|c| c.is_ascii_digit()));
        nth || word.ends_with("-Core") || word.ends_with("-Cores")
    };
    words.filter(|word| !left_out.contains(&word.as_str()) && !is_count(word)).collect()
}

/// The generation of a CPU in the short form of results' names, by its numbers or its name.
fn generation(survey: &Survey, short: &str) -> &'static str {
    // One file is about an Arm server.
    let is_arm = survey.machine.architecture.get().is_some_and(|of| of == "aarch64")
        || survey.machine.cpu_vendor.get().is_some_and(|vendor| vendor.starts_with("implementer"))
        || survey.cpu_name().is_some_and(|name| name.starts_with("Arm part"));
    if is_arm {
        return "grace";
    }
    match (survey.machine.cpu_family.value(), survey.machine.cpu_model.value()) {
        (Some(6), Some(42 | 45)) => return "snb",
        (Some(6), Some(58 | 62)) => return "ib",
        (Some(6), Some(60 | 63 | 69 | 70)) => return "hsw",
        (Some(6), Some(61 | 71 | 79 | 86)) => return "bdw",
        // Desktops of Skylake's core, later ones' included, until Ice Lake.
        (Some(6), Some(78 | 94 | 142 | 158 | 165 | 166)) => return "skx",
        // Stepping 4 is Skylake, those above are Cascade Lake and Cooper Lake: the name tells them apart.
        (Some(6), Some(106 | 108 | 125 | 126 | 140 | 141 | 167)) => return "icx",
        (Some(6), Some(151 | 154 | 183 | 186 | 191)) => return "spr",
        (Some(6), Some(143)) => return "spr",
        (Some(6), Some(207)) => return "emr",
        (Some(6), Some(173)) => return "gnr",
        (Some(23), Some(0..48)) => return "zen1",
        (Some(23), Some(48..)) => return "zen2",
        (Some(25), Some(16..32 | 96..128 | 160..176)) => return "zen4",
        (Some(25), Some(_)) => return "zen3",
        (Some(26), _) => return "zen5",
        _ => {}
    }
    let digits: Vec<u32> =
        short.chars().skip_while(|c| !c.is_ascii_digit()).map_while(|c| c.to_digit(10)).collect();
    let scalable = ["Platinum", "Gold", "Silver", "Bronze"].iter().any(|tier| short.starts_with(tier));
    let is_amd = survey.cpu_name().is_some_and(|name| name.contains("AMD") || name.contains("EPYC"));
    match (&digits[..], scalable) {
        // EPYC 7742, 9354: the last digit; Ryzen and Threadripper: the first.
        ([.., last], _) if short.contains("EPYC") => {
            ["zen1", "zen1", "zen2", "zen3", "zen4", "zen5"][(*last as usize).min(5)]
        }
        ([first, ..], _) if is_amd => {
            ["zen1", "zen1", "zen1", "zen2", "zen2", "zen3", "zen3", "zen4", "zen4", "zen5"]
                [*first as usize % 10]
        }
        // Xeon Gold 6442Y: tier, generation, number.
        ([_, second, ..], true) => ["later", "skx", "clx", "icx", "spr", "emr"][(*second as usize).min(5)],
        _ if short.starts_with("Max") => "spr",
        ([6, 7 | 9, ..], false) if short.ends_with(['P', 'E']) => "gnr",
        // Xeon W: 2145 and 3175X, 2245, 3345, 2465 and 3475X.
        ([2 | 3, second, ..], false) if short.starts_with("W-") => {
            ["skx", "skx", "clx", "icx", "spr", "emr"][(*second as usize).min(5)]
        }
        // Core i9-10980XE has a server's die, i9-13900K and i7-4770 have a desktop's.
        (_, false) if ["i3-", "i5-", "i7-", "i9-"].iter().any(|tier| short.starts_with(tier)) => {
            let number: Vec<u32> = short[3..].chars().map_while(|c| c.to_digit(10)).collect();
            match number[..] {
                [7, 8, ..] | [7 | 9, 9 | 8, _, _] | [1, 0, 9, ..] if short.ends_with(['X', 'E']) => "clx",
                [1, 1, _, _, _] => "icx",
                [1, 2..=4, _, _, _] => "spr",
                [2, ..] => "snb",
                [3, ..] => "ib",
                [4, ..] => "hsw",
                [5, ..] => "bdw",
                [1 | 6..=9, ..] => "skx",
                _ => "later",
            }
        }
        _ => match short.rsplit_once('v') {
            Some((_, "2")) => "ib",
            Some((_, "3")) => "hsw",
            Some((_, "4")) => "bdw",
            // Names without a version are of the first generation.
            _ if short.starts_with("E5-") || short.starts_with("E7-") => "snb",
            // Skylake and Cascade Lake have one number; where there is no name, the later one is likelier.
            _ if survey.machine.cpu_model.value() == Some(85) => "clx",
            _ => "later",
        },
    }
}

pub fn write(
    survey: &Survey,
    library: &Library,
    options: ImportOptions<'_>,
    plugged: &[Plugged],
    notes: &mut Vec<String>,
) -> Result<HostFile, Diagnostics> {
    let cpu = survey.cpu_name().unwrap_or_else(|| "unknown".into());
    let short = short_cpu(&cpu);
    let doc = match options.from {
        Some(name) => Doc::<Machine>::load(library, name)?,
        None => {
            let wanted =
                MeasuredNames { cpu: &short, system: options.name, generation: generation(survey, &short) };
            find_machine(library, wanted)?.0
        }
    };
    let relative = doc.read()?;
    if short_cpu(&relative.host.cpu) != short {
        notes.push(format!(
            "no machine has been measured with a CPU called {cpu}: latencies, caches' policies, root complex and IOMMU are {}'s ({})",
            relative.name, relative.host.cpu
        ));
    }
    let nodes = survey.nodes_with_cpus();
    let count = if nodes.is_empty() { survey.packages.len() } else { nodes.len() } as u32;
    let sockets = count.clamp(1, MOST_SOCKETS);
    if count > MOST_SOCKETS {
        notes.push(format!("{count} nodes with CPUs are more than the {MOST_SOCKETS} sockets that can be simulated; the first are taken"));
    }
    if survey.packages.len() as u32 != count && !survey.packages.is_empty() && !nodes.is_empty() {
        notes.push(format!(
            "{} packages have {count} nodes: each node is taken for a socket, and what joins two of a package for an interconnect",
            survey.packages.len()
        ));
    }
    let summary: String = plain(survey.overview().lines().next().unwrap_or_default());
    let text = format!(
        "# A real machine, from {}. Figures say where they were read, or that they are assumed; all others are\n\
         # {}'s. `nearfar machines {}.toml` shows each with its source, `nearfar reference machine` what it means.\n\
         name = \"{}\"\n\
         summary = \"{summary}\"\n\
         extends = \"{}\"\n\
         \n\
         [measured_as]\n\
         cpu = \"{}\"\n\
         system = \"{}\"\n\
         directories = []\n\
         \n\
         [host]\n\
         cpu = \"{}\"\n",
        sources(survey),
        relative.name,
        options.name,
        options.name,
        relative.name,
        plain(&short),
        options.name,
        plain(&cpu),
    );
    let mut file = Extended { library, name: format!("{}.toml", options.name), text };
    let mut host = HostFile {
        file_name: file.name.clone(),
        text: String::new(),
        relative: relative.name.clone(),
        slots: Vec::new(),
        sockets: relative.host.sockets.value.get(),
        cores: relative.host.core.count.value.get(),
        has_iommu: relative.host.iommu.is_some(),
        generation: relative.host.port.values().map(|port| port.generation.value.get()).max().unwrap_or(3),
    };
    if count > 0 {
        joined(survey, sockets, &relative, &mut file, &mut host, notes);
    }
    processors(survey, host.sockets, &mut file, &mut host, notes);
    memory(survey, &nodes, &mut file, notes);
    ports(survey, &relative, plugged, &mut file, &mut host, notes);
    host.text = file.text;
    Ok(host)
}

/// The sources' names, for a comment.
fn sources(survey: &Survey) -> String {
    let names: Vec<_> =
        survey.sources.iter().map(|source| format!("{} ({})", source.name, source.format)).collect();
    plain(&crate::show::shortened(&names.join(", "), 300))
}

fn read_from<T: std::fmt::Display + PartialEq>(survey: &Survey, fact: &Sourced<T>) -> String {
    fact.origin().map_or_else(|| "assumed".into(), |origin| survey.figure_source(origin))
}

fn note(result: Result<(), String>, what: &str, notes: &mut Vec<String>) {
    if let Err(reason) = result {
        notes.push(format!("{what} stays as the relative's: {reason}"));
    }
}

/// Sockets, and what joins them.
fn joined(
    survey: &Survey,
    sockets: u32,
    relative: &Machine,
    file: &mut Extended<'_>,
    host: &mut HostFile,
    notes: &mut Vec<String>,
) {
    let of_node = survey.nodes.values().find_map(|node| node.cpus.origin());
    let of_package = survey.cpus.values().find_map(|cpu| cpu.package.origin());
    let origin = of_node.or(of_package);
    let source = origin
        .map_or_else(|| "measured: packages of the sources".into(), |origin| survey.figure_source(origin));
    let mut lines = vec![("sockets".to_owned(), sockets.to_string(), source)];
    if sockets > 1 && sockets != relative.host.sockets.value.get() {
        let pairs = (0..sockets).flat_map(|a| (a + 1..sockets).map(move |b| format!("[{a}, {b}]")));
        let pairs = format!("[{}]", pairs.collect::<Vec<_>>().join(", "));
        lines.push(("interconnect.links".into(), pairs, "assumed: every two are joined".into()));
        notes.push("which sockets are joined directly is not known: every two are taken to be".into());
    }
    if sockets == 1 && relative.host.interconnect.is_some() {
        lines.push((
            "interconnect.links".into(),
            "[]".into(),
            "assumed: one socket has nothing to join".into(),
        ));
    }
    let near = relative.host.interconnect.as_ref().and_then(|interconnect| interconnect.near.as_ref());
    if near.is_some() && sockets != relative.host.sockets.value.get() {
        lines.push((
            "interconnect.near.links".into(),
            "[]".into(),
            "assumed: every node is a package of its own".into(),
        ));
    }
    // Slots of the relative at sockets that are not there: those of this machine come later.
    for (name, port) in &relative.host.port {
        if port.socket.value >= sockets {
            lines.push((
                format!("port.{name}.socket"),
                "0".into(),
                "assumed: no such socket is there".into(),
            ));
        }
    }
    if relative.host.dram.sockets.is_some() {
        lines.push(("dram.sockets".into(), sockets.to_string(), "assumed: every socket has memory".into()));
    }
    let mut result = file.add::<Machine>(&lines);
    if result.is_err() && relative.host.interconnect.is_none() && sockets > 1 {
        // A relative of one socket has nothing that joins two: take it from one that has.
        const JOINED: &str = "dell-t430";
        let own = format!("extends = \"{}\"", relative.name);
        file.text = file.text.replace(&own, &format!("extends = \"{JOINED}\""));
        notes.push(format!("{} has one socket: {JOINED} stands for the machine instead", relative.name));
        host.relative = JOINED.to_owned();
        result = file.add::<Machine>(&lines);
    }
    // So many sockets may have more memory than can be simulated with the relative's of each.
    for gib in [64, 32, 16, 8] {
        if result.is_err() {
            let source = format!("assumed: as much as can be simulated of {sockets} sockets");
            let less = ("dram.size".to_owned(), format!("\"{gib} GiB\""), source);
            result = file.add::<Machine>(&[&lines[..], &[less]].concat());
        }
    }
    if result.is_ok() {
        host.sockets = sockets;
    }
    note(result, "the number of sockets", notes);
}

/// Cores, their clock and caches.
fn processors(
    survey: &Survey,
    sockets: u32,
    file: &mut Extended<'_>,
    host: &mut HostFile,
    notes: &mut Vec<String>,
) {
    let cores = survey.cores() as u32 / sockets.max(1);
    if cores > 0 {
        let told = survey.cpus.values().find_map(|cpu| cpu.core.origin());
        let source = match told {
            Some(origin) => survey.figure_source(origin),
            None => {
                notes.push("which CPUs are threads of one core is not said: each counts as a core".into());
                "assumed: every CPU is a core".into()
            }
        };
        let mut result = file.add::<Machine>(&[("core.count".into(), cores.to_string(), source)]);
        if result.is_ok() {
            host.cores = cores;
        }
        for fewer in [64, 48, 32, 16].into_iter().filter(|&fewer| fewer < cores) {
            let source = format!("assumed: as many as can be simulated of {cores}");
            if result.is_err()
                && file.add::<Machine>(&[("core.count".into(), fewer.to_string(), source)]).is_ok()
            {
                notes.push(format!("{cores} cores of a socket are more than can be simulated: {fewer} are"));
                (host.cores, result) = (fewer, Ok(()));
            }
        }
        note(result, "the number of cores", notes);
    }
    let name = survey.cpu_name().unwrap_or_default();
    let nominal = name.split('@').nth(1).map(|clock| clock.trim().replace("GHz", " GHz"));
    if let Some(clock) = nominal.filter(|clock| clock.ends_with(" GHz")) {
        let source = "measured: the CPU's name, its nominal clock".into();
        note(
            file.add::<Machine>(&[("core.frequency".into(), format!("\"{clock}\""), source)]),
            "the clock",
            notes,
        );
    }
    let kinds: std::collections::BTreeSet<_> = survey.cpus.values().flat_map(|cpu| cpu.kind.get()).collect();
    if kinds.len() > 1 {
        notes.push("cores of several kinds are simulated as one kind".into());
    }
    // A node's last-level cache: all of its parts, where it has several.
    let level =
        survey.caches.iter().filter(|((_, kind, _), _)| kind.is_empty()).map(|((level, ..), _)| *level).max();
    let last = survey.caches.iter().filter(|((of, ..), _)| Some(*of) == level.filter(|&level| level >= 3));
    let last: Vec<_> =
        last.filter_map(|(_, cache)| Some((cache.size_bytes.value()?, cache.size_bytes.origin()?))).collect();
    if let Some(&(_, origin)) = last.first() {
        let bytes = last.iter().map(|(bytes, _)| bytes).sum::<u64>() / u64::from(sockets.max(1));
        let line = |key: &str, value: String, source: String| -> FileFigure {
            (format!("llc.{key}"), value, source)
        };
        let size_line = line("size", format!("\"{}\"", exact(bytes)), survey.figure_source(origin));
        let ways = survey.caches.iter().filter(|((of, ..), _)| Some(*of) == level).find_map(|(_, cache)| {
            Some(line("ways", cache.ways.value()?.to_string(), survey.figure_source(cache.ways.origin()?)))
        });
        let slices = |count: u32, why: &str| line("slices", count.to_string(), format!("assumed: {why}"));
        let tries = [
            vec![Some(size_line.clone())],
            vec![Some(size_line.clone()), ways.clone()],
            vec![Some(size_line.clone()), ways.clone(), Some(slices(host.cores, "one for each core"))],
            vec![Some(size_line.clone()), ways, Some(slices(1, "how many there are is not known"))],
            vec![Some(size_line), Some(slices(1, "how many there are is not known"))],
        ];
        let mut result = Err(String::new());
        for lines in tries {
            let lines: Vec<FileFigure> = lines.into_iter().flatten().collect();
            result = file.add::<Machine>(&lines);
            if result.is_ok() {
                break;
            }
        }
        note(result, &format!("the last-level cache of {}", size(bytes)), notes);
    }
}

/// A size as files spell it.
fn exact(bytes: u64) -> String {
    match bytes {
        bytes if bytes % (1 << 30) == 0 => format!("{} GiB", bytes >> 30),
        bytes if bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}

fn memory(survey: &Survey, nodes: &[u32], file: &mut Extended<'_>, notes: &mut Vec<String>) {
    let sizes = nodes.iter().filter_map(|node| {
        let node = survey.nodes.get(node)?;
        Some((node.memory_bytes.value().filter(|&bytes| bytes > 0)?, node.memory_bytes.origin()?))
    });
    let mut sizes: Vec<_> = sizes.collect();
    if sizes.is_empty() {
        let whole = survey.machine.memory_bytes.value().zip(survey.machine.memory_bytes.origin());
        sizes.extend(whole.map(|(bytes, origin)| (bytes / nodes.len().max(1) as u64, origin)));
    }
    let rounded = |bytes: u64| bytes.div_ceil(MODULE).saturating_mul(MODULE);
    let Some(&(most, origin)) = sizes.iter().max_by_key(|(bytes, _)| *bytes) else {
        return notes.push("the size of memory is not said".into());
    };
    if sizes.iter().any(|(bytes, _)| rounded(*bytes) != rounded(most)) {
        notes.push(format!(
            "nodes have memory of different sizes: each is taken to have {}",
            size(rounded(most))
        ));
    }
    if survey.nodes.values().any(|node| node.cache_bytes.get().is_some()) {
        notes.push("memory-side caches are not simulated: memory is taken for DRAM".into());
    }
    let others = survey.nodes.len() - nodes.len();
    if others > 0 {
        notes.push(format!(
            "{others} nodes without CPUs (persistent, attached or a GPU's memory) are not simulated"
        ));
    }
    let value = |bytes: u64| format!("\"{}\"", exact(bytes));
    // What is told takes the place of what was assumed so that the sockets have room.
    file.text = file
        .text
        .lines()
        .filter(|line| !line.starts_with("dram.size = "))
        .map(|line| format!("{line}\n"))
        .collect();
    let source = format!("{}, rounded up to modules", survey.figure_source(origin));
    let result = file.add::<Machine>(&[("dram.size".into(), value(rounded(most)), source)]);
    if let Err(reason) = result {
        // What cannot be told apart is as much as can.
        let less = (0..7).rev().map(|power| MODULE << power).filter(|&bytes| bytes < rounded(most));
        let mut fits = less.filter(|&bytes| {
            let source = format!("assumed: as much as can be simulated of {}", size(rounded(most)));
            file.add::<Machine>(&[("dram.size".into(), value(bytes), source)]).is_ok()
        });
        let taken = fits.next().map_or("the relative's".to_owned(), size);
        notes.push(format!("memory of a node is {taken} instead of {}: {reason}", size(rounded(most))));
    }
}

/// Credits of a port at a generation, whose flow control may not express as many as it has.
pub fn credits_at(port: &RootPort, generation: u32) -> Vec<(&'static str, u32)> {
    port.credits.with_limits(generation).map(|(key, figure, most)| (key, figure.value.min(most))).to_vec()
}

/// How sure it is that a card is the one of pcie-bench's results; lower is surer. Its chips have several numbers.
fn benched_rank(function: &PciFunction) -> Option<u32> {
    let name = function.name.get().map_or("", String::as_str);
    let is_netronome = function.vendor.value().is_some_and(|id| id.0 == 0x19ee) || name.contains("Netronome");
    let has = |number: u16| {
        function.device.value().is_some_and(|id| id.0 == number) || name.contains(&format!("{number:04x}"))
    };
    is_netronome.then(|| [0x6000, 0x4000].iter().position(|&number| has(number)).unwrap_or(2) as u32)
}

/// Root ports with devices below them, each a slot. The one of pcie-bench's card, or else of the widest link, is `slot`.
fn ports(
    survey: &Survey,
    relative: &Machine,
    plugged: &[Plugged],
    file: &mut Extended<'_>,
    host: &mut HostFile,
    notes: &mut Vec<String>,
) {
    let mut roots: Vec<(PciAddress, PciAddress)> = Vec::new();
    for device in plugged {
        let root = device.root();
        if !roots.iter().any(|(known, _)| *known == root) {
            // The link below the port is what the port's registers, or the lower end's, say.
            let lower = device.above.len().checked_sub(2).map_or(device.address, |place| device.above[place]);
            roots.push((root, if device.above.is_empty() { device.address } else { lower }));
        }
    }
    let rate = |(_, lower): &(PciAddress, PciAddress)| survey.functions[lower].gb_per_s().unwrap_or_default();
    let benched = plugged
        .iter()
        .filter_map(|device| Some((benched_rank(&survey.functions[&device.address])?, device)))
        .min_by_key(|(rank, device)| (*rank, device.address))
        .map(|(_, device)| device);
    let widest = roots.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)).then(b.0.cmp(&a.0)));
    let main = benched.map(Plugged::root).or(widest.map(|(root, _)| *root));
    let Some(main) = main else {
        return notes.push("no device is in a slot: those of the relative are taken".into());
    };
    if let Some(card) = benched {
        notes.push(format!("port `slot` is {main}, with pcie-bench's card {}", card.address));
    }
    roots.sort_by_key(|(root, _)| (*root != main, *root));
    // Ports whose node, and whose link, no source says.
    let mut unknown = (Vec::new(), Vec::new());
    let like = relative.host.port.get("slot").or_else(|| relative.host.port.values().next());
    let mut inherited = like.map_or(host.generation, |port| port.generation.value.get());
    for (root, lower) in roots.into_iter().take(64) {
        let name = if root == main { "slot".to_owned() } else { slot_name(root) };
        let mut lines = port_lines(survey, [root, lower], &name, host.generation, notes, &mut unknown);
        let generation = lines
            .iter()
            .find(|line| line.0.ends_with(".generation"))
            .and_then(|line| line.1.parse().ok())
            .unwrap_or(inherited);
        if let Some(like) = like {
            let before = credits_at(like, inherited);
            let own = credits_at(like, generation).into_iter().filter(|credits| !before.contains(credits));
            lines.extend(own.map(|(key, credits)| {
                let source =
                    format!("relative: {}, as far as generation {generation} can tell", relative.name);
                (format!("port.{name}.credits.{key}"), credits.to_string(), source)
            }));
        }
        let before = file.text.clone();
        let devices = plugged.iter().filter(|device| device.root() == root);
        let devices: Vec<_> = devices.take(4).map(|device| plain(&survey.describe(device.address))).collect();
        file.text += &format!("# {root}: {}\n", devices.join(", "));
        if root != main {
            file.text += &format!("port.{name}.extends = \"slot\"\n");
        }
        // A port of the relative may have what is impossible at an old rate: then it keeps its own, and the card's decides.
        let is_rate = |line: &FileFigure| line.0.ends_with(".generation") || line.0.contains(".credits.");
        let others: Vec<FileFigure> = lines.iter().filter(|line| !is_rate(line)).cloned().collect();
        let mut added = file.add::<Machine>(&lines);
        let mut has_rate = true;
        if let Err(reason) = &added
            && file.add::<Machine>(&others).is_ok()
        {
            notes.push(format!("the slot of {root} can have a higher rate than its card: {reason}"));
            (added, has_rate) = (Ok(()), false);
        }
        match added {
            Ok(()) => {
                let socket = survey.socket_of(root).0;
                host.slots.push(HostSlot { root, name, socket });
                // The others take what this one does not give.
                if root == main && has_rate {
                    inherited = generation;
                }
            }
            Err(reason) => {
                file.text = before;
                notes.push(format!("the slot of {root} is left out: {reason}"));
            }
        }
    }
    if !unknown.0.is_empty() {
        notes.push(format!("no source says the node of {}: taken to be at socket 0", unknown.0.join(", ")));
    }
    if !unknown.1.is_empty() {
        notes.push(format!("no source says the links of {}: they are the relative's", unknown.1.join(", ")));
    }
    // Slots of the relative that the machine does not have.
    for name in relative.host.port.keys().filter(|name| *name != "slot") {
        if host.slots.iter().any(|slot| slot.name == *name) {
            continue;
        }
        let none =
            (format!("port.{name}.slots"), "0".to_owned(), "measured: no device was found there".to_owned());
        let _ = file.add::<Machine>(&[none]);
    }
}

impl HostFile {
    /// Adds a slot `name` like `like` at the socket that is the farthest from it. False if there is one socket alone.
    pub fn add_far_slot(&mut self, survey: &Survey, library: &Library, like: &str, name: &str) -> bool {
        let Some(here) = self.slots.iter().find(|slot| slot.name == like).map(|slot| slot.socket) else {
            return false;
        };
        let nodes = survey.nodes_with_cpus();
        let distance = |socket: u32| {
            let pair = nodes.get(here as usize).zip(nodes.get(socket as usize));
            pair.and_then(|(a, b)| survey.distances.get(&(*a, *b))).copied().unwrap_or_default()
        };
        let others = (0..self.sockets).filter(|&socket| socket != here);
        let Some(far) = others.max_by_key(|&socket| (distance(socket), std::cmp::Reverse(socket))) else {
            return false;
        };
        let mut file = Extended { library, name: self.file_name.clone(), text: self.text.clone() };
        file.text += &format!("port.{name}.extends = \"{like}\"\n");
        let source = format!(
            "assumed: a slot like `{like}` at the socket farthest from it, to ask what it would cost there"
        );
        let line = (format!("port.{name}.socket"), far.to_string(), source);
        let is_added = file.add::<Machine>(&[line]).is_ok();
        if is_added {
            self.text = file.text;
        }
        is_added
    }
}

/// A slot's name, by the address of its port.
fn slot_name(root: PciAddress) -> String {
    format!("at-{}", root.to_string().replace([':', '.'], "-"))
}

fn port_lines(
    survey: &Survey,
    [root, lower]: [PciAddress; 2],
    name: &str,
    likely: u32,
    notes: &mut Vec<String>,
    unknown: &mut (Vec<String>, Vec<String>),
) -> Vec<FileFigure> {
    let (port, device) = (&survey.functions[&root], &survey.functions[&lower]);
    let key = |key: &str| format!("port.{name}.{key}");
    let (socket, is_told) = survey.socket_of(root);
    let told = [root, lower].iter().find_map(|address| {
        let function = &survey.functions[address];
        function.node.origin().or(function.local_cpus.origin())
    });
    let source = match told.filter(|_| is_told) {
        Some(origin) => survey.figure_source(origin),
        None => {
            if survey.nodes_with_cpus().len() > 1 {
                unknown.0.push(root.to_string());
            }
            "assumed: no source says it".into()
        }
    };
    let mut lines = vec![(key("socket"), socket.to_string(), source)];
    // Of a card's own root port, what the port can do, unless their link is less than both can; where there is none, or it does not
    // say, what the link does.
    let link = survey.link_above(lower).filter(|link| link.above == root);
    let is_lowered = link.is_some_and(|link| link.is_lowered() && !survey.idles(lower, &link));
    let speeds = [&device.speed, &port.speed];
    let widths = [&device.width, &port.width];
    let best = (&port.max_speed, &port.max_width);
    let speed = speeds.into_iter().chain([best.0]).find(|fact| fact.get().is_some());
    let width = widths.into_iter().chain([best.1]).find(|fact| fact.get().is_some());
    let speed = if is_lowered || best.0.get().is_none() { speed } else { Some(best.0) };
    let width = if is_lowered || best.1.get().is_none() { width } else { Some(best.1) };
    if let Some((fact, speed)) = speed.and_then(|fact| Some((fact, fact.value()?))) {
        lines.push((key("generation"), capped(speed, root, notes).to_string(), read_from(survey, fact)));
    } else if let Some((speed, width)) = device.assumed_link(likely).or(port.assumed_link(likely)) {
        let source = "assumed: a link that carries what is measured";
        lines.push((key("generation"), speed.generation().min(5).to_string(), source.into()));
        lines.push((key("width"), width.to_string(), source.into()));
    } else {
        unknown.1.push(root.to_string());
    }
    if let Some((fact, width)) = width.and_then(|fact| Some((fact, fact.value()?))) {
        lines.push((key("width"), width.to_string(), read_from(survey, fact)));
    }
    for (what, fact) in
        [("mps_bytes", &device.mps_bytes), ("mrrs_bytes", &device.mrrs_bytes), ("rcb_bytes", &port.rcb_bytes)]
    {
        if let Some(bytes) = fact.value() {
            lines.push((key(what), bytes.to_string(), read_from(survey, fact)));
        }
    }
    lines
}

/// The generation, as far as it is simulated.
fn capped(speed: LaneSpeed, address: PciAddress, notes: &mut Vec<String>) -> u32 {
    if speed.generation() > 5 {
        notes.push(format!("{address}: links of the sixth generation are simulated as the fifth"));
    }
    speed.generation().min(5)
}

#[cfg(test)]
mod tests {
    use super::short_cpu;

    #[test]
    fn cpus_are_named_as_results_do() {
        for (name, short) in [
            ("Intel(R) Xeon(R) CPU E5-2630 v4 @ 2.20GHz", "E5-2630v4"),
            ("Intel(R) Xeon(R) CPU E5-2630 0 @ 2.30GHz", "E5-2630"),
            ("Intel(R) Xeon(R) Platinum 8160 CPU @ 2.10GHz", "Platinum8160"),
            ("AMD EPYC 7742 64-Core Processor", "EPYC7742"),
            ("AMD Ryzen Threadripper PRO 7955WX 16-Cores", "7955WX"),
            ("12th Gen Intel(R) Core(TM) i9-12900K", "i9-12900K"),
            ("Intel(R) Xeon(R) 6980P", "6980P"),
        ] {
            assert_eq!(short_cpu(name), short);
        }
    }
}
