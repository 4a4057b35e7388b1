"""One collective or message on its way to an engine, and the names of torch's types and operations in the core."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Protocol

import torch
from torch._C._distributed_c10d import ReduceOp

from netfold.torch.device_words import Words

CORE_DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.int32: "int32"}
"""Those that fold in a format, through a switch too."""

DTYPES = {
    **CORE_DTYPES,
    torch.float64: "fp64",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.uint16: "uint16",
    torch.uint32: "uint32",
    torch.uint64: "uint64",
    torch.bool: "bool",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
}
"""Those that the ranks combine among themselves, as they lie in memory."""

RAW_DTYPES = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}
"""By bytes of an element: what tensors of any type are copied as."""

OPERATIONS = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "sum",
    ReduceOp.PREMUL_SUM: "sum",
    ReduceOp.PRODUCT: "product",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.BAND: "band",
    ReduceOp.BOR: "bor",
    ReduceOp.BXOR: "bxor",
}

Operation = ReduceOp | ReduceOp.RedOpType  # torch compares both types


class Event(Protocol):
    """An event of a device's stream."""

    def synchronize(self) -> None:
        """Block until the stream has passed it; raises RuntimeError if the device failed."""


@dataclass
class Part:
    """A part of a call that a device copies to the engine's memory, and back by itself. `start` submits it. `enqueue`
    then makes the device wait until the engine is done, and copy the result back; it returns the event after that."""

    start: Callable[[Any], int]
    words: Words
    enqueue: Callable[[], Event]

    def submit(self, client: Any, keep: Callable[[int], None]) -> Event:
        """The event after which the device has the result. `keep` gets the ticket before anything else can fail: the
        engine uses the memory from then on."""
        client.for_device(self.words.copied_ptr, self.words.over_ptr, self.words.number)
        try:
            ticket = self.start(client)
        except BaseException:
            client.for_device(0, 0, 0)
            self.words.drop()
            raise
        keep(ticket)
        copied_back = self.enqueue()
        self.words.passed = copied_back
        return copied_back


@dataclass
class Call:
    """`start` submits it to a client, says whether the caller waits for it next, and returns the ticket. `buffers` must
    live until the ticket is finished; `finish` then returns the user's tensors, or what else the future's value is.
    `completing()` is the context in which `finish` is called and the Work completed, such as a CUDA stream. `ready`:
    the event after which `buffers` may be read. `devices`: those of the results. `parts`: if a device waits for the
    engine by itself, what is submitted in place of `start`; then `devices` names that one."""

    buffers: tuple[torch.Tensor, ...]
    start: Callable[[Any, bool], int]
    finish: Callable[[], Any]
    completing: Callable[[], AbstractContextManager[object]] = nullcontext
    ready: Event | None = None
    devices: list[torch.device] = field(default_factory=list)
    is_common: bool = False  # every engine among ranks runs it, an agent's and a NIC's too, and a switch
    is_scatter: bool = False  # through a switch it is a reduce-scatter: its bytes go up, and a part comes down
    name: str = ""  # in records
    parts: list[Part] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """Of the larger buffer."""
        return max((buffer.nbytes for buffer in self.buffers), default=0)


def named(name: str) -> Callable[[Callable[..., Call]], Callable[..., Call]]:
    """A decorator: the calls that a function makes have this name in records."""

    def decorate(make: Callable[..., Call]) -> Callable[..., Call]:
        @wraps(make)
        def made(*arguments: Any) -> Call:
            call = make(*arguments)
            call.name = name
            return call

        return made

    return decorate


def is_summable(dtype: torch.dtype, op: Operation) -> bool:
    """Whether this folds in a format: SUM of all the core's types, AVG of the floating-point types."""
    return dtype in CORE_DTYPES and (op == ReduceOp.SUM or (op == ReduceOp.AVG and dtype != torch.int32))


def operation_of(op: Operation, dtype: torch.dtype) -> tuple[str, bool]:
    """The core's name of an operation, and whether its result is divided by the number of ranks. Raises ValueError if
    the operation is not defined on the type."""
    name = next((name for each, name in OPERATIONS.items() if op == each), None)
    if name is None or dtype not in DTYPES:
        raise ValueError(f"netfold: there is no {op} of {dtype} tensors")
    is_ordered = not dtype.is_complex
    has_bits = is_ordered and not dtype.is_floating_point
    if (name in ("min", "max") and not is_ordered) or (name in ("band", "bor", "bxor") and not has_bits):
        raise ValueError(f"netfold: {op} is not defined on {dtype} tensors")
    if op == ReduceOp.AVG and dtype == torch.bool:
        raise ValueError("netfold: bool tensors have no average")
    return name, op == ReduceOp.AVG


def factor_of(op: Operation) -> Any:
    """By what each rank multiplies its tensor before the sum: of a PREMUL_SUM its number or tensor, else None."""
    if op != ReduceOp.PREMUL_SUM:
        return None
    assert isinstance(op, ReduceOp), "only a ReduceOp carries a factor"
    state: Any = op.__getstate__()
    return state[1]
