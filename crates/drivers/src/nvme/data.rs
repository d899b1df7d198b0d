//! Describes a request's data to the controller, with PRPs (section 4.3) or an SGL (section 4.4).

use platform::Error;
use platform::block::{BlockOp, BlockRequest, Segment};
use platform::cpu::Cpu;
use platform::dma::{Coherent, Direction, DmaOps};
use platform::memory::PAGE;
use units::Iova;
use wire::nvme::pointer::{PRP_LEN, SGL_LEN};
use wire::nvme::{DataPointer, SglDescriptor, SglKind};

/// Most segments of a request: an SGL with that many descriptors fills a page.
pub(super) const MAX_SEGMENTS: u16 = (PAGE / SGL_LEN as u64) as u16;
/// Most bytes of a request: its PRP list fits in a page at any alignment.
pub(super) const MAX_BYTES: u32 = 1 << 20;

/// DMA mappings of a request.
pub(super) struct Mapped {
    pieces: Vec<(Iova, u32)>,
    direction: Direction,
}

impl Mapped {
    /// For a request without data.
    pub const fn nothing() -> Self {
        Self { pieces: Vec::new(), direction: Direction::ToDevice }
    }

    /// Maps all segments of a request, or none.
    pub fn new(cpu: &Cpu, dma: &dyn DmaOps, request: &BlockRequest) -> Result<Self, Error> {
        let direction = match request.op {
            BlockOp::Read => Direction::FromDevice,
            _ => Direction::ToDevice,
        };
        let mut mapped = Self { pieces: Vec::with_capacity(request.segments.len()), direction };
        for Segment { at, length } in &request.segments {
            match dma.map(cpu, *at, u64::from(*length), direction) {
                Ok(iova) => mapped.pieces.push((iova, *length)),
                Err(error) => {
                    mapped.unmap(cpu, dma);
                    return Err(error);
                }
            }
        }
        Ok(mapped)
    }

    /// Unmaps all segments.
    pub fn unmap(self, cpu: &Cpu, dma: &dyn DmaOps) {
        for (at, length) in self.pieces {
            dma.unmap(cpu, at, u64::from(length), self.direction);
        }
    }

    /// Whether PRPs can describe the data: only the first segment may start, and only the last may end, within a
    /// page.
    fn fits_pages(&self) -> bool {
        let last = self.pieces.len() - 1;
        self.pieces.iter().enumerate().all(|(n, (at, length))| {
            let end = at.get() + u64::from(*length);
            (n == 0 || at.get() % PAGE == 0) && (n == last || end % PAGE == 0)
        })
    }

    /// Builds the data pointer; `list` allocates memory for a PRP list or SGL. SGLs are used where PRPs cannot be,
    /// and for segments of at least `sgl_from` bytes on average.
    ///
    /// # Errors
    /// If memory runs out, or neither form can describe the data.
    pub fn pointer(
        &self,
        cpu: &Cpu,
        sgl_from: Option<u32>,
        list: impl FnOnce() -> Result<Coherent, Error>,
    ) -> Result<DataPointer, Error> {
        let bytes: u64 = self.pieces.iter().map(|(_, length)| u64::from(*length)).sum();
        let average = bytes / self.pieces.len().max(1) as u64;
        let fits = self.fits_pages();
        match sgl_from {
            Some(least) if !fits || least > 0 && average >= u64::from(least) => self.sgl(cpu, list),
            _ if fits => self.prps(cpu, list),
            _ => Err(Error::Invalid),
        }
    }

    fn prps(&self, cpu: &Cpu, list: impl FnOnce() -> Result<Coherent, Error>) -> Result<DataPointer, Error> {
        let pages: Vec<u64> = self
            .pieces
            .iter()
            .flat_map(|(at, length)| {
                let (start, end) = (at.get(), at.get() + u64::from(*length));
                let inner = (start / PAGE + 1) * PAGE;
                std::iter::once(start).chain((inner..end).step_by(PAGE as usize))
            })
            .collect();
        match pages[..] {
            [first] => Ok(DataPointer::Prp { first, second: 0 }),
            [first, second] => Ok(DataPointer::Prp { first, second }),
            [first, ref rest @ ..] => {
                if rest.len() > PAGE as usize / PRP_LEN {
                    return Err(Error::Invalid);
                }
                let list = list()?;
                let bytes: Vec<u8> = rest.iter().flat_map(|page| page.to_le_bytes()).collect();
                cpu.store(list.cpu, &bytes);
                Ok(DataPointer::Prp { first, second: list.bus.get() })
            }
            [] => Err(Error::Invalid),
        }
    }

    fn sgl(&self, cpu: &Cpu, list: impl FnOnce() -> Result<Coherent, Error>) -> Result<DataPointer, Error> {
        let block = |(at, length): &(Iova, u32)| SglDescriptor {
            address: at.get(),
            length: *length,
            kind: SglKind::DataBlock,
        };
        let descriptor = match &self.pieces[..] {
            [piece] => block(piece),
            pieces if pieces.len() <= usize::from(MAX_SEGMENTS) => {
                let list = list()?;
                let bytes: Vec<u8> = pieces.iter().flat_map(|piece| block(piece).emit()).collect();
                cpu.store(list.cpu, &bytes);
                let length = bytes.len() as u32;
                SglDescriptor { address: list.bus.get(), length, kind: SglKind::LastSegment }
            }
            _ => return Err(Error::Invalid),
        };
        Ok(DataPointer::Sgl { descriptor, metadata_segment: false })
    }
}
