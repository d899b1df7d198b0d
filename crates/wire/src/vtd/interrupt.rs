//! Formats of interrupts: messages, remapping table entries, posted-interrupt descriptors.

use super::fault::FaultReason;
use crate::pcie::Bdf;
use units::HostPhysical;

/// A message-signalled interrupt, as a memory write.
///
/// ```text
/// remappable     address 31:20 0xfee, 19:5 handle 14:0, 4 = 1, 3 subhandle valid, 2 handle 15
///                data    15:0 subhandle
/// compatibility  address 31:20 0xfee, 19:12 destination, 4 = 0, 3 redirection hint, 2 logical
///                data    15 level, 10:8 delivery mode, 7:0 vector
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MsiMessage {
    /// The address written to.
    pub address: u64,
    /// The data written.
    pub data: u32,
}

impl MsiMessage {
    /// The message for interrupt remapping table entry `index`, as the kernel programs it into a function. With
    /// `subhandle`, a function with several MSI vectors adds its vector number to the index.
    pub const fn remappable(index: u16, subhandle: bool) -> Self {
        let (low, high) = (index as u64 & 0x7fff, index as u64 >> 15);
        Self { address: 0xfee0_0010 | low << 5 | high << 2 | (subhandle as u64) << 3, data: 0 }
    }

    /// Decodes the message without remapping.
    ///
    /// # Errors
    /// If its delivery mode is undefined.
    #[inline]
    pub fn unremapped(self) -> Result<Interrupt, FaultReason> {
        let Self { address, data } = self;
        let delivery = DeliveryMode::decode(u64::from(data) >> 8).ok_or(FaultReason::InterruptReserved)?;
        Ok(Interrupt {
            destination: (address >> 12) as u32 & 0xff,
            logical: address & 4 != 0,
            redirection_hint: address & 8 != 0,
            delivery,
            level: data & 1 << 15 != 0,
            vector: data as u8,
        })
    }

    /// Index of a remappable message; `None` for a compatibility-format message.
    ///
    /// # Errors
    /// If reserved bits are set.
    #[inline]
    pub const fn index(self) -> Result<Option<u32>, FaultReason> {
        if self.address & 1 << 4 == 0 {
            return Ok(None);
        }
        let handle = (self.address >> 5 & 0x7fff | (self.address >> 2 & 1) << 15) as u32;
        if self.address & 1 << 3 == 0 {
            return Ok(Some(handle));
        }
        if self.data >> 16 != 0 {
            return Err(FaultReason::InterruptReserved);
        }
        Ok(Some(handle + self.data))
    }

    /// Fault information if it is refused: its index in bits 63:48, or its address if it has none.
    pub fn fault_information(self) -> u64 {
        match self.index() {
            Ok(Some(index)) => u64::from(index as u16) << 48,
            _ => self.address,
        }
    }
}

/// How an interrupt reaches its destination.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DeliveryMode {
    /// To all cores in the destination.
    #[default]
    Fixed,
    /// To the core in the destination with the lowest priority.
    LowestPriority,
    /// System management interrupt.
    Smi,
    /// Non-maskable interrupt.
    Nmi,
    /// Resets the core.
    Init,
    /// As from an 8259 interrupt controller.
    ExtInt,
}

impl DeliveryMode {
    const fn decode(bits: u64) -> Option<Self> {
        Some(match bits & 7 {
            0 => Self::Fixed,
            1 => Self::LowestPriority,
            2 => Self::Smi,
            4 => Self::Nmi,
            5 => Self::Init,
            7 => Self::ExtInt,
            _ => return None,
        })
    }
    const fn encode(self) -> u64 {
        match self {
            Self::Fixed => 0,
            Self::LowestPriority => 1,
            Self::Smi => 2,
            Self::Nmi => 4,
            Self::Init => 5,
            Self::ExtInt => 7,
        }
    }
}

/// An interrupt to be delivered to the cores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Interrupt {
    /// APIC ID, or a set of cores if `logical`.
    pub destination: u32,
    /// Whether `destination` is logical.
    pub logical: bool,
    /// May be delivered to any one of the destination's cores.
    pub redirection_hint: bool,
    /// Delivery mode.
    pub delivery: DeliveryMode,
    /// Level-triggered, else edge-triggered.
    pub level: bool,
    /// The vector at its destination.
    pub vector: u8,
}

/// Which requesters may use an interrupt remapping table entry (fields SVT, SQ and SID).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SourceCheck {
    /// Any requester.
    #[default]
    None,
    /// This function; the `ignored` function number bits (0, 0b100, 0b110 or 0b111) are not compared.
    Function {
        /// The function.
        source: Bdf,
        /// Bits not compared.
        ignored: u8,
    },
    /// Any function on these buses, as behind a bridge that takes ownership.
    Buses {
        /// The first bus.
        first: u8,
        /// The last bus.
        last: u8,
    },
}

impl SourceCheck {
    /// Whether a requester may use the entry.
    #[inline]
    pub const fn allows(self, requester: Bdf) -> bool {
        match self {
            Self::None => true,
            Self::Function { source, ignored } => {
                requester.bits() | ignored as u16 == source.bits() | ignored as u16
            }
            Self::Buses { first, last } => first <= requester.bus() && requester.bus() <= last,
        }
    }
}

/// How a message is delivered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Delivery {
    /// To the host's cores.
    Core(Interrupt),
    /// Posted in memory, for a guest's virtual CPU.
    Posted(PostedInterrupt),
}

impl From<Interrupt> for Delivery {
    fn from(interrupt: Interrupt) -> Self {
        Self::Core(interrupt)
    }
}

/// A posted interrupt for a guest's virtual CPU (VT-d specification, 5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PostedInterrupt {
    /// The [descriptor](PostedDescriptor) of the virtual CPU, aligned to 64 bytes.
    pub descriptor: HostPhysical,
    /// The guest's vector.
    pub vector: u8,
    /// Notifies even while notifications are suppressed.
    pub urgent: bool,
}

/// Posted-interrupt descriptor: 64 bytes in memory shared by IOMMU, processor and hypervisor (VT-d specification,
/// 9.11).
///
/// ```text
/// bytes  0 to 31  a bit for each vector that is posted
///       32        bit 0 a notification is outstanding, bit 1 notifications are suppressed
///       34        notification vector
///       36 to 39  notification destination: the APIC ID of the core that the guest's core is on
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PostedDescriptor {
    /// Posted vectors, one bit for each.
    pub requests: [u64; 4],
    /// A notification is outstanding, so no other is sent.
    pub outstanding: bool,
    /// Notifications are suppressed.
    pub suppressed: bool,
    /// Vector of the notification.
    pub notification_vector: u8,
    /// Core to be notified.
    pub destination: u32,
}

impl PostedDescriptor {
    /// Size and alignment in bytes.
    pub const BYTES: usize = 64;

    /// Encodes the descriptor.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (into, word) in bytes.chunks_exact_mut(8).zip(self.requests) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes[32] = u8::from(self.outstanding) | u8::from(self.suppressed) << 1;
        bytes[34] = self.notification_vector;
        bytes[36..40].copy_from_slice(&self.destination.to_le_bytes());
        bytes
    }

    /// Decodes a descriptor.
    #[inline]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |n: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * n + byte]));
        Self {
            requests: std::array::from_fn(word),
            outstanding: bytes[32] & 1 != 0,
            suppressed: bytes[32] & 2 != 0,
            notification_vector: bytes[34],
            destination: u32::from_le_bytes([bytes[36], bytes[37], bytes[38], bytes[39]]),
        }
    }

    /// Posts a vector. Returns the notification to send, if any.
    pub fn post(&mut self, vector: u8, urgent: bool) -> Option<Interrupt> {
        self.requests[usize::from(vector / 64)] |= 1 << (vector % 64);
        if self.outstanding || self.suppressed && !urgent {
            return None;
        }
        self.outstanding = true;
        let (destination, vector) = (self.destination, self.notification_vector);
        Some(Interrupt { destination, vector, ..Interrupt::default() })
    }

    /// Takes the posted vectors, lowest first.
    pub fn take(&mut self) -> impl Iterator<Item = u8> + use<> {
        self.outstanding = false;
        let requests = std::mem::take(&mut self.requests);
        (0..=u8::MAX).filter(move |v| requests[usize::from(v / 64)] >> (v % 64) & 1 != 0)
    }
}

/// An interrupt remapping table entry.
///
/// ```text
/// low   63:32 destination, 23:16 vector, 7:5 delivery mode, 4 level, 3 redirection hint, 2 logical,
///       1 fault processing disabled, 0 present
/// high  19:18 source check, 17:16 its qualifier, 15:0 source
/// posted:
/// low   63:38 descriptor 31:6, 23:16 vector, 15 = 1, 14 urgent, 1 and 0 as above
/// high  63:32 descriptor 63:32, 19:0 as above
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InterruptEntry {
    /// How the message is delivered.
    pub delivery: Delivery,
    /// Which requesters may use it.
    pub source: SourceCheck,
    /// Faults are counted, but not recorded.
    pub fault_processing_disabled: bool,
}

/// Entry mode bit: posted.
const POSTED: u64 = 1 << 15;

impl InterruptEntry {
    /// The words of an absent entry.
    pub const ABSENT: [u64; 2] = [0, 0];

    /// The entry's two words, low first. Without `x2apic`, destinations have 8 bits, in 47:40.
    pub const fn encode(self, x2apic: bool) -> [u64; 2] {
        let (low, above) = match self.delivery {
            Delivery::Core(i) => {
                let destination =
                    if x2apic { i.destination as u64 } else { (i.destination as u64 & 0xff) << 8 };
                let low = (i.logical as u64) << 2
                    | (i.redirection_hint as u64) << 3
                    | (i.level as u64) << 4
                    | i.delivery.encode() << 5
                    | (i.vector as u64) << 16
                    | destination << 32;
                (low, 0)
            }
            Delivery::Posted(p) => {
                let at = p.descriptor.get();
                let low =
                    (p.urgent as u64) << 14 | POSTED | (p.vector as u64) << 16 | (at & 0xffff_ffc0) << 32;
                (low, at >> 32 << 32)
            }
        };
        let low = low | 1 | (self.fault_processing_disabled as u64) << 1;
        let high = above
            | match self.source {
                SourceCheck::None => 0,
                SourceCheck::Function { source, ignored } => {
                    let qualifier = match ignored {
                        0 => 0,
                        0b100 => 1,
                        0b110 => 2,
                        _ => 3,
                    };
                    1 << 18 | qualifier << 16 | source.bits() as u64
                }
                SourceCheck::Buses { first, last } => 2 << 18 | (first as u64) << 8 | last as u64,
            };
        [low, high]
    }

    /// Decodes an entry. On an IOMMU without posting (`posts`), the mode bit is reserved.
    ///
    /// # Errors
    /// The fault of a message that uses this entry.
    #[inline]
    pub const fn decode([low, high]: [u64; 2], x2apic: bool, posts: bool) -> Result<Self, FaultReason> {
        if low & 1 == 0 {
            return Err(FaultReason::InterruptNotPresent);
        }
        let is_posted = posts && low & POSTED != 0;
        let reserved_destination = if x2apic { 0 } else { 0xffff_00ff << 32 };
        let mode = DeliveryMode::decode(low >> 5);
        let reserved = match is_posted {
            true => low & 0x3f_ff00_30fc != 0 || high & 0xfff0_0000 != 0,
            false => low & (0xff00_f000 | reserved_destination) != 0 || high >> 20 != 0,
        };
        let (false, Some(mode)) = (reserved, mode) else {
            return Err(FaultReason::InterruptEntryReserved);
        };
        let source = match high >> 18 & 3 {
            0 => SourceCheck::None,
            1 => SourceCheck::Function {
                source: Bdf::from_bits(high as u16),
                ignored: [0, 0b100, 0b110, 0b111][(high >> 16 & 3) as usize],
            },
            2 => SourceCheck::Buses { first: (high >> 8) as u8, last: high as u8 },
            _ => return Err(FaultReason::InterruptEntryReserved),
        };
        let vector = (low >> 16) as u8;
        let delivery = if is_posted {
            let at = low >> 32 & 0xffff_ffc0 | high >> 32 << 32;
            Delivery::Posted(PostedInterrupt {
                descriptor: HostPhysical::new(at),
                vector,
                urgent: low & 1 << 14 != 0,
            })
        } else {
            Delivery::Core(Interrupt {
                destination: if x2apic { (low >> 32) as u32 } else { (low >> 40) as u32 & 0xff },
                logical: low & 4 != 0,
                redirection_hint: low & 8 != 0,
                delivery: mode,
                level: low & 16 != 0,
                vector,
            })
        };
        Ok(Self { delivery, source, fault_processing_disabled: low & 2 != 0 })
    }
}

/// Location of the interrupt remapping table (interrupt remapping table address register).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InterruptTable {
    /// 4 KiB-aligned table of 16-byte entries.
    pub base: HostPhysical,
    /// The table has 2^(`order` + 1) entries; 0 to 15.
    pub order: u8,
    /// Destinations are 32-bit x2APIC IDs (EIME).
    pub x2apic: bool,
    /// Compatibility-format messages pass unremapped (CFIS); never with x2APIC.
    pub allow_compatibility: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_remappable_message_has_the_specified_layout() {
        let message = MsiMessage::remappable(0x8003, true);
        assert_eq!(message.address, 0xfee0_007c);
        assert_eq!(MsiMessage { data: 4, ..message }.index(), Ok(Some(0x8007)));
        assert_eq!(MsiMessage { data: 1 << 16, ..message }.index(), Err(FaultReason::InterruptReserved));
        assert_eq!(MsiMessage { address: 0xfee0_1000, data: 0x31 }.index(), Ok(None));
    }

    proptest! {
        #[test]
        fn every_index_can_be_asked_for(index: u16, x2apic: bool) {
            prop_assert_eq!(MsiMessage::remappable(index, false).index(), Ok(Some(index.into())));
            let entry = InterruptEntry {
                delivery: Interrupt { destination: u32::from(index) & 0xff, vector: index as u8, ..Default::default() }.into(),
                source: SourceCheck::Function { source: Bdf::from_bits(index), ignored: 0b110 },
                fault_processing_disabled: false,
            };
            prop_assert_eq!(InterruptEntry::decode(entry.encode(x2apic), x2apic, false), Ok(entry));
        }

        #[test]
        fn any_words_decode_or_fault(low: u64, high: u64, x2apic: bool, posts: bool) {
            if let Ok(entry) = InterruptEntry::decode([low, high], x2apic, posts) {
                prop_assert_eq!(InterruptEntry::decode(entry.encode(x2apic), x2apic, posts), Ok(entry));
            }
        }

        /// Every posted vector is taken once, after one notification unless suppressed.
        #[test]
        fn what_is_posted_is_taken(vectors in prop::collection::vec(32u8.., 0..40), suppressed: bool) {
            let place = PostedDescriptor { suppressed, notification_vector: 0xf2, destination: 3, ..Default::default() };
            let mut descriptor = PostedDescriptor::decode(&place.encode());
            let notified = vectors.iter().filter(|&&vector| descriptor.post(vector, false).is_some()).count();
            prop_assert_eq!(notified, usize::from(!vectors.is_empty() && !suppressed));
            let mut descriptor = PostedDescriptor::decode(&descriptor.encode());
            let wanted: std::collections::BTreeSet<u8> = vectors.into_iter().collect();
            prop_assert_eq!(descriptor.take().collect::<std::collections::BTreeSet<_>>(), wanted);
            prop_assert_eq!(descriptor, place);
        }
    }
}
