"""A torch module as a list of layers, from the operations of one forward pass of one sample."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any

from netfold_lab.errors import UsageError
from netfold_lab.plan.models.layers import Layer, Model


def model_of_module(name: str) -> Model:
    """`package.module:callable@3x224x224`: the module that the callable returns, with one sample of that shape.

    Raises UsageError if it cannot be imported, created, or run with that shape.
    """
    path, _, shape = name.partition("@")
    where, _, what = path.partition(":")
    try:
        sizes = [int(each) for each in shape.split("x")]
    except ValueError:
        raise UsageError(f"--model {name}: append the shape of one sample, such as {path}@3x224x224") from None
    try:
        import torch

        module = getattr(importlib.import_module(where), what)()
        return Model(path, tuple(_layers(module, torch.zeros(1, *sizes))))
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--model {name}: {error}") from None
    except (RuntimeError, TypeError, ValueError) as error:
        raise UsageError(f"--model {name}: the forward pass of a sample of {shape} fails: {error}") from None


def _layers(module: Any, sample: Any) -> list[Layer]:
    """One layer for each submodule with parameters of its own, in the order of the module's definition."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    counted: Counter[str] = Counter()
    names = {child: path for path, child in module.named_modules()}
    own = {path: sum(p.numel() for p in child.parameters(recurse=False)) for child, path in names.items()}
    running: list[str] = []

    class Count(FlopCounterMode):
        def _count_flops(self, func: Any, out: Any, args: Any, kwargs: Any) -> Any:  # called for each operation
            before = self.get_total_flops()
            result = super()._count_flops(func, out, args, kwargs)
            counted[running[-1] if running else ""] += self.get_total_flops() - before
            return result

    hooks = []
    for child, path in names.items():
        hooks.append(child.register_forward_pre_hook(lambda _m, _i, path=path: running.append(path)))
        hooks.append(child.register_forward_hook(lambda _m, _i, _o: running.pop() and None))
    try:
        with torch.no_grad(), Count(display=False):
            module.eval()(sample)
    finally:
        for hook in hooks:
            hook.remove()
    found = [Layer(path or "module", size, float(counted.pop(path, 0))) for path, size in own.items() if size]
    if not found:
        raise ValueError("it has no parameters")
    rest = sum(counted.values()) / len(found)  # operations of modules without parameters, such as attention
    return [Layer(each.name, each.parameters, each.operations + rest) for each in found]
