//! What a device model sees of the world around it.

use units::{BarOffset, Duration, Iova, Time};
use wire::pcie::config::{ConfigEffect, ConfigSpace};

use crate::ethernet::{EthernetBus, EthernetPort, EthernetPortInfo};
use crate::mover::{DataMover, Direct};

/// One of a device's functions, counted from zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FunctionIndex(pub u8);

/// One of a device's upstream ports, counted from zero. Most devices have one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PortIndex(pub u8);

/// A number that a device gives to a request or a timer and gets back with its outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Token(pub u64);

/// A function as its device presents it.
pub struct Function {
    /// The port below which it is found.
    pub port: PortIndex,
    /// Its configuration space after a fundamental reset.
    pub config: ConfigSpace,
}

/// A virtual function (SR-IOV) as its device presents it. It exists while its physical function's registers say so.
pub struct VirtualFunction {
    /// The physical function whose capability it belongs to, and below whose port it is found.
    pub physical: FunctionIndex,
    /// Its configuration space after a reset.
    pub config: ConfigSpace,
}

/// What kind of reset came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reset {
    /// Power came on, or PERST# was released.
    Fundamental,
    /// The link's hot reset, or the link went down.
    Hot,
    /// Function-level reset of one function.
    Function(FunctionIndex),
}

/// Where in a device's BARs an access falls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarAccess {
    /// The function whose BAR it is.
    pub function: FunctionIndex,
    /// The BAR's number, 0 to 5. A 64-bit BAR has the number of its lower half.
    pub bar: u8,
    /// Place in the BAR's region.
    pub offset: BarOffset,
}

/// Attributes that a DMA request carries on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DmaAttributes {
    /// May pass earlier posted requests.
    pub relaxed_ordering: bool,
    /// The processor's caches need not be looked at.
    pub no_snoop: bool,
    /// May pass requests of other requesters.
    pub id_based_ordering: bool,
}

/// A DMA request of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dma {
    /// The function that asks.
    pub function: FunctionIndex,
    /// Where to read or write.
    pub address: Iova,
    /// How many bytes.
    pub length: u32,
    /// Comes back with the outcome.
    pub token: Token,
    /// Attributes on the wire.
    pub attributes: DmaAttributes,
}

/// Why a DMA read brought no data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DmaError {
    /// The completer does not know the address, or the IOMMU blocked it.
    UnsupportedRequest,
    /// The completer gave up.
    CompleterAbort,
    /// No completion came in time.
    Timeout,
    /// Data arrived marked as damaged.
    Poisoned,
    /// The function may not master the bus, or its link is down.
    NotAllowed,
}

/// What one of a device's [stages](Device::stages) does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StageKind {
    /// It works on what passes: busy all the time, it lets no more pass.
    Server,
    /// It numbers reads under way: busy while a read is to be made and no number is free.
    Tags,
}

/// What data or commands pass inside a device, and for how long that has been busy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// What reports call it.
    pub name: String,
    /// What it does.
    pub kind: StageKind,
    /// How many there are that work side by side.
    pub of: u64,
    /// How long all of them have been busy, since the simulation began. What is planned counts as soon as it is.
    pub busy: Duration,
}

/// A device model: registers and firmware behind its functions.
///
/// It reacts to what arrives and acts through the [`DeviceBus`] it is handed.
/// Nothing in here returns an error: whatever a host writes is an input that
/// real hardware would have to live with.
pub trait Device {
    /// The functions, number 0 first, as they are after a fundamental reset.
    fn functions(&self) -> Vec<Function>;

    /// The virtual functions that there can be: their indices follow those of [`functions`](Self::functions), and those of
    /// one physical function are in the order of their numbers. When they are disabled, each is reset.
    fn virtual_functions(&self) -> Vec<VirtualFunction> {
        Vec::new()
    }

    /// What moves the data of a port's DMA inside the device. Asked once for each port, when the device is put together.
    fn data_mover(&self, port: PortIndex) -> Box<dyn DataMover> {
        let _ = port;
        Box::new(Direct::default())
    }

    /// What is inside besides the [mover](Self::data_mover) and can be full, so that counters say so. No reset sets it back.
    fn stages(&self) -> Vec<Stage> {
        Vec::new()
    }

    /// Everything a reset clears is cleared; requests under way bring no outcome any more.
    fn reset(&mut self, bus: &mut dyn DeviceBus, reset: Reset);

    /// The host reads `data.len()` bytes, zeros that the device replaces. Returns how long that takes it.
    fn bar_read(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
        let _ = (bus, at, data);
        Duration::ZERO
    }

    /// The host writes `data`.
    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        let _ = (bus, at, data);
    }

    /// For how long a write that arrives now keeps its place in the port's receive buffer, and with it the credits of
    /// whoever sent it: until the device has room for it. Asked before [`bar_write`](Self::bar_write).
    fn bar_write_holds(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, length: u32) -> Duration {
        let _ = (bus, at, length);
        Duration::ZERO
    }

    /// A write to configuration space had an effect beyond the register itself.
    fn config_changed(&mut self, bus: &mut dyn DeviceBus, function: FunctionIndex, effect: &ConfigEffect) {
        let _ = (bus, function, effect);
    }

    /// A DMA read ended.
    fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        let _ = (bus, token, outcome);
    }

    /// The last byte of a DMA write has left the device. It may still be on its way.
    fn write_done(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        let _ = (bus, token);
    }

    /// A timer set by [`DeviceBus::wake_at`] ran out.
    fn timer(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        let _ = (bus, token);
    }

    /// The Ethernet ports. Most devices have none.
    fn ethernet_ports(&self) -> Vec<EthernetPortInfo> {
        Vec::new()
    }

    /// A frame arrived, check sequence included.
    fn frame_received(&mut self, bus: &mut dyn DeviceBus, port: EthernetPort, frame: &[u8]) {
        let _ = (bus, port, frame);
    }

    /// A port's carrier came or went.
    fn carrier_changed(&mut self, bus: &mut dyn DeviceBus, port: EthernetPort, up: bool) {
        let _ = (bus, port, up);
    }
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn functions(&self) -> Vec<Function> {
        (**self).functions()
    }
    fn virtual_functions(&self) -> Vec<VirtualFunction> {
        (**self).virtual_functions()
    }
    fn data_mover(&self, port: PortIndex) -> Box<dyn DataMover> {
        (**self).data_mover(port)
    }
    fn stages(&self) -> Vec<Stage> {
        (**self).stages()
    }
    fn reset(&mut self, bus: &mut dyn DeviceBus, reset: Reset) {
        (**self).reset(bus, reset);
    }
    fn bar_read(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
        (**self).bar_read(bus, at, data)
    }
    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        (**self).bar_write(bus, at, data);
    }
    fn bar_write_holds(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, length: u32) -> Duration {
        (**self).bar_write_holds(bus, at, length)
    }
    fn config_changed(&mut self, bus: &mut dyn DeviceBus, function: FunctionIndex, effect: &ConfigEffect) {
        (**self).config_changed(bus, function, effect);
    }
    fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        (**self).read_done(bus, token, outcome);
    }
    fn write_done(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        (**self).write_done(bus, token);
    }
    fn timer(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        (**self).timer(bus, token);
    }
    fn ethernet_ports(&self) -> Vec<EthernetPortInfo> {
        (**self).ethernet_ports()
    }
    fn frame_received(&mut self, bus: &mut dyn DeviceBus, port: EthernetPort, frame: &[u8]) {
        (**self).frame_received(bus, port, frame);
    }
    fn carrier_changed(&mut self, bus: &mut dyn DeviceBus, port: EthernetPort, up: bool) {
        (**self).carrier_changed(bus, port, up);
    }
}

/// What a device can do to the world.
pub trait DeviceBus {
    /// The simulated time.
    fn now(&self) -> Time;

    /// Reads `request.length` bytes; [`Device::read_done`] brings them.
    ///
    /// The bus splits the request as the link's settings ask (MRRS, 4 KiB boundary) and puts the completions
    /// together again.
    fn read(&mut self, request: Dma);

    /// Writes `data` (`request.length` bytes); [`Device::write_done`] says when it has left.
    fn write(&mut self, request: Dma, data: &[u8]);

    /// Raises a function's interrupt vector, by MSI-X or MSI, whichever the host enabled.
    ///
    /// Like any posted request, it arrives after the writes sent before it.
    fn interrupt(&mut self, function: FunctionIndex, vector: u16);

    /// Says whether the function has a cause for a legacy interrupt: its line is active as long as it has one, if it has a line
    /// and the host lets it use that. A device without a line need not call it, and a back-end without lines ignores it.
    fn set_interrupt_status(&mut self, function: FunctionIndex, pending: bool) {
        let _ = (function, pending);
    }

    /// Calls [`Device::timer`] with `token` at `when`.
    fn wake_at(&mut self, when: Time, token: Token);

    /// A function's configuration space as the host has set it.
    fn config(&self, function: FunctionIndex) -> &ConfigSpace;

    /// The device's Ethernet ports, where the back-end connects them.
    fn ethernet(&mut self) -> Option<&mut dyn EthernetBus> {
        None
    }
}
