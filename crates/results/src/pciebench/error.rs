//! Errors of result files, with remedies.

use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a result file or directory is invalid, with location and remedy.
#[derive(Debug, Error)]
#[error("{}{}: {problem}", file.display(), AtRow(*row))]
pub struct ReadError {
    /// The file or directory.
    pub file: PathBuf,
    /// Number of the row below the header, from 1, if the problem is in a row.
    pub row: Option<usize>,
    /// What is wrong, and what to do about it.
    pub problem: Problem,
}

impl ReadError {
    pub(super) fn new(file: &Path, row: Option<usize>, problem: Problem) -> Self {
        Self { file: file.to_owned(), row, problem }
    }
}

struct AtRow(Option<usize>);

impl core::fmt::Display for AtRow {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            Some(row) => write!(f, ", row {row} (line {})", row + 1),
            None => Ok(()),
        }
    }
}

/// Kinds of problems.
#[derive(Debug, Error)]
pub enum Problem {
    /// An error of the operating system.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// An empty file.
    #[error("the file is empty; run the benchmark again or leave the file out")]
    Empty,
    /// A header without rows.
    #[error("the file has a header and no rows; run the benchmark again or leave the file out")]
    NoRows,
    /// Not a header of pcie-bench.
    #[error(
        "the header is not one of pcie-bench's (it begins `{found}`; {difference}); \
         latency files begin `Test,PAT,Cache,HO,DO,WinSZ,SZ,TAvg`, bandwidth files \
         `Test,PAT,Cache,HO,DO,WinSZ,SZ,Time(cyc)`, distributions `cycles,ns,cdf`"
    )]
    Header {
        /// Start of the header found.
        found: String,
        /// The first column that differs.
        difference: String,
    },
    /// The byte at this offset is not valid UTF-8.
    #[error("the file is not text (byte {0} is not valid UTF-8); it may be corrupt or compressed")]
    NotText(usize),
    /// The last row is incomplete.
    #[error(
        "the file ends within this row (no line ending): it was truncated; copy it again or delete the row"
    )]
    Truncated,
    /// Wrong number of columns.
    #[error("{found} columns where the header has {expected}; a row was cut short or two were joined")]
    Columns {
        /// Columns in the row.
        found: usize,
        /// Columns in the header.
        expected: usize,
    },
    /// A field is not a number.
    #[error("column `{column}` holds `{text}` where {wanted} belongs")]
    Number {
        /// The column's heading.
        column: &'static str,
        /// The text found.
        text: String,
        /// What is expected.
        wanted: &'static str,
    },
    /// An unknown word.
    #[error("column `{column}`: {word}")]
    Word {
        /// The column's heading.
        column: &'static str,
        /// The word found, and the allowed ones.
        word: super::UnknownWord,
    },
    /// A row whose fields contradict each other.
    #[error("the row contradicts itself: {0}; it was edited or columns were swapped")]
    Inconsistent(String),
    /// A row that pcie-bench cannot have measured.
    #[error("pcie-bench cannot have run this: {0}; the row was edited or columns were swapped")]
    Impossible(String),
    /// The rows do not match the file's name.
    #[error("the file's name promises {promised}, the row has {found}; the file or the row is mislabelled")]
    Mislabelled {
        /// What the name says.
        promised: String,
        /// What the row says.
        found: String,
    },
    /// The directory's name cannot be parsed.
    #[error(
        "the directory's name does not say {missing}; expected \
         CARD_CPU-MODEL_BOX[-sX-sY-sZ][-iommu[-nosp]], as in \
         `nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s1-s1-iommu-nosp`; give the machine explicitly otherwise"
    )]
    DirectoryName {
        /// The missing part.
        missing: &'static str,
    },
    /// A directory without results.
    #[error("no pcie-bench result file (*.csv) in this directory")]
    NoResults,
}
