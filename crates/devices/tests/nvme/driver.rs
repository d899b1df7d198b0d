//! A small polling driver with queue pairs in host memory.

use std::collections::BTreeMap;

use devices::nvme::{MemoryMedia, Nvme, NvmeControl, NvmeParams};
use platform::testing::Bench;
use units::Duration;
use wire::nvme::io::Blocks;
use wire::nvme::registers::{self as regs, completion_doorbell, submission_doorbell};
use wire::nvme::*;

use super::back_end::{BackEnd, MEMORY};
use super::fabric::OnFabric;

pub struct Pair {
    pub sq: u64,
    pub cq: u64,
    pub tail: SubmissionRing,
    pub head: CompletionRing,
}

pub struct Driver {
    pub host: Box<dyn BackEnd>,
    pub control: NvmeControl,
    pub function: u8,
    pub pairs: BTreeMap<u16, Pair>,
    next_id: u16,
    next_page: u64,
}

pub const ADMIN_ENTRIES: u16 = 32;

impl Driver {
    pub fn on_bench(params: NvmeParams) -> Self {
        let drive = Nvme::new(params, Box::new(MemoryMedia::default())).unwrap();
        let control = drive.control();
        Self::new(Box::new(Bench::new(drive, MEMORY)), control)
    }

    pub fn on_fabric(params: NvmeParams) -> Self {
        let (vectors, io_queues) = (params.vectors, params.io_queues);
        let drive = Nvme::new(params, Box::new(MemoryMedia::default())).unwrap();
        let control = drive.control();
        Self::new(Box::new(OnFabric::new(drive, vectors, io_queues)), control)
    }

    pub fn new(host: Box<dyn BackEnd>, control: NvmeControl) -> Self {
        Self { host, control, function: 0, pairs: BTreeMap::new(), next_id: 0, next_page: 0x10_0000 }
    }

    /// Allocates consecutive zeroed pages.
    pub fn pages(&mut self, count: u64) -> u64 {
        let at = self.next_page;
        self.next_page += count * 4096;
        assert!(self.next_page <= MEMORY as u64, "out of test memory");
        self.host.write(at, &vec![0; count as usize * 4096]);
        at
    }

    pub fn read32(&mut self, at: u64) -> u32 {
        self.host.bar_read(self.function, 0, at)
    }

    pub fn write32(&mut self, at: u64, value: u32) {
        self.host.bar_write(self.function, 0, at, &value.to_le_bytes());
    }

    pub fn write64(&mut self, at: u64, value: u64) {
        self.write32(at, value as u32);
        self.write32(at + 4, (value >> 32) as u32);
    }

    pub fn status(&mut self) -> ControllerStatus {
        ControllerStatus::from_bits(self.read32(regs::CSTS))
    }

    pub fn bytes(&mut self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.host.read(at, &mut bytes);
        bytes
    }

    /// Sets up the admin queues and enables the controller with `configuration`.
    pub fn enable_with(&mut self, configuration: Configuration) {
        let (sq, cq) = (self.pages(1), self.pages(1));
        let last = ADMIN_ENTRIES - 1;
        self.write32(regs::AQA, AdminQueues { submission: last, completion: last }.to_bits());
        self.write64(regs::ASQ, sq);
        self.write64(regs::ACQ, cq);
        let (tail, head) = (SubmissionRing::new(ADMIN_ENTRIES), CompletionRing::new(ADMIN_ENTRIES));
        self.pairs = BTreeMap::from([(0, Pair { sq, cq, tail, head })]);
        self.write32(regs::CC, configuration.to_bits());
        self.host.run_for(Duration::from_ms(1));
    }

    pub fn enable(&mut self) -> &mut Self {
        self.enable_with(Configuration::enabled());
        assert!(self.status().ready);
        self
    }

    pub fn disable(&mut self) {
        self.write32(regs::CC, Configuration { enable: false, ..Configuration::enabled() }.to_bits());
        self.host.run_for(Duration::from_ms(1));
        self.pairs.clear();
    }

    /// An unused command identifier.
    pub fn id(&mut self) -> u16 {
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }

    pub fn put(&mut self, queue: u16, command: &Command) {
        let pair = self.pairs.get_mut(&queue).unwrap();
        let at = pair.tail.push().expect("the queue is full");
        let at = pair.sq + u64::from(at) * 64;
        self.host.write(at, &command.emit());
    }

    pub fn ring(&mut self, queue: u16) {
        let tail = self.pairs[&queue].tail.tail();
        self.write32(submission_doorbell(queue, 0), u32::from(tail));
    }

    pub fn submit(&mut self, queue: u16, command: Command) -> u16 {
        let id = self.id();
        self.put(queue, &Command { id, ..command });
        self.ring(queue);
        id
    }

    /// The next completion, if any. Rings the doorbell.
    pub fn poll(&mut self, queue: u16) -> Option<CompletionEntry> {
        let pair = self.pairs.get_mut(&queue)?;
        let mut bytes = [0; 16];
        self.host.read(pair.cq + u64::from(pair.head.head()) * 16, &mut bytes);
        let entry = pair.head.take(&bytes)?;
        let head = pair.head.head();
        let of = self.pairs.get_mut(&entry.submission_queue).expect("a completion names a queue");
        assert!(of.tail.completed(entry.submission_head), "{entry}: the head went past the tail");
        self.write32(completion_doorbell(queue, 0), u32::from(head));
        Some(entry)
    }

    /// Waits for the next completion.
    pub fn wait(&mut self, queue: u16) -> CompletionEntry {
        for _ in 0..2000 {
            if let Some(entry) = self.poll(queue) {
                return entry;
            }
            self.host.run_for(Duration::from_us(5));
        }
        panic!("queue {queue}: no completion in 10 ms");
    }

    pub fn run(&mut self, queue: u16, command: Command) -> CompletionEntry {
        let id = self.submit(queue, command);
        let entry = self.wait(queue);
        assert_eq!((entry.id, entry.submission_queue), (id, queue), "{entry}");
        entry
    }

    pub fn admin(&mut self, command: AdminCommand, namespace: u32, pointer: DataPointer) -> CompletionEntry {
        self.run(0, command.command(0, namespace).with_data(pointer))
    }

    /// An admin command that returns a page.
    pub fn page(&mut self, command: AdminCommand, namespace: u32) -> Result<Vec<u8>, Status> {
        let at = self.pages(1);
        let entry = self.admin(command, namespace, DataPointer::Prp { first: at, second: 0 });
        if entry.status.is_success() { Ok(self.bytes(at, 4096)) } else { Err(entry.status) }
    }

    pub fn create_cq(&mut self, queue: u16, entries: u16, vector: u16) -> (u64, Status) {
        let base = self.pages(1);
        let command = AdminCommand::CreateCompletionQueue {
            queue,
            size: entries.wrapping_sub(1),
            contiguous: true,
            interrupts: true,
            vector,
        };
        (base, self.admin(command, 0, DataPointer::Prp { first: base, second: 0 }).status)
    }

    pub fn create_sq(
        &mut self,
        queue: u16,
        entries: u16,
        completion_queue: u16,
        priority: u8,
    ) -> (u64, Status) {
        let base = self.pages(1);
        let size = entries.wrapping_sub(1);
        let command =
            AdminCommand::CreateSubmissionQueue { queue, size, contiguous: true, priority, completion_queue };
        (base, self.admin(command, 0, DataPointer::Prp { first: base, second: 0 }).status)
    }

    /// Creates a queue pair with vector `queue`.
    pub fn create_pair(&mut self, queue: u16, entries: u16) {
        let (cq, status) = self.create_cq(queue, entries, queue);
        assert!(status.is_success(), "{status}");
        let (sq, status) = self.create_sq(queue, entries, queue, 0);
        assert!(status.is_success(), "{status}");
        let (tail, head) = (SubmissionRing::new(entries), CompletionRing::new(entries));
        self.pairs.insert(queue, Pair { sq, cq, tail, head });
    }

    pub fn ready(mut self) -> Self {
        self.enable();
        self.create_pair(1, 16);
        self
    }

    /// PRPs for `length` bytes from `at` on, with a list if one is needed.
    pub fn prp(&mut self, at: u64, length: u64) -> DataPointer {
        let first_end = (at / 4096 + 1) * 4096;
        let rest: Vec<u64> = (first_end..at + length).step_by(4096).collect();
        let second = match rest.len() {
            0 => 0,
            1 => rest[0],
            _ => {
                let list = self.pages(1);
                let bytes: Vec<u8> = rest.iter().flat_map(|page| page.to_le_bytes()).collect();
                self.host.write(list, &bytes);
                list
            }
        };
        DataPointer::Prp { first: at, second }
    }

    pub fn blocks(&mut self, command: IoCommand, at: u64, length: u64) -> Status {
        let pointer = self.prp(at, length);
        self.run(1, command.command(0, 1).with_data(pointer)).status
    }

    pub fn write_blocks(&mut self, start: u64, data: &[u8]) -> Status {
        let at = self.pages(data.len().div_ceil(4096) as u64);
        self.host.write(at, data);
        self.blocks(IoCommand::Write(Blocks::new(start, data.len() as u32 / 512)), at, data.len() as u64)
    }

    pub fn read_blocks(&mut self, start: u64, length: u64) -> Result<Vec<u8>, Status> {
        let at = self.pages(length.div_ceil(4096));
        let status = self.blocks(IoCommand::Read(Blocks::new(start, length as u32 / 512)), at, length);
        if status.is_success() { Ok(self.bytes(at, length as usize)) } else { Err(status) }
    }

    pub fn flush(&mut self) -> Status {
        self.run(1, IoCommand::Flush.command(0, 1)).status
    }
}
