"""Training under torchft: the survivors of a death go on, and one that comes back takes their parameters."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch.distributed import ReduceOp, TCPStore
from torch.distributed.distributed_c10d import AllreduceOptions

from netfold import _core

pytest.importorskip("torchft")

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 120.0  # eight processes start at once, on two cores
DEATHS = int(os.environ.get("NETFOLD_DEATHS", "1"))
SEED = int(os.environ.get("NETFOLD_SEED", "1"))
LINE = re.compile(r"^step (\d+): (not )?committed by (\d) replicas, .* parameters ([0-9a-f]{8})$", re.MULTILINE)
LIGHTHOUSE = """
import sys
from torchft.coordination import LighthouseServer
server = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=1000, heartbeat_timeout_ms=1000)
print(server.address(), flush=True)
sys.stdin.read()
"""


class Replica:
    """A process of examples/survive_deaths.py."""

    def __init__(self, number: int, lighthouse: str, folder: Path, environment: dict[str, str]) -> None:
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.log = folder / f"replica{number}-{time.monotonic_ns()}.log"
        self._read_to = 0  # in the log, which becomes long
        self._steps: list[tuple[int, bool, int, str]] = []
        own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self._store.port), "RANK": "0", "WORLD_SIZE": "1"}
        command = [sys.executable, str(ROOT / "examples" / "survive_deaths.py"), "--replica", str(number)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--steps", "1000000"],
                env={**os.environ, **own, "TORCHFT_LIGHTHOUSE": lighthouse, "OMP_NUM_THREADS": "1", **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def steps(self) -> list[tuple[int, bool, int, str]]:
        """Of each step: its number, whether it was committed, by how many replicas, and the parameters' checksum."""
        with self.log.open() as log:
            log.seek(self._read_to)
            whole = log.read().rpartition("\n")[0]  # what follows may be half a line
        self._read_to += len(whole.encode())
        self._steps += [
            (int(step), not missed, int(replicas), bits) for step, missed, replicas, bits in LINE.findall(whole)
        ]
        return self._steps

    def wait_for(self, steps: int, replicas: int) -> None:
        """Until it has made so many steps by so many replicas since the last step with another number."""
        deadline = time.monotonic() + WAIT_S
        while True:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            last = self.steps()[-steps:]
            if len(last) == steps and all(each[2] == replicas for each in last):
                return
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.05)


@contextmanager
def lighthouse() -> Iterator[str]:
    command = [sys.executable, "-c", LIGHTHOUSE]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip().rpartition(":")[2]
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.mark.timeout(300 + 60 * DEATHS)
def test_the_others_go_on_and_the_killed_one_comes_back(tmp_path: Path) -> None:
    """One of three, once. With NETFOLD_DEATHS=40 one of eight every 15 s, 40 times; -s prints each."""
    world, every_s = (8, 15.0) if DEATHS > 1 else (3, 0.0)
    chance = random.Random(SEED)
    with ExitStack() as stack:
        switch = _core.Switch("127.0.0.1:0")
        stack.callback(switch.close)
        environment = {"NETFOLD_BIND": "127.0.0.1", "NETFOLD_SWITCH": switch.address}
        address = stack.enter_context(lighthouse())
        replicas: list[Replica] = []

        def start(number: int) -> Replica:
            replica = Replica(number, address, tmp_path, environment)
            stack.callback(replica.process.wait)
            stack.callback(replica.process.kill)
            replicas.append(replica)
            return replica

        live = [start(number) for number in range(world)]
        for death in range(DEATHS):
            for replica in live:
                replica.wait_for(20, replicas=world)
            number = chance.randrange(world)
            survivors = [replica for replica in live if replica is not live[number]]
            steps_before = [len(survivor.steps()) for survivor in survivors]
            killed_s = time.monotonic()
            live[number].process.kill()
            for survivor in survivors:
                survivor.wait_for(1, replicas=world - 1)
            took_s = time.monotonic() - killed_s
            for survivor in survivors:
                survivor.wait_for(20, replicas=world - 1)
            lost = [
                sum(not committed for _, committed, _, _ in survivor.steps()[before:])
                for survivor, before in zip(survivors, steps_before, strict=True)
            ]
            print(
                f"death {death + 1}: replica {number}, whole again after {took_s:.2f} s, steps lost: {lost}", flush=True
            )
            assert max(lost) <= 1, f"seed {SEED}"
            live[number] = start(number)
            time.sleep(max(0.0, killed_s + every_s - time.monotonic()))
        for replica in live:
            replica.wait_for(20, replicas=world)
    by_step = [{step: bits for step, committed, _, bits in each.steps() if committed} for each in replicas]
    for step in set.union(*map(set, by_step)):
        assert len({each[step] for each in by_step if step in each}) == 1, f"step {step}, seed {SEED}"
    newest = by_step[-1]
    assert sum(all(step in by_step[replicas.index(each)] for each in live) for step in newest) >= 10


def test_a_group_of_one_and_its_life() -> None:
    from netfold.torchft import ProcessGroupNetfold

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = ProcessGroupNetfold(timeout=timedelta(seconds=10))
    assert group.getBackendName() == "torchft-netfold"
    assert group.errored() is None
    for quorum in range(2):
        group.configure(f"127.0.0.1:{store.port}/{quorum}", "replica", 0, 1, quorum, 0, 1, [0])
        tensor = torch.ones(5)
        options = AllreduceOptions()
        options.reduceOp = ReduceOp.SUM
        group.allreduce([tensor], options).wait()
        assert group.size() == 1
        assert torch.equal(tensor, torch.ones(5))
    group.abort()
    group.shutdown()
