"""Two jobs at line rate, whose workers begin new epochs at any moment, each a little later than the others, while sums
of the epoch before are being folded and sent. The software's switch gets every frame in the order in which the stage
judged them. Both must have the same verdicts, and every sum that leaves must be the software's.

The stage may differ from the software, which takes no time, in these cases. A frame that is judged while its epoch ends
is dropped as `epoch`. A frame whose place holds an unsent sum is dropped as `busy`, or as `waiting` if it requests that
sum. An answer that has not left when its sum is removed is lost, and counted."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import cocotb
import numpy as np
import pytest
from campaign import PSN_MASK, places, software
from stage_bench import StageBench

import netfold
from benches import chance, number, simulate
from roce_frames import ETHERNET, GRH_BYTES, Connection, aggregation_header, elements_of, mac, read

PORTS, JOBS, PACKETS, WINDOW = 4, 2, 3, 4
CYCLES = int(os.environ.get("CYCLES", "16000"))
BEGIN = 2  # the Job Table's state in which an epoch may begin
TRANSPORT_AT = ETHERNET + GRH_BYTES


class Worker:
    """One rank of one job: it sends the frames that it may, and repeats frames without an answer."""

    def __init__(self, rng: random.Random, rank: int, job: int) -> None:
        self.rng, self.rank, self.job, self.epoch = rng, rank, job, 0
        self.connection = Connection(mac(rank), mac((rank + 1) % PORTS), JOBS * rank + job, rank + 1, rank + 2)
        self.begin()

    def begin(self) -> None:
        """The next epoch; half of them over the sequence numbers of the one before."""
        self.epoch += 1
        if self.epoch == 1 or self.rng.random() < 0.5:
            self.psn = self.rng.choice([PSN_MASK - 5, self.rng.randrange(1 << 24)])
        self.frames: list[bytes] = []
        self.next = 0
        self.answered: set[int] = set()
        self.refused: int | None = None  # a Write First that is repeated first

    def frame(self, position: int) -> bytes:
        """The frame of packet `position` of the epoch."""
        while position >= len(self.frames):
            message, count = len(self.frames) // PACKETS, (PACKETS * 1024 - 20) // 4
            seed = (self.job, self.epoch, message, self.rank)
            numbers = np.random.default_rng(seed).standard_normal(count, np.float32).tobytes()
            header = aggregation_header(self.rank, message, 4 * count, job=self.job + 1, epoch=self.epoch)
            self.frames += self.connection.message((self.psn + message * PACKETS) & PSN_MASK, header, numbers)
        return self.frames[position]

    def choose(self) -> tuple[int, bytes] | None:
        """The next packet to send, and its frame."""
        rng = self.rng
        whole = next(m for m in range(len(self.answered) + 1) if not self._has(m))
        if self.refused is not None:
            position = self.refused
        elif self.next and rng.random() < 0.1:
            position = max(0, self.next - 1 - rng.randrange(2 * PACKETS))
        elif self.next // PACKETS < whole + WINDOW:
            position, self.next = self.next, self.next + 1
        elif rng.random() < 0.3:
            position = next(p for p in range(self.next) if p not in self.answered)
        else:
            return None
        return position, self.frame(position)

    def _has(self, message: int) -> bool:
        return all(message * PACKETS + index in self.answered for index in range(PACKETS))

    def sum_came(self, psn: int) -> None:
        """A frame to its right neighbour."""
        position = (psn - self.psn) & PSN_MASK
        if position < self.next:
            self.answered.add(position)


class Races(StageBench):
    """Workers at the stage's ports, and the software's switch."""

    def __init__(self, dut: Any, rng: random.Random) -> None:
        super().__init__(dut, PORTS, JOBS, places(PORTS))
        self.rng = rng
        self.soft = software(PORTS)
        self.workers = [[Worker(rng, rank, job) for job in range(JOBS)] for rank in range(PORTS)]
        # For each port, the frame in flight: worker, epoch, packet.
        self.sender = [(self.workers[port][0], 0, 0) for port in range(PORTS)]
        self.began: dict[int, int] = {}  # for each port: the time when its Write First began an epoch
        self.judged: list[
            tuple[float, int, bytes, str]
        ] = []  # time, port, frame, verdict; the software does not have them yet
        self.told: Counter[str] = Counter()
        self.owed: Counter[tuple[int, bytes]] = Counter()  # the software's sums
        self.seen = 0

    def feed(self) -> None:
        """Every free port sends its next frame."""
        for index, port in enumerate(self.ports):
            if port.waiting or port.asked or port.beats:
                continue
            worker = self.rng.choice(self.workers[index])
            chosen = worker.choose()
            if chosen:
                self.sender[index] = (worker, worker.epoch, chosen[0])
                self.offer(index, chosen[1])

    def _forward(self, index: int, frame: bytes) -> None:
        super()._forward(index, frame)
        if not self.ports[index].asked:  # no port asked
            self.judged.append((self.cycles, index, frame, "forwarded"))

    def _read(self, m_ready: int) -> None:
        jobs = self.dut.u_jobs
        if number(jobs.state_q) == BEGIN and number(jobs.clear_o):
            self.began[number(jobs.port_q)] = self.cycles
        super()._read(m_ready)
        for _, frame in self.sums[self.seen :]:
            one = read(frame)
            rank, job = divmod(one.queue_pair, JOBS)
            self.workers[rank][job].sum_came(one.psn)
        self.seen = len(self.sums)

    def _answer(self, index: int, route: int, verdict: str) -> None:
        asked = self.ports[index].asked
        assert asked is not None
        # The answer is a cycle old; a new epoch counts from the cycle after its begin.
        at = self.began.pop(index) + 0.5 if index in self.began else self.cycles - 1
        self.judged.append((at, index, asked.frame, verdict))
        if verdict != "forwarded":
            super()._answer(index, route, verdict)
        else:
            self.ports[index].asked = None
            self.verdicts.append((index, verdict))
        worker, epoch, position = self.sender[index]
        if worker.epoch == epoch:
            is_first = position % PACKETS == 0
            worker.refused = position if verdict == "busy" and is_first else None

    def tell(self, until: float) -> None:
        """Give the judged frames to the software; the answer to a Write First that begins an epoch comes late."""
        until = min([until, *self.began.values()])
        self.judged.sort(key=lambda one: one[0])
        while self.judged and self.judged[0][0] < until:
            at, port, frame, verdict = self.judged.pop(0)
            self.told[verdict] += 1
            is_first = frame[TRANSPORT_AT] == 6
            if verdict == "busy" or (verdict == "epoch" and not is_first):
                continue
            before = self.soft.counts()
            out = self.soft.offer(port, frame, 1 + at * 5e-9)
            after = self.soft.counts()
            names = {n.removeprefix("roce_v1_").removeprefix("drop_") for n in after if after[n] != before.get(n, 0)}
            if verdict == "waiting" and "answered" in names:
                continue
            alike = {"kept", "folded"} if verdict in ("kept", "folded") else {verdict}
            assert names & alike, (at, port, verdict, names)
            self.owed.update(one for one in out if one[1][12:14] == b"\x89\x15" and one[1] != frame)


@cocotb.test()
async def changes_epochs_at_line_rate(dut: Any) -> None:
    """Hundreds of sums in many epochs."""
    rng = chance()
    bench = Races(dut, rng)
    bench.soft.configure(list(range(PORTS)), is_float=True)
    await bench.begin()
    due: list[tuple[int, Worker]] = []
    changes = [rng.randrange(1000, 3000) for _ in range(JOBS)]
    for cycle in range(CYCLES):
        for job in range(JOBS):
            if changes[job] == cycle:
                due += [(cycle + rng.randrange(400), bench.workers[rank][job]) for rank in range(PORTS)]
                changes[job] += rng.randrange(700, 3000)
        for at, worker in due:
            if at == cycle:
                worker.begin()
        bench.feed()
        await bench.cycle()
        bench.tell(bench.cycles - 60)
    await bench.settle()
    bench.tell(float("inf"))
    sums = Counter(bench.sums)
    epochs = max(worker.epoch for row in bench.workers for worker in row)
    dut._log.info("%d epochs, %d sums, %d lost: %s", epochs, sums.total(), bench.lost, dict(bench.told))
    assert not sums - bench.owed, "a sum that is not the software's"
    assert (bench.owed - sums).total() == bench.lost
    assert epochs > 3 and sums.total() > 50 * JOBS and bench.told["answered"] > 0


@cocotb.test()
async def an_epoch_begins_after_the_sums_before_it(dut: Any) -> None:
    """Places become complete twice as fast as they are folded. When the last one is, the next epoch begins, with its
    ranks at other ports. The places that wait are still folded in the order of the first epoch."""
    rng = chance()
    bench = StageBench(dut, PORTS, JOBS, places(PORTS))
    await bench.begin()
    packets = 16
    count = (packets * 1024 - 20) // 4
    values = np.random.default_rng(rng.randrange(1 << 30)).standard_normal((2, PORTS, count), np.float32)
    connections = [Connection(mac(p), mac((p + 1) % PORTS), p + 1, p + 1, p + 2) for p in range(PORTS)]

    def message(index: int, port: int) -> list[bytes]:
        header = aggregation_header(port, index, 4 * count, job=1, epoch=1)
        return connections[port].message(index * packets, header, values[index, port].tobytes())

    last = {2: message(1, 2)[1:], 3: message(0, 3)[1:]}  # the frames that complete places, of one message each
    for port in range(PORTS):
        for frame in message(0, port) + message(1, port):
            if frame not in last.get(port, []):
                bench.offer(port, frame)
    await bench.settle()
    for port, frames in last.items():
        for frame in frames:
            bench.offer(port, frame)
    while not bench.is_idle or len(bench.verdicts) < 2 * packets * PORTS:
        await bench.cycle()
    assert Counter(verdict for _, verdict in bench.verdicts) == {
        "kept": 2 * packets * (PORTS - 1),
        "folded": 2 * packets,
    }
    for port in rng.sample(range(PORTS), PORTS):
        header = aggregation_header(PORTS - 1 - port, 0, 4 * count, job=1, epoch=2)
        bench.offer(port, connections[port].message(1000, header, bytes(4 * count))[0])
    await bench.settle()
    assert bench.lost == 0
    for index in range(2):
        fold = netfold.fold(list(values[index])).tobytes()
        for port in range(PORTS):
            came = {one.psn: one for one in (read(frame) for to, frame in bench.sums if to == port)}
            sums = [elements_of(came[index * packets + packet], packet) for packet in range(packets)]
            assert b"".join(sums) == fold


def test_epoch_races(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four ports, two jobs."""
    monkeypatch.setenv("JOBS", str(JOBS))
    times = {"TickCycles": 16, "HandoverTicks": 4_000, "IdleTicks": 16_000}
    simulate("aggregation_stage", __file__, ["job_table"], Ports=PORTS, Jobs=JOBS, **times)
