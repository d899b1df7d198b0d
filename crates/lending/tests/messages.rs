//! A host that says whatever it likes to a lender's service: it gets nothing but what it may have, and nothing is left of it.

use crate::common::Cluster;
use kernel::DmaMode;
use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::mmio::MemoryType;
use proptest::prelude::*;
use units::Duration;
use wire::ntb as regs;

/// Words of a message: a request to one node has a place of its own there, behind which is that of the reply.
const WORDS: usize = 16;
const PLACE: u64 = 2 * 8 * WORDS as u64;
/// Bytes of all places.
const PLACES: u64 = 64 * PLACE;

/// A message but for its number: its kind, the function that it names, if it is one of the lender's two, and words.
type Said = (u32, Option<usize>, [u64; WORDS - 1]);

fn said() -> impl Strategy<Value = Said> {
    let word = prop_oneof![
        4 => 0u64..8,
        2 => 0u64..1 << 18,
        1 => any::<u64>(),
        1 => Just(u64::MAX),
        // Within what devices and memory take.
        2 => (0u64..1 << 24).prop_map(|page| page << 12),
    ];
    let words = prop::array::uniform15(word);
    (0u32..20, prop::option::weighted(0.9, 0usize..2), words)
}

/// Lets the first host say all this to the second one's service.
fn say(cluster: &Cluster, all: Vec<Said>) {
    let (adapter, node) = (cluster.adapter(0), cluster.node(1));
    let names = [0, 1].map(|n| cluster.function(1, n));
    let own = u64::from(adapter.node());
    cluster.run(0, move |cpu: Cpu| -> Async<'static, ()> {
        Box::pin(async move {
            let (registers, shared) = adapter.map_registers(&cpu, node).expect("there is a place");
            let low = registers.read_u32(&cpu, regs::SCRATCHPADS).await;
            let high = registers.read_u32(&cpu, regs::SCRATCHPADS + 4).await;
            let at = u64::from(high) << 32 | u64::from(low);
            let mail = adapter.map(&cpu, node, at, PLACES).expect("there is a place");
            let memory = adapter.remap(mail, MemoryType::Uncached).expect("it is of the window");
            for (number, (kind, of, words)) in (1 << 30..).zip(all) {
                for (n, word) in (1..).zip(words) {
                    let word = match of {
                        Some(of) if n == 1 => u64::from(names[of].bits()),
                        _ => word,
                    };
                    memory.write_u64(&cpu, own * PLACE + 8 * n, word);
                }
                memory.write_u64(&cpu, own * PLACE, u64::from(number as u32) << 32 | u64::from(kind));
                registers.write_u32(&cpu, regs::DOORBELL, 1);
                cpu.sleep(Duration::from_us(50)).await;
            }
            adapter.unmap(&cpu, mail);
            adapter.unmap(&cpu, shared);
        })
    });
}

/// Others still find a place at a host that was told all that, and afterwards all of it.
fn is_sound(cluster: &Cluster) -> Result<(), TestCaseError> {
    // What is being taken back is.
    cluster.run_for(Duration::from_ms(500));
    let free = (0..2).find(|&n| {
        let name = cluster.function(1, n);
        cluster.service(1).leases().iter().all(|(lent, _)| *lent != name)
    });
    if let Some(n) = free {
        prop_assert_eq!(cluster.borrow(2, 1, n).map(drop), Ok(()), "{} of them is free", n);
        prop_assert!(cluster.copies(2, 7));
        prop_assert_eq!(cluster.give_back(2, 1, n), Ok(()));
    }
    cluster.hosts[0].kernel.halt();
    cluster.run_for(Duration::from_ms(3_000));
    prop_assert_eq!(cluster.service(1).leases(), vec![]);
    for n in 0..2 {
        prop_assert_eq!(cluster.borrow(2, 1, n).map(drop), Ok(()));
        prop_assert!(cluster.copies(2, 7));
        prop_assert_eq!(cluster.give_back(2, 1, n), Ok(()));
    }
    let counters = cluster.service(1).counters();
    prop_assert_eq!((counters.lent, counters.isolated, counters.joined), (0, 0, 0));
    let [segments, local, remote] = counters.in_use;
    prop_assert!(segments <= 4 && local == 1 && remote == 2, "{:?}", counters.in_use);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn whatever_is_said_is_taken(
        all in prop::collection::vec(said(), 1..60),
        borrows in any::<bool>(),
        strict in any::<bool>(),
    ) {
        let mode = if strict { DmaMode::Strict } else { DmaMode::Off };
        let cluster = Cluster::new(&[mode; 3], 2);
        if borrows {
            cluster.borrow(0, 1, 0).unwrap();
        }
        say(&cluster, all);
        is_sound(&cluster)?;
    }
}

/// A borrower that lets ever more functions reach what it has leaves half of the lender's places to others.
#[test]
fn nobody_takes_all_places() {
    let cluster = Cluster::new(&[DmaMode::Strict; 3], 2);
    cluster.borrow(0, 1, 0).unwrap();
    let admit = |n: u64| {
        let mut words = [0; WORDS - 1];
        // A function of the third node, in that place of its table.
        (words[1], words[2]) = (3 << 16 | n << 3, n | 128 << 16);
        (8, Some(0), words)
    };
    say(&cluster, (0..40).map(admit).collect());
    let [_, _, remote] = cluster.service(1).counters().in_use;
    assert!((10..=16).contains(&remote), "{remote} of 32 are taken");
    // Windows, too: of 256 segments each leads to one of the third node.
    let join = |n: u64| {
        let mut words = [0; WORDS - 1];
        (words[1], words[3], words[4]) = (3 << 16 | n << 3, n << 32, 4096);
        (9, Some(0), words)
    };
    say(&cluster, (0..300).map(join).collect());
    let [segments, ..] = cluster.service(1).counters().in_use;
    assert!((64..=192).contains(&segments), "{segments} of 256 are taken");
    assert_eq!(cluster.borrow(2, 1, 1).map(drop), Ok(()));
    assert_eq!(cluster.borrow(0, 1, 1), Err(Error::Busy));
}
