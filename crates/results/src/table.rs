//! Tables for the terminal that fit its width.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent, presets};

/// Spaces between columns.
const GAP: usize = 2;
/// Minimum width of a text column.
const NARROWEST: usize = 8;
/// Indentation of continuation lines.
const INDENT: usize = 4;

/// How to shrink a table that is wider than the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// Wrap text cells over several lines.
    Wrap,
    /// Move the last column, which holds sentences, below the rest of its row.
    LastBelow,
    /// Move the first column, which holds names, above the rest of its row, once for equal consecutive names; if
    /// still too wide, in blocks.
    FirstAbove,
    /// Swap rows and columns if that is narrow enough, or else fold each row over several lines, the first of which
    /// starts with this number of leading columns.
    Fold(usize),
}

/// A table without borders.
pub struct TextTable {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    numbers: Vec<bool>,
    fit: Fit,
}

impl TextTable {
    /// Creates an empty table.
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>, fit: Fit) -> Self {
        let header: Vec<String> = header.into_iter().map(Into::into).collect();
        Self { numbers: vec![false; header.len()], header, rows: Vec::new(), fit }
    }

    /// Marks columns as numbers, which are right-aligned.
    #[must_use]
    pub fn numbers(mut self, columns: impl IntoIterator<Item = usize>) -> Self {
        columns.into_iter().for_each(|column| self.numbers[column] = true);
        self
    }

    /// Adds a row, with a cell per column.
    pub fn add(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// Renders the table, within `width` if possible; without a width, each row takes one line.
    pub fn render(&self, width: Option<usize>) -> String {
        let columns: Vec<usize> = (0..self.header.len()).collect();
        let Some(width) = width.filter(|&width| self.width(&columns) > width) else {
            return self.lines(&columns, None).join("\n");
        };
        let (rest, last) = columns.split_at(columns.len() - 1);
        match self.fit {
            Fit::LastBelow => {
                let lines = match self.width(rest) <= width {
                    true => self.lines(rest, None),
                    // Too wide to be aligned.
                    false => self.unaligned(rest),
                };
                let below = |row: &Vec<String>| wrapped(&row[last[0]], INDENT, width);
                self.joined(&lines, |line, row| [vec![line.to_owned()], below(row)].concat())
            }
            Fit::FirstAbove if self.width(&columns[1..]) + INDENT <= width => {
                let lines = self.lines(&columns[1..], None);
                let lines: Vec<String> = lines.iter().map(|line| moved_in(line, INDENT)).collect();
                let mut above = None;
                self.joined(&lines, |line, row| {
                    let name = (above.replace(&row[0]) != Some(&row[0])).then(|| row[0].clone());
                    name.into_iter().chain([line.to_owned()]).collect()
                })
            }
            // Moving names above does not help if the rest is still too wide.
            Fit::Fold(_) | Fit::FirstAbove => {
                let swapped = self.swapped();
                let all: Vec<usize> = (0..swapped.header.len()).collect();
                match swapped.width(&all) <= width {
                    true => swapped.lines(&all, None).join("\n"),
                    false => self.folded(width),
                }
            }
            _ => self.lines(&columns, Some(width)).join("\n"),
        }
    }

    /// Total width of some columns.
    fn width(&self, columns: &[usize]) -> usize {
        let widest = |&column: &usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).chain([&self.header[column]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        columns.iter().map(widest).sum::<usize>() + GAP * columns.len().saturating_sub(1)
    }

    /// The table with rows and columns swapped.
    fn swapped(&self) -> Self {
        let cells = |column: usize| {
            let cell = |row: &Vec<String>| row.get(column).cloned().unwrap_or_default();
            [self.header[column].clone()].into_iter().chain(self.rows.iter().map(cell)).collect::<Vec<_>>()
        };
        let rows = (1..self.header.len()).map(cells).collect();
        let numbers = (0..=self.rows.len()).map(|column| column > 0).collect();
        Self { header: cells(0), rows, numbers, fit: self.fit }
    }

    /// The header, a rule and the rows, each over as many lines as the width needs.
    fn folded(&self, width: usize) -> String {
        let labels = if let Fit::Fold(labels) = self.fit { labels } else { 1 };
        let mut lines: Vec<Vec<usize>> = vec![Vec::new()];
        for column in 0..self.header.len() {
            let (indent, line) = (if lines.len() > 1 { INDENT } else { 0 }, lines.last_mut().expect("one"));
            line.push(column);
            if column >= labels && line.len() > 1 && self.width(line) + indent > width {
                line.pop();
                lines.push(vec![column]);
            }
        }
        let mut of_rows = vec![Vec::new(); self.rows.len() + 1];
        let mut rule = String::new();
        for (n, columns) in lines.iter().enumerate() {
            let indent = if n > 0 { INDENT } else { 0 };
            let mut all = self.lines(columns, None);
            let line = all.remove(1);
            if line.chars().count() + indent > rule.chars().count() {
                rule = "─".repeat((line.chars().count() + indent).min(width));
            }
            // A row without cells there needs no line.
            for (row, line) in of_rows.iter_mut().zip(all).filter(|(_, line)| !line.trim().is_empty()) {
                let fits = line.chars().count() + indent <= width;
                row.extend(if fits { vec![moved_in(&line, indent)] } else { wrapped(&line, indent, width) });
            }
        }
        of_rows[0].push(rule);
        of_rows.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }

    /// Header, rule and rows; with a limited width, rows may take several lines.
    fn lines(&self, columns: &[usize], width: Option<usize>) -> Vec<String> {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).remove_style(TableComponent::VerticalLines);
        table.set_style(TableComponent::HeaderLines, '─');
        if let Some(width) = width {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
        }
        table.set_header(columns.iter().map(|&column| &self.header[column]));
        for row in &self.rows {
            table.add_row(columns.iter().filter_map(|&column| row.get(column)));
        }
        // The widest column shrinks to its minimum; words of the other columns stay whole.
        let widest = columns.iter().copied().max_by_key(|&column| self.width(&[column])).unwrap_or(0);
        let others: Vec<usize> = columns.iter().copied().filter(|&column| column != widest).collect();
        let keep_whole = width.is_some_and(|width| self.width(&others) + GAP + NARROWEST <= width);
        for (place, (&column, cells)) in columns.iter().zip(table.column_iter_mut()).enumerate() {
            cells.set_padding((0, if place + 1 < columns.len() { GAP as u16 } else { 0 }));
            if self.numbers[column] {
                cells.set_cell_alignment(CellAlignment::Right);
            }
            if keep_whole && column != widest {
                cells.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// As [`Self::lines`], without alignment.
    fn unaligned(&self, columns: &[usize]) -> Vec<String> {
        let line = |row: &Vec<String>| {
            let cells = columns.iter().map(|&column| row[column].as_str()).filter(|cell| !cell.is_empty());
            cells.collect::<Vec<_>>().join("  ")
        };
        let header = line(&self.header);
        let rule = "─".repeat(header.chars().count());
        [header, rule].into_iter().chain(self.rows.iter().map(line)).collect()
    }

    /// The header and its rule, then the output of `of` for each row and its line.
    fn joined<'a>(
        &'a self,
        lines: &[String],
        mut of: impl FnMut(&str, &'a Vec<String>) -> Vec<String>,
    ) -> String {
        let head = lines[..2].iter().cloned();
        let rows = lines[2..].iter().zip(&self.rows).flat_map(|(line, row)| of(line, row));
        head.chain(rows).collect::<Vec<_>>().join("\n")
    }
}

/// A number with its significant digits, thousands separated by commas.
pub fn grouped(value: f64) -> String {
    let magnitude = value.abs();
    let text = match magnitude {
        _ if magnitude >= 100.0 || value == value.trunc() => format!("{magnitude:.0}"),
        _ if magnitude >= 10.0 => format!("{magnitude:.1}"),
        _ if magnitude >= 1.0 => format!("{magnitude:.2}"),
        _ => format!("{magnitude:.3}"),
    };
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 && whole.len() > 4 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{}{grouped}{rest}", if value < 0.0 { "-" } else { "" })
}

/// Wraps a sentence into indented lines of a width; empty for empty text.
pub fn wrapped(text: &str, indent: usize, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() + indent <= width => {
                *line += " ";
                *line += word;
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| moved_in(line, indent)).collect()
}

fn moved_in(line: &str, indent: usize) -> String {
    format!("{:indent$}{line}", "")
}

#[cfg(test)]
mod tests {
    use super::{Fit, TextTable};

    fn table(fit: Fit) -> TextTable {
        let mut table = TextTable::new(["name", "one", "two", "why"], fit).numbers(1..3);
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        table.add(row(["first", "1", "22.5", "because of this and of that"]));
        table.add(row(["second-one", "100", "3", ""]));
        table
    }

    #[test]
    fn rows_stay_whole_where_there_is_room() {
        let wide = table(Fit::LastBelow).render(None);
        assert_eq!(wide, table(Fit::Wrap).render(Some(80)));
        let lines: Vec<&str> = wide.lines().collect();
        assert_eq!(lines[0], "name        one   two  why");
        assert_eq!(lines[2], "first         1  22.5  because of this and of that");
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn each_way_to_fit_keeps_the_width_and_every_cell() {
        for fit in [Fit::Wrap, Fit::LastBelow, Fit::FirstAbove, Fit::Fold(1)] {
            for width in [32, 40, 48] {
                let text = table(fit).render(Some(width));
                let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
                assert!(widest <= width, "{fit:?} {width}:\n{text}");
                for word in ["first", "22.5", "second-one", "100", "because", "that"] {
                    assert!(text.contains(word), "{fit:?} {width}: {word}\n{text}");
                }
            }
        }
    }

    #[test]
    fn sentences_go_below_and_wide_rows_stay_in_one_table() {
        let below = table(Fit::LastBelow).render(Some(30));
        assert!(
            below.contains("first         1  22.5\n    because of this and of\n    that\nsecond-one  100"),
            "{below}"
        );
        let swapped = table(Fit::Fold(1)).render(Some(45));
        assert!(swapped.starts_with("name                        first  second-one\n"), "{swapped}");
        assert!(swapped.contains("\nwhy   because of this and of that"), "{swapped}");
        let folded = table(Fit::Fold(1)).render(Some(32));
        assert_eq!(folded.matches("second-one").count(), 1, "{folded}");
        let lines: Vec<&str> = folded.lines().collect();
        assert_eq!(lines[0], "name        one   two", "{folded}");
        assert_eq!(lines[1], "    why", "{folded}");
        assert_eq!(lines[4], "    because of this and of that", "{folded}");
    }
}
