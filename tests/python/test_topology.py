"""The places of workers: the topology file, wirings and their routes, and PyTorch ranks that are reordered by it."""

from __future__ import annotations

import os
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
from netfold.topology.wiring import BIGRAPH, FAT_TREE, Wiring
from netfold.torch.options import load
from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_rank_left")]
SHAPES = [(1, 2), (1, 8), (2, 4), (2, 8), (4, 8), (4, 16), (8, 16)]
FOUR = "upper:\n  s1: [127.0.0.4]\n  s2: [127.0.0.1]\nlower:\n  s3: [127.0.0.3]\n  s4: [127.0.0.2]\n"
TWO_OF_TWO = "upper:\n  s1: [a, b]\nlower:\n  s2: [c, d]\n"


@pytest.mark.parametrize(("sub_nodes", "switches"), SHAPES)
def test_hdrm_gives_every_connection_a_link_whatever_the_ranks(sub_nodes: int, switches: int) -> None:
    wiring = Wiring(BIGRAPH, sub_nodes, switches)
    world = wiring.workers
    order = [(7 * rank + 3) % world for rank in range(world)]
    position = {rank: at for at, rank in enumerate(order)}
    options = {"sub_nodes": sub_nodes, "switches": switches, "order": order}
    schedules = [netfold.schedule("hdrm", world, rank, world, **options) for rank in range(world)]
    for step in zip(*schedules, strict=True):
        cables = Counter(
            hop
            for rank, transfers in enumerate(step)
            for action, peer, _, _ in transfers
            if action == "send"
            for hop in wiring.path(position[rank], position[peer])
        )
        assert set(cables.values()) == {1}
        assert len(cables) == world, "every worker sends to the other half, over one cable"


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
    topology = Topology(2, 4, tuple(f"10.0.0.{at}" for at in range(8)))
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
        (TWO_OF_TWO, "2 sub-nodes x 2 switches: a switch has 1 cables"),
        ("upper: {a: [x], b: [y]}\nlower: {c: [z]}\n", "two equal halves"),
        ("upper: {a: [x, y]}\nlower: {b: [z]}\n", "switch b has 1 hosts, a has 2"),
        ("upper: {a: [x], b: [y], c: [z]}\nlower: {d: [p], e: [q], f: [r]}\n", "powers of two"),
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


def test_ranks_find_their_positions_by_address_or_name() -> None:
    topology = Topology(1, 2, ("node-b", "10.0.0.1"))
    assert topology.order([["10.0.0.1", "node-a.cluster", "node-a"], ["10.0.0.2", "node-b.cluster", "node-b"]]) == [
        1,
        0,
    ]
    with pytest.raises(ValueError, match=r"rank 1 runs on 10.0.0.3 or node-c, which"):
        topology.order([["10.0.0.1", "node-a"], ["10.0.0.3", "node-c"]])
    with pytest.raises(ValueError, match=r"ranks 0 and 1 both run on 10\.0\.0\.1"):
        topology.order([["10.0.0.1", "x"], ["10.0.0.1", "x"]])
    with pytest.raises(ValueError, match=r"host of rank 0 twice, as node-b and 10\.0\.0\.1"):
        topology.order([["10.0.0.1", "node-b"], ["10.0.0.2", "x"]])
    with pytest.raises(ValueError, match=r"names 10\.0\.0\.1, where no rank"):
        topology.order([["10.0.0.2", "node-b"]])


def test_auto_takes_hdrm_for_what_is_large() -> None:
    plan = HostPlan(AUTO, (2, 4))
    assert plan.for_tensor(4 << 20, 8) == {"algorithm": "hdrm", "sub_nodes": 2, "switches": 4}
    assert plan.for_tensor(1024, 8)["algorithm"] == "recursive-doubling"


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
        ([TWO_OF_TWO] * 4, ["2 sub-nodes x 2 switches"]),
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
