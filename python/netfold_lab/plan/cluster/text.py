"""YAML with line numbers, and a schema check whose errors name them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from netfold.topology.file import Loader
from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster import limits

FOLDER = Path(__file__).parent
Place = tuple[str | int, ...]  # keys and indices from the top


class Text:
    """A file's content, and the line of each value."""

    def __init__(self, path: Path, source: str | None = None) -> None:
        """`source`: the text, if it does not come from the file. Raises UsageError if the file cannot be read or is not
        YAML."""
        self.path = path
        try:
            loader = Loader(path.read_text(encoding="utf-8") if source is None else source)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"{path} is not text in UTF-8") from None
        try:
            node = loader.get_single_node()
            self.content: Any = loader.construct_document(node) if node is not None else None
        except yaml.YAMLError as error:
            raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
        self._lines: dict[Place, int] = {}
        if node is not None:
            self._remember(node, ())

    def _remember(self, node: yaml.Node, place: Place) -> None:
        self._lines[place] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                self._remember(value, (*place, key.value))
                self._lines[(*place, key.value)] = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode):
            for at, value in enumerate(node.value):
                self._remember(value, (*place, at))

    def error(self, place: Place, what: str) -> UsageError:
        """An error that names the file, the line and the value."""
        while place and place not in self._lines:
            place = place[:-1]
        name = ".".join(str(each) for each in place)
        return UsageError(f"{self.path}, line {self._lines.get(place, 1)}: {name + ': ' if name else ''}{what}")

    def check(self, schema: str) -> None:
        """Check the content against a schema of this folder. Raises UsageError for the first error in the file."""
        from jsonschema import Draft202012Validator

        for place, value in _numbers((), self.content):
            if not math.isfinite(value):
                raise self.error(place, f"must be a number, not {value}")
        found = list(Draft202012Validator(_schema(schema)).iter_errors(self.content))
        if found:
            errors = [_deepest(error) for error in found]
            first = min(errors, key=lambda each: self._lines.get(tuple(each.absolute_path), 0))
            raise self.error(_place(first), _sentence(first))
        for place, value in _numbers((), self.content):
            if fault := limits.fault(".".join(map(str, place[-2:])), value):
                raise self.error(place, fault)


def _numbers(place: Place, value: Any) -> Iterator[tuple[Place, float]]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield place, value
    elif isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers((*place, key), each)


@cache
def _schema(name: str) -> dict[str, Any]:
    found = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    if name == "cluster.schema.json":
        found["$defs"]["prices"] = _schema("prices.schema.json")
    return found


def _deepest(error: Any) -> Any:
    """Of several failed alternatives, the error of the one that matched most."""
    from jsonschema.exceptions import best_match

    return best_match([error]) or error


def _place(error: Any) -> Place:
    place = tuple(error.absolute_path)
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        strange = sorted(set(error.instance) - set(error.schema.get("properties", ())), key=str)
        return (*place, *strange[:1])
    return place


TYPES = {
    "object": "names and values",
    "array": "a list",
    "integer": "a whole number",
    "string": "a word",
    "number": "a number",
}


def _sentence(error: Any) -> str:
    wanted, given = error.validator_value, error.instance
    if error.validator == "additionalProperties":
        return f"is unknown; write {', '.join(error.schema.get('properties', ()))}"
    if error.validator == "required":
        return f"{', '.join(each for each in wanted if each not in given)} is missing"
    if error.validator == "type":
        is_power = wanted == "number" and isinstance(given, str) and re.fullmatch(r"[\d.]+[eE]\d+", given)
        hint = f"; YAML takes that for a word: write {float(given):.17g}" if is_power else ""
        return f"must be {TYPES.get(wanted, wanted)}, not {given!r}{hint}"
    bounds = {"exclusiveMinimum": "above", "minimum": "at least", "maximum": "at most"}
    if error.validator in bounds:
        return f"must be {bounds[error.validator]} {wanted}, not {given}"
    if error.validator == "enum":
        return f"must be one of {', '.join(map(str, wanted))}, not {given}"
    return error.message
