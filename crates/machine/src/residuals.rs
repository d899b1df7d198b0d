//! Errors of results with a machine file's figures, written by `nearfar fit`. No simulation reads them.

use std::collections::BTreeMap;

use crate::read::{Check, record};

/// Series by name, such as `lat_dma_sweep_*`, by directory of results.
pub type Residuals = BTreeMap<String, BTreeMap<String, Residual>>;

record! {
    /// Errors of a series of results against simulation.
    pub struct Residual {
        /// Number of rows included, without artefacts and repeats.
        rows: u64,
        /// Median of |error|, percent.
        median_pct: f64,
        /// 90th percentile of |error|, percent.
        p90_pct: f64,
        /// Maximum |error|, percent.
        worst_pct: f64,
    }
    check |residual: &Residual, check: &mut Check<'_>| {
        let Residual { median_pct, p90_pct, worst_pct, .. } = *residual;
        check.require(
            0.0 <= median_pct && median_pct <= p90_pct && p90_pct <= worst_pct,
            "median_pct",
            "errors are not negative, and the median is not above the 90th percentile, nor that above the greatest",
            "let `nearfar fit` write the residuals",
        );
    }
}
