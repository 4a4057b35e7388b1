"""The order of passes in a pipeline, and when each runs.

p stages pass m micro-batches on. A stage has v chunks of the model, so there are p v chunks; chunk c is at stage c
modulo p. For equal chunks without transfers, with f and b for the two passes of a stage, a step takes

    GPipe, 1F1B     (m + p - 1) (f + b)
    interleaved     m (f + b) + (p - 1) (f + b) / v

(Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", section 2.2.)
`run` has no such formula: each pass starts when its stage is free and what it needs has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

GPIPE, ONE_F_ONE_B, INTERLEAVED = SCHEDULES = ("gpipe", "1f1b", "interleaved")


@dataclass(frozen=True)
class Pass:
    """One pass of a micro-batch through a chunk."""

    is_forward: bool
    chunk: int
    batch: int


@dataclass(frozen=True)
class Run:
    """When each pass starts and ends, in seconds."""

    start_s: dict[Pass, float]
    end_s: dict[Pass, float]

    @property
    def total_s(self) -> float:
        """The end of the last pass."""
        return max(self.end_s.values())


def orders(schedule: str, stages: int, batches: int, virtual: int = 1) -> list[list[Pass]]:
    """The passes of each stage in their order. `virtual`: chunks of a stage; more than one only if interleaved, and
    then `batches` is a multiple of `stages`."""
    if schedule == INTERLEAVED:
        return [_interleaved(stage, stages, batches, virtual) for stage in range(stages)]
    found = []
    for stage in range(stages):
        ahead = batches if schedule == GPIPE else min(batches, stages - stage - 1)
        forward = [Pass(True, stage, batch) for batch in range(batches)]
        backward = [Pass(False, stage, batch) for batch in range(batches)]
        found.append(_paired(forward, backward, ahead))
    return found


def _paired(forward: list[Pass], backward: list[Pass], ahead: int) -> list[Pass]:
    """`ahead` forward passes, then one forward and one backward in turn, then the backward passes that are left."""
    found = forward[:ahead]
    for number, each in enumerate(forward[ahead:]):
        found += [each, backward[number]]
    return found + backward[len(forward) - ahead :]


def _interleaved(stage: int, stages: int, batches: int, virtual: int) -> list[Pass]:
    """Groups of p micro-batches go through a stage's chunks in turn, as Megatron-LM orders them."""
    forward, backward = [], []
    for number in range(batches * virtual):
        group, at = divmod(number, stages * virtual)
        local, within = divmod(at, stages)
        batch = group * stages + within
        forward.append(Pass(True, local * stages + stage, batch))
        backward.append(Pass(False, (virtual - 1 - local) * stages + stage, batch))
    ahead = min(batches * virtual, 2 * (stages - stage - 1) + (virtual - 1) * stages)
    return _paired(forward, backward, ahead)


def run(
    order: Sequence[Sequence[Pass]],
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    transfer_s: Callable[[int, int], float],
) -> Run:
    """Run all passes. Seconds of the passes of each chunk; `transfer_s`: of what a micro-batch sends from a stage to
    another one. Transfers run beside computation; those from one stage to the same other one follow each other."""
    stages, last = len(order), len(forward_s) - 1
    started: dict[Pass, float] = {}
    ended: dict[Pass, float] = {}
    arrived: dict[Pass, float] = {}  # when what a pass needs from another stage is there
    waiting: dict[Pass, int] = {}
    link: dict[tuple[int, int], float] = {}
    at, free = [0] * stages, [0.0] * stages
    able = list(range(stages))
    while able:
        stage = able.pop()
        while at[stage] < len(order[stage]):
            each = order[stage][at[stage]]
            chunk, batch = each.chunk, each.batch
            if each.is_forward:
                needs = free[stage] if chunk == 0 else arrived.get(each)
            else:
                needs = ended.get(Pass(True, chunk, batch)) if chunk == last else arrived.get(each)
            if needs is None:
                waiting[each] = stage
                break
            start = max(free[stage], needs)
            end = start + (forward_s if each.is_forward else backward_s)[chunk]
            started[each], ended[each], free[stage] = start, end, end
            at[stage] += 1
            following = chunk + 1 if each.is_forward else chunk - 1
            if not 0 <= following <= last:
                continue
            then, there = Pass(each.is_forward, following, batch), following % stages
            way = (stage, there)
            link[way] = max(link.get(way, 0.0), end) + transfer_s(stage, there)
            arrived[then] = link[way]
            if then in waiting:
                able.append(waiting.pop(then))
    assert not waiting, "an order of passes waits for itself"
    return Run(started, ended)


def most_kept(order: Sequence[Pass], kept: Callable[[int], float]) -> float:
    """The most that a stage keeps at a time. `kept`: of a chunk, from a micro-batch's forward to its backward pass."""
    now = most = 0.0
    for each in order:
        now += kept(each.chunk) if each.is_forward else -kept(each.chunk)
        most = max(most, now)
    return most


def sent_after(order: Sequence[Sequence[Pass]], is_sharded: bool) -> list[list[Pass]]:
    """For each stage the backward passes after which gradients of their chunks are sent: the last ones. `is_sharded`:
    sums are sharded between micro-batches. Then all passes; if the stage has several chunks, those before a pass of
    another chunk, so that it keeps the whole sums of two chunks at a time."""
    found = []
    for own in order:
        backward = [each for each in own if not each.is_forward]
        last = max(each.batch for each in backward)
        has_several = len({each.chunk for each in backward}) > 1
        ends = [one.chunk != following.chunk for one, following in pairwise(backward)] + [True]
        found.append(
            [
                each
                for each, is_end in zip(backward, ends, strict=True)
                if each.batch == last or (is_sharded and (is_end or not has_several))
            ]
        )
    return found


def closed_form_s(
    schedule: str, stages: int, batches: int, forward_s: float, backward_s: float, virtual: int = 1
) -> float:
    """A step of equal stages without transfers. Seconds of a micro-batch at one stage."""
    bubble = (stages - 1) * (forward_s + backward_s) / (virtual if schedule == INTERLEAVED else 1)
    return batches * (forward_s + backward_s) + bubble
