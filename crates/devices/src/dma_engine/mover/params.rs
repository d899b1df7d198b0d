//! Parameters of the card's data mover.

use units::{Duration, steps};

/// The data mover between the card's PCIe core and its memory.
#[derive(Clone, Debug, Default)]
pub struct MoverParams {
    /// Processing of incoming completions.
    pub drain: DrainParams,
    /// Transmission of posted requests.
    pub transmit: TransmitParams,
    /// The bus between the core and the card's memory.
    pub bus: BusParams,
    /// The DMA interface.
    pub dma: EngineParams,
    /// The command interface.
    pub command: EngineParams,
}

/// Rate at which the card drains completions from its receive buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct DrainParams {
    /// Additional time for the first completion of a request.
    pub per_request: Duration,
    /// Time per completion.
    pub per_completion: Duration,
    /// Picoseconds per byte of a completion, including header and framing.
    pub ps_per_byte: u32,
    /// Drain time lost per byte of a write while its data is fetched, in picoseconds.
    pub ps_per_written_byte: u32,
    /// The size of a completion, including header and framing, is rounded up to a multiple of this many bytes.
    pub granule: u32,
}

/// Rate at which the card's core sends posted requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransmitParams {
    /// Picoseconds per byte; 0 if only the wire limits.
    pub ps_per_byte: u32,
    /// Overhead of a TLP with a three-doubleword header in bytes: header, framing, gaps.
    pub overhead: u32,
    /// Overhead of a TLP with a four-doubleword header, needed for addresses of 4 GiB and above.
    pub long_overhead: u32,
    /// Width of the path in bytes. TLPs of one request share beats in pairs; the last of an odd number is padded to a
    /// whole beat.
    pub beat: u32,
}

/// The bus between the card's core and its memory, shared by both directions.
#[derive(Clone, Copy, Debug, Default)]
pub struct BusParams {
    /// Picoseconds per byte in either direction.
    pub ps_per_byte: u32,
    /// Turnaround time.
    pub turn: Duration,
    /// Bytes after which the direction changes while both are requested.
    pub burst: u32,
    /// Transfers of more bytes than this are not interrupted.
    pub longest_interrupted: u32,
}

/// An interface through which firmware moves data.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineParams {
    /// From a request's arrival at the engine until its first TLP can be sent.
    pub start_latency: Duration,
    /// From the arrival of a read's data to the notification of the requester.
    pub read_done_latency: Duration,
    /// Picoseconds per byte of a completion, for data passed straight to the requester.
    pub hand_over_ps_per_byte: u32,
    /// Time per completion of such a read after the first.
    pub hand_over_per_completion: Duration,
    /// When the requester is told that a write has left: the later of the two, measured from its arrival at the engine.
    pub write_done: [Linear; 2],
    /// The card memory that the interface works on, if any.
    pub memory: Option<LocalMemoryParams>,
}

/// A time that grows linearly with the number of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linear {
    /// Time for zero bytes.
    pub base: Duration,
    /// Picoseconds per byte.
    pub ps_per_byte: u32,
}

impl Linear {
    /// The time that `bytes` bytes take, [`base`](Self::base) included.
    pub fn time_for(&self, bytes: u64) -> Duration {
        self.base + Duration::from_ps(bytes * u64::from(self.ps_per_byte))
    }
}

/// Card memory that is read and written in chunks, each by one or more operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalMemoryParams {
    /// Bytes per chunk, counted from the word in which a transfer begins.
    pub chunk: u32,
    /// Bytes per word: when memory is written, an end within a word costs an operation of its own.
    pub word: u32,
    /// Time per transfer.
    pub per_transfer: Duration,
    /// Time per operation.
    pub per_operation: Duration,
    /// Additional time per chunk if its data is unaligned and came in completions no larger than a chunk.
    pub per_ragged_chunk: Duration,
    /// How the data of one read is written to memory; several reads overlap.
    pub write_out: WriteOutParams,
}

/// How the data of one read is written to card memory, piece by piece as it arrives.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOutParams {
    /// Picoseconds per byte.
    pub ps_per_byte: u32,
    /// Time per completion after the first.
    pub per_completion: Duration,
    /// The same for a completion whose data begins within the first chunk, which has to be rewritten.
    pub within_chunk: Duration,
    /// Time per operation on a last chunk that is less than half written, unless it is only a tail.
    pub short_chunk: Duration,
    /// Time for a first byte that is not at the beginning of a word.
    pub unaligned_head: Duration,
    /// Time for a last byte that is not at the end of a word.
    pub unaligned_tail: Duration,
}

impl LocalMemoryParams {
    /// Whether a word begins at an address in the card's memory.
    #[inline]
    pub fn is_at_word(&self, local: u64) -> bool {
        steps::beyond(local, self.word.max(1).into()) == 0
    }

    /// Whether `length` bytes at `local` are whole words of one chunk, which one operation writes.
    #[inline]
    pub fn is_whole(&self, local: u64, length: u32) -> bool {
        (1..=self.chunk).contains(&length) && self.is_at_word(local) && self.is_at_word(length.into())
    }

    /// Additional time until `length` bytes at `local` are written whose ends lie within words, or that leave a short
    /// last chunk.
    #[inline]
    pub fn uneven(&self, local: u64, length: u32) -> Duration {
        let out = &self.write_out;
        let mut time = out.short_chunk * self.short_chunk_operations(local, length);
        if !self.is_at_word(local) {
            time += out.unaligned_head;
        }
        if !self.is_at_word(local + u64::from(length)) {
            time += out.unaligned_tail;
        }
        time
    }

    /// Number of operations, and of chunks, needed to write `length` bytes at `local`.
    ///
    /// In each chunk, an unaligned head, the whole words and an unaligned tail take one operation each.
    #[inline]
    pub fn write_operations(&self, local: u64, length: u64) -> (u64, u64) {
        let (chunk, word) = (u64::from(self.chunk), u64::from(self.word));
        let begin = steps::beyond(local, word);
        let end = begin + length;
        let (mut operations, mut chunks) = (0, 0);
        let mut at = begin;
        while at < end {
            let stop = (steps::down(at, chunk) + chunk).min(end);
            let (first_word, last_word) = (steps::up(at, word), steps::down(stop, word));
            operations += u64::from(at != first_word);
            operations += u64::from(last_word > first_word);
            // A tail in the same word as the head is already counted.
            operations += u64::from(stop != last_word && last_word >= at);
            chunks += 1;
            at = stop;
        }
        (operations, chunks)
    }

    /// Operations on the last chunk of a transfer if less than half of it is written: its words, then its tail. None
    /// for a tail alone or a transfer of one chunk.
    #[inline]
    pub fn short_chunk_operations(&self, local: u64, length: u32) -> u64 {
        let (chunk, word) = (u64::from(self.chunk), u64::from(self.word));
        let end = steps::beyond(local, word) + u64::from(length);
        if end < chunk {
            return 0;
        }
        let rest = steps::beyond(end, chunk);
        if rest < word || rest >= chunk / 2 {
            return 0;
        }
        1 + u64::from(steps::beyond(rest, word) != 0)
    }

    /// Number of chunks read for `length` bytes at `local`, one operation each.
    pub fn read_chunks(&self, local: u64, length: u64) -> u64 {
        (steps::beyond(local, self.word.into()) + length).div_ceil(u64::from(self.chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: LocalMemoryParams = LocalMemoryParams {
        chunk: 128,
        word: 8,
        per_transfer: Duration::ZERO,
        per_operation: Duration::ZERO,
        per_ragged_chunk: Duration::ZERO,
        write_out: WriteOutParams {
            ps_per_byte: 0,
            per_completion: Duration::ZERO,
            within_chunk: Duration::ZERO,
            short_chunk: Duration::ZERO,
            unaligned_head: Duration::ZERO,
            unaligned_tail: Duration::ZERO,
        },
    };

    #[test]
    fn a_short_last_chunk_costs_its_words_and_its_tail() {
        let operations = |length| MEMORY.short_chunk_operations(0, length);
        assert_eq!([32, 255, 256, 263, 264, 265, 319, 320].map(operations), [0, 0, 0, 0, 1, 2, 2, 0]);
    }

    #[test]
    fn ends_within_a_word_cost_an_operation_each() {
        assert_eq!(MEMORY.write_operations(0, 64), (1, 1));
        assert_eq!(MEMORY.write_operations(0, 63), (2, 1));
        assert_eq!(MEMORY.write_operations(4, 64), (3, 1));
        assert_eq!(MEMORY.write_operations(0, 129), (2, 2));
        assert_eq!(MEMORY.write_operations(1, 3), (1, 1));
    }

    #[test]
    fn chunks_begin_with_the_word_of_the_first_byte() {
        assert_eq!(MEMORY.read_chunks(0, 128), 1);
        assert_eq!(MEMORY.read_chunks(0, 129), 2);
        assert_eq!(MEMORY.read_chunks(4, 128), 2);
        assert_eq!(MEMORY.read_chunks(8, 128), 1);
    }
}
