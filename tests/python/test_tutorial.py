"""The tutorial of two machines, typed as it is written, on machines whose host names resolve to 127.0.1.1."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab_commands import wait_for
from own_machines import ADDRESSES, WORKERS, Machine, Run, three_machines
from repository import ROOT

PAGE = (ROOT / "docs" / "tutorial" / "two-machines.md").read_text()
COMMANDS_MAX = 10
RATE = "50mbit"
TIMEOUT_S = 240.0
BUSY = 4  # processes that want to run, on each core
PROGRAMS = {"pip": "pip._internal.cli.main", "torchrun": "torch.distributed.run"}

pytestmark = [
    pytest.mark.root,
    pytest.mark.namespaces,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("nothing_left_behind"),
]


def typed() -> list[tuple[str, str]]:
    """The commands of the page in its order, each with its machine's name."""
    names = {address: name for name, address in ADDRESSES.items()}
    found: list[tuple[str, str]] = []
    for place, line in re.findall(r"^On ([^\n]*?)(?:, [^\n]*)?:\n```\n([^\n]*)\n```$", PAGE, re.M):
        machines = list(ADDRESSES) if place == "each of the three machines" else [names[place]]
        found += [(machine, line) for machine in machines]
    return found


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[dict[str, Machine]]:
    """Three machines, with the wheel and the script in their folder, and links of a rate at which gradients wait. Each
    has an environment of its own with PyTorch. Packages come from there: these machines reach no package index."""
    made = subprocess.run(
        [ROOT / "tools" / "dist.sh", sys.prefix, tmp_path], capture_output=True, text=True, timeout=600, check=False
    )
    assert made.returncode == 0, (made.stdout + made.stderr)[-3000:]
    [script] = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (tmp_path / "train.py").write_text(script)
    with three_machines(tmp_path) as found:
        for name, machine in found.items():
            environment = tmp_path / "environments" / name
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=120)
            [site] = environment.glob("lib/python*/site-packages")
            (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
            machine.settings = {"PATH": f"{environment}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PIP_NO_DEPS": "1"}
            for program, module in PROGRAMS.items():
                path = environment / "bin" / program
                path.write_text(
                    f"#!{environment}/bin/python\nimport sys\nfrom {module} import main\nsys.exit(main())\n"
                )
                path.chmod(0o755)
        for name, port in [*((name, "eth0") for name in WORKERS), *(("switch", f"to-{name}") for name in WORKERS)]:
            found[name].run(f"tc qdisc add dev {port} root tbf rate {RATE} burst 64kb latency 100ms")
        yield found


def ended(runs: list[Run]) -> str:
    """The output of both workers, once both have ended well."""
    deadline = time.monotonic() + TIMEOUT_S
    while any(run.process.poll() is None for run in runs) and time.monotonic() < deadline:
        time.sleep(0.1)
    said = "\n".join(run.said() for run in runs)
    assert [run.process.poll() for run in runs] == [0, 0], said
    return said


def step_ms(said: str, backend: str) -> float:
    return float(re.search(rf"^{backend}: (\d+) ms a step, loss \d", said, re.M)[1])


def test_it_works_at_the_first_try_and_trains_faster(machines: dict[str, Machine]) -> None:
    lines = typed()
    assert len(lines) <= COMMANDS_MAX
    *install, first_gloo, second_gloo, switch, first, second, top = lines
    for name, line in install:
        machines[name].run(line)
    where = machines["first"].run("python -c 'import netfold; print(netfold.__file__)'")
    assert "/environments/first/" in where, "the wheel is used, not this checkout"
    gloo = step_ms(ended([machines[name].start(line) for name, line in (first_gloo, second_gloo)]), "gloo")
    running = machines[switch[0]].start(switch[1])
    wait_for(lambda: "listening on" in running.said(), "the switch", 30.0)
    netfold = step_ms(ended([machines[name].start(line) for name, line in (first, second)]), "netfold")
    assert "nf-shard-0" in machines[top[0]].run(top[1])
    print(f"gloo {gloo} ms, netfold {netfold} ms")
    if os.getloadavg()[0] < BUSY * (os.cpu_count() or 1):  # else the ranks wait for the cores, not for the links
        assert netfold < gloo
