//! Frames in flight, in a pool of reused buffers.

use engine::Epoch;

/// A frame in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameId(u32);

#[derive(Default)]
struct FrameSlot {
    bytes: Vec<u8>,
    /// Epoch of its cable when it was sent. A frame of an earlier one is lost.
    epoch: Epoch,
}

/// All frames in flight.
#[derive(Default)]
pub struct FramePool {
    slots: Vec<FrameSlot>,
    free: Vec<u32>,
    spare: Vec<Vec<u8>>,
}

impl FramePool {
    /// Stores a copy of `bytes`, sent in this epoch of the cable.
    pub fn put(&mut self, bytes: &[u8], epoch: Epoch) -> FrameId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(FrameSlot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.bytes = self.spare.pop().unwrap_or_default();
        slot.bytes.clear();
        slot.bytes.extend_from_slice(bytes);
        slot.epoch = epoch;
        FrameId(index)
    }

    /// The bytes of a frame, mutably, for error injection.
    pub fn bytes_mut(&mut self, id: FrameId) -> &mut [u8] {
        &mut self.slots[id.0 as usize].bytes
    }

    /// Removes a frame. Returns its bytes, which should be returned with [`Self::recycle`], and its epoch.
    pub fn take(&mut self, id: FrameId) -> (Vec<u8>, Epoch) {
        let slot = &mut self.slots[id.0 as usize];
        self.free.push(id.0);
        (std::mem::take(&mut slot.bytes), slot.epoch)
    }

    /// Takes a buffer back for reuse.
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        self.spare.push(bytes);
    }

    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
