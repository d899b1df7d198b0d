#!/usr/bin/env python3
"""tools/live/tlps.py FILE: whether the function that a stream's reader is far from is idle, by what passed the links.

FILE is what `nearfar live --pcapng` wrote of the two links of an octoNIC. For each link, the time between the last two reads of its
function's last counter (`ethtool -S`) is looked at: only reads of registers and their completions may pass there, no DMA (requests to the
root), no interrupt (a write to the root) and no doorbell (a write of the host), while the other link moves data.
"""
import collections
import sys

import capture

# The NIC's counter 31, the last (crates/wire/src/nic/registers.rs), in a BAR of 256 KiB.
LAST_COUNTER, BAR = 0x100 + 31 * 8, 0x40000
# Seconds of a steady state, in simulated time; a busy simulation takes longer.
LEAST = 0.1


def way(packet):
    return "up" if packet.is_up else "down"


def is_mark(packet):
    return not packet.is_up and packet.kind == "read" and packet.address % BAR == LAST_COUNTER


def main():
    seen = list(capture.packets(open(sys.argv[1], "rb").read()))
    links = sorted({packet.link for packet in seen})
    well = len(links) == 2
    for link in links:
        marks = [packet.seconds for packet in seen if packet.link == link and is_mark(packet)]
        if len(marks) < 2 or marks[-1] - marks[-2] < LEAST:
            print(f"{link}: its counters were not read twice, {LEAST} s apart")
            well = False
            continue
        within = [packet for packet in seen if marks[-2] < packet.seconds < marks[-1]]
        here = collections.Counter((way(packet), packet.kind) for packet in within if packet.link == link)
        there = sum(packet.link != link and packet.is_up and packet.kind == "write" for packet in within)
        shown = ", ".join(f"{count} {kind} {way}" for (way, kind), count in sorted(here.items()))
        print(f"{link}: {marks[-1] - marks[-2]:.3f} s, here {shown}; elsewhere {there} writes up")
        well = well and set(here) <= {("down", "read"), ("up", "completion")} and there > 100
    return 0 if well else 1


sys.exit(main())
