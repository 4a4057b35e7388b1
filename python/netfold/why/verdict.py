"""Measurements of a job's ranks, and the sentences that say which of them is late, and why."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

LATE_SHARE = 0.05  # of the time watched: a rank that the others wait for less is not worth a word
LOSS_SHARE = 0.001  # of a rank's packets; lost packets delay a job long before they use up a link
PAUSE_S = 0.02  # longer than a network holds back a packet; a shorter pause is compared with the rank's other waits
PAUSE_WAITS = 8  # usual waits; a machine with busy cores takes in the packets of a slow link a handful at a time


@dataclass
class RankFinding:
    """One rank, or the ranks behind another switch. Times in seconds; None: not measured."""

    who: str
    came_last: int = 0
    waited_s: float = 0.0
    pauses: int = 0
    paused_s: float = 0.0
    lost: int | None = None
    packets: int = 0  # that it exchanged, to compare `lost` with

    @property
    def loses_packets(self) -> bool:
        """Whether its link loses more packets than a healthy one."""
        return bool(self.lost) and (self.lost or 0) > LOSS_SHARE * self.packets

    @property
    def reason(self) -> str:
        """`computation` or `network`: why the others wait for it. A record of what ranks began tells only of their
        computation. A lost packet delays a rank by milliseconds, so as many losses as pauses explain these. A rank that
        computes pauses once a tensor, and the rest of the tensor follows fast; on a slow link all waits are alike."""
        if self.lost is None:
            return "computation"
        if self.loses_packets and self.lost >= self.pauses:
            return "network"
        usual_s = self.waited_s / max(self.came_last, 1)
        pauses_stand_out = self.paused_s >= self.pauses * min(PAUSE_S, PAUSE_WAITS * usual_s)
        return "computation" if pauses_stand_out and self.paused_s >= self.waited_s / 2 else "network"


@dataclass
class Finding:
    """A job that was watched for `watched_s` seconds. `unit`: what ranks are late in, chunks or collectives.
    `sending_s`: how long its collectives took after the last rank had begun them; None: not measured."""

    job: str
    world: int
    watched_s: float
    unit: str
    count: int
    ranks: list[RankFinding]
    sending_s: float | None = None
    sent_bytes: int = 0
    notes: list[str] = field(default_factory=list)
    slowest: list[str] = field(default_factory=list)

    @property
    def late(self) -> list[RankFinding]:
        """The ranks that the others wait for, the latest first."""
        late = [rank for rank in self.ranks if rank.waited_s >= LATE_SHARE * self.watched_s > 0]
        return sorted(late, key=lambda rank: -rank.waited_s)

    def as_json(self) -> dict[str, object]:
        """For --json."""
        return {
            "job": self.job,
            "world": self.world,
            "watched_s": self.watched_s,
            self.unit: self.count,
            "late": [{"rank": rank.who, "reason": rank.reason} for rank in self.late],
            "ranks": [
                {
                    "rank": rank.who,
                    "came_last": rank.came_last,
                    "waited_s": rank.waited_s,
                    "pauses": rank.pauses,
                    "paused_s": rank.paused_s,
                    "lost": rank.lost,
                }
                for rank in self.ranks
            ],
            "sending_s": self.sending_s,
            "sent_bytes": self.sent_bytes,
            "slowest": self.slowest,
            "notes": self.notes,
        }


def words(finding: Finding) -> str:
    """The finding in sentences."""
    said = [f"Job {finding.job}, {finding.world} ranks: {finding.count:,} {finding.unit} in {finding.watched_s:.1f} s."]
    if finding.count == 0:
        said.append(
            "Nothing was summed at the switch in this time. Either all ranks compute: watch for longer than a step "
            "takes (--seconds). Or one of them hangs, or they sum among themselves: NETFOLD_TRACE records that."
        )
    for rank in finding.late:
        said.append(_late(rank, finding))
    if finding.count and not finding.late:
        said.append(
            f"No rank is late: the others wait for none of them longer than {100 * LATE_SHARE:.0f}% of the time."
        )
    lossy = [rank.who for rank in finding.ranks if rank.loses_packets and rank not in finding.late]
    if lossy:
        said.append(
            f"Packets of {', '.join(lossy)} are lost, but the others hardly wait for them yet. {REMEDIES['network']}"
        )
    if finding.sending_s is not None and finding.watched_s > 0:
        rate = finding.sent_bytes / finding.sending_s / 1e6 if finding.sending_s > 0 else 0.0
        said.append(
            f"Once the last rank had begun them, the collectives took {finding.sending_s:.2f} s, "
            f"{100 * finding.sending_s / finding.watched_s:.0f}% of the time, at {rate:,.0f} MB/s of tensors."
        )
    return "\n".join([*said, *finding.notes])


REMEDIES = {
    "computation": (
        "Compare this rank's machine with the others: its accelerator's clock and temperature, other programs on its "
        "cores, its data loader, and the share of the data that it gets."
    ),
    "network": (
        "Compare its link with the others: the NIC's negotiated rate, other traffic, and `ethtool -S` for a bad cable "
        "or a full port. `netfold doctor` on its machine checks buffers and MTU, and `python -m netfold.bench` under "
        "torchrun measures. A process that shares its cores with others looks alike."
    ),
}


def _late(rank: RankFinding, finding: Finding) -> str:
    often = f"{100 * rank.came_last / max(finding.count, 1):.0f}% of the {finding.unit}"
    share = f"{rank.waited_s:.2f} s, {100 * rank.waited_s / finding.watched_s:.0f}% of the time"
    if rank.reason == "computation":
        mean_ms = 1000 * rank.paused_s / max(rank.pauses, 1)
        why = (
            f"The reason is its computation: {rank.pauses:,} times it began after half of the ranks had, "
            f"{mean_ms:,.1f} ms in the mean, and sent nothing before that."
        )
    elif rank.loses_packets:
        why = f"The reason is its network: {rank.lost:,} packets from it or to it were lost."
    else:
        why = "The reason is its network: it is never silent for long, but its packets come slower than the others'."
    late = f"{rank.who} is late: it was last in {often}, and the others waited for it for {share}."
    return f"{late} {why} {REMEDIES[rank.reason]}"


def screen(finding: Finding) -> RenderableType:
    """Sentences, and a table of all ranks."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("rank")
    for column in ("last in", "waited for", "of the time", "pauses", "mean pause", "lost"):
        table.add_column(column, justify="right")
    for rank in finding.ranks:
        table.add_row(
            rank.who,
            f"{100 * rank.came_last / max(finding.count, 1):.0f}%",
            f"{rank.waited_s:.2f} s",
            f"{100 * rank.waited_s / max(finding.watched_s, 1e-9):.0f}%",
            f"{rank.pauses:,}",
            f"{1000 * rank.paused_s / rank.pauses:,.1f} ms" if rank.pauses else "",
            "" if rank.lost is None else f"{rank.lost:,}",
        )
    slowest = [Text("\nThe longest collectives:\n" + "\n".join(finding.slowest))] if finding.slowest else []
    return Group(Text(words(finding)), Text(), table, *slowest)
