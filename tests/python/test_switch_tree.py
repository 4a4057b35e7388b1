"""A tree of switch programs, and workers at its leaves."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from netfold import _core
from switch_programs import Running, run, start, workers
from torch_ranks import run_ranks, values

__all__ = ["start"]  # a fixture

pytestmark = pytest.mark.timeout(90)
WORLD = 4
COUNT = 100_003


@contextmanager
def _at(addresses: list[str], job: str, **options: object) -> Iterator[list[_core.SwitchGroup | Exception]]:
    """Rank r joins at addresses[r]; a rank that could not join is its exception."""
    joined: list[_core.SwitchGroup | Exception] = [RuntimeError("did not end")] * len(addresses)

    def join(rank: int) -> None:
        try:
            joined[rank] = _core.SwitchGroup(
                addresses[rank], job, len(addresses), rank, **{"timeout_s": 10.0, **options}
            )
        except Exception as error:
            joined[rank] = error

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(len(addresses))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    try:
        yield joined
    finally:
        for client in joined:
            if isinstance(client, _core.SwitchGroup):
                with suppress(_core.NetfoldError):
                    client.close()


def _sums(clients: list[_core.SwitchGroup], wire: str) -> list[bytes]:
    inputs = [np.random.default_rng(rank).standard_normal(COUNT, dtype=np.float32) for rank in range(len(clients))]
    outputs = [np.zeros(COUNT, dtype=np.float32) for _ in clients]
    tickets = [
        client.all_reduce(one.ctypes.data, other.ctypes.data, COUNT, "fp32", wire)
        for client, one, other in zip(clients, inputs, outputs, strict=True)
    ]
    for client, ticket in zip(clients, tickets, strict=True):
        client.wait(ticket)
    return [output.tobytes() for output in outputs]


def _leaves(start: Callable[..., Running], *arguments: str) -> tuple[Running, list[Running]]:
    top = start()
    return top, [start("--parent", top.address, *arguments) for _ in range(2)]


def _half_each(leaves: list[Running]) -> list[str]:
    return [leaves[rank * 2 // WORLD].address for rank in range(WORLD)]


def test_two_leaves_have_the_bits_of_one_switch(start: Callable[..., Running]) -> None:
    top, leaves = _leaves(start, "--threads", "2")
    for wire in ("fp32", "fp16", "bf16", "bfp"):
        with workers(top.address, WORLD, f"flat-{wire}") as clients:
            expected = _sums(clients, wire)
        with _at(_half_each(leaves), f"tree-{wire}") as clients:
            assert _sums(clients, wire) == expected
            if wire != "fp32":
                continue
            (above,), jobs = top.stats()["jobs"], [leaf.stats()["jobs"][0] for leaf in leaves]
            chunks = -(-COUNT // (above["payload_bytes"] // 4))
            assert above["contributions"] == 2 * chunks
            assert [one["ranks"] for one in above["contributors"]] == [2, 2]
            for leaf, job in zip(leaves, jobs, strict=True):
                assert job["above"] == top.address == leaf.stats()["parent"]
                assert job["up_sums"] == chunks
                assert job["up_sent_bytes"] < 0.75 * job["received_bytes"]  # a half, echoes, and what probes ask for
                shown = run("top", "--metrics", leaf.metrics, "--once", "--interval-s", "0.1").stdout
                assert f"below {top.address}" in " ".join(shown.split())
                assert "sums" in shown
                assert "netfold_job_up_sums_total" in leaf.get("/metrics")[1]


def test_a_switch_above_that_dies_is_named_on_every_rank(start: Callable[..., Running]) -> None:
    top, leaves = _leaves(start)
    with _at(_half_each(leaves), "dies") as clients:
        _sums(clients, "fp32")
        top.process.send_signal(signal.SIGKILL)
        began = time.monotonic()
        for client in clients:
            zeros = np.zeros(COUNT, dtype=np.float32)
            with pytest.raises(_core.NetfoldError, match=top.address):
                client.wait(client.all_reduce(zeros.ctypes.data, zeros.ctypes.data, COUNT, "fp32", "fp32"))
        assert time.monotonic() - began < 10


def test_a_leaf_that_dies_is_named_with_its_ranks(start: Callable[..., Running]) -> None:
    _, leaves = _leaves(start)
    with _at(_half_each(leaves), "dies") as clients:
        _sums(clients, "fp32")
        leaves[1].process.send_signal(signal.SIGKILL)
        zeros = np.zeros(COUNT, dtype=np.float32)
        with pytest.raises(_core.NetfoldError, match=rf"{leaves[1].address} with ranks 2 to 3"):
            clients[0].wait(clients[0].all_reduce(zeros.ctypes.data, zeros.ctypes.data, COUNT, "fp32", "fp32"))


def test_secrets_of_each_hop(start: Callable[..., Running], tmp_path: Path) -> None:
    secrets = {}
    for name in ("top", "leaf"):
        secrets[name] = tmp_path / name
        secrets[name].write_text(f"the secret of the {name}\n")
        secrets[name].chmod(0o600)
    top = start("--secret-file", str(secrets["top"]), "--require-auth")
    own = ("--parent", top.address, "--secret-file", str(secrets["leaf"]), "--require-auth")
    right = [start(*own, "--parent-secret-file", str(secrets["top"])) for _ in range(2)]
    with _at(_half_each(right), "auth", secret="the secret of the leaf", require_auth=True) as clients:
        assert len(set(_sums(clients, "fp32"))) == 1
    wrong = [start(*own) for _ in range(2)]
    with _at(_half_each(wrong), "auth", secret="the secret of the leaf") as clients:
        for error in clients:
            assert isinstance(error, _core.NetfoldError)
            assert top.address in str(error)
            assert "another secret" in str(error)


def test_a_switch_above_that_is_not_there(start: Callable[..., Running]) -> None:
    lonely = start("--parent", "127.0.0.1:1")
    with _at([lonely.address] * 2, "all-here", timeout_s=5.0) as clients:
        assert len(set(_sums(clients, "fp32"))) == 1
    with _at([lonely.address] * 2 + ["127.0.0.1:1"], "apart", timeout_s=3.0) as clients:
        for error in clients:
            assert isinstance(error, _core.NetfoldError)
            assert "127.0.0.1:1" in str(error)


def test_a_cycle_of_switches_is_an_error_on_every_rank(start: Callable[..., Running]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [each.getsockname()[1] for each in (one, other)]
    ring = [start("--port", str(ports[i]), "--parent", f"127.0.0.1:{ports[1 - i]}") for i in range(2)]
    began = time.monotonic()
    with _at(_half_each(ring), "round") as clients:
        for error in clients:
            assert isinstance(error, _core.NetfoldError)
            assert "cycle" in str(error)
    assert time.monotonic() - began < 9


def _split_body(rank: int, meeting: str, addresses: list[str], doomed: int) -> list[int]:
    """Checksums of sums by split, at the rank's own switch, before and after a switch dies."""
    os.environ["NETFOLD_SWITCH"] = addresses[rank]
    dist.init_process_group("netfold", store=dist.FileStore(meeting, WORLD), rank=rank, world_size=WORLD)
    checksums = []
    for step in range(8):
        if step == 4 and rank == 0:
            os.kill(doomed, signal.SIGKILL)
        tensor = torch.randn(700_001, generator=torch.Generator().manual_seed(rank + step))
        dist.all_reduce(tensor)
        checksums.append(zlib.crc32(tensor.numpy().tobytes()))
    return checksums


@pytest.mark.usefixtures("no_rank_left")
def test_split_goes_on_when_a_leaf_dies(start: Callable[..., Running]) -> None:
    _, leaves = _leaves(start)
    expected = []
    for step in range(8):
        tensors = [torch.randn(700_001, generator=torch.Generator().manual_seed(rank + step)) for rank in range(WORLD)]
        expected.append(zlib.crc32(_core.fold([tensor.numpy() for tensor in tensors]).tobytes()))
    arguments = (_half_each(leaves), leaves[1].process.pid)
    split = {"NETFOLD_ALGORITHM": "split", "NETFOLD_TIMEOUT_S": "20"}
    outcomes = run_ranks(_split_body, *arguments, world=WORLD, environment=split, joins=False)
    assert values(outcomes) == [expected] * WORLD


def test_the_command_line_names_what_does_not_go_together() -> None:
    for arguments, words in (
        (["--parent", "nonsense"], "--parent"),
        (["--parent-secret-file", "x"], "needs a --parent"),
        (["--parent", "[fd00::1]:7171", "--dpdk", "--port", "nf"], "must be an IPv4 address"),
    ):
        ended = run("switch", *arguments)
        assert ended.returncode == 2
        assert words in ended.stderr
