//! The receive side, which the paper leaves for the future (section V). A frame stays in the card, and the core
//! fetches it by streaming loads from a write-combining mapping, or word by word from an uncached one; compared with
//! DMA into memory. The driver is the same in all cases, and the received data are checked.

use std::rc::Rc;

use nearfar::drivers::nic::{HeldParams, KpioParams, Loads, NicDriverParams};
use platform::cpu::{CpuId, Part};
use platform::net::{MacAddr, PacketQueue};
use units::Duration;
use wire::kpio::LINE;

use super::Values;
use super::analyser::{FPGA, FrameSource, HEADERS, PacketKind, Watched};
use crate::Options;

const SIZES: [u32; 8] = [16, 64, 128, 256, 512, 768, 1024, 1472];
/// The core that receives the card's interrupts and runs the waiting program.
const RECEIVER: u16 = 0;
/// Warm-up messages per size.
const BEFORE: usize = 2;

/// Cost of a frame.
struct Cost {
    /// From the last symbol of its last line on the way into the card, which loops it back, until a waiting program
    /// has its bytes.
    latency: Duration,
    /// CPU time of the receiving core: the driver, and the program's loads.
    cpu: Duration,
}

fn receive(rig: &Watched, to: MacAddr, arrivals: &Rc<PacketQueue>, length: u32) -> Result<Cost, String> {
    let (kernel, device, queue) = (rig.kernel(), rig.device()?, Rc::clone(arrivals));
    let driver_time = || rig.kernel().busy(CpuId(RECEIVER))[Part::Driver as usize];
    let before = driver_time();
    let program = rig.spawn(RECEIVER, async move |cpu| {
        let packet = queue.take().await;
        cpu.sync().await;
        let begin = cpu.now();
        let mut bytes = vec![0; packet.length() as usize];
        packet.load(&cpu, &mut bytes);
        let loads = cpu.now().since(begin);
        packet.release(&cpu);
        (begin + loads, loads, bytes)
    });
    let (sent, seen) = rig.record(async move |cpu| {
        let frames = FrameSource::new(&cpu, &kernel).map_err(|error| error.to_string())?;
        frames.send_to(&cpu, &device, to, length, 1).await;
        Ok::<(), String>(())
    })?;
    sent?;
    let (end, loads, bytes) = rig.wait(&program)?;
    // The signature format rounds lengths up.
    let is_whole = bytes.get(14..length as usize).is_some_and(|body| body.iter().all(|&byte| byte == 0x5a));
    if !is_whole {
        return Err(format!("a frame of {length} B was damaged"));
    }
    let lines = seen.iter().filter(|s| s.is_down && s.kind == PacketKind::Write && s.payload == LINE as u64);
    let came = lines.map(|line| line.until).max().ok_or("no line went to the card")?;
    Ok(Cost { latency: end.since(came), cpu: driver_time() - before + loads })
}

fn way(options: &Options, held: Option<Loads>) -> Result<Vec<Cost>, String> {
    let params = NicDriverParams {
        channels: Some(1),
        kpio: Some(KpioParams::papers()),
        held: held.map(|loads| HeldParams { up_to: u16::MAX, loads }),
        // No interrupt coalescing, in any case.
        coalescing: Duration::ZERO,
        coalescing_packets: 1,
        adaptive: false,
        ..NicDriverParams::default()
    };
    let rig = Watched::with_nic(options, FPGA, params)?;
    let other = rig.kernel().packet_device("eth1").ok_or("the card has no second interface")?;
    let (to, arrivals) = (other.limits().mac, other.listen(None, 1 << 10));
    let cost = |message: &u32| {
        for _ in 0..BEFORE {
            receive(&rig, to, &arrivals, HEADERS + message)?;
        }
        receive(&rig, to, &arrivals, HEADERS + message)
    };
    SIZES.iter().map(cost).collect()
}

pub fn ways(options: &Options) -> Result<Values, String> {
    let ways = [("stream", Some(Loads::Streaming)), ("uncached", Some(Loads::Uncached)), ("dma", None)];
    let mut values = Values::new();
    for (name, held) in ways {
        for (size, cost) in SIZES.into_iter().zip(way(options, held)?) {
            values.insert(format!("receive/{name}/{size}"), cost.latency.as_ns_f64());
            values.insert(format!("receive-cpu/{name}/{size}"), cost.cpu.as_ns_f64());
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journey_there_and_back_is_slower_than_one_way() {
        let options = Options::whole(1);
        let values = ways(&options).unwrap();
        for message in SIZES {
            for what in ["receive", "receive-cpu"] {
                let of = |name: &str| values[&format!("{what}/{name}/{message}")];
                assert!(
                    of("dma") < of("stream") && of("stream") < of("uncached"),
                    "{message} B: {values:#?}"
                );
            }
        }
    }
}
