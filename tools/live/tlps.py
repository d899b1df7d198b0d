#!/usr/bin/env python3
"""tools/live/tlps.py FILE: whether the function that a stream's reader is far from is idle, by what passed the links.

FILE is what `nearfar live --pcapng` wrote of the two links of an octoNIC. For each link, the time between the last two reads of its
function's last counter (`ethtool -S`) is looked at: only reads of registers and their completions may pass there, no DMA (requests to the
root), no interrupt (a write to the root) and no doorbell (a write of the host), while the other link moves data.
"""
import collections
import struct
import sys

# The NIC's counter 31, the last (crates/wire/src/nic/registers.rs), in a BAR of 256 KiB.
LAST_COUNTER, BAR = 0x100 + 31 * 8, 0x40000
# Seconds of a steady state, in simulated time; a busy simulation takes longer.
LEAST = 0.1

Packet = collections.namedtuple("Packet", "link seconds name")


def blocks(data):
    at = 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        yield kind, data[at + 8 : at + length - 4]
        at += length


def name(tlp, is_up):
    """Direction, kind and, of a read of the host, the register."""
    form, kind = tlp[0] >> 5, tlp[0] & 0x1F
    way = "up" if is_up else "down"
    if kind == 0:
        address = int.from_bytes(tlp[8:16] if form & 1 else tlp[8:12], "big") & ~3
        if form & 2:
            return way, "write", None
        return way, "read", address % BAR
    return way, "completion" if kind == 0x0A else "other", None


def packets(data):
    links = []
    for kind, body in blocks(data):
        if kind == 1:
            at, link, resolution = 8, "", 1e-6
            while at + 4 <= len(body):
                code, length = struct.unpack_from("<HH", body, at)
                value = body[at + 4 : at + 4 + length]
                if code == 2:
                    link = value.decode()
                elif code == 9:
                    resolution = 2.0 ** -(value[0] & 0x7F) if value[0] & 0x80 else 10.0 ** -value[0]
                at += 4 + (length + 3) // 4 * 4
            links.append((link, resolution))
        elif kind == 6:
            interface, high, low, length = struct.unpack_from("<IIII", body)
            flags, tlp = body[20], body[24 : 20 + length]
            if not flags & 1:
                link, resolution = links[interface]
                yield Packet(link, (high << 32 | low) * resolution, name(tlp, bool(flags & 2)))


def main():
    seen = list(packets(open(sys.argv[1], "rb").read()))
    links = sorted({packet.link for packet in seen})
    well = len(links) == 2
    for link in links:
        marks = [packet.seconds for packet in seen if packet.link == link and packet.name == ("down", "read", LAST_COUNTER)]
        if len(marks) < 2 or marks[-1] - marks[-2] < LEAST:
            print(f"{link}: its counters were not read twice, {LEAST} s apart")
            well = False
            continue
        within = [packet for packet in seen if marks[-2] < packet.seconds < marks[-1]]
        here = collections.Counter(packet.name[:2] for packet in within if packet.link == link)
        there = sum(packet.link != link and packet.name[:2] == ("up", "write") for packet in within)
        shown = ", ".join(f"{count} {kind} {way}" for (way, kind), count in sorted(here.items()))
        print(f"{link}: {marks[-1] - marks[-2]:.3f} s, here {shown}; elsewhere {there} writes up")
        well = well and set(here) <= {("down", "read"), ("up", "completion")} and there > 100
    return 0 if well else 1


sys.exit(main())
