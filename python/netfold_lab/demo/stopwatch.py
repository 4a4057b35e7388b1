"""Measures the parts of a training step: forward, backward, each bucket's communication, optimizer.

A DDP communication hook records when a bucket's all-reduce starts and ends; it computes the same as DDP without a hook.
*Exposed* communication is not hidden by computation: when the last bucket is ready, backward has nothing left to
compute and only waits.
"""

# No `from __future__ import annotations` here: DDP compares a hook's annotations with the classes themselves.

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket


@dataclass
class Span:
    """One interval: start and end in seconds since the step began."""

    lane: str
    label: str
    start_s: float
    end_s: float


@dataclass
class Step:
    """One training step: its spans, its whole time and its exposed communication, in seconds."""

    spans: list[Span] = field(default_factory=list)
    time_s: float = 0.0
    exposed_s: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


class Stopwatch:
    """Measures steps; `hook` is the DDP communication hook that measures the buckets."""

    def __init__(self) -> None:
        self._began = 0.0
        self._last_bucket_ready = 0.0
        self.step = Step()

    def begin(self) -> None:
        """Start a step."""
        self.step = Step()
        self._began = time.perf_counter()

    def now(self) -> float:
        """Seconds since the step began."""
        return time.perf_counter() - self._began

    def span(self, lane: str, start_s: float) -> None:
        """Record an interval from `start_s` until now."""
        self.step.spans.append(Span(lane, lane, start_s, self.now()))

    def end(self) -> Step:
        """End the step; its backward interval must be recorded."""
        self.step.time_s = self.now()
        backward = next(span for span in self.step.spans if span.lane == "backward")
        self.step.exposed_s = max(0.0, backward.end_s - self._last_bucket_ready)
        return self.step

    def hook(self, group: dist.ProcessGroup | None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Average a bucket's gradients over the group, as DDP does by itself, and time it."""
        step, start_s, index = self.step, self.now(), bucket.index()
        self._last_bucket_ready = start_s
        gradients = bucket.buffer().div_(dist.get_world_size(group))
        size_kib = gradients.numel() * gradients.element_size() / 1024
        work = dist.all_reduce(gradients, group=group, async_op=True)

        def ended(done: torch.futures.Future) -> torch.Tensor:
            label = f"bucket {index}, {size_kib:.0f} KiB"
            step.spans.append(Span(f"bucket {index}", label, start_s, self.now()))
            return done.value()[0]

        return work.get_future().then(ended)
