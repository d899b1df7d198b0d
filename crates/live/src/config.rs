//! Configuration space as a guest sees it: most of it is the function's, some bits are the guest's own.
//!
//! Addresses, interrupt messages, the power state and what is agreed with the link's other end are the host's business: the
//! guest has values of its own for them, which the function does not see, as with VFIO in Linux.

use std::collections::BTreeMap;

use wire::pcie::config::header;

/// What a write means to the function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigWish {
    /// Bus mastering is turned on or off.
    Master(bool),
    /// Interrupt Disable is set or cleared.
    MaskLine(bool),
    /// A function-level reset.
    Reset,
}

/// Where capabilities are, as far as they matter here.
#[derive(Clone, Copy, Default, Debug)]
pub struct CapabilityPlaces {
    /// Power management.
    pub power: Option<u16>,
    /// MSI.
    pub msi: Option<u16>,
    /// MSI-X.
    pub msix: Option<u16>,
    /// PCI Express.
    pub express: Option<u16>,
}

const ALL: u32 = u32::MAX;
/// Expansion ROM base address (PCI base spec 7.5.1.2.4).
const ROM: u16 = 0x30;
/// Initiate Function Level Reset, of Device Control.
const FUNCTION_LEVEL_RESET: u32 = 1 << 15;

/// What a virtual function does not say of itself, since its physical function does (base spec 9.3.4): a guest is to find it there.
#[derive(Clone, Copy, Default, Debug)]
pub struct VirtualIdentity {
    /// Vendor and device ID.
    pub ids: u32,
    /// The lowest bits of each BAR that it has.
    pub bars: [Option<u32>; 6],
}

/// A guest's own bits, by their doublewords: which, and their values.
#[derive(Clone, Debug)]
pub struct GuestConfig {
    own: BTreeMap<u16, (u32, u32)>,
    /// Bits that a virtual function lacks and nobody writes, in the same way.
    lacking: BTreeMap<u16, (u32, u32)>,
    device_control: Option<u16>,
}

impl GuestConfig {
    /// With the function's values of now, which `register` returns.
    pub fn new(
        places: CapabilityPlaces,
        identity: Option<VirtualIdentity>,
        register: impl Fn(u16) -> u32,
    ) -> Self {
        let bars = identity.iter().flat_map(|own| own.bars);
        let bars = (0..).map(|bar| header::BAR0 + 4 * bar).zip(bars);
        let bars = bars.filter_map(|(at, kind)| Some((at, (0xf, kind?))));
        let lacking: BTreeMap<u16, (u32, u32)> =
            identity.iter().map(|own| (0, (ALL, own.ids))).chain(bars).collect();
        let register = |at: u16| {
            let (mask, value) = lacking.get(&at).copied().unwrap_or_default();
            register(at) & !mask | value
        };
        let mut own = BTreeMap::new();
        let memory = header::COMMAND_MEMORY | header::COMMAND_BUS_MASTER | header::COMMAND_INTX_DISABLE | 1;
        own.insert(header::COMMAND, (memory.into(), 0));
        let mut is_upper = false;
        for bar in 0..6 {
            let at = header::BAR0 + 4 * bar;
            // Kinds of BARs are in the lowest bits, and stay; the upper half of an address has none.
            let (address, kind) = if is_upper { (ALL, 0) } else { (!0xf, register(at) & 0xf) };
            own.insert(at, (address, kind));
            is_upper = !is_upper && kind & 0b111 == 0b100;
        }
        own.insert(ROM, (ALL, 0));
        own.insert(header::INTERRUPT_LINE, (0xff, 0));
        if let Some(at) = places.power {
            own.insert(at + 4, (0x8103, register(at + 4) & 0x8100));
        }
        if let Some(at) = places.msix {
            own.insert(at, (0xc000_0000, 0));
        }
        if let Some(at) = places.msi {
            own.insert(at, (0x0071_0000, 0));
            // Address and data; with 64-bit addresses, mask bits too.
            let words = if register(at) >> 23 & 1 == 1 { 4 } else { 2 };
            own.extend((1..=words).map(|word| (at + 4 * word, (ALL, 0))));
        }
        // Device, link, second device and second link control.
        for control in places.express.iter().flat_map(|at| [8, 0x10, 0x28, 0x30].map(|offset| at + offset)) {
            own.insert(control, (0xffff, register(control) & 0xffff));
        }
        Self { own, device_control: places.express.map(|at| at + 8), lacking }
    }

    /// Whether the guest has turned bus mastering on.
    pub fn is_master(&self) -> bool {
        let command = self.own.get(&header::COMMAND).map_or(0, |(_, own)| *own);
        command & u32::from(header::COMMAND_BUS_MASTER) != 0
    }

    /// Where the guest has a memory BAR whose accesses it has turned on.
    pub fn bar(&self, number: u8) -> Option<u64> {
        let own = |at: u16| self.own.get(&at).map_or(0, |(_, own)| *own);
        let at = header::BAR0 + 4 * u16::from(number);
        let low = own(at) | self.lacking.get(&at).map_or(0, |(_, kind)| *kind);
        let is_on = own(header::COMMAND) & u32::from(header::COMMAND_MEMORY) != 0 && low & 1 == 0;
        let high = if low & 0b111 == 0b100 { own(at + 4) } else { 0 };
        is_on.then_some(u64::from(high) << 32 | u64::from(low & !0xf))
    }

    /// A doubleword as the guest reads it, of which the function has `value`.
    pub fn read(&self, register: u16, value: u32) -> u32 {
        let of = |bits: &BTreeMap<u16, (u32, u32)>| bits.get(&register).copied().unwrap_or_default();
        let [(mask, own), (lacks, known)] = [of(&self.own), of(&self.lacking)];
        (value & !mask | own) & !lacks | known
    }

    /// Writes the bytes of a doubleword that `bytes` selects, as a mask. Other bits than the guest's own stay.
    pub fn write(&mut self, register: u16, value: u32, bytes: u32) -> Vec<ConfigWish> {
        let Some((mask, own)) = self.own.get_mut(&register) else { return Vec::new() };
        let changed = *mask & bytes;
        let before = std::mem::replace(own, *own & !changed | value & changed);
        let mut wishes = Vec::new();
        if register == header::COMMAND {
            let turned = |bit: u16| {
                let bit = u32::from(bit);
                ((before ^ *own) & bit != 0).then_some(*own & bit != 0)
            };
            wishes.extend(turned(header::COMMAND_BUS_MASTER).map(ConfigWish::Master));
            wishes.extend(turned(header::COMMAND_INTX_DISABLE).map(ConfigWish::MaskLine));
        }
        if self.device_control == Some(register) && *own & FUNCTION_LEVEL_RESET != 0 {
            *own &= !FUNCTION_LEVEL_RESET;
            wishes.push(ConfigWish::Reset);
        }
        wishes
    }
}

/// Start of extended configuration space.
const EXTENDED: u16 = 0x100;
/// Designated vendor-specific extended capability (base spec 7.9.6), version 1.
const DESIGNATED: u32 = 0x0001_0023;
/// The capability's vendor, and what it is called there.
const VENDOR: u32 = 0x4e46;
const REQUESTER_IDS: u32 = 1;
const CAPABILITY_BYTES: u32 = 16;

/// A capability by which a guest learns requester IDs, which it cannot choose: an adapter's tables name functions by those that
/// they have in the host. Beside the function's own, it has that of the root port above, with which the guest's processors
/// access it.
#[derive(Clone, Copy, Debug)]
pub struct RequesterIds {
    /// The capability before it, which names its place.
    before: Option<u16>,
    at: u16,
}

impl RequesterIds {
    /// Behind the function's other extended capabilities.
    pub fn new(register: impl Fn(u16) -> u32) -> Self {
        if matches!(register(EXTENDED), 0 | ALL) {
            return Self { before: None, at: EXTENDED };
        }
        let next = |at: &u16| Some((register(*at) >> 20) as u16 & 0xffc).filter(|&next| next > *at);
        let last = std::iter::successors(Some(EXTENDED), next).last();
        Self { before: last, at: 0x1000 - CAPABILITY_BYTES as u16 }
    }

    /// A doubleword of which the function has `value`, with its requester ID and that of the root port above.
    pub fn read(self, register: u16, value: u32, [own, above]: [u16; 2]) -> u32 {
        if Some(register) == self.before {
            return value & 0xf_ffff | u32::from(self.at) << 20;
        }
        match register.checked_sub(self.at) {
            Some(0) => DESIGNATED,
            Some(4) => VENDOR | CAPABILITY_BYTES << 20,
            Some(8) => REQUESTER_IDS | u32::from(own) << 16,
            Some(12) => above.into(),
            _ => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_learns_requester_ids_behind_the_other_capabilities() {
        let space = |at: u16| match at {
            0x100 => 0x1401_0001,
            0x140 => 0x0001_0003,
            _ => 0,
        };
        let read = |at| RequesterIds::new(space).read(at, space(at), [0x0500, 0x0018]);
        assert_eq!([read(0x100), read(0x140)], [0x1401_0001, 0xff01_0003]);
        assert_eq!([0xff0, 0xff4, 0xff8, 0xffc].map(read), [0x0001_0023, 0x0100_4e46, 0x0500_0001, 0x18]);
        let alone = RequesterIds::new(|_| 0);
        assert_eq!([0x100, 0x108, 0x140].map(|at| alone.read(at, 7, [1, 2])), [0x0001_0023, 0x0001_0001, 7]);
    }

    #[test]
    fn a_guest_moves_its_own_bars_and_not_the_functions() {
        let mut config = GuestConfig::new(CapabilityPlaces::default(), None, |at| match at {
            0x10 => 0x9000_000c,
            0x14 => 0x0000_0380,
            _ => 0,
        });
        assert_eq!([config.read(0x10, 0x9000_000c), config.read(0x14, 0x380)], [0xc, 0]);
        assert_eq!(config.write(0x10, ALL, ALL), []);
        assert_eq!(config.read(0x10, 0x9000_000c), 0xffff_fffc, "a BAR keeps its kind");
        assert_eq!(config.read(0, 0x1234_8086), 0x1234_8086, "the rest is the function's");
        config.write(0x10, 0x4000_0000, ALL);
        config.write(0x14, 0x1, ALL);
        assert_eq!(config.bar(0), None, "its accesses are off");
        config.write(4, 2, 0xff);
        assert_eq!(config.bar(0), Some(0x1_4000_0000));
    }

    #[test]
    fn a_virtual_function_has_what_its_physical_one_says_of_it() {
        let identity = VirtualIdentity { ids: 0x0002_4e46, bars: [Some(0xc), None, None, None, None, None] };
        let mut config =
            GuestConfig::new(CapabilityPlaces::default(), Some(identity), |at| if at == 0 { ALL } else { 0 });
        config.write(0, 0, ALL);
        assert_eq!(config.read(0, ALL), 0x0002_4e46);
        config.write(0x10, ALL, ALL);
        config.write(0x14, 2, ALL);
        assert_eq!([config.read(0x10, 0), config.read(0x14, 0)], [0xffff_fffc, 2]);
        config.write(4, 2, 0xff);
        assert_eq!(config.bar(0), Some(0x2_ffff_fff0));
    }

    #[test]
    fn what_concerns_the_function_is_told() {
        let places = CapabilityPlaces { express: Some(0x40), ..CapabilityPlaces::default() };
        let mut config = GuestConfig::new(places, None, |_| 0);
        assert_eq!(config.write(4, 6, 0xff), [ConfigWish::Master(true)]);
        assert_eq!(config.write(4, 6, 0xff), [], "it is on");
        assert_eq!(config.write(4, 0, 0xff00), [], "not the byte that has it");
        assert_eq!(config.write(4, 0x400, 0xffff), [ConfigWish::Master(false), ConfigWish::MaskLine(true)]);
        assert_eq!(config.write(0x48, 0x8010, 0xffff), [ConfigWish::Reset]);
        assert_eq!(config.read(0x48, 0), 0x10, "the bit reads as 0");
    }
}
