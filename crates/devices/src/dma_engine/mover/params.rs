//! What the card's data mover is made of.

use units::{Duration, steps};

/// What moves data between the card's PCIe core and its memory.
#[derive(Clone, Debug, Default)]
pub struct MoverParams {
    /// Handling of completions that arrive.
    pub drain: DrainParams,
    /// Sending of posted requests.
    pub transmit: TransmitParams,
    /// The path between the core and the card's memory.
    pub bus: BusParams,
    /// The DMA interface.
    pub dma: EngineParams,
    /// The command interface.
    pub command: EngineParams,
}

/// How fast the card takes completions out of its receive buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct DrainParams {
    /// Time for the first completion of a request, on top.
    pub per_request: Duration,
    /// Time for each completion.
    pub per_completion: Duration,
    /// Picoseconds for each byte of a completion, header and framing included.
    pub ps_per_byte: u32,
    /// Picoseconds that each byte of a write takes away from the drain while its data is fetched.
    pub ps_per_written_byte: u32,
    /// A completion, header and framing included, takes a multiple of so many bytes.
    pub granule: u32,
}

/// How fast the card's core sends posted requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransmitParams {
    /// Picoseconds for each byte; zero if only the wire counts.
    pub ps_per_byte: u32,
    /// Bytes that a TLP with a three-doubleword header takes beyond its payload: header, framing, gaps.
    pub overhead: u32,
    /// The same with a four-doubleword header, as addresses of 4 GiB and more need.
    pub long_overhead: u32,
    /// Width of the path in bytes. The TLPs of one request share their beats in pairs; the last one of an odd number
    /// is padded to a whole beat.
    pub beat: u32,
}

/// The path between the card's core and its memory, which both directions share.
#[derive(Clone, Copy, Debug, Default)]
pub struct BusParams {
    /// Picoseconds for each byte in either direction.
    pub ps_per_byte: u32,
    /// Time to change the direction.
    pub turn: Duration,
    /// While both directions are wanted, they take turns after so many bytes.
    pub burst: u32,
    /// Transfers of more bytes than this are not interrupted.
    pub longest_interrupted: u32,
}

/// An interface through which firmware moves data.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineParams {
    /// From a request reaching the engine until its first TLP can be sent.
    pub start_latency: Duration,
    /// From a read's data being in place until whoever asked knows.
    pub read_done_latency: Duration,
    /// Picoseconds for each byte of a completion, where it hands data straight to who asked.
    pub hand_over_ps_per_byte: u32,
    /// For each completion of such a read after its first.
    pub hand_over_per_completion: Duration,
    /// When who asked for a write knows that it has left: the later of the two, counted from its reaching the engine.
    pub write_done: [Linear; 2],
    /// The card memory that it works on, if any.
    pub memory: Option<LocalMemoryParams>,
}

/// A time that grows with the number of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linear {
    /// For no bytes.
    pub base: Duration,
    /// Picoseconds for each byte.
    pub ps_per_byte: u32,
}

impl Linear {
    /// The time for `bytes`.
    pub fn time_for(&self, bytes: u64) -> Duration {
        self.base + Duration::from_ps(bytes * u64::from(self.ps_per_byte))
    }
}

/// Card memory that is read and written in chunks, each by one or more operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalMemoryParams {
    /// Bytes in a chunk, counted from the word in which a transfer begins.
    pub chunk: u32,
    /// Bytes in a word: an end within a word costs an operation of its own when the memory is written.
    pub word: u32,
    /// Time for each transfer.
    pub per_transfer: Duration,
    /// Time for each operation.
    pub per_operation: Duration,
    /// Time that each chunk takes on top if its data came in completions no larger than a chunk and is unaligned.
    pub per_ragged_chunk: Duration,
    /// How one read's data is written to memory; several reads overlap.
    pub write_out: WriteOutParams,
}

/// How the data of one read goes into card memory: piece by piece as it arrives.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOutParams {
    /// Picoseconds for each byte.
    pub ps_per_byte: u32,
    /// Picoseconds for each byte of a first piece shorter than 64 bytes that need not be waited for.
    pub first_ps_per_byte: u32,
    /// Time for each completion after the first.
    pub per_completion: Duration,
    /// The same for one whose data begins within the first chunk, which has to be taken up again.
    pub within_chunk: Duration,
    /// Time for each operation on a last chunk that less than half of which is written, a lone tail apart.
    pub short_chunk: Duration,
    /// Time for a first byte that is not at the beginning of a word.
    pub unaligned_head: Duration,
    /// Time for a last byte that is not at the end of a word.
    pub unaligned_tail: Duration,
}

impl LocalMemoryParams {
    /// Operations that writing `length` bytes at `local` takes, and the chunks that they fall into.
    ///
    /// In each chunk, an unaligned head, the whole words and an unaligned tail are one operation each.
    #[inline]
    pub fn write_operations(&self, local: u64, length: u64) -> (u64, u64) {
        let (chunk, word) = (u64::from(self.chunk), u64::from(self.word));
        let begin = steps::beyond(local, word);
        let end = begin + length;
        if begin == 0 && (1..=chunk).contains(&length) && steps::beyond(length, word) == 0 {
            // Whole words of one chunk: most transfers.
            return (1, 1);
        }
        let (mut operations, mut chunks) = (0, 0);
        let mut at = begin;
        while at < end {
            let stop = (steps::down(at, chunk) + chunk).min(end);
            let (first_word, last_word) = (steps::up(at, word), steps::down(stop, word));
            operations += u64::from(at != first_word);
            operations += u64::from(last_word > first_word);
            // A tail in the same word as the head has been counted with it.
            operations += u64::from(stop != last_word && last_word >= at);
            chunks += 1;
            at = stop;
        }
        (operations, chunks)
    }

    /// Operations that write the last chunk of a transfer if less than half of it is written: its words and, after
    /// them, its tail. A tail by itself, and a transfer of one chunk, need none of them.
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

    /// Chunks that reading `length` bytes at `local` touches: one operation each.
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
            first_ps_per_byte: 0,
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
