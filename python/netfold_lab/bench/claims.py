"""`netfold bench claims`: the papers' claims about steps, bytes and connections of their algorithms, counted here.

All numbers are counted in the schedules that really run; no time is measured. docs/measurements/2026-11-21-claims.md
has the claims about time, with the command that measures each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import zip_longest
from math import log2
from typing import Annotated, Any

import typer

from netfold.timeline import Timeline, timeline

COUNT = 1 << 12  # elements
BIGRAPHS = ((2, 8), (4, 8), (4, 16))  # sub-nodes x switches
WORLDS = (8, 16, 64)
GROUP = 4  # ranks of a machine; the paper's servers have four
GROWTH = (7.3, 2.17)  # of the time of 1 KiB from 8 to 64 workers, as published
CLOSE = 1.5  # allowed factor to the published figure: steps are not the whole time


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, its place in the paper, the count, and whether both agree."""

    source: str
    claim: str
    counted: str
    holds: bool


def _sent(line: Timeline) -> list[float]:
    """The amount that each rank sends, in tensors."""
    return [sum(c for step in steps for action, _, _, c in step if action == "send") / COUNT for steps in line.steps]


def _received(line: Timeline, action: str) -> list[list[int]]:
    """For each rank, the steps in which it folds (or stores) the data that it receives."""
    return [[k for k, step in enumerate(steps) if any(a == action for a, *_ in step)] for steps in line.steps]


def _pairs(line: Timeline, step: int | None = None) -> set[frozenset[int]]:
    """Pairs of ranks that are connected in one step, or in any step."""
    return {frozenset((m.sender, m.receiver)) for m in line.messages if step is None or m.start == step}


def _a_link(algorithm: str, sub_nodes: int, switches: int) -> tuple[int, int]:
    """On a BiGraph with ranks in physical order: the largest number of connections that share a direct link in one
    direction in one step; and the number of connections in all steps that have no direct link, because both ends are in
    the same half."""
    shape: dict[str, Any] = {"sub_nodes": sub_nodes, "switches": switches} if algorithm == "hdrm" else {}
    line = timeline(algorithm, sub_nodes * switches, COUNT, **shape)
    most = without = 0
    for step in zip_longest(*line.steps, fillvalue=[]):
        links: Counter[tuple[int, int]] = Counter()
        for rank, transfers in enumerate(step):
            ends = [(rank // sub_nodes, peer // sub_nodes) for action, peer, *_ in transfers if action == "send"]
            links.update(each for each in ends if each[0] != each[1])
        direct = {link: n for link, n in links.items() if (link[0] < switches // 2) != (link[1] < switches // 2)}
        most = max(most, *direct.values(), 0)
        without += links.total() - sum(direct.values())
    return most, without


def counted() -> Iterator[Claim]:
    """Every claim, in the papers' order."""
    rings = {world: timeline("ring", world, COUNT) for world in WORLDS}
    halvings = {world: timeline("halving-doubling", world, COUNT) for world in WORLDS}
    yield from _steps_and_bytes(rings, halvings)
    yield from _connections(rings, halvings)
    ours = {shape: _a_link("hdrm", *shape) for shape in BIGRAPHS}
    plain = {shape: _a_link("halving-doubling", *shape) for shape in BIGRAPHS}
    yield Claim(
        "EFLOPS V-B, Fig. 10",
        "HDRM: every connection has a direct link between two switches to itself",
        "; ".join(f"{m}x{n}: {_links(ours[m, n])}, unmapped {_links(plain[m, n])}" for m, n in BIGRAPHS),
        set(ours.values()) == {(1, 0)},
    )
    yield _hierarchy(rings[16])
    yield from _smart_nic(rings[8])


def _links(found: tuple[int, int]) -> str:
    most, without = found
    return f"{most} on a link" + (f" and {without} without a direct link" if without else "")


def _steps_and_bytes(rings: dict[int, Timeline], halvings: dict[int, Timeline]) -> Iterator[Claim]:
    yield Claim(
        "EFLOPS V-A; AI smart NIC II-B",
        "ring: 2(n - 1) steps, and nearly twice the tensor sent by each",
        "; ".join(f"n = {n}: {line.length} steps, {max(_sent(line)):.2f} tensors" for n, line in rings.items()),
        all(line.length == 2 * (n - 1) and max(_sent(line)) <= 2 for n, line in rings.items()),
    )
    yield Claim(
        "EFLOPS V-A",
        "halving-doubling: 2 log n steps, and as much data as the ring",
        "; ".join(f"n = {n}: {line.length} steps, {max(_sent(line)):.2f} tensors" for n, line in halvings.items()),
        all(line.length == 2 * log2(n) and _sent(line) == _sent(rings[n]) for n, line in halvings.items()),
    )
    grown = [lines[64].length / lines[8].length for lines in (rings, halvings)]
    yield Claim(
        "EFLOPS VII-A",
        f"from 8 to 64 workers 1 KiB takes a ring {GROWTH[0]} times as long, halving-doubling {GROWTH[1]} times",
        f"steps, which are the whole cost of 1 KiB: {grown[0]:.0f} and {grown[1]:.0f} times",
        all(1 / CLOSE < steps / published < CLOSE for steps, published in zip(grown, GROWTH, strict=True)),
    )


def _connections(rings: dict[int, Timeline], halvings: dict[int, Timeline]) -> Iterator[Claim]:
    pairs = {n: [len(_pairs(line, step)) for step in range(line.length)] for n, line in halvings.items()}
    yield Claim(
        "EFLOPS V-A",
        "halving-doubling: n/2 pairs are connected in each step",
        "; ".join(f"n = {n}: {min(found)} to {max(found)}" for n, found in pairs.items()),
        all(set(found) == {n // 2} for n, found in pairs.items()),
    )
    ring, halving = ([len(_pairs(lines[n])) for n in (8, 64)] for lines in (rings, halvings))
    yield Claim(
        "EFLOPS VII-A",
        "over all steps a ring has O(n) connections, halving-doubling O(n^2)",
        f"n = 8 and 64: {ring[0]} and {ring[1]}; {halving[0]} and {halving[1]}, equal to n/2 log n",
        ring[1] / ring[0] == 8 and halving[1] / halving[0] >= 8 * 8,
    )


def _hierarchy(ring: Timeline) -> Claim:
    line = timeline("hierarchical", ring.world, COUNT, group=GROUP)

    def moved(of: Timeline) -> float:
        received = [sum(c for step in steps for a, *_, c in step if a != "send") / COUNT for steps in of.steps]
        return max(sent + got for sent, got in zip(_sent(of), received, strict=True))

    more = moved(line) / moved(ring)
    return Claim(
        "EFLOPS VII-A",
        "a hierarchical ring moves 2.5 times the data at the GPU that represents its server",
        f"4 machines of {GROUP}: {more:.2f} times the ring's",
        more >= 2.5,
    )


def _smart_nic(ring: Timeline) -> Iterator[Claim]:
    import numpy as np

    from netfold import _core

    folds, stores = _received(ring, "fold"), _received(ring, "store")
    half, every = ring.world - 1, list(range(2 * ring.world - 2))
    spans = [f"{each[0][0]} to {each[0][-1]}" for each in (folds, stores)]
    yield Claim(
        "AI smart NIC II-B, Fig. 1",
        "in the first n - 1 steps of a ring, workers add the data that they receive; "
        "in the other steps they only store it",
        f"n = {ring.world}: folds in steps {spans[0]}, stores in {spans[1]}",
        all(each == every[:half] for each in folds) and all(each == every[half:] for each in stores),
    )
    ratio = 4 * COUNT / _core.encode(np.zeros(COUNT, np.float32)).size
    yield Claim(
        "AI smart NIC IV-B",
        "BFP16 (8-bit exponent, 7-bit mantissas, blocks of 16) compresses 3.8 times",
        f"{ratio:.2f} times: 17 bytes for 64",
        round(ratio, 1) == 3.8,
    )


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""

    @app.command("claims")
    def claims(
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Check the papers' statements on steps, bytes and connections against Netfold's schedules.

        Claims about time are measured by the commands of docs/measurements/2026-11-21-claims.md.
        """
        from rich.console import Console
        from rich.table import Table

        from netfold.json_output import envelope, print_json

        found = list(counted())
        if json:
            print_json(envelope("bench claims", {}, [{"system": "netfold", **asdict(one)} for one in found]))
            return
        table = Table(show_lines=True)
        for name in ("where", "the paper says", "counted here", "holds"):
            table.add_column(name)
        for one in found:
            table.add_row(one.source, one.claim, one.counted, "yes" if one.holds else "no")
        Console().print(table)
