//! The NVM command set (section 6).

use std::rc::Rc;

use units::Time;
use wire::nvme::io::{Blocks, DatasetRange, RANGE_LEN};
use wire::nvme::{ALL_NAMESPACES, Command, IoCommand, Status};

use super::drive::Drive;
use super::features::Features;
use super::host_memory::HostMemory;
use super::namespaces::Namespace;
use crate::firmware::Port;

/// Byte range on the media that a command addresses.
struct Range {
    at: u64,
    length: u64,
}

/// Executes the I/O commands of a controller.
pub(super) struct NvmCommands {
    pub controller: u16,
    pub port: Port,
    pub drive: Rc<Drive>,
    pub memory: Rc<HostMemory>,
    pub features: Rc<Features>,
}

impl NvmCommands {
    /// Executes a command, with its data transfers. Returns doubleword 0 of its completion.
    pub async fn execute(&self, command: &Command) -> Result<u32, Status> {
        let io = IoCommand::parse(command).ok_or(Status::INVALID_OPCODE.dnr())?;
        if command.fused != 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if io == IoCommand::Flush && command.namespace == ALL_NAMESPACES {
            return self.flush().await;
        }
        let namespace =
            self.drive.attached(command.namespace, self.controller).ok_or(Status::INVALID_NAMESPACE.dnr())?;
        match io {
            IoCommand::Flush => self.flush().await,
            IoCommand::Read(blocks) => self.read(command, range(&namespace, &blocks)?, &blocks).await,
            IoCommand::Write(blocks) => self.write(command, range(&namespace, &blocks)?, &blocks).await,
            IoCommand::Compare(blocks) => self.compare(command, range(&namespace, &blocks)?, &blocks).await,
            IoCommand::WriteZeroes { blocks, deallocate } => {
                let Range { at, length } = range(&namespace, &blocks)?;
                self.zero(at, length, deallocate)?;
                Ok(0)
            }
            IoCommand::DatasetManagement { ranges, deallocate } => {
                let bytes = self.memory.gather(command, (u64::from(ranges) + 1) * RANGE_LEN as u64).await?;
                self.dataset(&namespace, &bytes, deallocate)
            }
        }
    }

    fn check(&self, range: &Range, blocks: &Blocks) -> Result<(), Status> {
        self.drive.check_transfer(range.length)?;
        // No namespace has protection information, so requesting it is an error.
        if blocks.protection != 0 {
            return Err(Status::INVALID_PROTECTION.dnr());
        }
        Ok(())
    }

    async fn read(&self, command: &Command, range: Range, blocks: &Blocks) -> Result<u32, Status> {
        self.check(&range, blocks)?;
        let segments = self.memory.segments(command, range.length, true).await?;
        let now = self.port.now();
        let ready = self.drive.store.borrow_mut().schedule_read(now, range.at, range.length);
        let (mut done, mut piece) = (0, 0);
        let mut buffer = Vec::new();
        for segment in segments {
            let end = done + u64::from(segment.length);
            while piece + 1 < ready.len() && ready[piece].0 < end {
                piece += 1;
            }
            let there = ready.get(piece).map_or(Time::ZERO, |&(_, at)| at);
            self.port.sleep_until(there).await;
            let through = self.drive.pass(self.port.now(), u64::from(segment.length));
            self.port.sleep_until(through).await;
            if let Some(address) = segment.address {
                buffer.resize(segment.length as usize, 0);
                let now = self.port.now();
                let read = self.drive.store.borrow_mut().read(now, range.at + done, &mut buffer);
                read.map_err(|_| self.media_error(Status::READ_ERROR))?;
                self.memory.write_payload(address, &buffer);
            }
            done = end;
        }
        let mut smart = self.drive.smart.borrow_mut();
        smart.host_reads += 1;
        smart.data_units_read += u128::from(range.length.div_ceil(512));
        Ok(0)
    }

    async fn write(&self, command: &Command, range: Range, blocks: &Blocks) -> Result<u32, Status> {
        self.check(&range, blocks)?;
        let data = self.memory.gather(command, range.length).await?;
        let buffered = self.features.writes_are_buffered() && !blocks.force_unit_access;
        if buffered {
            loop {
                let now = self.port.now();
                let room = self.drive.store.borrow_mut().room_at(now, range.length);
                if room <= now {
                    break;
                }
                self.port.sleep_until(room).await;
                let settled = self.drive.store.borrow_mut().settle(self.port.now());
                settled.map_err(|_| self.media_error(Status::WRITE_FAULT))?;
            }
        }
        let staged = self.drive.store.borrow_mut().stage(self.port.now(), range.at, data);
        let due = staged.map_err(|_| self.media_error(Status::WRITE_FAULT))?;
        if !buffered {
            self.port.sleep_until(due).await;
            let settled = self.drive.store.borrow_mut().settle(self.port.now());
            settled.map_err(|_| self.media_error(Status::WRITE_FAULT))?;
        }
        let mut smart = self.drive.smart.borrow_mut();
        smart.host_writes += 1;
        smart.data_units_written += u128::from(range.length.div_ceil(512));
        Ok(0)
    }

    async fn compare(&self, command: &Command, range: Range, blocks: &Blocks) -> Result<u32, Status> {
        self.check(&range, blocks)?;
        let data = self.memory.gather(command, range.length).await?;
        let now = self.port.now();
        let ready = self.drive.store.borrow_mut().schedule_read(now, range.at, range.length);
        self.port.sleep_until(ready.last().map_or(now, |&(_, at)| at)).await;
        let mut stored = vec![0; data.len()];
        let read = self.drive.store.borrow_mut().read(self.port.now(), range.at, &mut stored);
        read.map_err(|_| self.media_error(Status::READ_ERROR))?;
        self.drive.smart.borrow_mut().host_reads += 1;
        if stored == data { Ok(0) } else { Err(Status::COMPARE_FAILURE) }
    }

    /// Waits until all acknowledged writes are on the media.
    pub async fn flush(&self) -> Result<u32, Status> {
        let drained = self.drive.store.borrow().drained_at(self.port.now());
        self.port.sleep_until(drained).await;
        let synced = self.drive.store.borrow_mut().sync(self.port.now());
        synced.map_err(|_| self.media_error(Status::WRITE_FAULT))?;
        Ok(0)
    }

    fn zero(&self, at: u64, length: u64, deallocate: bool) -> Result<(), Status> {
        let mut store = self.drive.store.borrow_mut();
        let done = if deallocate { store.discard(at, length) } else { store.zero(at, length) };
        drop(store);
        done.map_err(|_| self.media_error(Status::WRITE_FAULT))
    }

    fn dataset(&self, namespace: &Namespace, bytes: &[u8], deallocate: bool) -> Result<u32, Status> {
        let ranges: Vec<DatasetRange> = bytes
            .chunks_exact(RANGE_LEN)
            .filter_map(|range| range.first_chunk())
            .map(DatasetRange::parse)
            .collect();
        let outside = |r: &DatasetRange| {
            r.start.checked_add(u64::from(r.length)).is_none_or(|end| end > namespace.blocks())
        };
        if ranges.iter().any(outside) {
            return Err(Status::LBA_OUT_OF_RANGE.dnr());
        }
        for range in ranges.iter().filter(|_| deallocate) {
            let shift = namespace.shift;
            self.zero(namespace.base + (range.start << shift), u64::from(range.length) << shift, true)?;
        }
        Ok(0)
    }

    fn media_error(&self, status: Status) -> Status {
        self.drive.smart.borrow_mut().media_errors += 1;
        status
    }
}

/// Byte range of blocks on the media.
fn range(namespace: &Namespace, blocks: &Blocks) -> Result<Range, Status> {
    let end = blocks.start.checked_add(blocks.len());
    if end.is_none_or(|end| end > namespace.blocks()) {
        return Err(Status::LBA_OUT_OF_RANGE.dnr());
    }
    let shift = namespace.shift;
    Ok(Range { at: namespace.base + (blocks.start << shift), length: blocks.len() << shift })
}
