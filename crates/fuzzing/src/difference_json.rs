//! Any bytes as two results to compare: differences or a reason, never a panic. A result does not differ from itself.

use results::difference::{differences, inputs, is_of_figures, level, records_of};

/// Tests an input: two results with a zero byte in between.
pub fn run(data: &[u8]) {
    let (first, second) = match data.iter().position(|&byte| byte == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, data),
    };
    let (first, second) = (records_of(first), records_of(second));
    let (first, second) = match (first, second) {
        (Ok(first), Ok(second)) => (first, second),
        (first, second) => {
            [first, second].into_iter().filter_map(Result::err).for_each(|why| assert!(!why.is_empty()));
            return;
        }
    };
    assert!(inputs(&first, &first).is_empty());
    let (same, alone) = differences(&first, &first);
    assert!(alone == [0, 0] && same.iter().all(|difference| !difference.is_shown(0.0)));
    inputs(&first, &second);
    let (first, second) = match is_of_figures(&first) && is_of_figures(&second) {
        true => level(first, second),
        false => (first, second),
    };
    for difference in differences(&first, &second).0 {
        difference.is_shown(1.0);
        difference.change_pct();
        assert!(!difference.amount().is_nan());
    }
}
