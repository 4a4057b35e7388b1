"""The algorithm for each size and number of ranks, and the reason. All ranks of a group use the same choices.

Sizes have classes: class k holds the sizes that are nearest to 2^k bytes (in logs). The choice for a class is the
algorithm that takes the least time at 2^k bytes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache

from netfold import algorithms
from netfold.chooser.model import Model
from netfold.log import logger
from netfold.machine import this_machine

CLASS_MIN, CLASS_MAX = 2, 34  # 4 bytes to 16 GiB; smaller and larger sizes belong to these classes
SIZES_REMEMBERED = 1024  # a training step's tensors have the same sizes every time
RULE = "built-in rule: no table for this group; `netfold bench allreduce --tune` measures one"


def class_of(size_bytes: int) -> int:
    """The class of a size. It uses integers only, so that every rank of every machine gets the same class."""
    nearest = (2 * size_bytes * size_bytes).bit_length() - 1 >> 1  # log2(size), rounded
    return min(max(nearest, CLASS_MIN), CLASS_MAX)


@dataclass(frozen=True)
class Choice:
    """An algorithm, its expected time for 2^k bytes in seconds, and the second best ("" if there is only one)."""

    algorithm: str
    time_s: float
    is_measured: bool
    second: str = ""
    second_s: float = 0.0


@dataclass(frozen=True)
class Choices:
    """A choice for each class, from CLASS_MIN up, for groups of `ranks` ranks. `source` names the table."""

    ranks: int
    source: str
    by_class: tuple[Choice, ...]

    def of(self, size_bytes: int) -> Choice:
        """The choice for a tensor."""
        return self.by_class[class_of(size_bytes) - CLASS_MIN]

    def to_json(self) -> str:
        """One line, for the other ranks."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Choices:
        """Read the line that `to_json` wrote."""
        said = json.loads(text)
        return Choices(said["ranks"], said["source"], tuple(Choice(**each) for each in said["by_class"]))


def choice_at(
    model: Model, ranks: int, size_bytes: int, may_take: Callable[[str], bool] = lambda name: True
) -> Choice | None:
    """The algorithm that `may_take` allows with the least time (of equal ones, the first by name); None if the table
    does not cover `ranks`."""
    allowed = filter(may_take, model.algorithms(ranks))
    ranked = sorted((model.seconds(name, ranks, size_bytes), name) for name in allowed)
    if not ranked:
        return None
    (time_s, name), *others = ranked
    second_s, second = others[0] if others else (0.0, "")
    return Choice(name, time_s, model.is_measured(name, ranks, size_bytes), second, second_s)


def choices_of(model: Model, ranks: int, may_take: Callable[[str], bool] = lambda name: True) -> Choices | None:
    """The table's choices for this number of ranks; None if the table does not cover it, or no algorithm that
    `may_take` allows."""
    found = [choice_at(model, ranks, 1 << each, may_take) for each in range(CLASS_MIN, CLASS_MAX + 1)]
    by_class = tuple(choice for choice in found if choice is not None)
    return Choices(ranks, source_of(model), by_class) if len(by_class) == len(found) else None


def source_of(model: Model) -> str:
    """The origin of the times, in words."""
    conditions = model.table.conditions
    same = conditions.machine == this_machine()
    return f"table of {model.table.date}, {'this machine' if same else conditions.machine.cpu}"


class Chooser:
    """The choices of `auto` in one group (a `netfold.algorithms.Choose`). It logs each choice once.

    Without choices, or for another number of ranks, it uses the built-in `rule`. `level` is the level of the log
    messages; one rank of a group is enough to log them visibly.
    """

    def __init__(
        self, choices: Choices | None, rule: algorithms.Choose = algorithms.choose, level: int = logging.INFO
    ) -> None:
        self._choices = choices
        self._rule = rule
        self._level = level
        self._said: set[tuple[int, str]] = set()
        self._remembered = lru_cache(SIZES_REMEMBERED)(self._choose)

    def __call__(self, size_bytes: int, ranks: int) -> str:
        """The algorithm for a tensor of this size in bytes."""
        return self._remembered(size_bytes, ranks)

    def _choose(self, size_bytes: int, ranks: int) -> str:
        if self._choices is None or self._choices.ranks != ranks:
            algorithm, why = self._rule(size_bytes, ranks), RULE
        else:
            choice = self._choices.of(size_bytes)
            algorithm, why = choice.algorithm, _why(size_bytes, choice, self._choices.source)
        said = class_of(size_bytes), algorithm
        if said not in self._said:
            self._said.add(said)
            logger.log(self._level, "netfold: %s on %d ranks: %s (%s)", size_text(size_bytes), ranks, algorithm, why)
        return algorithm


def _why(size_bytes: int, choice: Choice, source: str) -> str:
    nearest = 1 << class_of(size_bytes)
    at = "" if size_bytes == nearest else f" at {size_text(nearest)}"
    first = f"{'measured' if choice.is_measured else 'estimated'} {time_text(choice.time_s)}{at}"
    second = f"{choice.second} {time_text(choice.second_s)}" if choice.second else ""
    return "; ".join(filter(None, (first, second, source)))


def size_text(size_bytes: int) -> str:
    """`4.0 MiB`."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 1 << shift:
            return f"{size_bytes / (1 << shift):.1f} {unit}"
    return f"{size_bytes} B"


def time_text(time_s: float) -> str:
    """`3.1 ms`: two digits, and a unit that fits."""
    unit, factor = next((each for each in (("s", 1.0), ("ms", 1e-3)) if time_s >= each[1]), ("us", 1e-6))
    value = time_s / factor
    return f"{value:.{1 if value < 99.95 else 0}f} {unit}"
