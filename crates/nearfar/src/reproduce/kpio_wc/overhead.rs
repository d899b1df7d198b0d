//! What descriptors, doorbells and completions take of the link of a 10 Gbit/s NIC, beside the data.
//!
//! Messages are given to the driver as a TCP would: those of 64 B one by one, as often as a core's `send()` brings one;
//! those of 64 KiB as a packet that the card cuts.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::rc::Rc;

use drivers::nic::{NicDriver, NicDriverParams};
use hardware::link::{Passed, Side};
use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::kernel::Kernel;
use platform::memory::{Pages, Policy};
use platform::net::{Checksum, Fragment, Packet, PacketDevice};
use units::Duration;
use wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN, MacAddr};
use wire::ip::{Ipv4Header, TcpFlags, TcpHeader, ipv4, protocol, tcp};
use wire::pcie::TlpKind;

use super::Values;
use super::rig::{Card, Rig};
use crate::reproduce::Options;
use crate::trace::{Capture, Decoded, Row};

/// A NIC of 10 Gbit/s, its ports connected.
const CARD: Card<'static> = Card { nic: "82599", change: "", change_host: "", cable: true };
/// Bytes of all headers.
const HEADERS: usize = HEADER_LEN + ipv4::HEADER_LEN + tcp::HEADER_LEN;
/// Data of a segment on Ethernet.
const SEGMENT: u16 = 1460;

/// Messages of one kind.
#[derive(Clone, Copy)]
struct Messages {
    bytes: usize,
    count: u32,
    /// From one to the next.
    gap: Duration,
}

/// Headers of a TCP segment of so many bytes, for nobody.
fn headers(from: MacAddr, bytes: usize) -> Vec<u8> {
    let mut frame = vec![0x5a; HEADERS];
    let nobody = MacAddr([2, 0, 0, 0, 0xff, 0xff]);
    EthernetHeader::new(from, nobody, EtherType::IPV4).emit(&mut frame);
    let address = Ipv4Addr::new(198, 18, 0, 1);
    let length = (tcp::HEADER_LEN + bytes).min(usize::from(u16::MAX) - ipv4::HEADER_LEN);
    Ipv4Header::new(address, address, protocol::TCP, length as u16).emit(&mut frame[HEADER_LEN..]);
    let flags = TcpFlags::ACK;
    let header = TcpHeader { source: 5001, destination: 5001, flags, window: 1024, ..TcpHeader::default() };
    header.emit(&mut frame[HEADER_LEN + ipv4::HEADER_LEN..]);
    frame
}

/// Sends messages; gives where their data lie.
async fn send(
    cpu: Cpu,
    kernel: Rc<dyn Kernel>,
    device: Rc<dyn PacketDevice>,
    what: Messages,
) -> Result<std::ops::Range<u64>, Error> {
    let pages = kernel.alloc_pages(&cpu, Pages::order_for((HEADERS + what.bytes) as u64), Policy::Local)?;
    cpu.store(pages.start, &headers(device.limits().mac, what.bytes));
    let data = pages.start.0..pages.start.0 + (HEADERS + what.bytes) as u64;
    cpu.sync().await;
    let queue = device.tx_queue_for(&cpu);
    let mut next = cpu.now();
    for _ in 0..what.count {
        let length = (HEADERS + what.bytes) as u32;
        // No descriptor describes more than a page, as the stack's fragments do not.
        let pieces = (0..length).step_by(4096).map(|from| Fragment {
            pages: None,
            at: platform::memory::PhysAddr(pages.start.0 + u64::from(from)),
            length: (length - from).min(4096),
        });
        let mut packet = Packet { fragments: pieces.collect(), ..Packet::default() };
        if what.bytes > usize::from(SEGMENT) {
            let start = (HEADER_LEN + ipv4::HEADER_LEN) as u16;
            packet.checksum = Checksum::Offload { start, offset: 16 };
            (packet.segment, packet.headers) = (SEGMENT, HEADERS as u16);
        }
        while let Err(back) = device.send_directly(&cpu, queue, packet, false) {
            if !device.room(queue).await {
                return Err(Error::NoDevice);
            }
            packet = back;
        }
        cpu.sync().await;
        next += what.gap;
        cpu.sleep_until(next).await;
    }
    Ok(data)
}

/// Descriptors, doorbells and completions in percent of the bytes of all TLPs.
fn share(capture: &Capture, data: &std::ops::Range<u64>) -> f64 {
    let (mut payload, mut all) = (0u64, 0u64);
    let mut reads: BTreeMap<u16, bool> = BTreeMap::new();
    for (n, passed) in capture.packets.iter().enumerate() {
        let row = Row::of(capture, n + 1, passed, passed.at);
        let Decoded::Tlp { tlp, .. } = &row.decoded else { continue };
        let is_data = match &tlp.kind {
            TlpKind::MemoryRead(request) => {
                let is_data = data.contains(&request.byte_range().0);
                reads.insert(tlp.tag(), is_data);
                is_data
            }
            TlpKind::CompletionData(_) => reads.get(&tlp.tag()).copied().unwrap_or(false),
            // Interrupts are neither data nor descriptors.
            TlpKind::MemoryWrite(request) if is_interrupt(passed, request.address) => continue,
            _ => false,
        };
        all += row.wire_bytes;
        payload += if is_data { row.wire_bytes } else { 0 };
    }
    100.0 * (all - payload) as f64 / all.max(1) as f64
}

fn is_interrupt(passed: &Passed, address: u64) -> bool {
    passed.from == Side::Downstream && address >> 20 == 0xfee
}

/// For messages of 64 B and of 64 KiB.
pub fn descriptors(options: &Options) -> Result<Values, String> {
    let mut values = Values::new();
    let kinds = [
        // About what a system call with its way through the stack takes.
        ("iperf-64", Messages { bytes: 64, count: 200, gap: Duration::from_us(1) }),
        // About what 64 KiB take on the wire. The IP header's length field leaves a little less.
        ("iperf-64K", Messages { bytes: 65_000, count: 10, gap: Duration::from_us(56) }),
    ];
    for (name, messages) in kinds {
        let rig = Rig::new(options, CARD, vec![NicDriver::new(NicDriverParams::default()) as _])?;
        let (kernel, device) = (rig.kernel(), rig.device()?);
        let program = move |cpu: Cpu| -> Async<'static, Result<_, Error>> {
            Box::pin(send(cpu, kernel, device, messages))
        };
        let (data, capture) = rig.capture(program)?;
        let data = data.map_err(|error| error.to_string())?;
        values.insert(format!("{name}/overhead"), share(&capture, &data));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_messages_pay_less_for_descriptors() {
        let options =
            Options { library: machine::Library::built_in(), data: std::path::PathBuf::new(), seed: 1 };
        let values = descriptors(&options).unwrap();
        let (small, large) = (values["iperf-64/overhead"], values["iperf-64K/overhead"]);
        assert!(small > 5.0 * large && large > 0.5, "{small} % and {large} %");
    }
}
