"""The hardware, in short: modules and rings against the reference, failures, the model of its timing, proofs, linters,
and a rank's NIC as an engine. The campaigns behind it are commands: `netfold rtl test`, `bench`, `train`, `report`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from netfold.torch.options import load
from netfold_lab.rtl import bench, lint, prove, registers, report, simulation
from netfold_lab.rtl.drawings import pages
from torch_ranks import run_ranks, values

pytestmark = pytest.mark.timeout(900)
SHAPE = simulation.Shape()
WORLD = 3
COUNTS = [1, 40, 1003, 70_000]


@pytest.fixture(scope="module")
def built() -> simulation.Shape:
    """The shape whose simulations are built, and the NIC."""
    simulation.build(SHAPE, ("netfold-rtl", "netfold-nic"))
    return SHAPE


def _silent(_: str) -> None:
    pass


@pytest.mark.parametrize("pauses", [0.0, 0.3])
def test_modules_have_the_bits_of_the_reference(built: simulation.Shape, pauses: float) -> None:
    for found in bench.modules(built, 100_000, 1, pauses, _silent):
        assert found["differences"] == 0, found
        assert found["beats_per_cycle"] > (0.999 if pauses == 0 else 0.3), found
        assert pauses > 0 or found["latency_cycles"] <= found["latency_max_cycles"] + built.block // built.lanes


def test_rings_with_loss_have_the_bits_of_the_software(built: simulation.Shape) -> None:
    found = simulation.run(built, "rings", "--runs=25", "--world-max=8", "--count-max=5000", "--loss=0.05", "--seed=3")
    assert (found["differences"], found["failed"]) == (0, 0), found
    assert found["counters"]["frames_resent"] > 0 and found["counters"]["drops_full"] == 0, found
    largest = simulation.run(built, "ring", "--world=32", "--counts=31,1000", "--bfp")
    assert (largest["differences"], largest["failed"]) == (0, 0)


def test_requests_that_cannot_finish_end_with_a_status(built: simulation.Shape) -> None:
    cases = simulation.run(built, "failures")["cases"]
    assert [case for case in cases if not case["right"]] == []
    assert cases[-1]["differences"] == 0


@pytest.mark.parametrize("bfp", [False, True])
@pytest.mark.parametrize("world", [2, 5])
def test_an_all_reduce_takes_what_the_model_says(built: simulation.Shape, world: int, bfp: bool) -> None:
    for rate in (0.0, float(built.lanes)):
        timed = bench.all_reduce(built, world, 131_072, bfp, rate, _silent)
        assert abs(timed["error"]) < 0.03, timed
        assert timed["differences"] == 0


def test_the_ring_does_not_drain_between_requests(built: simulation.Shape) -> None:
    found = bench.requests_in_flight(built, 4, 16_384, 8, _silent)
    assert found["differences"] == 0
    assert found["overhead"] < 0.12, found


def test_block_diagrams_are_up_to_date() -> None:
    stale = [path.name for path, text in pages.diagrams().items() if path.read_text() != text]
    assert stale == [], "run netfold rtl drawings"


def test_what_is_generated_is_up_to_date() -> None:
    stale = [path.name for path, text in registers.outputs().items() if path.read_text() != text]
    assert stale == [], "run netfold rtl registers"


@pytest.mark.parametrize("linter", lint.LINTERS)
def test_linters_have_nothing_to_say(linter: str) -> None:
    lint.LINTERS[linter]()


@pytest.mark.parametrize("harness", prove.harnesses())
def test_proofs_hold(harness: str) -> None:
    assert prove.prove(harness).assertions > 0


def test_all_reduce_and_bfp_are_small() -> None:
    device = report.device(40)
    counted = [device.total(group) for group in (report.ALL_REDUCE, report.BFP)]
    assert all(area.luts > 1000 and area.dsps == 0 for area in counted), counted
    assert sum(area.luts for area in counted) <= 9000, counted
    assert device.modules[report.ALL_REDUCE]["fp32_adder"].instances == device.lanes


def test_fifos_fit_the_paper_device() -> None:
    paper = sum(rams for name, (_, rams, _) in report.PAPER.items() if name in (report.ALL_REDUCE, report.BFP))
    assert report.fifo_bits(8) <= paper * report.M20K_BITS


def _sums(rank: int, counts: list[int]) -> tuple[list[bytes], dict[str, Any]]:
    """The results of all-reduces of this rank's numbers, and the group's counters."""
    from netfold.torch.backend import backend_of

    found = []
    for count in counts:
        tensor = torch.randn(count, generator=torch.Generator().manual_seed(1000 * rank + count))
        dist.all_reduce(tensor)
        found.append(tensor.numpy().tobytes())
    backend = backend_of(dist.group.WORLD)  # type: ignore[arg-type]
    assert backend is not None
    return found, backend.stats()


@pytest.mark.parametrize("wire", ["fp32", "bfp"])
def test_a_nic_is_an_engine(built: simulation.Shape, wire: str) -> None:
    environment = {"NETFOLD_FORMAT": wire, "NETFOLD_ALGORITHM": "ring"}
    nics, software = (
        values(run_ranks(_sums, COUNTS, world=WORLD, environment={**environment, **engine}))
        for engine in ({"NETFOLD_NIC": "simulated"}, {})
    )
    assert [sums for sums, _ in nics] == [sums for sums, _ in software]
    assert [stats["nic_requests"] for _, stats in nics] == [len(COUNTS)] * WORLD


def _late(rank: int) -> str:
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:  # stays until the other one has given up
        store.wait(["given up"])
        return "never asked"
    try:
        dist.all_reduce(torch.ones(1000))
    except RuntimeError as error:
        return str(error)
    finally:
        store.set("given up", "")
    return "no error"


def test_a_nic_whose_neighbour_is_silent_gives_up(built: simulation.Shape) -> None:
    environment = {"NETFOLD_NIC": "simulated", "NETFOLD_ALGORITHM": "ring", "NETFOLD_TIMEOUT_S": "2"}
    outcomes = run_ranks(_late, environment=environment, timeout_s=40)
    assert "no data came through the ring of NICs" in str(outcomes[0].value), outcomes


def test_settings_of_the_engine() -> None:
    assert load(None, {"NETFOLD_NIC": "simulated"}).algorithm == "ring"
    with pytest.raises(ValueError, match="ring of NICs"):
        load(None, {"NETFOLD_NIC": "simulated", "NETFOLD_ALGORITHM": "direct"})


def _netfold(*words: str) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "netfold", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=os.environ)


def test_the_command(built: simulation.Shape) -> None:
    done = _netfold("rtl", "test", "--values", "5000", "--rings", "2", "--count-max", "500", "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert [result["module"] for result in results] == ["fold", "encode", "decode", "rings"]
    assert all(result["differences"] == 0 for result in results)


@pytest.mark.parametrize("worlds", ["1", "2,x", "33"])
def test_a_ring_has_2_to_32_devices(worlds: str) -> None:
    done = _netfold("rtl", "bench", "--worlds", worlds)
    assert done.returncode == 2
    assert "numbers of devices" in done.stderr
