//! pcimem: loads from and stores to a BAR of a function that programs may map.

use std::rc::Rc;

use platform::cpu::{Async, Cpu, Part};
use platform::kernel::Kernel;
use platform::mmio::{MemoryType, Mmio};
use platform::pci::PciDevice;

use crate::latency::Latencies;
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};

/// Where Linux has functions, by address.
const FUNCTIONS: &str = "/sys/bus/pci/devices/";
/// Most functions of a host for programs.
const MOST: u32 = 64;
/// Accesses between two looks at the clock.
const TURN: u64 = 16;

/// A BAR as a file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct BarFile {
    /// Address of the function, such as `0000:01:00.0`.
    function: String,
    number: u8,
    kind: MemoryType,
}

fn bar_file(text: &str) -> Result<BarFile, String> {
    let wrong = || format!("`{text}` is not a BAR, such as {FUNCTIONS}0000:01:00.0/resource0");
    let (function, file) =
        text.strip_prefix(FUNCTIONS).and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
    let number = file.strip_prefix("resource").ok_or_else(wrong)?;
    let (number, kind) = match number.strip_suffix("_wc") {
        Some(number) => (number, MemoryType::WriteCombining),
        None => (number, MemoryType::Uncached),
    };
    let number = number.parse().ok().filter(|number| *number < 6).ok_or_else(wrong)?;
    Ok(BarFile { function: function.to_owned(), number, kind })
}

/// A number, in hexadecimal after `0x` and in octal after `0`, as strtoul takes it.
fn number(text: &str) -> Result<u64, String> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    u64::from_str_radix(digits, radix).map_err(|_| format!("`{text}` is not a number, such as 16 or 0x10"))
}

/// Accesses one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BarAccesses {
    /// Bytes of each.
    size: u64,
    count: u64,
}

fn accesses(text: &str) -> Result<BarAccesses, String> {
    let wrong = || {
        format!("`{text}` is neither b, h, w nor d (1, 2, 4 and 8 bytes), perhaps with a count, as in `w*4`")
    };
    let (letter, count) = text.split_once('*').unwrap_or((text, "1"));
    let size = match letter {
        "b" => 1,
        "h" => 2,
        "w" => 4,
        "d" => 8,
        _ => return Err(wrong()),
    };
    let count = count.parse().ok().filter(|count| (1..=1 << 20).contains(count)).ok_or_else(wrong)?;
    Ok(BarAccesses { size, count })
}

/// Loads from or stores to a BAR, one after the other, and measures how long each takes. The function is a card, or a drive
/// that is reserved for programs.
#[derive(clap::Parser, Clone, PartialEq, Eq, Debug)]
#[command(name = "pcimem")]
pub struct PciMem {
    /// The BAR, `/sys/bus/pci/devices/0000:01:00.0/resource0`; of `resource0_wc`, stores combine to lines.
    #[arg(value_parser = bar_file)]
    file: BarFile,
    /// Offset of the first access.
    #[arg(default_value = "0", value_parser = number)]
    offset: u64,
    /// Bytes of an access, `b`, `h`, `w` or `d`, and the number of accesses to one after the other: `w*4`.
    #[arg(default_value = "w", value_parser = accesses)]
    accesses: BarAccesses,
    /// What is written; without it, the BAR is read.
    #[arg(value_parser = number)]
    data: Option<u64>,
}

impl PciMem {
    /// The function among those that programs may map.
    fn open(&self, kernel: &Rc<dyn Kernel>) -> Result<Rc<PciDevice>, Failure> {
        let mut known = Vec::new();
        for file in (0..MOST).filter_map(|n| kernel.open_file(&format!("vfio{n}"))) {
            let Ok(device) = file.downcast::<PciDevice>() else { continue };
            let address = device.address().to_string();
            if address == self.file.function {
                return Ok(device);
            }
            known.push(address);
        }
        let known = known.join(", ");
        Err(Failure(format!("pcimem: {} is not for programs; these are: {known}", self.file.function)))
    }

    async fn load(&self, cpu: &Cpu, mapped: &Mmio, report: &mut Report) {
        let mut latencies = Latencies::default();
        let mut bytes = [0; 8];
        for at in self.places() {
            cpu.sync().await;
            let began = cpu.now();
            mapped.read(cpu, at, &mut bytes[..self.accesses.size as usize]).await;
            latencies.add(cpu.now().since(began));
        }
        report.add("last value", "", u64::from_le_bytes(bytes) as f64);
        latencies.report(report, "load");
    }

    async fn store(&self, cpu: &Cpu, mapped: &Mmio, data: u64, report: &mut Report) {
        cpu.sync().await;
        let began = cpu.now();
        for (n, at) in (0..).zip(self.places()) {
            mapped.write(cpu, at, &data.to_le_bytes()[..self.accesses.size as usize]);
            if n % TURN == TURN - 1 {
                cpu.sync().await;
            }
        }
        cpu.sfence();
        cpu.sync().await;
        let took = cpu.now().since(began).as_ns_f64();
        report.add("store mean", "ns", took / self.accesses.count as f64);
        report.add("stored", "MB/s", (self.accesses.size * self.accesses.count) as f64 * 1e3 / took);
    }

    fn places(&self) -> impl Iterator<Item = u64> {
        let BarAccesses { size, count } = self.accesses;
        let first = self.offset;
        (0..count).map(move |n| first + n * size)
    }
}

impl Program for PciMem {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let help = "a `[[host.device]]` with `card`, or a `drive` and `user_space = true` of the host's `nvme_driver`";
        let are_there = premises.cards + premises.user_drives > 0;
        Refused::unless(are_there, "pcimem: the host has no function for programs", help)?;
        let size = self.accesses.size;
        let message = format!("pcimem: {:#x} is no multiple of an access's {size} bytes", self.offset);
        Refused::unless(self.offset.is_multiple_of(size), message, "an aligned offset")
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let _part = cpu.book(Part::User);
            let device = self.open(&environment.kernel)?;
            let mapped = device
                .ioremap_bar(self.file.number, self.file.kind)
                .map_err(|error| Failure::about(format!("pcimem: BAR {}", self.file.number), error))?;
            let BarAccesses { size, count } = self.accesses;
            if self.offset.checked_add(size * count).is_none_or(|end| end > mapped.length()) {
                return Err(Failure(format!(
                    "pcimem: BAR {} has {} bytes",
                    self.file.number,
                    mapped.length()
                )));
            }
            let mut report = Report::default();
            match self.data {
                None => self.load(&cpu, &mapped, &mut report).await,
                Some(data) => self.store(&cpu, &mapped, data, &mut report).await,
            }
            Ok(report)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_accesses_are_read_as_the_tool_does() {
        let file = bar_file("/sys/bus/pci/devices/0000:01:00.0/resource2_wc").unwrap();
        assert_eq!(
            (file.function.as_str(), file.number, file.kind),
            ("0000:01:00.0", 2, MemoryType::WriteCombining)
        );
        assert_eq!(accesses("w*4"), Ok(BarAccesses { size: 4, count: 4 }));
        assert_eq!(accesses("d"), Ok(BarAccesses { size: 8, count: 1 }));
        assert_eq!((number("0x10"), number("10")), (Ok(16), Ok(10)));
        for wrong in
            ["/dev/mem", "/sys/bus/pci/devices/0000:01:00.0/resource6", "/sys/bus/pci/devices/0000:01:00.0"]
        {
            assert!(bar_file(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "q", "w*0", "w*", "*4", "w*2000000"] {
            assert!(accesses(wrong).is_err(), "{wrong}");
        }
        assert!(number("0xg").is_err() && number("-1").is_err());
    }
}
