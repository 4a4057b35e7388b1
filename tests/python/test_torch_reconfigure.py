"""Groups whose ranks change while their processes go on: torch.distributed._reconfigure.

The first cases are those that PyTorch has for its own backends, in our own words.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType

from netfold import _core
from netfold.torch import reconfigure
from netfold.torch.reconfigure import Handle
from torch_ranks import open_sockets, run_ranks, values

WORLD = 3
LARGE = 1 << 20
WAIT_S = 20.0


class Script:
    """The script of one rank: it has a process group, and a store to tell the others its handle."""

    def __init__(self, number: int, meeting: str, world: int = WORLD) -> None:
        self.number, self.world = number, world
        self.store = dist.FileStore(meeting, world)
        dist.init_process_group(
            "netfold",
            store=self.store,
            rank=number,
            world_size=world,
            timeout=timedelta(seconds=WAIT_S),
            enable_reconfigure=True,
        )
        self.backend: Any = dist.get_backend_impl(dist.group.WORLD, torch.device("cpu"))

    def handles(self, key: str, numbers: list[int] | None = None) -> list[str]:
        """The handles of these ranks of the script, by default all."""
        self.store.set(f"{key}/{self.number}", dist._get_reconfigure_handle())
        every = range(self.world) if numbers is None else numbers
        return [self.store.get(f"{key}/{each}").decode() for each in every]

    def form(self, uuid: int, handles: list[str] | set[str], timeout_s: float = WAIT_S) -> None:
        work = dist._reconfigure(uuid, handles, timeout=timedelta(seconds=timeout_s))
        work.wait()

    def form_all(self, uuid: int) -> None:
        self.form(uuid, self.handles(f"all-{uuid}"))
        assert (dist.get_world_size(), dist.get_rank()) == (self.world, self.number)

    def meet(self, key: str) -> None:
        """A barrier of all ranks of the script, in the group or not."""
        self.store.set(f"{key}/{self.number}", "here")
        self.store.wait([f"{key}/{each}" for each in range(self.world)], timedelta(seconds=WAIT_S))


def check_sums() -> None:
    """An all-reduce, a broadcast and a message to the next rank give what they should."""
    rank, world = dist.get_rank(), dist.get_world_size()
    assert (dist.group.WORLD.rank(), dist.group.WORLD.size()) == (rank, world)
    tensor = torch.full((LARGE,), rank + 1.0)
    dist.all_reduce(tensor)
    assert bool((tensor == world * (world + 1) / 2).all())
    tensor = torch.full((4,), float(rank))
    dist.broadcast(tensor, group_src=world - 1)
    assert tensor.tolist() == [world - 1.0] * 4
    gathered = [torch.zeros(1) for _ in range(world)]
    dist.all_gather(gathered, torch.tensor([float(rank)]))
    assert [float(each) for each in gathered] == [float(each) for each in range(world)]
    if world > 1:
        received = torch.zeros(4)
        sent = dist.isend(torch.full((4,), float(rank)), group_dst=(rank + 1) % world)
        dist.recv(received, group_src=(rank - 1) % world)
        sent.wait()
        assert received.tolist() == [(rank - 1.0) % world] * 4
    dist.barrier()


def _first(number: int, meeting: str) -> None:
    script = Script(number, meeting)
    assert dist._supports_reconfigure() and script.backend.supports_reconfigure
    with pytest.raises(RuntimeError, match="this group has no ranks before the first"):
        dist.all_reduce(torch.ones(4))
    script.form_all(100)
    check_sums()
    script.form_all(101)  # the same ranks once more
    check_sums()
    assert script.backend._get_sequence_number_for_group() > 0
    dist.destroy_process_group()


def _excluded(number: int, meeting: str, left_out: int) -> None:
    script = Script(number, meeting)
    script.form_all(400)
    check_sums()
    handles = script.handles("shrink")
    if number != left_out:
        script.form(401, [each for rank, each in enumerate(handles) if rank != left_out])
        assert dist.get_world_size() == WORLD - 1
        assert dist.get_rank() == (number if number < left_out else number - 1)
        check_sums()
    script.meet("done")


def _down_and_up(number: int, meeting: str) -> None:
    script = Script(number, meeting)
    script.form(600 + number, [dist._get_reconfigure_handle()])
    assert (dist.get_world_size(), dist.get_rank()) == (1, 0)
    check_sums()
    script.form_all(603)
    check_sums()
    script.form(604 + number, [dist._get_reconfigure_handle()])
    assert (dist.get_world_size(), dist.get_rank()) == (1, 0)
    check_sums()
    script.meet("done")


def _late(number: int, meeting: str) -> None:
    """Two ranks begin, and the third comes later; it asks for place 0."""
    script = Script(number, meeting)
    if number < 2:
        script.form(900, script.handles("two", [0, 1]))
        check_sums()
    handles = script.handles("three")
    script.form(901, [handles[2], handles[0], handles[1]])
    assert dist.get_rank() == (number + 1) % WORLD
    check_sums()


def _merge(number: int, meeting: str) -> None:
    script = Script(number, meeting, 4)
    pair = [0, 1] if number < 2 else [2, 3]
    script.form(1000 + pair[0], script.handles("pairs", pair))
    check_sums()
    script.form(1004, set(script.handles("all")))
    check_sums()


def _abort(number: int, meeting: str) -> None:
    script = Script(number, meeting)
    script.form_all(1200)
    check_sums()
    script.backend.abort()
    assert script.backend.get_error() == ErrorType.SUCCESS
    script.meet("aborted")
    script.form_all(1201)
    check_sums()


def _timeout(number: int, meeting: str) -> None:
    """Rank 0 misses an all-reduce, which ends by a timeout that was set after joining."""
    script = Script(number, meeting)
    script.form_all(1300)
    check_sums()
    dist.set_timeout(timedelta(seconds=1))
    if number != 0:
        with pytest.raises(RuntimeError, match="rank 0"):
            dist.all_reduce(torch.ones(4))
        assert script.backend.get_error() != ErrorType.SUCCESS
        with pytest.raises(RuntimeError, match="rank 0"):
            dist.all_reduce(torch.ones(4))
    script.meet("timed out")
    dist.set_timeout(timedelta(seconds=WAIT_S))
    script.form_all(1301)
    assert script.backend.get_error() == ErrorType.SUCCESS
    check_sums()


def _uuids(number: int, meeting: str) -> None:
    script = Script(number, meeting)
    own = [dist._get_reconfigure_handle()]
    script.form(1100 + number, own)
    with pytest.raises(ValueError, match="was taken before this rank's last reconfigure"):
        script.form(1200 + number, own)
    with pytest.raises(RuntimeError, match="already used"):
        script.form(1100 + number, [dist._get_reconfigure_handle()])
    check_sums()


CASES: list[tuple[Callable[..., Any], list[Any], int]] = [
    (_first, [], WORLD),
    (_excluded, [WORLD - 1], WORLD),
    (_excluded, [1], WORLD),
    (_down_and_up, [], WORLD),
    (_late, [], WORLD),
    (_merge, [], 4),
    (_abort, [], WORLD),
    (_timeout, [], WORLD),
    (_uuids, [], WORLD),
]


@pytest.mark.parametrize("algorithm", ["ring", "in-network"])
@pytest.mark.parametrize(
    ("body", "arguments", "world"), CASES, ids=[f"{case[0].__name__[1:]}{case[1] or ''}" for case in CASES]
)
def test_the_cases_of_torch(body: Callable[..., Any], arguments: list[Any], world: int, algorithm: str) -> None:
    values(run_ranks(body, *arguments, world=world, environment={"NETFOLD_ALGORITHM": algorithm}, joins=False))


def test_in_torchs_detail_mode() -> None:
    environment = {"NETFOLD_ALGORITHM": "ring", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    values(run_ranks(_first, world=WORLD, environment=environment, joins=False))


def _death(number: int, meeting: str) -> list[int]:
    """Rank 1 of four dies under an all-reduce, the others go on; then rank 4, which came later, joins them. Returns how
    many sockets are new after each of the two."""
    script = Script(number, meeting, 5)
    if number < 4:
        script.form(1, script.handles("begin", [0, 1, 2, 3]))
        check_sums()
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(RuntimeError, match="rank 1"):
            for _ in range(100):
                dist.all_reduce(torch.ones(LARGE))
        assert script.backend.get_error() == ErrorType.COMM_ERROR
        before = open_sockets()
        script.form(2, script.handles("after the death", [0, 2, 3]))
        new = [len(open_sockets() - before)]
        assert script.backend.get_error() == ErrorType.SUCCESS
        assert (dist.get_world_size(), dist.get_rank()) == (3, {0: 0, 2: 1, 3: 2}[number])
        check_sums()
    before = open_sockets()
    script.form(3, set(script.handles("with the newcomer", [0, 2, 3, 4])))
    if number == 4:
        new = [0]
    new.append(len(open_sockets() - before))
    assert (dist.get_world_size(), dist.get_rank()) == (4, {0: 0, 2: 1, 3: 2, 4: 3}[number])
    check_sums()
    return new


@pytest.mark.parametrize("algorithm", ["auto", "ring"])
def test_one_dies_and_another_comes(algorithm: str) -> None:
    environment = {"NETFOLD_ALGORITHM": algorithm}
    switch = _core.Switch("127.0.0.1:0") if algorithm == "auto" else None
    if switch is not None:
        environment["NETFOLD_SWITCH"] = switch.address
    outcomes = run_ranks(_death, world=5, environment=environment, joins=False)
    assert outcomes[1].exit_status == -signal.SIGKILL
    old = values([each for number, each in enumerate(outcomes) if number not in (1, 4)])
    values([outcomes[4]])
    if switch is None:
        assert all(after_death <= 1 for after_death, _ in old), "connections are kept; only the listener is new"
    else:
        switch.close()


def _missing(number: int, meeting: str) -> None:
    """Rank 2 does not come to the second group. The others hear so in time, and form a third without it."""
    script = Script(number, meeting)
    script.form_all(1)
    handles = script.handles("second")
    if number < 2:
        with pytest.raises(RuntimeError, match="rank 2"):
            script.form(2, handles, timeout_s=1)
        with pytest.raises(RuntimeError, match=r"the last reconfigure failed: .*rank 2"):
            dist.all_reduce(torch.ones(4))
        script.form(3, script.handles("third", [0, 1]))
        check_sums()
    else:
        with pytest.raises(RuntimeError, match=r"rank [01] "):
            for _ in range(100):
                dist.all_reduce(torch.ones(LARGE))
    script.meet("done")


def test_one_that_does_not_come_is_named() -> None:
    values(run_ranks(_missing, world=WORLD, environment={"NETFOLD_ALGORITHM": "ring"}, joins=False))


def test_handles() -> None:
    own, other, new = Handle("a1", "64-0f", 1), Handle("b2", "64-0f", 0), Handle("03", "", 7)
    handles = [str(new), str(own), str(other)]
    assert reconfigure.ordered(handles, own) == [new, own, other], "a list has its order"
    assert reconfigure.ordered(set(handles), own) == [other, own, new], "who was in a group comes first"
    assert reconfigure.ranks_in("64-0f", [new, own, other]) == [-1, 1, 0]
    assert reconfigure.ranks_in("", [new]) == [-1], "a rank that was in no group has no rank there"
    names = {reconfigure.name_of(uuid, some) for uuid in (1, -1) for some in ([own, other], [other, own])}
    assert len(names) == 4
    for given, why in (
        ([], "is not among the 0 given: every rank of the new group gives all handles"),
        ([str(other)], "is not among the 1 given"),
        ([str(own), str(own)], "two of the handles are of one rank"),
        ([str(own), "gloo:0:-1:0:host"], "'gloo:0:-1:0:host' is not the handle of a netfold group"),
        ([str(Handle("a1", "63-0e", 1))], "was taken before this rank's last reconfigure"),
    ):
        with pytest.raises(ValueError, match=why):
            reconfigure.ordered(given, own)
