//! How far off results are with a machine file's figures, as `nearfar fit` states it. No simulation reads it.

use std::collections::BTreeMap;

use crate::read::{Check, record};

/// Series by name, such as `lat_dma_sweep_*`, of each directory of results.
pub type Residuals = BTreeMap<String, BTreeMap<String, Residual>>;

record! {
    /// A series of results against the same runs simulated.
    pub struct Residual {
        /// Rows that the errors are over, without artefacts and repeats.
        rows: u64,
        /// Median of |error|, percent.
        median_pct: f64,
        /// 90th percentile of |error|, percent.
        p90_pct: f64,
        /// Greatest |error|, percent.
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
