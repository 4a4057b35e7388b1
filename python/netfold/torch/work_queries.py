"""Answers two queries about a `Work` that torch does not pass on to a backend written in Python.

Torch 2.15 wraps each `Work` of a Python backend in a holder that forwards only `wait` and `get_future`. So the user's
`is_completed()` would always be False, and `recv()` from any source would not return the sender. The work's future has
both answers. This module takes them from there if torch's own answer is "not completed" or "not known"; works of other
backends answer as before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch._C._distributed_c10d import Work


class Received(NamedTuple):
    """Value of the future of a receive from any source: the tensors and the sender's rank in the group."""

    tensors: list[torch.Tensor]
    source_rank: int


def answer_work_queries() -> None:
    """Install the answers in torch's Work class; call it once."""
    torch_is_completed = Work.is_completed
    torch_source_rank = Work._source_rank

    def is_completed(self: Work) -> bool:
        if torch_is_completed(self):
            return True
        try:
            return self.get_future().done()
        except RuntimeError:  # a work without a future keeps torch's answer
            return False

    def source_rank(self: Work) -> int:
        try:
            return torch_source_rank(self)
        except RuntimeError:
            future = _future_or_none(self)
            if future is None or not future.done() or not isinstance(future.value(), Received):
                raise
            return int(future.value().source_rank)

    for name, answer in (("is_completed", is_completed), ("_source_rank", source_rank), ("source_rank", source_rank)):
        setattr(Work, name, answer)


def _future_or_none(work: Work) -> torch.futures.Future[Any] | None:
    try:
        return work.get_future()
    except RuntimeError:
        return None
