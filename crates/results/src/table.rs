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
    /// still too wide, as [`Self::Blocks`].
    FirstAbove,
    /// Split the columns into several tables, each starting with this number of leading columns.
    Blocks(usize),
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
            Fit::Blocks(_) | Fit::FirstAbove => {
                let labels = if let Fit::Blocks(labels) = self.fit { labels } else { 1 };
                let blocks = self.blocks(labels, width);
                blocks
                    .iter()
                    .map(|block| self.lines(block, Some(width)).join("\n"))
                    .collect::<Vec<_>>()
                    .join("\n\n")
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

    /// Splits the columns into tables that are narrow enough.
    fn blocks(&self, labels: usize, width: usize) -> Vec<Vec<usize>> {
        let labels: Vec<usize> = (0..labels).collect();
        let mut blocks = vec![labels.clone()];
        for column in labels.len()..self.header.len() {
            let block = blocks.last_mut().expect("one from the start");
            block.push(column);
            if self.width(block) > width && block.len() > labels.len() + 1 {
                block.pop();
                blocks.push([&labels[..], &[column]].concat());
            }
        }
        blocks
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
        for fit in [Fit::Wrap, Fit::LastBelow, Fit::FirstAbove, Fit::Blocks(1)] {
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
    fn sentences_go_below_and_blocks_repeat_their_labels() {
        let below = table(Fit::LastBelow).render(Some(30));
        assert!(
            below.contains("first         1  22.5\n    because of this and of\n    that\nsecond-one  100"),
            "{below}"
        );
        let blocks = table(Fit::Blocks(1)).render(Some(20));
        assert_eq!(blocks.matches("second-one").count(), 3, "{blocks}");
    }
}
