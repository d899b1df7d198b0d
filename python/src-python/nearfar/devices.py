"""Devices written in Python, in a slot of a simulated host: prototypes before there is silicon, or Rust."""

from __future__ import annotations

from typing import NamedTuple

from . import _nearfar
from ._nearfar import Bus
from .errors import wrong
from .files import Machine, Part
from .running import _named
from .values import Library, checked


class Device:
    """A device: registers and firmware. Derive from it, and say what it does.

    Its methods get a `bus` that is good until they return: `bus.now_ns`, `bus.read(address, length, token)`,
    `bus.write(address, data, token)`, `bus.interrupt(vector)`, `bus.wake_in(delay_ns, token)`. What they ask for is done when
    they have returned. An exception in one of them ends the experiment: it is raised where Python waits.
    """

    vendor: int = 0x1AF4
    """PCI vendor number."""
    device: int = 0x10F0
    """PCI device number."""
    class_code: int = 0xFF0000
    """Class, subclass and programming interface."""
    bars: dict[int, int] = {0: 4096}
    """64-bit BARs (0, 2, 4) with their sizes in bytes, powers of two."""
    vectors: int = 1
    """MSI vectors: 0, 1, 2, 4, 8, 16 or 32."""

    def reset(self, bus: Bus) -> None:
        """Power comes on, or a reset."""

    def bar_read(self, bus: Bus, bar: int, offset: int, length: int) -> bytes | tuple[bytes, float]:
        """The host reads registers: their bytes, or those with how many nanoseconds that takes the device."""
        return bytes(length)

    def bar_write(self, bus: Bus, bar: int, offset: int, data: bytes) -> None:
        """The host writes registers."""

    def read_done(self, bus: Bus, token: int, data: bytes | None) -> None:
        """A DMA read has ended; no data if it failed."""

    def write_done(self, bus: Bus, token: int) -> None:
        """The last byte of a DMA write has left the device. It may still be on its way."""

    def timer(self, bus: Bus, token: int) -> None:
        """The time that `bus.wake_in` was asked for has passed."""


class Memory(NamedTuple):
    """Memory that core and device see."""

    core: int
    """Its address for the core."""
    bus: int
    """Its address for the device."""
    length: int
    """Bytes."""


class Prototype:
    """A host that has booted, with a device of yours in its slot, and a driver that does what you say.

    The device's PCIe core, with its link and tags, is that of a card's part file; root complex, caches, memory and IOMMU are
    those of the machine. Times are simulated nanoseconds. Raises what the device raises, `InputError` for files that are
    wrong, `RunError` for what does not happen. It is used by the thread that made it.
    """

    @checked
    def __init__(
        self,
        device: Device,
        machine: str | Machine = "dell-t430",
        card: str | Part = "ideal",
        *,
        iommu: str = "off",
        seed: int = 1,
        library: Library | None = None,
    ) -> None:
        if not isinstance(device, Device):
            raise wrong("device", f"`device` cannot be {device!r}", "an object of a class that is derived from nearfar.Device")
        texts: dict[str, str] = {}
        names = _named(Machine, machine, "machine", texts), _named(Part, card, "card", texts)
        native = (library or Library())._with(texts)._native()
        self._native = _nearfar.Prototype(native, device, *names, iommu, seed)

    @property
    def now_ns(self) -> float:
        """The time since the computer was switched on."""
        return self._native.now_ns

    @property
    def work(self) -> tuple[int, int]:
        """Events simulated so far, and calls of the device's methods."""
        return self._native.work

    def read(self, offset: int, length: int = 4, bar: int = 0) -> tuple[bytes, float]:
        """Reads registers; their bytes, and how long the core waited."""
        return self._native.read(bar, offset, length)

    def write(self, offset: int, data: bytes, bar: int = 0) -> float:
        """Writes registers, and says how long that held the core. The write is posted: it may still be on its way."""
        return self._native.write(bar, offset, data)

    def allocate(self, length: int) -> Memory:
        """Memory that core and device see, zeroed."""
        return Memory(*self._native.allocate(length), length)

    def load(self, address: int, length: int) -> tuple[bytes, float]:
        """What the core finds in memory, and how long that takes it."""
        return self._native.load(address, length)

    def store(self, address: int, data: bytes) -> float:
        """Lets the core write memory, and says how long that takes it."""
        return self._native.store(address, data)

    def run_for(self, ns: float) -> None:
        """Lets time pass."""
        self._native.run_for(ns)

    def interrupts(self, vector: int = 0) -> int:
        """How many interrupts of a vector have come so far."""
        return self._native.interrupts(vector)

    def wait_for_interrupt(self, vector: int = 0, seen: int | None = None, longest_ns: float = 1e6) -> bool:
        """Waits until more interrupts than `seen` have come (than there are now, if not given); whether they have."""
        seen = self.interrupts(vector) if seen is None else seen
        return self._native.wait_for_interrupt(vector, seen, longest_ns)
