"""The doctor: every check has a verdict, every fault has a command that repairs it, and only required parts cause a
failure."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from netfold.chooser.table import Point, Table, conditions_here, path_of, write
from netfold.cli import doctor
from netfold.cli.checks import MISSING, OK, SLOW, Check, gpu, machine, package, sockets
from netfold.torch.devices import has_accelerator


def run_doctor(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    status: object = 0
    try:
        doctor.run(list(words))
    except SystemExit as ended:
        status = ended.code
    return status, capsys.readouterr().out


def pretend(monkeypatch: pytest.MonkeyPatch, *checks: Check) -> None:
    looks: tuple[Callable[[], list[Check]], ...] = (lambda: list(checks),)
    monkeypatch.setattr(doctor, "CHECKS", looks)


def test_this_machine() -> None:
    checks = doctor.examine()
    assert len({check.name for check in checks}) == len(checks) >= 16
    for check in checks:
        assert check.status in (OK, SLOW, MISSING)
        assert check.found
        assert check.status == OK or check.fix, f"{check.name}: how is it mended?"


def test_json_has_the_shape_of_every_report(capsys: pytest.CaptureFixture[str]) -> None:
    status, output = run_doctor(capsys, "--json")
    report = json.loads(output)
    assert set(report) == {"command", "version", "machine", "parameters", "results"}
    assert set(report["results"][0]) == {"name", "status", "found", "fix", "required"}
    assert status == any(one["required"] and one["status"] == MISSING for one in report["results"])


@pytest.mark.parametrize(
    ("check", "status"),
    [
        (Check("a", OK, "fine", required=True), 0),
        (Check("a", SLOW, "crawls", "sysctl", required=True), 0),
        (Check("a", MISSING, "nowhere", "apt-get", required=False), 0),
        (Check("a", MISSING, "nowhere", "apt-get", required=True), 1),
    ],
)
def test_only_what_is_required_and_missing_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], check: Check, status: int
) -> None:
    pretend(monkeypatch, check)
    found, output = run_doctor(capsys)
    assert found == status
    assert check.status in output
    assert ("->" in output) == (check.status != OK)


LONG = Check(
    "eth0", SLOW, f"it takes {'/folder' * 12} and more", "ip link set dev eth0 mtu 9000   # if " + 8 * "ports "
)


def test_lines_fit_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pretend(monkeypatch, Check("a-long-name-of-a-check", OK, "fine"), LONG)
    monkeypatch.setenv("COLUMNS", "80")
    lines = run_doctor(capsys)[1].splitlines()
    assert len(lines) > 5
    assert max(map(len, lines)) <= 80
    assert "-> ip link set dev eth0 mtu 9000 " in "\n".join(lines), "a command stays whole"
    assert "".join("".join(lines).split()).count("/folder") == 12


def test_lines_stay_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pretend(monkeypatch, LONG)
    monkeypatch.delenv("COLUMNS", raising=False)
    first, second, _ = run_doctor(capsys)[1].splitlines()
    assert first.endswith("and more")
    assert second.rstrip().endswith("ports")


def test_small_socket_buffers_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "BUFFER_BYTES", 1 << 30)
    assert [check.status for check in sockets.buffers()] == [SLOW, SLOW]
    monkeypatch.setattr(sockets, "BUFFER_BYTES", 1 << 12)
    assert [check.status for check in sockets.buffers()] == [OK, OK]


def test_buffers_by_force_as_a_link_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a process that may not exceed the limits (here the option is not allowed), the limits count."""
    asked = []

    class Socket(socket.socket):
        def setsockopt(self, level: int, option: int, value: int) -> None:  # type: ignore[override]
            asked.append(option)
            if option in (sockets.SO_RCVBUFFORCE, sockets.SO_SNDBUFFORCE):
                raise PermissionError
            super().setsockopt(level, option, value)

    monkeypatch.setattr(sockets.socket, "socket", Socket)
    assert len(sockets.buffers()) == 2
    assert asked == [sockets.SO_RCVBUFFORCE, socket.SO_RCVBUF, sockets.SO_SNDBUFFORCE, socket.SO_SNDBUF]


def test_no_segmentation_offload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "UDP_SEGMENT", 9999)
    assert [check.status for check in sockets.offloads()] == [SLOW, SLOW]


def test_absent_programs_name_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    checks = package.programs()
    assert {check.status for check in checks} == {MISSING}
    assert all(check.fix.startswith("apt-get install ") for check in checks)


def test_namespaces_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.namespace_rights, "lacking", lambda: True)
    monkeypatch.setenv("PATH", "")
    [check] = machine.namespaces()
    assert check.status == MISSING
    assert "root" in check.fix


def test_a_chosen_kernel_table_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("netfold._core")
    monkeypatch.setenv("NETFOLD_KERNELS", "reference")
    kernels = next(check for check in package.extension() if check.name == "kernels")
    assert (kernels.status, kernels.fix) == (SLOW, "unset NETFOLD_KERNELS")


def test_the_probe_sockets_are_closed() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    sockets.offloads()
    sockets.buffers()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_tuned_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    here = conditions_here("shm", "fp32")
    assert package.tuning() == [Check("tuning", SLOW, package.tuning()[0].found, "netfold bench allreduce --tune")]
    write(Table(here, "2026-11-20", (Point("ring", 2, 1024, (0.001,)),)), path_of(here))
    assert package.tuning() == [Check("tuning", OK, "1 points of 2026-11-20")]
    write(Table(replace(here, netfold="0.0.1"), "2026-11-20"), path_of(here))
    assert "0.0.1" in package.tuning()[0].found
    path_of(here).write_text("{")
    assert package.tuning()[0].status == SLOW
    assert str(path_of(here)) in package.tuning()[0].found


def test_a_machine_without_a_gpu_loads_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "DEVICE_FILES", ())
    monkeypatch.setattr("importlib.util.find_spec", pytest.fail)
    [check] = gpu.accelerator()
    assert (check.status, check.found) == (OK, "none: tensors are in the host's memory")


@pytest.mark.skipif(has_accelerator(), reason="PyTorch finds the GPU")
def test_a_gpu_that_torch_cannot_use_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu, "DEVICE_FILES", (str(tmp_path),))
    [check] = gpu.accelerator()
    assert check.status == MISSING and "finds no device" in check.found


def test_rates_of_a_gpu_are_judged() -> None:
    assert gpu.pinned_copies(25e9, 24e9) == Check(
        "GPU copies", OK, "25.0 GB/s to the host, 24.0 GB/s to the device, pinned"
    )
    assert gpu.pinned_copies(25e9, 3e9).status == SLOW
    assert gpu.streams(True).status == OK and gpu.streams(False).status == SLOW
    fast = gpu.codec(500e9, 750e9, 1000e9)
    assert fast.status == OK
    assert fast.found == "encodes at 500 GB/s, 50% of a copy's rate, and decodes at 750 GB/s, 75%"
    assert gpu.codec(500e9, 100e9, 1000e9).status == SLOW
    assert gpu.codec(0, 0, 1000e9).status == MISSING


@pytest.mark.gpu
def test_a_gpu_is_measured() -> None:
    checks = {check.name: check for check in gpu.accelerator()}
    print("\n".join(f"{check.name}: {check.found}" for check in checks.values()))
    assert set(checks) == {"GPU", "GPU copies", "GPU streams", "GPU codec"}
    assert all(check.status != MISSING for check in checks.values())
