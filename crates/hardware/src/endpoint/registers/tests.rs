//! Two functions below one port and one below another, of which the first and the last have virtual functions.

use platform::device::{DeviceBus, Function, VirtualFunction};
use units::BarOffset;
use wire::pcie::config::{BarKind, PcieParams, SriovParams};
use wire::pcie::tlp::ConfigType;
use wire::pcie::{Generation, IntxLine, Width};

use super::*;

const FIRST: FunctionIndex = FunctionIndex(0);
const SECOND: FunctionIndex = FunctionIndex(1);
const OTHER: FunctionIndex = FunctionIndex(2);
/// MSI-X table of 10 vectors in BAR 0 from here on; the pending bits are in BAR 2.
const TABLE: u32 = 0x100;
const PENDING: u32 = 0x40;
const VECTORS: u16 = 10;

struct Example;

impl Device for Example {
    fn functions(&self) -> Vec<Function> {
        let layout = MsixLayout {
            vectors: VECTORS,
            table_bar: 0,
            table_offset: TABLE,
            pending_bar: 2,
            pending_offset: PENDING,
        };
        let sriov = |total| SriovParams {
            total,
            first_offset: 8,
            stride: 2,
            device: 7,
            bars: [Some((BarKind::Memory64 { prefetchable: false }, 4096)), None, None, None, None, None],
        };
        let pcie = || PcieParams { ten_bit_tags: true, ..PcieParams::endpoint(Generation::Gen3, Width::X8) };
        let new = || ConfigSpace::endpoint(1, 2, 0x02_0000).bar32(0, 4096, false).bar32(2, 4096, false);
        let plain = || new().interrupt_pin(2).msi(8).pcie(pcie()).aer().ecrc();
        [(0, plain().msix(layout).sriov(sriov(2))), (0, plain()), (1, plain().sriov(sriov(1)))]
            .map(|(port, config)| Function { port: PortIndex(port), config: config.build().unwrap() })
            .into()
    }

    fn virtual_functions(&self) -> Vec<VirtualFunction> {
        let config = || ConfigSpace::virtual_function(0x02_0000).bar64(0, 4096, false).build().unwrap();
        [FIRST, FIRST, OTHER].map(|physical| VirtualFunction { physical, config: config() }).into()
    }

    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}
}

/// A request to function `number` of a device below a port whose bus is 5.
fn to(number: u8, register: u16) -> ConfigRequest {
    ConfigRequest {
        requester: Bdf::default(),
        tag: 0,
        target: Bdf::new_ari(5, number),
        register,
        first_be: 0xf,
        config_type: ConfigType::Type0,
    }
}

const PORTS: [PortIndex; 2] = [PortIndex(0), PortIndex(1)];

fn set(registers: &mut Registers, function: FunctionIndex, offset: u16, value: u32) {
    let config = registers.config_mut(function);
    let at = config.pcie_offset().unwrap() + offset;
    config.write(at, value, 0b0011);
}

/// Enables the virtual functions of both that have some.
fn enable_virtual(registers: &mut Registers) {
    for function in [FIRST, OTHER] {
        let config = registers.config_mut(function);
        let read = |at| config.dword(at);
        let at = wire::pcie::config::caps::find_extended(&read, 0x10).unwrap();
        for (offset, value) in [(0x10, 2), (0x24, 0x8000_0000), (0x08, 9)] {
            config.write(at + offset, value, 0xf);
        }
    }
}

#[test]
fn a_port_may_do_what_all_its_functions_may() {
    let mut registers = Registers::new(&Example);
    let allowed = |registers: &Registers, port: usize| registers.allowance(PORTS[port]);
    assert_eq!(allowed(&registers, 0), Allowance::default());
    assert_eq!(registers.allowance(PortIndex(7)), Allowance::default());
    // Payload of 256 and requests of 4096 bytes, 8-bit tags, neither relaxed nor unsnooped; then ID-based ordering.
    let much = 1 << 5 | 5 << 12 | 1 << 8;
    set(&mut registers, FIRST, 8, much);
    set(&mut registers, FIRST, 0x28, 1 << 8);
    assert_eq!(
        allowed(&registers, 0),
        Allowance { relaxed_ordering: false, no_snoop: false, ..Allowance::default() }
    );
    assert_eq!(allowed(&registers, 1), Allowance::default());
    set(&mut registers, SECOND, 8, much | 1 << 4 | 1 << 11);
    set(&mut registers, SECOND, 0x28, 1 << 8 | 1 << 12);
    let both = Allowance {
        max_payload: 256,
        max_read_request: 4096,
        tags: 0..256,
        relaxed_ordering: false,
        no_snoop: false,
        id_based_ordering: true,
    };
    assert_eq!(allowed(&registers, 0), both);
    set(&mut registers, FIRST, 8, much | 1 << 4);
    assert_eq!(allowed(&registers, 0), Allowance { relaxed_ordering: true, ..both.clone() });
    set(&mut registers, FIRST, 8, much | 1 << 11);
    set(&mut registers, FIRST, 0x28, 1 << 12);
    assert_eq!(
        allowed(&registers, 0),
        Allowance { no_snoop: true, tags: 256..1024, id_based_ordering: false, ..both }
    );
    // ECRC in all functions below the port.
    let ecrc =
        |registers: &Registers| PORTS.map(|port| registers.ecrc(port)).map(|e| (e.generated, e.checked));
    let enable = |registers: &mut Registers, function, bits| {
        let config = registers.config_mut(function);
        config.write(config.aer_offset().unwrap() + 0x18, bits, 0xf);
    };
    assert_eq!(ecrc(&registers), [(false, false); 2]);
    enable(&mut registers, FIRST, 1 << 6 | 1 << 8);
    enable(&mut registers, OTHER, 1 << 8);
    assert_eq!(ecrc(&registers), [(false, false), (false, true)]);
    enable(&mut registers, SECOND, 1 << 6);
    assert_eq!(ecrc(&registers), [(true, false), (false, true)]);
    let none = registers.ecrc(PortIndex(7));
    assert!(!none.generated && !none.checked);
}

#[test]
fn functions_are_found_by_number_address_and_port() {
    let mut registers = Registers::new(&Example);
    assert_eq!(registers.ports(), 2);
    let below = |registers: &Registers, port| registers.physical_below(PORTS[port]).collect::<Vec<_>>();
    assert_eq!((below(&registers, 0), below(&registers, 1)), (vec![FIRST, SECOND], vec![OTHER]));
    assert_eq!(registers.alone_below(PORTS[1]), Some(vec![OTHER]));
    assert_eq!(PORTS.map(|port| registers.first_below(port)), [FIRST, OTHER]);
    let virtuals = |of| registers.virtual_functions(of).map(|f| f.0).collect::<Vec<_>>();
    assert_eq!([FIRST, SECOND, OTHER].map(virtuals), [vec![3, 4], vec![], vec![5]]);
    let all = [0, 1, 2, 3, 4, 5].map(FunctionIndex);
    assert_eq!(all.map(|f| registers.reporter(f).0), [0, 1, 2, 0, 0, 2]);
    assert_eq!(all.map(|f| registers.port_of(f).0), [0, 0, 1, 0, 0, 1]);
    assert_eq!(registers.port_of(FunctionIndex(9)), PortIndex(0));

    // What answers below each port: physical functions by their place, virtual ones behind them while enabled.
    let answers = |registers: &Registers| {
        PORTS
            .map(|port| (0..=255).filter(|&n| registers.read(port, &to(n, 0)).is_some()).collect::<Vec<u8>>())
    };
    assert_eq!(answers(&registers), [vec![0, 1], vec![0]]);
    enable_virtual(&mut registers);
    assert_eq!(answers(&registers), [vec![0, 1, 8, 10], vec![0, 8]]);
    // A function has the number by which it was written to.
    for (port, number) in [(0, 0), (0, 1), (1, 0), (0, 10)] {
        let written = registers.write(PORTS[port], &to(number, 4), 0b110).map(|(function, _)| function.0);
        assert_eq!(written, Some([[0, 1, 4][usize::from(number.min(2))], 2][port]));
    }
    assert_eq!(registers.write(PORTS[0], &to(9, 4), 0b110), None);
    let ids = all.map(|f| registers.port_and_id(f)).map(|(port, id)| (port.0, id.ari_function()));
    assert_eq!(ids, [(0, 0), (0, 1), (1, 0), (0, 8), (0, 10), (1, 8)]);
    assert!(all.iter().all(|&f| registers.id(f).bus() == 5 && registers.id(f) == registers.port_and_id(f).1));
    // Who may issue requests: of the virtual ones only that which was written to.
    assert_eq!(all.map(|f| registers.master(f).is_some()), [true, true, true, false, true, false]);

    for (function, address) in [(FIRST, 0x1000), (SECOND, 0x3000), (OTHER, 0x5000)] {
        let config = registers.config_mut(function);
        config.write(0x10, address, 0xf);
        config.write(0x18, address + 0x1000, 0xf);
    }
    let decoded =
        |port: usize, address| registers.decode(PORTS[port], address, 4).map(|(f, bar, at)| (f.0, bar, at));
    assert_eq!(
        [0x1004, 0x2008, 0x3000, 0x4ffc].map(|at| decoded(0, at)),
        [(0, 0, 4), (0, 2, 8), (1, 0, 0), (1, 2, 0xffc)].map(Some)
    );
    assert_eq!([0x5000, 0x1000].map(|at| decoded(1, at)), [Some((2, 0, 0)), None]);
    let virtuals = [0x8000_0000, 0x8000_1010, 0x8000_2000].map(|at| decoded(0, at));
    assert_eq!(virtuals, [Some((3, 0, 0)), Some((4, 0, 0x10)), None]);
    assert_eq!(decoded(1, 0x8000_0ffc), Some((5, 0, 0xffc)));

    // A reset of one leaves the others; one of all resets all.
    registers.reset(Reset::Function(SECOND));
    assert_eq!(all.map(|f| registers.config(f).memory_enabled()), [true, false, true, false, false, false]);
    registers.reset(Reset::Hot);
    assert!(all.iter().all(|&f| !registers.config(f).memory_enabled()));
}

fn access(bar: u8, offset: u32) -> BarAccess {
    BarAccess { function: FIRST, bar, offset: BarOffset::new(offset.into()) }
}

/// Writes an entry of the table: address, data and mask.
fn fill(registers: &mut Registers, vector: u16, is_masked: bool) {
    let words = [0xfee0_0000 + u32::from(vector), 0x1, 0x40 + u32::from(vector), u32::from(is_masked)];
    let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    assert!(registers.interrupt_table_write(access(0, TABLE + 16 * u32::from(vector)), &bytes));
}

fn expected(vector: u16) -> MsiMessage {
    MsiMessage { address: 0x1_fee0_0000 + u64::from(vector), data: 0x40 + u32::from(vector) }
}

fn enable_msix(registers: &mut Registers, control: u32) {
    let config = registers.config_mut(FIRST);
    let at = wire::pcie::config::caps::find(&|at| config.dword(at), 0x11).unwrap();
    config.write(at, control << 16, 0b1100);
}

/// Base spec 7.7.2: entries of 16 bytes, masked at first, and a pending bit for each.
#[test]
fn a_masked_vector_is_pending_until_it_is_unmasked() {
    let mut registers = Registers::new(&Example);
    let pending = |registers: &Registers| {
        let mut bytes = [0; 8];
        assert!(registers.interrupt_table_read(access(2, PENDING), &mut bytes));
        u64::from_le_bytes(bytes)
    };
    assert_eq!(registers.message(FIRST, 0), None, "nothing is enabled");
    enable_msix(&mut registers, 1 << 15);
    assert_eq!([0, 9].map(|vector| registers.message(FIRST, vector)), [None; 2], "all are masked");
    assert_eq!((registers.message(FIRST, VECTORS), pending(&registers)), (None, 1 << 9 | 1));
    assert_eq!(registers.unmasked(FIRST), []);
    (0..VECTORS).for_each(|vector| fill(&mut registers, vector, vector == 3 || vector == 9));
    assert_eq!(registers.unmasked(FIRST), [expected(0)]);
    assert_eq!((pending(&registers), registers.unmasked(FIRST)), (1 << 9, vec![]));
    assert_eq!(registers.message(FIRST, 8), Some(expected(8)));
    assert_eq!((registers.message(FIRST, 3), pending(&registers)), (None, 1 << 9 | 1 << 3));
    // The function's mask, with which all are.
    enable_msix(&mut registers, 1 << 15 | 1 << 14);
    assert_eq!((registers.message(FIRST, 8), pending(&registers)), (None, 1 << 9 | 1 << 8 | 1 << 3));
    [3, 9].into_iter().for_each(|vector| fill(&mut registers, vector, false));
    assert_eq!(registers.unmasked(FIRST), []);
    enable_msix(&mut registers, 1 << 15);
    assert_eq!(registers.unmasked(FIRST), [3, 8, 9].map(expected));
    assert_eq!(pending(&registers), 0);
    fill(&mut registers, 9, true);
    registers.message(FIRST, 9);
    registers.reset(Reset::Hot);
    let mut entry = [0xff; 16];
    assert!(registers.interrupt_table_read(access(0, TABLE + 16 * 5), &mut entry));
    assert_eq!((entry, pending(&registers)), ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 0));
    assert_eq!(
        (registers.message(FunctionIndex(9), 0), registers.unmasked(FunctionIndex(9))),
        (None, vec![])
    );
}

#[test]
fn only_the_table_is_written_and_each_byte_by_itself() {
    let mut registers = Registers::new(&Example);
    let (end, pending_end) = (TABLE + 160, PENDING + 8);
    for (bar, offset, length, is_there) in [
        (0, TABLE, 4, true),
        (0, end - 8, 8, true),
        (0, end - 4, 8, false),
        (0, TABLE - 4, 4, false),
        (0, end, 4, false),
        (1, TABLE, 4, false),
        (2, PENDING, 8, true),
        (2, PENDING + 4, 4, true),
        (2, pending_end, 4, false),
        (0, PENDING, 4, false),
    ] {
        let mut bytes = vec![0xa5; length];
        assert_eq!(registers.interrupt_table_write(access(bar, offset), &bytes), is_there);
        assert_eq!(registers.interrupt_table_read(access(bar, offset), &mut bytes), is_there);
        let expected = if bar == 2 && is_there { 0 } else { 0xa5 };
        assert_eq!(bytes, vec![expected; length], "{bar} {offset:#x}");
    }
    let other = BarAccess { function: SECOND, ..access(0, TABLE) };
    assert!(
        !registers.interrupt_table_write(other, &[0; 4])
            && !registers.interrupt_table_read(other, &mut [0; 4])
    );
}

/// Base spec 7.7.1: the low bits of the data are the vector's number; a mask bit for each.
#[test]
fn messages_of_msi_have_their_numbers() {
    let mut registers = Registers::new(&Example);
    let config = registers.config_mut(SECOND);
    let at = wire::pcie::config::caps::find(&|at| config.dword(at), 5).unwrap();
    // Four of eight vectors, data 0x4146, vector 1 masked.
    for (offset, value) in [(4, 0xfee0_1000), (8, 2), (0xc, 0x4146), (0x10, 0b10), (0, (2 << 4 | 1) << 16)] {
        config.write(at + offset, value, 0xf);
    }
    let message = |data| Some(MsiMessage { address: 0x2_fee0_1000, data });
    let said = [0, 1, 2, 3, 4, 6].map(|vector| registers.message(SECOND, vector));
    let expected =
        [0x4144, 0, 0x4146, 0x4147, 0x4144, 0x4146].map(|data| if data == 0 { None } else { message(data) });
    assert_eq!(said, expected);
    // The masked one is pending until it is unmasked.
    let pending = |registers: &mut Registers| registers.config_mut(SECOND).dword(at + 0x14);
    assert_eq!((pending(&mut registers), registers.unmasked(SECOND)), (0b10, vec![]));
    registers.config_mut(SECOND).write(at + 0x10, 0b1000, 0xf);
    assert_eq!(registers.unmasked(SECOND), message(0x4145).as_slice());
    assert_eq!((pending(&mut registers), registers.unmasked(SECOND)), (0, vec![]));
    registers.config_mut(SECOND).write(at, 2 << 20, 0xf);
    assert_eq!(registers.message(SECOND, 0), None, "disabled");
}

#[test]
fn lines_are_those_of_the_functions_below_a_port() {
    let mut registers = Registers::new(&Example);
    let lines = |registers: &Registers| PORTS.map(|port| registers.lines(port).has(IntxLine::B));
    assert_eq!(lines(&registers), [false, false]);
    registers.config_mut(SECOND).set_interrupt_status(true);
    assert_eq!(lines(&registers), [true, false]);
    registers.config_mut(SECOND).set_interrupt_status(false);
    registers.config_mut(OTHER).set_interrupt_status(true);
    assert_eq!(lines(&registers), [false, true]);
    let only = registers.lines(PORTS[1]);
    assert!(!only.has(IntxLine::A) && !only.has(IntxLine::C));
}
