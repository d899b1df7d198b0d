//! Latency from one host's memory to another's (sections 7.2 and 7.4). Two programs write into each other's memory in
//! turn and poll their own for the answer. One-way latency is half a round trip.

use std::rc::Rc;

use nearfar::drivers::ntb::NtbAdapter;
use platform::Error;
use platform::cpu::{Cpu, CpuId};
use platform::dma::Coherent;
use platform::kernel::TaskParams;
use platform::mmio::{MemoryType, Mmio};
use units::Duration;

use super::Values;
use super::topology::{MACHINE, Scenario, adapter, borrower, cluster, host};
use crate::Options;
use crate::rig::Rig;

/// Timed round trips.
const ROUNDS: u64 = 64;
/// Cycles of an iteration of the polling loop (assumed: a load that hits, a comparison and a branch).
const LOOK: u64 = 6;
/// Timeout for an answer.
const PATIENCE: Duration = Duration::from_ms(1);

/// One side of the ping-pong.
struct Player {
    own: Coherent,
    there: Mmio,
    serves: bool,
}

impl Player {
    /// Writes a word and flushes it: SISCI, the API for these adapters, maps remote memory as write-combining.
    fn send(&self, cpu: &Cpu, number: u64) {
        self.there.write_u64(cpu, 0, number);
        cpu.sfence();
    }

    /// Plays all rounds. Returns the time taken.
    async fn play(self, cpu: &Cpu) -> Result<Duration, Error> {
        let began = cpu.now();
        for number in 1..=ROUNDS {
            if self.serves {
                self.send(cpu, number);
            }
            let deadline = cpu.now() + PATIENCE;
            while cpu.load_u64(self.own.cpu) != number {
                cpu.cycles(LOOK).await;
                if cpu.now() > deadline {
                    return Err(Error::TimedOut);
                }
            }
            if !self.serves {
                self.send(cpu, number);
            }
        }
        Ok(cpu.now().since(began))
    }
}

/// One-way latency between two hosts, in nanoseconds.
fn rally(options: &Options, text: &str, hosts: [usize; 2]) -> Result<f64, String> {
    let rig = Rig::boot(options, "device-lending", text)?;
    let adapters: Vec<Rc<NtbAdapter>> = hosts.iter().filter_map(|&host| rig.host(host).adapter()).collect();
    let [first, second] = &adapters[..] else { return Err("a host has no adapter".into()) };
    let task = || TaskParams::named("rally").on(CpuId(0));
    let said = |error: Error| error.to_string();
    let mut memory = Vec::new();
    for (adapter, host) in adapters.iter().zip(hosts) {
        let dma = adapter.dma();
        let own = rig.host(host).kernel.run(task(), async move |cpu| dma.alloc_coherent(&cpu, 4096, None));
        memory.push(rig.wait(&own)?.map_err(said)?);
    }
    let mut ends = Vec::new();
    // The responder starts polling first.
    for (n, (own, other)) in [(first, second), (second, first)].into_iter().enumerate().rev() {
        let (own, node, target, mine) = (Rc::clone(own), other.node(), memory[1 - n].bus, memory[n]);
        ends.push(rig.host(hosts[n]).kernel.run(task(), async move |cpu| {
            let there = own.remap(own.map(&cpu, node, target.get(), 4096)?, MemoryType::WriteCombining)?;
            Player { own: mine, there, serves: n == 0 }.play(&cpu).await
        }));
    }
    let outcomes: Result<Vec<Duration>, Error> = rig.wait_all(&ends)?.into_iter().collect();
    let took = *outcomes.map_err(said)?.last().expect("there are two");
    Ok(took.as_ns_f64() / (2 * ROUNDS) as f64)
}

/// Two hosts back to back, and two hosts of the cluster of three.
pub fn run(options: &Options) -> Result<Values, String> {
    let two = borrower()
        + &host("lender", MACHINE, "off")
        + &adapter("slot")
        + &cluster(&["borrower", "lender"], &[]);
    let three = Scenario::named("2L-P2P-SW").text();
    Ok([
        ("one-way/Rem-two".to_owned(), rally(options, &two, [0, 1])?),
        ("one-way/Rem-three".to_owned(), rally(options, &three, [0, 2])?),
    ]
    .into())
}

#[cfg(test)]
mod tests {
    use super::super::tests::options;
    use super::*;

    /// A latency added to each adapter delays one way by twice as much.
    #[test]
    fn a_word_passes_each_adapter_once() {
        let at = |latency: &str| {
            let slow =
                |text: String| text.replace("ntb = \"", &format!("change.latency = \"{latency}\"\nntb = \""));
            let text = borrower() + &host("lender", MACHINE, "off") + &adapter("slot");
            rally(&options(), &(slow(text) + &cluster(&["borrower", "lender"], &[])), [0, 1]).unwrap()
        };
        let (slow, fast) = (at("1150 ns"), at("150 ns"));
        // Polling adds a little jitter.
        assert!((slow - fast - 2000.0).abs() < 10.0, "{slow} {fast}");
    }
}
