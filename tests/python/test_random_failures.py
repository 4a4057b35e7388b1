"""Machines and links of a lab fail at random moments. The other ranks' errors name the right rank, in time, and the
next job of the same processes works.

NETFOLD_FAILURES=500 makes so many of each kind; `pytest -s` then shows how late the errors came.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from failing_rank import KINDS, PEERS, SPLIT, SWITCH
from lab_commands import wait_for
from netfold_lab.lab import names
from netfold_lab.lab.cluster import Lab
from netfold_lab.lab.faults import run_tool
from netfold_lab.lab.netns import enter
from netfold_lab.lab.spec import LabSpec
from switch_programs import listening

NUMBER = int(os.environ.get("NETFOLD_FAILURES", "1"))
pytestmark = [
    pytest.mark.namespaces,
    pytest.mark.usefixtures("nothing_left_behind"),
    pytest.mark.timeout(120 + 60 * NUMBER),
]
WORLD = 4
PORT = 7171
TIMEOUT_S = 2.0
SILENCE_S = 8.0  # until elastic ranks know of a machine that is cut off, on a network that answers at once
SLACK_S = 5.0  # of a busy machine
START_S = 60.0
REBOOT_S = 0.3
JOINING_S, RUNNING_S = 0.05, 0.6  # a failure comes while the group forms, or later
KILLED, STOPPED, LINK_DOWN, MUTE, DEAF, HALF_OPEN = FAILURES = (
    "killed",  # SIGKILL: the connections are closed by the kernel
    "stopped",  # SIGSTOP: the connections stay, and what is sent is not read
    "link down",  # nothing comes or goes
    "mute",  # a partition in one direction: what the machine sends is lost
    "deaf",  # the other direction: what is sent to the machine is lost
    "half-open",  # the machine is gone without a word, and comes back without its connections
)
CUTS = {
    MUTE: 'type filter hook output priority 0; oifname != "lo" drop',
    DEAF: 'type filter hook input priority 0; iifname != "lo" drop',
}


class Rank:
    """A process in a worker's namespace."""

    def __init__(self, lab: Lab, number: int, log: Path) -> None:
        self.namespace = lab.worker(number)
        self.host = lab.fabric.address(number)
        self._log = log
        self.start()

    def start(self) -> None:
        """Begin the process, or begin it anew."""
        program = [sys.executable, str(Path(__file__).with_name("failing_rank.py"))]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*enter(self.namespace), *program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
            )
        self._said = b""
        self.hear("ready", timeout_s=START_S)

    def end(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def order(self, **what: Any) -> None:
        """One line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what).encode() + b"\n")

    def hear(self, *keys: str, timeout_s: float) -> dict[str, Any]:
        """The next line with one of the keys."""
        deadline = time.monotonic() + timeout_s
        assert self.process.stdout is not None
        while True:
            while b"\n" not in self._said:
                is_there = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]
                assert is_there, f"{self.namespace} did not say {' or '.join(keys)} within {timeout_s:g} s"
                more = os.read(self.process.stdout.fileno(), 65536)
                assert more, f"{self.namespace} ended: {self._log.read_text()[-3000:]}"
                self._said += more
            line, _, self._said = self._said.partition(b"\n")
            said = json.loads(line)
            if any(key in said for key in keys):
                return said

    def strike(self, failure: str) -> float:
        """Let it fail; returns when, in CLOCK_MONOTONIC."""
        when = time.monotonic()
        if failure == STOPPED:
            self.process.send_signal(signal.SIGSTOP)
        elif failure in CUTS:
            rules = f"table inet netfold_cut {{ chain cut {{ {CUTS[failure]}\n}}\n}}"
            run_tool(enter(self.namespace), "nft", "-f", "-", stdin=rules)
        if failure in (LINK_DOWN, HALF_OPEN):
            self._set_link("down")
        if failure in (KILLED, HALF_OPEN):
            self.end()
        if failure == HALF_OPEN:
            time.sleep(REBOOT_S)
            self._set_link("up")
        return when

    def mend(self, failure: str, patience_s: float) -> None:
        """Undo it. A rank that was stopped or cut off must have given up its job; one that died is started again."""
        if failure == STOPPED:
            self.process.send_signal(signal.SIGCONT)
        if failure in (KILLED, HALF_OPEN):
            self.start()
            return
        said = self.hear("error", "done", timeout_s=patience_s)
        assert said.get("code") != "none", said
        self.hear("closed", timeout_s=SLACK_S)
        if failure in CUTS:
            run_tool(enter(self.namespace), "nft", "delete", "table", "inet", "netfold_cut")
        if failure == LINK_DOWN:
            self._set_link("up")

    def _set_link(self, state: str) -> None:
        run_tool(enter(self.namespace), "ip", "link", "set", names.INTERFACE, state)


class Jobs:
    """Jobs of the ranks, one after another. An error must come within `patience_s`."""

    def __init__(
        self, ranks: list[Rank], kind: str, switch: str, timeout_s: float = TIMEOUT_S, elastic: bool = False
    ) -> None:
        self._ranks, self._kind, self._switch = ranks, kind, switch
        self._timeout_s, self._elastic = timeout_s, elastic
        self._patience_s = (SILENCE_S if elastic else timeout_s) + SLACK_S
        self._number = 0

    def _form(self, sums: int) -> None:
        self._number += 1
        for number, rank in enumerate(self._ranks):
            rank.order(
                job=f"job-{self._number}",
                kind=self._kind,
                world=len(self._ranks),
                rank=number,
                host=rank.host,
                switch=self._switch,
                timeout_s=self._timeout_s,
                elastic=self._elastic,
                sums=sums,
            )
        if self._kind != SWITCH:
            addresses = [rank.hear("address", timeout_s=SLACK_S)["address"] for rank in self._ranks]
            for rank in self._ranks:
                rank.order(addresses=addresses)

    def work(self) -> list[dict[str, Any]]:
        """A job without failure; returns what each rank has left of it."""
        self._form(sums=4)
        for number, rank in enumerate(self._ranks):
            said = rank.hear("done", "error", timeout_s=self._patience_s)
            assert "done" in said, f"rank {number} of a job after a failure: {said}"
        return [rank.hear("closed", timeout_s=SLACK_S) for rank in self._ranks]

    def fail(self, failure: str, victim: int, after_s: float) -> float:
        """A job of which a rank fails, so long after it began. All others must name it. Returns how long it took until
        the last one had its error."""
        self._form(sums=0)
        time.sleep(after_s)
        struck = self._ranks[victim].strike(failure)
        last = struck
        for number, rank in enumerate(self._ranks):
            if number == victim:
                continue
            said = rank.hear("error", timeout_s=self._patience_s)
            assert said["culprit"] == victim, f"rank {number} blames another than {victim}: {said}"
            assert re.search(rf"\branks? (\d+, )*{victim}\b", said["error"]), said
            last = max(last, said["at"])
            closed = rank.hear("closed", timeout_s=SLACK_S)["closed"]
            assert closed - said["at"] < SLACK_S
        self._ranks[victim].mend(failure, self._patience_s)
        return last - struck


@contextmanager
def switch_in(lab: Lab, log: Path) -> Iterator[tuple[str, int]]:
    """A switch in the lab: its address, and its process."""
    address = names.switch_address(0)
    with log.open("wb") as errors:
        process = listening(address, PORT, enter(names.switch(lab.lab_id, 0)), errors)
    try:
        yield f"{address}:{PORT}", process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def ranks_in(lab: Lab, folder: Path) -> Iterator[list[Rank]]:
    """A rank in each worker's namespace."""
    ranks: list[Rank] = []
    try:
        for number in range(WORLD):
            ranks.append(Rank(lab, number, folder / f"rank{number}.log"))
        yield ranks
    finally:
        for rank in ranks:
            rank.end()


def files_of(process: int) -> int:
    """How many file descriptors a process has."""
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


@pytest.mark.parametrize("kind", KINDS)
def test_errors_name_the_rank_that_failed_and_the_next_job_works(
    kind: str, rng: np.random.Generator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late: dict[str, list[float]] = {failure: [] for failure in FAILURES}
    with (
        Lab(LabSpec(workers=WORLD, rate_mbit_s=200)) as lab,
        switch_in(lab, tmp_path / "switch.log") as (address, switch),
        ranks_in(lab, tmp_path) as ranks,
    ):
        jobs = Jobs(ranks, kind, address)
        jobs.work()
        before = jobs.work(), files_of(switch)
        for number in range(NUMBER * len(FAILURES)):
            failure = FAILURES[number % len(FAILURES)]
            victim = int(rng.integers(WORLD))
            after_s = float(rng.uniform(0, JOINING_S if rng.random() < 0.25 else RUNNING_S))
            try:
                late[failure].append(jobs.fail(failure, victim, after_s))
                after = jobs.work()
            except AssertionError as error:
                raise AssertionError(f"rank {victim} is {failure} {after_s:.3f} s after the start: {error}") from error
            if NUMBER > 1 and number % len(FAILURES) == 0:
                with capsys.disabled():
                    print(f"\r{kind}: {number} of {NUMBER * len(FAILURES)}", end="", file=sys.stderr)
        for one, other in zip(before[0], after, strict=True):
            assert other["threads"] <= one["threads"]
            assert other["files"] <= one["files"]
        wait_for(lambda: files_of(switch) <= before[1], "the end of the last connection", SLACK_S)
    for failure, all_s in late.items():
        worst, median = max(all_s), sorted(all_s)[len(all_s) // 2]
        print(f"{kind}, {failure}: {len(all_s)} times; all others knew after {median:.3f} s, at most {worst:.3f} s")
        assert worst < TIMEOUT_S + SLACK_S


# The timeout is too long to be what ends these jobs.
@pytest.mark.parametrize("kind", [PEERS, SPLIT])
def test_elastic_ranks_know_soon_that_a_machine_is_cut_off(kind: str, rng: np.random.Generator, tmp_path: Path) -> None:
    with (
        Lab(LabSpec(workers=WORLD, rate_mbit_s=200)) as lab,
        switch_in(lab, tmp_path / "switch.log") as (address, _),
        ranks_in(lab, tmp_path) as ranks,
    ):
        jobs = Jobs(ranks, kind, address, timeout_s=100.0, elastic=True)
        for failure in (LINK_DOWN, MUTE, DEAF):
            victim = int(rng.integers(WORLD))
            took_s = jobs.fail(failure, victim, float(rng.uniform(0.1, RUNNING_S)))
            print(f"{kind}, {failure}: all others knew after {took_s:.3f} s")
            jobs.work()
