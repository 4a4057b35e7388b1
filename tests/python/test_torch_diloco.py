"""DiLoCo: the mean with few bits, its bytes and its errors; outer steps; ranks that die, leave and join."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import SHRINK_ABORT

import netfold
from netfold.torch.diloco import DiLoCo
from netfold.torch.few_bits import Coding, FewBitsMean
from repository import ROOT, module_of
from torch_ranks import run_ranks, values

AUTO = {"NETFOLD_ALGORITHM": "auto"}
COUNT = 1000  # not a whole number of blocks, nor of parts


def _values(rank: int, count: int = COUNT) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(rank))


def _mean_body(rank: int, bits: int) -> tuple[Any, ...]:
    mean = FewBitsMean(_values(rank), None, Coding(bits, 32), None, ())
    mean.turn()
    return mean.result().numpy(), mean.sent_bytes, mean.error.numpy()


def _coded(array: numpy.ndarray, bits: int) -> numpy.ndarray:
    return netfold.decode(netfold.encode(array, 32, bits - 1), array.size, 32, bits - 1)


@pytest.mark.parametrize(("backend", "bits"), [("netfold", 4), ("netfold", 3), ("gloo", 4)])
def test_the_mean_is_that_of_encoded_values_in_rank_order_and_takes_few_bytes(backend: str, bits: int) -> None:
    ranks = 3
    outcomes = values(run_ranks(_mean_body, bits, world=ranks, backend=backend, environment=AUTO))
    total = numpy.zeros(COUNT, dtype=numpy.float32)
    for rank in range(ranks):
        total = total + _coded(_values(rank).numpy(), bits)
    expected = _coded(total / numpy.float32(ranks), bits)
    part = -(-COUNT // (ranks * 32)) * 32
    for rank, (mean, sent_bytes, error) in enumerate(outcomes):
        assert mean.tobytes() == expected.tobytes()
        assert sent_bytes == 2 * (ranks - 1) * part * (bits + 8 / 32) / 8
        own = _values(rank).numpy()
        assert error.tobytes() == (own - _coded(own, bits)).tobytes()


def _feedback_body(rank: int, feeds_back: bool, rounding: str) -> float:
    """The largest difference between what 64 means of the same values should add up to, and what they do."""
    coding, truth = Coding(3, 64, rounding), (_values(0, 256) + _values(1, 256)) / 2
    error, owner_error, total = torch.zeros(256), None, torch.zeros(256)
    for outer_step in range(64):
        mean = FewBitsMean(_values(rank, 256) + error, owner_error, coding, None, (outer_step,))
        mean.turn()
        total += mean.result()
        if feeds_back:
            error, owner_error = mean.error, mean.owner_error
    return float((total / 64 - truth).abs().max())


def test_feedback_delays_what_rounding_takes_away_and_chance_averages_it() -> None:
    def off(feeds_back: bool, rounding: str) -> float:
        (first, second) = values(run_ranks(_feedback_body, feeds_back, rounding, environment=AUTO))
        assert first == second
        return first

    assert off(False, "nearest") > 0.3
    assert off(True, "nearest") < 0.06
    assert off(False, "stochastic") < 0.3
    assert off(True, "stochastic") < 0.06


def test_rounding_by_chance_is_the_same_in_every_run() -> None:
    some = _values(0, 256)
    first, again = (Coding(rounding="stochastic", seed=7).encode(some, (1, 2)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, Coding(rounding="stochastic", seed=8).encode(some, (1, 2)))
    assert not torch.equal(first, Coding(rounding="stochastic", seed=7).encode(some, (1, 3)))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"bits": 2}, "bits is 2: block floating point has 3 to 8 bits"),
        ({"block": 48}, "block is 48"),
        ({"rounding": "up"}, "rounding is 'up'"),
        ({"fragments": 60}, "fragments is 60: take 1 to 50"),
        ({"overlap": 50}, "overlap is 50: take 0 to 49"),
    ],
)
def test_settings_that_make_no_sense(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        DiLoCo(nn.Linear(4, 4), **given)


class _Worker:
    """A small model in training, with batches of its own."""

    def __init__(self, seed: int, **given: Any) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.diloco = DiLoCo(self.model, **{"steps": 6, "fragments": 2, "overlap": 2, **given})
        self.optimizer.register_step_post_hook(self.diloco.step)
        self._batches = torch.Generator().manual_seed(seed)
        self._truth = torch.randn(16, 4, generator=torch.Generator().manual_seed(99))

    def train(self, inner_steps: int) -> float:
        for _ in range(inner_steps):
            pictures = torch.randn(32, 16, generator=self._batches)
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(pictures), (pictures @ self._truth).argmax(1))
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def bits(self) -> list[Any]:
        """Checksums of the global parameters and of the outer momentum, and the counters that all ranks share."""
        state = self.diloco.state_dict()
        momenta = [outer["state"][0]["momentum_buffer"] for outer in state["outer"] if outer["state"]]
        return [zlib.crc32(each.numpy()) for each in (*state["shared"], *momenta)] + [state["step"], state["updates"]]


def _training_body(rank: int, given: dict[str, Any]) -> tuple[Any, ...]:
    worker = _Worker(rank, **given)
    first, last = worker.train(1), worker.train(89)
    worker.diloco.drain()
    return worker.bits(), first, last


@pytest.mark.parametrize(
    "given", [{}, {"overlap": 0, "fragments": 1}, {"overlap": 5, "fragments": 3, "rounding": "stochastic", "bits": 3}]
)
def test_all_ranks_have_the_same_bits_whatever_carries_them_and_learn(given: dict[str, Any]) -> None:
    outcomes = [
        outcome
        for backend in ("netfold", "gloo")
        for outcome in values(run_ranks(_training_body, given, world=3, backend=backend, environment=AUTO))
    ]
    for bits, first, last in outcomes:
        assert bits == outcomes[0][0]
        assert last < first / 2


def _one_mean_body(rank: int) -> float:
    """With an outer optimizer that takes the whole mean, no overlap and 8 bits: the average of the workers."""
    worker = _Worker(rank, steps=4, fragments=1, overlap=0, bits=8, outer_optimizer=_whole)
    worker.train(3)
    own = _flat(worker.model.parameters())
    dist.all_reduce(own, dist.ReduceOp.AVG)
    worker.diloco.step()  # the fourth inner step, which changes nothing
    return float((_flat(worker.model.parameters()) - own).abs().max())


def _whole(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1.0)


def test_an_outer_step_averages_the_workers() -> None:
    assert max(values(run_ranks(_one_mean_body, environment=AUTO))) < 1e-3


def _finish_body(rank: int) -> tuple[float, float, list[Any], bool]:
    """How far the global parameters are from the mean of the workers: before the end of the training, and after."""
    worker = _Worker(rank, bits=8)
    worker.train(17)  # since its last turn, one fragment learned for 5 steps and the other for 2
    worker.diloco.drain()
    mean = _flat(worker.model.parameters())
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    before = _flat(worker.diloco.state_dict()["shared"])
    worker.diloco.finish()
    after = _flat(worker.diloco.state_dict()["shared"])
    ends_as_shared = torch.equal(_flat(worker.model.parameters()), after)
    return float((before - mean).norm()), float((after - mean).norm()), worker.bits(), ends_as_shared


def _flat(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


@pytest.mark.parametrize("backend", ["netfold", "gloo"])
def test_finish_makes_the_model_the_mean_of_all_workers(backend: str) -> None:
    outcomes = values(run_ranks(_finish_body, world=3, backend=backend, environment=AUTO))
    for before, after, bits, ends_as_shared in outcomes:
        assert before > 0.03, "the last steps of the workers are not in the global parameters yet"
        assert after < before / 20
        assert bits == outcomes[0][2]
        assert ends_as_shared


def _death_body(rank: int) -> tuple[Any, ...]:
    worker = _Worker(rank)
    worker.train(20)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="rank 1"):
        worker.train(20)
    dist.shrink_group([1], shrink_flags=SHRINK_ABORT)
    worker.diloco.use(None)
    before = worker.bits()
    loss = worker.train(60)
    worker.diloco.drain()
    return before, worker.bits(), loss


def test_the_others_go_on_when_a_rank_dies() -> None:
    outcomes = run_ranks(_death_body, world=3, environment={**AUTO, "NETFOLD_TIMEOUT_S": "20"})
    assert outcomes[1].exit_status == -signal.SIGKILL
    first, third = values([outcomes[0], outcomes[2]])
    assert first[:2] == third[:2]
    assert max(first[2], third[2]) < 0.7


def _joining_body(rank: int, meeting: str, backend: str) -> tuple[Any, ...]:
    """Ranks 0 and 1 train. Rank 2 joins. Then rank 0, whose state was the first, leaves."""

    def meet(members: list[int]) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        name = f"{meeting}-{len(members)}-{members[0]}"
        dist.init_process_group(
            backend, init_method=f"file://{name}", rank=members.index(rank), world_size=len(members)
        )

    seen = []
    worker = None
    if rank < 2:
        meet([0, 1])
        worker = _Worker(rank)
        worker.train(20)
        worker.diloco.drain()
        seen.append(worker.bits())
    meet([0, 1, 2])
    if worker is None:
        worker = _Worker(rank)
    else:
        worker.diloco.use(None)
    seen.append(worker.bits())
    worker.train(20)
    worker.diloco.drain()
    seen.append(worker.bits())
    if rank > 0:
        meet([1, 2])
        worker.diloco.use(None)
        worker.train(20)
        worker.diloco.drain()
        seen.append(worker.bits())
    dist.destroy_process_group()
    return seen


@pytest.mark.parametrize("backend", ["netfold", "gloo"])
def test_a_newcomer_takes_over_the_state_and_another_leaves(backend: str) -> None:
    first, second, third = values(run_ranks(_joining_body, backend, world=3, environment=AUTO, joins=False))
    assert first[0] == first[1] == second[1] == third[0], "what was there before is handed over"
    assert first[2] == second[2] == third[1]
    assert second[3] == third[2]
    assert third[2][-2] == 60, "the newcomer counts the steps from the start of the training"


EXAMPLE = ROOT / "examples" / "diloco.py"


def test_the_example_measures_losses_on_text_that_is_new_to_the_model() -> None:
    parts = {name: bytes(part.tolist()) for name, part in module_of(EXAMPLE).Text().parts.items()}

    def stretches(text: bytes) -> list[bytes]:
        return [text[at : at + 64] for at in range(len(text) - 63)]

    for here, there in (("training", "validation"), ("training", "test"), ("validation", "test")):
        known = set(stretches(parts[here]))
        seen = [stretch in known for stretch in stretches(parts[there])]
        assert len(seen) > 20_000
        assert sum(seen) < 0.04 * len(seen)


def test_the_example_goes_on_when_one_worker_leaves_and_one_joins() -> None:
    words = ["--workers", "2", "--steps", "40", "--every", "10", "--fragments", "2", "--leave", "1:12", "--join", "10"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *words, "--compare"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"worker 1 leaves at step [23]0", done.stdout), done.stdout
    ends = dict(re.findall(r"DiLoCo, worker (\d): loss [0-9.]+, parameters (\w{8}), \d+ steps", done.stdout))
    assert sorted(ends) == ["0", "1", "2"], done.stdout
    assert ends["0"] == ends["2"] != ends["1"], "all that are there at the end have the same bits"
    losses = re.findall(r"loss ([0-9.]+)", done.stdout)
    assert max(map(float, losses)) < 4.0, "an untrained model has about 4.6"


def _started_example() -> tuple[subprocess.Popen[str], list[int]]:
    """The example with two workers that train for long, and the process ids of the workers."""
    words = ["--workers", "2", "--steps", "1000000"]
    example = subprocess.Popen([sys.executable, str(EXAMPLE), *words], stderr=subprocess.PIPE, text=True)
    children = Path(f"/proc/{example.pid}/task/{example.pid}/children")
    deadline = time.monotonic() + 60
    while len(workers := [int(word) for word in children.read_text().split()]) < 2:
        assert example.poll() is None and time.monotonic() < deadline, "no workers were started"
        time.sleep(0.05)
    return example, workers


@pytest.mark.parametrize(
    ("receiver", "number", "status", "says"),
    [
        ("example", signal.SIGTERM, 128 + signal.SIGTERM, ""),
        ("worker 1", signal.SIGKILL, 256 - signal.SIGKILL, "worker 1 ended with status -9"),
    ],
)
def test_the_example_ends_all_its_workers(receiver: str, number: int, status: int, says: str) -> None:
    example, workers = _started_example()
    try:
        os.kill(example.pid if receiver == "example" else workers[1], number)
        _, error = example.communicate(timeout=20)
        assert example.returncode == status
        assert says in error
        assert not [worker for worker in workers if Path(f"/proc/{worker}").exists()]
    finally:
        example.kill()
        for worker in workers:
            if Path(f"/proc/{worker}").exists():
                os.kill(worker, signal.SIGKILL)
