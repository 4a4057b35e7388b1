"""The files of `netfold plan export`, by format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from netfold.timeline import Timeline, timeline
from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster.spec import Cluster
from netfold_lab.plan.export import chakra, graph, htsim
from netfold_lab.plan.models.layers import Model
from netfold_lab.plan.step.collectives import Contender, net_of
from netfold_lab.plan.step.timeline import timeline as step_timeline
from netfold_lab.schedules.goal import goal

FORMATS = ("goal", "chakra", "htsim", "hpcc", "graphml")
ELEMENT_BYTES = 4


def export(
    folder: Path, formats: Iterable[str], cluster: Cluster, model: Model, batch: int, contender: Contender, count: int
) -> list[Path]:
    """Write files of one all-reduce of `count` elements on this cluster, and of a step of `model`. Returns their paths.

    Raises UsageError for unknown formats and for a cluster that a format cannot express; OSError.
    """
    wanted = list(dict.fromkeys(formats))
    if not wanted:
        raise UsageError(f"--format must name one of {', '.join(FORMATS)}")
    if strange := [each for each in wanted if each not in FORMATS]:
        raise UsageError(f"--format takes {', '.join(FORMATS)}, not {strange[0]}")
    world = len(cluster.graph().hosts)
    try:
        line = timeline(contender.algorithm, world, count, **dict(contender.options))
    except ValueError as error:
        raise UsageError(f"--algorithm {contender.algorithm}: {error}") from None
    writers: dict[str, Callable[[], list[Path]]] = {
        "goal": lambda: [
            _lines(folder / "all-reduce.goal", goal(line, ELEMENT_BYTES, cluster.device.fold_bytes_s / 1e9))
        ],
        "chakra": lambda: _chakra(folder, cluster, model, batch, contender, line),
        "htsim": lambda: _htsim(folder, cluster, line),
        "hpcc": lambda: [_lines(folder / "topology.txt", graph.hpcc(cluster.graph()))],
        "graphml": lambda: _graphml(folder / "topology.graphml", cluster),
    }
    folder.mkdir(parents=True, exist_ok=True)
    return [path for each in wanted for path in writers[each]()]


def _lines(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _graphml(path: Path, cluster: Cluster) -> list[Path]:
    graph.write_graphml(path, cluster.graph())
    return [path]


def _htsim(folder: Path, cluster: Cluster, line: Timeline) -> list[Path]:
    bits = cluster.software.element_bits(cluster.software.wire)
    return [
        _lines(folder / "htsim.topo", htsim.topology(cluster)),
        _lines(folder / "htsim.cm", htsim.matrix(line, bits / 8)),
    ]


def _chakra(
    folder: Path, cluster: Cluster, model: Model, batch: int, contender: Contender, line: Timeline
) -> list[Path]:
    net = net_of(cluster)
    step = step_timeline(
        model, batch, cluster.device, cluster.software.bucket_bytes, lambda size: net.seconds(contender, size)
    )
    written = []
    for rank in range(line.world):
        for name, nodes in (
            ("step", chakra.step_nodes(step, cluster.device.flop_s)),
            ("all-reduce", chakra.collective_nodes(rank, line.steps[rank], ELEMENT_BYTES)),
        ):
            path = folder / f"{name}.{rank}.et"
            chakra.write(path, nodes)
            written.append(path)
    return written
