//! Which packet may, must or must not pass an earlier one (base spec 2.4.1, table 2-40).
//!
//! ```text
//! later \ earlier      posted      read         write, non-posted   completion
//! posted               No / RO,IDO Yes          Yes                 may
//! read                 No / IDO    may          may                 may
//! write, non-posted    No / RO,IDO may          may                 may
//! completion           No / RO,IDO Yes          Yes                 No within a request
//! ```

use super::Bdf;
use super::tlp::{CompletionStatus, FlowClass, Tlp, TlpKind};

/// What a packet may do about an earlier one that is blocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passing {
    /// It must be able to pass, to avoid deadlock.
    Must,
    /// It may pass or wait.
    May,
    /// It must not pass.
    MustNot,
}

/// The properties of a packet that the ordering rules use, so that a queue need not keep the packet itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderingKey {
    class: FlowClass,
    traffic_class: u8,
    /// May pass posted requests of any requester: relaxed ordering, where the table allows it.
    relaxed: bool,
    /// May pass posted requests of other requesters (ID-based ordering).
    id_based: bool,
    sender: Bdf,
    /// Requester and tag.
    transaction: (Bdf, u16),
}

impl OrderingKey {
    /// The key of `tlp`.
    pub fn of(tlp: &Tlp) -> Self {
        let heeds_relaxed = !matches!(tlp.kind, TlpKind::MemoryRead(_));
        Self {
            class: tlp.class(),
            traffic_class: tlp.common.traffic_class,
            relaxed: tlp.common.relaxed_ordering && heeds_relaxed || is_write_completion(tlp),
            id_based: tlp.common.id_based_ordering,
            sender: tlp.sender(),
            transaction: (tlp.requester(), tlp.tag()),
        }
    }

    /// Whether a packet with this key passes one with key `earlier`, which entered the same queue before it.
    ///
    /// Packets of different traffic classes have no order to keep, but keep their
    /// duty to pass: they may share a virtual channel.
    #[inline]
    pub fn passes(&self, earlier: &Self) -> Passing {
        use FlowClass::{Completion, NonPosted, Posted};
        let is_free = match (self.class, earlier.class) {
            (Posted | Completion, NonPosted) => return Passing::Must,
            (Posted, Completion) | (NonPosted, NonPosted | Completion) => true,
            (Completion, Completion) => self.transaction != earlier.transaction,
            (_, Posted) => self.relaxed || self.id_based && self.sender != earlier.sender,
        };
        // The order counts within a traffic class only.
        if is_free || self.traffic_class != earlier.traffic_class { Passing::May } else { Passing::MustNot }
    }
}

/// Whether `waiting` passes `earlier`, which entered the same queue before it: see [`OrderingKey::passes`].
pub fn may_pass(waiting: &Tlp, earlier: &Tlp) -> Passing {
    OrderingKey::of(waiting).passes(&OrderingKey::of(earlier))
}

/// The completion of a successful I/O or configuration write: it has no data.
/// One that reports an error may belong to a read, which has to stay in order.
fn is_write_completion(tlp: &Tlp) -> bool {
    matches!(tlp.kind, TlpKind::Completion(c) if c.status == CompletionStatus::Successful)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcie::{CompletionHeader, ConfigRequest, ConfigType, MemoryRequest};

    const A: Bdf = Bdf::new(1, 0, 0);
    const B: Bdf = Bdf::new(2, 0, 0);

    fn packet(column: usize, sender: Bdf, tag: u16) -> Tlp {
        let request = MemoryRequest::for_bytes(sender, tag, 0x1000, 64);
        Tlp::new(match column {
            0 => TlpKind::MemoryWrite(request),
            1 => TlpKind::MemoryRead(request),
            2 => TlpKind::ConfigWrite(ConfigRequest {
                requester: sender,
                tag,
                target: B,
                register: 0,
                first_be: 0xf,
                config_type: ConfigType::Type0,
            }),
            _ => {
                let asked = MemoryRequest { requester: Bdf::new(9, 0, 0), ..request };
                TlpKind::CompletionData(CompletionHeader::with_data(sender, &asked, 0x1000, 64, 64))
            }
        })
    }

    /// Every combination of type, sender, tag, relaxed ordering, IDO and traffic class.
    #[test]
    fn the_whole_table() {
        use Passing::{May, Must, MustNot};
        let plain = [
            [MustNot, Must, Must, May],
            [MustNot, May, May, May],
            [MustNot, May, May, May],
            [MustNot, Must, Must, MustNot],
        ];
        for (row, columns) in plain.iter().enumerate() {
            for (column, &plain) in columns.iter().enumerate() {
                for bits in 0..32 {
                    let [relaxed, ido, same_sender, same_tag, same_tc] =
                        [1, 2, 4, 8, 16].map(|b| bits & b != 0);
                    let mut waiting = packet(row, A, 7);
                    waiting.common.relaxed_ordering = relaxed;
                    waiting.common.id_based_ordering = ido;
                    let mut earlier =
                        packet(column, if same_sender { A } else { B }, if same_tag { 7 } else { 8 });
                    // Bits of the earlier packet have no effect.
                    earlier.common.relaxed_ordering = true;
                    earlier.common.id_based_ordering = true;
                    earlier.common.traffic_class = u8::from(!same_tc);
                    let freed = match (row, column) {
                        (1, 0) => ido && !same_sender,
                        (_, 0) => relaxed || ido && !same_sender,
                        // A request is completed by a single completer; another tag is another request.
                        (3, 3) => !same_tag,
                        _ => false,
                    };
                    let expected = match plain {
                        MustNot if freed || !same_tc => May,
                        other => other,
                    };
                    assert_eq!(
                        may_pass(&waiting, &earlier),
                        expected,
                        "row {row} column {column} RO {relaxed} IDO {ido} same sender {same_sender} \
                         tag {same_tag} TC {same_tc}"
                    );
                }
            }
        }
    }

    #[test]
    fn write_completions_may_pass_posted_requests() {
        let write = packet(0, B, 0);
        let completion =
            |status| Tlp::new(TlpKind::Completion(CompletionHeader::for_register(A, B, 1, status, 0)));
        assert_eq!(may_pass(&completion(CompletionStatus::Successful), &write), Passing::May);
        assert_eq!(may_pass(&completion(CompletionStatus::UnsupportedRequest), &write), Passing::MustNot);
    }
}
