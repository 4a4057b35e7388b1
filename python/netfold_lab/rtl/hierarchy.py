"""The modules of a design as slang elaborates it: each with its parameters, and how often it exists."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netfold_lab.rtl.paths import RTL, RtlError, sources

SAME_FOR = ("Port",)  # parameters that number an instance and do not change its logic


@dataclass(frozen=True)
class Unit:
    """A module with its parameters; `modules` are the modules in it, itself first."""

    module: str
    parameters: tuple[tuple[str, int], ...]
    modules: tuple[str, ...]

    @property
    def key(self) -> str:
        """Its key in the cache of results: it changes when a source changes."""
        names = {(RTL / name).stem: RTL / name for name in sources()}
        texts = [names[module].read_text() for module in self.modules if module in names]
        texts += [path.read_text() for name, path in sorted(names.items()) if name.endswith("_pkg")]
        content = hashlib.sha256("".join(texts).encode()).hexdigest()[:12]
        return " ".join([self.module, *(f"{name}={value}" for name, value in self.parameters), content])


def _value(text: str) -> int:
    """The value of a constant in slang's notation: 32'd8, 1'b1, 12."""
    match = re.fullmatch(r"(?:\d+'s?([dbh]))?([0-9a-fA-F_]+)", text)
    if match is None:
        raise RtlError(f"a parameter is not a number: {text}")
    return int(match[2].replace("_", ""), {"d": 10, "b": 2, "h": 16, None: 10}[match[1]])


def _instances(body: Any) -> Iterator[Any]:
    """Instances within a body, at any depth of its generate blocks, not within other instances."""
    import pyslang

    found: list[Any] = []

    def visit(symbol: Any) -> Any:
        if type(symbol).__name__ != "InstanceSymbol":
            return None
        found.append(symbol)
        return pyslang.ast.VisitAction.Skip

    body.visit(visit)
    return iter(found)


def _unit(instance: Any, inside: tuple[str, ...]) -> Unit:
    parameters = [one for one in instance.body.parameters if not one.isLocalParam and one.name not in SAME_FOR]
    pairs = tuple((one.name, _value(str(one.value))) for one in parameters)
    return Unit(instance.body.name, pairs, tuple(dict.fromkeys((instance.body.name, *inside))))


def _walk(instance: Any, boxes: Sequence[str], counts: Counter[Unit]) -> tuple[str, ...]:
    """Counts the units of an instance; returns the names of the modules in it."""
    is_box = instance.body.name in boxes
    inside: tuple[str, ...] = ()
    for child in _instances(instance.body):
        inside += _walk(child, boxes, counts if is_box else Counter())
    unit = _unit(instance, inside)
    counts[unit] += 1
    return unit.modules


def elaborate(top: str, settings: Mapping[str, int]) -> Any:
    """slang's root of `top` with these parameters. Raises RtlError."""
    try:
        from pyslang import driver
    except ModuleNotFoundError:
        raise RtlError("pyslang is missing: pip install 'netfold[rtl]'") from None
    slang = driver.Driver()
    slang.addStandardArgs()
    files = " ".join(str(RTL / name) for name in sources())
    given = " ".join(f"-G {name}={value}" for name, value in settings.items())
    if not slang.parseCommandLine(f"slang --top {top} {given} {files}", driver.CommandLineOptions()):
        raise RtlError("slang rejects its arguments")
    if not (slang.processOptions() and slang.parseAllSources()):
        raise RtlError("slang cannot read the sources: run netfold rtl lint")
    return slang.createCompilation().getRoot()


def units(top: str, settings: Mapping[str, int], boxes: Sequence[str]) -> Counter[Unit]:
    """The modules of `top` with these parameters, and the number of each. A module in `boxes` counts with its own logic
    only, and the modules in it count for themselves. Raises RtlError."""
    counts: Counter[Unit] = Counter()
    for instance in elaborate(top, settings).topInstances:
        _walk(instance, boxes, counts)
    return counts


def instances(top: str, settings: Mapping[str, int]) -> list[tuple[str, tuple[str, ...]]]:
    """Every instance below `top`: its module, and the names of the instances on the way to it. A name begins with the
    generate blocks around it: `gen_in[0].u_receive`. Raises RtlError."""
    found: list[tuple[str, tuple[str, ...]]] = []

    def visit(body: Any, above: str, path: tuple[str, ...]) -> None:
        for child in _instances(body):
            whole = child.hierarchicalPath
            below = (*path, whole.removeprefix(f"{above}."))
            found.append((child.body.name, below))
            visit(child.body, whole, below)

    for instance in elaborate(top, settings).topInstances:
        visit(instance.body, instance.hierarchicalPath, ())
    return found
