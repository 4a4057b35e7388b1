"""Chakra execution traces (mlcommons, schema/protobuf/et_def.proto): one file per rank, of messages with length
prefixes.

This file describes the used parts of the messages with the names and numbers of that schema, so no schema compiler is
necessary. A *step* trace has a node for each layer's forward and backward pass, each bucket's all-reduce and the
update. A *collective* trace has the sends, receives and folds of one all-reduce.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from netfold.timeline import SWITCH, Transfer
from netfold_lab.errors import UsageError
from netfold_lab.plan.step.timeline import Timeline

VERSION = "0.0.4"
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7  # NodeType
ALL_REDUCE = 0  # CollectiveCommType
MICROSECONDS = 1e6


@cache
def schema() -> dict[str, Any]:
    """Classes of the messages by name. Raises UsageError if protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise UsageError("Chakra traces need protobuf: pip install 'netfold[plan]'") from None
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    types = {"uint64": field.TYPE_UINT64, "int64": field.TYPE_INT64, "int32": field.TYPE_INT32}
    types |= {"bool": field.TYPE_BOOL, "string": field.TYPE_STRING}

    def message(name: str, *fields: tuple[str, int, str, bool]) -> None:
        made = file.message_type.add(name=name)
        for label, number, kind, is_repeated in fields:
            one = made.field.add(name=label, number=number)
            one.label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
            if kind in types:
                one.type = types[kind]
            else:
                one.type, one.type_name = field.TYPE_MESSAGE, f".ChakraProtoMsg.{kind}"

    message("AttributeProto", ("name", 1, "string", False), ("doc_string", 2, "string", False))
    attribute = file.message_type[0]
    attribute.oneof_decl.add(name="value")
    for label, number in (("int32", 7), ("int64", 9), ("uint64", 13), ("bool", 27), ("string", 29)):
        attribute.field.add(
            name=f"{label}_val", number=number, type=types[label], label=field.LABEL_OPTIONAL, oneof_index=0
        )
    message("GlobalMetadata", ("version", 1, "string", False), ("attr", 2, "AttributeProto", True))
    message(
        "Node",
        ("id", 1, "uint64", False),
        ("name", 2, "string", False),
        ("type", 3, "int32", False),  # an enumeration has the bytes of an int32
        ("ctrl_deps", 4, "uint64", True),
        ("data_deps", 5, "uint64", True),
        ("start_time_micros", 6, "uint64", False),
        ("duration_micros", 7, "uint64", False),
        ("attr", 10, "AttributeProto", True),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("AttributeProto", "GlobalMetadata", "Node")
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}")) for name in names
    }


def _node(number: int, name: str, kind: int, needs: Sequence[int], duration_s: float = 0.0, **attributes: Any) -> Any:
    made = schema()["Node"](id=number, name=name, type=kind, data_deps=list(needs))
    made.duration_micros = round(duration_s * MICROSECONDS)
    for label, value in attributes.items():
        one = made.attr.add(name=label)
        if isinstance(value, bool):
            one.bool_val = value
        elif label in ("comm_size", "comm_type", "num_ops", "tensor_size"):
            one.int64_val = int(value)
        else:
            one.int32_val = int(value)
    return made


def step_nodes(line: Timeline, flop_s: float) -> Iterator[Any]:
    """A step of one rank; equal for all ranks."""
    before: list[int] = []
    reduced: list[int] = []
    backward = 0
    for number, span in enumerate(line.spans, 1):
        took = span.end_s - span.start_s
        if span.lane == "all-reduce":
            attributes = {"comm_type": ALL_REDUCE, "comm_size": span.size_bytes, "is_cpu_op": False}
            yield _node(number, f"all-reduce {span.name}", COLLECTIVE, [backward], took, **attributes)
            reduced.append(number)
            continue
        needs = [*before, *reduced] if span.lane == "update" else before
        work = {"num_ops": took * flop_s, "tensor_size": 0, "is_cpu_op": False}
        yield _node(number, f"{span.lane} {span.name}", COMPUTE, needs, took, **work)
        before = [number]
        backward = number if span.lane == "backward" else backward


def collective_nodes(rank: int, steps: Sequence[Sequence[Transfer]], element_bytes: int) -> Iterator[Any]:
    """The sends and receives of one rank's schedule. A step depends on the whole step before. A fold is one operation
    per element, after its receive. Raises UsageError for a schedule that needs a switch, which Chakra does not
    support."""
    before: list[int] = []
    number = 0
    for at, step in enumerate(steps):
        ends: list[int] = []
        for action, peer, _, count in step:
            if peer == SWITCH:
                raise UsageError("a Chakra trace has no folding switch: export another algorithm than in-network")
            number += 1
            is_send = action == "send"
            source, target = (rank, peer) if is_send else (peer, rank)
            attributes = {"comm_src": source, "comm_dst": target, "comm_size": count * element_bytes, "comm_tag": at}
            name = f"step {at}: {action} {'to' if is_send else 'from'} {peer}"
            yield _node(number, name, SEND if is_send else RECEIVE, before, is_cpu_op=False, **attributes)
            if action == "fold":
                number += 1
                work = {"num_ops": count, "tensor_size": count * element_bytes, "is_cpu_op": False}
                yield _node(number, f"step {at}: fold", COMPUTE, [number - 1], **work)
            ends.append(number)
        before = ends


def write(path: Path, nodes: Iterator[Any]) -> None:
    """Write one rank's file. Raises OSError."""
    with path.open("wb") as file:
        _put(file, schema()["GlobalMetadata"](version=VERSION))
        for node in nodes:
            _put(file, node)


def _put(file: BinaryIO, message: Any) -> None:
    from google.protobuf.proto import serialize_length_prefixed

    serialize_length_prefixed(message, file)


def read(path: Path) -> tuple[Any, list[Any]]:
    """Read a file's metadata and nodes."""
    from google.protobuf.proto import parse_length_prefixed

    nodes = []
    with path.open("rb") as file:
        metadata = parse_length_prefixed(schema()["GlobalMetadata"], file)
        while (node := parse_length_prefixed(schema()["Node"], file)) is not None:
            nodes.append(node)
    return metadata, nodes
