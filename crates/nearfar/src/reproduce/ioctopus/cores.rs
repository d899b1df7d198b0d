//! Many cores at once: streams on all of them (section 5.1.1), and what one half of a bifurcated card carries (section 3.2).

use units::Duration;

use super::server::{Bench, Organisation, Rates};
use super::streams::DRIVER;
use crate::reproduce::rig::Rig;
use crate::reproduce::runs::{Values, named, set_half_width};

const BATCH: Duration = Duration::from_us(50);
const BATCHES: usize = 60;
/// What a line of 100 Gbit/s carries of TCP's payload: 1448 bytes of 1538 on the wire.
const LINE_GBIT: f64 = 100.0 * 1448.0 / 1538.0;

/// The address of the server's function at a socket, and that of a tester which talks to it, as the two network devices have
/// them; a single device has the first.
fn addresses(organisation: Organisation, socket: u16, number: u16) -> [String; 2] {
    match (organisation, socket) {
        (Organisation::TwoNetdevs, 1) => ["10.0.1.1".to_owned(), format!("10.0.1.{}", 100 + number)],
        _ => ["10.0.0.1".to_owned(), format!("10.0.0.{}", 100 + number)],
    }
}

/// A stream for each of these cores, through the function at a socket.
fn streams(
    bench: &Bench,
    organisation: Organisation,
    sends: bool,
    cores: &[(u16, u16)],
) -> Result<Rates, String> {
    let mut text = bench.host("server", organisation, DRIVER);
    text += "[[switch]]\nname = \"switch\"\nqueue = \"4 MiB\"\n[[cable]]\nends = [\"server\", \"switch\"]\n";
    for (number, &(_, socket)) in (0..).zip(cores) {
        let [to, own] = addresses(organisation, socket, number);
        text += &match sends {
            true => format!("[[sink]]\nname = \"t{number}\"\naddress = \"{own}\"\n"),
            false => format!(
                "[[source]]\nname = \"t{number}\"\nto = \"{to}:{}\"\naddress = \"{own}\"\ntime = \"1 s\"\n",
                5001 + number
            ),
        };
        text += &format!("[[cable]]\nends = [\"t{number}\", \"switch\"]\n");
    }
    let rig = bench.boot(&text)?;
    for (number, &(core, socket)) in (0..).zip(cores) {
        let [_, other] = addresses(organisation, socket, number);
        let line = match sends {
            true => format!("iperf -c {other} -l 65536 -t 1"),
            false => format!("iperf -s -p {} -l 65536", 5001 + number),
        };
        rig.start(0, &[core], &line)?;
    }
    rig.computers.start_sources();
    Ok(settled(&rig, cores))
}

fn settled(rig: &Rig, cores: &[(u16, u16)]) -> Rates {
    // Until senders' queues are full: packets count when the driver has them.
    rig.pass(Duration::from_ms(2));
    let cores: Vec<u16> = cores.iter().map(|(core, _)| *core).collect();
    rig.measure(&cores, BATCH, BATCHES)
}

/// A stream on every core, through the near or the far function of a card with two network devices.
pub fn all(bench: &Bench, sends: bool, is_near: bool) -> Result<Values, String> {
    let cores: Vec<(u16, u16)> = (0..2u16)
        .flat_map(|socket| {
            let through = if is_near { socket } else { 1 - socket };
            (0..bench.cores).map(move |n| (bench.core(socket, n), through))
        })
        .collect();
    let rates = streams(bench, Organisation::TwoNetdevs, sends, &cores)?;
    let (way, name) = (if sends { "tx" } else { "rx" }, if is_near { "local" } else { "remote" });
    let each = [("line", 100.0 * rates.gbit / LINE_GBIT), ("gbit", rates.gbit)];
    let others = [("cpu", rates.cpu), ("memory-share", 100.0 * rates.memory / rates.gbit)];
    Ok(named(&format!("multicore-{way}"), name, rates.interval, &each, &others))
}

/// All cores of one socket receive by an octoNIC.
pub fn one_socket(bench: &Bench, organisation: Organisation, name: &str) -> Result<Values, String> {
    let cores: Vec<(u16, u16)> = (0..bench.cores).map(|n| (bench.core(0, n), 0)).collect();
    let rates = streams(bench, organisation, false, &cores)?;
    let key = format!("{name}/one-socket");
    let mut values = Values::from([(format!("{key}-dma"), rates.written), (key.clone(), rates.gbit)]);
    set_half_width(&mut values, &key, rates.interval * rates.gbit);
    Ok(values)
}
