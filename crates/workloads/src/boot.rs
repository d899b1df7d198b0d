//! Root disks: `mkimage` writes an image with a command line to a block device; `init` reads and checks the image,
//! and runs that command line. Works natively and in virtual machines.

use std::rc::Rc;

use platform::block::Segment;
use platform::cpu::{Async, Cpu};
use platform::kernel::Kernel;
use platform::memory::{Pages, Policy};
use platform::storage::BlockFile;
use units::Duration;

use crate::fio::{holds, store};
use crate::options::{size, time};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::random::content;
use crate::registry;

/// Size of the image's header block, and of the pieces that follow.
const HEAD: usize = 4096;
const PIECE: u64 = 64 << 10;
/// Magic number at the start of the header.
const MAGIC: [u8; 8] = *b"nearfar1";
/// Polling interval for a root disk that has not appeared yet (Linux: `rootwait` polls every 5 ms).
const LOOK: Duration = Duration::from_ms(5);

/// Header of an image.
struct Head {
    /// Bytes after the header.
    bytes: u64,
    /// Seed of those bytes.
    seed: u64,
    /// The command line to run.
    line: String,
}

impl Head {
    fn emit(&self) -> Vec<u8> {
        let mut block = [&MAGIC[..], &self.bytes.to_le_bytes(), &self.seed.to_le_bytes()].concat();
        block.extend((self.line.len() as u64).to_le_bytes());
        block.extend(self.line.as_bytes());
        block.resize(HEAD, 0);
        block
    }

    fn parse(block: &[u8]) -> Option<Self> {
        let word = |n: usize| Some(u64::from_le_bytes(block.get(8 * n..8 * n + 8)?.try_into().ok()?));
        let length = usize::try_from(word(3)?).ok()?;
        let line = block.get(32..length.checked_add(32)?)?;
        let line = String::from_utf8(line.to_vec()).ok()?;
        (block[..8] == MAGIC).then_some(())?;
        Some(Self { bytes: word(1)?, seed: word(2)?, line })
    }

    /// The pieces after the header: offset on the device, and length.
    fn pieces(&self) -> impl Iterator<Item = (u64, usize)> + use<> {
        let end = self.bytes;
        (0..end).step_by(PIECE as usize).map(move |at| (at, PIECE.min(end - at) as usize))
    }
}

/// Writes an image for `init` to a block device: `--size` bytes and, after `--`, the command line to run.
#[derive(clap::Parser, Clone, PartialEq, Debug)]
#[command(name = "mkimage")]
pub struct Mkimage {
    /// The block device, such as /dev/nvme0n1.
    device: String,
    /// Bytes of the image after its first block.
    #[arg(long, default_value = "256k", value_parser = size)]
    size: u64,
    /// The command line to run.
    #[arg(last = true, required = true)]
    line: Vec<String>,
}

impl Mkimage {
    fn head(&self, seed: u64) -> Head {
        Head { bytes: self.size, seed, line: self.line.join(" ") }
    }
}

/// Allocates memory for a piece and runs a closure on it.
async fn with_buffer<T>(
    cpu: &Cpu,
    kernel: &Rc<dyn Kernel>,
    work: impl AsyncFnOnce(Pages) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let pages = kernel.alloc_pages(cpu, Pages::order_for(PIECE), Policy::Task)?;
    let done = work(pages).await;
    kernel.free_pages(cpu, pages);
    done
}

fn segment(pages: Pages, length: usize) -> [Segment; 1] {
    [Segment { at: pages.start, length: length as u32 }]
}

impl Program for Mkimage {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        let disk = premises.disk("mkimage", &self.device)?;
        let message = format!("mkimage: {} holds {} bytes", self.device, disk.bytes);
        Refused::unless(
            self.size.saturating_add(HEAD as u64) <= disk.bytes,
            message,
            "a smaller --size: there is a block before it",
        )?;
        let line = self.line.join(" ");
        let message = "mkimage: the command line is longer than the image's first block";
        Refused::unless(line.len() <= HEAD - 32, message, "a shorter one")?;
        registry::parse(&line).map(drop)
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let Environment { kernel, seed, .. } = environment;
            let none = || Failure(format!("mkimage: there is no {}", self.device));
            let (file, head) = (kernel.open_block(&self.device).ok_or_else(none)?, self.head(seed));
            let failed = |error| Failure::about(format!("mkimage: {}", self.device), error);
            with_buffer(&cpu, &kernel, async |pages| {
                let memory = segment(pages, HEAD);
                store(&cpu, &memory, &head.emit()).await;
                file.write(&cpu, 0, &memory).await.map_err(failed)?;
                for (at, length) in head.pieces() {
                    let memory = segment(pages, length);
                    store(&cpu, &memory, &content(head.seed, at, length)).await;
                    file.write(&cpu, HEAD as u64 + at, &memory).await.map_err(failed)?;
                }
                file.sync(&cpu).await.map_err(failed)
            })
            .await?;
            let mut report = Report::default();
            report.add("written", "B", (head.bytes + HEAD as u64) as f64);
            Ok(report)
        })
    }
}

/// Waits for its root disk, reads the image (see `mkimage`), checks every byte, and runs the image's command line.
#[derive(clap::Parser, Clone, PartialEq, Debug)]
#[command(name = "init")]
pub struct Init {
    /// The root disk, such as /dev/nvme0n1.
    root: String,
    /// Maximum time to wait for it.
    #[arg(long, default_value = "2s", value_parser = time)]
    rootwait: Duration,
}

impl Init {
    async fn root(&self, cpu: &Cpu, kernel: &Rc<dyn Kernel>) -> Result<Rc<dyn BlockFile>, Failure> {
        let until = cpu.now() + self.rootwait;
        loop {
            if let Some(file) = kernel.open_block(&self.root) {
                return Ok(file);
            }
            if cpu.now() >= until {
                return Err(Failure(format!("init: there is no root disk {}", self.root)));
            }
            cpu.sleep(LOOK).await;
        }
    }

    /// Reads an image from a disk and checks its bytes.
    async fn load(&self, cpu: &Cpu, file: &dyn BlockFile, pages: Pages) -> Result<Head, Failure> {
        let failed = |error| Failure::about(format!("init: {}", self.root), error);
        let memory = segment(pages, HEAD);
        file.read(cpu, 0, &memory).await.map_err(failed)?;
        let mut block = vec![0; HEAD];
        cpu.load_long(pages.start, &mut block).await;
        let none = || Failure(format!("init: {} has no image: `mkimage` writes one", self.root));
        let head = Head::parse(&block).ok_or_else(none)?;
        for (at, length) in head.pieces() {
            let memory = segment(pages, length);
            file.read(cpu, HEAD as u64 + at, &memory).await.map_err(failed)?;
            if !holds(cpu, &memory, &content(head.seed, at, length)).await {
                return Err(Failure(format!("init: the image on {} is damaged behind byte {at}", self.root)));
            }
        }
        Ok(head)
    }
}

impl Program for Init {
    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        premises.disk("init", &self.root).map(drop)
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Box::pin(async move {
            let kernel = Rc::clone(&environment.kernel);
            let file = self.root(&cpu, &kernel).await?;
            let found = cpu.now();
            let load = async |pages| self.load(&cpu, &*file, pages).await;
            let head = with_buffer(&cpu, &kernel, load).await?;
            let took = cpu.now().since(found).as_ns_f64() / 1e3;
            let mut report = registry::parse(&head.line)?.run(cpu, environment).await?;
            report.add("image", "B", (head.bytes + HEAD as u64) as f64);
            report.add("image read in", "us", took);
            Ok(report)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_written_and_nonsense_is_none() {
        let head = Head { bytes: 70_000, seed: 9, line: "stream".into() };
        let mut block = head.emit();
        let read = Head::parse(&block).expect("it is one");
        assert_eq!((read.bytes, read.seed, read.line.as_str()), (70_000, 9, "stream"));
        assert_eq!(read.pieces().collect::<Vec<_>>(), [(0, 65_536), (65_536, 4_464)]);
        block[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Head::parse(&block).is_none());
        assert!(Head::parse(&[0; HEAD]).is_none() && Head::parse(&[]).is_none());
    }
}
