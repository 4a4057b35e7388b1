"""The Aggregation Stage against the software switch, frame by frame: the same verdicts, the same frames."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import numpy as np
import pytest
from stage_bench import VERDICTS, StageBench, configuration

from benches import chance, simulate, start
from netfold import _core
from roce_frames import ACKNOWLEDGE, Connection, aggregation_header


def mac(rank: int) -> str:
    """Of a worker."""
    return f"02:00:00:00:00:{rank + 1:02x}"


class Both:
    """The stage and the software switch, given the same frames one by one."""

    def __init__(self, dut: Any, ports: int, jobs: int = 1, age_s: float = 10.0) -> None:
        self.ports = ports
        self.soft = _core.FramePipeline(ports, age_s=age_s)
        places = {bytes.fromhex(mac(rank).replace(":", "")): rank for rank in range(ports)}
        self.hard = StageBench(dut, ports, jobs, places)
        for rank in range(ports):
            to_itself = Connection(mac(rank), mac(rank))
            assert self.soft.offer(rank, to_itself.frame(ACKNOWLEDGE, 0, b"\x1f\x00\x00\x00")) == []

    def _counts(self) -> dict[str, int]:
        return {name.removeprefix("roce_v1_").removeprefix("drop_"): n for name, n in self.soft.counts().items()}

    async def offer(self, port: int, frame: bytes) -> str:
        """One frame; fails where the two differ in what it comes to. Returns the verdict."""
        before = self._counts()
        wanted = self.soft.offer(port, frame)
        after = self._counts()
        (verdict,) = (name for name in VERDICTS if after[name] != before[name])
        hard = self.hard
        hard.verdicts.clear()
        hard.sums.clear()
        hard.forwarded.clear()
        hard.offer(port, frame)
        notices = [frame for _, frame in wanted if frame[12:14] == b"\x88\xb5"]
        sums = sorted((port, frame) for port, frame in wanted if frame[12:14] != b"\x88\xb5")
        if verdict == "forwarded":
            sums = []
        for _ in range(1500):
            await hard.cycle()
            if hard.is_idle and len(hard.sums) >= len(sums):
                break
        await hard.cycle(3)
        assert hard.verdicts == [(port, verdict)]
        assert len(notices) <= 1
        assert sorted(hard.sums) == sums
        assert len(hard.forwarded) == (verdict == "forwarded")
        return str(verdict)


@cocotb.test()
async def agrees_with_the_software(dut: Any) -> None:
    """Whole messages with everything that may happen to their packets."""
    rng = chance()
    ports = int(os.environ["PORTS"])
    values = np.random.default_rng(rng.randrange(1 << 30))
    await start(
        dut,
        config_i=configuration(list(range(ports))),
        info_valid_i=0,
        s_valid_i=0,
        m_ready_i=0,
        is_known_i=0,
        ports_i=0,
    )
    both = Both(dut, ports)
    await both.hard.cycle(600)  # the Aggregation Status Buffer is cleared
    psns = [rng.randrange(1 << 24) for _ in range(ports)]
    connections = [
        Connection(mac(r), mac((r + 1) % ports), 0x200 + r, r + 1, (r + 1) % ports + 1) for r in range(ports)
    ]
    for message in range(6):
        count = rng.choice([252, 300, 507, 508, 900])
        numbers = values.standard_normal((ports, count), np.float32)
        sent = [
            connections[r].message(
                psns[r], aggregation_header(r, message, 4 * count), numbers[r].tobytes(), rng.choice([None, message])
            )
            for r in range(ports)
        ]
        psns = [(psn + len(sent[0])) & 0xFFFFFF for psn in psns]
        order = [(r, index) for r in range(ports) for index in range(len(sent[0]))]
        rng.shuffle(order)
        order.sort(key=lambda place: place[1] > 0)
        order += rng.choices(order, k=4)
        for rank, index in order:
            await both.offer(rank, sent[rank][index])


@pytest.mark.parametrize("ports", [3])
def test_aggregation_stage(ports: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one job."""
    monkeypatch.setenv("PORTS", str(ports))
    simulate("aggregation_stage", __file__, Ports=ports)
