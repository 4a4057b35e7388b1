"""The Aggregation Stage against the software switch, frame by frame: the same verdicts, the same frames."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import cocotb
import numpy as np
import pytest
from campaign import BFP, FP32, INT32, Job, mac
from stage_bench import VERDICTS, StageBench, configuration

import netfold
from benches import chance, simulate, start
from netfold import _core
from roce_frames import ACKNOWLEDGE, Connection, aggregation_header, elements_of, read


class Both:
    """The stage and the software switch, given the same frames one by one."""

    def __init__(self, dut: Any, ports: int, jobs: int = 1, age_s: float = 10.0) -> None:
        self.ports, self.time_s = ports, 1.0
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
        self.time_s += 1e-6
        wanted = self.soft.offer(port, frame, self.time_s)
        after = self._counts()
        verdict = next(name for name in VERDICTS if after[name] != before[name])
        hard = self.hard
        hard.verdicts.clear()
        hard.sums.clear()
        hard.forwarded.clear()
        hard.notices.clear()
        hard.offer(port, frame)
        notices = [(port, frame) for port, frame in wanted if frame[12:14] == b"\x88\xb5"]
        sums = sorted((port, frame) for port, frame in wanted if frame[12:14] != b"\x88\xb5")
        if verdict == "forwarded":
            sums = []
        for _ in range(1500):
            await hard.cycle()
            if hard.is_idle and len(hard.sums) >= len(sums) and len(hard.notices) >= len(notices):
                break
        await hard.cycle(3)
        if verdict == "malformed" and hard.forwarded:
            return verdict  # nobody's connection: its head was gone before its end was seen (docs/hardware/switch.md)
        assert hard.verdicts == [(port, verdict)], frame[:110].hex()
        assert hard.notices == notices
        assert sorted(hard.sums) == sums
        assert len(hard.forwarded) == (verdict == "forwarded")
        return verdict


@cocotb.test()
async def agrees_with_the_software(dut: Any) -> None:
    """Losses, duplicates, reordering, restarts, epochs, hostile frames: whatever comes, both do the same."""
    rng = chance()
    ports = int(os.environ["PORTS"])
    config = configuration(list(range(ports)))
    await start(
        dut, config_i=config, info_valid_i=0, s_valid_i=0, m_ready_i=0, is_known_i=0, ports_i=0, notice_ready_i=0
    )
    both = Both(dut, ports)
    await both.hard.cycle(600)  # the Aggregation Status Buffer is cleared
    formats = (0, FP32, INT32, BFP) if os.environ["HAS_BFP"] == "1" else (0, FP32, INT32)
    job = Job(rng, ports, formats=formats)
    seen: Counter[str] = Counter()
    for _ in range(int(os.environ.get("FRAMES", "500"))):
        seen[await both.offer(*job.next())] += 1
    dut._log.info("verdicts: %s", dict(seen))
    usual = {"kept", "folded", "answered", "waiting", "forwarded", "icrc", "header", "spoofed", "psn"}
    assert usual <= set(seen)


@cocotb.test()
async def answers_everybody_at_once(dut: Any) -> None:
    """All ports at line rate, every few frames once more: every sum comes to everybody, in its order."""
    rng = chance()
    ports, packets, messages = int(os.environ["PORTS"]), 20, 4
    config = configuration(list(range(ports)))
    await start(
        dut, config_i=config, info_valid_i=0, s_valid_i=0, m_ready_i=0, is_known_i=0, ports_i=0, notice_ready_i=0
    )
    places = {bytes.fromhex(mac(rank).replace(":", "")): rank for rank in range(ports)}
    bench = StageBench(dut, ports, 1, places, ready=lambda _: rng.random() < 25 / 32)
    await bench.cycle(600)
    count = (packets * 1024 - 20) // 4
    numbers = np.random.default_rng(rng.randrange(1 << 30)).standard_normal((messages, ports, count), np.float32)
    sent = []
    for rank in range(ports):
        connection = Connection(mac(rank), mac((rank + 1) % ports), rank, rank + 1, rank + 2)
        frames = []
        for message in range(messages):
            header = aggregation_header(rank, message, 4 * count)
            frames += connection.message(message * packets, header, numbers[message, rank].tobytes())
        sent.append(frames)
        for index, frame in enumerate(frames):
            bench.offer(rank, frame)
            if rng.random() < 0.2:
                bench.offer(rank, frames[max(0, index - rng.randrange(4))])
    while not bench.is_idle:
        await bench.cycle()
    await bench.cycle(1000)
    dut._log.info("%s in %d cycles", Counter(verdict for _, verdict in bench.verdicts), bench.cycles)
    assert bench.lost == 0
    folds = [netfold.fold(list(numbers[message])).tobytes() for message in range(messages)]
    for rank in range(ports):
        came = [read(frame) for port, frame in bench.sums if port == (rank + 1) % ports]
        first = list({one.psn: one for one in came})
        assert sorted(first) == list(range(messages * packets))
        assert first == sorted(first), "sums overtake each other"
        for one in came:
            message, index = divmod(one.psn, packets)
            at = 1004 + 1024 * (index - 1) if index else 0
            assert elements_of(one, index) == folds[message][at : at + (1024 if index else 1004)]


@pytest.mark.parametrize(("ports", "has_bfp"), [(3, 0), (4, 1)])
def test_aggregation_stage(ports: int, has_bfp: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one job."""
    monkeypatch.setenv("PORTS", str(ports))
    monkeypatch.setenv("HAS_BFP", str(has_bfp))
    simulate("aggregation_stage", __file__, Ports=ports, HasBfp=has_bfp)
