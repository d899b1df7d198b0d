#!/usr/bin/env python3
"""tools/live/latency.py read FILE LINK, or sent FILE LINK BYTES: what passed a link tells how long something took, as the median in ns.

FILE is what `nearfar live --pcapng` or `nearfar trace --pcapng` wrote. `read`: from the last write of a host before each interrupt to the
interrupt, as a drive's doorbell before its completion. `sent`: what Table 1 of the kPIO+WC paper counts for a frame of so many BYTES, from
the first symbol of what announces it, which is its first line or a doorbell, to the last symbol of its data.
"""
import statistics
import sys

import capture

# Where messages go that are interrupts, on x86.
INTERRUPTS = range(0xFEE00000, 0xFEF00000)
LINE = 64


def reads(seen):
    written = None
    for packet in seen:
        if packet.kind != "write":
            continue
        if not packet.is_up:
            written = packet.seconds
        elif packet.address in INTERRUPTS and written is not None:
            yield packet.seconds - written
            written = None


def by_lines(seen, lines):
    """Lines of a frame follow one another, and nothing else goes down in between."""
    first, count = None, 0
    for packet in seen:
        if packet.is_up:
            continue
        is_line = packet.kind == "write" and packet.length == LINE
        if not is_line:
            count = 0
            continue
        first = first if count else packet
        count += 1
        if count == lines:
            yield packet.seconds + packet.taken - first.seconds
            count = 0


def by_descriptor(seen, length):
    """A read that asks for all of a frame, after the doorbell and the read of its descriptor."""
    doorbell, tag, left = None, None, 0
    for packet in seen:
        if not packet.is_up and packet.kind == "write":
            doorbell = packet.seconds
        elif packet.is_up and packet.kind == "read" and length <= packet.length < length + 8 and doorbell is not None:
            tag, left = packet.tlp[6], packet.length
        elif not packet.is_up and packet.kind == "completion" and left and packet.tlp[10] == tag:
            left -= packet.length
            if left <= 0:
                yield packet.seconds + packet.taken - doorbell
                doorbell, left = None, 0


def main():
    what, file, link = sys.argv[1:4]
    seen = [packet for packet in capture.packets(open(file, "rb").read()) if packet.link == link]
    if what == "read":
        times = list(reads(seen))
    else:
        length = int(sys.argv[4])
        lines = (length + LINE - 1) // LINE
        times = list(by_lines(seen, lines)) or list(by_descriptor(seen, length))
    if not times:
        print(f"{file}: no {what} on {link}", file=sys.stderr)
        return 1
    print(round(statistics.median(times) * 1e9))
    return 0


sys.exit(main())
