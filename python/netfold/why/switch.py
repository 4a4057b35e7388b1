"""The counters of a job's ranks at a switch, between two looks at its counters."""

from __future__ import annotations

from typing import Any

from netfold.why.verdict import Finding, RankFinding


def jobs_of(stats: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The running jobs of this name, or of the process groups of a program that has it (NAME/GROUP). Raises ValueError
    that lists the jobs there are."""
    named = [job for job in stats["jobs"] if job["name"] == name or job["name"].startswith(f"{name}/")]
    running = [job for job in named if job["state"] == "running"]
    if running:
        return running
    if named:
        present, world = named[0]["present"], named[0]["world"]
        missing = ", ".join(str(rank) for rank in range(world) if rank not in present)
        raise ValueError(f"job {name!r} has not begun: it waits for the ranks {missing}")
    names = ", ".join(sorted({job["name"] for job in stats["jobs"] if job["state"] == "running"})) or "none"
    raise ValueError(f"the switch runs no job {name!r}; running jobs: {names}")


def find(before: dict[str, Any], after: dict[str, Any], name: str) -> list[Finding]:
    """Compare two samples of /stats.json: a finding for each job that ran in both. Raises ValueError if none did, or
    the switch is too old to count waits."""
    older = {_identity(job): job for job in jobs_of(before, name)}
    both = [(older[_identity(job)], job) for job in jobs_of(after, name) if _identity(job) in older]
    if not both:
        raise ValueError(f"job {name!r} ended and began anew while it was watched: call this again")
    if "waited_s" not in both[0][1]:
        raise ValueError("this switch is older than this command, and does not count how long ranks are waited for")
    watched_s = after["uptime_s"] - before["uptime_s"]
    return [_finding(then, now, watched_s) for then, now in both]


def _identity(job: dict[str, Any]) -> tuple[int, int]:
    return job["id"], job["epoch"]


def _finding(older: dict[str, Any], newer: dict[str, Any], watched_s: float) -> Finding:
    def grown(counter: str) -> list[Any]:
        return [now - then for now, then in zip(newer[counter], older[counter], strict=True)]

    chunks = newer["folded_chunks"] - older["folded_chunks"]
    columns = zip(*(grown(name) for name in ("came_last", "waited_s", "pauses", "paused_s", "lost")), strict=True)
    ranks = [
        RankFinding(_who(newer, place), last, waited_s, pauses, paused_s, lost, chunks)
        for place, (last, waited_s, pauses, paused_s, lost) in enumerate(columns)
    ]
    notes = []
    if newer.get("of_switch", 1.0) < 1.0:
        notes.append(
            f"The switch sums {100 * newer['of_switch']:.0f}% of each large tensor, and sees only that share. Records "
            "of the ranks (NETFOLD_TRACE) see all of it."
        )
    return Finding(newer["name"], newer["world"], watched_s, "chunks", chunks, ranks, notes=notes)


def _who(job: dict[str, Any], place: int) -> str:
    contributors = job.get("contributors", [])
    if not contributors:
        return f"rank {place}"
    first, ranks = contributors[place]["first_rank"], contributors[place]["ranks"]
    return f"rank {first}" if ranks == 1 else f"ranks {first}-{first + ranks - 1} (another switch)"
