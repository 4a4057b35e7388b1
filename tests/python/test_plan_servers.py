"""Servers with several GPUs: the cluster file, NCCL's algorithms, published times, and curves of measured ones."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster import spec
from netfold_lab.plan.cluster.fabric import EDGE
from netfold_lab.plan.cluster.folding import Folding
from netfold_lab.plan.library import curve, mpi, nccl, published, rails
from netfold_lab.plan.library.machine import FASTEST_GBIT_S, HOPPER, Machine
from netfold_lab.plan.library.pieces import fastest
from netfold_lab.plan.models.zoo import model_of
from netfold_lab.plan.report import collective
from netfold_lab.plan.step import ranges, tensor
from netfold_lab.plan.step.answer import answer
from netfold_lab.plan.step.collectives import Contender, contenders, net_of
from netfold_lab.plan.step.names import ALL_GATHER
from netfold_lab.plan.step.sharded import Training
from netfold_lab.plan.truth import trainings

EXAMPLE = Path(__file__).parents[2] / "examples" / "clusters" / "h100.yaml"
GIB = 1 << 30
SERVERS = "fabric: {kind: star, ports: 16, rate_gbit_s: 400}\nservers: %s\n"
NVLINK = "nvlink: {rate_gbit_s: 3600, switch: true}"


def cluster(tmp_path: Path, servers: str) -> spec.Cluster:
    path = tmp_path / "cluster.yaml"
    path.write_text(SERVERS % servers)
    return spec.read(path)


def machine(servers: int = 2, generation: int = HOPPER, nic_gbit_s: float = 400, folds: bool = False) -> Machine:
    link = FASTEST_GBIT_S[generation] * 1e9 / 8
    sums = generation >= HOPPER
    return Machine(servers, 8, link, nic_gbit_s * 1e9, 1.2e-6, generation, True, sums, folds)


def test_published_times_that_nothing_was_fitted_to_are_met() -> None:
    for mark in ("", "later"):
        assert published.geometric_mean_error(published.held_out(True, mark=mark)) < 0.15
    assert published.geometric_mean_error(published.held_out(False)) < 0.30
    right = [chosen == told["winner"] for told, chosen in published.winners()]
    assert sum(right) >= 0.9 * len(right)


def test_blind_tables_are_met() -> None:
    assert published.geometric_mean_error(published.held_out(True, mark="blind")) < 0.15
    assert published.geometric_mean_error(published.held_out(False, mark="blind")) < 0.30
    blind = {told["name"] for told in published.read()["other_collectives"] if published.mark_of(told) == "blind"}
    for is_large, most in ((False, 0.30), (True, 0.15)):
        seen = [row for row in published.others(False, is_large) if row.table not in blind]
        assert published.geometric_mean_error(seen) < most


def test_other_collectives_are_met() -> None:
    """From 1 MiB on and below it: rings and all-to-alls, of servers and with racks; and those that are blind."""
    for is_all_to_all, with_racks, large, small in (
        (False, False, 0.16, 0.32),
        (False, True, 0.19, 0.35),
        (True, False, 0.18, 0.15),
        (True, True, 0.22, 0.15),
    ):
        of = [published.others(is_all_to_all, is_large, with_racks=with_racks) for is_large in (True, False)]
        assert published.geometric_mean_error(of[0]) < large
        assert published.geometric_mean_error(of[1]) < small
    for is_all_to_all in (False, True):
        blind = published.others(is_all_to_all, True, is_blind=True, with_racks=False)
        assert published.geometric_mean_error(blind) < 0.20
    rings = published.others(False, True)
    assert published.geometric_mean_error(rings) < published.geometric_mean_error(published.when_opened(True, False))


def test_rings_between_servers_are_met_where_bytes_decide() -> None:
    blind = [row for row in published.others(False, True, is_blind=True, with_racks=False) if "DraNet" not in row.table]
    large = [row for row in blind if row.size_bytes >= 64 << 20]
    assert len(large) == 12
    assert published.geometric_mean_error(large) < 0.08


def test_a_table_that_was_seen_is_not_called_blind() -> None:
    told = {each["name"]: each for each in published.read()["tables"] + published.read()["other_collectives"]}
    blind = {name: each.get("collective") for name, each in told.items() if published.mark_of(each) == "blind"}
    assert {name for name, collective in blind.items() if collective == "all-gather"} == {
        "GKE A4 (B200) with gIB, 2 servers, all-gather",
        "GKE A3 Ultra (H200) with gIB, 2 servers, all-gather",
        "GCP A4 (B200) with gIB, 2 instances, all-gather",
        "GKE A4X (GB200), 8 GPUs of one rack, all-gather",
        "GKE A4X (GB200) with gIB, 8 GPUs of one rack, all-gather",
        "GKE A4X (GB200) with gIB, 32 GPUs of one rack, all-gather",
        "GKE A4 (B200) with DraNet, 2 GPUs, all-gather",
        "GKE A4 (B200) with DraNet, 2 servers of 2, all-gather",
    }
    assert {name for name, collective in blind.items() if collective != "all-gather"} == {
        "A100 on RoCE, 2 servers, all-to-all",
        "OCI GB300, 4 GPUs, all-to-all",
        "OCI GB300, 8 GPUs of one rack, all-to-all",
        "OCI GB300, 64 GPUs of one rack, all-to-all",
        "OCI GB300, 2 racks of 64 GPUs, all-to-all",
    }
    assert all(set(each["was_us"]) == set(each["microseconds"]) for each in told.values() if "was_us" in each)


def test_all_to_alls_are_nearer_to_published_times_than_when_their_tables_were_opened() -> None:
    for is_large in (False, True):
        now, then = published.others(True, is_large), published.when_opened(is_large)
        assert [row.size_bytes for row in now] == [row.size_bytes for row in then]
        assert published.geometric_mean_error(now) < 0.30 < published.geometric_mean_error(then)


def test_a_forced_algorithm_is_compared_with_itself() -> None:
    forced = [told for told in published.read()["tables"] if "forced" in told]
    assert [told["name"] for told in forced] == ["1024 H100, 128 servers"]
    assert {row.chosen for told in forced for row in published.rows(told)} == {"ring, LL128"}


def test_two_points_are_fitted_and_the_others_have_many_sources() -> None:
    every = [row for told in published.read()["tables"] for row in published.rows(told)]
    fitted = [row for row in every if row.is_fitted]
    assert len(fitted) == 2
    assert all(abs(row.off) < 0.01 for row in fitted)
    assert len({told["source"] for told in published.read()["tables"] if published.is_counted(told)}) >= 8


def test_the_range_of_a_plan_holds_nine_of_ten_published_times() -> None:
    off = np.quantile([abs(row.off) for row in published.held_out(True)], 0.9)
    assert off <= ranges.NCCL < off + 0.01


@pytest.mark.parametrize("generation", FASTEST_GBIT_S)
@pytest.mark.parametrize("servers", [1, 2, 3, 16, 128])
def test_no_algorithm_is_faster_than_its_links(servers: int, generation: int) -> None:
    """A GPU must send its tensor at least once, or half of it twice; so must a server, if there are several."""
    of = machine(servers, generation, folds=True)
    for piece in (*nccl.pieces(of), *rails.pieces(of)):
        assert piece.bytes_s < of.nvlink_bytes_s, piece
        if servers > 1:
            assert piece.bytes_s < of.nics_bytes_s, piece
        if servers > 2 and piece.algorithm not in (nccl.COLLNET, rails.FOLD):
            assert piece.bytes_s < of.nics_bytes_s * servers / (2 * (servers - 1)), piece
        times = [piece.seconds(1 << power) for power in range(10, 36)]
        assert times == sorted(times)


def test_a_ring_waits_for_its_last_slice() -> None:
    """Half of a chunk, until a slice has its largest size; each time that it crosses to a server once more."""
    inside, between = (
        next(each for each in nccl.pieces(machine(servers), ALL_GATHER) if each.protocol == nccl.SIMPLE)
        for servers in (1, 2)
    )
    for piece, hops, late, channels in ((inside, 7, 1, 24), (between, 15, 3, 16)):
        gpus = hops + 1
        waits = [piece.seconds(size) - piece.start_s - size / piece.bytes_s for size in (GIB >> 6, 64 * GIB)]
        bus = piece.bytes_s * hops / gpus
        assert waits[0] == pytest.approx(late * (GIB >> 6) / gpus / 2 / bus)
        assert waits[1] == pytest.approx(late * channels * (1 << 20) / bus)


@pytest.mark.parametrize("servers", [1, 2, 3, 16])
@pytest.mark.parametrize("gpus", [1, 2, 3, 8])
@pytest.mark.parametrize("rounds", [1, 2])
def test_crossings_are_those_of_the_slowest_block(servers: int, gpus: int, rounds: int) -> None:
    of = replace(machine(servers), gpus=gpus)
    links = [gpu % gpus == gpus - 1 for gpu in range(of.world)] * 3  # True: to the next server
    hops = rounds * (of.world - 1)
    slowest = max(sum(links[start : start + hops]) for start in range(of.world))
    assert nccl.crossings(of, rounds) == (slowest if servers > 1 else 0)


def test_amd_launches_messages_of_rings_more_slowly() -> None:
    for servers, slower_us in ((1, 0.0), (2, 13 * (6 - 3.4))):
        intel, amd = (
            fastest(nccl.pieces(replace(machine(servers), processor=processor), ALL_GATHER), GIB).seconds(GIB)
            for processor in ("intel", "amd")
        )
        assert amd - intel == pytest.approx(slower_us * 1e-6)


def test_one_gpu_of_each_server_gathers_by_pat() -> None:
    """In a logarithmic number of steps, but not at the whole rate of its NIC."""
    found = nccl.pieces(replace(machine(64), gpus=1, nics_bytes_s=50e9), ALL_GATHER)
    assert fastest(found, 1 << 20).algorithm == nccl.PAT
    assert fastest(found, 64 * GIB).algorithm == nccl.RING
    assert nccl.PAT not in {each.algorithm for each in nccl.pieces(machine(64), ALL_GATHER)}


def test_small_messages_of_an_all_to_all_take_ll_in_a_server() -> None:
    chosen = {size: fastest(nccl.all_to_all(machine(1), 8), size).protocol for size in (1024, GIB)}
    assert chosen == {1024: nccl.LL, GIB: nccl.SIMPLE}
    assert {each.protocol for each in nccl.all_to_all(machine(2), 16)} == {nccl.SIMPLE}


def test_a_cluster_file_names_the_processors(tmp_path: Path) -> None:
    for told, expected in (("", "intel"), (", processor: amd", "amd")):
        assert net_of(cluster(tmp_path, f"{{gpus: 8, nics: 8, {NVLINK}{told}}}")).machine.processor == expected
    with pytest.raises(UsageError, match=r"processor"):
        cluster(tmp_path, f"{{gpus: 8, nics: 8, {NVLINK}, processor: arm}}")


def test_small_tensors_take_ll_and_large_ones_simple() -> None:
    pieces = nccl.pieces(machine(1))
    assert fastest(pieces, 1024).protocol == nccl.LL
    assert (fastest(pieces, GIB).algorithm, fastest(pieces, GIB).protocol) == (nccl.NVLS, nccl.SIMPLE)
    assert nccl.NVLS not in {each.algorithm for each in nccl.pieces(machine(1, generation=3))}


def test_gpus_of_a_server_reach_each_other_over_nvlink(tmp_path: Path) -> None:
    graph = cluster(tmp_path, f"{{gpus: 8, nics: 8, {NVLINK}}}").graph()
    made = graph.topology()
    roles = [graph.resources[int(made.links["resource"][at])].role for at in made.path(0, 7, spread=graph.spread)]
    assert roles == ["NVLink", "NVLink"]
    direct = cluster(tmp_path, "{gpus: 4, nics: 4, nvlink: {rate_gbit_s: 1200, switch: false}}").graph()
    assert {each.capacity_bit_s for each in direct.resources if each.role == "NVLink"} == {400e9}


def test_a_rail_joins_the_nics_with_the_same_number() -> None:
    graph = spec.read(EXAMPLE).graph()
    leaf = {
        graph.nodes[link.source].name: graph.nodes[link.target].name
        for link in graph.links
        if graph.resources[link.resource].role == EDGE and graph.nodes[link.source].role == "NIC"
    }
    assert len(leaf) == 128
    for nic in range(8):
        assert len({leaf[f"server {server} NIC {nic}"] for server in range(16)}) == 1
    assert len(set(leaf.values())) == 8


BAD = {
    "{gpus: 8, nics: 8, rails: 3, %s}": "8 NICs cannot be divided evenly by 3 rails",
    "{gpus: 1, %s}": "a server with one GPU has nothing that NVLink could connect",
    "{gpus: 8, nics: 12, %s}": "12 NICs cannot be divided evenly by 8 GPUs",
    "{gpus: 8, nics: 8, nvlink: {rate_gbit_s: 3600000}}": "if it is in Mbit/s, write 3600",
    "{gpus: 8, nics: 8, nvlink: {rate_gbit_s: 3600, generation: 3}}": "is more than NVLink 3 has (2400 Gbit/s",
    "{gpus: 8, nics: 8, nvlink: {rate_gbit_s: 2400, sharp: true}}": "NVLink SHARP needs NVSwitch and NVLink 4",
    "{gpus: 8, nics: 8, nvlink: {switch: true}}": "rate_gbit_s is missing",
    "{gpus: 8, nics: 16}": "a GPU uses one NIC, so at most one each",
}


@pytest.mark.parametrize("servers", BAD)
def test_a_server_that_cannot_be_is_an_error_with_its_line(tmp_path: Path, servers: str) -> None:
    with pytest.raises(UsageError, match=r"cluster.yaml, line 2: servers") as raised:
        cluster(tmp_path, servers.replace("%s", NVLINK))
    assert BAD[servers] in str(raised.value)


def test_a_plan_compares_nccl_with_rails_and_names_its_limit() -> None:
    told = answer(spec.read(EXAMPLE), model_of("mlp"), 1, ["nccl", "rails-ring", "ring"], seeds=1)
    by_name = {one.contender.name: one.timeline.reduce_s for one in told.outcomes}
    assert by_name["nccl"] < by_name["ring"] / 5  # a ring over one NIC of eight
    assert "NVLink" in {limit.role for limit in told.limits}
    assert next(limit for limit in told.limits if limit.role == EDGE).busy > 0.3


def test_closed_forms_follow_the_rates_of_the_resources() -> None:
    net = net_of(spec.read(EXAMPLE))
    for role in (EDGE, "NVLink", "NIC's PCIe link"):
        slow = net.on(net.graph.scaled(role, 0.2))
        for name in ("nccl", "nccl-ring", "rails-ring"):
            assert slow.seconds(Contender(name), 16 * GIB) > 2 * net.seconds(Contender(name), 16 * GIB), (role, name)


def test_a_network_that_sums_gives_collnet_and_folding_rails() -> None:
    read = spec.read(EXAMPLE)
    wanted = ["nccl", "nccl-collnet", "rails-fold"]
    for folding, expected in ((None, {"nccl"}), (Folding("all", program="hardware"), set(wanted))):
        of = replace(read, folding=folding)
        assert {each.algorithm for each in contenders(of, of.graph(), wanted)} == expected


def table(times: dict[int, float], ranks: int = 16, prefix: str = "") -> str:
    """A table as all_reduce_perf prints it."""
    lines = ["# nThread 1 nGpus 1 minBytes 8", "#       size         count      type   redop    root     time   algbw"]
    for size, microseconds in times.items():
        bandwidth = size / microseconds / 1e3
        bus = bandwidth * 2 * (ranks - 1) / ranks
        row = f"{size:12d}  {size // 4:12d}     float     sum      -1   {microseconds:.6g}  {bandwidth:.2f}  {bus:.2f}"
        lines.append(f"{prefix}{row}      0   {microseconds:.6g}  {bandwidth:.2f}  {bus:.2f}      0")
    return "\n".join([*lines, "# Out of bounds values : 0 OK\n"])


SIZES = [1 << power for power in range(10, 34)]
PIECES = {size: 30 + size / 2e3 if size < 1 << 18 else 60 + size / 2e5 for size in SIZES}


@pytest.mark.parametrize("prefix", ["", "0: ", "[1,0]<stdout>:", "2026-02-16T10:00:04.000000000Z "])
def test_a_curve_follows_a_measured_table(tmp_path: Path, prefix: str) -> None:
    (tmp_path / "table.txt").write_text(table(PIECES, prefix=prefix))
    found = curve.read(tmp_path / "table.txt", 16)
    assert (found.points, len(found.lines)) == (len(SIZES), 2)
    assert found.off < 0.01
    assert found.seconds(3 << 20) == pytest.approx((60 + (3 << 20) / 2e5) / 1e6, rel=0.01)
    assert found.seconds(1 << 36) == pytest.approx((1 << 36) / 2e11, rel=0.01)


def test_a_table_of_osu_is_read(tmp_path: Path) -> None:
    rows = "\n".join(f"{size:<16d}{PIECES[size]:20.2f}" for size in SIZES)
    (tmp_path / "osu.txt").write_text(
        f"# OSU MPI-CUDA Allreduce Latency Test v7.0\n# Size       Avg Latency(us)\n{rows}\n"
    )
    assert curve.read(tmp_path / "osu.txt", 16).off < 0.01


FEW = {size: PIECES[size] for size in SIZES[:3]}
WRONG = {
    "no table": ("hello\n", "has no row of all_reduce_perf"),
    "few sizes": (table(FEW), "has 3 sizes; a curve needs at least 4"),
    "other ranks": (table(PIECES, ranks=4), "is that of about 4 ranks, but the cluster has 16 workers"),
    "no time": (table(PIECES).replace(" 30.512 ", " 0 "), "a time must be above 0"),
    "milliseconds": (table(PIECES).replace("5428.71", "5.42871"), "the time is not in microseconds"),
    "all-gather": (table(PIECES).replace(" sum ", " none "), "is not of all_reduce_perf"),
    "other test": ("# OSU MPI Bcast Latency Test v7.0\n" + "4 1.0\n" * 5, "is a table of Bcast"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_table_is_an_error_that_says_what_is_wrong(tmp_path: Path, what: str) -> None:
    text, sentence = WRONG[what]
    (tmp_path / "table.txt").write_text(text)
    with pytest.raises(UsageError, match=r"table.txt") as raised:
        curve.read(tmp_path / "table.txt", 16)
    assert sentence in str(raised.value)


def test_the_command_plans_with_a_measured_curve(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(SERVERS % f"{{gpus: 8, nics: 8, {NVLINK}}}")
    (tmp_path / "table.txt").write_text(table(PIECES))
    command = [sys.executable, "-m", "netfold.cli", "plan", "cluster.yaml", "--measured", "table.txt", "--json"]
    command += ["--model", "gpt2", "--batch", "1", "--algorithm", "measured,nccl", "--page", "plan.html"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    told = json.loads(run.stdout)
    names = {each["algorithm"] for each in told["results"] if each.get("kind") == "algorithm"}
    assert names == {"measured", "nccl"}
    assert any(each["what"] == "measured" for each in told["parameters"]["assumptions"])


def test_published_training_rates_are_met() -> None:
    fitted, *others = trainings.rows()
    assert fitted.is_fitted and abs(fitted.off) < 0.02
    assert not any(row.is_fitted for row in others)
    largest = next(row for row in others if "70B" in row.name)
    assert abs(largest.off) < 0.15
    assert max(abs(row.off) for row in others) < 0.20
    for row in (fitted, others[0]):
        assert row.published_gib is not None and abs(row.gib / row.published_gib - 1) < 0.05


def test_a_group_divides_the_model_and_waits_for_its_exchanges() -> None:
    model = model_of("llama3-8b")
    part = tensor.part_of(model, 2, 8, "full", 1e12, lambda size: size / 1e11)
    attention, own = model.layers[1], part.layers[1]
    waiting = 2 * 2 * attention.exchanged / 1e11
    assert own.parameters == attention.parameters / 8
    assert own.operations * 2 / 1e12 == pytest.approx(attention.operations / 8 * 2 / 1e12 + waiting)
    assert own.backward_operations is not None
    assert own.backward_operations * 2 / 1e12 == pytest.approx(3 * attention.operations / 8 * 2 / 1e12 + 2 * waiting)
    assert tensor.part_of(model, 2, 1, "none", 1e12, lambda size: 1.0) == model
    kept = [tensor.activation_bytes(model, 2, 1, what) for what in ("full", "selective", "none")]
    assert kept == sorted(kept) and kept[0] > 0
    assert tensor.activation_bytes(model, 2, 1, "") == 0


WRONG_GROUPS = {
    ("ports: 16", 3): "the 8 GPUs of a server of cluster cannot be divided evenly by it",
    ("no NVLink", 2): "the servers of cluster have no NVLink",
    ("recompute", 1): "--recompute takes",
    ("ring", 2): "ring is not planned with tensor parallelism",
    ("memory", 1): "the activations of llama3-70b take",
}


@pytest.mark.parametrize(("what", "group"), WRONG_GROUPS)
def test_a_group_that_cannot_be_is_an_error(tmp_path: Path, what: str, group: int) -> None:
    nvlink = "" if what == "no NVLink" else f", {NVLINK}"
    of = cluster(tmp_path, f"{{gpus: 8, nics: 8{nvlink}}}\ncompute: {{device: h100}}")
    training = Training("zero3", tensor=group, recompute={"recompute": "half", "memory": "none"}.get(what, ""))
    wanted = ["ring"] if what == "ring" else []
    with pytest.raises(UsageError) as raised:
        answer(of, model_of("llama3-70b" if what == "memory" else "llama3-8b"), 8, wanted, training=training)
    assert WRONG_GROUPS[what, group] in str(raised.value)


def test_the_command_tells_a_collective_as_nccl_tests_prints_it(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(SERVERS % f"{{gpus: 8, nics: 8, {NVLINK}}}")
    command = [sys.executable, "-m", "netfold.cli", "plan", "collective", "cluster.yaml", "--size-bytes", "1KiB,1GiB"]
    command += ["--algorithm", "nccl,nccl-ring,nccl-nvls-tree", "--json"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    told = json.loads(run.stdout)["results"]
    assert {each["library"] for each in told} == {"NCCL"}
    for each in told:
        assert each["bus_gbyte_s"] == pytest.approx(each["algorithm_gbyte_s"] * 15 / 8)
    chosen = [each for each in told if each["algorithm"] == "nccl"]
    assert all(each["is_fastest"] for each in chosen)
    assert [each["chosen"] for each in chosen] == ["tree, LL", "nvls-tree, Simple"]


def test_a_server_alone_is_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "alone.yaml").write_text((SERVERS % f"{{gpus: 8, nics: 8, {NVLINK}}}").replace("ports: 16", "ports: 8"))
    alone = spec.read(tmp_path / "alone.yaml")
    told = collective.entries(alone, "reduce-scatter", [1 << 20], [], 1)
    assert {each["algorithm"] for each in told} >= {"nccl", "ring", "direct"}
    with pytest.raises(UsageError, match="--collective takes"):
        collective.entries(alone, "all-to-all", [1 << 20], [], 1)


def test_open_mpi_takes_the_algorithm_of_its_switching_points(tmp_path: Path) -> None:
    assert [mpi.chosen(64, size) for size in (255 << 10, 256 << 10)] == ["recursive-doubling", "halving-doubling"]
    assert [mpi.chosen(200, size) for size in (1024, 1 << 18)] == ["binomial", "halving-doubling"]
    assert mpi.chosen(1 << 20, GIB) == "halving-doubling"
    path = tmp_path / "hosts.yaml"
    path.write_text("fabric: {kind: star, ports: 12, rate_gbit_s: 100}\n")
    hosts = spec.read(path)
    net = net_of(hosts)
    for size in (4096, 8191, 8192, 12000, 1 << 20):
        runs = Contender(mpi.chosen(12, size))
        assert net.seconds(Contender(mpi.NAME), size) == net.seconds(runs, size)
    told = collective.entries(hosts, "all-reduce", [4096, 1 << 20], [mpi.NAME, "ring"], 1)
    ran = [(each["library"], each["chosen"]) for each in told if each["algorithm"] == mpi.NAME]
    assert ran == [("Open MPI", "recursive-doubling"), ("Open MPI", "halving-doubling")]
    planned = answer(hosts, model_of("gpt2"), 1, [mpi.NAME])
    assert [each.contender.algorithm for each in planned.outcomes] == [mpi.NAME]
