"""Two questions about a `Work` that torch does not pass on to a backend written in Python.

torch 2.15 wraps each `Work` that a Python backend returns in a holder that forwards `wait` and `get_future` only: for
the user `is_completed()` would be False forever and `recv()` from any source would not learn the sender. Both answers
are in the work's future, so they are taken from there, and only where torch's own answer is "not completed" or "not
known": works of other backends answer as before.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch._C._distributed_c10d import Work


class Received(NamedTuple):
    """Value of the future of a receive from any source: the tensors and who sent them (a rank of the group)."""

    tensors: list[torch.Tensor]
    source_rank: int


def answer_work_queries() -> None:
    """Install the answers on torch's Work class; call it once."""
    torch_is_completed = Work.is_completed
    torch_source_rank = Work._source_rank

    def is_completed(self: Work) -> bool:
        if torch_is_completed(self):
            return True
        try:
            return self.get_future().done()
        except RuntimeError:  # a work without a future: torch's answer stands
            return False

    def source_rank(self: Work) -> int:
        try:
            return torch_source_rank(self)
        except RuntimeError:
            future = _future_or_none(self)
            if future is None or not future.done() or not isinstance(future.value(), Received):
                raise
            return future.value().source_rank

    Work.is_completed = is_completed
    Work._source_rank = source_rank
    Work.source_rank = source_rank


def _future_or_none(work: Work) -> torch.futures.Future | None:
    try:
        return work.get_future()
    except RuntimeError:
        return None
