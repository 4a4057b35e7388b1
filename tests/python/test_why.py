"""`netfold why`: it names the rank that is late, and tells its computation from its network."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from lab_commands import wait_for
from netfold import collective_record
from netfold.why import records
from netfold.why.verdict import RankFinding
from netfold_lab.lab import names, shaping
from netfold_lab.lab.cluster import Lab
from netfold_lab.lab.netns import enter
from netfold_lab.lab.spec import LabSpec
from switch_programs import NETFOLD, Running, run, start
from torch_ranks import run_ranks, values

__all__ = ["start"]  # a fixture

WORLD = 3
# A rank at a switch that computes for a while, then sums, until its standard input ends.
RANK = """
import select, sys, time
import numpy as np
from netfold import _core
switch, rank, compute_s, faults = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
group = _core.SwitchGroup(switch, "digits/0", 3, rank, timeout_s=30.0, faults=faults)
tensor = np.ones(50_000, dtype=np.float32)
more = np.ones(1, dtype=np.int32)
while more[0] > 0:
    time.sleep(compute_s)
    group.wait(group.all_reduce(tensor.ctypes.data, tensor.ctypes.data, tensor.size, "fp32", "fp32", True))
    more[0] = not select.select([sys.stdin], [], [], 0)[0]
    group.wait(group.all_reduce(more.ctypes.data, more.ctypes.data, 1, "int32", "int32"))
    more[0] = more[0] == 3
group.close()
"""


class Ranks:
    """Three ranks of job digits; the words before a rank's command put it into its namespace."""

    def __init__(
        self, switch: str, compute_s: list[float], faults: str = "", inside: list[list[str]] | None = None
    ) -> None:
        self._ranks = [
            subprocess.Popen(
                [
                    *before,
                    sys.executable,
                    "-c",
                    RANK,
                    switch,
                    str(rank),
                    str(compute_s[rank]),
                    faults if rank == 1 else "",
                ],
                stdin=subprocess.PIPE,
            )
            for rank, before in enumerate(inside or [[]] * WORLD)
        ]

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self._ranks:
            rank.stdin.close()
        try:
            assert [rank.wait(30) for rank in self._ranks] == [0] * WORLD
        finally:
            for rank in self._ranks:
                rank.kill()
                rank.wait()


def _why(*arguments: str, before: list[str] | None = None) -> dict:
    done = subprocess.run(
        [*(before or []), *NETFOLD, "why", *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["results"][0]


def _knows(job: str, before: list[str]) -> bool:
    look = [*before, *NETFOLD, "why", job, "--seconds", "0.5", "--json"]
    done = subprocess.run(look, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode == 0 and json.loads(done.stdout)["results"][0]["chunks"] > 0


def _begun(switch: Running) -> Callable[[], bool]:
    return lambda: any(job["folded_chunks"] > 200 for job in switch.stats()["jobs"])


@pytest.mark.usefixtures("nothing_left_behind")
def test_a_rank_that_computes_longer_is_told_from_one_that_loses_packets(start: Callable[..., Running]) -> None:
    switch = start()
    with Ranks(switch.address, [0.01, 0.1, 0.01]):
        wait_for(_begun(switch), "the first sums")
        found = _why("digits", "--metrics", switch.metrics, "--seconds", "1")
        assert found["late"][0] == {"rank": "rank 1", "reason": "computation"}
        assert found["ranks"][1]["waited_s"] > 0.3
        said = run("why", "digits", "--metrics", switch.metrics, "--seconds", "0.5").stdout
        assert "rank 1 is late" in said
        assert "The reason is its computation" in said
        assert (found["job"], found["world"]) == ("digits/0", WORLD)
        unknown = run("why", "letters", "--metrics", switch.metrics, "--seconds", "0.5")
        assert (unknown.returncode, "running jobs: digits/0" in unknown.stderr) == (1, True)
    wait_for(lambda: not switch.stats()["jobs"], "the end of the job")
    with Ranks(switch.address, [0.01] * WORLD, faults="loss=0.05,seed=7"):
        wait_for(_begun(switch), "the first sums")
        found = _why("digits", "--metrics", switch.metrics, "--seconds", "1")
        assert {"rank": "rank 1", "reason": "network"} in found["late"]
        lost = [rank["lost"] for rank in found["ranks"]]
        assert lost[1] > 3 * max(lost[0], lost[2], 1)


@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.usefixtures("nothing_left_behind")
def test_a_slow_link_is_told_from_slow_computation() -> None:
    with Lab(LabSpec(workers=WORLD, rate_mbit_s=100.0)) as lab:
        box = enter(names.switch(lab.lab_id))
        address = f"{lab.addresses()['switch']}:7171"
        program = subprocess.Popen(
            [*box, *NETFOLD, "switch", "--bind", lab.addresses()["switch"], "--metrics", "127.0.0.1:9171"],
            stdout=subprocess.PIPE,
        )
        try:
            assert b"metrics" in program.stdout.readline() + program.stdout.readline()
            inside = [enter(lab.worker(rank)) for rank in range(WORLD)]
            slow = lab._sockets[lab.worker(2)]
            # So slow that a step is the link's time, also where busy cores delay each rank by tens of milliseconds.
            shaping.shape(slow, names.INTERFACE, 10.0, 4 * 1514, lab.spec.latency_ms)
            with Ranks(address, [0.01] * WORLD, inside=inside):
                wait_for(lambda: _knows("digits", box), "the first sums")
                found = _why("digits", "--seconds", "4", before=box)
            assert found["late"][0] == {"rank": "rank 2", "reason": "network"}, found
        finally:
            program.terminate()
            program.wait(20)
            program.stdout.close()


@pytest.mark.parametrize(
    ("chunks", "waited_s", "pauses", "paused_s", "reason"),
    [
        (2986, 3.65, 674, 3.15, "network"),  # a link of 10 Mbit/s; six busy programs on two cores
        (3144, 3.75, 119, 0.32, "network"),  # the same link on an idle machine
        (300, 3.75, 300, 3.75, "network"),  # a link of 1 Mbit/s: 12 ms a packet
        (1352, 3.87, 37, 3.84, "computation"),  # 160 ms longer than the others; six busy programs on two cores
        (1370, 0.17, 40, 0.13, "computation"),  # 10 ms longer, and three short waits a step
        (40, 4.0, 40, 4.0, "computation"),  # 100 ms longer, one chunk a tensor
    ],
)
def test_the_reason_is_how_pauses_compare_with_other_waits(
    chunks: int, waited_s: float, pauses: int, paused_s: float, reason: str
) -> None:
    rank = RankFinding("rank 2", chunks, waited_s, pauses, paused_s, lost=0, packets=chunks)
    assert rank.reason == reason


def _steps(rank: int, steps: int) -> None:
    tensor = torch.ones(1000)
    for _ in range(steps):
        time.sleep(0.1 if rank == 1 else 0.005)
        dist.all_reduce(tensor)
        gathered = [torch.zeros(10, dtype=torch.int64) for _ in range(WORLD)]
        dist.all_gather(gathered, torch.full((10,), rank))
    if rank == 0:
        dist.send(tensor, 1)
    if rank == 1:
        dist.recv(tensor, 0)
    dist.barrier()


@pytest.mark.parametrize("algorithm", ["ring", "in-network"])
@pytest.mark.usefixtures("no_rank_left")
def test_records_of_the_ranks_name_the_late_one(tmp_path: Path, algorithm: str) -> None:
    environment = {"NETFOLD_TRACE": str(tmp_path), "NETFOLD_ALGORITHM": algorithm}
    values(run_ranks(_steps, 8, world=WORLD, environment=environment))
    found = _why(str(tmp_path))
    assert found["late"][0] == {"rank": "rank 1", "reason": "computation"}  # busy cores can make others late too
    assert found["collectives"] == 8 * 2  # without the first
    assert found["ranks"][1]["came_last"] >= 7
    assert 0.2 < found["ranks"][1]["waited_s"] < found["watched_s"]
    (group,) = collective_record.read_folder(tmp_path).values()
    assert [each.name for each in group[0].collectives if each.number < 0] == ["send"]
    assert group[2].counters
    assert len(json.loads((tmp_path / group_file(group[0])).read_text().rstrip(",\n") + "]")) > 8 * 2

    profile = {"baseTimeNanoseconds": 10**18, "distributedInfo": {"rank": 2}, "traceEvents": []}
    profile["traceEvents"] = [{"ph": "X", "name": "aten::mm", "pid": 77, "tid": 77, "ts": 5.0, "dur": 1.0}]
    (tmp_path / "host.pt.trace.json").write_text(json.dumps(profile))
    timeline = tmp_path / "all.json"
    assert run("why", str(tmp_path), "--timeline", str(timeline)).returncode == 0
    events = json.loads(timeline.read_text())["traceEvents"]
    assert {event["pid"] for event in events if event["ph"] == "b"} == set(range(WORLD))
    assert [event["ts"] for event in events if event["name"] == "aten::mm"] == [10**15 + 5.0]


def group_file(record: collective_record.RankRecord) -> str:
    return f"{record.group or 'group'}-rank{record.rank}{collective_record.SUFFIX}"


def _fail(rank: int) -> None:
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    if rank == 2:
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(tensor)


@pytest.mark.usefixtures("no_rank_left")
def test_a_failure_is_in_the_records(tmp_path: Path) -> None:
    environment = {"NETFOLD_TRACE": str(tmp_path), "NETFOLD_ALGORITHM": "ring"}
    outcomes = run_ranks(_fail, world=WORLD, environment=environment)
    assert outcomes[0].error
    said = run("why", str(tmp_path)).stdout
    assert "rank 0: all-reduce 2 of 4,000 bytes failed after" in said
    assert "rank 2" in said.partition("failed after")[2]


@pytest.mark.parametrize(
    ("world", "advice"), [(3, "copy the files *.netfold.json of the other ranks"), (1, "one rank")]
)
def test_records_of_one_rank_are_an_error(tmp_path: Path, world: int, advice: str) -> None:
    recorder = collective_record.Recorder(str(tmp_path), "g", 0, world)
    recorder.end(recorder.begin("all-reduce", 8))
    recorder.close({})
    said = run("why", str(tmp_path), "--timeline", str(tmp_path / "all.json"))
    assert (said.returncode, said.stdout) == (1, "")
    assert advice in said.stderr
    assert (tmp_path / "all.json").is_file(), "a timeline needs no comparison"


def test_clocks_of_two_machines_are_aligned() -> None:
    def record(rank: int, host: str, starts: list[float], ends: list[float]) -> collective_record.RankRecord:
        made = collective_record.RankRecord(rank, 2, "g", host)
        made.collectives = [
            collective_record.Collective(number + 1, "all-reduce", 4, start_s, end_s, "")
            for number, (start_s, end_s) in enumerate(zip(starts, ends, strict=True))
        ]
        return made

    one = record(0, "a", [10.0, 11.0, 12.0], [10.5, 11.5, 12.5])
    other = record(1, "b", [110.4, 111.4, 112.4], [110.5, 111.5, 112.5])  # 100 s ahead, and 0.4 s late
    found = records.find("g", [one, other])
    assert [rank.who for rank in found.late] == ["rank 1"]
    assert found.ranks[1].waited_s == pytest.approx(0.8)
    assert found.sending_s == pytest.approx(0.2)
    assert any("rank 1 by -100000.0 ms" in note for note in found.notes)


def test_a_record_that_was_cut_off_is_read_and_an_old_one_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective_record, "LINES_MAX", 3)
    recorder = collective_record.Recorder(str(tmp_path), "a/b", 0, 2)
    for _ in range(5):
        recorder.end(recorder.begin("all-reduce", 8))
    in_flight = recorder.begin("barrier", 0)
    recorder._file.write('{"ph":"b","na')
    recorder._file.flush()
    (found,) = collective_record.read_folder(tmp_path)["a/b"]
    assert [each.number for each in found.collectives] == [1, 2, 3, 4, 5]
    assert in_flight == 6
    recorder.close({})
    with pytest.raises(ValueError, match=r"NETFOLD_TRACE=.* cannot be written"):
        collective_record.Recorder("/proc/none", "g", 0, 2)
