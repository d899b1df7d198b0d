//! What a function answers: the checks of the protocol in front of a [`ServedFunction`].

use std::collections::VecDeque;
use std::fs::File;

use crate::maps::{DmaMap, MOST_MAPS};
use crate::request::{
    IRQ_KINDS, IrqAction, MOST_DATA, MOST_FILES, REGIONS, SmallWrite, VfioRefusal, VfioRequest,
};

/// A function as its client sees it. Accesses are within its regions.
pub trait ServedFunction {
    /// Bytes of a region; 0 if it does not exist.
    fn region_size(&self, region: u32) -> u64;

    /// Number of vectors of a kind (0 INTx, 1 MSI, 2 MSI-X).
    fn vectors(&self, kind: u32) -> u32;

    /// Reads a region.
    fn read(&mut self, region: u32, offset: u64, into: &mut [u8]);

    /// Writes a region.
    fn write(&mut self, region: u32, offset: u64, from: &[u8]);

    /// Connects vectors, first one `start`, with eventfds, or disconnects those that get none.
    ///
    /// # Errors
    /// If the device has no interrupts left.
    fn connect(&mut self, kind: u32, start: u32, files: Vec<Option<File>>) -> Result<(), VfioRefusal>;

    /// Disconnects all vectors of a kind.
    fn disconnect(&mut self, kind: u32);

    /// Raises vectors that are connected, as a test.
    fn raise(&mut self, kind: u32, vectors: std::ops::Range<u32>);

    /// Masks or unmasks the legacy interrupt.
    fn mask(&mut self, masked: bool);

    /// Maps a range of the client's memory.
    ///
    /// # Errors
    /// If part of it is mapped, or there are too many.
    fn map(&mut self, address: u64, map: DmaMap) -> Result<(), VfioRefusal>;

    /// Unmaps a range, or everything.
    ///
    /// # Errors
    /// If a mapping is partly outside.
    fn unmap(&mut self, range: Option<(u64, u64)>) -> Result<(), VfioRefusal>;

    /// Resets the function.
    fn reset(&mut self);
}

/// Flags of a region: it can be read and written. None can be mapped.
const ACCESSIBLE: u32 = 0b11;
/// Flags of a device: it can be reset, it is a PCI function.
const PCI: u32 = 0b11;
/// Flags of an interrupt: it is told by an eventfd.
const BY_FILE: u32 = 0b1;
/// Flags of the legacy interrupt: it is told by an eventfd, can be masked, and masks itself.
const BY_LINE: u32 = 0b111;

/// What the server can do, as the client is told.
fn capabilities() -> String {
    format!(
        r#"{{"capabilities":{{"max_msg_fds":{MOST_FILES},"max_data_xfer_size":{MOST_DATA},"max_dma_maps":{MOST_MAPS},"pgsizes":4096,"write_multiple":true}}}}"#
    )
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Whether an access is within a region.
fn check(function: &dyn ServedFunction, region: u32, offset: u64, count: usize) -> Result<(), VfioRefusal> {
    let end = offset.checked_add(count as u64);
    let is_inside = end.is_some_and(|end| end <= function.region_size(region)) && count > 0;
    is_inside.then_some(()).ok_or(VfioRefusal::Invalid)
}

/// Does what a request asks, and returns the answer's body, which begins as `body`, the request's, where the protocol
/// has it so. Files that are left over are closed.
///
/// # Errors
/// Why it was refused; nothing was done then, except for the first of several writes.
pub fn answer(
    function: &mut dyn ServedFunction,
    request: &VfioRequest<'_>,
    body: &[u8],
    mut files: VecDeque<File>,
) -> Result<Vec<u8>, VfioRefusal> {
    let begun = |bytes: usize| body.get(..bytes).unwrap_or(body).to_vec();
    match *request {
        VfioRequest::Version { major: 0, minor } => {
            let mut told = words(&[u32::from(minor.min(1)) << 16]);
            told.extend(capabilities().bytes().chain([0]));
            Ok(told)
        }
        VfioRequest::Version { .. } => Err(VfioRefusal::Unsupported),
        VfioRequest::Map { address, size, offset, reads, writes } => {
            let map = DmaMap { size, offset, file: files.pop_front(), reads, writes };
            function.map(address, map).map(|()| Vec::new())
        }
        VfioRequest::Unmap { address, size, all } => {
            function.unmap((!all).then_some((address, size)))?;
            Ok(begun(24))
        }
        VfioRequest::DeviceInfo => Ok(words(&[16, PCI, REGIONS, IRQ_KINDS])),
        VfioRequest::RegionInfo { region } => {
            let size = function.region_size(region);
            let flags = if size > 0 { ACCESSIBLE } else { 0 };
            let mut told = words(&[32, flags, region, 0]);
            told.extend([size, 0].into_iter().flat_map(u64::to_le_bytes));
            Ok(told)
        }
        VfioRequest::IrqInfo { kind } => {
            let count = function.vectors(kind);
            let flags = match (kind, count) {
                (_, 0) => 0,
                (0, _) => BY_LINE,
                _ => BY_FILE,
            };
            Ok(words(&[16, flags, kind, count]))
        }
        VfioRequest::SetIrqs { kind, start, count, action } => {
            if start + count > function.vectors(kind) {
                return Err(VfioRefusal::Invalid);
            }
            match action {
                IrqAction::Connect => {
                    // A message has either a file for each vector, or none: the vectors are then disconnected.
                    if !files.is_empty() && files.len() != count as usize {
                        return Err(VfioRefusal::Invalid);
                    }
                    let each = (0..count).map(|_| files.pop_front()).collect();
                    function.connect(kind, start, each)?;
                }
                IrqAction::Disconnect => function.disconnect(kind),
                IrqAction::Raise => function.raise(kind, start..start + count),
                IrqAction::Mask(masked) => function.mask(masked),
            }
            Ok(Vec::new())
        }
        VfioRequest::Read { region, offset, count } => {
            check(function, region, offset, count as usize)?;
            let mut told = begun(16);
            let head = told.len();
            told.resize(head + count as usize, 0);
            function.read(region, offset, &mut told[head..]);
            Ok(told)
        }
        VfioRequest::Write { region, offset, data } => {
            check(function, region, offset, data.len())?;
            function.write(region, offset, data);
            Ok(begun(16))
        }
        VfioRequest::WriteMany(ref writes) => {
            for write in writes {
                let &SmallWrite { region, offset, .. } = write;
                check(function, region, offset, write.data().len())?;
                function.write(region, offset, write.data());
            }
            Ok(begun(8))
        }
        VfioRequest::Reset => {
            function.reset();
            Ok(Vec::new())
        }
    }
}
