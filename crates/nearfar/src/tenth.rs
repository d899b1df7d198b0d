//! Figures with a tenth more, or the least that is more.

use machine::{Count, Credits, LinkGeneration};
use units::{ByteRate, Bytes, Duration};

/// A tenth more of a number of places, at least one.
pub(crate) fn more(count: &mut Count) {
    let n = count.get();
    *count = Count::new(n + n.div_ceil(10)).expect("not 0");
}

/// A tenth more room.
pub(crate) fn larger(bytes: &mut Bytes) {
    *bytes = Bytes::new(bytes.get() + bytes.get().div_ceil(10));
}

/// Rings are powers of two, and twice as long is the least that is more.
pub(crate) fn double(count: &mut Count) {
    *count = Count::new(2 * count.get()).expect("not 0");
}

/// A tenth less of a time.
pub(crate) fn shorter(time: &mut Duration) {
    *time = Duration::from_ps(time.as_ps() * 10 / 11);
}

/// A tenth faster.
pub(crate) fn faster(rate: &mut ByteRate) {
    *rate = ByteRate::from_bytes_per_s(rate.bytes_per_s() / 10 * 11);
}

/// A link has no tenth more: its next generation is twice as fast.
pub(crate) fn next(generation: &mut LinkGeneration) {
    if let Some(next) = LinkGeneration::new(generation.get() + 1) {
        *generation = next;
    }
}

/// A tenth more of each kind of credits.
pub(crate) fn more_credits(credits: &mut Credits) {
    for count in [&mut credits.ph, &mut credits.pd, &mut credits.nph, &mut credits.npd] {
        count.value += count.value.div_ceil(10);
    }
}
