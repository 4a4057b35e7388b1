"""Collectives in the order of a device's streams: the state machine of pieces, simulated with seeds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import netfold.torch
import simulated_device as device
from netfold import _core
from netfold.errors import NetfoldError
from netfold.torch import device_words, stream_order
from netfold.torch.completion import Fold, Folds
from netfold.torch.work import OrderedWork
from torch_ranks import run_ranks, values

pytestmark = pytest.mark.timeout(120)
SEEDS = 300
BFP = (16, 7)


class ReportedFolds(Folds):
    """Completes what the simulation reports, in place of a thread."""

    def new_work(self, devices: list[torch.device], awaited: bool = False) -> Any:
        raise AssertionError("a device's folds have ordered works")

    new_message = new_work

    def step_aside(self) -> None:
        """The simulation has no thread of its own to stop."""

    def _end(self) -> None:
        """Nothing is left to end."""


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that begins the simulation of a seed."""

    def begin(seed: int) -> device.Simulation:
        simulation = device.Simulation(seed)
        device.install(monkeypatch.setattr, simulation)
        return simulation

    monkeypatch.setattr(device_words, "PAIRS", 2)  # so that pairs are used again
    yield begin
    stream_order.stream_down.cache_clear()


class Job:
    """A rank that starts all-reduces on a simulated device, and what it has started."""

    def __init__(self, simulation: device.Simulation) -> None:
        self.simulation = simulation
        self.folds = ReportedFolds(simulation.engine)  # type: ignore[arg-type]
        self.staging = stream_order.OrderedStaging()
        simulation.report = self.folds._complete
        self.streams = [device.Stream() for _ in range(2)]

    def all_reduce(self, tensors: list[torch.Tensor], encodes: bool, average: bool) -> OrderedWork:
        def submit(client: device.Engine, pointer: int, count: int, encoded: bool) -> int:
            return client.all_reduce(
                pointer, pointer, count, "fp32", "bfp" if encoded else "fp32", average and not encoded, encoded=encoded
            )

        call = self.staging.fold_call(tensors, submit, BFP if encodes else None, 2 if average else 1)
        assert call is not None and len(call.devices) == 1
        fold = Fold(call, OrderedWork(call.devices[0]))
        self.folds.submit(fold)
        return fold.work  # type: ignore[return-value]


def _expected(values: np.ndarray, encodes: bool, average: bool, is_flat: bool) -> np.ndarray:
    if encodes:
        arrived = _core.decode(_core.encode(values, *BFP), values.size, *BFP)
        total = _core.decode(_core.encode(2 * arrived, *BFP), values.size, *BFP)
        return total / np.float32(2 if average else 1)
    return values if average else 2 * values


def _one_run(simulation: device.Simulation) -> tuple[int, int]:
    """Collectives with kernels before and after them; returns how many ended well, and how many were cut in pieces."""
    dice = simulation.dice
    job = Job(simulation)
    mine = simulation.current
    checks = []
    cut = 0
    for number in range(dice.randrange(1, 12)):
        stream = dice.choice([*job.streams, mine])
        encodes, average = dice.random() < 0.5, dice.random() < 0.5
        counts = [dice.randrange(1, 1500) for _ in range(dice.choice([1, 1, 3]))]
        values = [np.random.default_rng(number + i).standard_normal(n, dtype=np.float32) for i, n in enumerate(counts)]
        plain = [torch.full((count,), float("nan")) for count in counts]
        for tensor, its in zip(plain, values, strict=True):  # the kernel that computes the gradient
            stream.add(lambda tensor=tensor, its=its: tensor.copy_(torch.from_numpy(its)))
        with simulation.stream(stream):
            work_ = job.all_reduce([tensor.as_subclass(device.DeviceTensor) for tensor in plain], encodes, average)
            assert simulation.current is stream, "the user's current stream has changed"
            cut += sum(counts) > 256
            simulation.run(dice.randrange(0, 20))
            reader = dice.choice([*job.streams, mine])
            error: BaseException | None = None
            found: list[np.ndarray] = []
            with simulation.stream(reader):
                try:
                    assert work_.wait()
                except NetfoldError as failed:
                    error = failed
                # The optimizer's kernel, behind the wait.
                reader.add(lambda plain=plain, found=found: found.extend(each.numpy().copy() for each in plain))
            checks.append((work_, values, encodes, average, error, found))
        simulation.run(dice.randrange(0, 20))
    simulation.run(1_000_000)
    assert not any(stream.queue for stream in simulation.streams), "a stream waits forever"
    ended = 0
    for work_, values, encodes, average, error, found in checks:
        assert work_.is_completed()
        whole = np.concatenate(values)
        if work_.is_success():
            assert error is None
            expected = _expected(whole, encodes, average, len(values) == 1)
            assert np.array_equal(np.concatenate(found), expected), "wrong sums"
            ended += 1
        else:
            with pytest.raises(NetfoldError, match="rank 1 died"):
                work_.wait()
            with pytest.raises(RuntimeError, match="rank 1 died"):
                work_.get_future().wait()
            if error is None:
                assert np.array_equal(np.concatenate(found), whole), "the tensor was touched"
    return ended, cut


def test_seeds(simulate: Any, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    ended = cut = failed = 0
    for number in range(seed, seed + SEEDS):
        simulation = simulate(number)
        try:
            well, pieces = _one_run(simulation)
        except BaseException as error:
            error.add_note(f"simulated with seed {number}")
            raise
        ended, cut, failed = ended + well, cut + pieces, failed + (simulation.engine.failure is not None)
    assert ended > SEEDS and cut > SEEDS and failed > SEEDS / 10, "the seeds draw too little"


def _ranks(address: str) -> list[_core.SwitchGroup]:
    with ThreadPoolExecutor(2) as pool:
        joined = [pool.submit(_core.SwitchGroup, address, "words", 2, rank, timeout_s=20.0) for rank in range(2)]
        return [each.result() for each in joined]


def test_the_engine_begins_at_one_word_and_ends_with_the_other() -> None:
    """The real engine; the test is the device."""
    switch = _core.Switch("127.0.0.1:0")
    ranks = _ranks(switch.address)
    values = [np.random.default_rng(rank).standard_normal(10_000, dtype=np.float32) for rank in range(2)]
    memory = [_core.encode(each) for each in values]
    words = np.zeros((2, 2), np.int32)
    tickets = []
    for rank, group in enumerate(ranks):
        at = words[rank].ctypes.data
        group.for_device(at, at + 4, 2)
        encoded = memory[rank].ctypes.data
        tickets.append(group.all_reduce(encoded, encoded, 10_000, "fp32", "bfp", encoded=True))
    assert not ranks[0].wait(tickets[0], 0.1)
    words[0, 0] = 2
    assert not ranks[1].wait(tickets[1], 0.1)
    assert words[:, 1].tolist() == [0, 0]
    words[1, 0] = 2
    for group, ticket in zip(ranks, tickets, strict=True):
        assert group.wait(ticket, 20.0)
    assert words[:, 1].tolist() == [2, 2]
    total = _core.fold([_core.decode(_core.encode(each), 10_000) for each in values], format="fp32")
    wanted = _core.decode(_core.encode(total), 10_000)
    for each in memory:
        assert np.array_equal(_core.decode(each, 10_000), wanted)
    at = words[0].ctypes.data
    ranks[0].for_device(at, at + 4, 4)  # of the next collective only
    late = ranks[0].all_reduce(memory[0].ctypes.data, memory[0].ctypes.data, 10_000, "fp32", "bfp", encoded=True)
    ranks[0].close()
    assert words[0, 1] == 5, "a device that waits is told of a failure"
    with pytest.raises(NetfoldError):
        ranks[0].wait(late, 0.0)
    for refused in ({"wire": "fp32"}, {"wire": "bfp", "average": True}, {"wire": "bfp", "block": 32}):
        with pytest.raises(NetfoldError, match="encoded"):
            ranks[1].all_reduce(memory[1].ctypes.data, memory[1].ctypes.data, 8, "fp32", encoded=True, **refused)
    ranks[1].close()
    switch.close()


def _real_engine_body(rank: int, wire: str) -> None:
    """A whole group with its engine; only the device is simulated."""
    simulation = device.Simulation(rank)
    device.install(setattr, simulation)
    arrived = [np.random.default_rng(each).standard_normal(3000, dtype=np.float32) for each in range(2)]
    own = torch.from_numpy(arrived[rank])
    if wire == "bfp":
        arrived = [_core.decode(_core.encode(each), 3000) for each in arrived]
    total = _core.fold(arrived, format="fp32")
    wanted = _core.decode(_core.encode(total), 3000) if wire == "bfp" else total
    with netfold.torch.connect(format=wire) as group:
        for op, divisor in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, 2)):
            plain = [torch.full((1000,), float("nan")), torch.full((2000,), float("nan"))]
            for tensor, its in zip(plain, own.split([1000, 2000]), strict=True):
                simulation.current.add(lambda tensor=tensor, its=its: tensor.copy_(its))
            found: list[np.ndarray] = []
            group.all_reduce([each.as_subclass(device.DeviceTensor) for each in plain], op)
            assert all(each.isnan().all() for each in plain), "nothing has run yet, and Python did not wait"
            simulation.current.add(lambda plain=plain, found=found: found.append(torch.cat(plain).numpy()))
            deadline = time.monotonic() + 30
            while not found:
                assert time.monotonic() < deadline, "the stream waits forever"
                simulation.run(10)
                time.sleep(0.0005)
            assert np.array_equal(found[0], wanted / np.float32(divisor))


@pytest.mark.parametrize("wire", ["fp32", "bfp"])
@pytest.mark.parametrize("algorithm", ["in-network", "direct"])
def test_a_group_with_its_engine(algorithm: str, wire: str) -> None:
    environment = {"NETFOLD_ALGORITHM": algorithm}
    values(run_ranks(_real_engine_body, wire, world=2, backend="gloo", environment=environment, timeout_s=100.0))
