"""The flow simulator: it equals known formulas, has the rates of a simple solver, and its errors name the cause."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import netfold
from netfold import _core
from netfold.timeline import timeline
from netfold_lab.schedules.goal import goal

RATE = 100e9
BIGRAPH = _core.Topology.bigraph(4, 16, rate_bit_s=RATE)
SHAPE = {"sub_nodes": 4, "switches": 16}


def simulate(algorithm: str, count: int, **options: object) -> dict[str, object]:
    return _core.simulate(BIGRAPH, algorithm, count, spread="destination", **{**SHAPE, **options})


@pytest.mark.parametrize("start", ["lock-step", "own-receive", "rendezvous"])
@pytest.mark.parametrize(("algorithm", "steps"), [("ring", 126), ("hdrm", 12)])
def test_what_has_links_of_its_own_takes_the_bound(algorithm: str, steps: int, start: str) -> None:
    found = simulate(algorithm, 1 << 16, start=start, step_latency_s=7e-6)
    assert found["time_s"] == pytest.approx(steps * 7e-6 + 2 * 63 / 64 * (1 << 16) * 32 / RATE, rel=1e-9)


def test_four_pairs_on_one_cable_take_four_times_as_long() -> None:
    found = simulate("halving-doubling", 1 << 16, start="lock-step")
    within = 2 * (1 / 2 + 1 / 4)  # of the tensor: distances 1 and 2 stay at one switch
    across = 2 * 4 * (1 / 8 + 1 / 16 + 1 / 32 + 1 / 64)
    assert found["time_s"] == pytest.approx((within + across) * (1 << 16) * 32 / RATE, rel=1e-9)


@st.composite
def flows(draw: st.DrawFn) -> tuple[list[float], list[list[int]], list[float]]:
    capacities = draw(st.lists(st.integers(1, 8).map(float), min_size=1, max_size=6))
    path = st.lists(st.integers(0, len(capacities) - 1), min_size=1, max_size=4)
    paths = draw(st.lists(path, min_size=1, max_size=8))
    sizes = draw(st.lists(st.integers(1, 50).map(float), min_size=len(paths), max_size=len(paths)))
    return capacities, paths, sizes


def plainly(capacities: list[float], paths: list[list[int]], sizes: list[float]) -> list[float]:
    """The end of each flow, with all rates computed again after each end."""
    left, ends, now = dict(enumerate(sizes)), [0.0] * len(sizes), 0.0
    while left:
        order = sorted(left)
        rates = dict(zip(order, _core.max_min(np.array(capacities), [paths[i] for i in order]), strict=True))
        step = min(left[i] / rates[i] for i in order)
        now += step
        for i in order:
            left[i] -= rates[i] * step
            if left[i] <= 1e-9 * sizes[i]:
                ends[i] = now
                del left[i]
    return ends


@settings(deadline=None, max_examples=200)
@given(flows())
def test_flows_end_when_the_plain_solver_says(case: tuple[list[float], list[list[int]], list[float]]) -> None:
    capacities, paths, sizes = case
    first = np.cumsum([0, *map(len, paths)]).astype(np.int32)
    path = np.array([resource for each in paths for resource in each], dtype=np.int32)
    found = _core.simulate_flows(np.array(capacities), np.array(sizes), first, path)
    assert found["end_s"] == pytest.approx(plainly(capacities, paths, sizes), rel=1e-6)


STARTS = ["lock-step", "own-receive", "rendezvous"]
NETWORKS = {
    "bigraph": (BIGRAPH, "destination"),
    "bigraph, hashed": (BIGRAPH, "hash"),
    "fat tree": (_core.Topology.fat_tree(4, 16, rate_bit_s=RATE, latency_s=1e-6), "hash"),
    "torus": (_core.Topology.torus(8, 8, 1, rate_bit_s=RATE, latency_s=1e-6), "hash"),
    "dragonfly": (_core.Topology.dragonfly(8, 4, 2, rate_bit_s=RATE, latency_s=1e-6), "hash"),
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("algorithm", ["ring", "hdrm", "halving-doubling", "double-binary-tree"])
@pytest.mark.parametrize("count", [1 << 14, 12345])
def test_symmetry_changes_nothing(algorithm: str, start: str, network: str, count: int) -> None:
    topology, spread = NETWORKS[network]
    options = {"start": start, "step_latency_s": 1e-6, "spread": spread, "seed": 3, **SHAPE}
    used = _core.simulate(topology, algorithm, count, symmetry=True, **options)
    plain = _core.simulate(topology, algorithm, count, symmetry=False, **options)
    assert used["time_s"] == pytest.approx(plain["time_s"], rel=1e-11)
    assert used["bits_by_resource"] == pytest.approx(plain["bits_by_resource"], rel=1e-11)


def test_a_ring_is_simulated_once_whatever_its_length() -> None:
    large = _core.Topology.bigraph(16, 64, rate_bit_s=RATE)
    found = _core.simulate(large, "ring", 1 << 20, start="own-receive", spread="destination")
    assert (found["kinds"], found["rates_given"]) == (2, 2 * 1024), "2046 steps of two kinds: folds and stores"
    assert found["time_s"] == pytest.approx(2 * 1023 / 1024 * (1 << 20) * 32 / RATE, rel=1e-9)


def test_a_seed_repeats_a_run_and_another_one_is_another_run() -> None:
    topology, spread = NETWORKS["fat tree"]

    def times(seeds: list[int]) -> list[float]:
        found = _core.simulate(topology, "halving-doubling", 1 << 16, start="own-receive", spread=spread, seeds=seeds)
        return found["time_s_by_seed"].tolist()

    assert times([0, 1, 2, 3]) == times([0, 1, 2, 3])
    assert times([3]) == times([0, 1, 2, 3])[3:]
    assert len(set(times(list(range(8))))) > 1


def test_pieces_overtake_where_elements_allow_it() -> None:
    star = _core.Topology.star(4, rate_bit_s=RATE, latency_s=1e-6)
    found = _core.simulate(star, "ring", 1 << 20, start="pieces", piece_count=1 << 12)
    # A rank is never without something to send; the first piece of each of six steps has two links to cross.
    wire = 6 / 4 * (1 << 20) * 32 / RATE
    assert wire + 2e-6 < found["time_s"] < wire + 6 * 2e-6 + 1e-6


def test_own_receive_equals_a_simulation_that_computes_everything_anew() -> None:
    for shape in ((1, 4), (2, 4), (2, 8)):
        topology = _core.Topology.fat_tree(*shape, rate_bit_s=RATE, latency_s=500e-9)
        options = {"sub_nodes": shape[0], "switches": shape[1]}
        found = _core.simulate(topology, "halving-doubling", 1 << 20, start="own-receive", **options)
        assert found["time_s"] == pytest.approx(_anew(topology, "halving-doubling", 1 << 20), rel=1e-9)


def _anew(topology: Any, algorithm: str, count: int) -> float:
    """The end of an all-reduce whose ranks send a step's elements when those of the last step have arrived."""
    world, capacity, links = len(topology.hosts), topology.capacity_bit_s, topology.links
    steps = [netfold.schedule(algorithm, world, rank, count) for rank in range(world)]
    at, sent = [0] * world, dict[tuple[int, int], int]()
    flying: dict[tuple[int, int, int], list[Any]] = {}
    landed: set[tuple[int, int, int]] = set()
    now = 0.0

    def begin(rank: int) -> None:
        for action, peer, _, elements in steps[rank][at[rank]] if at[rank] < len(steps[rank]) else ():
            if action == "send":
                turn = sent[rank, peer] = sent.get((rank, peer), -1) + 1
                path = topology.path(rank, peer)
                latency = sum(float(links["latency_s"][link]) for link in path)
                resources = [int(links["resource"][link]) for link in path]
                flying[rank, peer, turn] = [elements * 32.0, now + latency, resources]

    def awaited(rank: int) -> list[tuple[int, int, int]]:
        turns, found = dict[int, int](), []
        for step in range(at[rank] + 1):
            for action, peer, _, _ in steps[rank][step]:
                if action != "send":
                    turns[peer] = turns.get(peer, -1) + 1
                    found.append((step, (peer, rank, turns[peer])))
        return [message for step, message in found if step == at[rank]]

    for rank in range(world):
        begin(rank)
    while flying:
        moving = [key for key, (_, first_s, _) in flying.items() if first_s <= now + 1e-15]
        rates = dict(zip(moving, _core.max_min(capacity, [flying[key][2] for key in moving]), strict=True))
        ends = [flying[key][0] / rates[key] for key in moving]
        lasts = min(ends + [first_s - now for key, (_, first_s, _) in flying.items() if key not in rates])
        now += lasts
        for key in moving:
            flying[key][0] -= rates[key] * lasts
            if flying[key][0] <= 1e-6:
                landed.add(key)
                del flying[key]
        moved = True
        while moved:
            moved = False
            for rank in range(world):
                if at[rank] < len(steps[rank]) and landed.issuperset(awaited(rank)):
                    at[rank] += 1
                    begin(rank)
                    moved = True
    return now


def folding_star(hosts: int, fold_bit_s: float) -> Any:
    star = _core.Topology.star(hosts, rate_bit_s=RATE, latency_s=1e-6)
    star.set_fold_rate(0, fold_bit_s)
    return star


def test_a_fold_in_the_network_takes_every_link_once() -> None:
    bits = (1 << 20) * 32
    assert _core.simulate(folding_star(8, 1e15), "in-network", 1 << 20)["time_s"] == pytest.approx(bits / RATE + 2e-6)
    slow = _core.simulate(folding_star(8, 400e9), "in-network", 1 << 20)["time_s"]
    assert slow == pytest.approx(8 * bits / 400e9 + 2e-6), "eight operands, and a fold rate of four links"


def test_who_does_not_fold_passes_all_operands_on() -> None:
    tree = _core.Topology.leaf_spine(2, 1, 4, rate_bit_s=RATE)
    tree.set_fold_rate(0, 1e15)  # the spine
    assert _core.simulate(tree, "in-network", 1 << 20)["time_s"] == pytest.approx(4 * (1 << 20) * 32 / RATE)
    for leaf in (1, 2):
        tree.set_fold_rate(leaf, 1e15)
    assert _core.simulate(tree, "in-network", 1 << 20)["time_s"] == pytest.approx((1 << 20) * 32 / RATE)


@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling", "recursive-doubling"])
def test_goal_text_takes_as_long_as_the_schedule_that_it_was_written_from(algorithm: str) -> None:
    star = _core.Topology.star(8, rate_bit_s=RATE, latency_s=1e-6)
    text = "\n".join(goal(timeline(algorithm, 8, 1 << 16), 4, 1e12))
    found = _core.simulate_workload(star, _core.Workload.goal(text))
    # GOAL waits for sends as well, but not for a receiver that is late; in a symmetric schedule no receiver is late.
    expected = _core.simulate(star, algorithm, 1 << 16, start="rendezvous")["time_s"]
    assert found["time_s"] == pytest.approx(expected, rel=1e-6)


def apart() -> Any:
    topology = _core.Topology()
    for name in ("a", "b"):
        switch = topology.add_switch(f"switch of {name}")
        topology.add_cable(topology.add_host(name), switch, capacity_bit_s=RATE)
    return topology


def rated(rate_bit_s: float) -> Any:
    topology = _core.Topology()
    one, other = topology.add_host("one"), topology.add_host("other")
    topology.add_link(one, other, capacity_bit_s=rate_bit_s)
    topology.add_link(other, one, capacity_bit_s=RATE)
    return topology


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: _core.simulate(apart(), "ring", 8), "no way from a to b"),
        (lambda: _core.simulate(rated(0.0), "ring", 8), "one -> other has a rate of 0 bit/s"),
        (lambda: _core.simulate(rated(-5.0), "ring", 8), "one -> other has a rate of -5 bit/s"),
        (lambda: _core.simulate(rated(float("nan")), "ring", 8), "one -> other has a rate of nan"),
        (lambda: _core.Topology.bigraph(4, 6, rate_bit_s=RATE), "both are powers of two"),
        (lambda: _core.Topology.bigraph(4, 7, rate_bit_s=RATE), "both are powers of two"),
        (lambda: _core.Topology.bigraph(8, 8, rate_bit_s=RATE), "has 4 cables to the other half"),
        (lambda: _core.Topology.bigraph(2, 4, rate_bit_s=0), "cables of 0 bit/s"),
        (lambda: _core.Topology.torus(2, 0, rate_bit_s=RATE), "0 columns"),
        (lambda: _core.Topology.star(2, rate_bit_s=RATE, latency_s=-1), "latency of -1 s"),
        (lambda: simulate("ring", 8, hosts=[0, 1, 1]), "ranks 1 and 2 are both placed on host 1"),
        (lambda: simulate("ring", 8, hosts=[0, 64]), "rank 1 is placed on host 64, and there are 64"),
        (lambda: simulate("ring", 8, world=65), "65 ranks, and places for 64"),
        (lambda: simulate("hdrm", 8, order=[0] * 64), "'order' must name each of the 64 ranks once"),
        (lambda: simulate("hdrm", 8, switches=8), "4 sub-nodes x 8 switches are not 64 ranks"),
        (lambda: simulate("ring", 8, start="soon"), "'soon' says not when"),
        (lambda: simulate("in-network", 8), "no switch of this topology folds"),
        (lambda: simulate("nothing", 8), "no algorithm is called 'nothing'"),
        (lambda: flow(np.array([[0, 1], [1, 0]], dtype=np.int32)), "waits for what never comes"),
        (lambda: flow(capacity=0.0), "resource 0 has a rate that is not above 0"),
        (lambda: flow(path=3), "path names resources"),
    ],
)
def test_what_cannot_be_is_an_error_that_names_it(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


def flow(needs: Any = None, capacity: float = 1.0, path: int = 0) -> Any:
    first, resources = np.array([0, 1, 2], dtype=np.int32), np.array([path, path], dtype=np.int32)
    return _core.simulate_flows(np.array([capacity]), np.array([1.0, 1.0]), first, resources, needs=needs)
