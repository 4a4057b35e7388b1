"""Models train through the network: like with Gloo, with equal bits on every rank and in every run."""

from __future__ import annotations

import shutil

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from torch_ranks import run_ranks, values

pytestmark = pytest.mark.timeout(240)
FAULTS = "loss=0.02,duplicate=0.02,reorder=0.05,seed={seed}"


def _model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(32, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 4))


def _steps(model: nn.Module, rank: int, steps: int, learning_rate: float = 0.05) -> list[float]:
    """Train on data of this rank's own; returns the losses."""
    numbers = torch.Generator().manual_seed(1000 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    losses = []
    for _ in range(steps):
        pictures = torch.randn(16, 32, generator=numbers)
        loss = nn.functional.mse_loss(model(pictures), pictures[:, :4].sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def _ddp_body(rank: int, steps: int) -> bytes:
    model = DistributedDataParallel(_model(), bucket_cap_mb=0.05)
    _steps(model, rank, steps)
    return _flat(model.module).numpy().tobytes()


def _as_tensor(parameters: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(parameters), dtype=torch.float32)


@pytest.mark.parametrize("algorithm", ["in-network", "ring", "auto"])
def test_ddp_learns_what_it_learns_with_gloo(algorithm: str) -> None:
    netfold = values(run_ranks(_ddp_body, 20, world=3, environment={"NETFOLD_ALGORITHM": algorithm}))
    gloo = values(run_ranks(_ddp_body, 20, world=3, backend="gloo"))
    assert len(set(netfold)) == 1, "the ranks differ"
    torch.testing.assert_close(_as_tensor(netfold[0]), _as_tensor(gloo[0]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wire", ["fp32", "bfp"])
def test_two_runs_of_a_ring_give_the_same_parameters(wire: str) -> None:
    environment = {"NETFOLD_ALGORITHM": "ring", "NETFOLD_FORMAT": wire}
    runs = [run for _ in range(2) for run in values(run_ranks(_ddp_body, 10, world=4, environment=environment))]
    assert len(set(runs)) == 1


@pytest.mark.parametrize("wire", ["fp32", "bfp"])
def test_faults_and_timing_do_not_show_in_the_parameters(wire: str) -> None:
    runs = []
    for faults in ("", FAULTS.format(seed="{rank}1"), FAULTS.format(seed="{rank}2")):
        environment = {"NETFOLD_FORMAT": wire, "NETFOLD_FAULTS": faults}
        runs += values(run_ranks(_ddp_body, 10, world=4, environment=environment))
    assert len(set(runs)) == 1


def _fsdp_body(rank: int, steps: int) -> tuple[bytes, list[float]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = _model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    losses = _steps(model, rank, steps)
    whole = torch.cat([parameter.full_tensor().detach().flatten() for parameter in model.parameters()])
    return whole.numpy().tobytes(), losses


def test_fsdp2_trains() -> None:
    sharded = values(run_ranks(_fsdp_body, 10))
    replicated = values(run_ranks(_ddp_body, 10))
    assert sharded[0][0] == sharded[1][0]
    torch.testing.assert_close(_as_tensor(sharded[0][0]), _as_tensor(replicated[0]), rtol=1e-4, atol=1e-5)


def _compiled_body(rank: int, steps: int) -> tuple[bytes, int]:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    model = DistributedDataParallel(_model())  # which copies rank 0's parameters, through the switch too
    before = backend.stats()["reduced_elements"]
    compiled = torch.compile(model)
    _steps(compiled, rank, steps)
    folded = backend.stats()["reduced_elements"] - before
    return _flat(model.module).numpy().tobytes(), folded


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_ddp_trains() -> None:
    compiled = values(run_ranks(_compiled_body, 5, timeout_s=200))
    eager = values(run_ranks(_ddp_body, 5))
    assert compiled[0] == compiled[1]
    beside = compiled[0][1] - 5 * _flat(_model()).numel()
    assert 0 <= beside < 100, "DDP copies the order of its buckets, and sums gradients, each once"
    torch.testing.assert_close(_as_tensor(compiled[0][0]), _as_tensor(eager[0]), rtol=1e-4, atol=1e-5)


class _Point(nn.Module):
    """A point that is drawn to a target."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(256))

    def forward(self, target: torch.Tensor) -> torch.Tensor:
        return (self.place - target).square().sum() / 2


def _feedback_body(rank: int, with_feedback: bool, beside: bool) -> float:
    from netfold.torch import ErrorFeedbackState, bfp_error_feedback_hook, connect, fold_hook

    model = DistributedDataParallel(_Point())
    group = connect() if beside else None
    if with_feedback:
        model.register_comm_hook(ErrorFeedbackState(group), bfp_error_feedback_hook)
    elif group is not None:
        model.register_comm_hook(group, fold_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    wanted = torch.linspace(-1.0, 1.0, 256)
    # Large numbers that cancel between the two ranks, one a block: beside them all else is too small for the mantissa.
    pulls = torch.zeros(256)
    pulls[::128] = 10.0 if rank == 0 else -10.0
    for _ in range(500):
        optimizer.zero_grad()
        model(wanted + pulls).backward()
        optimizer.step()
    return (model.module.place.detach() - wanted).abs().mean().item()


@pytest.mark.parametrize("backend", ["netfold", "gloo"])
def test_error_feedback_learns_what_the_wire_rounds_away(backend: str) -> None:
    coarse = {"NETFOLD_FORMAT": "bfp", "NETFOLD_BFP": "128,2"}
    beside = backend != "netfold"
    without = values(run_ranks(_feedback_body, False, beside, backend=backend, environment=coarse))
    feedback = values(run_ranks(_feedback_body, True, beside, backend=backend, environment=coarse))
    assert min(without) > 0.4, "without feedback nothing small is learned"
    assert max(feedback) < 0.05


def _power_sgd_body(rank: int) -> list[float]:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    model = DistributedDataParallel(_model())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    losses = _steps(model, rank, 30)
    return [sum(losses[:5]) / 5, sum(losses[-5:]) / 5]


def test_hooks_may_all_reduce_and_wait_in_callbacks() -> None:
    """PowerSGD waits for an all-reduce inside a `then` of another: the thread that completes folds must not block."""
    for first, last in values(run_ranks(_power_sgd_body, timeout_s=40)):
        assert last < 0.6 * first


def _residual_body(rank: int) -> None:
    """The sent part and the kept part add up to the original, to the last bit."""
    from netfold import _core
    from netfold.torch import ErrorFeedbackState, bfp_error_feedback_hook

    class Bucket:
        def __init__(self, gradient: torch.Tensor) -> None:
            self.gradient = gradient

        def buffer(self) -> torch.Tensor:
            return self.gradient

        def index(self) -> int:
            return 0

        def parameters(self) -> list[torch.Tensor]:
            return []

    state = ErrorFeedbackState()
    gradient = torch.randn(1000, generator=torch.Generator().manual_seed(rank))
    sent = torch.from_numpy(_core.decode(_core.encode(gradient.numpy()), 1000))
    bfp_error_feedback_hook(state, Bucket(gradient.clone())).wait()  # type: ignore[arg-type]
    assert torch.equal(state.residuals[0][1] + sent, gradient)
    overflow = torch.full((1000,), float("inf"))
    result = bfp_error_feedback_hook(state, Bucket(overflow)).wait()  # type: ignore[arg-type]
    assert result.isnan().all()
    assert torch.equal(state.residuals[0][1], torch.zeros(1000))


def test_residuals_are_exact() -> None:
    values(run_ranks(_residual_body, environment={"NETFOLD_FORMAT": "bfp"}))


def _hook_by_option_body(rank: int, meeting: str, detail: bool) -> None:
    """The group's own options count, not the environment, also behind DETAIL's wrapper."""
    from netfold.torch import ErrorFeedbackState, Options, bfp_error_feedback_hook

    if detail:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
    options = Options(format="bfp", bfp=(32, 5))
    dist.init_process_group("netfold", init_method=f"file://{meeting}", rank=rank, world_size=2, pg_options=options)
    exact = dist.new_group(pg_options=Options(format="fp32"))
    assert ErrorFeedbackState().bfp_shape() == (32, 5)
    with pytest.raises(ValueError, match="NETFOLD_FORMAT=bfp"):
        ErrorFeedbackState(exact).bfp_shape()
    model = DistributedDataParallel(_Point())
    model.register_comm_hook(ErrorFeedbackState(), bfp_error_feedback_hook)
    model(torch.ones(256)).backward()
    assert model.module.place.grad is not None


@pytest.mark.parametrize("detail", [False, True])
def test_the_hook_finds_its_group(detail: bool) -> None:
    values(run_ranks(_hook_by_option_body, detail, joins=False))


def _hook_half_body(rank: int) -> None:
    from netfold.torch import ErrorFeedbackState, bfp_error_feedback_hook

    model = DistributedDataParallel(_Point().half())
    model.register_comm_hook(ErrorFeedbackState(), bfp_error_feedback_hook)
    with pytest.raises(ValueError, match=r"float32 gradients, not torch\.float16"):
        model(torch.ones(256).half()).backward()


def test_the_hook_refuses_other_types() -> None:
    values(run_ranks(_hook_half_body, environment={"NETFOLD_FORMAT": "bfp"}))


def _hook_without_bfp_body(rank: int) -> None:
    from netfold.torch import ErrorFeedbackState

    with pytest.raises(ValueError, match="NETFOLD_FORMAT=bfp"):
        ErrorFeedbackState().bfp_shape()


def test_the_hook_refuses_a_group_without_bfp() -> None:
    values(run_ranks(_hook_without_bfp_body))
