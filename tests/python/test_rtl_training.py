"""The simulated hardware switch sums for PyTorch and MPI programs over RoCE v2. Results have the bits of software."""

from __future__ import annotations

import shutil

import pytest

import test_mpi
from netfold import native
from netfold_lab.bench.switch_training import WINDOW
from netfold_lab.rtl import simulation
from roce_net import roce_net
from test_roce_training import train_twice
from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.root, pytest.mark.namespaces, pytest.mark.timeout(900)]
RANKS = 4


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    simulation.build(simulation.SwitchShape(RANKS, has_crossings=False), ("_rtl_switch",))


def test_ddp_has_the_bits_of_udp() -> None:
    steps = 3
    over_roce = {"NETFOLD_ROCE": "w{rank}", "NETFOLD_WINDOW": str(WINDOW), "NETFOLD_FAULTS": "loss=0.01,seed={rank}"}
    with roce_net(RANKS, engine="rtl") as net:
        arguments = (RANKS, net.namespace, steps, over_roce)
        ranks = values(run_ranks(train_twice, *arguments, world=RANKS, joins=False))
        counts = net.counts()
    assert len({digest for trained in ranks for digest, _ in trained}) == 1
    assert sum(counters["resent_writes"] for _, (_, counters) in ranks) > 0
    assert counts["roce_folded"] >= steps * 60
    assert counts["roce_drop_jobs"] == 0


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
