//! Figure 2: bandwidth of a NIC against the demand of a processor's cores, by year.
//!
//! The paper's data "from various sources" are lost. In their place, `published/ioctopus.toml` has public
//! specifications of products of each year, with sources. The paper's text states its assumptions: what a core uses on
//! rented servers, and at most; all cores scale; a NIC with one or two ports is used in both directions at once.

use results::claims::ClaimFile;

use super::Values;

/// Years of the figure.
const YEARS: [u32; 5] = [2010, 2012, 2014, 2017, 2019];
/// Year of the earlier report on rented servers.
const EARLIER: u32 = 2014;

/// The figure's lines in Gbit/s, and the number of processors that one NIC serves.
pub fn lines(file: &ClaimFile) -> Values {
    let of = |name: &str| file.assumed(&format!("fig2/{name}"));
    let [low, high, earlier] = ["low", "high", "earlier"].map(|core| of(&format!("core/{core}")));
    let mut values = Values::new();
    for year in YEARS {
        let [port, cores, slot] = ["port", "cores", "slot"].map(|what| of(&format!("{what}/{year}")));
        // Both directions.
        let (port, two_ports, slot) = (2.0 * port, 4.0 * port, 2.0 * slot);
        values.extend(
            [
                ("trend-gbit/port", port),
                ("trend-gbit/two-ports", two_ports),
                ("trend-gbit/slot", slot),
                ("trend-gbit/cpu-low", low * cores),
                ("trend-gbit/cpu-high", high * cores),
                ("trend-served/low", port / (low * cores)),
                ("trend-served/high", two_ports / (high * cores)),
            ]
            .map(|(line, value)| (format!("{line}/{year}"), value)),
        );
        if year == EARLIER {
            values.insert("trend-served/earlier".to_owned(), port / (earlier * cores));
        }
    }
    let least =
        YEARS.iter().map(|year| values[&format!("trend-served/low/{year}")]).fold(f64::INFINITY, f64::min);
    values.insert("trend-served/low/least".to_owned(), least);
    values
}
