"""The places of workers: the topology file, wirings and their routes, and PyTorch ranks that are reordered by it."""

from __future__ import annotations

import os
import random
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import netfold
from netfold.algorithms import AUTO, HostPlan
from netfold.topology import file as topology_file
from netfold.topology.file import Topology
from netfold.topology.places import Places, place
from netfold.topology.wiring import BIGRAPH, FAT_TREE, Wiring
from netfold.torch.options import load
from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster.spec import read as read_cluster
from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_rank_left")]
SHAPES = [(1, 2), (1, 8), (2, 4), (2, 8), (4, 8), (4, 16), (8, 16)]
FOUR = "upper:\n  s1: [127.0.0.4]\n  s2: [127.0.0.1]\nlower:\n  s3: [127.0.0.3]\n  s4: [127.0.0.2]\n"
TWO_OF_TWO = "upper:\n  s1: [a, b]\nlower:\n  s2: [c, d]\n"


def cables_by_step(
    collective: str, shape: tuple[int, int], order: list[int], wiring: Wiring, spots: list[int]
) -> dict[str, Counter[tuple[int, int]]]:
    """The connections on each cable, in one direction, step by step. `spots`: each rank's position in the wiring."""
    world, (sub_nodes, switches) = len(spots), shape
    inner = set(order[: sub_nodes * switches])
    counted: dict[str, Counter[tuple[int, int]]] = {}
    for rank in range(world):
        options = {"sub_nodes": sub_nodes, "switches": switches, "order": order}
        swaps = 0
        for transfers in netfold.schedule("hdrm", world, rank, 16 * world, collective=collective, **options):
            peers = {peer for _, peer, _, _ in transfers}
            is_swap = rank in inner and peers <= inner
            step = f"swap {swaps}" if is_swap else f"extras, {transfers[0][0]}, {rank in inner}"
            swaps += is_swap
            for peer in {peer for action, peer, _, _ in transfers if action == "send"}:
                counted.setdefault(step, Counter()).update(wiring.path(spots[rank], spots[peer]))
    return counted


@pytest.mark.parametrize("collective", ["all-reduce", "reduce-scatter", "all-gather"])
@pytest.mark.parametrize(("sub_nodes", "switches"), SHAPES)
def test_hdrm_gives_every_connection_a_link_whatever_the_ranks(sub_nodes: int, switches: int, collective: str) -> None:
    wiring = Wiring(BIGRAPH, sub_nodes, switches)
    order = [(7 * rank + 3) % wiring.workers for rank in range(wiring.workers)]
    spots = [order.index(rank) for rank in range(wiring.workers)]
    for cables in cables_by_step(collective, (sub_nodes, switches), order, wiring, spots).values():
        assert set(cables.values()) == {1}
        assert len(cables) == wiring.workers, "every worker sends to the other half, over one cable"


def place_at(wiring: Wiring, spots: list[int]) -> Places:
    """The places of ranks at these positions."""
    switches: list[list[int]] = [[] for _ in range(wiring.switches)]
    for rank, spot in enumerate(spots):
        switches[wiring.switch_of(spot)].append(rank)
    return place(switches[: wiring.half], switches[wiring.half :])


@pytest.mark.parametrize(("sub_nodes", "switches"), SHAPES)
def test_ranks_that_fill_a_bigraph_stay_where_they_are(sub_nodes: int, switches: int) -> None:
    places = place_at(Wiring(BIGRAPH, sub_nodes, switches), list(range(sub_nodes * switches)))
    assert (places.shape, places.shared) == ((sub_nodes, switches), 1)
    assert places.order == list(range(sub_nodes * switches))


@pytest.mark.parametrize("seed", range(20))
def test_any_hosts_of_a_bigraph_are_placed(seed: int) -> None:
    draw = random.Random(seed)
    wiring = Wiring(BIGRAPH, *draw.choice(SHAPES[2:]))
    world = draw.randint(2, wiring.workers)
    spots = draw.sample(range(wiring.workers), world)
    places = place_at(wiring, spots)
    sub_nodes, switches = places.shape
    assert sub_nodes * switches == 1 << (world.bit_length() - 1)
    assert sorted(rank for rank in places.order if rank >= 0) == list(range(world))
    assert places.order.count(-1) == (len(places.order) - world)
    for collective in ("all-reduce", "reduce-scatter", "all-gather"):
        by_step = cables_by_step(collective, places.shape, places.order, wiring, spots)
        assert max((max(cables.values(), default=0) for cables in by_step.values()), default=0) == places.shared


@pytest.mark.parametrize(("hosts", "switches"), [(1, 2), (1, 4), (2, 4), (3, 8), (4, 8), (7, 16), (8, 16)])
def test_hosts_of_a_part_have_a_cable_for_each_connection(hosts: int, switches: int) -> None:
    """As many hosts at each of some switches, a power of two of these: no two connections of a step share a cable."""
    wiring = Wiring(BIGRAPH, 8, 32)
    mine = [*range(switches // 2), *range(wiring.half + 3, wiring.half + 3 + switches // 2)]
    spots = [8 * switch + (host + switch) % 8 for switch in mine for host in range(hosts)]
    random.Random(hosts).shuffle(spots)
    assert place_at(wiring, spots).shared == 1


def test_ranks_of_one_half_and_ranks_of_one_switch_are_placed() -> None:
    wiring = Wiring(BIGRAPH, 4, 8)
    assert place_at(wiring, [0, 1, 2, 3]).shared == 0
    assert place_at(wiring, [0, 4, 8, 12]).shared == 1
    with pytest.raises(ValueError, match="two ranks or more"):
        place_at(wiring, [5])


def test_first_steps_stay_inside_switches_that_have_too_few_cables() -> None:
    """Two hosts at each of two switches with one cable: two connections share it, but only those of the short step."""
    wiring = Wiring(BIGRAPH, 2, 4)
    spots = [1, 6, 0, 7]
    places = place_at(wiring, spots)
    by_step = cables_by_step("all-reduce", places.shape, places.order, wiring, spots)
    assert [max(by_step[f"swap {step}"].values(), default=0) for step in range(4)] == [0, 2, 2, 0]
    assert places.cost == 2 * (1 / 2 + 2 * 1 / 4)


def test_a_ring_is_said_to_be_faster_where_it_is() -> None:
    """Twelve ranks in the order of their hosts: four of them would hand over their whole tensor."""
    wiring = Wiring(BIGRAPH, 4, 8)
    in_order = place_at(wiring, [4 * switch + host for switch in (0, 1, 4, 5) for host in range(3)])
    assert in_order.ring_cost < 2 < in_order.cost
    eight = place_at(wiring, [4 * switch + host for host in range(2) for switch in (0, 1, 4, 5)])
    assert eight.cost < 2 <= eight.ring_cost


def test_an_order_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="each of the 2 ranks once"):
        netfold.schedule("hdrm", 2, 0, 10, sub_nodes=1, switches=2, order=[0, 0])


def test_a_fat_tree_has_the_cables_and_workers_of_the_bigraph() -> None:
    tree, graph = Wiring(FAT_TREE, 4, 8), Wiring(BIGRAPH, 4, 8)
    assert list(tree.cables()) == list(graph.cables())
    assert tree.workers == graph.workers
    assert {tree.switch_of(at) for at in range(32)} == {4, 5, 6, 7}
    assert tree.next_hops(4, 5) == [0, 1, 2, 3]
    assert graph.next_hops(4, 5) == [1]
    assert graph.next_hops(4, 2) == tree.next_hops(4, 2) == [2]


def test_paths_end_where_they_should() -> None:
    graph = Wiring(BIGRAPH, 2, 8)
    assert graph.path(0, 1) == []
    assert graph.path(0, 15) == [(0, 7)]
    assert graph.path(0, 2) == [(0, 5), (5, 1)]


def test_a_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    topology = Topology.regular(2, 4, [f"10.0.0.{at}" for at in range(8)])
    assert topology.shape == (2, 4)
    topology_file.write(tmp_path / "t.yaml", topology)
    assert topology_file.read(tmp_path / "t.yaml") == topology
    json = tmp_path / "t.json"
    json.write_text('{"upper": {"u": ["x"]}, "lower": {"l": ["y"]}}')
    assert topology_file.read(json).hosts == ("x", "y")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("upper: {a: [x]}\nlower: {b: [x]}\n", "names x twice"),
        ("upper: {a: [x]}\nlower: {a: [y]}\n", "switch a is in both halves"),
        ("upper:\n  a: [x]\n  a: [y]\nlower:\n  b: [z]\n  c: [w]\n", "a comes 2 times"),
        ("upper: {a: [17]}\nlower: {b: [x]}\n", "17 is not a string"),
        ("upper: {a: x}\nlower: {b: [y]}\n", "switch a needs a list"),
        ("upper: {a: [x]}\n", "`lower:`"),
        ("[", "is not valid YAML"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(content)
    with pytest.raises(ValueError, match=str(path)) as refusal:
        topology_file.read(path)
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (TWO_OF_TWO, "2 sub-nodes x 2 switches: a switch has 1 cables"),
        ("upper: {a: [x], b: [y]}\nlower: {c: [z]}\n", "two equal halves"),
        ("upper: {a: [x, y]}\nlower: {b: [z]}\n", "switches have 1 or 2 hosts"),
        ("upper: {a: [x], b: [y], c: [z]}\nlower: {d: [p], e: [q], f: [r]}\n", "powers of two"),
    ],
)
def test_any_bigraph_serves_a_job_but_not_the_planner(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "bigraph.yaml"
    path.write_text(content)
    topology = topology_file.read(path)
    places = topology.places([[host] for host in topology.hosts])
    assert sorted(rank for rank in places.order if rank >= 0) == list(range(len(topology.hosts)))
    with pytest.raises(ValueError, match=says):
        _ = topology.shape
    with pytest.raises(UsageError, match=says):
        read_cluster(path)


def test_ranks_find_their_positions_by_address_or_name() -> None:
    topology = Topology.regular(1, 2, ["node-b", "10.0.0.1"])
    names = [["10.0.0.1", "node-a.cluster", "node-a"], ["10.0.0.2", "node-b.cluster", "node-b"]]
    assert topology.places(names).order == [1, 0]
    with pytest.raises(ValueError, match=r"rank 1 runs on 10.0.0.3 or node-c, which"):
        topology.places([["10.0.0.1", "node-a"], ["10.0.0.3", "node-c"]])
    with pytest.raises(ValueError, match=r"ranks 0 and 1 both run on 10\.0\.0\.1"):
        topology.places([["10.0.0.1", "x"], ["10.0.0.1", "x"]])
    with pytest.raises(ValueError, match=r"host of rank 0 twice, as node-b and 10\.0\.0\.1"):
        topology.places([["10.0.0.1", "node-b"], ["10.0.0.2", "x"]])


def test_auto_takes_hdrm_for_what_is_large() -> None:
    plan = HostPlan(AUTO, (2, 4))
    assert plan.for_tensor(4 << 20, 8) == {"algorithm": "hdrm", "sub_nodes": 2, "switches": 4}
    assert plan.for_tensor(1024, 8)["algorithm"] == "recursive-doubling"
    assert plan.for_reduce_scatter(8, "fp32") == plan.for_all_gather("ring") == plan.for_tensor(4 << 20, 8)
    assert HostPlan("hdrm", (2, 4)).for_reduce_scatter(8, "fp32")["algorithm"] == "hdrm"
    assert (
        HostPlan("ring", (2, 4)).for_all_gather("ring")
        == HostPlan(AUTO).for_all_gather("ring")
        == {"algorithm": "ring"}
    )
    with pytest.raises(ValueError, match="2 sub-nodes x 4 switches are not 6 ranks"):
        plan.check(6)


def test_a_topology_asks_for_algorithms_that_use_it() -> None:
    assert load(environ={"NETFOLD_TOPOLOGY": "t.yaml"}).algorithm == AUTO
    assert load(environ={"NETFOLD_TOPOLOGY": "t.yaml", "NETFOLD_ALGORITHM": "hdrm"}).algorithm == "hdrm"
    for variable, value in (("NETFOLD_ALGORITHM", "in-network"), ("NETFOLD_BIGRAPH", "2x4")):
        with pytest.raises(ValueError, match=variable):
            load(environ={"NETFOLD_TOPOLOGY": "t.yaml", variable: value})


def _sums_body(rank: int, meeting: str, world: int) -> list[float]:
    os.environ["NETFOLD_BIND"] = f"127.0.0.{rank + 1}"
    dist.init_process_group(
        "netfold", init_method=f"file://{meeting}", rank=rank, world_size=world, timeout=timedelta(seconds=30)
    )
    tensor = torch.arange(100_003, dtype=torch.float32) % 11 + rank
    dist.all_reduce(tensor)
    exact = world * (torch.arange(100_003) % 11) + world * (world - 1) / 2
    part = dist.new_group([0, 2])
    small = torch.full((100_003,), float(rank + 1))
    if rank in (0, 2):
        dist.all_reduce(small, group=part)
    dist.barrier()
    return [float((tensor - exact).abs().max()), small[0].item()]


@pytest.mark.parametrize("algorithm", ["", AUTO])
def test_ranks_in_any_order_sum_by_it(tmp_path: Path, algorithm: str) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(FOUR)
    environment = {"NETFOLD_TOPOLOGY": str(path), "NETFOLD_ALGORITHM": algorithm}
    outcomes = values(run_ranks(_sums_body, 4, world=4, environment=environment, joins=False))
    assert outcomes == [[0.0, 4.0], [0.0, 2.0], [0.0, 4.0], [0.0, 4.0]]


EIGHT = (
    "upper:\n  s1: [127.0.0.4, 127.0.0.7]\n  s2: [127.0.0.1, 127.0.0.8]\n"
    "lower:\n  s3: [127.0.0.3, 127.0.0.6]\n  s4: [127.0.0.2, 127.0.0.5]\n"
)


def _parts_body(rank: int, meeting: str, world: int) -> list[str]:
    os.environ["NETFOLD_BIND"] = f"127.0.0.{rank + 1}"
    dist.init_process_group(
        "netfold", init_method=f"file://{meeting}", rank=rank, world_size=world, timeout=timedelta(seconds=30)
    )
    wrong = []
    members = [2, 3, 0]
    for group, ranks in ((None, list(range(world))), (dist.new_group(members), members)):
        if rank not in ranks:
            continue
        size, own = len(ranks), sorted(ranks).index(rank)
        for count in (1, 1000, 70_001):
            whole = torch.arange(size * count, dtype=torch.float32) % 13
            total = size * whole + size * (size - 1) / 2
            tensor = whole + own
            dist.all_reduce(tensor, group=group)
            part = torch.empty(count)
            dist.reduce_scatter_tensor(part, whole + own, group=group)
            gathered = torch.empty(size * count, dtype=torch.int64)
            dist.all_gather_into_tensor(gathered, torch.arange(count) * 100 + own, group=group)
            words = torch.empty(size * count)
            dist.all_gather_into_tensor(words, part, group=group)
            if not torch.equal(tensor, total):
                wrong.append(f"all-reduce of {count} in {ranks}")
            if not torch.equal(part, total[own * count : (own + 1) * count]):
                wrong.append(f"reduce-scatter of {count} in {ranks}")
            if not torch.equal(gathered.view(size, count), torch.arange(count) * 100 + torch.arange(size)[:, None]):
                wrong.append(f"all-gather of {count} in {ranks}")
            if not torch.equal(words, total):
                wrong.append(f"all-gather of sums of {count} in {ranks}")
    dist.barrier()
    return wrong


@pytest.mark.parametrize(("world", "engine"), [(4, "thread"), (5, "caller"), (7, "thread"), (8, "thread")])
def test_ranks_on_some_hosts_of_a_bigraph_have_every_collective(tmp_path: Path, world: int, engine: str) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(EIGHT)
    environment = {"NETFOLD_TOPOLOGY": str(path), "NETFOLD_ALGORITHM": "hdrm", "NETFOLD_ENGINE": engine}
    assert values(run_ranks(_parts_body, world, world=world, environment=environment, joins=False)) == [[]] * world


def _refused_body(rank: int, meeting: str, settings: list[dict[str, str]]) -> str:
    os.environ["NETFOLD_BIND"] = f"127.0.0.{rank + 1}"
    os.environ.update(settings[rank])
    with pytest.raises((RuntimeError, ValueError)) as refusal:
        dist.init_process_group(
            "netfold",
            init_method=f"file://{meeting}",
            rank=rank,
            world_size=len(settings),
            timeout=timedelta(seconds=30),
        )
    return str(refusal.value)


@pytest.mark.parametrize(
    ("contents", "says"),
    [
        ([FOUR.replace("127.0.0.2", "127.0.0.9")] * 4, ["rank 1", "127.0.0.2", "does not name"]),
        ([FOUR.replace("127.0.0.2", "127.0.0.1")] * 4, ["127.0.0.1 twice"]),
        ([FOUR, FOUR, FOUR.replace("s4", "s4b").replace("127.0.0.1", "127.0.0.8"), FOUR], ["rank 2", "same content"]),
        ([FOUR, FOUR, FOUR, None], ["rank 3", "cannot be read", "No such file"]),
        ([None, FOUR, FOUR, FOUR], ["rank 0", "cannot be read"]),
    ],
)
def test_every_rank_is_told_what_does_not_fit(tmp_path: Path, contents: list[str | None], says: list[str]) -> None:
    settings = []
    for rank, content in enumerate(contents):
        path = tmp_path / f"{rank}.yaml"
        if content is not None:
            path.write_text(content)
        settings.append({"NETFOLD_TOPOLOGY": str(path), "NETFOLD_ALGORITHM": "hdrm"})
    for error in values(run_ranks(_refused_body, settings, world=4, joins=False)):
        assert [word for word in says if word not in error] == [], error
