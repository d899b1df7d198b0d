"""Captures of PCIe links, as `nearfar live --pcapng` and `nearfar trace --pcapng` write them (crates/wire/src/pcap).

tools/live/capture.py FILE LINK: how many bytes of data passed a link.
"""
import collections
import struct
import sys

# The first symbol's time in s, and the time that all symbols take. A write's `tlp` ends with its data.
Packet = collections.namedtuple("Packet", "link seconds taken is_up kind address length tlp")

# Framing, sequence number and LCRC; from Gen3 on, the STP token has the number.
FRAMING = 8
# Enhanced Packet Block; Interface Description Block with its options.
INTERFACE, PACKET = 1, 6
NAME, SPEED, RESOLUTION = 2, 8, 9


def blocks(data):
    at = 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        yield kind, data[at + 8 : at + length - 4]
        at += length


def interface(body):
    """Name, seconds of a timestamp's unit, and seconds of a byte on the lanes."""
    at, name, unit, byte = 8, "", 1e-6, 0.0
    while at + 4 <= len(body):
        code, length = struct.unpack_from("<HH", body, at)
        value = body[at + 4 : at + 4 + length]
        if code == NAME:
            name = value.decode()
        elif code == SPEED:
            byte = 8 / int.from_bytes(value, "little")
        elif code == RESOLUTION:
            unit = 2.0 ** -(value[0] & 0x7F) if value[0] & 0x80 else 10.0 ** -value[0]
        at += 4 + (length + 3) // 4 * 4
    return name, unit, byte


def of_tlp(tlp):
    """Kind, address and length of a request's or completion's data in bytes."""
    form, code = tlp[0] >> 5, tlp[0] & 0x1F
    length = 4 * ((int.from_bytes(tlp[2:4], "big") & 0x3FF) or 1024)
    if code == 0:
        address = int.from_bytes(tlp[8:16] if form & 1 else tlp[8:12], "big") & ~3
        return "write" if form & 2 else "read", address, length
    return "completion" if code == 0x0A else "other", None, length if form & 2 else 0


def packets(data):
    """The TLPs of a capture."""
    links = []
    for kind, body in blocks(data):
        if kind == INTERFACE:
            links.append(interface(body))
        elif kind == PACKET:
            number, high, low, length = struct.unpack_from("<IIII", body)
            flags, tlp = body[20], body[24 : 20 + length]
            if not flags & 1:
                name, unit, byte = links[number]
                taken = (len(tlp) + FRAMING) * byte
                yield Packet(name, (high << 32 | low) * unit, taken, bool(flags & 2), *of_tlp(tlp), tlp)


if __name__ == "__main__":
    seen = packets(open(sys.argv[1], "rb").read())
    print(sum(packet.length for packet in seen if packet.link == sys.argv[2] and packet.kind in ("write", "completion")))
