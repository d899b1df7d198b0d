//! Message format of services: 16 words. The first is written last and marks the others as valid.

use platform::Error;
use wire::pcie::Bdf;

pub(crate) const WORDS: usize = 16;
pub(crate) const BYTES: u64 = 8 * WORDS as u64;

pub(crate) type Words = [u64; WORDS];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// Whether the service is running and still has a lease: of a function lent to it (`lent`), or borrowed from it.
    Check { function: Bdf, lent: bool },
    /// Describe the `n`th function to lend.
    Offer(u16),
    /// Borrow a function. It will access `window` bytes of the borrower's addresses from 0 on, with payloads of at
    /// most `payload` bytes.
    Borrow { function: Bdf, window: u64, payload: u16 },
    /// End the loan of a function.
    Return { function: Bdf },
    /// Read configuration space.
    ConfigRead { function: Bdf, register: u16 },
    /// Write the bytes of a configuration doubleword selected by `enables`.
    ConfigWrite { function: Bdf, register: u16, value: u32, enables: u8 },
    /// The lender revokes a function or has lost it.
    Revoke { function: Bdf },
    /// Let a function of another node, at index `place` of its requester table, access a function's BARs with
    /// payloads of at most `payload` bytes.
    Admit { function: Bdf, peer: Peer, place: u8, payload: u16 },
    /// Let a function access a peer's BARs, which are at these addresses of the peer's lender.
    Join { function: Bdf, peer: Peer, bars: Bars },
    /// End access between two functions in both directions.
    Part { function: Bdf, peer: Peer },
    /// Read configuration space of a function to lend, whoever has it.
    Inspect { function: Bdf, register: u16 },
    /// Report a function's BARs, whoever has it.
    Describe { function: Bdf },
    /// Borrow a function for a guest; it can access nothing yet.
    BorrowForGuest { function: Bdf, payload: u16 },
    /// Open a guest's memory to a function at the guest's addresses: the parts below and above the PCI hole,
    /// contiguous from `at` in the borrower's addresses.
    Open { function: Bdf, at: u64, low: u64, high: u64 },
    /// Forward its interrupts to the borrower's doorbell.
    Interrupts { function: Bdf, wanted: Forwarding },
    /// Unmask its legacy interrupt; it is forwarded again if the cause remains.
    Unmask { function: Bdf },
    /// Let a guest's function access a peer's BAR.
    JoinGuest { function: Bdf, peer: Peer, mapping: BarMapping },
}

/// Interrupts of a function that go to doorbell bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Forwarding {
    /// The first bit.
    pub first: u8,
    /// Bits, one for each interrupt; none ends the forwarding.
    pub count: u8,
    /// The legacy interrupt in place of messages.
    pub legacy: bool,
}

/// A peer's BAR in a guest's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BarMapping {
    pub bar: u8,
    /// Where the BAR is at the peer's lender.
    pub target: u64,
    /// Bytes.
    pub length: u64,
    /// Where the guest has it.
    pub guest_address: u64,
}

/// BARs: address and length; 0 if absent.
pub(crate) type Bars = [(u64, u64); 6];

/// A function of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Peer {
    pub node: u8,
    pub function: Bdf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    /// The request was carried out, and there is nothing to return.
    Done,
    /// Value read.
    Value(u32),
    /// A function to lend, and the node that has it.
    Offer { function: Bdf, to: Option<u8> },
    /// The function is lent to the requester.
    Lent(Terms),
    /// Addresses of BARs.
    Bars(Bars),
    /// The request failed.
    Failed(Error),
}

/// What a borrower has to know about a lent function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Terms {
    /// Index in the lender's requester table.
    pub place: u8,
    /// Largest payload that it sends (bytes).
    pub payload: u16,
    /// Address of the function's window onto the borrower's addresses.
    pub window: u64,
    /// Address of the function's window onto the borrower's interrupt controllers.
    pub messages: u64,
    /// Addresses and lengths of its BARs at the lender; 0 if absent.
    pub bars: Bars,
}

const ERRORS: [Error; 17] = [
    Error::NoMemory,
    Error::NoDevice,
    Error::Busy,
    Error::Invalid,
    Error::Io,
    Error::TimedOut,
    Error::NotSupported,
    Error::NoSpace,
    Error::Cancelled,
    Error::NotPermitted,
    Error::Refused,
    Error::Reset,
    Error::Unreachable,
    Error::AddressInUse,
    Error::Ended,
    Error::TooLong,
    Error::WouldBlock,
];

/// The first word: sequence number and kind of message.
pub(crate) fn head(sequence: u32, kind: u32) -> u64 {
    u64::from(sequence) << 32 | u64::from(kind)
}

/// Sequence number in a first word; `None` if it is not a message.
pub(crate) fn sequence(head: u64) -> Option<u32> {
    (head as u32 != 0).then_some((head >> 32) as u32)
}

impl Peer {
    const fn bits(self) -> u64 {
        self.function.bits() as u64 | (self.node as u64) << 16
    }

    const fn from_bits(bits: u64) -> Self {
        Self { node: (bits >> 16) as u8, function: Bdf::from_bits(bits as u16) }
    }
}

fn put_bars(words: &mut [u64], bars: Bars) {
    for (pair, (at, length)) in words.chunks_exact_mut(2).zip(bars) {
        pair.copy_from_slice(&[at, length]);
    }
}

fn bars(words: &[u64]) -> Bars {
    let mut bars = Bars::default();
    for (bar, pair) in bars.iter_mut().zip(words.chunks_exact(2)) {
        *bar = (pair[0], pair[1]);
    }
    bars
}

fn function(word: u64) -> Bdf {
    Bdf::from_bits(word as u16)
}

impl Request {
    pub fn words(self, sequence: u32) -> Words {
        let mut words = [0; WORDS];
        let bits = |function: Bdf| u64::from(function.bits());
        let kind = match self {
            Self::Check { function, lent } => {
                (words[1], words[2]) = (bits(function), lent.into());
                1
            }
            Self::Offer(n) => {
                words[1] = n.into();
                2
            }
            Self::Borrow { function, window, payload } => {
                (words[1], words[2], words[3]) = (bits(function), window, payload.into());
                3
            }
            Self::Return { function } => {
                words[1] = bits(function);
                4
            }
            Self::ConfigRead { function, register } => {
                (words[1], words[2]) = (bits(function), register.into());
                5
            }
            Self::ConfigWrite { function, register, value, enables } => {
                words[1] = bits(function);
                words[2] = u64::from(register) | u64::from(enables) << 16 | u64::from(value) << 32;
                6
            }
            Self::Revoke { function } => {
                words[1] = bits(function);
                7
            }
            Self::Admit { function, peer, place, payload } => {
                (words[1], words[2]) = (bits(function), peer.bits());
                words[3] = u64::from(place) | u64::from(payload) << 16;
                8
            }
            Self::Join { function, peer, bars } => {
                (words[1], words[2]) = (bits(function), peer.bits());
                put_bars(&mut words[4..], bars);
                9
            }
            Self::Part { function, peer } => {
                (words[1], words[2]) = (bits(function), peer.bits());
                10
            }
            Self::Inspect { function, register } => {
                (words[1], words[2]) = (bits(function), register.into());
                11
            }
            Self::Describe { function } => {
                words[1] = bits(function);
                12
            }
            Self::BorrowForGuest { function, payload } => {
                (words[1], words[2]) = (bits(function), payload.into());
                13
            }
            Self::Open { function, at, low, high } => {
                words[1] = bits(function);
                words[2..5].copy_from_slice(&[at, low, high]);
                14
            }
            Self::Interrupts { function, wanted: Forwarding { first, count, legacy } } => {
                words[1] = bits(function);
                words[2] = u64::from(first) | u64::from(count) << 8 | u64::from(legacy) << 16;
                15
            }
            Self::Unmask { function } => {
                words[1] = bits(function);
                17
            }
            Self::JoinGuest { function, peer, mapping } => {
                let BarMapping { bar, target, length, guest_address } = mapping;
                words[1] = bits(function);
                words[2..7].copy_from_slice(&[peer.bits(), bar.into(), target, length, guest_address]);
                16
            }
        };
        words[0] = head(sequence, kind);
        words
    }

    /// Decodes a request.
    pub fn parse(words: &Words) -> Option<Self> {
        let of = function(words[1]);
        Some(match words[0] as u32 {
            1 => Self::Check { function: of, lent: words[2] != 0 },
            2 => Self::Offer(words[1] as u16),
            3 => Self::Borrow { function: of, window: words[2], payload: words[3] as u16 },
            4 => Self::Return { function: of },
            5 => Self::ConfigRead { function: of, register: words[2] as u16 },
            6 => Self::ConfigWrite {
                function: of,
                register: words[2] as u16,
                value: (words[2] >> 32) as u32,
                enables: (words[2] >> 16) as u8 & 0xf,
            },
            7 => Self::Revoke { function: of },
            8 => Self::Admit {
                function: of,
                peer: Peer::from_bits(words[2]),
                place: words[3] as u8,
                payload: (words[3] >> 16) as u16,
            },
            9 => Self::Join { function: of, peer: Peer::from_bits(words[2]), bars: bars(&words[4..]) },
            10 => Self::Part { function: of, peer: Peer::from_bits(words[2]) },
            11 => Self::Inspect { function: of, register: words[2] as u16 },
            12 => Self::Describe { function: of },
            13 => Self::BorrowForGuest { function: of, payload: words[2] as u16 },
            14 => Self::Open { function: of, at: words[2], low: words[3], high: words[4] },
            15 => Self::Interrupts {
                function: of,
                wanted: Forwarding {
                    first: words[2] as u8,
                    count: (words[2] >> 8) as u8,
                    legacy: words[2] >> 16 & 1 == 1,
                },
            },
            17 => Self::Unmask { function: of },
            16 => Self::JoinGuest {
                function: of,
                peer: Peer::from_bits(words[2]),
                mapping: BarMapping {
                    bar: words[3] as u8,
                    target: words[4],
                    length: words[5],
                    guest_address: words[6],
                },
            },
            _ => return None,
        })
    }
}

impl Reply {
    pub fn words(self, sequence: u32) -> Words {
        let mut words = [0; WORDS];
        let kind = match self {
            Self::Done => 1,
            Self::Value(value) => {
                words[1] = value.into();
                2
            }
            Self::Offer { function, to } => {
                words[1] = function.bits().into();
                words[2] = to.map_or(0, |to| 1 << 8 | u64::from(to));
                3
            }
            Self::Lent(terms) => {
                words[1] = u64::from(terms.place) | u64::from(terms.payload) << 16;
                (words[2], words[3]) = (terms.window, terms.messages);
                put_bars(&mut words[4..], terms.bars);
                4
            }
            Self::Failed(error) => {
                let number = ERRORS.iter().position(|&known| known == error);
                words[1] = number.unwrap_or(ERRORS.len()) as u64;
                5
            }
            Self::Bars(bars) => {
                put_bars(&mut words[4..], bars);
                6
            }
        };
        words[0] = head(sequence, kind);
        words
    }

    /// Decodes a reply; a malformed one becomes an error.
    pub fn parse(words: &Words) -> Self {
        match words[0] as u32 {
            1 => Self::Done,
            2 => Self::Value(words[1] as u32),
            3 => {
                let to = (words[2] >> 8 != 0).then_some(words[2] as u8);
                Self::Offer { function: function(words[1]), to }
            }
            4 => {
                let (place, payload) = (words[1] as u8, (words[1] >> 16) as u16);
                let bars = bars(&words[4..]);
                Self::Lent(Terms { place, payload, window: words[2], messages: words[3], bars })
            }
            5 => Self::Failed(ERRORS.get(words[1] as usize).copied().unwrap_or(Error::Io)),
            6 => Self::Bars(bars(&words[4..])),
            _ => Self::Failed(Error::Io),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn functions() -> impl Strategy<Value = Bdf> {
        any::<u16>().prop_map(Bdf::from_bits)
    }

    fn peers() -> impl Strategy<Value = Peer> {
        (any::<u8>(), functions()).prop_map(|(node, function)| Peer { node, function })
    }

    fn requests() -> impl Strategy<Value = Request> {
        prop_oneof![
            (functions(), any::<bool>()).prop_map(|(function, lent)| Request::Check { function, lent }),
            any::<u16>().prop_map(Request::Offer),
            (functions(), any::<u64>(), any::<u16>())
                .prop_map(|(function, window, payload)| Request::Borrow { function, window, payload }),
            functions().prop_map(|function| Request::Return { function }),
            (functions(), any::<u16>())
                .prop_map(|(function, register)| Request::ConfigRead { function, register }),
            (functions(), any::<u16>(), any::<u32>(), 0u8..16).prop_map(
                |(function, register, value, enables)| Request::ConfigWrite {
                    function,
                    register,
                    value,
                    enables
                }
            ),
            functions().prop_map(|function| Request::Revoke { function }),
            (functions(), peers(), any::<u8>(), any::<u16>()).prop_map(|(function, peer, place, payload)| {
                Request::Admit { function, peer, place, payload }
            }),
            (functions(), peers(), any::<Bars>()).prop_map(|(function, peer, bars)| Request::Join {
                function,
                peer,
                bars
            }),
            (functions(), peers()).prop_map(|(function, peer)| Request::Part { function, peer }),
            (functions(), any::<u16>())
                .prop_map(|(function, register)| Request::Inspect { function, register }),
            functions().prop_map(|function| Request::Describe { function }),
            (functions(), any::<u16>())
                .prop_map(|(function, payload)| Request::BorrowForGuest { function, payload }),
            (functions(), any::<[u64; 3]>()).prop_map(|(function, [at, low, high])| Request::Open {
                function,
                at,
                low,
                high
            }),
            (functions(), any::<[u8; 2]>(), any::<bool>()).prop_map(|(function, [first, count], legacy)| {
                Request::Interrupts { function, wanted: Forwarding { first, count, legacy } }
            }),
            functions().prop_map(|function| Request::Unmask { function }),
            (functions(), peers(), any::<u8>(), any::<[u64; 3]>()).prop_map(
                |(function, peer, bar, [target, length, guest_address])| {
                    let mapping = BarMapping { bar, target, length, guest_address };
                    Request::JoinGuest { function, peer, mapping }
                }
            ),
        ]
    }

    fn replies() -> impl Strategy<Value = Reply> {
        let terms = (any::<u8>(), any::<u16>(), any::<u64>(), any::<u64>(), any::<Bars>());
        prop_oneof![
            Just(Reply::Done),
            any::<u32>().prop_map(Reply::Value),
            (functions(), any::<Option<u8>>()).prop_map(|(function, to)| Reply::Offer { function, to }),
            terms.prop_map(|(place, payload, window, messages, bars)| Reply::Lent(Terms {
                place,
                payload,
                window,
                messages,
                bars
            })),
            (0..ERRORS.len()).prop_map(|n| Reply::Failed(ERRORS[n])),
            any::<Bars>().prop_map(Reply::Bars),
        ]
    }

    proptest! {
        #[test]
        fn what_is_said_is_understood(request in requests(), reply in replies(), number in any::<u32>()) {
            let words = request.words(number);
            prop_assert_eq!(Request::parse(&words), Some(request));
            prop_assert_eq!(sequence(words[0]), Some(number));
            prop_assert_eq!(Reply::parse(&reply.words(number)), reply);
        }

        #[test]
        fn nonsense_is_told_as_such(words in any::<Words>()) {
            let _ = Request::parse(&words);
            let _ = Reply::parse(&words);
        }
    }
}
