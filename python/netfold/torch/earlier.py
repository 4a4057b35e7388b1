"""The group that a shrunk group goes on from: its survivors keep the connections that they have to each other.

Two survivors keep theirs if both say so. They say it with their addresses, so a pair whose connection has ended
connects anew, like ranks that meet for the first time.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from netfold import _core
from netfold.engines import PeerEngine

KEPT = "kept"  # in what a rank publishes: the ranks of the new group to which it has kept its connection


@dataclass(frozen=True)
class Earlier:
    """A closed group whose engine holds its connections. `ranks` are the survivors' ranks in it, by their
    ranks in the new group, whose name is `name`. `address` is this rank's."""

    group: _core.PeerGroup
    ranks: list[int]
    name: str
    address: str

    def said(self) -> dict[str, str]:
        """The words of this rank for the others, to be published."""
        kept = set(self.group.kept)
        return {KEPT: ",".join(str(new) for new, old in enumerate(self.ranks) if old in kept)}

    def hand_over(self, group: PeerEngine, rank: int, said: list[dict[str, str]]) -> None:
        """Give the connections that both ends have kept to `group`, before it connects, and close the others. `said`:
        what all ranks have published; `rank`: this one in the new group. Raises NetfoldError."""
        assert isinstance(group, _core.PeerGroup)
        keep = [{int(each) for each in one.get(KEPT, "").split(",") if each} for one in said]
        old = [each if other in keep[rank] and rank in keep[other] else -1 for other, each in enumerate(self.ranks)]
        group.adopt(self.group, old, hashlib.sha256(self.name.encode()).hexdigest()[:16])
