//! Figure 2: what a NIC carries against what a processor's cores may ask for, from year to year.
//!
//! The paper's data "from various sources" are lost; these are public figures of products of the years. Its assumptions stand
//! in its text: a core takes 513 Mbit/s of TCP at most on rented servers, or 10 Gbit/s if half of its time goes into that, all
//! cores scale, and a NIC of one port or two is used in both directions at once.

use super::Values;

/// Year, Gbit/s of a NIC's port, most cores of a processor: Intel 82599 and Opteron 6100; ConnectX-3 and Opteron 6200; ConnectX-4
/// and Xeon E5 v3; ConnectX-6 and EPYC 7001; ConnectX-6 and EPYC 7002.
const YEARS: [(u32, f64, f64); 5] =
    [(2010, 10.0, 12.0), (2012, 40.0, 16.0), (2014, 100.0, 18.0), (2017, 200.0, 32.0), (2019, 200.0, 64.0)];
/// Gbit/s of a core, low and high.
const LOW: f64 = 0.513;
const HIGH: f64 = 10.0;

/// The figure's lines, and whether a NIC is enough.
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
