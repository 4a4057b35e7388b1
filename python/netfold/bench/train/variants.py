"""How gradients may be exchanged: the variants that are set beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

ALONE, NAIVE, OVERLAPPED, OFFLOADED, OFFLOADED_BFP = CHOICES = (
    "alone",
    "naive",
    "overlapped",
    "offloaded",
    "offloaded-bfp",
)


@dataclass(frozen=True)
class Group:
    """A process group: torch's backend and netfold's options. Variants alike in this share one."""

    backend: str
    algorithm: str = ""
    format: str = ""
    engine: str = ""  # where the engine runs; "": as the backend does by itself
    cores: tuple[int, ...] = ()  # that the engine is pinned to; (): none

    def options(self) -> dict[str, Any]:
        """What netfold.torch.Options takes."""
        return {name: value for name, value in asdict(self).items() if value and name != "backend"}


@dataclass(frozen=True)
class Variant:
    """One way to do a step. `group` None: computation alone; `compute_cores` (): any."""

    kind: str
    group: Group | None = None
    overlaps: bool = True
    prefetches: bool = False
    compute_cores: tuple[int, ...] = ()
    placement: str = ""

    @property
    def name(self) -> str:
        """What tells it from the others in tables and pictures."""
        how = self.group.algorithm if self.group and self.group.backend == "netfold" else ""
        words = [self.kind, how, self.placement, "prefetching" if self.prefetches else ""]
        return " ".join(filter(None, words))

    @property
    def system(self) -> str:
        """Whose communication it is; "": nobody's."""
        return self.group.backend if self.group else ""


GLOO = Group("gloo")
COMPUTE_ALONE = Variant(ALONE)
BASELINE = Variant(OVERLAPPED, GLOO)


def offloaded(algorithm: str, format: str, **more: Any) -> Variant:
    """All-reduces started from within backward and done by Netfold's engine."""
    kind = OFFLOADED_BFP if format == "bfp" else OFFLOADED
    return Variant(kind, Group("netfold", algorithm, format), **more)


def variants_of(kinds: Sequence[str], algorithms: Sequence[str]) -> list[Variant]:
    """The variants of some kinds; the offloaded ones at each algorithm."""
    found = []
    for kind in kinds:
        if kind in (OFFLOADED, OFFLOADED_BFP):
            format = "bfp" if kind == OFFLOADED_BFP else "fp32"
            found += [offloaded(algorithm, format) for algorithm in algorithms]
        else:
            found.append(
                {ALONE: COMPUTE_ALONE, NAIVE: Variant(NAIVE, GLOO, overlaps=False), OVERLAPPED: BASELINE}[kind]
            )
    return found
