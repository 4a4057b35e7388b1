"""Measurements of all-reduces: the arithmetic of their reports, and one small run of each kind."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from lab_commands import LabCommands
from netfold_lab.bench import allreduce, bounds, codec, measure, models, plots, results, sweep, tensors
from netfold_lab.bench.comparison import ComparisonSettings, peers_of
from netfold_lab.bench.sites import LocalSite
from netfold_lab.bench.tables import results_table
from netfold_lab.errors import UsageError
from netfold_lab.lab.spec import Faults
from netfold_lab.sizes import size_name, sizes_of

HAS_CORE = importlib.util.find_spec("netfold._core") is not None
HAS_MPI = shutil.which("mpirun") is not None and shutil.which("mpicc") is not None
PEERS = ["gloo", "openmpi"] if HAS_MPI else ["gloo"]
MIB = 1 << 20


def test_bound_of_the_full_packets_and_the_last() -> None:
    # 16 MiB of FP32 are 11522 packets of 364 elements and one of 296; each has 58 bytes of headers.
    wire_bytes = bounds.in_network_wire_bytes(4 * MIB, 1500, "fp32")
    assert wire_bytes == 11522 * (364 * 4 + 58) + 296 * 4 + 58
    assert bounds.seconds(wire_bytes, 200) == pytest.approx(0.6978, abs=1e-4)
    assert 16 * MIB / wire_bytes > 0.94, "goodput asked for"


def test_bound_of_bfp_counts_whole_blocks() -> None:
    assert bounds.elements_per_packet(1500, "bfp", 16, 7) == 1360
    wire_bytes = bounds.in_network_wire_bytes(4 * MIB, 1500, "bfp")
    packets, rest = divmod(4 * MIB, 1360)
    assert wire_bytes == packets * (85 * 17 + 58) + rest // 16 * 17 + 58


@pytest.mark.parametrize(
    ("mtu", "wire", "elements"),
    [(1499, "fp16", 726), (1500, "int32", 364), (9000, "fp32", 2048), (65535, "bf16", 4096), (9000, "bfp", 7696)],
)
def test_a_packet_holds_whole_words_and_at_most_the_lease(mtu: int, wire: str, elements: int) -> None:
    assert bounds.elements_per_packet(mtu, wire, 16, 7) == elements


@pytest.mark.parametrize("text", ["-4", "0", "4097", "400000000000000", "4096,10", "many"])
def test_wrong_sizes_of_the_codec_are_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="--size-bytes"):
        codec.sizes_to_measure(text)
    assert codec.sizes_to_measure("4096,16384") == [4096, 16384]


@pytest.mark.skipif(not HAS_CORE, reason="the extension is not built")
@pytest.mark.parametrize(
    "words", [("--size-bytes", "508"), ("--repeat", "-1"), ("--block", "12"), ("--mantissa", "-1")]
)
def test_wrong_usage_of_the_codec(words: tuple[str, ...]) -> None:
    app = typer.Typer()
    app.callback()(lambda: None)
    codec.register(app)
    done = CliRunner().invoke(app, ["codec", *words])
    assert done.exit_code == 2, done.output


def test_parameters_have_the_names_of_every_report() -> None:
    told = ComparisonSettings({"1 KiB": 1024, "1 MiB": MIB}, wire="bfp").parameters()
    assert (told["format"], told["size_bytes"]) == ("bfp", [1024, MIB])
    assert not {"wire", "sizes"} & set(told)


def test_bound_of_a_ring_is_that_much_of_the_tensor() -> None:
    assert bounds.ring_wire_bytes(16 * MIB, 1500, 8) == pytest.approx(16 * MIB * 1.75 * 1514 / 1448, rel=1e-3)


@pytest.mark.parametrize("wire", ["fp32", "int32"])
def test_the_exact_sum_is_exact(tmp_path: Path, wire: str) -> None:
    tensor = tensors.make(tmp_path, "1 KiB", 1024, wire, 3, seed=7)
    parts = [np.fromfile(path, np.float32 if wire == "fp32" else np.int32).astype(np.float64) for path in tensor.inputs]
    expected = np.fromfile(tensor.expected, np.float64)
    assert expected.tolist() == [math.fsum(column) for column in zip(*parts, strict=True)]
    tensors.discard(tensor)
    assert list(tmp_path.iterdir()) == []


def entry(system: str, algorithm: str, time_s: float, workers: int = 8, faults: str | None = None) -> dict[str, Any]:
    return {
        "system": system,
        "algorithm": algorithm,
        "format": "fp32",
        "tensor": "1 MiB",
        "size_bytes": MIB,
        "workers": workers,
        "faults": faults,
        "time_s": [time_s],
        "time_s_median": time_s,
        "max_abs_error": 0.0,
        "same_bits": True,
    }


def test_the_speed_up_is_over_the_better_peer_at_its_best() -> None:
    compared = results.compare(
        [
            entry("netfold", "in-network", 0.1),
            entry("gloo", "ring", 0.3),
            entry("openmpi", "ring", 0.2),
            entry("openmpi", "default", 0.15),
            entry("gloo", "ring", 0.01, workers=2),
        ]
    )
    ours = compared[0]
    assert ours["best_peer"] == {"system": "openmpi", "algorithm": "default"}
    assert ours["speedup_over_best_peer"] == pytest.approx(1.5)
    assert ours["speedup_over"] == pytest.approx({"gloo": 3.0, "openmpi": 1.5})
    assert [one["best_of_its_system"] for one in compared] == [True, True, False, True, True]


def test_models_are_whole_elements() -> None:
    assert models.size_bytes("ResNet-50", 0.125) == 98 * MIB // 8
    assert all(models.size_bytes(model, 0.1234567) % 4 == 0 for model in models.MODEL_MIB)


def test_sizes_and_sweeps() -> None:
    assert sizes_of("16777216,1MiB,1 KiB,2GiB,3B") == [16 * MIB, MIB, 1024, 2 << 30, 3]
    assert [size_name(size) for size in (16 * MIB, 1024, 0)] == ["16 MiB", "1 KiB", "0 B"]
    with pytest.raises(UsageError, match="--size-bytes"):
        sizes_of("1MB")
    assert (peers_of("gloo,openmpi"), peers_of("none"), peers_of("")) == (("gloo", "openmpi"), (), ())
    assert size_name(1000) == "1000 B"
    assert sweep.counts_of("2..5") == [2, 3, 4, 5]
    assert sweep.counts_of("2,8") == [2, 8]
    for wrong in ("", "8..2", "0..3", "a..b", "1..2..3"):
        with pytest.raises(UsageError):
            sweep.counts_of(wrong)


def test_a_comparison_counts_its_steps() -> None:
    assert ComparisonSettings({"1 MiB": MIB}, repeat=5).steps() == 6 * (1 + 1 + 3)
    assert ComparisonSettings({"1 MiB": MIB}, repeat=1, against=("gloo",), faults=Faults(loss=0.01)).steps() == 2 * (
        2 + 1
    )
    assert ComparisonSettings({"1 MiB": MIB}, "in-network,ring,auto", repeat=1, against=("gloo",)).steps() == 2 * (
        3 + 1
    )
    faulty = ComparisonSettings(
        {"1 MiB": MIB}, "ring", repeat=1, against=(), faults=Faults(loss=0.01), faults_by="kernel"
    )
    assert faulty.steps() == 2 * 2


def test_a_comparison_knows_the_least_time_of_its_links() -> None:
    swaps = ComparisonSettings({"16 MiB": 16 * MIB}, "hdrm,ring", repeat=5, against=())
    assert swaps.link_seconds(8, 10) == pytest.approx(6 * 2 * 1.75 * 8 * 16 * MIB / 10e6)
    both = ComparisonSettings({"1 MiB": MIB}, "in-network", wire="bfp", repeat=1, against=("gloo",))
    assert both.link_seconds(2, 100) == pytest.approx(2 * (17 / 64 + 1) * 8 * MIB / 100e6)


@pytest.mark.parametrize("suffix", plots.SUFFIXES)
def test_plot_and_table(tmp_path: Path, suffix: str) -> None:
    found = results.compare(
        [one for n in (2, 4, 8) for one in (entry("netfold", "in-network", 0.1, n), entry("gloo", "ring", 0.02 * n, n))]
    )
    plots.draw(found, tmp_path / f"deep/plot{suffix}")
    assert (tmp_path / f"deep/plot{suffix}").stat().st_size > 1000
    assert results_table("title", found).row_count == 6


def check_report(report: dict[str, Any], command: str, systems: dict[str, int], repeat: int) -> None:
    """The shape that every report has, and sums that are right."""
    assert set(report) == {"command", "version", "machine", "parameters", "results"}
    assert report["command"] == command
    assert {name: sum(one["system"] == name for one in report["results"]) for name in systems} == systems
    for one in report["results"]:
        assert len(one["time_s"]) == repeat
        assert all(0 < time_s < 60 for time_s in one["time_s"])
        assert min(one["time_s"]) <= one["time_s_median"] <= max(one["time_s"])
        assert one["size_bytes"] == 262144
        assert 0 <= one["max_abs_error"] < 1e-6
        assert one["same_bits"], "every rank, every repetition"
        assert one["format"] == "fp32"


@pytest.mark.namespaces
@pytest.mark.usefixtures("nothing_left_behind")
def test_lab_run_reports_every_system_in_json(tmp_path: Path) -> None:
    ours = "in-network" if HAS_CORE else "none"
    lab = LabCommands(tmp_path)
    done = lab.run(
        *("run", "--workers", "2", "--rate-mbit-s", "100", "--size-bytes", "262144", "--algorithm", ours),
        *("--against", ",".join(PEERS), "--repeat", "2", "--json"),
    )
    report = json.loads(done.stdout)
    systems = {"netfold": int(HAS_CORE), "gloo": 1, "openmpi": 3 * int(HAS_MPI)}
    check_report(report, "lab run", systems, repeat=2)
    assert report["parameters"]["rate_mbit_s"] == 100
    assert (report["parameters"]["workers"], report["parameters"]["size_bytes"]) == (2, [262144])
    for one in report["results"]:
        assert one["wire_bytes_sent"] > 0.99 * one["wire_bytes_bound"], "no system sends less than its bound"
        assert one["time_s_median"] > 0.9 * one["bound_from_rest_s"]
        assert one["speedup_over_best_peer"] > 0
        if one["system"] == "netfold":
            assert one["goodput_sent"] > 0.94
    assert lab.files() == []


@pytest.mark.namespaces
@pytest.mark.skipif(not HAS_CORE, reason="the extension is not built")
@pytest.mark.usefixtures("nothing_left_behind")
def test_lab_run_measures_host_algorithms(tmp_path: Path) -> None:
    lab = LabCommands(tmp_path)
    done = lab.run(
        *("run", "--workers", "3", "--rate-mbit-s", "100", "--size-bytes", "262144", "--against", "gloo"),
        *("--algorithm", "ring,halving-doubling,in-network", "--repeat", "2", "--json"),
    )
    report = json.loads(done.stdout)
    check_report(report, "lab run", {"netfold": 3, "gloo": 1}, repeat=2)
    by_name = {(one["system"], one["algorithm"]): one for one in report["results"]}
    ring = by_name["netfold", "ring"]
    assert ring["bound_s"] == by_name["netfold", "halving-doubling"]["bound_s"] == by_name["gloo", "ring"]["bound_s"]
    assert ring["bound_s"] == pytest.approx(bounds.seconds(bounds.ring_wire_bytes(262144, 1500, 3), 100))
    assert ring["wire_bytes_sent"] >= 0.98 * ring["wire_bytes_bound"], "all of it crossed the link: no shared memory"
    assert lab.files() == []


@pytest.mark.namespaces
@pytest.mark.skipif(not HAS_CORE, reason="the extension is not built")
@pytest.mark.usefixtures("nothing_left_behind")
def test_a_tensor_in_pieces_has_the_bits_of_the_switch(tmp_path: Path) -> None:
    """At this rate `auto` divides a tensor of 8 MiB in eight pieces, each with a share of its own."""
    done = LabCommands(tmp_path).run(
        *("run", "--workers", "3", "--rate-mbit-s", "100", "--size-bytes", "8MiB", "--against", "none"),
        *("--repeat", "2", "--json"),
    )
    by_name = {one["algorithm"]: one for one in json.loads(done.stdout)["results"]}
    assert set(by_name) == {"in-network", "split"}
    assert by_name["split"]["digests"] == by_name["in-network"]["digests"]
    assert len(by_name["split"]["digests"]) == 1
    # A link like a worker's carries a third of what three workers send; the ranks carry the rest.
    assert by_name["split"]["wire_bytes_sent"] > 1.02 * by_name["in-network"]["wire_bytes_sent"]


@pytest.mark.namespaces
@pytest.mark.skipif(not HAS_CORE, reason="the extension is not built")
@pytest.mark.parametrize("by", ["kernel", "netfold"])
@pytest.mark.usefixtures("nothing_left_behind")
def test_faults_change_no_bit(tmp_path: Path, by: str) -> None:
    done = LabCommands(tmp_path).run(
        *("run", "--workers", "2", "--size-bytes", "1048576", "--against", "", "--repeat", "2", "--json"),
        *("--loss", "0.01", "--duplicate", "0.01", "--reorder", "0.05", "--faults-by", by, "--seed", "7"),
        *("--algorithm", "in-network"),
    )
    clean, faulty = json.loads(done.stdout)["results"]
    assert clean["faults"] is None
    assert faulty["faults"].startswith(by)
    assert clean["digests"] == faulty["digests"]
    assert len(clean["digests"]) == 1


@pytest.fixture
def app() -> typer.Typer:
    bench = typer.Typer()
    bench.callback()(lambda: None)
    allreduce.register(bench)
    return bench


@pytest.mark.usefixtures("nothing_left_behind")
def test_bench_allreduce_over_loopback(app: typer.Typer) -> None:
    ours = "in-network" if HAS_CORE else "none"
    words = ["allreduce", "--ranks", "2", "--size-bytes", "262144", "--algorithm", ours, "--against", ",".join(PEERS)]
    done = CliRunner().invoke(app, [*words, "--repeat", "2", "--json"])
    assert done.exit_code == 0, done.output
    ways = 2 if len(os.sched_getaffinity(0)) >= 2 else 1  # to wait: giving the core away, or spinning
    systems = {"netfold": int(HAS_CORE), "gloo": 1, "openmpi": 3 * ways * int(HAS_MPI)}
    check_report(json.loads(done.stdout), "bench allreduce", systems, repeat=2)


@pytest.mark.skipif(not HAS_CORE, reason="the extension is not built")
@pytest.mark.usefixtures("nothing_left_behind")
def test_bench_allreduce_through_the_c_interface(app: typer.Typer) -> None:
    words = ["allreduce", "--ranks", "3", "--size-bytes", "1024,65536,1048576", "--interface", "c", "--against", "gloo"]
    for wire, error_max in (("fp32", 1e-6), ("bfp", 1e-2), ("int32", 0)):
        done = CliRunner().invoke(
            app, [*words, "--algorithm", "auto,ring", "--format", wire, "--repeat", "1", "--json"]
        )
        assert done.exit_code == 0, done.output
        ours = [one for one in json.loads(done.stdout)["results"] if one["system"] == "netfold"]
        assert [(one["size_bytes"], one["algorithm"]) for one in ours] == [
            (size, name) for size in (1024, 65536, 1048576) for name in ("auto", "ring")
        ]
        for one in ours:
            assert one["same_bits"]
            assert one["max_abs_error"] <= error_max


def test_within_a_machine_the_bound_is_one_copy_of_every_tensor() -> None:
    with LocalSite(4) as site:
        tensor = tensors.Tensor("64 MiB", 16 * MIB, "fp32", [], Path())
        series = measure.Series("netfold", "direct", "fp32", tensor, time_s=[0.5], copy_bytes_s=[2e9, 9e9, 4e9])
        told = results.entry(series, site, 0, 16, 7)
        assert told["copy_bytes_s"] == 4e9
        assert told["bound_s"] == pytest.approx(4 * 64 * MIB / 4e9)
        assert told["ratio_to_bound"] == pytest.approx(0.5 / told["bound_s"])
        small = tensors.Tensor("1 MiB", MIB // 4, "fp32", [], Path())
        assert "bound_s" not in results.entry(
            measure.Series("netfold", "ring", "fp32", small, time_s=[1]), site, 0, 16, 7
        )


def test_memory_is_copied_beside_every_repetition(app: typer.Typer) -> None:
    words = ["allreduce", "--ranks", "2", "--algorithm", "direct", "--against", "", "--repeat", "2", "--json"]
    done = CliRunner().invoke(app, [*words, "--size-bytes", f"{MIB},{16 * MIB}"])
    assert done.exit_code == 0, done.output
    small, large = json.loads(done.stdout)["results"]
    assert "copy_bytes_s" not in small
    assert large["copy_bytes_s"] > 1e8
    assert large["bound_s"] == pytest.approx(2 * 16 * MIB / large["copy_bytes_s"])


def test_small_ones_are_repeated_until_they_can_be_timed() -> None:
    settings = ComparisonSettings({"1 KiB": 1024}, iterations=0)
    assert [settings.iterations_of(size) for size in (4, 65536, 262144, MIB, 64 * MIB)] == [500, 500, 256, 64, 1]
    assert ComparisonSettings({"1 KiB": 1024}, iterations=7).iterations_of(4) == 7
    assert ComparisonSettings({"1 KiB": 1024}).iterations_of(4) == 1, "a lab counts the bytes of one"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--interface", "fortran"), "--interface must be one of"),
        (("--interface", "c"), "without a switch"),
        (("--interface", "c", "--algorithm", "hdrm"), "a topology"),
        (("--interface", "mpi", "--algorithm", "ring,auto"), "one algorithm"),
        (("--iterations", "-1"), "--iterations"),
    ],
)
def test_wrong_interfaces_are_wrong_usage(app: typer.Typer, words: tuple[str, ...], says: str) -> None:
    done = CliRunner().invoke(app, ["allreduce", *words])
    assert done.exit_code == 2
    assert says in " ".join(done.output.replace("│", " ").split())


@pytest.mark.skipif(not HAS_CORE, reason="the extension is not built")
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.usefixtures("nothing_left_behind")
def test_bench_allreduce_measures_host_algorithms(app: typer.Typer, ranks: int) -> None:
    ours = "ring,halving-doubling,recursive-doubling,hierarchical,hdrm,auto"
    words = ["allreduce", "--ranks", str(ranks), "--size-bytes", "262144", "--algorithm", ours, "--against", "gloo"]
    done = CliRunner().invoke(app, [*words, "--bigraph", f"{ranks // 2}x2", "--group", "2", "--repeat", "2", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    check_report(report, "bench allreduce", {"netfold": 6, "gloo": 1}, repeat=2)
    assert report["parameters"]["algorithm"] == ours
    assert [one["algorithm"] for one in report["results"] if one["system"] == "netfold"] == ours.split(",")


@pytest.mark.skipif(not HAS_CORE, reason="the extension is not built")
@pytest.mark.parametrize("engine", ["caller", "agent"])
@pytest.mark.usefixtures("nothing_left_behind")
def test_bench_allreduce_measures_other_placements(app: typer.Typer, engine: str) -> None:
    words = ["allreduce", "--ranks", "2", "--size-bytes", "262144", "--algorithm", "ring", "--against", ""]
    done = CliRunner().invoke(app, [*words, "--engine", engine, "--repeat", "2", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    check_report(report, "bench allreduce", {"netfold": 1}, repeat=2)
    assert report["parameters"]["engine"] == engine


@pytest.mark.skipif(not HAS_CORE, reason="the extension is not built")
@pytest.mark.parametrize(
    ("algorithm", "more", "says"),
    [
        ("hdrm", ("--bigraph", "2x2"), "--algorithm hdrm for 3 ranks"),
        ("hdrm", ("--bigraph", "many"), "4x8"),
        ("hierarchical", (), "group"),
        ("ring,tree", (), "--algorithm must be one of"),
        ("ring", ("--engine", "gpu"), "--engine must be one of caller, thread, agent"),
        ("in-network", ("--engine", "agent"), "--algorithm ring"),
        ("none,ring", (), "--algorithm must be one of"),
    ],
)
def test_an_algorithm_that_cannot_serve_is_wrong_usage(
    app: typer.Typer, algorithm: str, more: tuple[str, ...], says: str
) -> None:
    done = CliRunner().invoke(app, ["allreduce", "--ranks", "3", "--algorithm", algorithm, *more])
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())


def test_a_rank_that_cannot_start_is_an_error_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from netfold_lab.bench.comparison import locally
    from netfold_lab.bench.control import MeasurementError

    monkeypatch.setenv("PYTHONHOME", str(tmp_path))  # no interpreter starts there
    assert sys.executable
    with pytest.raises(MeasurementError, match=r"gloo: a process ended with status 1.*log ends"):
        locally(2, ComparisonSettings({"1 KiB": 1024}, "none", against=("gloo",), timeout_s=20), lambda what: None)
