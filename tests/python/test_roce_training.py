"""Sums of PyTorch, MPI and C programs over RoCE (NETFOLD_ROCE) have the bits that UDP gives."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import c_example
import test_mpi
from netfold.torch import settings
from roce_net import roce_net
from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.root, pytest.mark.namespaces]


def join(rank: int, meeting: str, world: int, namespace: str) -> None:
    """Join the process group, in the namespace."""
    import torch.distributed as dist
    from pyroute2 import netns

    netns.setns(namespace)
    where = f"file://{meeting}"
    dist.init_process_group("netfold", where, timedelta(seconds=20), world_size=world, rank=rank)


def learn_digits(model: Any, steps: int, rank: int, world: int) -> None:
    """Train a model with a rank's part of the digits."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    digits = load_digits()
    pictures = torch.as_tensor(digits.data / 16).float()[rank::world]
    labels = torch.as_tensor(digits.target).long()[rank::world]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        chosen = slice(step * 16 % 128, step * 16 % 128 + 16)
        loss = nn.functional.cross_entropy(model(pictures[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train(steps: int, rank: int, world: int) -> tuple[str, dict[str, Any]]:
    """Train the digits in a process group; the digest of the parameters, and the engine's counters."""
    import torch
    import torch.distributed as dist
    from torch import nn

    torch.manual_seed(7)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)), bucket_cap_mb=0.02
    )
    learn_digits(model, steps, rank, world)
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    counters = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).stats()
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest(), counters


def train_twice(
    rank: int, meeting: str, world: int, namespace: str, steps: int, over_roce: dict[str, str]
) -> list[tuple[str, dict[str, Any]]]:
    """Train over UDP, through a switch in rank 0's process, and then over RoCE, with these settings too."""
    import torch.distributed as dist

    trained = []
    for more in ({}, over_roce):
        os.environ.update(more)
        join(rank, f"{meeting}{len(trained)}", world, namespace)
        trained.append(train(steps, rank, world))
        dist.barrier()
        dist.destroy_process_group()
    return trained


@pytest.mark.parametrize(("world", "place", "wire"), [(8, "w{rank}", "fp32"), (2, "w{rank},version=1", "bfp")])
def test_ddp_has_the_bits_of_udp_at_one_percent_loss(world: int, place: str, wire: str) -> None:
    steps = 8
    environment = {"NETFOLD_FORMAT": wire}
    with roce_net(world) as net:
        over_roce = {"NETFOLD_ROCE": place, "NETFOLD_FAULTS": "loss=0.01,seed={rank}"}
        arguments = (world, net.namespace, steps, over_roce)
        ranks = values(run_ranks(train_twice, *arguments, world=world, joins=False, environment=environment))
        counts = net.counts()
    digests = {digest for trained in ranks for digest, _ in trained}
    assert len(digests) == 1
    assert sum(counters["resent_writes"] for _, (_, counters) in ranks) > 0
    assert counts[f"roce_v{1 if 'version=1' in place else 2}_folded"] >= steps * (60 if wire == "fp32" else 15)


def shard(rank: int, meeting: str, world: int, namespace: str, steps: int, over_roce: dict[str, str]) -> list[str]:
    """Train the digits with FSDP2 over UDP, and then over RoCE; the digests of the parameters."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.fsdp import fully_shard

    digests = []
    for more in ({}, over_roce):
        os.environ.update(more)
        join(rank, f"{meeting}{len(digests)}", world, namespace)
        torch.manual_seed(rank)
        model = nn.Sequential(nn.Linear(64, 250), nn.ReLU(), nn.Linear(250, 10))
        for parameter in model.parameters():
            dist.broadcast(parameter.data, src=world - 1)
        for layer in (model[0], model[2], model):
            fully_shard(layer)
        learn_digits(model, steps, rank, world)
        whole = [parameter.full_tensor().detach().flatten() for parameter in model.parameters()]
        digests.append(hashlib.sha256(torch.cat(whole).numpy().tobytes()).hexdigest())
        odd = torch.full((7,), rank, dtype=torch.uint8)  # 7 bytes are not a multiple of 4: among the ranks
        dist.broadcast(odd, src=1)
        assert odd.tolist() == [1] * 7
        dist.barrier()
        dist.destroy_process_group()
    return digests


@pytest.mark.parametrize(("world", "place"), [(4, "w{rank},one-way"), (2, "w{rank},version=1,one-way")])
def test_fsdp_through_the_switch_has_the_bits_of_udp_at_one_percent_loss(world: int, place: str) -> None:
    steps = 4
    with roce_net(world) as net:
        over_roce = {"NETFOLD_ROCE": place, "NETFOLD_FAULTS": "loss=0.01,seed={rank}", "NETFOLD_ALGORITHM": ""}
        environment = {"NETFOLD_ALGORITHM": "in-network", "NETFOLD_FORMAT": "fp32"}
        arguments = (world, net.namespace, steps, over_roce)
        ranks = values(run_ranks(shard, *arguments, world=world, joins=False, environment=environment))
        counts = net.counts()
    assert len({digest for digests in ranks for digest in digests}) == 1
    parameters = 64 * 250 + 250 + 250 * 10 + 10
    packets = steps * parameters * 4 // 1024
    handler = f"roce_v{1 if 'version=1' in place else 2}"
    assert counts[f"{handler}_folded"] >= 2 * packets, "reduce-scatters and all-gathers"
    assert counts[f"{handler}_epochs"] == 2, "reduce-scatters have a job of their own"


def test_ranks_that_differ_in_one_way_run_the_rest_among_themselves() -> None:
    with roce_net(3) as net:
        environment = {"NETFOLD_ROCE": "w{rank},job=40,one-way"}
        own = {"NETFOLD_ROCE@1": "w{rank},job=40"}
        ended = run_ranks(gather_once, 3, net.namespace, own, world=3, joins=False, environment=environment)
        assert values(ended) == [[0, 1, 2]] * 3
        assert net.counts()["roce_v2_folded"] == 0


def gather_once(rank: int, meeting: str, world: int, namespace: str, own: dict[str, str]) -> list[int]:
    """An all-gather, where rank 1 has settings of its own."""
    import torch
    import torch.distributed as dist

    if rank == 1:
        os.environ.update({name[:-2]: value for name, value in own.items()})
    join(rank, meeting, world, namespace)
    gathered = [torch.zeros(3, dtype=torch.int32) for _ in range(world)]
    dist.all_gather(gathered, torch.full((3,), rank, dtype=torch.int32))
    dist.destroy_process_group()
    return [int(part[0]) for part in gathered]


def everything(rank: int, meeting: str, world: int, namespace: str) -> tuple[str, bool]:
    """Operations that RoCE does not have, groups of some ranks and of all, and then what happens if rank 1 dies."""
    import torch
    import torch.distributed as dist

    join(rank, meeting, world, namespace)
    gathered = [torch.zeros(3) for _ in range(world)]
    dist.all_gather(gathered, torch.full((3,), float(rank)))
    assert [int(part[0]) for part in gathered] == list(range(world))
    most = torch.tensor([rank])
    dist.all_reduce(most, dist.ReduceOp.MAX)
    assert int(most) == world - 1
    average = torch.full((1000,), rank, dtype=torch.bfloat16)
    dist.all_reduce(average, dist.ReduceOp.AVG)
    assert (average == (world - 1) / 2).all()
    some, again = dist.new_group([0, 2]), dist.new_group(list(range(world)))
    total = torch.full((5000,), 1 << rank, dtype=torch.int32)
    for group, right in ((some, 0b101), (again, (1 << world) - 1)):
        if rank in dist.get_process_group_ranks(group):
            mine = total.clone()
            dist.all_reduce(mine, group=group)
            assert (mine == right).all()
    dist.barrier()
    if rank == 1:
        os._exit(3)
    begun = time.monotonic()
    with pytest.raises(RuntimeError) as raised:
        dist.all_reduce(total)
    return str(raised.value), time.monotonic() - begun < 15


def test_ranks_do_everything_else_among_themselves_and_hear_of_a_death() -> None:
    with roce_net(3) as net:
        environment = {"NETFOLD_ROCE": "w{rank},job=40"}
        ended = run_ranks(everything, 3, net.namespace, world=3, joins=False, environment=environment)
        assert net.counts()["roce_v2_epochs"] == 2, "job 40, and job 41 of the second group of all"
    assert ended[1].exit_status == 3
    for rank in (0, 2):
        assert not ended[rank].error, ended[rank].error
        said, was_soon = ended[rank].value
        assert "rank 1" in said and was_soon, said


def sum_once(rank: int, meeting: str, world: int, namespace: str, own: dict[str, str]) -> str:
    """The error of an all-reduce, or of joining."""
    import torch
    import torch.distributed as dist

    os.environ.update({name: value for name, value in own.items() if not name.endswith("@1")})
    os.environ.update({name[:-2]: value for name, value in own.items() if name.endswith("@1") and rank == 1})
    try:
        join(rank, meeting, world, namespace)
        dist.all_reduce(torch.ones(1000))
    except (RuntimeError, ValueError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"NETFOLD_ROCE": "w{rank}", "NETFOLD_ROCE@1": "nosuch0"}, ("interface nosuch0", "rank 1 could not open")),
        ({"NETFOLD_ROCE": "w{rank}", "NETFOLD_ROCE@1": "w1,version=1"}, ("rank 1 speaks RoCE v1", "RoCE v2")),
        ({"NETFOLD_ROCE": "w0"}, ("ranks 0 and 1 have the same RoCE address",)),
        ({"NETFOLD_ROCE": "w{rank},job=9", "NETFOLD_TIMEOUT_S": "2"}, ("the switch folds 3 ports", "rank 0 died")),
    ],
)
def test_errors_say_what_is_wrong(own: dict[str, str], words: tuple[str, ...]) -> None:
    with roce_net(3 if "job=9" in own["NETFOLD_ROCE"] else 2) as net:
        ended = run_ranks(sum_once, 2, net.namespace, own, world=2, joins=False)
    said = [outcome.value or outcome.error for outcome in ended]
    assert all(any(word in each for word in words) for each in said), said


def test_a_dead_switch_is_an_error_after_the_timeout() -> None:
    with roce_net(2) as net:
        net.stop_switch()
        own = {"NETFOLD_ROCE": "w{rank}", "NETFOLD_TIMEOUT_S": "2"}
        said = values(run_ranks(sum_once, 2, net.namespace, own, world=2, joins=False))
    assert all("no sum came to rank" in each for each in said), said


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"engine": "roce"}, "needs NETFOLD_ROCE"),
        ({"roce": "w0", "switch": "10.0.0.1:7171"}, "unset NETFOLD_ALGORITHM, NETFOLD_SWITCH"),
        ({"roce": "w0", "algorithm": "ring"}, "unset NETFOLD_ALGORITHM"),
        ({"roce": "w0", "engine": "agent"}, "NETFOLD_ENGINE=roce"),
        ({"roce": "w0", "require_auth": True}, "no tags"),
        ({"roce": "w0", "window": 513}, "at most 512"),
        ({"roce": "w0,version=3"}, "version=1 or version=2"),
        ({"roce": "version=1"}, "INTERFACE"),
        ({"roce": "w0,job=65536"}, "job=NUMBER"),
    ],
)
def test_settings_that_contradict_roce_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        settings.load(settings.read(given), {})


@test_mpi.needs_mpi
def test_mpi_programs_sum_over_roce() -> None:
    with roce_net(4) as net:
        run = test_mpi.run_ranks("communicators", 4, prefix=net.enter(), NETFOLD_ROCE="w{rank}", NETFOLD_TIMEOUT_S="20")
        counts = net.counts()
    assert test_mpi.taken_over(run) == 261
    assert counts["roce_v2_epochs"] == 21, "one each for the communicators of all ranks"
    assert counts["roce_v2_folded"] > 60


@test_mpi.needs_mpi
def test_mpi_programs_have_the_bits_of_udp_at_one_percent_loss() -> None:
    """The fold pairwise in rank order, as through a switch of UDP. The kernel drops frames from both ends of cables."""
    world = 8
    with roce_net(world) as net:
        net.lose_percent(1)
        settings_ = {"NETFOLD_ROCE": "w{rank}", "NETFOLD_TIMEOUT_S": "20"}
        run = test_mpi.run_ranks("in_rank_order", world, prefix=net.enter(), **settings_)
        counts, lost = net.counts(), net.lost_frames()
    assert test_mpi.taken_over(run) == 9
    assert counts["roce_v2_folded"] >= 3 * 100_003 * 4 // 1024
    assert lost > 50


def test_c_programs_sum_over_roce(tmp_path: Path) -> None:
    program = c_example.build(tmp_path)
    with roce_net(3) as net:
        words = [*net.enter(), str(program), "3", "100003", "2"]
        environment = {**os.environ, "NETFOLD_ROCE": "w{rank},version=1,job=3"}
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=environment)
        counts = net.counts()
    assert done.returncode == 0, done.stderr  # it checks every element
    assert counts["roce_v1_folded"] >= 3 * 390
