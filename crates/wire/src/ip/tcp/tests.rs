use super::*;
use proptest::prelude::*;

fn options() -> impl Strategy<Value = TcpOptions> {
    (
        any::<Option<u16>>(),
        any::<Option<u8>>(),
        any::<bool>(),
        any::<Option<(u32, u32)>>(),
        proptest::collection::vec(any::<(u32, u32)>(), 0..3),
    )
        .prop_map(|(mss, window_scale, sack_permitted, timestamps, sack)| TcpOptions {
            mss,
            window_scale,
            sack_permitted,
            timestamps,
            // Two blocks fit after all other options.
            sack: SackBlocks::new(&sack),
        })
}

#[test]
fn a_syn_as_linux_sends_it() {
    // MSS 1460, SACK permitted, timestamps, No-Operation, window scale 7.
    let bytes = [
        0xc3, 0x50, 0x00, 0x50, 0, 0, 0, 1, 0, 0, 0, 0, 0xa0, 0x02, 0xfa, 0xf0, 0, 0, 0, 0, 2, 4, 5, 0xb4, 4,
        2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 1, 3, 3, 7,
    ];
    let (header, len) = TcpHeader::parse(&bytes).unwrap();
    assert_eq!(len, 40);
    assert_eq!(header.options.mss, Some(1460));
    assert_eq!(header.options.window_scale, Some(7));
    assert_eq!(header.options.timestamps, Some((9, 0)));
    assert!(header.options.sack_permitted);
    assert_eq!(header.to_string(), "TCP 50000 > 80 [S], seq 1, win 64240");
}

#[test]
fn blocks_that_do_not_fit_are_left_out() {
    let blocks = [(1, 2), (3, 4), (5, 6), (7, 8)];
    let options =
        TcpOptions { sack: SackBlocks::new(&blocks), timestamps: Some((1, 2)), ..TcpOptions::default() };
    let header = TcpHeader { options, ..TcpHeader::default() };
    let mut bytes = vec![0; header.len()];
    header.emit(&mut bytes);
    let (read, len) = TcpHeader::parse(&bytes).unwrap();
    assert_eq!((read.options.sack.as_slice(), len), (&blocks[..3], 56));
}

#[test]
fn options_that_cannot_be() {
    for wrong in [&[2, 0][..], &[2, 1], &[2], &[2, 3, 0, 0], &[5, 9, 0, 0, 0, 0, 0, 0, 0, 0], &[8, 40, 0, 0]]
    {
        assert_eq!(TcpOptions::parse(wrong), Err(Malformed::Length), "{wrong:?}");
    }
    assert_eq!(TcpOptions::parse(&[254, 4, 0, 0, 0, 2]), Ok(TcpOptions::default()));
}

proptest! {
    #[test]
    fn comes_back(sequence in any::<u32>(), flags in any::<u8>(), options in options()) {
        let header = TcpHeader { sequence, flags: TcpFlags(flags), options, window: 7, ..TcpHeader::default() };
        let mut bytes = vec![0; header.len()];
        prop_assert_eq!(header.emit(&mut bytes), header.len());
        prop_assert_eq!(TcpHeader::parse(&bytes), Ok((header, bytes.len())));
    }

    #[test]
    fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), long in any::<bool>()) {
        if long && bytes.len() > 12 {
            bytes[12] |= 0x50;
        }
        if let Ok((header, len)) = TcpHeader::parse(&bytes) {
            prop_assert!(len <= bytes.len());
            let mut again = vec![0; header.len()];
            header.emit(&mut again);
            let _ = header.to_string();
        }
    }

    #[test]
    fn damage_is_seen(data in proptest::collection::vec(any::<u8>(), 0..70), bit in 0usize..160) {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut segment = [&[0x50; HEADER_LEN][..], &data].concat();
        TcpHeader::fill_checksum(&mut segment, a, b);
        prop_assert!(TcpHeader::checksum_is_right(&segment, a, b));
        segment[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!TcpHeader::checksum_is_right(&segment, a, b));
    }
}
