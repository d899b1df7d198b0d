//! A machine in one line, `sockets:2 cores:32 mem:8ch ddr5-4800 slots:4x16g5`: what the line says, and the rest from
//! the machine that is most alike.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::doc::Doc;
use crate::host::{Host, Machine, RootPort};
use crate::library::Library;
use crate::link::{LinkGeneration, LinkWidth};
use crate::source::{Place, Source};
use crate::suggest;
use units::{ByteRate, Bytes, Frequency};

/// A machine's file made of one line.
#[derive(Debug, Clone)]
pub struct Outline {
    /// The file.
    pub text: String,
    /// The machine that it extends.
    pub relative: String,
    /// What the file has from the relative although it matters: the words to say it in the line, and the values.
    pub inherited: Vec<String>,
    /// A socket's memory, if that is less than the line says: no more can be simulated.
    pub memory: Option<Bytes>,
}

/// Keys of the line, each with an example.
const KEYS: [(&str, &str); 7] = [
    ("sockets", "sockets:2"),
    ("cores", "cores:32 (of each socket)"),
    ("clock", "clock:2.6GHz"),
    ("llc", "llc:60MiB (of each socket)"),
    ("mem", "mem:8ch ddr5-4800 128GiB (of each socket)"),
    ("interconnect", "interconnect:48GB/s (each way)"),
    ("slots", "slots:4x16g5 (4 slots of x16, Gen5, dealt out to all sockets) or slots:2x8g4@1 (at socket 1)"),
];

/// What a line says.
#[derive(Default)]
struct Said {
    sockets: Option<u32>,
    cores: Option<u32>,
    clock: Option<Frequency>,
    llc: Option<Bytes>,
    channels: Option<u32>,
    transfers: Option<Transfers>,
    memory: Option<Bytes>,
    interconnect: Option<ByteRate>,
    slots: Vec<SlotGroup>,
}

/// The kind of memory, and its mega-transfers per second.
struct Transfers {
    kind: String,
    rate: u32,
}

/// Slots that are alike.
struct SlotGroup {
    count: u32,
    width: LinkWidth,
    generation: LinkGeneration,
    socket: Option<u32>,
}

/// The file of a machine called `name` that `line` describes. What the line does not say is from the machine `from`,
/// or from the one of the library that is most like it.
///
/// # Errors
/// If a word of the line is not understood, or if such a machine is not possible.
pub fn outline(
    library: &Library,
    name: &str,
    line: &str,
    from: Option<&str>,
) -> Result<Outline, Diagnostics> {
    let said = parse(line)?;
    let relative = match from {
        Some(from) => Doc::<Machine>::load(library, from)?.read()?,
        None => relative_of(library, &said)?,
    };
    let read = |said: &Said, memory: Option<Bytes>| {
        let text = written(name, line, said, memory, &relative);
        Doc::<Machine>::from_text(library, &format!("{name}.toml"), &text).read().map(|_| text)
    };
    let (text, memory) = match (read(&said, None), said.memory) {
        (Ok(text), _) => (text, None),
        (Err(wrong), None) => return Err(wrong),
        // Results do not depend on how much is not used.
        (Err(wrong), Some(most)) => {
            let less = (20..most.get().ilog2() + 1).rev().map(|power| Bytes::new(1 << power));
            let fits =
                less.filter(|&size| size < most).find_map(|size| Some((read(&said, Some(size)).ok()?, size)));
            let (text, size) = fits.ok_or(wrong)?;
            (text, Some(size))
        }
    };
    Ok(Outline { text, inherited: inherited(&said, &relative), relative: relative.name, memory })
}

fn parse(line: &str) -> Result<Said, Diagnostics> {
    let source = Arc::new(Source::new("the line", line));
    let (mut said, mut wrong, mut key) = (Said::default(), Vec::new(), "");
    for word in line.split([' ', '\t', '\n', ',']).filter(|word| !word.is_empty()) {
        let start = word.as_ptr() as usize - line.as_ptr() as usize;
        let value = match word.split_once(':') {
            Some((given, value)) => {
                key = given;
                value
            }
            None => word,
        };
        if let Err((message, help)) = said.take(key, value) {
            let place = Place::new(&source, start..start + word.len());
            wrong.push(Diagnostic::new(&place, message).help(help));
        }
    }
    match wrong.is_empty() {
        true => Ok(said),
        false => Err(Diagnostics::new(wrong)),
    }
}

impl Said {
    /// Takes the word `value` behind `key`.
    fn take(&mut self, key: &str, value: &str) -> Result<(), (String, String)> {
        let Some((_, example)) = KEYS.iter().find(|(known, _)| *known == key) else {
            let message = match key {
                "" => format!("it does not say what `{value}` is"),
                _ => format!("a line has no `{key}`"),
            };
            let all = KEYS.map(|(_, example)| format!("\n  {example}")).concat();
            let help = suggest::did_you_mean(
                key,
                KEYS.map(|(known, _)| known),
                &format!("it has{all}\nand `--from MACHINE` says what the rest is from"),
            );
            return Err((message, help));
        };
        let refused = || (format!("`{key}` cannot be `{value}`"), format!("as in {example}"));
        match key {
            "sockets" => self.sockets = Some(number(value).ok_or_else(refused)?),
            "cores" => self.cores = Some(number(value).ok_or_else(refused)?),
            "clock" => self.clock = Some(quantity(value).ok_or_else(refused)?),
            "llc" => self.llc = Some(quantity(value).ok_or_else(refused)?),
            "interconnect" => self.interconnect = Some(quantity(value).ok_or_else(refused)?),
            "slots" => self.slots.push(slots(value).ok_or_else(refused)?),
            _ => {
                if let Some(channels) = value.strip_suffix("ch") {
                    self.channels = Some(number(channels).ok_or_else(refused)?);
                } else if let Some((kind, rate)) = value.split_once('-') {
                    let rate = number(rate).filter(|rate| (200..=20_000).contains(rate));
                    let kind = kind.to_ascii_lowercase();
                    let is_kind = kind.starts_with("ddr") || kind.starts_with("mrdimm");
                    let rate = rate.filter(|_| is_kind).ok_or_else(refused)?;
                    self.transfers = Some(Transfers { kind, rate });
                } else if let Some(plain) = number(value) {
                    let help = format!(
                        "`mem:{plain}ch` is channels, `mem:{plain}GiB` the size of a socket's memory"
                    );
                    return Err((format!("`mem:{plain}` does not say of what"), help));
                } else {
                    self.memory = Some(quantity(value).ok_or_else(refused)?);
                }
            }
        }
        Ok(())
    }

    /// Independent parts of each channel, if the line has the relative's.
    fn sub_channels(&self, relative: &Host) -> u32 {
        self.transfers.as_ref().map_or_else(|| sub_channels(relative), Transfers::sub_channels)
    }

    /// GB/s of a socket's memory, with what is not said from `host`.
    fn memory_bandwidth(&self, host: &Host) -> f64 {
        let channels = self.channels.unwrap_or(host.dram.channels.value.get() / sub_channels(host));
        let rate = self.transfers.as_ref().map_or(transfers(host), |own| own.rate.into());
        f64::from(channels) * rate as f64 * 8e-3
    }
}

impl Transfers {
    /// JEDEC JESD79-5: a channel of DDR5 is two of 4 B each.
    fn sub_channels(&self) -> u32 {
        if self.kind == "ddr5" || self.kind.starts_with("mrdimm") { 2 } else { 1 }
    }
}

fn best_slot(host: &Host) -> u32 {
    host.port.values().map(|port| port.generation.value.get()).max().unwrap_or(1)
}

/// Independent parts of each of a machine's channels. Hosts with slots of Gen5 have DDR5, older ones do not.
fn sub_channels(host: &Host) -> u32 {
    if best_slot(host) >= 5 { 2 } else { 1 }
}

/// Millions of transfers a second of a machine's memory.
fn transfers(host: &Host) -> u64 {
    host.dram.channel_bandwidth.value.bytes_per_s() * u64::from(sub_channels(host)) / 8_000_000
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&number| number > 0)
}

/// A quantity with a unit; `B` alone may be missing from sizes.
fn quantity<T: FromStr>(text: &str) -> Option<T> {
    let text = text.replace("GBps", "GB/s");
    text.parse().or_else(|_| format!("{text}B").parse()).ok()
}

/// `4x16g5@1`.
fn slots(text: &str) -> Option<SlotGroup> {
    let text = text.to_ascii_lowercase();
    let (shape, socket) = match text.split_once('@') {
        Some((shape, socket)) => (shape, Some(socket.parse().ok()?)),
        None => (text.as_str(), None),
    };
    let (count, shape) = shape.split_once('x')?;
    let (width, generation) = shape.split_once('g')?;
    Some(SlotGroup {
        count: if count.is_empty() { 1 } else { number(count)? },
        width: LinkWidth::new(number(width)?)?,
        generation: LinkGeneration::new(number(generation.trim_start_matches("en"))?)?,
        socket,
    })
}

/// The machine of the library that is most like what is said: each factor of two counts one, of memory's bandwidth two.
fn relative_of(library: &Library, said: &Said) -> Result<Machine, Diagnostics> {
    let mut best: Option<(f64, Machine)> = None;
    for name in library.names("machines") {
        let machine = Doc::<Machine>::load(&library.aside(), &name)?.read()?;
        let host = &machine.host;
        // Sockets need something between them.
        if said.sockets.unwrap_or(1) > 1 && host.interconnect.is_none() {
            continue;
        }
        let apart = |given: Option<f64>, own: f64| given.map_or(0.0, |given| (given / own).log2().abs());
        let count = |given: Option<u32>, own: u32| apart(given.map(f64::from), own.into());
        let wanted_slot = said.slots.iter().map(|slots| slots.generation.get()).max();
        let own_bandwidth = Said::default().memory_bandwidth(host);
        let distance = count(said.sockets, host.sockets.value.get())
            + count(said.cores, host.core.count.value.get())
            + apart(said.llc.map(|size| size.get() as f64), host.llc.size.value.get() as f64)
            + 2.0 * apart(Some(said.memory_bandwidth(host)), own_bandwidth)
            + wanted_slot.map_or(0.0, |given| f64::from(given.abs_diff(best_slot(host))));
        if best.as_ref().is_none_or(|(least, _)| distance < *least) {
            best = Some((distance, machine));
        }
    }
    best.map(|(_, machine)| machine)
        .ok_or_else(|| Diagnostics::about("the line", "no machine of the library has an interconnect", None))
}

/// What the file has from the relative although it matters, with how a line says it.
fn inherited(said: &Said, relative: &Machine) -> Vec<String> {
    let host = &relative.host;
    let sockets = said.sockets.unwrap_or(host.sockets.value.get());
    let rate = transfers(host);
    let mut all = Vec::new();
    let mut tell = |is_said: bool, text: String| {
        if !is_said {
            all.push(text.replace(' ', ""));
        }
    };
    tell(said.sockets.is_some(), format!("sockets:{sockets}"));
    tell(said.cores.is_some(), format!("cores:{}", host.core.count.value.get()));
    tell(said.clock.is_some(), format!("clock:{}", host.core.frequency.value));
    tell(said.llc.is_some(), format!("llc:{}", host.llc.size.value));
    tell(said.channels.is_some(), format!("mem:{}ch", host.dram.channels.value.get() / sub_channels(host)));
    tell(said.transfers.is_some(), format!("mem:ddr-{rate}"));
    tell(said.memory.is_some(), format!("mem:{}", host.dram.size.value));
    if let Some(between) = host.interconnect.as_ref().filter(|_| sockets > 1) {
        tell(said.interconnect.is_some(), format!("interconnect:{}", between.bandwidth.value));
    }
    if said.slots.is_empty() {
        let each = host.port.values().map(|port| {
            let (width, generation) = (port.width.value, port.generation.value.get());
            format!("slots:{}{width}g{generation}@{}", port.count(), port.socket.value)
        });
        all.extend(each);
    }
    all
}

/// The file, with so much memory for each socket if it is less than the line says.
fn written(name: &str, line: &str, said: &Said, memory: Option<Bytes>, relative: &Machine) -> String {
    let host = &relative.host;
    let sockets = said.sockets.unwrap_or(host.sockets.value.get());
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ").replace(['"', '\\'], "");
    let mut text = format!(
        "# A machine described in one line. Each figure that the line gives, or that was assumed to go with one, says so; all others\n\
         # are {from}'s. `nearfar machines {name}.toml` shows every figure with its source, `nearfar reference machine` what\n\
         # each means.\n\
         name = \"{name}\"\n\
         summary = \"{line}; else as {from}\"\n\
         extends = \"{from}\"\n\
         \n\
         [measured_as]\n\
         cpu = \"none\"\n\
         system = \"{name}\"\n\
         directories = []\n\
         \n\
         [host]\n\
         cpu = \"{name}\"\n",
        from = relative.name,
    );
    let given = "assumed: the line says so";
    let figure = |text: &mut String, key: &str, value: Option<String>, source: &str| {
        if let Some(value) = value {
            let _ = writeln!(text, "{key} = {{ value = {value}, source = \"{source}\" }}");
        }
    };
    let quoted = |value: String| format!("\"{value}\"");
    figure(&mut text, "sockets", said.sockets.map(|sockets| sockets.to_string()), given);
    figure(&mut text, "core.count", said.cores.map(|cores| cores.to_string()), given);
    figure(&mut text, "core.frequency", said.clock.map(|clock| quoted(clock.to_string())), given);
    figure(&mut text, "llc.size", said.llc.map(|size| quoted(size.to_string())), given);
    if let Some((ways, slices)) = said.llc.and_then(|size| cache_shape(size, relative)) {
        let source = "assumed: what divides a cache of that size";
        figure(&mut text, "llc.ways", Some(ways.to_string()), source);
        figure(&mut text, "llc.slices", Some(slices.to_string()), source);
    }
    // A directory has to know the lines of all private caches.
    if let (Some(cores), Some(filter)) = (said.cores, &host.llc.snoop_filter_size) {
        let size = filter.value.get() / u64::from(host.core.count.value.get()) * u64::from(cores);
        let size = Bytes::mib(size.div_ceil(1 << 20));
        let source = format!("assumed: as much for a core as {}", relative.name);
        figure(&mut text, "llc.snoop_filter_size", Some(quoted(size.to_string())), &source);
    }
    let parts = said.sub_channels(host);
    let own = host.dram.channels.value.get() / sub_channels(host);
    let channels =
        said.channels.or((parts != sub_channels(host)).then_some(own)).map(|channels| channels * parts);
    let source = if parts == 2 {
        "assumed: the line says so; JEDEC JESD79-5: two sub-channels of 4 B each"
    } else {
        given
    };
    figure(&mut text, "dram.channels", channels.map(|channels| channels.to_string()), source);
    if let Some(Transfers { kind, rate }) = &said.transfers {
        let bytes = 8 / parts;
        let value = format!("\"{} GB/s\"", f64::from(*rate) * f64::from(bytes) / 1e3);
        let source =
            format!("specification: {}-{rate}, {bytes} B a transfer; the line says so", kind.to_uppercase());
        figure(&mut text, "dram.channel_bandwidth", Some(value), &source);
    }
    let source =
        if memory.is_some() { "assumed: as much as can be simulated of what the line says" } else { given };
    figure(&mut text, "dram.size", memory.or(said.memory).map(|size| quoted(size.to_string())), source);
    if host.interconnect.is_some() && sockets != host.sockets.value.get() {
        let pairs = (0..sockets).flat_map(|a| (a + 1..sockets).map(move |b| format!("[{a}, {b}]")));
        let pairs = format!("[{}]", pairs.collect::<Vec<_>>().join(", "));
        let source = "assumed: every two sockets are joined";
        figure(&mut text, "interconnect.links", Some(pairs), source);
    }
    if sockets != host.memory_nodes() && host.dram.sockets.is_some() {
        let source = "assumed: every socket has memory";
        figure(&mut text, "dram.sockets", Some(sockets.to_string()), source);
    }
    let between = said.interconnect.map(|rate| quoted(rate.to_string()));
    figure(&mut text, "interconnect.bandwidth", between, given);
    if !said.slots.is_empty() {
        write_slots(&mut text, said, sockets, relative);
    } else {
        for (name, _) in host.port.iter().filter(|(_, port)| port.socket.value >= sockets) {
            write_no_slot(&mut text, name);
        }
    }
    text
}

/// Ways and slices for a last-level cache of a size, as near to a machine's as can be; `None` if the machine's own
/// divide it, or none do. Each slice has sets as a power of two.
fn cache_shape(size: Bytes, relative: &Machine) -> Option<(u64, u64)> {
    let llc = &relative.host.llc;
    let own = (u64::from(llc.ways.value.get()), u64::from(llc.slices.value.get()));
    let all = (4..=32_u64).flat_map(|ways| (1..=16_u64).map(move |slices| (ways, slices)));
    let divides = |&(ways, slices): &(u64, u64)| {
        let unit = 64 * ways * slices;
        size.get() % unit == 0 && (size.get() / unit).is_power_of_two()
    };
    let best =
        all.filter(divides).min_by_key(|(ways, slices)| (ways.abs_diff(own.0), slices.abs_diff(own.1)))?;
    (best != own).then_some(best)
}

/// A slot of the relative that the machine has not.
fn write_no_slot(text: &mut String, name: &str) {
    let source = "assumed: the line names no such slot";
    let _ = write!(
        text,
        "\n[host.port.{name}]\nslots = {{ value = 0, source = \"{source}\" }}\nsocket = {{ value = 0, source = \"{source}\" }}\n"
    );
}

/// The rate of a slot, in units that cancel out.
fn rate(generation: u32, width: u32) -> f64 {
    f64::from(width) * f64::from(1 << generation)
}

fn write_slots(text: &mut String, said: &Said, sockets: u32, relative: &Machine) {
    let ports = &relative.host.port;
    let of_port = |port: &RootPort| rate(port.generation.value.get(), port.width.value.get());
    let widest = ports.iter().max_by(|(_, a), (_, b)| of_port(a).total_cmp(&of_port(b)));
    let Some((base, model)) = ports.get_key_value("slot").or(widest) else { return };
    let fastest = said.slots.iter().map(|slots| rate(slots.generation.get(), slots.width.get()));
    let faster = fastest.fold(0.0, f64::max) / of_port(model);
    if let Some(writes) = relative.host.root_complex.stack_writes.as_ref().filter(|_| faster > 1.0) {
        let value = (f64::from(writes.value.get()) * faster).round().min(4096.0);
        let _ = writeln!(
            text,
            "root_complex.stack_writes = {{ value = {value}, source = \"assumed: as many for the rate as {}\" }}",
            relative.name
        );
    }
    // Name, socket, count, and which of the line's.
    let mut all: Vec<(String, u32, u32, &SlotGroup)> = Vec::new();
    for (number, slots) in said.slots.iter().enumerate() {
        let stem = if number == 0 { "slot".to_owned() } else { format!("slot{}", number + 1) };
        let mut is_first = true;
        for socket in 0..sockets.max(slots.socket.map_or(0, |socket| socket + 1)) {
            let share = match slots.socket {
                Some(own) if own == socket => slots.count,
                Some(_) => 0,
                None => slots.count / sockets + u32::from(socket < slots.count % sockets),
            };
            if share == 0 {
                continue;
            }
            let name = if is_first { stem.clone() } else { format!("{stem}-socket{socket}") };
            is_first = false;
            all.push((name, socket, share, slots));
        }
    }
    let written: BTreeMap<&str, ()> = all.iter().map(|(name, ..)| (name.as_str(), ())).collect();
    for name in ports.keys().filter(|name| !written.contains_key(name.as_str())) {
        write_no_slot(text, name);
    }
    for (name, socket, share, slots) in &all {
        let extends =
            if ports.contains_key(name) { String::new() } else { format!("extends = \"{base}\"\n") };
        let (width, generation) = (slots.width.get(), slots.generation.get());
        let _ = write!(
            text,
            "\n[host.port.{name}]\n{extends}source = \"assumed: the line says so\"\n\
             socket = {socket}\nslots = {share}\ngeneration = {generation}\nwidth = {width}\n\
             \n[host.port.{name}.credits]\n\
             source = \"assumed: as many for the rate as slot `{base}` of {}\"\n",
            relative.name
        );
        let (headers, data) = if generation >= 4 { (2032, 32_752) } else { (127, 2047) };
        let scale = rate(generation, width) / of_port(model);
        let credits = &model.credits;
        let of = |own: u32, least: u32, most: u32| {
            ((f64::from(own) * scale).round() as u32).clamp(least.min(own), most)
        };
        // Room for one TLP of the largest payload at least.
        let least = model.mps_bytes.value.get() / 16;
        for (key, value) in [
            ("ph", of(credits.ph.value, 8, headers)),
            ("pd", of(credits.pd.value, least, data)),
            ("nph", of(credits.nph.value, 8, headers)),
            ("npd", of(credits.npd.value, 8, data)),
        ] {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(line: &str) -> Machine {
        let library = Library::built_in();
        let outline = outline(&library, "box", line, None).unwrap_or_else(|wrong| panic!("{wrong}"));
        Doc::<Machine>::from_text(&library, "box.toml", &outline.text).read().unwrap()
    }

    #[test]
    fn the_line_is_what_the_machine_has() {
        let machine = made("sockets:2 cores:32 mem:8ch ddr5-4800 slots:4x16g5");
        let host = &machine.host;
        assert_eq!((host.sockets.value.get(), host.core.count.value.get()), (2, 32));
        // Eight channels of two parts.
        assert_eq!(host.dram.channels.value.get(), 16);
        assert_eq!(host.dram.channel_bandwidth.value.bytes_per_s(), 19_200_000_000);
        let slots: Vec<_> = host
            .port
            .iter()
            .map(|(name, port)| {
                let shape = (port.generation.value.get(), port.width.value.get());
                (name.as_str(), port.socket.value, port.count(), shape)
            })
            .collect();
        assert_eq!(slots, [("slot", 0, 2, (5, 16)), ("slot-socket1", 1, 2, (5, 16))]);
        let all = crate::figures(&machine);
        let of =
            |path: &str| all.iter().find(|figure| figure.path == path).unwrap().provenance.source.clone();
        assert_eq!(of("host.core.count"), "assumed: the line says so");
    }

    #[test]
    fn the_relative_has_the_memory_and_the_cache() {
        let library = Library::built_in();
        for (line, relative) in [
            ("sockets:2 cores:32 llc:256MiB mem:12ch ddr5-4800 slots:4x16g5", "epyc-9374f"),
            ("sockets:2 cores:64 llc:256MiB mem:12ch ddr5-6000 slots:4x16g5", "epyc-9575f"),
            ("sockets:2 cores:24 llc:60MiB mem:8ch ddr5-4800 slots:4x16g5", "dell-r760"),
            ("sockets:2 cores:28 llc:38.5MiB mem:6ch ddr4-2933 slots:4x16g3", "xeon-8280"),
        ] {
            assert_eq!(outline(&library, "box", line, None).unwrap().relative, relative, "{line}");
        }
    }

    #[test]
    fn memory_that_cannot_be_simulated_is_less() {
        let library = Library::built_in();
        let line = "sockets:2 cores:32 mem:12ch ddr5-4800 384GiB slots:4x16g5";
        let outline = outline(&library, "box", line, None).unwrap();
        assert_eq!(outline.memory, Some(Bytes::gib(128)));
        assert!(outline.text.contains("as much as can be simulated"), "{}", outline.text);
    }

    #[test]
    fn one_socket_needs_nothing_between() {
        for line in
            ["sockets:1 cores:64 mem:12ch ddr5-4800 slots:8x16g5", "sockets:1 cores:16 mem:2ch ddr4-3200"]
        {
            let machine = made(line);
            assert_eq!(machine.host.sockets.value.get(), 1);
            assert!(machine.host.port.values().all(|port| port.socket.value == 0), "{line}");
        }
    }

    #[test]
    fn caches_of_real_sizes_have_ways_and_slices() {
        for (cores, size) in [(20, "27.5"), (24, "36"), (32, "48"), (32, "60"), (40, "60"), (64, "256")] {
            let machine = made(&format!("sockets:2 cores:{cores} llc:{size}MiB mem:8ch ddr4-3200"));
            assert_eq!(machine.host.llc.size.value.to_string(), format!("{size} MiB"));
        }
    }

    #[test]
    fn slots_are_dealt_out_or_named() {
        let machine = made("sockets:4 slots:2x16g4@3,6x4g4");
        let slots = machine.host.port.iter().map(|(n, port)| (n.as_str(), port.socket.value, port.count()));
        assert_eq!(
            slots.collect::<Vec<_>>(),
            [
                ("slot", 3, 2),
                ("slot2", 0, 2),
                ("slot2-socket1", 1, 2),
                ("slot2-socket2", 2, 1),
                ("slot2-socket3", 3, 1)
            ]
        );
    }

    #[test]
    fn words_that_are_not_understood_are_told_all_at_once() {
        let wrong = outline(&Library::built_in(), "box", "socket:2 cores:many mem:8ch slots:4x15g5", None);
        let wrong = wrong.unwrap_err().render(false);
        for told in
            ["a line has no `socket`", "did you mean `sockets`?", "`cores` cannot be `many`", "`4x15g5`"]
        {
            assert!(wrong.contains(told), "{told}: {wrong}");
        }
    }
}
