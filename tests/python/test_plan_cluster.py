"""Cluster files: the clusters that they describe, and errors that name the line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from netfold.topology.file import read as read_topology
from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster import importers, spec
from netfold_lab.plan.cluster.costs import count_of, price_of
from netfold_lab.plan.cluster.graph import Graph
from netfold_lab.plan.step import changes

CLUSTERS = Path(__file__).parents[2] / "examples" / "clusters"
HALVES = "upper: {a: [h0, h1], b: [h2, h3]}\nlower: {c: [h4, h5], d: [h6, h7]}\n"


def cluster(tmp_path: Path, text: str, name: str = "cluster.yaml") -> spec.Cluster:
    path = tmp_path / name
    path.write_text(text)
    return spec.read(path)


def route(graph: Graph, one: int, other: int) -> list[str]:
    """Roles of the resources on the path between two workers."""
    made = graph.topology()
    return [graph.resources[int(made.links["resource"][at])].role for at in made.path(one, other, spread=graph.spread)]


FABRICS = {
    "kind: star, ports: 5": 5,
    "kind: bigraph, sub_nodes: 2, switches: 4": 8,
    "kind: fat-tree, sub_nodes: 2, switches: 4": 8,
    "kind: leaf-spine, leaves: 3, spines: 2, ports_per_leaf: 4": 12,
    "kind: torus2d, rows: 3, columns: 4": 12,
    "kind: dragonfly, groups: 3, routers: 2, ports_per_switch: 2": 12,
    "kind: graph, hosts: [a, b], switches: [s], links: [{from: a, to: s}, {from: s, to: b}]": 2,
}


@pytest.mark.parametrize("fabric", FABRICS)
def test_every_fabric_is_built_with_all_its_workers(tmp_path: Path, fabric: str) -> None:
    found = cluster(tmp_path, f"fabric: {{{fabric}, rate_gbit_s: 10}}")
    graph = found.graph()
    assert len(graph.hosts) == FABRICS[fabric]
    graph.topology()
    assert {each.capacity_bit_s for each in graph.resources} == {10e9}


def test_gpus_take_the_way_between_each_other_that_was_asked_for(tmp_path: Path) -> None:
    text = "fabric: {kind: star, ports: 8}\nservers: {gpus: 4, nics: 4, between_gpus: %s}\n"
    graphs = {way: cluster(tmp_path, text % way).graph() for way in ("nic", "pcie", "upi")}
    neighbours = {way: route(graph, 0, 1) for way, graph in graphs.items()}
    across = {way: route(graph, 1, 2) for way, graph in graphs.items()}
    assert "edge link" in neighbours["nic"]
    assert neighbours["pcie"] == neighbours["upi"] == ["GPU's PCIe link", "port", "port", "GPU's PCIe link"]
    assert "edge link" in across["pcie"]
    assert "UPI" in across["upi"]
    assert all("edge link" in route(graph, 0, 4) for graph in graphs.values())


def test_a_gpu_without_a_card_goes_through_root_ports_and_upi(tmp_path: Path) -> None:
    graph = cluster(tmp_path, "fabric: {kind: star, ports: 2}\nservers: {gpus: 4, nics: 1}\n").graph()
    assert route(graph, 0, 4).count("UPI") == 0
    assert route(graph, 3, 7).count("UPI") == 2
    assert route(graph, 3, 7).count("PCIe root port") == 4


def test_a_topology_file_is_a_cluster_file_and_the_other_way_round(tmp_path: Path) -> None:
    found = cluster(tmp_path, HALVES)
    assert (found.kind, found.sizes) == ("bigraph", {"sub_nodes": 2, "switches": 4})
    assert found.hosts == tuple(f"h{at}" for at in range(8))
    cluster(tmp_path, HALVES + "fabric: {rate_gbit_s: 25}\ncompute: {device: a100}\n", "both.yaml")
    assert read_topology(tmp_path / "both.yaml").hosts == found.hosts


WRONG = {
    "": "write the cluster as",
    "fabric: {kind: bigraph, sub_nodes: 4, switches: 4}": "line 1: fabric: .*at most 2 sub-nodes",
    "fabric: {kind: bigraph, sub_nodes: 2, switches: 6}": "line 1: .*powers of two",
    "name: x\nfabric:\n  kind: star\n  ports: 4\n  rate_gbit_s: 0\n": "line 5: .*_s: must be above 0, not 0",
    "fabric:\n  kind: star\n  ports: 4\n  rate_gbit_s: -3\n": "line 4: .*must be above 0, not -3",
    "fabric:\n  kind: star\n  ports: 4\n  rate: 3\n": "line 4: fabric.rate: is unknown",
    "fabric:\n  kind: star\n  ports: 4\n  rate_gbit_s: .nan\n": "line 4: fabric.rate_gbit_s: must be a number, not nan",
    "fabric:\n  kind: star\n  ports: 4\n  rate_gbit_s: .inf\n": "line 4: .*not inf",
    "fabric: {kind: star, ports: 1000000000}": "has 1,000,000,000 cables",
    "fabric: {kind: leaf-spine, leaves: 60000, spines: 60000, ports_per_leaf: 1}": "cables",
    "fabric:\n  kind: ring\n": "line 2: fabric.kind: must be one of star",
    "fabric:\n  kind: star\n": "a star needs ports",
    "fabric:\n  kind: star\n  ports: 4\n  leaves: 3\n": "line 4: fabric.leaves: a star takes ports",
    "fabric:\n  kind: star\n  ports: 4\n  uplink_gbit_s: 3\n": "line 4: fabric.uplink_gbit_s: a star takes ports",
    HALVES + "fabric: {ports: 8}": "line 3: fabric.ports: beside upper and lower, write only",
    "fabric: {kind: graph, file: net.txt, rate_gbit_s: 3}": "net.txt describes the network; beside a file, write only",
    "fabric:\n  kind: star\n  ports: 4\n  rate_gbit_s: 100000\n": "line 4: .* if it is in Mbit/s, write 100$",
    "fabric: {kind: star, ports: 4, rate_gbit_s: 0.00001}": "less than any cable has .at least 0.001 Gbit/s.$",
    "fabric: {kind: star, ports: 4, latency_us: 600000000000000}": "more than any cable or message takes",
    "fabric: {kind: star, ports: 4, latency_us: 5000000}": "if it is in ns, write 5000",
    "fabric: {kind: star, ports: 4}\nsoftware: {step_latency_us: 3.2e15}": "write 3200000000000000",
    "fabric: {kind: star, ports: 4}\ncompute: {tflop_s: 31000000}": "if it is in MFLOP/s, write 31",
    "fabric: {kind: star, ports: 4}\nservers: {gpus: 4, nics: 3}": "4 GPUs cannot be divided evenly by 3 NICs",
    "fabric: {kind: star, ports: 4}\nservers: {gpus: 6, nics: 2, pcie_switches: 4}": "evenly by 4 PCIe switches",
    "fabric: {kind: star, ports: 4}\nservers: {gpus: 2, nics: 4}": "a GPU uses one NIC",
    "fabric: {kind: star, ports: 4}\nservers: {gpus: 2, pcie_switches: 1, upi_gbit_s: 9}": "has no UPI",
    "fabric: {kind: star, ports: 4}\nservers: {nccl: s.xml, gpus: 4}": "s.xml describes the server",
    "fabric: {kind: graph, hosts: [a], switches: [s], links: [{from: s, to: s}]}": "connects s with itself",
    "fabric:\n  kind: star\n  ports: many\n": "line 3: fabric.ports: must be a whole number",
    "fabric: {kind: star, ports: 4}\nranks: [0, 1, 2, 1]": "line 2: ranks.3: worker 1 is given to rank 1 and to rank 3",
    "fabric: {kind: star, ports: 4}\nranks: [0, 1]": "2 ranks for 4 workers",
    "fabric: {kind: star, ports: 4}\nranks: [0, 1, 2, 4]": "there is no worker 4",
    "fabric: {kind: star, ports: 6}\nservers: {gpus: 4}": "6 ports, which is not a multiple of the 4",
    "fabric: {kind: star, ports: 4}\ncompute:\n  device: abacus": "line 3: compute.device: must be one of v100",
    "fabric: {kind: star, ports: 4, folding: {at: [spine 7]}}": "there is no switch spine 7",
    "fabric: {kind: graph, hosts: [a, b], switches: [s, t], links: [{from: a, to: s}, {from: b, to: t}]}": "a to b",
    "fabric: {kind: graph, hosts: [a], links: [{from: a, to: z}]}": "ends at z",
    "upper: {a: [h0, h1], b: [h2]}\nlower: {c: [h4, h5], d: [h6, h7]}": "switches have 1 or 2 hosts",
    "upper: {a: [h0], b: [h1], c: [h2]}\nlower: {d: [h3]}": "two equal halves",
    "fabric: {kind: star, ports: 2}\nfabric: {kind: star, ports: 3}": "comes 2 times",
    "fabric: [": "is not valid YAML",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=WRONG[text]) as caught:
        cluster(tmp_path, text)
    assert "cluster.yaml" in str(caught.value)


def test_hpccs_topology_is_read(tmp_path: Path) -> None:
    text = "5 1 4\n4\n0 4 100Gbps 1us 0\n1 4 100Gbps 1us 0\n2 4 25Gbps 1000ns 0\n3 4 100Gbps 1us 0\n"
    graph = cluster(tmp_path, text, "topology.txt").graph()
    assert [graph.nodes[at].name for at in graph.hosts] == ["0", "1", "2", "3"]
    assert sorted({each.capacity_bit_s for each in graph.resources}) == [25e9, 100e9]
    assert all(link.latency_s == pytest.approx(1e-6) for link in graph.links)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "line 1: write the numbers"),
        ("3 1 2\n2\n0 2 100Gbps 1us 0\n", "1 links are listed, the first line says 2"),
        ("3 1 1\n7\n0 2 100Gbps 1us 0\n", "numbers from 0 to 2"),
        ("3 1 1\n2\n0 2 fast 1us 0\n", "line 3: .*'fast' is not a rate"),
        ("3 1 2\n2\n0 2 100Gbps 1us 0\n1 9 100Gbps 1us 0\n", "line 4: nodes have numbers"),
        ("3 1 2\n2\n0 2 100Gbps 1us 0\n1 2 0Gbps 1us 0\n", "above 0"),
        ("3 1 1\n2\n0 2 100Gbps 1us 0\n", "no path from"),
    ],
)
def test_what_is_wrong_in_hpccs_topology_is_named(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        cluster(tmp_path, text, "topology.txt")


def test_graphml_is_read(tmp_path: Path) -> None:
    import networkx as nx

    drawn = nx.Graph()
    for host in "abc":
        drawn.add_edge(host, "switch", rate_gbit_s=40, latency_us=2)
    nx.write_graphml(drawn, tmp_path / "net.graphml")
    graph = spec.read(tmp_path / "net.graphml").graph()
    assert [graph.nodes[at].name for at in graph.hosts] == ["a", "b", "c"]
    assert {each.capacity_bit_s for each in graph.resources} == {40e9}


NCCL = """<system version="1">
  <cpu numaid="0"><pci busid="0000:11:00.0" class="0x060400" link_speed="8.0 GT/s PCIe" link_width="16">
    <pci busid="0000:12:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16"><gpu dev="0"/></pci>
    <pci busid="0000:13:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16"><gpu dev="1"/></pci>
    <pci busid="0000:14:00.0" class="0x020700" link_speed="8.0 GT/s PCIe" link_width="16">
      <nic><net name="mlx5_0" dev="0" speed="100000"/></nic></pci>
  </pci></cpu>
  <cpu numaid="1"><pci busid="0000:21:00.0" class="0x060400" link_speed="8.0 GT/s PCIe" link_width="%s">
    <pci busid="0000:22:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16"><gpu dev="2"/></pci>
  </pci></cpu>
</system>"""


def test_nccls_server_is_read(tmp_path: Path) -> None:
    (tmp_path / "server.xml").write_text(NCCL % "16")
    found = cluster(tmp_path, "fabric: {kind: star, ports: 2}\nservers: {nccl: server.xml}\n")
    assert (found.layout.gpus, found.layout.nics) == (3, 1)
    assert [each.socket for each in found.layout.complexes] == [0, 1]
    assert found.layout.complexes[0].gpus_bit_s[0] == pytest.approx(16 * 8e9 * 128 / 130)
    assert route(found.graph(), 2, 5).count("UPI") == 2
    assert found.layout.processor == "intel"
    (tmp_path / "server.xml").write_text((NCCL % "16").replace("<cpu ", '<cpu vendor="AuthenticAMD" '))
    assert importers.nccl(tmp_path / "server.xml", 1e9, "nic").processor == "amd"


@pytest.mark.parametrize("text", ["<system/>", "<gpu/>", "<system", NCCL % "wide"])
def test_what_is_wrong_in_nccls_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.xml").write_text(text)
    with pytest.raises(ValueError, match=r"server\.xml"):
        importers.nccl(tmp_path / "server.xml", 1e9, "nic")


def test_deadlocks_are_proved_or_shown(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("fabric: {kind: bigraph, sub_nodes: 2, switches: 4}\n")
    command = [sys.executable, "-c", "from netfold.cli import main; main()", "plan", "--check-deadlock", str(path)]
    command += ["--spread", "hash"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    one, *others = ended.stdout.splitlines()
    assert one.startswith("one priority: may deadlock")
    assert any("free of deadlock" in each for each in others)


def test_servers_do_not_change_which_half_a_worker_is_in(tmp_path: Path) -> None:
    from netfold_lab.simulate import deadlock, networks

    fabric = "fabric: {kind: bigraph, sub_nodes: 4, switches: 8, spread: hash}\n"
    found = {}
    for name, servers in (("ports", ""), ("servers", "servers: {gpus: 4, nics: 4}\n")):
        (tmp_path / f"{name}.yaml").write_text(fabric + servers)
        rules = deadlock.rules(networks.read(tmp_path / f"{name}.yaml"))
        found[name] = {each["rule"]: each["is_free"] for each in rules}
    assert found["servers"] == found["ports"]
    assert found["servers"]["half"]


def test_a_bigraphs_routes_are_fixed_by_the_destinations_switch(tmp_path: Path) -> None:
    text = "fabric: {kind: bigraph, sub_nodes: 4, switches: 8}\nservers: {gpus: 4, nics: 4}\n"
    graph = cluster(tmp_path, text).graph()
    made = graph.topology()
    middles = {
        graph.nodes[graph.links[at].target].name
        for gpu in range(4, 8)  # all of one server, at one switch of the same half
        for at in made.path(0, gpu, spread="destination")[3:4]
    }
    assert len(middles) == 1


def test_parts_are_counted(tmp_path: Path) -> None:
    found = count_of(spec.read(CLUSTERS / "eflops.yaml"))
    assert found == {
        "switch": 8,
        "switch_port": 16 * 12,
        "folding_switch": 0,
        "nic": 64,
        "cable": 64 + 64,
        "optics": 128,
        "server": 16,
        "gpu": 64,
    }


def test_virtual_switches_of_one_box_are_bought_once() -> None:
    eflops, other = (spec.read(CLUSTERS / f"{name}.yaml") for name in ("eflops", "traditional"))
    paid = [price_of(each) or 0 for each in (eflops, replace(eflops, virtual_switches=1), other)]
    assert paid[1] - paid[0] == 8 * eflops.prices["switch"]
    assert paid[0] / paid[2] == pytest.approx(1.081, abs=0.001)  # published: 1.04, with prices that are not published


def test_changes_are_of_the_same_servers() -> None:
    found = dict(changes.of(spec.read(CLUSTERS / "traditional.yaml")))
    assert len(found) >= 6
    assert {len(each.graph().hosts) for each in found.values()} == {64}
    wider = found["4 NICs per server in place of 1"]
    assert wider.layout.nics == 4
    assert wider.sizes["ports_per_leaf"] == 16
