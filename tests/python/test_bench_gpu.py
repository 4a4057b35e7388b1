"""`netfold bench gpu`: without a GPU its ranks compute on CPUs; the reading of a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from netfold_lab.bench import gpu, gpu_timeline


def _event(cat: str, name: str, ts: float, dur: float, **arguments: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": arguments}


def _trace(path: Path) -> Path:
    """A backward pass at 1000 us: four kernels of 100 us with a copy down after the first and one back in the last."""
    events = [_event("cuda_runtime", "cudaLaunchKernel", 900, 5, correlation=9)]
    events.append(_event("kernel", "forward", 1010, 90, stream=7, correlation=9))
    events.append(_event("user_annotation", "backward", 1000, 50))
    for number in range(4):
        events.append(_event("cuda_runtime", "cudaLaunchKernel", 1000 + 60 * number, 5, correlation=number))
        events.append(_event("kernel", "gemm", 1100 + 100 * number, 100, stream=7, correlation=number))
    events.append(_event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 1150, 50, stream=20, correlation=10, bytes=64))
    events.append(_event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1450, 50, stream=24, correlation=11, bytes=64))
    events.append(_event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1510, 2, stream=24, correlation=12, bytes=4))
    path.write_text(json.dumps({"traceEvents": [*events, {"ph": "M", "name": "process_name"}]}))
    return path


def test_a_trace_says_what_ran_while_gradients_were_on_their_way(tmp_path: Path) -> None:
    figures = gpu_timeline.read(_trace(tmp_path / "trace.json"))
    assert figures is not None
    assert figures["in_flight_s"] == pytest.approx(250e-6)
    assert figures["kernels_s"] == pytest.approx(400e-6)
    assert figures["kernels_in_flight_s"] == pytest.approx(250e-6)  # two whole ones, and a half
    assert figures["kernels_begun_in_flight"] == 3
    assert figures["python_backward_s"] == pytest.approx(50e-6)
    timeline = gpu_timeline.load(tmp_path / "trace.json")
    assert [(one.begin_s, one.end_s) for one in timeline.flights()] == [pytest.approx((200e-6, 450e-6))]
    gpu_timeline.draw({"ddp": timeline, "fsdp2": timeline}, tmp_path / "steps.png")
    assert (tmp_path / "steps.png").stat().st_size > 1000


def test_a_trace_without_a_backward_pass_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text('{"traceEvents": []}')
    with pytest.raises(ValueError, match="no backward pass"):
        gpu_timeline.load(tmp_path / "empty.json")


def _run(*words: str) -> Any:
    app = typer.Typer()
    app.callback()(lambda: None)
    gpu.register(app)
    return CliRunner().invoke(app, ["gpu", *words])


@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.timeout(200)
@pytest.mark.parametrize("device", ["cpu", pytest.param("", marks=pytest.mark.gpu)])
def test_the_ranks_train_alike_with_every_system(device: str) -> None:
    small = ["--layers", "3", "--width", "256", "--batch", "32", "--rounds", "1", "--rate-mbit-s", "1000"]
    done = _run("--device", device, *small, "--json")
    assert done.exit_code == 0, done.output
    entries = {(one["wrap"], one["system"]): one for one in json.loads(done.stdout)["results"]}
    systems = {"none", "netfold", "netfold bfp", "netfold without a switch", "gloo"}
    if not device:
        systems |= {name for _, name in entries if name.startswith("nccl")}
    assert set(entries) == {(wrap, system) for wrap in gpu.WRAPS for system in systems}
    gradient_bytes = 4 * 3 * (256 + 1) * 256
    for (_, system), entry in entries.items():
        assert entry["same_parameters"] is (None if system == "none" else True)
        if system != "none":
            least = gradient_bytes / 4 if system == "netfold bfp" else gradient_bytes
            assert least < entry["sent_bytes"] < 1.5 * gradient_bytes
        if system.startswith("netfold"):
            assert bool(entry["timeline"]) == (device != "cpu")


def test_wrong_words_are_refused() -> None:
    assert "--against takes gloo" in _run("--device", "cpu", "--against", "mpi").output
    assert "--out must end in" in _run("--device", "cpu", "--out", "steps.gif").output


@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.timeout(200)
def test_each_job_has_its_own_switch_and_store(tmp_path: Path) -> None:
    small = gpu.GpuSettings(rate_mbit_s=1000.0, layers=2, width=64, batch=8, rounds=1, timeout_s=60.0, device="cpu")
    through_the_switch = {"with_switch": True, "algorithm": "in-network"}
    job = gpu.Job([gpu.Way("ddp", "none", "none"), gpu.Way("ddp", "netfold", "netfold", through_the_switch)], {})
    entries = gpu.measure(small, [job, job], tmp_path, lambda what: None)
    assert [one["same_parameters"] for one in entries] == [None, True] * 2
