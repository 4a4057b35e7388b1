"""The simulated hardware switch sums for PyTorch and MPI programs over RoCE v2. Results have the bits of software."""

from __future__ import annotations

import os
import shutil

import pytest

import test_mpi
from netfold import native
from netfold_lab.bench.switch_training import WINDOW
from netfold_lab.rtl import simulation
from roce_net import roce_net
from test_roce_training import join, train_twice
from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.root, pytest.mark.namespaces, pytest.mark.timeout(900)]
RANKS = 4


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    simulation.build(simulation.SwitchShape(RANKS, has_crossings=False), ("_rtl_switch",))


@pytest.mark.parametrize(("wire", "per_step"), [("fp32", 60), ("fp16", 30), ("bf16", 30)])
def test_ddp_has_the_bits_of_udp(wire: str, per_step: int) -> None:
    steps = 3
    environment = {"NETFOLD_FORMAT": wire}
    over_roce = {"NETFOLD_ROCE": "w{rank}", "NETFOLD_WINDOW": str(WINDOW), "NETFOLD_FAULTS": "loss=0.01,seed={rank}"}
    with roce_net(RANKS, engine="rtl") as net:
        arguments = (RANKS, net.namespace, steps, over_roce)
        ranks = values(run_ranks(train_twice, *arguments, world=RANKS, joins=False, environment=environment))
        counts = net.counts()
    assert len({digest for trained in ranks for digest, _ in trained}) == 1
    assert sum(counters["resent_writes"] for _, (_, counters) in ranks) > 0
    assert counts["roce_folded"] >= steps * per_step
    assert counts["roce_drop_jobs"] == counts["roce_drop_header"] == 0


def reduce_tensors(rank: int, meeting: str, world: int, namespace: str, over_roce: dict[str, str]) -> list[bytes]:
    """The bytes of sums of 16-bit tensors over UDP, and then over RoCE: odd lengths, any bits but NaN."""
    import torch
    import torch.distributed as dist

    found = []
    for more in ({}, over_roce):
        os.environ.update(more)
        join(rank, f"{meeting}{len(found)}", world, namespace)
        some = torch.Generator().manual_seed(rank)
        sums = []
        for count in (1, 511, 5001):
            bits = torch.randint(-(1 << 15), 1 << 15, (count,), generator=some, dtype=torch.int16)
            for kind in (torch.float16, torch.bfloat16):
                total = torch.nan_to_num(bits.view(kind))
                dist.all_reduce(total)
                sums.append(torch.nan_to_num(total).view(torch.int16).numpy().tobytes())
        dist.barrier()
        dist.destroy_process_group()
        found.append(b"".join(sums))
    return found


def test_all_reduces_of_16_bit_tensors_have_the_bits_of_udp() -> None:
    over_roce = {"NETFOLD_ROCE": "w{rank}", "NETFOLD_WINDOW": str(WINDOW)}
    with roce_net(RANKS, engine="rtl") as net:
        arguments = (RANKS, net.namespace, over_roce)
        sums = {one for both in values(run_ranks(reduce_tensors, *arguments, world=RANKS, joins=False)) for one in both}
        counts = net.counts()
    assert len(sums) == 1
    assert counts["roce_folded"] >= 2 * (2 + 10)
    assert counts["roce_drop_header"] == 0


@pytest.mark.skipif(shutil.which("mpirun") is None or native.find(native.MPI_LIBRARY) is None, reason="no MPI")
def test_mpi_programs_are_summed() -> None:
    """Communicators come one after another, each in a later epoch: the hardware has one job at a time."""
    with roce_net(RANKS, engine="rtl") as net:
        settings = {"NETFOLD_ROCE": "w{rank}", "NETFOLD_TIMEOUT_S": "20"}
        run = test_mpi.run_ranks("communicators", RANKS, prefix=net.enter(), **settings)
        counts = net.counts()
    assert test_mpi.taken_over(run) == 261
    assert counts["roce_folded"] > 60
    assert counts["roce_drop_jobs"] == 0
