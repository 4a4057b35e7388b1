"""The groups of this process: they leave their jobs when Python ends, and not in a child of fork()."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Protocol

from netfold.torch.embedded_switch import EmbeddedSwitch

FORKED = (
    "netfold: this process was forked from the one that made this process group, and only that one can use it; start "
    "processes that train with torchrun, or call init_process_group in each"
)


class Leaver(Protocol):
    """A rank's end of a group."""

    def rank(self) -> int:
        """Its rank in the group."""

    def leave(self, reason: str = "") -> None:
        """End this rank's part in the group. With a reason, the other ranks' folds fail with it. A second call does
        nothing."""

    def leave_to_parent(self) -> None:
        """In a child of fork(): the job, its sockets and its threads are the parent's. Collectives raise RuntimeError
        here; leaving does nothing."""


alive: set[Leaver] = set()
"""The groups that have not left."""


@atexit.register
def _leave_all() -> None:
    """Scripts that never call destroy_process_group still leave their jobs, and the threads end before Python ends."""
    uncaught = getattr(sys, "last_value", None)  # the exception that ended the script, if there was one
    for group in list(alive):
        said = f"rank {group.rank()} ended by {type(uncaught).__name__}: {uncaught}" if uncaught is not None else ""
        group.leave(said[:500])


def _leave_all_to_parent() -> None:
    """A child of fork(), such as a DataLoader's worker, must not say goodbye to the ranks of its parent."""
    EmbeddedSwitch.forget_all()
    for group in alive:
        group.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)
