//! Frames that make no sense, from the cable and as completions, while a stream's reader moves from socket to socket.

use proptest::prelude::*;
use units::Duration;
use wire::nic::registers::feature;

use super::{By, CORES, PORT, cases, nothing_crossed, pair_of, stream};
use crate::common::Setup;
use crate::common::spoilt::{Spoilt, attack, spoilt};
use crate::common::streams::bytes;

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(8), max_shrink_iters: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Neither firmware with rules for shared addresses nor those who make one device of the functions mind: the stream between them
    /// arrives as it was sent, no function is reset, and what comes afterwards is as near as ever.
    #[test]
    fn spoilt_frames_harm_no_one_device(
        spoilt in prop::collection::vec(spoilt(), 1..120),
        by in prop::sample::select(&By::BOTH[..]),
        global in any::<bool>(),
    ) {
        let nic: fn(&mut devices::nic::NicParams) = match global {
            true => |nic| nic.features |= feature::GLOBAL_RULES,
            false => |_| {},
        };
        let pair = pair_of(by, Setup { nic, ..Setup::default() });
        attack(&pair, &spoilt, &[1, 9, 12, 4]);
        let functions = pair.hosts[1].driver.functions();
        prop_assert!(functions.iter().all(|(_, own)| own.resets.get() == 0));
        let data = bytes(1_000_000, 4);
        let stream = stream(&pair, PORT, data.clone(), true, CORES[1]);
        stream.until(&pair, 400_000);
        super::forget_the_beginning(&pair);
        let before = super::crossed(&pair);
        stream.until(&pair, 900_000);
        prop_assert_eq!(nothing_crossed(&pair, &before), Ok(()));
        prop_assert!(stream.end(&pair) == data);
    }

    /// As above, and functions are reset meanwhile since completions make no sense.
    #[test]
    fn spoilt_frames_and_completions_end_no_connection(
        spoilt in prop::collection::vec(spoilt(), 1..120),
        by in prop::sample::select(&By::BOTH[..]),
        after in 0u64..200,
    ) {
        let pair = pair_of(by, Setup::default());
        let handle = pair.hosts[1].handle.clone();
        pair.spawn(1, 7, move |cpu| Box::pin(async move {
            cpu.sleep(Duration::from_us(after)).await;
            handle.spoil_completions(1);
        }));
        attack(&pair, &spoilt, &[1, 9, 12, 4]);
        attack(&pair, &[] as &[Spoilt], &[9]);
    }
}
