"""Compares packets with flows; and the deadlock of a lossless network: proved, shown, and avoided by a second
priority."""

from __future__ import annotations

import signal
from itertools import pairwise
from typing import Any

import pytest

from netfold import _core

RATE = 100e9
PAUSE_BYTES, PACKET_BYTES = 100e3, 4096
CABLE = {"rate_bit_s": RATE, "latency_s": 500e-9}


def both(topology: Any, workload: Any, spread: str, **settings: Any) -> tuple[float, dict[str, Any]]:
    flows = _core.simulate_workload(topology, workload, spread=spread)["time_s"]
    return flows, _core.simulate_packets(
        topology, workload, spread=spread, priorities="hop", priority_count=2, cut_through=True, **settings
    )


@pytest.mark.parametrize(("sub_nodes", "switches"), [(2, 8), (4, 16), (8, 32)])
@pytest.mark.parametrize(("kind", "spread"), [("bigraph", "destination"), ("bigraph", "hash"), ("fat_tree", "hash")])
@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling", "hdrm"])
def test_packets_take_as_long_as_flows(algorithm: str, kind: str, spread: str, sub_nodes: int, switches: int) -> None:
    topology = getattr(_core.Topology, kind)(sub_nodes, switches, **CABLE)
    shape = {"sub_nodes": sub_nodes, "switches": switches}
    workload = _core.Workload.collective(algorithm, sub_nodes * switches, 1 << 18, start="lock-step", **shape)
    flows, packets = both(topology, workload, spread)
    assert packets["time_s"] == pytest.approx(flows, rel=0.05)
    # What is on its way while a pause is: a latency each way at full rate, and packets begun at both ends.
    headroom = RATE / 8 * 2 * CABLE["latency_s"] + 2 * PACKET_BYTES
    assert packets["buffer_max_bytes"] <= PAUSE_BYTES + headroom, "a buffer of this size loses nothing"


@pytest.mark.parametrize("fold_bit_s", [1e12, 300e9])
def test_a_fold_of_packets_takes_as_long_as_one_of_flows(fold_bit_s: float) -> None:
    star = _core.Topology.star(8, **CABLE)
    star.set_fold_rate(0, fold_bit_s)
    flows, packets = both(star, _core.Workload.collective("in-network", 8, 1 << 20), "hash")
    assert packets["time_s"] == pytest.approx(flows, rel=0.05)
    tree = _core.Topology.leaf_spine(4, 1, 4, **CABLE)
    for switch in range(5):
        tree.set_fold_rate(switch, fold_bit_s * 10)
    flows, packets = both(tree, _core.Workload.collective("in-network", 16, 1 << 20), "hash")
    assert packets["time_s"] == pytest.approx(flows, rel=0.05)


def test_few_slots_hold_a_fold_up() -> None:
    star = _core.Topology.star(8, rate_bit_s=RATE, latency_s=10e-6)
    star.set_fold_rate(0, 1e13)
    workload = _core.Workload.collective("in-network", 8, 1 << 20)
    times = {slots: _core.simulate_packets(star, workload, slots=slots)["time_s"] for slots in (4, 16, 256)}
    assert times[4] > 2 * times[16] > 2 * times[256], "four packets a round trip of 40 us are 3 Gbit/s"


def figure_7(sub_nodes: int) -> tuple[Any, list[tuple[int, int]]]:
    """A BiGraph of four switches, and flows that start and end on one side and turn on the other: each of the four
    cables round is the first of some and the second of others."""
    topology = _core.Topology.bigraph(sub_nodes, 4, **CABLE)
    links, hosts = topology.links, topology.hosts.tolist()
    between = {ends: at for at, ends in enumerate(zip(links["from"].tolist(), links["to"].tolist(), strict=True))}
    around, flows = [0, 2, 1, 3], []
    for at, first in enumerate(around):
        turn, last = around[(at + 1) % 4], around[(at + 2) % 4]
        for port in range(sub_nodes):
            sender, receiver = first * sub_nodes + port, last * sub_nodes + port
            nodes = [hosts[sender], first, turn, last, hosts[receiver]]
            topology.set_path(sender, receiver, [between[ends] for ends in pairwise(nodes)])
            flows.append((sender, receiver))
    return topology, flows


@pytest.mark.parametrize("sub_nodes", [1, 2])
@pytest.mark.parametrize("cut_through", [False, True])
def test_figure_7_stops_with_one_priority_and_not_with_two(sub_nodes: int, cut_through: bool) -> None:
    topology, flows = figure_7(sub_nodes)
    workload = _core.Workload.flows(flows, 4 << 20)
    settings = {"cut_through": cut_through, "fair_queues": False}
    stopped = _core.simulate_packets(topology, workload, priorities="one", **settings)
    assert stopped["is_deadlocked"]
    circle = [held["name"] for held in stopped["waiting"]]
    assert sorted(circle) == ["lower 0 -> upper 1", "lower 1 -> upper 0", "upper 0 -> lower 0", "upper 1 -> lower 1"]
    for rule in ("half", "hop"):
        free = _core.simulate_packets(topology, workload, priorities=rule, **settings)
        assert not free["is_deadlocked"]
        expected = 2 * sub_nodes * (4 << 20) * 8 / RATE
        assert free["time_s"] == pytest.approx(expected, rel=0.02), "two flows of each server share a cable"
    assert not _core.check_deadlock(topology, priorities="one", flows=flows)["is_free"]
    assert _core.check_deadlock(topology, priorities="half", flows=flows)["is_free"]


def free(topology: Any, spread: str, priorities: str, count: int = 2) -> bool:
    return _core.check_deadlock(topology, spread=spread, priorities=priorities, priority_count=count)["is_free"]


def test_a_bigraph_is_free_with_two_priorities_and_with_fixed_routes() -> None:
    bigraph = _core.Topology.bigraph(4, 16, **CABLE)
    assert not free(bigraph, "hash", "one")
    assert free(bigraph, "hash", "half")
    assert free(bigraph, "hash", "hop")
    # The switch on the way is the destination's number: no buffer on the way back ever waits for one on the way out.
    assert free(bigraph, "destination", "one")


def test_what_crosses_a_bigraph_once_needs_no_second_priority() -> None:
    bigraph = _core.Topology.bigraph(4, 16, **CABLE)
    across = [(host, 32 + host) for host in range(32)] + [(32 + host, host) for host in range(32)]
    assert _core.check_deadlock(bigraph, flows=across)["is_free"]


@pytest.mark.parametrize("shape", [(2, 1, 1), (8, 4, 4), (4, 2, 16), (3, 5, 7)])
def test_up_and_down_never_deadlocks(shape: tuple[int, int, int]) -> None:
    assert free(_core.Topology.leaf_spine(*shape, **CABLE), "hash", "one"), "whatever its oversubscription"


@pytest.mark.parametrize("shape", [(3, 3, 1), (4, 4, 1), (4, 6, 2)])
def test_a_torus_deadlocks_and_is_free_with_a_priority_a_hop(shape: tuple[int, int, int]) -> None:
    torus = _core.Topology.torus(*shape, **CABLE)
    hops = shape[0] // 2 + shape[1] // 2
    assert not free(torus, "hash", "one")
    assert not free(torus, "hash", "hop", hops - 1)
    assert free(torus, "hash", "hop", hops)


@pytest.mark.parametrize("shape", [(5, 4, 2), (9, 4, 2)])
def test_a_dragonfly_deadlocks_and_is_free_with_three_priorities(shape: tuple[int, int, int]) -> None:
    dragonfly = _core.Topology.dragonfly(*shape, **CABLE)
    assert not free(dragonfly, "hash", "one")
    assert free(dragonfly, "hash", "hop", 3), "within a group, between groups, within a group"


def test_the_circle_that_is_found_is_one() -> None:
    torus = _core.Topology.torus(4, 4, 1, **CABLE)
    cycle = _core.check_deadlock(torus)["cycle"]
    links = torus.links
    for held, following in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        assert links["to"][held["link"]] == links["from"][following["link"]]
        path = torus.path(held["from_host"], held["to_host"])
        assert held["link"] in path or len(path) > 2, "a flow that may be there by some route"


def test_settings_that_make_no_sense_are_errors() -> None:
    star, pair = _core.Topology.star(2, **CABLE), _core.Workload.flows([(0, 1)], 1000)
    for settings, said in (
        ({"packet_bytes": 0.0}, "a packet has one byte"),
        ({"pause_bytes": 1000.0}, "no room for a packet"),
        ({"resume_bytes": 1e9}, "fewer bytes"),
        ({"slots": 0}, "one slot or more"),
        ({"priorities": "many"}, "not a rule for priorities"),
    ):
        with pytest.raises(ValueError, match=said):
            _core.simulate_packets(star, pair, **settings)


def test_what_would_take_hours_is_an_error_at_once() -> None:
    star, pair = _core.Topology.star(2, **CABLE), _core.Workload.flows([(0, 1)], 1e13)
    with pytest.raises(ValueError, match="more than 100000000 packets"):
        _core.simulate_packets(star, pair)


def test_a_long_simulation_can_be_interrupted() -> None:
    bigraph = _core.Topology.bigraph(8, 32, **CABLE)
    long = _core.Workload.collective("hdrm", 256, 1 << 26, start="lock-step", sub_nodes=8, switches=32)
    previous = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            _core.simulate_packets(bigraph, long)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
