"""Measures several systems in one run, interleaved: repetition 1 of each, repetition 2 of each, and so on."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from netfold_lab.bench import tensors
from netfold_lab.bench.control import Ranks
from netfold_lab.bench.memory import IN_MEMORY_BYTES, Copies
from netfold_lab.bench.sites import Site
from netfold_lab.bench.systems import System
from netfold_lab.bench.tensors import Tensor
from netfold_lab.lab import processes
from netfold_lab.lab.shaping import Traffic

START_DELAY_S = 0.02  # between command and start, so that every rank has read the command
CLEAR_BYTES_S = 4e9  # and so that every rank has cleared its result, all at the same time
SETTLE_S = 0.05  # after a repetition: the last acknowledgements arrive, and the token buckets fill again


@dataclass
class Series:
    """The repetitions of one system with one algorithm on one tensor."""

    system: str
    algorithm: str
    wire: str
    tensor: Tensor
    faults: str = ""
    time_s: list[float] = field(default_factory=list)
    max_abs_error: float = 0.0
    digests: set[str] = field(default_factory=set)
    sent: list[Traffic] = field(default_factory=list)  # of the busiest worker, for each repetition
    received: list[Traffic] = field(default_factory=list)
    sent_up: list[Traffic] = field(default_factory=list)  # of the busiest uplink of a tree of switches
    copy_bytes_s: list[float] = field(
        default_factory=list
    )  # of this machine, after each repetition, if that is the bound

    @property
    def time_s_median(self) -> float:
        """The median repetition in seconds."""
        return statistics.median(self.time_s)


class Team:
    """A system's running ranks."""

    def __init__(self, system: System, site: Site, timeout_s: float) -> None:
        self.system = system
        self._site = site
        self._timeout_s = timeout_s
        self._start_delay_s = START_DELAY_S
        folder = site.directory
        self._ranks = Ranks(system.name, folder / f"{system.key}.sock", folder / f"{system.key}.log", site.world)

    def __enter__(self) -> Team:
        ranks = self._ranks
        try:
            ranks.processes = self.system.launch(self._site, ranks.path, ranks.log, self._timeout_s)
            ranks.accept(self._timeout_s)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ask the ranks to quit; then end them."""
        self._ranks.close()
        deadline = time.monotonic() + processes.GRACE_S
        while time.monotonic() < deadline and any(process.poll() is None for process in self._ranks.processes[-1:]):
            time.sleep(processes.POLL_S)
        processes.end_children(self._ranks.processes)

    def ask(self, line: str) -> list[str]:
        """Send every rank the same command; returns the answers by rank."""
        return self._ranks.ask([line] * self._site.world, self._timeout_s)

    def prepare(self, tensor: Tensor, wire: str) -> None:
        """Give every rank its tensor."""
        self._start_delay_s = START_DELAY_S + tensor.count * tensors.ELEMENT_BYTES * self._site.world / CLEAR_BYTES_S
        lines = [f"prepare {tensor.count} {tensor.dtype} {wire} {path} {tensor.expected}" for path in tensor.inputs]
        self._ranks.ask(lines, self._timeout_s)

    def run(self, algorithm: str, iterations: int) -> list[tuple[float, float, str]]:
        """Run consecutive all-reduces. Returns for each rank the seconds of one, and largest error and digest of the
        last result."""
        start_ns = time.monotonic_ns() + int(self._start_delay_s * 1e9)
        times = [answer.split()[1] for answer in self.ask(f"run {start_ns} {algorithm} {iterations}")]
        checks = [answer.split()[1:] for answer in self.ask("check")]
        return [(int(ns) / 1e9, float(error), digest) for ns, (error, digest) in zip(times, checks, strict=True)]


@dataclass(frozen=True)
class Contestant:
    """A team on links with or without the kernel's faults."""

    team: Team
    faults: str = ""  # its faults in words, from any source
    kernel_faults: bool = False


def repeat_once(team: Team, series: Series, site: Site, iterations: int) -> None:
    """One timed repetition; the slowest rank determines the time."""
    before, up_before = site.traffic(), site.sent_up()
    ranks = team.run(series.algorithm, iterations)
    time.sleep(SETTLE_S)
    after, up_after = site.traffic(), site.sent_up()
    series.time_s.append(max(elapsed for elapsed, _, _ in ranks))
    errors = [series.max_abs_error, *(error for _, error, _ in ranks)]
    series.max_abs_error = math.nan if any(math.isnan(each) for each in errors) else max(errors)
    series.digests.update(digest for _, _, digest in ranks)
    if before and after:
        up = [now[0] - then[0] for then, now in zip(before, after, strict=True)]
        down = [now[1] - then[1] for then, now in zip(before, after, strict=True)]
        series.sent.append(max(up, key=lambda traffic: traffic.bytes))
        series.received.append(max(down, key=lambda traffic: traffic.bytes))
    if up_before:
        uplinks = [now - then for then, now in zip(up_before, up_after, strict=True)]
        series.sent_up.append(max(uplinks, key=lambda traffic: traffic.bytes))


def measure(
    contestants: Sequence[Contestant],
    site: Site,
    tensor: Tensor,
    wire: str,
    repeat: int,
    set_faults: Callable[[bool], None],
    progress: Callable[[str], None],
    iterations: int = 1,
) -> list[Series]:
    """Measure every contestant with every algorithm: one warm-up, then `repeat` interleaved rounds of `iterations`
    consecutive all-reduces.

    `set_faults` switches the kernel's faults on or off; `progress` is told of each step.
    """
    for team in {id(one.team): one.team for one in contestants}.values():
        team.prepare(tensor, team.system.wire(wire))
    plan = [
        (one, Series(one.team.system.name, algorithm, one.team.system.wire(wire), tensor, one.faults))
        for one in contestants
        for algorithm in one.team.system.algorithms
    ]
    copies = Copies() if not site.rate_mbit_s and tensor.size_bytes >= IN_MEMORY_BYTES else None
    for repetition in range(repeat + 1):
        for one, series in plan:
            set_faults(one.kernel_faults)
            if repetition == 0:
                one.team.run(series.algorithm, iterations)
            else:
                repeat_once(one.team, series, site, iterations)
                if copies:
                    series.copy_bytes_s.append(copies.bytes_s())
            what = f"{repetition} of {repeat}" if repetition else "warm-up"
            progress(f"{tensor.name}: {series.system} {series.algorithm} {what}")
    return [series for _, series in plan]
