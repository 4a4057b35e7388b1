"""The choices of `auto` in a group: rank 0's table, passed to the other ranks through torch's store.

Ranks with tables of their own could run different algorithms for the same tensor, and wait forever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from torch._C._distributed_c10d import Store

from netfold.algorithms import Choose
from netfold.chooser.choices import Choices, Chooser

KEY = "netfold/choices"
NONE = "none"


def agreed_chooser(
    store: Store, rank: int, look_up: Callable[[], Choices | None], rule: Choose, timeout_s: float
) -> Chooser:
    """A chooser that uses the choices that `look_up` finds at rank 0, or else `rule`. Only rank 0 calls `look_up`.
    Raises RuntimeError if rank 0 does not publish its choices within `timeout_s` (seconds)."""
    if rank == 0:
        choices = look_up()
        store.set(KEY, choices.to_json() if choices is not None else NONE)
        return Chooser(choices, rule)
    try:
        store.wait([KEY], timedelta(seconds=timeout_s))
    except RuntimeError as error:
        raise RuntimeError(
            f"netfold: rank 0 of the group did not publish within {timeout_s:g} s which algorithms to use: "
            "see its output"
        ) from error
    said = store.get(KEY).decode()
    return Chooser(Choices.from_json(said) if said != NONE else None, rule, logging.DEBUG)
