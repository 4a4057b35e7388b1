"""Times all-reduces of several systems in turns, and checks the sums.

The ranks tell each other times and errors over the default group, which is Netfold's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

ROUND_S = 0.1  # of one system in one round, about: small tensors are summed many times
ITERATIONS_MAX = 1000
RELATIVE_ERROR_MAX = 0.02  # of block floating point with 7 bits


@dataclass
class Entry:
    """Of a size and a system: seconds of an all-reduce in each round, by the slowest rank; or its error."""

    size_bytes: int
    system: str
    times_s: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def median_s(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.times_s)


class Rounds:
    """Measures on the ranks of the default group."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._world = dist.get_world_size()

    def first_error(self, attempt: Callable[[], object]) -> str:
        """Call `attempt` on every rank; returns the error of the lowest rank that has one, or ""."""
        said = ""
        try:
            attempt()
        except (RuntimeError, ValueError) as error:
            said = f"rank {dist.get_rank()}: {error}".partition("\n")[0]
        everybody: list[str | None] = [None] * self._world
        dist.all_gather_object(everybody, said)
        return next((one for one in everybody if one), "")

    def slowest(self, seconds: float) -> float:
        """The largest of all ranks' values."""
        everybody = torch.empty(self._world, dtype=torch.float64)
        dist.all_gather_single(everybody, torch.tensor([seconds], dtype=torch.float64))
        return float(everybody.max())

    def measure(
        self, size_bytes: int, groups: dict[str, dist.ProcessGroup], rounds: int, tell: Callable[[str], None]
    ) -> list[Entry]:
        """One entry for each system: a warm-up, then `rounds` rounds in which each has its turn."""
        count = max(1, size_bytes // torch.float32.itemsize)
        tensor = torch.empty(count, dtype=torch.float32, device=self._device)
        entries = {name: Entry(size_bytes, name) for name in groups}
        iterations = dict.fromkeys(groups, 1)
        for number in range(rounds + 1):
            for name, group in groups.items():
                entry = entries[name]
                if entry.error:
                    continue
                tell(f"{size_bytes} bytes, {name}, {f'round {number} of {rounds}' if number else 'warm-up'}")
                took: list[float] = []
                times = iterations[name]
                entry.error = self.first_error(lambda: took.append(self._once(tensor, group, times)))  # noqa: B023
                if entry.error:
                    continue
                each_s = self.slowest(took[0])
                iterations[name] = min(max(1, int(ROUND_S / each_s)), ITERATIONS_MAX)
                if number > 0:
                    entry.times_s.append(each_s)
        return list(entries.values())

    def _once(self, tensor: torch.Tensor, group: dist.ProcessGroup, times: int) -> float:
        """Seconds of one of `times` all-reduces, one after the other. Raises RuntimeError for a wrong sum."""
        tensor.fill_(float(dist.get_rank() + 1))
        dist.all_reduce(tensor, group=group)
        expected = self._world * (self._world + 1) / 2
        if not torch.allclose(tensor, torch.full_like(tensor, expected), rtol=RELATIVE_ERROR_MAX):
            raise RuntimeError(f"a wrong sum: {tensor.min().item():g} to {tensor.max().item():g}, not {expected:g}")
        tensor.zero_()  # sums of sums would overflow
        dist.barrier()
        self._synchronize()
        begun = time.perf_counter()
        for _ in range(times):
            dist.all_reduce(tensor, group=group)
        self._synchronize()
        return (time.perf_counter() - begun) / times

    def _synchronize(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize()
