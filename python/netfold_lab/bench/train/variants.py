"""Ways to exchange gradients: the variants to compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from netfold.algorithms import HostPlan, choices
from netfold_lab.errors import UsageError

ALONE, NAIVE, OVERLAPPED, OFFLOADED, OFFLOADED_BFP = CHOICES = (
    "alone",
    "naive",
    "overlapped",
    "offloaded",
    "offloaded-bfp",
)


@dataclass(frozen=True)
class Group:
    """A process group: torch's backend and netfold's options. Variants with equal values share one."""

    backend: str
    algorithm: str = ""
    format: str = ""
    engine: str = ""  # the engine; "": the backend's default
    cores: tuple[int, ...] = ()  # that the engine is pinned to; (): not pinned
    bfp: tuple[int, ...] = ()  # block and mantissa of format bfp; (): the backend's default

    def options(self) -> dict[str, Any]:
        """The arguments of netfold.torch.Options."""
        return {name: value for name, value in asdict(self).items() if value and name != "backend"}


@dataclass(frozen=True)
class Variant:
    """One way to run a step. `group` None: only computation; `compute_cores` (): any cores; `spreads`: the thread of
    each worker that computes has one core, and workers take the cores in turn."""

    kind: str
    group: Group | None = None
    overlaps: bool = True
    prefetches: bool = False
    compute_cores: tuple[int, ...] = ()
    placement: str = ""
    spreads: bool = False

    @property
    def name(self) -> str:
        """Its name in tables and pictures."""
        how = self.group.algorithm if self.group and self.group.backend == "netfold" else ""
        words = [self.kind, how, self.placement, "prefetching" if self.prefetches else ""]
        return " ".join(filter(None, words))

    @property
    def system(self) -> str:
        """The system that communicates; "" without communication."""
        return self.group.backend if self.group else ""


GLOO = Group("gloo")
COMPUTE_ALONE = Variant(ALONE)
BASELINE = Variant(OVERLAPPED, GLOO)


def offloaded(
    algorithm: str,
    format: str,
    placement: str = "",
    engine: str = "",
    cores: tuple[int, ...] = (),
    compute_cores: tuple[int, ...] = (),
) -> Variant:
    """All-reduces that start within backward and run in Netfold's engine; `placement` names its place in reports."""
    kind = OFFLOADED_BFP if format == "bfp" else OFFLOADED
    group = Group("netfold", algorithm, format, engine, cores)
    return Variant(kind, group, compute_cores=compute_cores, placement=placement)


FIXED = {NAIVE: Variant(NAIVE, GLOO, overlaps=False), OVERLAPPED: BASELINE}
FORMATS = {OFFLOADED: "fp32", OFFLOADED_BFP: "bfp"}


def _words(option: str, text: str, known: Sequence[str]) -> list[str]:
    words = list(dict.fromkeys(text.split(",")))
    for word in words:
        if word not in known:
            raise UsageError(f"{option} takes {', '.join(known)} with commas, not {word!r}")
    return words


def served(bigraph: tuple[int, int] = (0, 0)) -> tuple[str, ...]:
    """Algorithms for a lab, where all machines are equal: they need no facts about machines, except their places."""
    return tuple(name for name in choices() if name != "hierarchical" and (name != "hdrm" or any(bigraph)))


def algorithms_of(text: str, workers: int, several: bool = True, bigraph: tuple[int, int] = (0, 0)) -> list[str]:
    """`ring,in-network` as a list; `bigraph`: sub-nodes and switches, if the workers are on a BiGraph. Raises
    UsageError for an algorithm that is unknown or does not support this number of workers."""
    words = _words("--algorithm", text, served(bigraph))
    if len(words) > 1 and not several:
        raise UsageError(f"--algorithm takes one algorithm here, not {text}")
    for word in words:
        try:
            HostPlan(word, bigraph).check(workers)
        except ValueError as error:
            raise UsageError(f"--algorithm {word} for {workers} workers: {error}") from None
    return words


def variants_of(kinds: str, algorithms: Sequence[str], prefetching: bool = False) -> list[Variant]:
    """Computation by itself, and variants of these kinds, such as `naive,offloaded`. Offloaded variants run with each
    algorithm; with `prefetching` each variant runs without and with it. Raises UsageError."""
    found = [COMPUTE_ALONE]
    for kind in _words("--variants", kinds, CHOICES[1:]):
        found += [FIXED[kind]] if kind in FIXED else [offloaded(each, FORMATS[kind]) for each in algorithms]
    if not prefetching:
        return found
    return [replace(one, prefetches=prefetches) for one in found for prefetches in (False, True)]
