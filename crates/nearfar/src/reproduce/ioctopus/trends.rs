//! Figure 2: bandwidth of a NIC against the demand of a processor's cores, by year.
//!
//! The paper's data "from various sources" are lost; these are public specifications of products of each year. The
//! paper's text states its assumptions: a core uses at most 513 Mbit/s of TCP on rented servers, or 10 Gbit/s if half
//! its time goes into that; all cores scale; a NIC with one or two ports is used in both directions at once.

use super::Values;

/// Year, Gbit/s per NIC port, maximum cores per processor: Intel 82599 and Opteron 6100; ConnectX-3 and Opteron 6200;
/// ConnectX-4 and Xeon E5 v3; ConnectX-6 and EPYC 7001; ConnectX-6 and EPYC 7002.
const YEARS: [(u32, f64, f64); 5] =
    [(2010, 10.0, 12.0), (2012, 40.0, 16.0), (2014, 100.0, 18.0), (2017, 200.0, 32.0), (2019, 200.0, 64.0)];
/// Gbit/s per core, low and high.
const LOW: f64 = 0.513;
const HIGH: f64 = 10.0;

/// The figure's lines, and whether one NIC suffices.
pub fn lines() -> Values {
    let mut values = Values::new();
    for (year, port, cores) in YEARS {
        let lines = [
            ("port", 2.0 * port),
            ("two-ports", 4.0 * port),
            ("cpu-low", LOW * cores),
            ("cpu-high", HIGH * cores),
        ];
        values.extend(lines.map(|(line, gbit)| (format!("trend-gbit/{line}/{year}"), gbit)));
    }
    let low = YEARS.iter().all(|&(_, port, cores)| 2.0 * port >= LOW * cores);
    let high = YEARS.last().is_some_and(|&(_, port, cores)| 4.0 * port >= HIGH * cores);
    values.extend([("trend/low".to_owned(), f64::from(low)), ("trend/high".to_owned(), f64::from(high))]);
    values
}
