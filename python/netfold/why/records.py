"""The records of all ranks (NETFOLD_TRACE), compared.

A collective begins on a rank when its engine gets it, so the others' time until the last rank begins is waiting for
that rank, and the time from then to the end is the network's. The wait counts from when half of the ranks have begun,
as at a switch, and no time is counted twice.

Ranks of several machines have several clocks. A collective that gives every rank the result of all ends on all of them
within a network's delay, so the median difference of these ends is the difference of the clocks.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from netfold.collective_record import Collective, RankRecord
from netfold.why.verdict import Finding, RankFinding

FOR_ALL = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "barrier")  # no rank ends before all have begun
CLOCK_S = 0.002  # smaller differences of clocks stay: the ends of collectives are not more exact
SLOWEST = 5

Together = list[Collective]
"""One collective as every rank recorded it, in rank order."""


def find(group: str, records: list[RankRecord]) -> Finding:
    """The finding of one group. Raises ValueError if the records share no collective."""
    world, notes = records[0].world, []
    missing = sorted(set(range(world)) - {record.rank for record in records})
    if missing:
        notes.append(
            f"The folder lacks the records of the ranks {', '.join(map(str, missing))}: copy them into it for a full "
            "answer."
        )
    together = _together(records)
    if not together:
        raise ValueError(f"the records of group {group!r} share no collective that all ranks take part in")
    together, moved = _one_clock(records, together)
    together = together[1:] or together  # programs start at different times, so the first one says little
    if moved:
        notes.append("Clocks differ, and were aligned by the ends of collectives: " + "; ".join(moved) + ".")
    ranks = [RankFinding(f"rank {record.rank}") for record in records]
    half = (len(records) + 1) // 2 - 1
    covered_s = sent_until_s = 0.0
    sending_s, sent_bytes = 0.0, 0
    for one in together:
        starts = [each.start_s for each in one]
        end_s, last_s = max(each.end_s for each in one), max(starts)
        late = ranks[starts.index(last_s)]
        waited_s = max(last_s - max(sorted(starts)[half], covered_s), 0.0)
        late.came_last += 1
        late.waited_s += waited_s
        if waited_s > 0:
            late.pauses += 1
            late.paused_s += waited_s
        covered_s = max(covered_s, last_s)
        sending_s += max(end_s - max(last_s, sent_until_s), 0.0)
        sent_until_s = max(sent_until_s, end_s)
        sent_bytes += one[0].size_bytes
    watched_s = max(each.end_s for each in together[-1]) - min(each.start_s for each in together[0])
    notes += _failures(records)
    slowest = [_described(one, records) for one in sorted(together, key=_sending_s)[: -SLOWEST - 1 : -1]]
    count = len(together)
    return Finding(group, world, watched_s, "collectives", count, ranks, sending_s, sent_bytes, notes, slowest)


def _together(records: list[RankRecord]) -> list[Together]:
    by_number = [{each.number: each for each in record.collectives if not each.error} for record in records]
    shared = set(by_number[0]).intersection(*by_number[1:])
    return [
        [of_rank[number] for of_rank in by_number]
        for number in sorted(shared)
        if by_number[0][number].name in FOR_ALL and len({of_rank[number].name for of_rank in by_number}) == 1
    ]


def _one_clock(records: list[RankRecord], together: list[Together]) -> tuple[list[Together], list[str]]:
    """The collectives in the time of the first rank's clock, and what was changed."""
    moved, behind = [], []
    for place, record in enumerate(records):
        is_other = record.host != records[0].host
        by_s = median(one[place].end_s - one[0].end_s for one in together) if is_other else 0.0
        behind.append(by_s if abs(by_s) > CLOCK_S else 0.0)
        if behind[-1]:
            moved.append(f"rank {record.rank} by {1000 * -behind[-1]:+.1f} ms")
    aligned = [
        [
            replace(each, start_s=each.start_s - by_s, end_s=each.end_s - by_s)
            for each, by_s in zip(one, behind, strict=True)
        ]
        for one in together
    ]
    return sorted(aligned, key=lambda one: max(each.start_s for each in one)), moved


def _sending_s(one: Together) -> float:
    return max(each.end_s for each in one) - max(each.start_s for each in one)


def _described(one: Together, records: list[RankRecord]) -> str:
    starts = [each.start_s for each in one]
    late = records[starts.index(max(starts))].rank
    waited_ms = 1000 * (max(starts) - min(starts))
    return (
        f"  {one[0].name} {one[0].number} of {one[0].size_bytes:,} bytes: {1000 * _sending_s(one):,.1f} ms, "
        f"{waited_ms:,.1f} ms after the first rank had begun it (rank {late} was last)"
    )


def _failures(records: list[RankRecord]) -> list[str]:
    """The failures, as each rank records them: which collective was in flight, and the error."""
    said = []
    for record in records:
        failed = [each for each in record.collectives if each.error]
        if failed:
            first = failed[0]
            said.append(
                f"rank {record.rank}: {first.name} {first.number} of {first.size_bytes:,} bytes failed after "
                f"{first.end_s - first.start_s:.1f} s: {first.error}"
            )
    reached = {record.rank: max((each.number for each in record.collectives), default=0) for record in records}
    if said and len(set(reached.values())) > 1:
        behind = min(reached, key=lambda rank: reached[rank])
        said.append(f"rank {behind} began {reached[behind]} collectives, others up to {max(reached.values())}.")
    return said
