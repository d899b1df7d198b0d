#!/usr/bin/env python3
"""tools/live/agree.py START SIMULATED LIVE LINK[=LINK][+TLP...]...: whether simulated and live hosts do the same, by what passes their links.

SIMULATED and LIVE are captures as `nearfar trace` and `nearfar live` write them with `--pcapng`, LINK is a link's name in both, or in the
one and the other. What passes is cut into pieces, each of which begins with START, such as `read-64`: kind and bytes of a TLP that
follows on another one. The piece that comes most often is what the hosts do again and again. A table has its TLPs and bytes each way,
and their order; the exit status is 0 if all are the same. `+down-read-4+...`: what the live ones have to do besides, in this order.

With START `of:up-read-92,up-read-100`, where drivers differ: whether such TLPs pass the same links, at least so many as there are `MANY`.
"""
import collections
import itertools
import sys

import capture


def symbol(packet):
    return f"{'up' if packet.is_up else 'down'}-{packet.kind}-{packet.length}"


def pieces(symbols, start):
    """Those that have an end."""
    piece, before = None, None
    for own in symbols:
        if own.endswith(f"-{start}") and before != own:
            if piece:
                yield tuple(piece)
            piece = []
        if piece is not None:
            piece.append(own)
        before = own


def of_link(seen, link, start):
    """The piece that comes most often, and how often it does among how many."""
    symbols = [symbol(packet) for packet in seen if packet.link == link and packet.kind != "other"]
    counts = collections.Counter(pieces(symbols, start))
    if not counts:
        return (), 0, 0
    piece, count = counts.most_common(1)[0]
    return piece, count, sum(counts.values())


def without(piece, more):
    """A piece less what is to be there besides, each once and in its order; none if it is not there."""
    left, more = [], list(more)
    for own in piece:
        if more and own == more[0]:
            more.pop(0)
        else:
            left.append(own)
    return () if more else tuple(left)


def amount(piece, way):
    own = [symbol.rsplit("-", 1) for symbol in piece if symbol.startswith(way)]
    return len(own), sum(int(length) for kind, length in own if not kind.endswith("read"))


def order(piece):
    runs = ((own, len(list(group))) for own, group in itertools.groupby(piece))
    return ", ".join(own if count == 1 else f"{count} x {own}" for own, count in runs)


MANY = 50


def crosses(wanted, captures, links):
    well = True
    print(f"{'link':24}{wanted:>32}  (simulated, live)")
    for link in links:
        one, other = (sum(packet.link == link and symbol(packet) in wanted.split(",") for packet in seen) for seen in captures)
        print(f"{link:24}{f'{one}, {other}':>32}")
        well = well and (one == other == 0 or min(one, other) >= MANY)
    return 0 if well else 1


def main():
    start, files, links = sys.argv[1], sys.argv[2:4], sys.argv[4:]
    simulated, live = ([*capture.packets(open(file, "rb").read())] for file in files)
    if start.startswith("of:"):
        return crosses(start.removeprefix("of:"), [simulated, live], links)
    well = True
    print(f"{'link':24}{'TLPs down':>16}{'bytes down':>16}{'TLPs up':>16}{'bytes up':>16}  (simulated, live)")
    for wanted in links:
        names, *more = wanted.split("+")
        first, _, second = names.partition("=")
        both = [of_link(simulated, first, start), of_link(live, second or first, start)]
        cells = [[cell for way in ("down", "up") for cell in amount(piece, way)] for piece, _, _ in both]
        row = "".join(f"{f'{one}, {other}':>16}" for one, other in zip(*cells))
        (one, one_count, one_of), (other, other_count, other_of) = both
        same = bool(one) and one == without(other, more)
        print(f"{second or first:24}{row}  {one_count} of {one_of}, {other_count} of {other_of}")
        print(f"  order{'' if one == other else ', simulated'}: {order(one)}")
        if one != other:
            print(f"  order, live: {order(other)}" + (f", of which {', '.join(more)} besides" if more else ""))
        well = well and same
    return 0 if well else 1


sys.exit(main())
