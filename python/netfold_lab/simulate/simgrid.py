"""The same flows in SimGrid (tests/bench/simgrid_peer.cc): its run time, and the end of each step.

Both simulate the steps of a schedule in lock-step on one topology with the same routes. Netfold's run time includes
schedules and routes. SimGrid's run time begins when its platform and flows exist.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PROGRAM = "tests/simgrid-peer"
RATE_BIT_S, HOP_S = 100e9, 500e-9
COUNT = 1 << 22
ALGORITHMS = ("halving-doubling", "hdrm", "ring")
PEER_TIMEOUT_S = 600
EXACT = "--cfg=network/optim:Full"  # without it SimGrid updates only some rates


class PeerError(RuntimeError):
    """The peer is not built, or failed."""


def program() -> Path:
    """The newest build of the peer. Raises PeerError that says how to build it."""
    source = Path(__file__).resolve().parents[3]
    built = sorted(source.glob(f"build/*/{PROGRAM}"), key=lambda path: path.stat().st_mtime)
    if not built:
        raise PeerError(
            "simgrid-peer is not built: install libsimgrid-dev, then `cmake -S . -B build/test -DNETFOLD_TESTS=ON` and "
            "`cmake --build build/test --target simgrid-peer`"
        )
    return built[-1]


def problem(topology: Any, algorithm: str, count: int, **options: Any) -> tuple[str, np.ndarray]:
    """The peer's input, and the end of each of Netfold's steps in lock-step. Equal steps are written once."""
    from netfold import _core

    found = _core.simulate(topology, algorithm, count, transfers=True, start="lock-step", **options)["transfers"]
    links = topology.links
    latency = np.zeros(len(topology.capacity_bit_s))
    latency[links["resource"]] = links["latency_s"]
    order = np.argsort(found["step"], kind="stable")
    steps = int(found["step"].max()) + 1
    bounds = np.searchsorted(found["step"][order], np.arange(steps + 1))
    routes: dict[tuple[int, int], int] = {}
    route_lines: list[str] = []
    kinds: dict[tuple[tuple[int, int], ...], int] = {}
    sequence, ends = [], []
    for step in range(steps):
        flows = []
        members = order[bounds[step] : bounds[step + 1]]
        for at in members.tolist():
            pair = int(found["sender"][at]), int(found["receiver"][at])
            if pair not in routes:
                routes[pair] = len(routes)
                path = found["path"][found["path_first"][at] : found["path_first"][at + 1]]
                route_lines.append(" ".join(map(str, [*pair, len(path), *path.tolist()])))
            flows.append((routes[pair], int(found["size_bits"][at] // 8)))
        sequence.append(kinds.setdefault(tuple(sorted(flows)), len(kinds)))
        ends.append(found["end_s"][members].max())
    lines = [str(len(latency))]
    lines += [
        f"{rate / 8!r} {delay!r}"
        for rate, delay in zip(topology.capacity_bit_s.tolist(), latency.tolist(), strict=True)
    ]
    lines += [str(len(topology.hosts)), str(len(routes)), *route_lines, str(len(kinds))]
    lines += [" ".join([str(len(kind)), *(f"{route} {size}" for route, size in kind)]) for kind in kinds]
    lines += [str(steps), " ".join(map(str, sequence))]
    return "\n".join(lines) + "\n", np.array(ends)


def ask(text: str, start: str = "lock-step", *settings: str) -> dict[str, Any]:
    """The peer's answer: wall_s, cpu_s, time_s, step_end_s. Raises PeerError."""
    command = [str(program()), start, *settings]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PEER_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise PeerError(f"simgrid-peer failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def cases(large: int) -> int:
    """The largest number of results of `compare`."""
    return len(ALGORITHMS) + (large > 0)


def compare(
    workers: int, large: int, repeat: int, on_result: Callable[[], None] = lambda: None
) -> list[dict[str, Any]]:
    """Halving-doubling, HDRM and ring on a BiGraph with both simulators; then one large HDRM only with Netfold's."""
    results = []
    for algorithm in ALGORITHMS:
        topology, shape = _bigraph(workers)
        text, ends = problem(topology, algorithm, COUNT, spread="destination", **shape)
        ours = [_timed(topology, algorithm, shape) for _ in range(repeat)]
        took, cpu = zip(*ours, strict=True)
        theirs = [ask(text) for _ in range(1 if algorithm == "ring" else repeat)]
        apart = float(np.abs(np.array(theirs[0]["step_end_s"]) / ends - 1).max())
        results.append(
            {
                "system": "netfold",
                "algorithm": algorithm,
                "workers": workers,
                "took_s": took,
                "cpu_s": cpu,
                "cpu_s_median": statistics.median(cpu),
                "simgrid_took_s": [each["wall_s"] for each in theirs],
                "simgrid_cpu_s": [each["cpu_s"] for each in theirs],
                "simgrid_cpu_s_median": statistics.median(each["cpu_s"] for each in theirs),
                "step_end_apart_max": apart,
            }
        )
        on_result()
    if large:
        topology, shape = _bigraph(large)
        took_s, cpu_s = _timed(topology, "hdrm", shape)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        results.append(
            {
                "system": "netfold",
                "algorithm": "hdrm",
                "workers": large,
                "took_s": [took_s],
                "cpu_s": [cpu_s],
                "cpu_s_median": cpu_s,
            }
            | {"memory_peak_bytes": peak}
        )
        on_result()
    return results


def sentence(result: dict[str, Any]) -> str:
    """A result in words."""
    text = f"{result['algorithm']}, {result['workers']} workers: {result['cpu_s_median']:.4f} s of CPU time"
    if "simgrid_cpu_s_median" in result:
        times = result["simgrid_cpu_s_median"] / result["cpu_s_median"]
        text += f"; SimGrid {result['simgrid_cpu_s_median']:.4f} s, {times:.1f} times as long; "
        return text + f"ends of steps differ by at most {result['step_end_apart_max']:.1e} (relative)"
    return text + f", {result['memory_peak_bytes'] / (1 << 30):.2f} GiB at most"


def _bigraph(workers: int) -> tuple[Any, dict[str, int]]:
    from netfold import _core

    if workers & (workers - 1):
        raise PeerError(f"{workers} workers are not a power of two")
    sub_nodes = 1
    while 4 * (2 * sub_nodes) ** 2 <= workers:
        sub_nodes *= 2
    shape = {"sub_nodes": sub_nodes, "switches": workers // sub_nodes}
    return _core.Topology.bigraph(*shape.values(), rate_bit_s=RATE_BIT_S, latency_s=HOP_S), shape


def _timed(topology: Any, algorithm: str, shape: dict[str, Any]) -> tuple[float, float]:
    """Wall-clock seconds, and CPU seconds."""
    from netfold import _core

    before, cpu_before = time.perf_counter(), time.process_time()
    _core.simulate(topology, algorithm, COUNT, start="lock-step", spread="destination", **shape)
    return time.perf_counter() - before, time.process_time() - cpu_before
