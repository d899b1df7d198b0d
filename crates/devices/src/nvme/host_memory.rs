//! Memory that commands refer to: the host's and the controller memory buffer, PRPs and SGLs (sections 4.3, 4.4, 4.7).

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use engine::Completion;
use platform::device::{Dma, DmaAttributes, FunctionIndex, Token};
use units::Iova;
use wire::nvme::pointer::{PRP_LEN, SGL_LEN};
use wire::nvme::registers::{MemoryBufferControl, MemoryBufferLocation, MemoryBufferSize};
use wire::nvme::{Command, DataPointer, SglDescriptor, SglKind, Status};

use super::drive::Drive;
use super::params::BUFFER_BAR;
use crate::firmware::{Port, ReadOutcome};

/// A segment of a command's data.
pub(super) struct Segment {
    /// Its address; `None` for a bit bucket.
    pub address: Option<u64>,
    pub length: u32,
}

/// Maximum SGL segments per command, since a chain may be endless.
const SEGMENTS: usize = 256;

/// A read in flight, or already complete.
pub(super) enum Reading {
    Local(Vec<u8>),
    Dma(Completion<ReadOutcome>),
}

impl Reading {
    pub async fn data(self) -> Result<Vec<u8>, Status> {
        match self {
            Self::Local(data) => Ok(data),
            Self::Dma(read) => read.await.ok().and_then(Result::ok).ok_or(Status::DATA_TRANSFER_ERROR),
        }
    }
}

/// The memory as a controller addresses it.
pub(super) struct HostMemory {
    function: FunctionIndex,
    port: Port,
    drive: Rc<Drive>,
    /// Page size in bytes, as chosen by the host.
    page: Cell<u64>,
    /// CMBMSC.
    control: Cell<MemoryBufferControl>,
    /// Contents of the controller memory buffer.
    buffer: RefCell<Vec<u8>>,
}

impl HostMemory {
    pub fn new(function: FunctionIndex, port: Port, drive: Rc<Drive>) -> Self {
        let buffer = RefCell::new(vec![0; drive.params.memory_buffer as usize]);
        Self { function, port, drive, page: Cell::new(4096), control: Cell::default(), buffer }
    }

    pub fn page_bytes(&self) -> u64 {
        self.page.get()
    }

    /// Sets the page size, as log2 in units of 4 KiB.
    pub fn set_page_shift(&self, shift: u8) {
        self.page.set(4096 << shift);
    }

    /// CMBMSC.
    pub fn control(&self) -> MemoryBufferControl {
        self.control.get()
    }

    /// CMBLOC and CMBSZ, if they are enabled.
    pub fn buffer_registers(&self) -> Option<(MemoryBufferLocation, MemoryBufferSize)> {
        let location = MemoryBufferLocation { bar: BUFFER_BAR, offset: 0 };
        let size = MemoryBufferSize {
            submission_queues: true,
            completion_queues: true,
            lists: true,
            read_data: true,
            write_data: true,
            unit: 0,
            size: (self.buffer.borrow().len() / 4096) as u32,
        };
        self.control.get().registers.then_some((location, size))
    }

    /// Handles a write of the doubleword of CMBMSC at `at`.
    pub fn write_control(&self, at: u64, value: u32) {
        if self.drive.params.memory_buffer > 0 {
            let bits = replace_half(self.control.get().to_bits(), at, value);
            self.control.set(MemoryBufferControl::from_bits(bits));
        }
    }

    /// Reads the buffer through its BAR. `None` outside of it.
    pub fn bar_read(&self, place: Range<usize>) -> Option<Vec<u8>> {
        self.buffer.borrow().get(place).map(<[u8]>::to_vec)
    }

    /// Writes the buffer through its BAR.
    pub fn bar_write(&self, place: Range<usize>, data: &[u8]) {
        if let Some(place) = self.buffer.borrow_mut().get_mut(place) {
            place.copy_from_slice(data);
        }
    }

    /// Reset of the registers, which keeps the contents of the buffer.
    pub fn reset(&self) {
        self.set_page_shift(0);
        self.control.set(MemoryBufferControl::default());
    }

    fn dma(&self, address: u64, length: u32, attributes: DmaAttributes) -> Dma {
        Dma { function: self.function, address: Iova::new(address), length, token: Token(0), attributes }
    }

    /// Starts a read of commands and lists.
    pub fn read(&self, address: u64, length: u32) -> Reading {
        self.read_as(address, length, DmaAttributes::default())
    }

    fn read_as(&self, address: u64, length: u32, attributes: DmaAttributes) -> Reading {
        match self.buffer_place(address, length as usize) {
            Some(place) => Reading::Local(self.buffer.borrow()[place].to_vec()),
            None => Reading::Dma(self.port.read(self.dma(address, length, attributes))),
        }
    }

    /// Writes what says that the blocks before it are there. The result, if any, completes when the data has left.
    pub fn write(&self, address: u64, data: &[u8]) -> Option<Completion<()>> {
        self.write_as(address, data, DmaAttributes::default())
    }

    /// Writes blocks.
    pub fn write_payload(&self, address: u64, data: &[u8]) {
        drop(self.write_as(address, data, DmaAttributes::PAYLOAD));
    }

    fn write_as(&self, address: u64, data: &[u8], attributes: DmaAttributes) -> Option<Completion<()>> {
        match self.buffer_place(address, data.len()) {
            Some(place) => {
                self.buffer.borrow_mut()[place].copy_from_slice(data);
                None
            }
            None => Some(self.port.write(self.dma(address, data.len() as u32, attributes), data)),
        }
    }

    /// Offset range of an address in the controller memory buffer, if it is inside.
    fn buffer_place(&self, address: u64, length: usize) -> Option<Range<usize>> {
        let control = self.control.get();
        let start = address.checked_sub(control.base).filter(|_| control.memory_space)? as usize;
        let end = start.checked_add(length)?;
        (end <= self.buffer.borrow().len()).then_some(start..end)
    }

    /// The segments of a command's `length` bytes of data. `to_host` is the direction.
    pub async fn segments(
        &self,
        command: &Command,
        length: u64,
        to_host: bool,
    ) -> Result<Vec<Segment>, Status> {
        match command.pointer().ok_or(Status::INVALID_FIELD)? {
            DataPointer::Prp { first, second } => self.prp_segments(first, second, length).await,
            DataPointer::Sgl { descriptor, .. } => self.sgl_segments(descriptor, length, to_host).await,
        }
    }

    async fn prp_segments(&self, first: u64, second: u64, length: u64) -> Result<Vec<Segment>, Status> {
        let page = self.page_bytes();
        if first & 3 != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        let here = (page - first % page).min(length);
        let mut segments = vec![Segment { address: Some(first), length: here as u32 }];
        let mut left = length - here;
        if left == 0 {
            return Ok(segments);
        }
        let mut whole = |address: u64, left: &mut u64| {
            if address % page != 0 {
                return Err(Status::PRP_OFFSET_INVALID);
            }
            let here = page.min(*left);
            segments.push(Segment { address: Some(address), length: here as u32 });
            *left -= here;
            Ok(())
        };
        if left <= page {
            whole(second, &mut left)?;
            return Ok(segments);
        }
        let mut list = second;
        while left > 0 {
            if list % PRP_LEN as u64 != 0 {
                return Err(Status::PRP_OFFSET_INVALID);
            }
            let room = (page - list % page) / PRP_LEN as u64;
            let wanted = left.div_ceil(page);
            let count = wanted.min(room);
            let bytes = self.read(list, (count * PRP_LEN as u64) as u32).data().await?;
            let mut entries = bytes
                .chunks_exact(PRP_LEN)
                .filter_map(|entry| entry.first_chunk())
                .map(|entry| u64::from_le_bytes(*entry));
            // If more follows, the last entry of a page points to the next page of the list.
            let data = if wanted > room { count - 1 } else { count };
            for entry in entries.by_ref().take(data as usize) {
                whole(entry, &mut left)?;
            }
            if left > 0 {
                list = entries.next().ok_or(Status::DATA_TRANSFER_ERROR)?;
            }
        }
        Ok(segments)
    }

    async fn sgl_segments(
        &self,
        first: SglDescriptor,
        length: u64,
        to_host: bool,
    ) -> Result<Vec<Segment>, Status> {
        let mut segments = Vec::new();
        let mut described = 0u64;
        let mut add = |descriptor: SglDescriptor| {
            match descriptor.kind {
                SglKind::DataBlock if descriptor.length > 0 => {
                    segments.push(Segment { address: Some(descriptor.address), length: descriptor.length })
                }
                SglKind::BitBucket if to_host => {
                    segments.push(Segment { address: None, length: descriptor.length });
                }
                // Nothing to transfer: length zero, or a bit bucket for data to the controller.
                SglKind::DataBlock | SglKind::BitBucket => return Ok(()),
                _ => return Err(Status::SGL_TYPE_INVALID),
            }
            described += u64::from(descriptor.length);
            Ok(())
        };
        let mut next = match first.kind {
            SglKind::Segment | SglKind::LastSegment => Some(first),
            _ => {
                add(first)?;
                None
            }
        };
        let mut read = 0;
        while let Some(segment) = next.take() {
            read += 1;
            if segment.length == 0 || segment.length % SGL_LEN as u32 != 0 || segment.length > 1 << 16 {
                return Err(Status::INVALID_SGL_SEGMENT);
            }
            if read > SEGMENTS {
                return Err(Status::INVALID_SGL_COUNT);
            }
            let bytes = self.read(segment.address, segment.length).data().await?;
            let count = bytes.len() / SGL_LEN;
            let descriptors = bytes.chunks_exact(SGL_LEN).filter_map(|bytes| bytes.first_chunk());
            for (n, descriptor) in descriptors.map(SglDescriptor::parse).enumerate() {
                if !matches!(descriptor.kind, SglKind::Segment | SglKind::LastSegment) {
                    add(descriptor)?;
                } else if segment.kind == SglKind::Segment && n + 1 == count {
                    next = Some(descriptor);
                } else {
                    return Err(Status::INVALID_SGL_SEGMENT);
                }
            }
            if segment.kind == SglKind::Segment && next.is_none() {
                return Err(Status::INVALID_SGL_SEGMENT);
            }
        }
        if described == length { Ok(segments) } else { Err(Status::SGL_LENGTH_INVALID) }
    }

    /// Fetches all of a command's data. All reads are issued before the first is awaited.
    pub async fn gather(&self, command: &Command, length: u64) -> Result<Vec<u8>, Status> {
        let segments = self.segments(command, length, false).await?;
        let read =
            |segment: &Segment| Some(self.read_as(segment.address?, segment.length, DmaAttributes::PAYLOAD));
        let reads: Vec<Reading> = segments.iter().filter_map(read).collect();
        let mut data = Vec::with_capacity(length as usize);
        for read in reads {
            data.extend_from_slice(&read.data().await?);
        }
        let through = self.drive.pass(self.port.now(), length);
        self.port.sleep_until(through).await;
        Ok(data)
    }

    /// Writes `data` to the command's data buffer.
    pub async fn scatter(&self, command: &Command, data: &[u8]) -> Result<(), Status> {
        let mut at = 0;
        for segment in self.segments(command, data.len() as u64, true).await? {
            let piece = &data[at..at + segment.length as usize];
            at += piece.len();
            if let Some(address) = segment.address {
                self.write_payload(address, piece);
            }
        }
        Ok(())
    }
}

/// `old` after a write of the doubleword at `at`, which is its lower half if `at` is a multiple of 8.
pub(super) fn replace_half(old: u64, at: u64, value: u32) -> u64 {
    if at % 8 == 0 {
        old & !0xffff_ffff | u64::from(value)
    } else {
        old & 0xffff_ffff | u64::from(value) << 32
    }
}
