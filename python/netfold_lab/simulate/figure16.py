"""Figure 16 of the EFLOPS paper: all-reduces on fat trees and BiGraphs of 64 to 1024 nodes (section VII-C).

The paper leaves these points open; this file assumes:
- Four sub-nodes per switch, as on the paper's platform (section VI): a 4xN BiGraph, and a fat tree whose leaves have
  four hosts and four uplinks, with the same bandwidth in each layer (section IV-B).
- Ranks are placed in order, server by server. Servers alternate between the halves of a BiGraph: in Figure 11 each
  switch is split into one switch of each half.
- Routes are hashed anew for each seed: over the spines, and within a half of a BiGraph over the other half. A
  connection keeps its route while the all-reduce lasts.
- Halving-doubling takes the nearest partner first, as in the paper's Figure 9, or the farthest, as in its reference
  [39] (Thakur et al.).
- Steps are in lock-step, each with the same latency; transfers share links by max-min fairness.
- The latency of a step is fitted to both published times of HDRM, so that agreement with them proves nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUB_NODES = 4
NODES = (64, 128, 256, 512, 1024)
SIZES_BYTES = (256 << 10, 256 << 20)
RATE_BIT_S = 100e9
STEP_LATENCY_S = 7.1e-6
FP32_BYTES = 4
SEEDS = 20
BIGRAPH, FAT_TREE = "bigraph", "fat-tree"
HDRM, HD, RING = "hdrm", "halving-doubling", "ring"
FARTHEST_FIRST = "rabenseifner"  # core/schedule's name for it
PUBLISHED_S = {(BIGRAPH, HDRM, 256 << 10, 64): 130e-6, (BIGRAPH, HDRM, 256 << 10, 1024): 181e-6}
# "The worst scalability" of the paper's text: the algorithm whose time grows most from the fewest to the most nodes.
WORST_SCALING = {256 << 10: RING, 256 << 20: HD}
LINES = ((BIGRAPH, HDRM), (BIGRAPH, HD), (BIGRAPH, RING), (FAT_TREE, HD), (FAT_TREE, RING), (FAT_TREE, HDRM))


@dataclass(frozen=True)
class Point:
    """One all-reduce: `time_s` by seed."""

    topology: str
    algorithm: str
    size_bytes: int
    nodes: int
    time_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median of the seeds."""
        return statistics.median(self.time_s)

    @property
    def p95_s(self) -> float:
        """The 95th percentile of the seeds."""
        return sorted(self.time_s)[max(0, -(-95 * len(self.time_s) // 100) - 1)]


def points(
    nodes: tuple[int, ...] = NODES,
    seeds: int = SEEDS,
    step_latency_s: float = STEP_LATENCY_S,
    farthest: bool = False,
    on_point: Callable[[], None] = lambda: None,
) -> list[Point]:
    """Every point of the figure, in parallel. `farthest`: halving-doubling with the farthest partner first."""
    cases = [(kind, algorithm, size, n) for n in nodes for size in SIZES_BYTES for kind, algorithm in LINES]

    def one(case: tuple[str, str, int, int]) -> Point:
        found = _point(*case, seeds, step_latency_s, farthest)
        on_point()
        return found

    with ThreadPoolExecutor() as pool:  # the simulator releases the interpreter's lock
        return list(pool.map(one, cases))


def _point(
    kind: str, algorithm: str, size_bytes: int, nodes: int, seeds: int, step_latency_s: float, farthest: bool
) -> Point:
    from netfold import _core

    switches = nodes // SUB_NODES
    if kind == BIGRAPH:
        topology = _core.Topology.bigraph(SUB_NODES, switches, rate_bit_s=RATE_BIT_S)
    else:
        topology = _core.Topology.leaf_spine(switches, SUB_NODES, SUB_NODES, rate_bit_s=RATE_BIT_S)
    hosts = by_turns(switches) if (kind, algorithm) in ((BIGRAPH, HD), (BIGRAPH, RING)) else []
    schedule = FARTHEST_FIRST if algorithm == HD and farthest else algorithm
    found = _core.simulate(
        topology,
        schedule,
        size_bytes // FP32_BYTES,
        start="lock-step",
        step_latency_s=step_latency_s,
        seeds=list(range(seeds)),
        hosts=hosts,
        sub_nodes=SUB_NODES,
        switches=switches,
    )
    return Point(kind, algorithm, size_bytes, nodes, tuple(found["time_s_by_seed"].tolist()))


def by_turns(switches: int) -> list[int]:
    """The host of each rank if servers alternate between the upper and the lower half."""
    order = [half * switches // 2 + number for number in range(switches // 2) for half in (0, 1)]
    return [switch * SUB_NODES + port for switch in order for port in range(SUB_NODES)]


def named(size_bytes: int) -> str:
    """The size as text."""
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"


def check(found: list[Point]) -> Iterator[tuple[str, bool]]:
    """Each published statement, and whether these points agree."""
    by_case = {(one.topology, one.algorithm, one.size_bytes, one.nodes): one.median_s for one in found}
    for case, published_s in PUBLISHED_S.items():
        if case in by_case:
            off = by_case[case] / published_s - 1
            text = f"HDRM, 256 KiB, {case[3]} nodes: {published_s * 1e6:.0f} us, here {off:+.1%} (fitted)"
            yield text, abs(off) <= 0.05
    sizes = sorted({one.nodes for one in found})
    for size, worst in WORST_SCALING.items():
        for nodes in sizes:
            others = [by_case[BIGRAPH, name, size, nodes] for name in (HD, RING)]
            yield (
                f"BiGraph, {named(size)}, {nodes} nodes: HDRM is the fastest",
                by_case[BIGRAPH, HDRM, size, nodes] < min(others),
            )
        if len(sizes) > 1:
            few, many = sizes[0], sizes[-1]
            for kind in (BIGRAPH, FAT_TREE):
                grows = {name: by_case[kind, name, size, many] / by_case[kind, name, size, few] for name in (HD, RING)}
                told = ", ".join(f"{name} {factor:.2f} times" for name, factor in grows.items())
                text = f"{kind}, {named(size)}: {worst} grows most from {few} to {many} nodes ({told})"
                yield text, max(grows, key=lambda name: grows[name]) == worst
    largest = max(one.nodes for one in found)
    for algorithm in (HD, RING):
        for size in SIZES_BYTES:
            on = {kind: by_case[kind, algorithm, size, largest] for kind in (BIGRAPH, FAT_TREE)}
            text = f"{algorithm}, {named(size)}, {largest} nodes: not slower on BiGraph than on the fat tree"
            yield text, on[BIGRAPH] <= on[FAT_TREE] * (1 + 1e-9)


def draw(found: list[Point], path: Path) -> None:
    """Draw both halves of the figure, median and 95th percentile, with the published points. Raises OSError or
    ValueError for `path`."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, both = pyplot.subplots(1, 2, figsize=(12, 5))
    for axes, size in zip(both, SIZES_BYTES, strict=True):
        for kind, algorithm in LINES:
            own = [p for p in found if (p.topology, p.algorithm, p.size_bytes) == (kind, algorithm, size)]
            own.sort(key=lambda point: point.nodes)
            nodes, medians = [p.nodes for p in own], [p.median_s for p in own]
            dashed = (kind, algorithm) == (FAT_TREE, HDRM)  # HDRM's mapping is for a BiGraph
            style = {HDRM: "o", HD: "s", RING: "^"}[algorithm] + (":" if dashed else "-" if kind == BIGRAPH else "--")
            colour = {HDRM: "#55a868", HD: "#c44e52", RING: "#4c72b0"}[algorithm]
            axes.plot(nodes, medians, style, color=colour, label=f"{kind} {algorithm}", mfc="none" if dashed else None)
            axes.fill_between(nodes, medians, [p.p95_s for p in own], color=colour, alpha=0.15)
        published = [(n, s) for (_, _, of, n), s in PUBLISHED_S.items() if of == size]
        if published:
            axes.plot(
                *zip(*published, strict=True), "k*", markersize=12, mfc="none", label="published (HDRM), fitted to"
            )
        axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="seconds", title=named(size))
        axes.set_xticks(sorted({p.nodes for p in found}), [str(n) for n in sorted({p.nodes for p in found})])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.suptitle("All-reduce at scale (EFLOPS, Figure 16): median of the seeds, shaded to the 95th percentile")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def rows(found: list[Point]) -> list[dict[str, Any]]:
    """The entries of a command's results."""
    return [
        {
            "system": "netfold",
            "topology": one.topology,
            "algorithm": one.algorithm,
            "size_bytes": one.size_bytes,
            "workers": one.nodes,
            "time_s": list(one.time_s),
            "time_s_median": one.median_s,
            "time_s_p95": one.p95_s,
            "published_s": PUBLISHED_S.get((one.topology, one.algorithm, one.size_bytes, one.nodes)),
            "basis": "fitted" if one.algorithm == HDRM and one.size_bytes == SIZES_BYTES[0] else "predicted",
        }
        for one in found
    ]
