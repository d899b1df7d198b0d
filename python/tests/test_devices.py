"""Devices in Python."""

import struct

import nearfar
import pytest


class Scratch(nearfar.Device):
    """A card with 4 KiB of memory of its own. A descriptor at 0x10 (host address, place in the card, bytes) and a command at 0x00
    (1: read from the host, 2: write to it) move data; an interrupt tells the end."""

    def reset(self, bus):
        self.memory, self.registers = bytearray(4096), bytearray(64)

    def bar_read(self, bus, bar, offset, length):
        return bytes(self.registers[offset : offset + length]), 50.0

    def bar_write(self, bus, bar, offset, data):
        self.registers[offset : offset + len(data)] = data
        if offset == 0:
            address, place, length = struct.unpack_from("<QII", self.registers, 0x10)
            if data[0] == 1:
                bus.read(address, length, token=place)
            else:
                bus.write(address, bytes(self.memory[place : place + length]))
                bus.interrupt()

    def read_done(self, bus, token, data):
        self.memory[token : token + len(data)] = data
        bus.interrupt()


def move(host, command, address, place, length):
    """Lets the card move data, and says how long that took, interrupt included."""
    began, seen = host.now_ns, host.interrupts()
    host.write(0x10, struct.pack("<QII", address, place, length))
    host.write(0x00, struct.pack("<I", command))
    assert host.wait_for_interrupt(seen=seen)
    return host.now_ns - began


def test_a_scratch_card_moves_bytes_both_ways():
    host = nearfar.Prototype(Scratch())
    memory = host.allocate(4096)
    data = bytes(range(256)) * 4
    host.store(memory.core, data)
    assert 500 < move(host, 1, memory.bus, 100, len(data)) < 20_000
    move(host, 2, memory.bus + 2048, 100, len(data))
    assert host.load(memory.core + 2048, len(data))[0] == data
    taken, ns = host.read(0x14)
    assert len(taken) == 4 and 300 < ns < 3000


def test_an_iommu_lets_it_reach_what_is_mapped_and_nothing_else():
    class Asks(Scratch):
        answer = "none yet"

        def read_done(self, bus, token, data):
            self.answer = data

    device = Asks()
    host = nearfar.Prototype(device, iommu="strict")
    memory = host.allocate(4096)
    host.write(0x10, struct.pack("<QII", memory.bus, 0, 64))
    host.write(0x00, struct.pack("<I", 1))
    host.run_for(20_000)
    assert device.answer == bytes(64)
    host.write(0x10, struct.pack("<QII", memory.bus + (1 << 30), 0, 64))
    host.write(0x00, struct.pack("<I", 1))
    host.run_for(20_000)
    assert device.answer is None, "the IOMMU has blocked it"


def test_an_exception_in_it_is_raised_where_python_waits():
    class Fails(Scratch):
        def bar_write(self, bus, bar, offset, data):
            raise LookupError("no such register")

    host = nearfar.Prototype(Fails())
    with pytest.raises(LookupError, match="no such register"):
        host.write(0, b"abcd")
        host.run_for(10_000)
    with pytest.raises(nearfar.RunError, match="failed before"):
        host.read(0)
    assert nearfar.Prototype(Scratch()).read(0)[0] == bytes(4), "the interpreter works on"


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"vendor": "Intel"}, "vendor"),
        ({"bars": {0: 4097}}, "cannot be"),
        ({"bars": [4096]}, "dict"),
        ({"vectors": 3}, "vectors"),
        ({"bar_read": lambda self, bus, bar, offset, length: "text"}, "bytes"),
        ({"bar_read": lambda self, bus, bar, offset, length: b"x"}, "1 bytes of 4"),
        ({"reset": lambda self, bus: 1 / 0}, "division"),
    ],
)
def test_a_device_that_cannot_be_is_told(wrong, says):
    with pytest.raises((TypeError, ValueError, ZeroDivisionError), match=says):
        nearfar.Prototype(type("Wrong", (Scratch,), wrong)()).read(0)


def test_a_bus_is_good_until_its_method_returns():
    class Keeps(Scratch):
        def bar_write(self, bus, bar, offset, data):
            self.bus = bus

    device = Keeps()
    host = nearfar.Prototype(device)
    host.write(0, b"abcd")
    host.run_for(10_000)
    with pytest.raises(ValueError, match="has returned"):
        device.bus.interrupt()


def test_places_that_are_not_there_are_told():
    host = nearfar.Prototype(Scratch())
    for call in [lambda: host.read(4096), lambda: host.read(0, bar=2), lambda: host.interrupts(9)]:
        with pytest.raises(nearfar.RunError):
            call()
    with pytest.raises(ValueError):
        host.read(0, length=0)
    with pytest.raises(nearfar.InputError):
        nearfar.Prototype(Scratch(), "no-such-machine")
