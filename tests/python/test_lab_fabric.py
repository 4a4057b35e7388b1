"""Routed fabrics of the lab: all routes work, links carry the predicted traffic, and nothing is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab_commands import LabCommands, wait_for
from netfold_lab.lab.cluster import Lab
from netfold_lab.lab.netns import enter
from netfold_lab.lab.spec import spec_of

pytestmark = [pytest.mark.namespaces, pytest.mark.usefixtures("nothing_left_behind")]
TINY = ("--repeat", "1", "--rate-mbit-s", "20", "--timeout-s", "60")
# Connects to every address; refused means that both ways are there.
REACHES = """
import socket, sys
for address in sys.argv[1:]:
    with socket.socket() as probe:
        probe.settimeout(10)
        try:
            probe.connect((address, 9))
        except ConnectionRefusedError:
            print(address)
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LabCommands]:
    commands = LabCommands(tmp_path)
    yield commands
    commands.run("down", check=False)


@pytest.mark.parametrize("fabric", ["bigraph", "fat-tree"])
def test_every_worker_reaches_every_other(lab: LabCommands, fabric: str) -> None:
    up = lab.run("up", "--fabric", fabric, "--shape", "2x4", "--json")
    (told,) = json.loads(up.stdout)["results"]
    addresses = list(told["addresses"].values())
    assert len(addresses) == 8
    assert all(address in Path(told["topology"]).read_text() for address in addresses)
    for worker in ("w0", "w5"):
        done = lab.run("exec", worker, "--", sys.executable, "-c", REACHES, *addresses)
        assert done.stdout.split() == addresses
    routes = lab.run("exec", "s2" if fabric == "fat-tree" else "s0", "--", "ip", "route").stdout
    assert routes.count("nexthop") == (2 if fabric == "fat-tree" else 0)
    lab.run("down")
    assert lab.files() == []


def test_another_rate_is_every_links() -> None:
    with Lab(spec_of("bigraph", "1x4", None, 20.0, None, None)) as lab:
        lab.set_rate(30.0)
        rates = []
        for namespace in lab.namespaces():
            queues = subprocess.run([*enter(namespace), "tc", "-j", "qdisc"], capture_output=True, check=True).stdout
            rates += [queue["options"]["rate"] for queue in json.loads(queues) if queue["kind"] == "tbf"]
    assert rates == [30_000_000 // 8] * 2 * (4 + 4), "a link for each worker, a cable from each upper to each lower"


@pytest.mark.parametrize("placement", ["block", "shuffled"])
def test_hdrm_has_one_connection_a_link(lab: LabCommands, tmp_path: Path, placement: str) -> None:
    picture = tmp_path / "plots" / "links.png"
    done = lab.run(
        *("run", "--fabric", "bigraph", "--shape", "2x4", "--placement", placement, "--size-bytes", "4096", "--json"),
        *("--algorithm", "hdrm,halving-doubling", "--links-out", str(picture), *TINY),
    )
    entries = {one["algorithm"]: one for one in json.loads(done.stdout)["results"]}
    for one in entries.values():
        assert one["same_bits"]
        assert one["max_abs_error"] < 1e-6
        assert one["connections_per_link_max_measured"] == one["connections_per_link_max_predicted"]
        foretold = {(cell["from_switch"], cell["to_switch"], cell["swap"]) for cell in one["links_predicted"]}
        assert {(cell["from_switch"], cell["to_switch"], cell["swap"]) for cell in one["links_measured"]} == foretold
    hdrm, plain = entries["hdrm"], entries["halving-doubling"]
    assert hdrm["connections_per_link_max_measured"] == 1
    assert len(hdrm["links_measured"]) == 3 * 8, "every cable, both ways, in every swap"
    assert plain["connections_per_link_max_measured"] > 1
    assert picture.stat().st_size > 1000


def test_a_fat_tree_sums_too(lab: LabCommands, tmp_path: Path) -> None:
    plot = tmp_path / "plots" / "times.svg"
    sizes = ("--size-bytes", "64,4096")
    done = lab.run("run", "--fabric", "fat-tree", "--shape", "1x4", *sizes, "--out", str(plot), *TINY, "--json")
    report = json.loads(done.stdout)
    assert report["parameters"]["fabric"] == "fat-tree"
    assert [one["algorithm"] for one in report["results"]] == ["hdrm", "halving-doubling", "ring"] * 2
    assert all(one["same_bits"] for one in report["results"])
    assert "<svg" in plot.read_text()


def test_killed_then_down(lab: LabCommands) -> None:
    running = lab.start("run", "--fabric", "bigraph", "--shape", "1x2", "--size-bytes", "4194304", "--repeat", "100")
    wait_for(lambda: running.poll() is not None or any(lab.runtime.glob("*/4MiB.sum.*")), "the first all-reduce")
    assert running.poll() is None, running.communicate()[1]
    running.kill()
    running.communicate(timeout=30)
    if os.geteuid() == 0:
        assert lab.files() != [], "no command could remove"
    lab.run("down")
    assert lab.files() == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "--fabric", "torus"), "--fabric must be one of"),
        (("run", "--fabric", "bigraph"), "--shape"),
        (("run", "--shape", "2x4"), "--fabric bigraph"),
        (("run", "--fabric", "bigraph", "--shape", "4x4"), "2 cables to the other half"),
        (("run", "--fabric", "bigraph", "--shape", "many"), "sub-nodes x switches"),
        (("up", "--fabric", "bigraph", "--shape", "2x4", "--workers", "7"), "8 workers, not 7"),
        (("run", "--fabric", "bigraph", "--shape", "2x4", "--algorithm", "in-network"), "--fabric star"),
        (("up", "--fabric", "fat-tree", "--shape", "2x4", "--loss", "0.1"), "--fabric star"),
        (("run", "--fabric", "fat-tree", "--shape", "2x4", "--links-out", "x.png"), "--links-out needs"),
        (("run", "--fabric", "bigraph", "--shape", "2x4", "--placement", "odd"), "--placement must be one of"),
    ],
)
def test_wrong_usage(lab: LabCommands, arguments: tuple[str, ...], sentence: str) -> None:
    done = lab.run(*arguments, check=False)
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())
