//! The interface of device models.

use units::{BarOffset, Duration, Iova, Time};
use wire::pcie::config::{ConfigEffect, ConfigSpace};

use crate::ethernet::{EthernetBus, EthernetPort, EthernetPortInfo};
use crate::mover::{DataMover, Direct};

/// A function of a device, numbered from zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FunctionIndex(pub u8);

/// An upstream port of a device, numbered from zero. Most devices have one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PortIndex(pub u8);

/// A number chosen by the device for a request or timer, and returned with its outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Token(pub u64);

/// A physical function of a device.
pub struct Function {
    /// The port above it.
    pub port: PortIndex,
    /// Configuration space after a fundamental reset.
    pub config: ConfigSpace,
}

/// A virtual function (SR-IOV). It exists while enabled in its physical function.
pub struct VirtualFunction {
    /// Its physical function, whose port it shares.
    pub physical: FunctionIndex,
    /// Configuration space after a reset.
    pub config: ConfigSpace,
}

/// Kind of reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reset {
    /// Power-on, or PERST# released.
    Fundamental,
    /// Hot reset, or link down.
    Hot,
    /// Function-level reset of one function.
    Function(FunctionIndex),
}

/// Target of an access within a device's BARs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarAccess {
    /// The function that owns the BAR.
    pub function: FunctionIndex,
    /// BAR number, 0 to 5. A 64-bit BAR has the number of its lower half.
    pub bar: u8,
    /// Bytes from the start of the BAR.
    pub offset: BarOffset,
}

/// Attributes of a DMA request's TLPs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DmaAttributes {
    /// May pass earlier posted requests.
    pub relaxed_ordering: bool,
    /// The processor's caches need not be snooped.
    pub no_snoop: bool,
    /// May pass requests of other requesters.
    pub id_based_ordering: bool,
    /// Its address is said to be translated already, as by ATS (AT = 10, base spec 10.2.1).
    pub translated: bool,
}

impl DmaAttributes {
    /// Of payload: what may be read before it is complete follows in a request without them. Which of them are sent is up to the part
    /// and to the host.
    pub const PAYLOAD: Self =
        Self { relaxed_ordering: true, no_snoop: true, id_based_ordering: true, translated: false };
}

/// A DMA request of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dma {
    /// The requesting function.
    pub function: FunctionIndex,
    /// Bus address.
    pub address: Iova,
    /// Bytes.
    pub length: u32,
    /// Returned with the outcome.
    pub token: Token,
    /// TLP attributes.
    pub attributes: DmaAttributes,
}

/// Why a DMA read failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DmaError {
    /// The address is unknown to the completer, or blocked by the IOMMU.
    UnsupportedRequest,
    /// The completer has the address, but could not serve the read.
    CompleterAbort,
    /// Completion timeout.
    Timeout,
    /// The data was poisoned.
    Poisoned,
    /// Bus mastering is off, or the link is down.
    NotAllowed,
}

/// Kind of a device's [stage](Device::stages).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StageKind {
    /// Processes what passes: while busy, nothing else can pass.
    Server,
    /// Numbers outstanding reads: busy while a read waits for a free tag.
    Tags,
    /// Keeps what a slower stage has yet to take: busy while something waits for room.
    Buffer,
}

/// An internal resource of a device that data or commands pass, with its busy time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Name in reports.
    pub name: String,
    /// What its busy time means.
    pub kind: StageKind,
    /// Number of parallel servers.
    pub of: u64,
    /// Total busy time of all servers since the simulation began. Planned work does not count yet.
    pub busy: Duration,
}

/// A device model: the registers and firmware behind its functions.
///
/// It reacts to events and acts through a [`DeviceBus`]. Nothing here returns an error: like real hardware, a device
/// has to cope with whatever a host writes.
pub trait Device {
    /// Functions after a fundamental reset, number 0 first.
    fn functions(&self) -> Vec<Function>;

    /// All possible virtual functions. Their indices follow those of [`functions`](Self::functions), in order of
    /// their numbers per physical function. Disabling them resets each.
    fn virtual_functions(&self) -> Vec<VirtualFunction> {
        Vec::new()
    }

    /// Model of a port's internal DMA data path. Called once per port, at construction.
    fn data_mover(&self, port: PortIndex) -> Box<dyn DataMover> {
        let _ = port;
        Box::new(Direct::default())
    }

    /// Further internal resources for counters up to `now`, besides the [mover](Self::data_mover). Not cleared by a
    /// reset.
    fn stages(&self, now: Time) -> Vec<Stage> {
        let _ = now;
        Vec::new()
    }

    /// Resets the device. Outstanding requests get no outcome any more.
    fn reset(&mut self, bus: &mut dyn DeviceBus, reset: Reset);

    /// The host reads `data.len()` bytes, which are zero unless set here. Returns how long the device takes.
    fn bar_read(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
        let _ = (bus, at, data);
        Duration::ZERO
    }

    /// The host writes `data`.
    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        let _ = (bus, at, data);
    }

    /// How long an arriving write stays in the port's receive buffer, and so holds the sender's credits, until the
    /// device has room for it. Called before [`bar_write`](Self::bar_write).
    fn bar_write_holds(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, length: u32) -> Duration {
        let _ = (bus, at, length);
        Duration::ZERO
    }

    /// A configuration write had a side effect.
    fn config_changed(&mut self, bus: &mut dyn DeviceBus, function: FunctionIndex, effect: &ConfigEffect) {
        let _ = (bus, function, effect);
    }

    /// A DMA read has ended.
    fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        let _ = (bus, token, outcome);
    }

    /// The last byte of a DMA write has left the device. It may still be in flight.
    fn write_done(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        let _ = (bus, token);
    }

    /// A timer set by [`DeviceBus::wake_at`] has expired.
    fn timer(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        let _ = (bus, token);
    }

    /// Ethernet ports. Most devices have none.
    fn ethernet_ports(&self) -> Vec<EthernetPortInfo> {
        Vec::new()
    }

    /// A frame was received, including its check sequence.
    fn frame_received(&mut self, bus: &mut dyn DeviceBus, port: EthernetPort, frame: &[u8]) {
        let _ = (bus, port, frame);
    }

    /// A port's link went up or down.
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
    fn stages(&self, now: Time) -> Vec<Stage> {
        (**self).stages(now)
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

/// Actions that a device can take.
pub trait DeviceBus {
    /// Simulated time.
    fn now(&self) -> Time;

    /// Starts a DMA read of `request.length` bytes, completed by [`Device::read_done`].
    ///
    /// The bus splits the request by the link's settings (MRRS, 4 KiB boundary) and combines the completions.
    fn read(&mut self, request: Dma);

    /// Starts a DMA write of `data` (`request.length` bytes). [`Device::write_done`] follows when it has left.
    fn write(&mut self, request: Dma, data: &[u8]);

    /// Raises an interrupt vector of a function by MSI-X or MSI, whichever is enabled.
    ///
    /// Like any posted request, it arrives after earlier writes.
    fn interrupt(&mut self, function: FunctionIndex, vector: u16);

    /// Sets whether the function has a cause for a legacy interrupt. Its line is asserted meanwhile, if it has one
    /// and the host has enabled it. Ignored by back-ends without legacy interrupts.
    fn set_interrupt_status(&mut self, function: FunctionIndex, pending: bool) {
        let _ = (function, pending);
    }

    /// Calls [`Device::timer`] with `token` at `when`.
    fn wake_at(&mut self, when: Time, token: Token);

    /// Current configuration space of a function.
    fn config(&self, function: FunctionIndex) -> &ConfigSpace;

    /// Ethernet ports, if the back-end connects them.
    fn ethernet(&mut self) -> Option<&mut dyn EthernetBus> {
        None
    }
}
