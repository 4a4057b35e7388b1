"""Groups of some of a group's ranks: `torch.distributed.shrink_group` and `split_group`.

A group is shrunk when ranks have died. Every survivor calls it with the same ranks to leave out. They compare through
torch's store, which must have survived: with torchrun it runs in the agent, otherwise in the process of rank 0.
"""

from __future__ import annotations

import time
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store, _DistributedBackendOptions
from torch.distributed.distributed_c10d import GroupName

KEY = "netfold/shrink/"
POLL_S = 0.02


def agree(store: Store, rank: int, size: int, excluded: list[int], timeout_s: float) -> list[int]:
    """The survivors, in order, once all of them exclude the same ranks. Waits at most `timeout_s` seconds.

    Raises RuntimeError that names a rank which excludes others, or does not call."""
    survivors = [each for each in range(size) if each not in excluded]
    keys = [f"{KEY}{each}" for each in survivors]
    mine = ",".join(map(str, sorted(excluded)))
    store.set(f"{KEY}{rank}", mine)
    deadline = time.monotonic() + timeout_s
    while (said := _said(store, keys, deadline - time.monotonic())) != [mine] * len(keys):
        if time.monotonic() > deadline:
            other, theirs = next(pair for pair in zip(survivors, said, strict=True) if pair[1] != mine)
            says = "has not called it" if theirs is None else f"leaves out {theirs}"
            raise RuntimeError(
                f"netfold: shrink_group: rank {rank} leaves out {mine}, but rank {other} {says} within "
                f"{timeout_s:g} s: all survivors must leave out the same ranks"
            )
        time.sleep(POLL_S)
    return survivors


def _said(store: Store, keys: list[str], timeout_s: float) -> list[str | None]:
    """The values of the keys once all are there; None for those that are not there in time."""
    try:
        store.wait(keys, timedelta(seconds=max(POLL_S, timeout_s)))  # 0 would be forever
    except RuntimeError:
        return [store.get(key).decode() if store.check([key]) else None for key in keys]
    return [value.decode() for value in store.multi_get(keys)]


def smaller(given: _DistributedBackendOptions, survivors: list[int]) -> _DistributedBackendOptions:
    """The options that make a backend of the survivors; `given` made this group's."""
    name = "-".join(map(str, survivors))
    store = PrefixStore(f"shrunk-{name}", given.store)
    return part_of(given, survivors, store, f"{given.group_id}-{name}")


def part_of(given: _DistributedBackendOptions, ranks: list[int], store: Store, name: str) -> _DistributedBackendOptions:
    """The options that make a backend of these ranks of a group, in their order; this rank is one of them."""
    all_ranks = given.global_ranks_in_group or list(range(given.group_size))
    members = [all_ranks[each] for each in ranks]
    return options_of(store, ranks.index(given.group_rank), members, given.timeout, name)


def options_of(
    store: Store, rank: int, members: list[int], timeout: timedelta, name: str
) -> _DistributedBackendOptions:
    """The options that make a backend. `members` are the global ranks of the group's ranks; `rank` is this one in the
    group."""
    made = _DistributedBackendOptions()
    made.store, made.timeout, made.group_id = store, timeout, GroupName(name)
    made.group_rank, made.group_size, made.global_ranks_in_group = rank, len(members), members
    return made
