"""Whether a lossless network can deadlock: for each rule of priorities, a proof or a cycle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from netfold_lab.simulate.networks import Network

HOPS_MAX = 8  # priorities that PFC has


def rules(network: Network) -> Iterator[dict[str, Any]]:
    """The results of check_deadlock for one priority, for two by the sender's half (if the switches form two halves),
    and for the smallest sufficient number of priorities that grow from cable to cable."""
    from netfold import _core

    def check(priorities: str, count: int = 1) -> dict[str, Any]:
        found = _core.check_deadlock(
            network.topology, spread=network.spread, priorities=priorities, priority_count=count
        )
        return {"rule": priorities, **found}

    one = check("one")
    yield one
    if one["is_free"]:
        return
    with suppress(ValueError):  # the switches do not form two halves
        yield check("half")
    for count in range(2, HOPS_MAX + 1):
        found = check("hop", count)
        if found["is_free"] or count == HOPS_MAX:
            yield found
            return


def sentence(found: dict[str, Any]) -> str:
    """The result in words; the buffers of a cycle have a line each."""
    rule = {
        "one": "one priority",
        "half": "two priorities, by the half that the sender is in",
        "hop": f"{found['priorities']} priorities, one more at each cable between switches",
    }[found["rule"]]
    size = f"{found['channels']} channels, {found['dependencies']} dependencies"
    if found["is_free"]:
        return f"{rule}: free of deadlock ({size}, no cycle)"
    held = [f"    {one['name']} (from {one['from_host']} to {one['to_host']})" for one in found["cycle"]]
    says = f"{rule}: may deadlock. Each of these buffers waits for the next, and the last for the first:"
    return "\n".join([says, *held])
