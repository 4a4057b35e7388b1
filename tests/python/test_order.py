"""The order of summation: with NETFOLD_ORDER=rank every sum has the bits of the in-network fold."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from netfold import _core
from netfold.algorithms import ANY, AUTO, RANK, HostPlan, choose, in_rank_order, sums_in_rank_order
from netfold.torch.options import load
from torch_ranks import run_ranks, values

MIB = 1 << 20
COUNT = 50_000  # of a rank's part


def test_auto_keeps_what_sums_in_rank_order() -> None:
    plan = HostPlan(AUTO, order=RANK)
    taken = [plan.for_tensor(size, world)["algorithm"] for world in (8, 5) for size in (4, MIB, 16 * MIB)]
    assert taken == ["recursive-doubling", "halving-doubling", "direct", *["direct"] * 3]
    assert plan.for_tensor(4, 8, wire="bfp") == {"algorithm": "direct"}, "partial sums would be rounded on the way"
    assert plan.for_tensor(16 * MIB, 2) == {"algorithm": "ring"}, "two ranks have one order"
    assert HostPlan(AUTO, (2, 4), order=RANK).for_tensor(4 * MIB, 8) == {"algorithm": "direct"}
    assert HostPlan("split", order=RANK).for_tensor(4, 8) == {"algorithm": "split"}
    assert in_rank_order(choose, "fp32")(16 * MIB, 8) == "direct"


def test_a_reduce_scatter_takes_the_ring_where_any_order_will_do() -> None:
    assert HostPlan(AUTO).for_reduce_scatter(8, "fp32") == {"algorithm": "ring"}
    assert HostPlan(AUTO, order=RANK).for_reduce_scatter(8, "fp32") == {"algorithm": "direct"}
    assert HostPlan(AUTO, order=RANK).for_reduce_scatter(2, "fp32") == {"algorithm": "ring"}


@pytest.mark.parametrize(
    ("algorithm", "world", "wire"),
    [("ring", 4, "fp32"), ("halving-doubling", 5, "fp32"), ("halving-doubling", 4, "bfp"), ("hierarchical", 4, "fp32")],
)
def test_a_named_algorithm_must_have_the_order(algorithm: str, world: int, wire: str) -> None:
    assert not sums_in_rank_order(algorithm, world, wire)
    with pytest.raises(ValueError, match="NETFOLD_ORDER=any"):
        HostPlan(algorithm, group=2, order=RANK).check(world, wire)
    HostPlan(algorithm, group=2, order=ANY).check(world, wire)


def test_a_format_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="'fp8' is not a format"):
        sums_in_rank_order("ring", 4, "fp8")


@pytest.mark.parametrize(
    ("environment", "order"),
    [
        ({}, ANY),
        ({"NETFOLD_SWITCH": "10.0.0.5:7171"}, RANK),
        ({"NETFOLD_ALGORITHM": "split"}, RANK),
        ({"NETFOLD_ALGORITHM": "split", "NETFOLD_ORDER": "any"}, ANY),
        ({"NETFOLD_ALGORITHM": "direct", "NETFOLD_ORDER": "rank"}, RANK),
    ],
)
def test_with_a_switch_the_order_is_the_switchs(environment: dict[str, str], order: str) -> None:
    assert load(None, environment).order_to_take() == order


def _gradients(rank: int, world: int) -> torch.Tensor:
    return torch.randn(world * COUNT, generator=torch.Generator().manual_seed(rank))


def _bits_body(rank: int, world: int) -> list[bytes]:
    whole, part = _gradients(rank, world), torch.empty(COUNT)
    dist.reduce_scatter_tensor(part, whole)
    dist.all_reduce(whole)
    return [whole.numpy().tobytes(), part.numpy().tobytes()]


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("no_rank_left")
@pytest.mark.parametrize("algorithm", ["", "in-network", "split", "direct", "binomial"])
def test_every_way_has_the_bits_of_the_fold(algorithm: str) -> None:
    world = 3
    fold = _core.fold([_gradients(rank, world).numpy() for rank in range(world)]).tobytes()
    environment = {"NETFOLD_ORDER": "rank", "NETFOLD_ALGORITHM": algorithm}
    results = values(run_ranks(_bits_body, world, world=world, environment=environment))
    for rank, (whole, part) in enumerate(results):
        assert whole == fold
        assert part == fold[rank * len(part) : (rank + 1) * len(part)]


def _refused_body(rank: int) -> None:
    raise AssertionError("the group must not come to be")


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("no_rank_left")
def test_every_rank_hears_that_the_ring_has_another_order() -> None:
    environment = {"NETFOLD_ORDER": "rank", "NETFOLD_ALGORITHM": "ring"}
    for answer in run_ranks(_refused_body, world=3, environment=environment):
        assert "ring does not support this group of 3 ranks: it does not sum in rank order" in str(answer)
