"""Collectives of a C program over RoCE: a group whose ranks all say `one-way` has more than all-reduces."""

from __future__ import annotations

import ctypes
from datetime import timedelta

import pytest

from netfold import native
from roce_net import roce_net
from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.root, pytest.mark.namespaces]

OK, INVALID_ARGUMENT = 0, 2
FLOAT32 = 0
COUNT = 70_001


class Options(ctypes.Structure):
    """nf_group_options of interface 1.1."""

    _fields_ = (
        ("struct_bytes", ctypes.c_size_t),
        ("rank", ctypes.c_int),
        ("world", ctypes.c_int),
        ("listen", ctypes.c_char_p),
        ("timeout_s", ctypes.c_double),
        ("placement", ctypes.c_int),
        ("core", ctypes.c_int),
        ("use_shared_memory", ctypes.c_int),
        ("secret", ctypes.c_char_p),
        ("roce", ctypes.c_char_p),
        ("roce_group", ctypes.c_int),
    )


def run_collectives(rank: int, meeting: str, world: int, namespace: str, places: list[str]) -> list[int]:
    """The states that the four collectives return; where they are right, their results are checked."""
    import numpy as np
    import torch.distributed as dist
    from pyroute2 import netns

    netns.setns(namespace)
    library = ctypes.CDLL(str(native.find(native.C_LIBRARY)))
    library.nf_group_address.restype = ctypes.c_char_p
    group = ctypes.c_void_p()
    options = Options(ctypes.sizeof(Options), rank, world, None, 20.0, 0, -1, 0, None, places[rank].encode(), 0)
    assert library.nf_group_open(ctypes.byref(options), ctypes.byref(group), None) == OK
    store = dist.FileStore(meeting, world)
    store.set_timeout(timedelta(seconds=20))
    store.set(f"address/{rank}", library.nf_group_address(group))
    addresses = (ctypes.c_char_p * world)(*[store.get(f"address/{other}") for other in range(world)])
    assert library.nf_group_connect(group, addresses, ctypes.c_double(20.0), None) == OK

    def memory(array: np.ndarray) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)

    def whole(of: int) -> np.ndarray:
        return np.random.default_rng(of).integers(0, 100, world * COUNT).astype(np.float32)

    count = ctypes.c_size_t(COUNT)
    mine, part, all_parts = whole(rank), np.zeros(COUNT, np.float32), np.zeros(world * COUNT, np.float32)
    states = [library.nf_reduce_scatter(group, memory(mine), memory(part), count, FLOAT32, None, None)]
    states.append(library.nf_all_gather(group, memory(part), memory(all_parts), count, FLOAT32, None, None))
    copied = whole(rank)[:COUNT].copy()
    states.append(library.nf_broadcast(group, memory(copied), count, FLOAT32, 1, None))
    states.append(library.nf_barrier(group, None))
    if states == [OK] * 4:
        assert (all_parts == sum(whole(other) for other in range(world))).all()
        assert (copied == whole(1)[:COUNT]).all()
    library.nf_group_close(group, None)
    return states


@pytest.mark.parametrize(
    ("places", "state"),
    [
        (["w0,one-way,job=5", "w1,one-way,job=5", "w2,one-way,job=5"], OK),
        (["w0,one-way,job=5", "w1,job=5", "w2,one-way,job=5"], INVALID_ARGUMENT),
    ],
)
def test_c_programs_run_collectives_where_all_ranks_say_one_way(places: list[str], state: int) -> None:
    with roce_net(3) as net:
        ended = run_ranks(run_collectives, 3, net.namespace, places, world=3, joins=False)
        counts = net.counts()
    assert values(ended) == [[state] * 4] * 3
    packets = 7 * COUNT * 4 // 1024  # a reduce-scatter, an all-gather and a broadcast
    assert counts["roce_v2_folded"] >= packets if state == OK else counts["roce_v2_folded"] == 0
