"""Files for other simulators: GOAL, Chakra, csg-htsim, HPCC, GraphML."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from netfold.timeline import timeline
from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster import spec
from netfold_lab.plan.cluster.graph import Graph
from netfold_lab.plan.export import chakra, command, htsim
from netfold_lab.plan.models.zoo import mlp
from netfold_lab.plan.step.collectives import Contender

NETFOLD = [sys.executable, "-c", "from netfold.cli import main; main()", "plan", "export"]
TREE = "fabric: {kind: leaf-spine, leaves: 2, spines: 2, ports_per_leaf: 4, rate_gbit_s: 100, latency_us: 1}\n"


def tree(tmp_path: Path) -> spec.Cluster:
    (tmp_path / "tree.yaml").write_text(TREE)
    return spec.read(tmp_path / "tree.yaml")


def export(tmp_path: Path, formats: str, algorithm: str = "ring") -> list[Path]:
    contender = Contender(algorithm)
    return command.export(tmp_path, formats.split(","), tree(tmp_path), mlp(3, 64), 8, contender, 1024)


def attributes(node: object) -> dict[str, int]:
    return {one.name: getattr(one, one.WhichOneof("value")) for one in node.attr}


def test_chakra_traces_of_a_collective_pair_every_send(tmp_path: Path) -> None:
    export(tmp_path, "chakra")
    ends: Counter[tuple[int, int, int, int]] = Counter()
    for rank in range(8):
        metadata, nodes = chakra.read(tmp_path / f"all-reduce.{rank}.et")
        assert metadata.version == chakra.VERSION
        assert [node.id for node in nodes] == list(range(1, len(nodes) + 1))
        assert all(need < node.id for node in nodes for need in node.data_deps)
        for node in nodes:
            if node.type in (chakra.SEND, chakra.RECEIVE):
                told = attributes(node)
                key = told["comm_src"], told["comm_dst"], told["comm_tag"], told["comm_size"]
                ends[key] += 1 if node.type == chakra.SEND else -1
        assert sum(node.type == chakra.COMPUTE for node in nodes) == 7
    assert set(ends.values()) == {0}


def test_a_chakra_step_reduces_every_gradient_once(tmp_path: Path) -> None:
    export(tmp_path, "chakra")
    _, nodes = chakra.read(tmp_path / "step.0.et")
    reduced = [attributes(node) for node in nodes if node.type == chakra.COLLECTIVE]
    assert sum(each["comm_size"] for each in reduced) == 4 * mlp(3, 64).parameters
    assert {each["comm_type"] for each in reduced} == {chakra.ALL_REDUCE}
    update = nodes[-1]
    assert set(update.data_deps) >= {node.id for node in nodes if node.type == chakra.COLLECTIVE}


def test_chakras_bytes_are_those_of_the_published_schema(tmp_path: Path) -> None:
    export(tmp_path, "chakra")
    data = (tmp_path / "all-reduce.0.et").read_bytes()
    version = chakra.VERSION.encode()
    assert data[: 3 + len(version)] == bytes([2 + len(version), 0x0A, len(version)]) + version
    first = data[3 + len(version) + 1 :]
    assert first[:2] == b"\x08\x01", "field 1, a varint: the node's id"
    assert first[2:3] == b"\x12", "field 2, a string: its name"
    assert b"\x18\x05" in first[:40], "field 3, an enumeration: COMM_SEND_NODE"


def test_htsims_matrix_has_a_barrier_a_step(tmp_path: Path) -> None:
    lines = list(htsim.matrix(timeline("ring", 4, 4000), 4))
    assert lines[:3] == ["Nodes 4", "Connections 24", "Triggers 5"]
    flows = [line for line in lines if "->" in line]
    assert len({re.search(r"id (\d+)", line)[1] for line in flows}) == 24
    assert sum("start 0" in line for line in flows) == 4
    assert all(line.endswith("recv_done_trigger 1") and "size 4000" in line for line in flows[:4])
    assert next(line for line in lines if line.startswith("trigger")) == "trigger id 1 barrier count 4"


def test_htsims_topology_is_the_tree(tmp_path: Path) -> None:
    text = "\n".join(htsim.topology(tree(tmp_path)))
    for line in ("Nodes 8", "Tiers 2", "Radix_Down 4", "Radix_Up 2", "Oversubscribed 2", "Downlink_Latency_ns 1000"):
        assert line in text.splitlines()


def shape(graph: Graph) -> tuple[int, int, list[tuple[float, float]]]:
    rates = [(graph.resources[link.resource].capacity_bit_s, round(link.latency_s * 1e12)) for link in graph.links]
    return len(graph.hosts), len(graph.nodes), sorted(rates)


@pytest.mark.parametrize(("form", "name"), [("hpcc", "topology.txt"), ("graphml", "topology.graphml")])
def test_a_network_that_was_written_is_read_as_the_same(tmp_path: Path, form: str, name: str) -> None:
    export(tmp_path, form)
    assert shape(spec.read(tmp_path / name).graph()) == shape(tree(tmp_path).graph())


def test_what_a_format_cannot_say_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="takes goal, chakra"):
        export(tmp_path, "dot")
    (tmp_path / "folding.yaml").write_text(TREE.replace("latency_us: 1", "latency_us: 1, folding: {at: all}"))
    folding = spec.read(tmp_path / "folding.yaml")
    for form in ("chakra", "htsim"):
        with pytest.raises(UsageError, match="folding switch"):
            command.export(tmp_path, [form], folding, mlp(2, 8), 1, Contender("in-network"), 64)
    (tmp_path / "star.yaml").write_text("fabric: {kind: star, ports: 4}\nservers: {gpus: 2}\n")
    star = spec.read(tmp_path / "star.yaml")
    with pytest.raises(UsageError, match="not star"):
        command.export(tmp_path, ["htsim"], star, mlp(2, 8), 1, Contender("ring"), 64)
    with pytest.raises(UsageError, match="leave out `servers:`"):
        command.export(tmp_path, ["hpcc"], star, mlp(2, 8), 1, Contender("ring"), 64)


def test_the_command_exports(tmp_path: Path) -> None:
    tree(tmp_path)
    words = [str(tmp_path / "tree.yaml"), "--format", "goal,htsim", "--algorithm", "halving-doubling"]
    subprocess.run([*NETFOLD, *words, "--out", str(tmp_path / "out")], timeout=60, check=True, capture_output=True)
    assert (tmp_path / "out" / "all-reduce.goal").read_text().startswith("num_ranks 8\n")
    assert (tmp_path / "out" / "htsim.cm").exists()
