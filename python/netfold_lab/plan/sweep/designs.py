"""A sweep file: a cluster, and the values to vary. Every combination is a design.

cluster: eflops.yaml              # or the content of such a file
model: resnet50
batch: 64
prices: prices.yaml               # or the content of such a file
vary:
  fabric.rate_gbit_s: [25, 50, 100]
  servers.nics: [1, 2, 4]
  fabric:                         # whole parts, too; longer names are set after shorter ones
    - {kind: bigraph, sub_nodes: 4, switches: 16}
    - {kind: leaf-spine, leaves: 4, spines: 2, ports_per_leaf: 16}
  batch: [32, 64]
  together:                       # names that change together
    - {fabric.rate_gbit_s: 100, prices.nic: 700}
    - {fabric.rate_gbit_s: 200, prices.nic: 1200}
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import netfold
from netfold_lab.plan.cluster.text import Text

TOGETHER = "together"
OF_JOB = (
    "model",
    "layers",
    "width",
    "batch",
    "sharding",
    "accumulate",
    "optimizer",
)  # values of the job, not of the cluster
DEFAULTS: dict[str, Any] = {"model": "resnet50", "layers": 20, "width": 2048, "batch": 64}
DEFAULTS |= {"sharding": "none", "accumulate": 1, "optimizer": "adam"}


@dataclass(frozen=True)
class Design:
    """`varied`: the values that distinguish it from other designs; `cluster`: a cluster file's content; `folder`: the
    folder of files that it names."""

    varied: dict[str, Any]
    cluster: dict[str, Any]
    job: dict[str, Any]
    algorithms: tuple[str, ...]
    seeds: int
    folder: str

    @property
    def key(self) -> str:
        """A key that is equal for equal designs planned by the same netfold."""
        told = [netfold.__version__, self.cluster, self.job, self.algorithms, self.seeds]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Sweep:
    """The content of a sweep file."""

    path: Path
    base: dict[str, Any]
    job: dict[str, Any]
    vary: dict[str, list[Any]]
    algorithms: tuple[str, ...]
    seeds: int

    def __len__(self) -> int:
        count = 1
        for values in self.vary.values():
            count *= len(values)
        return count

    def designs(self) -> Iterator[Design]:
        """Every combination; the last name varies fastest."""
        for values in itertools.product(*self.vary.values()):
            varied: dict[str, Any] = {}
            for name, value in zip(self.vary, values, strict=True):
                varied |= value if name == TOGETHER else {name: value}
            cluster, job = copy.deepcopy(self.base), dict(self.job)
            for name in sorted(varied, key=lambda each: each.count(".")):
                if name in OF_JOB:
                    job[name] = varied[name]
                else:
                    _put(cluster, name.split("."), varied[name])
            yield Design(varied, cluster, job, self.algorithms, self.seeds, str(self.path.parent))


def _put(content: dict[str, Any], names: list[str], value: Any) -> None:
    """Set a part; null removes it."""
    for name in names[:-1]:
        content = content.setdefault(name, {})
    if value is None:
        content.pop(names[-1], None)
    else:
        content[names[-1]] = copy.deepcopy(value)


def read(path: Path) -> Sweep:
    """Read a sweep file. Raises UsageError that names the file, the line and the fault."""
    text = Text(path)
    if not isinstance(text.content, dict):
        raise text.error((), "write cluster: and vary:; see docs/how-to/plan-a-cluster.md")
    text.check(str(Path(__file__).parent / "sweep.schema.json"))
    content = text.content
    base = content["cluster"]
    if isinstance(base, str):
        base = Text(path.parent / base).content
        if not isinstance(base, dict):
            raise text.error(("cluster",), f"{content['cluster']} is not a cluster file")
    base = copy.deepcopy(base)
    if "prices" in content:
        told = content["prices"]
        base["prices"] = Text(path.parent / told).content if isinstance(told, str) else told
    sections = ("name", "fabric", "servers", "compute", "software", "prices", "ranks", *OF_JOB)
    for name, values in content["vary"].items():
        if name == TOGETHER and not all(isinstance(value, dict) for value in values):
            raise text.error(("vary", name), "must be a list of names and values")
        for each in [key for value in values for key in value] if name == TOGETHER else [name]:
            if each.split(".")[0] not in sections:
                raise text.error(
                    ("vary", name), f"{each} is not a name to vary: names begin with {', '.join(sections)}"
                )
    return Sweep(
        path,
        base,
        DEFAULTS | {name: content[name] for name in OF_JOB if name in content},
        content["vary"],
        tuple(content.get("algorithms", ())),
        content.get("seeds", 1),
    )


def text_of(design: Design) -> Text:
    """A design's cluster as text, so that errors can name its lines."""
    return Text(Path(design.folder) / "design", yaml.safe_dump(design.cluster, sort_keys=False))
