"""NETFOLD_REQUIRE_AUTH among ranks: what they send each other over TCP carries tags, whichever engine sends it."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from netfold import _core
from netfold.errors import NetfoldError
from netfold.placement import Placement
from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_rank_left")]
COUNT = 500_000  # fp32 elements
SECRET = "open sesame"
TAGGED = {"NETFOLD_REQUIRE_AUTH": "yes"}
WRONG_TAG = "sent bytes with a wrong tag"


class Proxy:
    """Passes on what a rank and the rank at `target` send each other. Of the connections after the first, which is the
    life line, it changes one bit, once `change_after` bytes have passed; None: it changes nothing."""

    def __init__(self, target: str, change_after: int | None) -> None:
        host, port = target.rsplit(":", 1)
        self._target, self._change_after = (host, int(port)), change_after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.has_changed = False
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """End all connections."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        other: dict[socket.socket, socket.socket] = {}
        life_line: set[socket.socket] = set()
        ended: set[socket.socket] = set()
        passed = 0
        while not self._ends.is_set():
            for ready in select.select([self._listener, *(other.keys() - ended)], [], [], 0.02)[0]:
                if ready is self._listener:
                    here, there = ready.accept()[0], socket.create_connection(self._target)
                    life_line = life_line or {here, there}
                    other |= {here: there, there: here}
                    continue
                data = bytearray()
                with suppress(ConnectionError):
                    data += ready.recv(1 << 16)
                    if ready not in life_line:
                        passed += len(data)
                        self._change(data, passed)
                    other[ready].sendall(data)
                if not data:
                    ended.add(ready)
                    with suppress(OSError):  # the other side may be gone
                        other[ready].shutdown(socket.SHUT_WR)
        for each in {self._listener, *other}:
            each.close()

    def _change(self, data: bytearray, passed: int) -> None:
        if data and self._change_after is not None and not self.has_changed and passed > self._change_after:
            data[len(data) // 2] ^= 1
            self.has_changed = True


@contextmanager
def _two_ranks(kind: str, change_after: int | None) -> Iterator[tuple[list[Any], Proxy]]:
    """Two ranks that require tags, over TCP, connected through a proxy."""
    more: dict[str, Any] = {"shm": False, "secret": SECRET, "require_auth": True, "timeout_s": 10.0}
    placements = [Placement("agent" if kind == "agent" else "thread", "", (), rank) for rank in range(2)]
    switch = _core.Switch("127.0.0.1:0", secret=SECRET, require_auth=True) if kind == "split" else None
    groups: list[Any] = []
    for rank, placement in enumerate(placements):
        if switch is not None:
            groups.append(placement.split_group(rank, 2, switches=[switch.address], job="tags", **more))
        else:
            groups.append(placement.host_group(rank, 2, **more))
    proxy = Proxy(groups[0].address, change_after)
    try:
        with ThreadPoolExecutor(2) as pool:
            addresses = [[each.address for each in groups] for _ in groups]
            addresses[1][0] = proxy.address
            list(pool.map(lambda group, known: group.connect(known), groups, addresses))
        yield groups, proxy
    finally:
        for group in groups:
            group.close("the test is over")
        proxy.close()
        for placement in placements:
            placement.release()
        if switch is not None:
            switch.close()


def _all_reduce(group: Any, rank: int, algorithm: str) -> tuple[np.ndarray, str]:
    """The tensor after an all-reduce in place, and the error."""
    tensor = np.full(COUNT, rank + 1.0, np.float32)
    try:
        group.wait(group.all_reduce(tensor.ctypes.data, tensor.ctypes.data, COUNT, "fp32", "fp32", algorithm=algorithm))
    except NetfoldError as error:
        return tensor, str(error)
    return tensor, ""


@pytest.mark.parametrize("change_after", [None, 20_000, 1_500_000])
@pytest.mark.parametrize("kind", ["thread", "agent", "split"])
def test_a_changed_byte_reaches_no_sum(kind: str, change_after: int | None) -> None:
    algorithm = "split" if kind == "split" else "ring"
    errors: list[str] = []
    with _two_ranks(kind, change_after) as (groups, proxy), ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            for rank, (tensor, error) in enumerate(pool.map(_all_reduce, groups, range(2), [algorithm] * 2)):
                assert (tensor == (rank + 1.0 if error else 3.0)).all()
                errors += [error] if error else []
            if errors:
                break
        assert proxy.has_changed == (change_after is not None)
    assert bool(errors) == (change_after is not None)
    assert all("rank 0" in error or "rank 1" in error for error in errors)
    assert not errors or any(WRONG_TAG in error for error in errors)


def _sums_body(rank: int) -> list[float]:
    tensor, other = torch.full((COUNT,), rank + 1.0), torch.full((1000,), 7.0 * rank)
    dist.all_reduce(tensor)
    dist.broadcast(other, 1)
    return [tensor[0].item(), tensor[-1].item(), other[-1].item()]


@pytest.mark.parametrize("engine", ["thread", "caller", "agent"])
@pytest.mark.parametrize("algorithm", ["ring", "auto"])
def test_host_algorithms_take_the_setting(algorithm: str, engine: str) -> None:
    environment = {**TAGGED, "NETFOLD_ALGORITHM": algorithm, "NETFOLD_ENGINE": engine}
    assert values(run_ranks(_sums_body, environment=environment)) == [[3.0, 3.0, 7.0]] * 2


@pytest.mark.parametrize("algorithm", ["split", "in-network"])
def test_ranks_with_a_switch_take_the_setting(algorithm: str) -> None:
    environment = {**TAGGED, "NETFOLD_ALGORITHM": algorithm}
    assert values(run_ranks(_sums_body, environment=environment)) == [[3.0, 3.0, 7.0]] * 2


def _differs_body(rank: int, meeting: str) -> None:
    os.environ["NETFOLD_REQUIRE_AUTH"] = "yes" if rank else "no"
    dist.init_process_group("netfold", store=dist.FileStore(meeting, 2), rank=rank, world_size=2)


def test_ranks_that_differ_are_told() -> None:
    outcomes = run_ranks(_differs_body, environment={"NETFOLD_ALGORITHM": "ring"}, joins=False)
    for outcome in outcomes:
        assert "rank 1 authenticates what it sends to other ranks, and rank 0 does not" in outcome.error
        assert "NETFOLD_REQUIRE_AUTH" in outcome.error
