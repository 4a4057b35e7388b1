"""Compares the Aggregation Stage with the software switch, frame by frame: equal verdicts, equal frames."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from typing import Any

import cocotb
import numpy as np
import pytest
from campaign import BF16, BFP, FP16, FP32, INT32, Job, Jobs, Way, changed, places, software, untagged
from cocotb.triggers import ClockCycles
from stage_bench import NEAR_BEATS, VERDICTS, StageBench, configuration

import netfold
from benches import chance, simulate
from roce_frames import Connection, aggregation_header, elements_of, mac, read

JOBS, VERSION = int(os.environ.get("JOBS", "1")), int(os.environ.get("VERSION", "1"))
HAS_BFP, HAS_HALF = (os.environ.get(name) == "1" for name in ("HAS_BFP", "HAS_HALF"))
# Times of the stage with several jobs: long enough that only the chosen ranks are silent, and that no job is forgotten
# after several silences of HANDOVER_TICKS. (Before its first sum only a Write First is a sign of a job. SEED=609496364
# had five silences without one.)
TICK_CYCLES, HANDOVER_TICKS, IDLE_TICKS = 16, 4_000, 100_000
AGE_S, HANDOVER_S, IDLE_S = 0.06, 1.0, 120.0  # of the software
SOFTWARE_JOBS = 16
FRAMES = int(os.environ.get("FRAMES", "500"))
FRAMES_MAX = 8 * FRAMES
RESET_CYCLES = 15  # of a soft reset
SWEEP_CYCLES = 3 * 512 * JOBS + 10 * TICK_CYCLES  # in which every place is checked


class Both:
    """The stage and the software switch with the same frames, one by one."""

    def __init__(self, dut: Any, ports: int, jobs: int = 1) -> None:
        self.dut, self.ports, self.time_s, self.jobs, self.aged = dut, ports, 1.0, jobs, 0
        self.config: dict[str, Any] = {"ports": list(range(ports)), "is_float": True, "exceptions": {}}
        self.soft = software(ports, age_s=AGE_S)
        self.hard = StageBench(dut, ports, jobs, places(ports))

    def _counts(self) -> Counter[str]:
        """Of both versions together."""
        counts: Counter[str] = Counter()
        for name, count in self.soft.counts().items():
            version, _, rest = name.partition("_v1_" if "_v1_" in name else "_v2_")
            counts[rest.removeprefix("drop_") if version == "roce" else name] += count
        return counts

    def configure(self, ports: list[int], is_float: bool, job: int = -1) -> None:
        """Set the ports that fold, and the type: for all jobs without a setting of their own (-1), or for one."""
        self.soft.configure(ports, is_float=is_float, job=job)
        if job < 0:
            self.config |= {"ports": ports, "is_float": is_float}
        else:
            self.config["exceptions"][job] = (ports, is_float)
        self.dut.config_i.value = configuration(**self.config)

    def fill(self) -> None:
        """Other jobs occupy the software's places, except as many as the stage has."""
        for job in range(1000, 1000 + SOFTWARE_JOBS - self.jobs):
            header = aggregation_header(0, 0, 2000, job=job, flags=2)  # a sum: it only begins a job
            (frame, *_) = Connection(mac(0), mac(1), job, version=VERSION).message(0, header, bytes(2000))
            assert self.soft.offer(0, frame, self.time_s) == []

    async def age(self) -> None:
        """Release all places that wait for other ranks."""
        self.time_s += 1.2 * AGE_S
        before, places = self._counts()["aged"], self.hard.aged
        self.soft.pump(self.time_s)
        self.dut.config_i.value = configuration(**self.config, age_limit=0)
        await self.hard.cycle(SWEEP_CYCLES)
        self.dut.config_i.value = configuration(**self.config)
        frames, places = self._counts()["aged"] - before, self.hard.aged - places
        assert places <= frames <= places * (self.ports - 1)
        self.aged += places

    async def silence(self, seconds: float, ticks: int) -> None:
        """All workers are silent for a while."""
        await self.age()
        for _ in range(2):  # the other jobs of the software continue
            self.time_s += 0.55 * seconds
            self.fill()
            self.soft.pump(self.time_s)
        await ClockCycles(self.dut.clk_i, (ticks + 2) * TICK_CYCLES)

    async def offer(self, port: int, frame: bytes) -> str:
        """Send one frame; fails if the results differ. Returns the verdict."""
        before = self._counts()
        self.time_s += 1e-6
        wanted = self.soft.offer(port, frame, self.time_s)
        after = self._counts()
        verdict = next((name for name in VERDICTS if after[name] != before[name]), "forwarded")  # of no handler's
        hard = self.hard
        notices = [(port, frame) for port, frame in wanted if frame[12:14] == b"\x88\xb5"]
        sums = sorted((port, frame) for port, frame in wanted if frame[12:14] != b"\x88\xb5")
        if verdict == "forwarded":
            sums = []
        await self._send(port, [frame], len(sums), len(notices))
        if verdict == "malformed" and hard.forwarded:
            return verdict  # no connection: its head left before its end was checked (hardware-switch.md)
        assert hard.verdicts == [(port, verdict)], frame[:110].hex()
        assert hard.notices == notices
        assert sorted(hard.sums) == sums
        assert len(hard.forwarded) == (verdict == "forwarded")
        return verdict

    async def offer_at_once(self, port: int, frames: list[bytes]) -> list[str]:
        """Send frames that are answered by sums or not at all; fails if the sums differ. Returns the verdicts."""
        wanted = []
        for frame in frames:
            self.time_s += 1e-6
            wanted += self.soft.offer(port, frame, self.time_s)
        await self._send(port, frames, len(wanted))
        assert sorted(self.hard.sums) == sorted(wanted)
        return [verdict for _, verdict in self.hard.verdicts]

    async def _send(self, port: int, frames: list[bytes], sums: int, notices: int = 0) -> None:
        """To the stage, one behind the other; waits until it is idle and so many sums and notices have come."""
        hard = self.hard
        for results in (hard.verdicts, hard.sums, hard.forwarded, hard.notices):
            results.clear()
        for frame in frames:
            hard.offer(port, frame)
        for _ in range(1500):
            await hard.cycle()
            if hard.is_idle and len(hard.sums) >= sums and len(hard.notices) >= notices:
                break
        await hard.cycle(3)


async def started(dut: Any) -> Both:
    """All ports fold."""
    both = Both(dut, int(os.environ["PORTS"]), JOBS)
    await both.hard.begin()
    return both


@cocotb.test(skip=JOBS > 1)
async def agrees_with_the_software(dut: Any) -> None:
    """Losses, duplicates, reordering, restarts, epochs, hostile frames: both always do the same."""
    rng = chance()
    both = await started(dut)
    formats = (0, FP32, INT32, *((BFP,) if HAS_BFP else ()), *((FP16, BF16) if HAS_HALF else ()))
    job = Job(rng, list(range(both.ports)), formats=formats, version=VERSION)
    usual = {"kept", "folded", "answered", "waiting", "forwarded", "icrc", "header", "spoofed", "psn"}
    if BFP in formats:
        usual.add("block")
    seen: Counter[str] = Counter()
    for count in range(FRAMES_MAX):  # a rare verdict comes later with some seeds
        if count >= FRAMES and usual <= set(seen):
            break
        if rng.random() < 0.01:
            await both.age()
        seen[await both.offer(*job.next())] += 1
    dut._log.info("verdicts: %s, %d places aged, %d frames taken early", dict(seen), both.aged, both.hard.early)
    assert usual <= set(seen)


@cocotb.test(skip=JOBS == 1)
async def jobs_agree_with_the_software(dut: Any) -> None:
    """More jobs than places, on separate and shared ports, with configurations that change."""
    rng = chance()
    both = await started(dut)
    both.fill()
    both.configure([0, 2], True, 2)
    both.configure([1, 2, 3], False, 3)
    jobs = [
        Job(rng, ports, number, version=VERSION) for number, ports in ((1, [0, 1, 2, 3]), (2, [0, 2]), (3, [1, 2, 3]))
    ]
    mixture = Jobs(rng, jobs)
    seen: Counter[str] = Counter()
    for _ in range(FRAMES):
        chance_ = rng.random()
        if chance_ < 0.015:
            await both.age()
        elif chance_ < 0.03:
            await both.silence(HANDOVER_S, HANDOVER_TICKS)
            mixture.take_over()
        elif chance_ < 0.05:  # from the next epoch on
            job = rng.choice(jobs)
            job.ports_to_come = sorted(rng.sample(range(both.ports), rng.randrange(2, both.ports + 1)))
            both.configure(job.ports_to_come, rng.random() < 0.5, -1 if job.number == 1 else job.number)
            if rng.random() < 0.5:
                job.begin_epoch()
        seen[await both.offer(*mixture.next())] += 1
    dut._log.info("verdicts: %s, %d places aged, %d frames taken early", dict(seen), both.aged, both.hard.early)
    assert {"kept", "folded", "answered", "waiting", "forwarded", "spoofed", "psn", "jobs"} <= set(seen)
    assert both.aged > 0


@cocotb.test(skip=JOBS == 1)
async def silent_jobs_give_way(dut: Any) -> None:
    """A connection passes to another job after a second of silence, a place after two minutes, never earlier."""
    rng = chance()
    both = await started(dut)
    both.fill()
    first, second, third = (Job(rng, [0, 1, 2, 3], number, version=VERSION) for number in (1, 2, 3))
    numbers = first.numbers(FP32, 300)
    mine = first.workers[1]
    second.workers[1].begin(mine.connection)

    def write(job: Job, rank: int = 1) -> list[bytes]:
        return job.workers[rank].write(0, 300, FP32, 0, numbers)

    of_first, of_second = write(first), write(second)
    assert await both.offer(1, of_first[0]) == "kept"
    assert await both.offer(1, of_second[0]) == "spoofed"  # nor does it touch the other's frames
    assert await both.offer(1, of_first[1]) == "kept"
    await both.silence(0.5 * HANDOVER_S, HANDOVER_TICKS // 2)
    assert await both.offer(1, of_second[0]) == "spoofed"
    await both.silence(HANDOVER_S, HANDOVER_TICKS)
    assert await both.offer(1, of_second[0]) == "kept"
    assert await both.offer(1, of_second[1]) == "kept"
    assert await both.offer(1, of_first[0]) == "spoofed"
    for rank in (0, 2, 3):
        whole = write(second, rank)
        assert [await both.offer(rank, frame) for frame in whole] == ["folded" if rank == 3 else "kept"] * 2
    of_third = write(third)
    assert await both.offer(1, of_third[0]) == "jobs"
    await both.silence(IDLE_S, IDLE_TICKS)
    for rank in range(4):
        whole = of_third if rank == 1 else write(third, rank)
        assert [await both.offer(rank, frame) for frame in whole] == ["folded" if rank == 3 else "kept"] * 2
    assert await both.offer(1, of_second[1]) == "forwarded"  # it is forgotten


@cocotb.test(skip=JOBS == 1)
async def only_its_own_writes_keep_a_job_without_a_sum(dut: Any) -> None:
    """A job that has no sum yet loses a connection although later packets come over it; a job with one keeps it."""
    rng = chance()
    both = await started(dut)
    both.fill()
    first, second = (Job(rng, [0, 1, 2, 3], number, version=VERSION) for number in (1, 2))
    second.workers[1].begin(first.workers[1].connection)
    second.workers[1].psn = first.workers[1].psn
    of_first, of_second = (job.workers[1].write(0, 1000, FP32, 0, job.numbers(FP32, 1000)) for job in (first, second))
    assert await both.offer(1, of_second[0]) == "kept"
    for frame in of_first[1:3]:
        await both.silence(0.5 * HANDOVER_S, HANDOVER_TICKS // 2)
        assert await both.offer(1, frame) == "kept"  # as the other job's: only the first frame names its job
    assert await both.offer(1, of_first[0]) == "kept"
    for rank in (0, 2, 3):
        frame = first.workers[rank].write(0, 1000, FP32, 0, first.numbers(FP32, 1000))[0]
        assert await both.offer(rank, frame) == ("folded" if rank == 3 else "kept")
    for frame in of_first[1:3]:
        await both.silence(0.5 * HANDOVER_S, HANDOVER_TICKS // 2)
        assert await both.offer(1, frame) == "kept"
    assert await both.offer(1, of_second[0]) == "spoofed"


@cocotb.test(skip=JOBS == 1)
async def versions_are_apart(dut: Any) -> None:
    """Two jobs with the same number, one of each version, over the same addresses and queue pairs."""
    rng = chance()
    both = await started(dut)
    jobs = [Job(rng, [0, 1, 2, 3], version=version) for version in (1, 2)]
    seen: Counter[str] = Counter()
    for _ in range(FRAMES // 2):
        for mine, its in zip(jobs[0].workers, jobs[1].workers, strict=True):
            queue_pair = mine.connection.queue_pair
            its.connection = dataclasses.replace(its.connection, queue_pair=queue_pair)
        seen[await both.offer(*rng.choice(jobs).next())] += 1
    dut._log.info("verdicts: %s", dict(seen))
    assert {"kept", "folded", "answered", "waiting"} <= set(seen)


@cocotb.test()
async def answers_everybody_at_once(dut: Any) -> None:
    """All jobs and ports at line rate, with some frames repeated: every sum reaches every worker, in order."""
    rng = chance()
    ports, packets, messages = int(os.environ["PORTS"]), 20, 4
    bench = StageBench(dut, ports, JOBS, places(ports), ready=lambda _: rng.random() < 25 / 32)
    await bench.begin()
    count = (packets * 1024 - 20) // 4
    values = np.random.default_rng(rng.randrange(1 << 30))
    numbers = values.standard_normal((JOBS, messages, ports, count), np.float32)
    for rank in range(ports):
        sent: list[list[bytes]] = [[] for _ in range(JOBS)]
        for job in range(JOBS):
            connection = Connection(mac(rank), mac((rank + 1) % ports), JOBS * rank + job, rank + 1, rank + 2, VERSION)
            for message in range(messages):
                header = aggregation_header(rank, message, 4 * count, job=job + 1)
                sent[job] += connection.message(message * packets, header, numbers[job, message, rank].tobytes())
        for index in range(messages * packets):
            for job in rng.sample(range(JOBS), JOBS):
                bench.offer(rank, sent[job][index])
                if rng.random() < 0.2:
                    bench.offer(rank, sent[job][max(0, index - rng.randrange(4))])
    await bench.settle()
    dut._log.info("%s in %d cycles", Counter(verdict for _, verdict in bench.verdicts), bench.cycles)
    assert bench.lost == 0
    for job in range(JOBS):
        folds = [netfold.fold(list(numbers[job, message])).tobytes() for message in range(messages)]
        for rank in range(ports):
            came = [read(frame) for port, frame in bench.sums if port == (rank + 1) % ports]
            came = [one for one in came if one.queue_pair == JOBS * rank + job]
            first = list({one.psn: one for one in came})
            assert sorted(first) == list(range(messages * packets))
            assert first == sorted(first), "sums overtake each other"
            for one in came:
                message, index = divmod(one.psn, packets)
                at = 1004 + 1024 * (index - 1) if index else 0
                assert elements_of(one, index) == folds[message][at : at + (1024 if index else 1004)]


@cocotb.test(skip=JOBS > 1)
async def folds_early(dut: Any) -> None:
    """All long frames are taken early. A damaged one leaves no trace, also where it would complete a sum."""
    rng = chance()
    both = await started(dut)
    ports = list(range(both.ports))
    job = Job(rng, ports, version=VERSION)

    def damaged(frame: bytes) -> bytes:
        wrong = bytearray(frame)
        wrong[rng.randrange(200, 900)] ^= 1 << rng.randrange(8)
        return bytes(wrong)

    for message in range(4):
        fmt = (FP32, FP16, INT32, BF16)[message] if HAS_HALF else FP32
        sent = [worker.write(message, 1000, fmt, 0, job.numbers(fmt, 1000)) for worker in job.workers]
        for packet, frames in enumerate(zip(*sent, strict=True)):
            before = both.hard.early
            both.hard.beats_left = lambda: NEAR_BEATS
            *others, last = rng.sample(ports, len(ports))
            for port in ports:
                assert await both.offer(port, damaged(frames[port])) == "icrc"
            for port in others:
                assert await both.offer(port, frames[port]) == "kept"
                assert await both.offer(last, damaged(frames[last])) == "icrc"
            both.hard.beats_left = lambda: rng.choice([0, rng.randrange(8, NEAR_BEATS)])
            once_more = [damaged(frames[last]) for _ in range(20)]
            assert await both.offer_at_once(last, [*once_more, frames[last]]) == ["icrc"] * 20 + ["folded"]
            assert both.hard.early - before >= (3 * len(ports) - 2 if packet else 0)


@cocotb.test(skip=JOBS > 1 or HAS_HALF)
async def drops_formats_that_it_does_not_have(dut: Any) -> None:
    """Without 16-bit floats, messages of them have a wrong header; the same message in FP32 is taken."""
    both = await started(dut)
    job = Job(chance(), list(range(both.ports)), version=VERSION)
    for fmt, verdict in ((FP16, "header"), (BF16, "header"), (FP32, "kept")):
        frame = job.workers[0].write(0, 300, fmt, 0, job.numbers(fmt, 300))[0]
        await both._send(0, [frame], 0)
        assert both.hard.verdicts == [(0, verdict)]


@cocotb.test(skip=JOBS > 1)
async def one_way_messages_are_short_where_they_must_be(dut: Any) -> None:
    """A packet that is short or full in the wrong place is dropped, and so is another rank that the job does not have.
    Ranks that name different ones are told. All else is answered by full and short packets, and so is a repetition."""
    rng = chance()
    both = await started(dut)
    ports, words = list(range(both.ports)), 600
    job = Job(rng, ports, version=VERSION)
    message = 0
    for way in [Way(rank, gives) for rank in ports for gives in (False, True)]:
        fmt = INT32 if way.gives else FP32  # copies are of any bits
        sent = [worker.write(message, words, FP32, 0, job.numbers(fmt, words), way) for worker in job.workers]
        for frames in zip(*sent, strict=True):
            for port in rng.sample(ports, len(ports)):
                assert await both.offer(port, frames[port]) in ("kept", "folded")
            for port in ports:
                assert await both.offer(port, frames[port]) == "answered"
        message += 1

    def write(rank: int, way: Way | None) -> list[bytes]:
        worker = job.workers[rank]
        psn = worker.psn
        frames = worker.write(message, words, FP32, 0, bytes(4 * words), way)
        worker.psn = psn
        return frames

    def other_length(frames: list[bytes], rank: int, is_short: bool) -> list[bytes]:
        """The same headers over packets that are short, or full."""
        worker, plain = job.workers[rank], untagged(frames[0])
        header = plain[job.first_at : job.first_at + 20]
        return worker.connection.message(worker.psn, header, bytes(4 * words), None, is_short)

    to, given, gives, to_all = Way(1, False), Way(1, True), Way(0, True), None
    for way, is_short in ((to, True), (given, False), (gives, True), (to_all, True)):
        assert await both.offer(0, other_length(write(0, way), 0, is_short)[0]) == "header"
    for wrong in (both.ports, 0x20, 0x40, 0x60, 0x1F):
        for is_given in (0, 0x80):
            frame = untagged(write(0, given if is_given else to)[0])
            assert await both.offer(0, changed(frame, job.first_at + 8, bytes([wrong | is_given]))) == "header"
    assert await both.offer(0, write(0, to)[0]) == "kept"
    assert [await both.offer(0, one) for one in other_length(write(0, to), 0, True)[1:]] == ["shape", "shape"]
    for way in (Way(2, False), given, to_all):
        assert await both.offer(1, write(1, way)[0]) == "mismatch"
        message += 4  # one that it has not begun
        assert await both.offer(1, write(1, way)[0]) == "order"
        message -= 4
    assert await both.offer(1, write(1, to)[0]) == "kept"
    assert await both.offer(1, write(1, Way(2, False))[0]) == "mismatch"  # it said rank 1 before
    job.begin_epoch()
    message = 0
    assert await both.offer(0, write(0, given)[0]) == "kept"
    assert [await both.offer(0, one) for one in other_length(write(0, given), 0, False)[1:]] == ["shape", "shape"]
    assert [await both.offer(0, one) for one in write(0, given)[1:]] == ["kept", "kept"]
    for way in (Way(2, True), to, to_all):
        assert await both.offer(2, write(2, way)[0]) == "mismatch"


@cocotb.test(skip=not HAS_BFP or JOBS > 1)
async def blocks_that_are_copied_are_checked(dut: Any) -> None:
    """The giver's malformed blocks are dropped, whenever they come; right ones are copied with all that is behind."""
    rng = chance()
    both = await started(dut)
    job = Job(rng, list(range(both.ports)), version=VERSION)
    both.hard.beats_left = lambda: rng.choice([0, NEAR_BEATS])
    for message in range(4):
        giver = rng.randrange(both.ports)
        way, numbers = Way(giver, True), bytearray(job.numbers(BFP, 1000))
        for start, room in job.rooms(1000):
            numbers[start + room // 17 * 17 : start + room] = rng.randbytes(room % 17)
        sent = [worker.write(message, 1000, BFP, 0, bytes(numbers), way) for worker in job.workers]
        for frames in zip(*sent, strict=True):
            for port in rng.sample(range(both.ports), both.ports):
                if port == giver:
                    assert await both.offer(port, job.with_bad_block(frames[port])) == "block"
                assert await both.offer(port, frames[port]) in ("kept", "folded")


@cocotb.test(skip=not HAS_BFP)
async def is_reset_amid_a_fold(dut: Any) -> None:
    """Blocks that are in the adders when a soft reset begins leave them after it: no later sum is changed."""
    rng = chance()
    before = await started(dut)
    ports = list(range(before.ports))
    for worker in Job(rng, ports).workers:
        before.hard.offer(worker.port, worker.write(0, 507, BFP, 0, bytes(4 * 507))[0])
    while not dut.u_processor.blocks_busy.value:
        await before.hard.cycle()
    await before.hard.cycle(rng.randrange(40, 100))  # a fold takes 160
    dut.rst_ni.value = dut.info_valid_i.value = dut.s_valid_i.value = 0
    await ClockCycles(dut.clk_i, RESET_CYCLES)
    dut.rst_ni.value = 1
    after = Both(dut, before.ports)
    await after.hard.cycle(SWEEP_CYCLES)
    job = Job(rng, ports, formats=(BFP,))
    for message in range(3):
        numbers = [job.numbers(BFP, 507) for _ in ports]
        sent = [worker.write(message, 507, BFP, 0, numbers[worker.rank]) for worker in job.workers]
        for frames in zip(*sent, strict=True):
            for port, frame in enumerate(frames):
                assert await after.offer(port, frame) == ("folded" if port == ports[-1] else "kept")


@pytest.mark.parametrize(
    ("ports", "has_bfp", "has_half", "version"),
    [(3, 0, 0, 1), (3, 0, 0, 2), (3, 0, 1, 2), (4, 1, 0, 1), (4, 1, 1, 1), (4, 1, 1, 2)],
)
def test_aggregation_stage(
    ports: int, has_bfp: int, has_half: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage with one job."""
    for name, value in (("PORTS", ports), ("HAS_BFP", has_bfp), ("HAS_HALF", has_half), ("VERSION", version)):
        monkeypatch.setenv(name, str(value))
    parameters = {"Ports": ports, "HasBfp": has_bfp, "HasHalf": has_half, "TickCycles": TICK_CYCLES}
    simulate("aggregation_stage", __file__, ["aggregation_processor"], **parameters)


@pytest.mark.parametrize("version", [1, 2])
def test_aggregation_stage_of_jobs(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage with places for two jobs, and faster time."""
    for name, value in (("PORTS", 4), ("JOBS", 2), ("VERSION", version)):
        monkeypatch.setenv(name, str(value))
    times = {"TickCycles": TICK_CYCLES, "HandoverTicks": HANDOVER_TICKS, "IdleTicks": IDLE_TICKS}
    simulate("aggregation_stage", __file__, Ports=4, Jobs=2, **times)
