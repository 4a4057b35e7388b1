"""The counters of a job's ranks at a switch, between two looks at its counters."""

from __future__ import annotations

from typing import Any

from netfold.why.verdict import Finding, RankFinding


def job_of(stats: dict[str, Any], name: str) -> dict[str, Any]:
    """The running job of this name. Raises ValueError that lists the jobs there are."""
    running = [job for job in stats["jobs"] if job["state"] == "running"]
    found = [job for job in running if job["name"] == name]
    if found:
        return max(found, key=lambda job: job["contributions"])
    forming = [job for job in stats["jobs"] if job["name"] == name]
    if forming:
        present, world = forming[0]["present"], forming[0]["world"]
        missing = ", ".join(str(rank) for rank in range(world) if rank not in present)
        raise ValueError(f"job {name!r} has not begun: it waits for the ranks {missing}")
    names = ", ".join(sorted({job["name"] for job in running})) or "none"
    raise ValueError(f"the switch runs no job {name!r}; running jobs: {names}")


def find(before: dict[str, Any], after: dict[str, Any], name: str) -> Finding:
    """Compare two samples of /stats.json. Raises ValueError if the job did not run in both, or the switch is too old
    to count waits."""
    older, newer = job_of(before, name), job_of(after, name)
    if (older["id"], older["epoch"]) != (newer["id"], newer["epoch"]):
        raise ValueError(f"job {name!r} ended and began anew while it was watched: call this again")
    if "waited_s" not in newer:
        raise ValueError("this switch is older than this command, and does not count how long ranks are waited for")

    def grown(counter: str) -> list[Any]:
        return [now - then for now, then in zip(newer[counter], older[counter], strict=True)]

    chunks = newer["folded_chunks"] - older["folded_chunks"]
    columns = zip(*(grown(name) for name in ("came_last", "waited_s", "pauses", "paused_s", "lost")), strict=True)
    ranks = [
        RankFinding(_who(newer, place), last, waited_s, pauses, paused_s, lost, chunks)
        for place, (last, waited_s, pauses, paused_s, lost) in enumerate(columns)
    ]
    watched_s = after["uptime_s"] - before["uptime_s"]
    notes = []
    if newer.get("of_switch", 1.0) < 1.0:
        notes.append(f"The switch sums {100 * newer['of_switch']:.0f}% of each large tensor; it sees only that share.")
    return Finding(name, newer["world"], watched_s, "chunks", chunks, ranks, notes=notes)


def _who(job: dict[str, Any], place: int) -> str:
    contributors = job.get("contributors", [])
    if not contributors:
        return f"rank {place}"
    first, ranks = contributors[place]["first_rank"], contributors[place]["ranks"]
    return f"rank {first}" if ranks == 1 else f"ranks {first}-{first + ranks - 1} (another switch)"
