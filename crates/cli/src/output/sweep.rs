//! Results of a sweep: a row per combination of values, a column per quantity.

use std::borrow::Cow;

use nearfar::counters::{Binding, Kind};
use results::Provenance;
use results::claims::Sample;
use results::report::{Chart, Curve, DataTable, Report, Scale, Section};

use results::answer::{ComparedValue, sentence};
use workloads::Reading;

use super::{Fit, TextTable, answer, prose, width};

/// A quantity that the sweep's runs report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    pub name: String,
    /// Its unit; empty for a count.
    pub unit: Cow<'static, str>,
}

impl Column {
    fn heading(&self) -> String {
        [&*self.name, &*self.unit].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// Results of one combination of values.
struct Line {
    values: Vec<(String, String)>,
    cells: Vec<Option<f64>>,
    bindings: Vec<(String, Binding)>,
    /// Where interrupts arrived, as sentences.
    placement: Vec<String>,
}

impl Line {
    /// Its values, as the prefix of a note.
    fn label(&self) -> String {
        let value = |(key, value): &(String, String)| {
            format!("{}={value}", short(key.split(" (").next().unwrap_or(key)))
        };
        self.values.iter().map(value).collect::<Vec<_>>().join(" ")
    }

    /// Bottlenecks, merged: each with the names of the runs or programs that it limits (none if it limits all),
    /// described by the one with the lowest utilization.
    fn bound(&self) -> Vec<(String, &Binding)> {
        fn what(binding: &Binding) -> Option<(&str, Kind, &str)> {
            binding.what.as_ref().map(|(host, resource)| (&**host, resource.kind, &*resource.place))
        }
        let share = |binding: &Binding| binding.what.as_ref().map_or(0.0, |(_, resource)| resource.share);
        let mut groups: Vec<(Vec<&str>, &Binding)> = Vec::new();
        for (name, binding) in &self.bindings {
            match groups.iter_mut().find(|(_, other)| what(other) == what(binding)) {
                Some((names, least)) => {
                    names.push(name);
                    if share(binding) < share(least) {
                        *least = binding;
                    }
                }
                None => groups.push((vec![name], binding)),
            }
        }
        let is_all = groups.len() == 1;
        let named = |(names, binding): (Vec<&str>, _)| match is_all {
            true => (String::new(), binding),
            false => (names.join(" and "), binding),
        };
        groups.into_iter().map(named).collect()
    }
}

/// A row per combination of values, a column per quantity, or per run for a single quantity.
pub struct Table {
    title: String,
    columns: Vec<Column>,
    lines: Vec<Line>,
    /// Whether its columns are the same quantity of several runs.
    is_of_runs: bool,
}

impl Table {
    /// An empty table.
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), columns: Vec::new(), lines: Vec::new(), is_of_runs: false }
    }

    /// As [`Self::new`], for a single quantity, with a column per run.
    pub fn of_runs(title: &str) -> Self {
        Self { is_of_runs: true, ..Self::new(title) }
    }

    /// Whether it has no content.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Adds the results of a combination, their bottlenecks, and where its interrupts arrived.
    pub fn add(
        &mut self,
        values: &[(String, String)],
        cells: Vec<(Column, f64)>,
        bindings: Vec<(String, Binding)>,
        placement: Vec<String>,
    ) {
        let mut line = Line { values: values.to_vec(), cells: Vec::new(), bindings, placement };
        for (column, value) in cells {
            let known = self.columns.iter().position(|other| *other == column);
            let place = known.unwrap_or_else(|| {
                self.columns.push(column);
                self.columns.len() - 1
            });
            line.cells.resize(line.cells.len().max(place + 1), None);
            line.cells[place] = Some(value);
        }
        self.lines.push(line);
    }

    /// How its most telling quantity changes, in a sentence; the only table need not say of what it is.
    pub fn answer(&self, is_only: bool) -> Option<String> {
        let columns = || self.columns.iter().enumerate();
        let readings: Vec<Reading> =
            self.columns.iter().map(|column| Reading::new(&*column.name, column.unit.clone(), 1.0)).collect();
        let headline = answer::headline(&readings)?;
        let (first, _) = columns().find(|(_, c)| c.name == headline.quantity && c.unit == headline.unit)?;
        // Of runs, each column is one.
        let chosen = columns().filter(|(n, _)| self.is_of_runs || *n == first);
        let values = chosen.flat_map(|(n, column)| {
            self.lines.iter().filter_map(move |line| {
                let (group, quantity) = match self.is_of_runs {
                    true => {
                        (column.name.clone(), self.title.split(" of ").next().unwrap_or_default().to_owned())
                    }
                    false if is_only => (String::new(), column.name.clone()),
                    false => (self.title.clone(), column.name.clone()),
                };
                let binds = line.bindings.iter().find(|(name, _)| !self.is_of_runs || *name == column.name);
                let binds = binds.map(|(_, binding)| binding.to_string()).unwrap_or_default();
                Some(ComparedValue {
                    group,
                    label: line.label(),
                    quantity,
                    unit: column.unit.to_string(),
                    value: line.cells.get(n).copied().flatten()?,
                    binds: answer::what_binds(&binds).unwrap_or_default().to_owned(),
                })
            })
        });
        sentence(&values.collect::<Vec<_>>())
    }

    /// The table as text: values, and differences from the first row.
    pub fn render(&self) -> String {
        let (header, rows) = self.cells();
        let labels = self.keys().len();
        let columns = header.len();
        let mut table = TextTable::new(header, Fit::Fold(labels)).numbers(labels..columns);
        rows.into_iter().for_each(|row| table.add(row));
        let mut text = prose(&self.title) + "\n" + &table.render(width()) + "\n";
        for line in &self.lines {
            for (names, binding) in line.bound() {
                let names = if names.is_empty() { names } else { format!(", {names}") };
                text += &(prose(&format!("  {}{names}: {binding}", line.label())) + "\n");
            }
        }
        self.placements().iter().for_each(|note| text += &(prose(&format!("  {note}")) + "\n"));
        text
    }

    /// Where interrupts arrived: once, if it is equal for all values.
    fn placements(&self) -> Vec<String> {
        let is_common = |note: &String| self.lines.iter().all(|line| line.placement.contains(note));
        let first = self.lines.first().into_iter().flat_map(|line| &line.placement);
        let common = first.filter(|note| is_common(note)).cloned();
        let own = |line: &Line| {
            let (label, notes) = (line.label(), line.placement.clone());
            notes
                .into_iter()
                .filter(|note| !is_common(note))
                .map(move |note| format!("{label}: {note}"))
                .collect()
        };
        common.chain(self.lines.iter().flat_map(|line| -> Vec<String> { own(line) })).collect()
    }

    fn keys(&self) -> Vec<&str> {
        self.lines.first().map_or_else(Vec::new, |line| line.values.iter().map(|(key, _)| &**key).collect())
    }

    fn cells(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let keys = self.keys().into_iter().map(|key| short(key).to_owned());
        let header = keys.chain(self.columns.iter().map(Column::heading)).collect();
        let first = self.lines.first();
        let row = |(n, line): (usize, &Line)| {
            let cell = |column: usize| {
                let of = |line: &Line| line.cells.get(column).copied().flatten();
                let Some(value) = of(line) else { return "–".to_owned() };
                let base = first.and_then(of).filter(|base| n > 0 && *base != 0.0);
                let change = base.map_or_else(String::new, |base| {
                    format!(" ({:+.1} %)", 100.0 * (value - base) / base.abs()).replace("+0.0 ", "0.0 ")
                });
                format!("{}{change}", super::number(value))
            };
            let values = line.values.iter().map(|(_, value)| value.clone());
            values.chain((0..self.columns.len()).map(cell)).collect()
        };
        (header, self.lines.iter().enumerate().map(row).collect())
    }

    /// A chart per quantity over the first key, rates first, with a curve for each run and combination of the other
    /// keys. Values that are not numbers of the same unit become categories.
    pub fn charts(&self) -> Vec<Chart> {
        let firsts: Vec<&str> = self.lines.iter().filter_map(|line| Some(&*line.values.first()?.1)).collect();
        let key = self.keys().first().map_or("", |key| *key);
        // The unit of a program's option stands in the key, and the option's size may have a suffix.
        let (key, own_unit) = match key.strip_suffix(')').and_then(|key| key.rsplit_once(" (")) {
            Some((key, unit)) => (key, Some(unit)),
            None => (key, None),
        };
        let numbers: Option<Vec<(f64, &str)>> =
            firsts.iter().map(|value| axis_value(value, own_unit)).collect();
        let is_number = |xs: &Vec<(f64, &str)>| xs.windows(2).all(|pair| pair[0].1 == pair[1].1);
        let mut names: Vec<String> = Vec::new();
        let xs = numbers.filter(is_number).unwrap_or_else(|| {
            let name = |value: &&str| {
                let value = value.trim_matches('"').to_owned();
                let place = names.iter().position(|name| *name == value).unwrap_or_else(|| {
                    names.push(value);
                    names.len() - 1
                });
                (place as f64, "")
            };
            firsts.iter().map(name).collect()
        });
        let are_powers = names.is_empty() && xs.iter().all(|(x, _)| *x >= 1.0 && x.log2().fract() == 0.0);
        let scale = if are_powers && xs.len() > 2 { Scale::Log2 } else { Scale::Linear };
        let chart = |columns: &[Column], first: usize| {
            let mut curves: Vec<Curve> = Vec::new();
            let (column, cells) = (&columns[0], (first..).zip(columns));
            for ((line, (x, _)), (place, run)) in
                cells.flat_map(|cell| self.lines.iter().zip(&xs).map(move |line| (line, cell)))
            {
                let Some(y) = line.cells.get(place).copied().flatten() else { continue };
                let others = line.values[1..].iter().map(|(key, value)| format!("{}={value}", short(key)));
                let run = (columns.len() > 1).then(|| run.name.clone());
                let label = run.into_iter().chain(others).collect::<Vec<_>>().join(" ");
                let label = if label.is_empty() { column.name.clone() } else { label };
                let sample = Sample { x: *x, y, low: None, high: None };
                match curves.iter_mut().find(|curve| curve.label == label) {
                    Some(curve) => curve.simulated.push(sample),
                    None => curves.push(Curve { label, simulated: vec![sample], measured: Vec::new() }),
                }
            }
            let unit = |unit: &str| if unit.is_empty() { String::new() } else { format!(" ({unit})") };
            // For runs, the table's title, which is also the section's, names the quantity.
            let (title, quantity) = match self.is_of_runs {
                true => (
                    format!("{} over {}", self.title, words_of(short(key))),
                    self.title.split(" of ").next().unwrap_or_default(),
                ),
                false => {
                    let title = format!("{} over {} ({})", column.name, words_of(short(key)), self.title);
                    (title, &*column.name)
                }
            };
            Chart {
                id: format!("{}-{}", slug(&self.title), slug(&column.heading())),
                title,
                text: String::new(),
                x: (format!("{}{}", words_of(short(key)), unit(xs.first().map_or("", |x| x.1))), scale),
                names: names.clone(),
                y: (format!("{quantity}{}", unit(&column.unit)), Scale::Linear),
                from_zero: !names.is_empty() || column.unit.ends_with("/s"),
                rings: String::new(),
                curves,
            }
        };
        let is_drawn = |chart: &Chart| chart.curves.iter().any(|curve| curve.simulated.len() > 1);
        let together = if self.is_of_runs { self.columns.len().max(1) } else { 1 };
        let all = self.columns.chunks(together).enumerate().map(|(n, columns)| chart(columns, n * together));
        let mut all: Vec<Chart> = all.filter(is_drawn).collect();
        all.sort_by_key(|chart| !chart.y.0.ends_with("/s)"));
        // Quantities without changes are omitted, unless nothing changes at all.
        match all.iter().any(changes) {
            true => all.into_iter().filter(changes).collect(),
            false => all,
        }
    }
}

/// Whether a chart's values differ by more than a thousandth.
fn changes(chart: &Chart) -> bool {
    let ys = || chart.curves.iter().flat_map(|curve| &curve.simulated).map(|sample| sample.y);
    let (low, high) = (ys().fold(f64::INFINITY, f64::min), ys().fold(f64::NEG_INFINITY, f64::max));
    high - low > 1e-3 * high.abs()
}

pub fn page(title: &str, tables: &[Table], provenance: &Provenance) -> Report {
    let answers: Vec<String> = tables.iter().filter_map(|table| table.answer(tables.len() == 1)).collect();
    let sections = tables.iter().map(|table| {
        let (header, rows) = table.cells();
        let numbers_from = table.keys().len();
        let title = "Every value, and how it differs from the first row's".to_owned();
        let keys = table.keys().into_iter().map(|key| short(key).to_owned());
        let binds = DataTable {
            title: "What binds".to_owned(),
            header: keys.chain(["what", "what is full, and what comes next"].map(str::to_owned)).collect(),
            rows: table
                .lines
                .iter()
                .flat_map(|line| {
                    line.bound().into_iter().map(|(names, binding)| {
                        let names = if names.is_empty() { "all".to_owned() } else { names };
                        let sentence = binding.sentence();
                        let values = line.values.iter().map(|(_, value)| value.clone());
                        values.chain([names, sentence]).collect()
                    })
                })
                .collect(),
            numbers_from: 0,
        };
        let mut tables = vec![DataTable { title, header, rows, numbers_from }];
        tables.extend((!binds.rows.is_empty()).then_some(binds));
        Section { title: table.title.clone(), prose: table.placements(), charts: table.charts(), tables }
    });
    Report {
        title: title.to_owned(),
        lead: match answers.is_empty() {
            true => vec!["One scenario, simulated for each of several values of a key.".into()],
            false => answers,
        },
        sections: sections.collect(),
        provenance: provenance.clone(),
        ..Report::default()
    }
}

/// The last two parts of a key's path, enough to distinguish keys.
fn short(key: &str) -> &str {
    // An option of a program has a name and a unit.
    if key.contains(' ') {
        return key;
    }
    let mut dots = key.rmatch_indices('.').map(|(place, _)| place);
    dots.next();
    dots.next().map_or(key, |place| &key[place + 1..])
}

/// A key in words: `dma_engine.tags` is `dma engine tags`; a number, which stands for an entry of a list, says nothing.
fn words_of(key: &str) -> String {
    let parts = key.split(['.', '_']).filter(|part| part.parse::<u32>().is_err());
    parts.collect::<Vec<_>>().join(" ")
}

/// A value with its unit. `own` is the unit of a program's option, whose sizes may have a suffix.
fn axis_value<'a>(value: &'a str, own: Option<&'a str>) -> Option<(f64, &'a str)> {
    match (own, quantity(value)?) {
        (Some("B"), (number, suffix)) => Some((number * size_factor(suffix)?, "B")),
        (Some(own), (number, "")) => Some((number, own)),
        (_, number) => Some(number),
    }
}

/// What a suffix of a program's size stands for.
fn size_factor(suffix: &str) -> Option<f64> {
    match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => Some(1.0),
        "k" | "kb" | "kib" => Some(1024.0),
        "m" | "mb" | "mib" => Some(1_048_576.0),
        "g" | "gb" | "gib" => Some(1_073_741_824.0),
        _ => None,
    }
}

/// Parses a number with a unit.
fn quantity(text: &str) -> Option<(f64, &str)> {
    let text = text.trim().trim_matches('"');
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim()))
}

fn slug(text: &str) -> String {
    text.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

#[cfg(test)]
mod tests {
    use nearfar::counters::Resource;

    use super::*;

    fn table() -> Table {
        let mut table = Table::new("a: pktgen");
        for (tags, rate) in [("8", 10.0), ("16", 15.0), ("32", 15.5)] {
            let column = Column { name: "packets".into(), unit: "Mpps".into() };
            table.add(
                &[("host.a.device.0.tags".into(), tags.into())],
                vec![(column, rate)],
                Vec::new(),
                Vec::new(),
            );
        }
        table
    }

    #[test]
    fn rows_are_held_against_the_first() {
        let text = table().render();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("0.tags") && lines[1].contains("packets Mpps"), "{text}");
        assert!(lines[3].ends_with("10") && lines[4].ends_with("15 (+50.0 %)"), "{text}");
    }

    #[test]
    fn what_binds_is_said_once_for_all_that_it_binds() {
        let by = |kind: Kind, share: f64| {
            let resource = Resource { kind, place: "card0".into(), of: 1, share, on_path: true };
            Binding {
                what: Some(("a".into(), resource)),
                alike: 0,
                next: None,
                phases: Vec::new(),
                offered: None,
                part: String::new(),
                credits: String::new(),
            }
        };
        let mut table = Table::of_runs("goodput");
        let column = |name: &str| (Column { name: name.into(), unit: "Gbit/s".into() }, 1.0);
        let runs = [("64 B", Kind::Tags, 1.0), ("128 B", Kind::Tags, 0.8), ("2 KiB", Kind::Wire, 1.0)];
        for (tags, some) in [("8", &runs[..2]), ("16", &runs)] {
            let cells = some.iter().map(|(name, ..)| column(name)).collect();
            let bound = some.iter().map(|&(name, kind, share)| (name.to_owned(), by(kind, share))).collect();
            table.add(&[("tags".into(), tags.into())], cells, bound, Vec::new());
        }
        let text = table.render();
        let said: Vec<&str> =
            text.lines().filter(|line| line.contains("what binds")).map(str::trim).collect();
        assert_eq!(said.len(), 3, "{text}");
        assert!(said[0].starts_with("tags=8: what binds: the tags of a's card0, waited for 80 %"), "{text}");
        assert!(said[1].starts_with("tags=16, 64 B and 128 B: "), "{text}");
        assert!(said[2].starts_with("tags=16, 2 KiB: "), "{text}");
    }

    #[test]
    fn where_interrupts_arrive_is_said_once_where_it_is_the_same() {
        let mut table = Table::new("a: netperf");
        for slot in ["near", "far"] {
            let column = Column { name: "rate".into(), unit: "Gbit/s".into() };
            let notes = vec!["at a: core 0".to_owned(), format!("at b: {slot} core")];
            table.add(&[("slot".into(), slot.into())], vec![(column, 1.0)], Vec::new(), notes);
        }
        assert_eq!(
            table.placements(),
            ["at a: core 0", "slot=near: at b: near core", "slot=far: at b: far core"]
        );
    }

    #[test]
    fn runs_are_curves_of_one_chart() {
        let mut table = Table::of_runs("goodput of reads and the like");
        for (tags, rate) in [("8", 10.0), ("16", 20.0)] {
            let cells =
                ["64 B", "512 B"].map(|name| (Column { name: name.into(), unit: "Gbit/s".into() }, rate));
            table.add(&[("dma_engine.tags".into(), tags.into())], cells.to_vec(), Vec::new(), Vec::new());
        }
        let charts = table.charts();
        let labels: Vec<&str> = charts[0].curves.iter().map(|curve| &*curve.label).collect();
        assert_eq!((charts.len(), labels), (1, vec!["64 B", "512 B"]));
        assert_eq!((&*charts[0].y.0, charts[0].curves[1].simulated[1].y), ("goodput (Gbit/s)", 20.0));
    }

    #[test]
    fn quantities_are_drawn_over_numbers_and_over_words() {
        let charts = table().charts();
        assert_eq!((charts.len(), charts[0].x.1), (1, Scale::Log2));
        assert_eq!(charts[0].curves[0].simulated.len(), 3);
        let mut words = Table::new("x");
        for mode in ["off", "strict"] {
            let column = Column { name: "rate".into(), unit: "Gbit/s".into() };
            words.add(&[("host.a.iommu".into(), mode.into())], vec![(column, 1.0)], Vec::new(), Vec::new());
        }
        let charts = words.charts();
        assert_eq!((&*charts[0].names.join(" "), charts[0].curves[0].simulated[1].x), ("off strict", 1.0));
        assert_eq!(quantity("\"20 us\""), Some((20.0, "us")));
    }
}
