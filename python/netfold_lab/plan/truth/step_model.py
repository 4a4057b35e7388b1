"""The time of a training step whose workers share a machine's cores: computation, all-reduces beside it, the update.

All workers do the same at the same time, so one of the slowest stands for all. Two things advance:

- the thread that computes: forward, backward bucket by bucket, then for each bucket the wait for its sum, and its
  update;
- the network: all-reduces of buckets, one after the other in the order in which backward fills them.

Both need the cores. A thread that computes wants a core of its own. While the network is busy, the engine of each
worker wants a part of a core, and so does the switch. The cores are shared by max-min fairness, as the kernel's
scheduler shares them: a thread that wants little gets it, and the others share what is left. Where an engine or the
switch does not get what it wants, the network is slower in proportion. It is also slower because an engine gets its
core some milliseconds late: beside computation the network keeps a constant part of its speed.

The threads that compute are pinned to the cores in turn, all others run anywhere. So the workers of the core that has
the most of them are the slowest, and the others wait for them.

Links are token buckets. At rest a bucket fills up, and then passes as much at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

FORWARD, BACKWARD, EXPOSED, UPDATE = PARTS = ("forward", "backward", "exposed", "update")
NEVER = math.inf
TINY_S = 1e-12  # less than this is left of work that has ended


@dataclass(frozen=True)
class Computation:
    """CPU seconds of one worker's step. `bucket_s`: of backward for each bucket, in the order in which they are filled;
    `update_s`: of the update of each bucket."""

    forward_s: float
    bucket_s: tuple[float, ...]
    update_s: tuple[float, ...]

    @property
    def total_s(self) -> float:
        """CPU seconds of the step."""
        return self.forward_s + sum(self.bucket_s) + sum(self.update_s)


@dataclass(frozen=True)
class Exchange:
    """The all-reduces of a step. `bucket_s`: seconds of each bucket on the network if it never waits for a core;
    `burst_s`: seconds that a link saves after rest. `submit_s`: CPU seconds that the computing thread takes to start
    the all-reduce of a bucket within backward. `engine_cores` and `switch_cores`: the cores that one worker's engine
    and the switch use while the network is busy. `beside`: the part of its speed that the network keeps beside
    computation."""

    bucket_s: tuple[float, ...]
    burst_s: float = 0.0
    submit_s: float = 0.0
    engine_cores: float = 0.0
    switch_cores: float = 0.0
    beside: float = 1.0


@dataclass(frozen=True)
class PredictedStep:
    """Seconds by part; `exposed` is waiting for sums."""

    parts_s: dict[str, float]

    @property
    def time_s(self) -> float:
        """The time of the step."""
        return sum(self.parts_s.values())


@dataclass
class _Network:
    """The queue of all-reduces; `saved_s`: seconds that the links can save now."""

    exchange: Exchange
    saved_s: float
    waiting: deque[float] = field(default_factory=deque)
    left_s: float = 0.0
    ended: int = 0

    @property
    def is_busy(self) -> bool:
        return self.left_s > 0 or bool(self.waiting)

    def add(self, seconds: float) -> None:
        self.waiting.append(seconds)
        if len(self.waiting) == 1 and self.left_s <= 0:
            self._start()

    def _start(self) -> None:
        self.left_s = self.waiting.popleft()
        saved_s = min(self.saved_s, self.left_s)
        self.saved_s -= saved_s
        self.left_s -= saved_s
        if self.left_s <= TINY_S:
            self._end()

    def _end(self) -> None:
        self.left_s = 0.0
        self.ended += 1
        if self.waiting:
            self._start()

    def advance(self, seconds: float, rate: float) -> None:
        if not self.is_busy:
            self.saved_s = min(self.exchange.burst_s, self.saved_s + seconds)
            return
        self.left_s -= seconds * rate
        if self.left_s <= TINY_S:
            self._end()


@dataclass
class _Work:
    """A piece of the computing thread. It waits until `after` all-reduces have ended, takes `cpu_s` on a core, and then
    starts the all-reduces `starts`."""

    part: str
    cpu_s: float
    after: int = 0
    starts: Sequence[float] = ()


def predict(
    computation: Computation, exchange: Exchange, workers: int, cores: int, overlaps: bool = True
) -> PredictedStep:
    """The step. `overlaps`: all-reduces start within backward, not after it."""
    network = _Network(exchange, exchange.burst_s)
    seconds = dict.fromkeys(PARTS, 0.0)
    for piece in _pieces(computation, exchange, overlaps):
        while network.ended < piece.after:
            rate = _rates(exchange, workers, cores, False, True)[1]
            took_s = network.left_s / rate
            network.advance(took_s, rate)
            seconds[EXPOSED] += took_s
        left_s = piece.cpu_s
        while left_s > TINY_S:
            of_thread, of_network = _rates(exchange, workers, cores, True, network.is_busy)
            took_s = min(left_s / of_thread, network.left_s / of_network if network.is_busy else NEVER)
            network.advance(took_s, of_network)
            left_s -= took_s * of_thread
            seconds[piece.part] += took_s
        for each in piece.starts:
            network.add(each)
    return PredictedStep(seconds)


def _pieces(computation: Computation, exchange: Exchange, overlaps: bool) -> list[_Work]:
    """The computing thread, from the start of a step to its end."""
    found = [_Work(FORWARD, computation.forward_s)]
    for compute_s, reduce_s in zip(computation.bucket_s, exchange.bucket_s, strict=True):
        if overlaps:
            found.append(_Work(BACKWARD, compute_s + exchange.submit_s, starts=(reduce_s,)))
        else:
            found.append(_Work(BACKWARD, compute_s))
    if not overlaps:
        found.append(_Work(BACKWARD, 0.0, starts=exchange.bucket_s))
    return found + [_Work(UPDATE, update_s, after=at + 1) for at, update_s in enumerate(computation.update_s)]


def _rates(exchange: Exchange, workers: int, cores: int, is_computing: bool, is_sending: bool) -> tuple[float, float]:
    """The part of its full speed that a computing thread and the network have."""
    of_pinned = 1 / math.ceil(workers / cores)
    if not is_sending:
        return of_pinned, 1.0
    others = [*[exchange.engine_cores] * workers, exchange.switch_cores]
    level = fair_level(cores, [*[1.0] * (workers if is_computing else 0), *others])
    delayed = exchange.beside if is_computing else 1.0
    return min(of_pinned, level), delayed * (min(1.0, level / max(others)) if max(others) else 1.0)


def fair_level(cores: float, wanted: Sequence[float]) -> float:
    """The most that a thread gets, in cores, if threads that want `wanted` cores share them by max-min fairness;
    infinite if all of them get what they want. A thread uses one core at most."""
    left, threads = cores, sorted(wanted)
    for number, one in enumerate(threads):
        level = left / (len(threads) - number)
        if one > level:
            return min(1.0, level)
        left -= one
    return 1.0 if any(one > 1.0 for one in threads) else math.inf
