"""DiLoCo: training over slow links (arXiv 2311.08105), with overlapped fragments (Streaming DiLoCo, arXiv 2501.18512).

Every worker trains its own copy of the model. Every `steps` inner steps the *outer gradient*, the global parameters
minus the worker's own, is averaged over the workers, and an outer optimizer moves the global parameters by it. The
model is cut into fragments whose turns are spread over the `steps`, so the link is used evenly. A fragment's mean is on
its way for `overlap` inner steps, in which the worker goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from netfold.torch.few_bits import NEAREST, Coding, FewBitsMean
from netfold.torch.hand_over import hand_over

OuterOptimizer = Callable[[Iterable[torch.Tensor]], torch.optim.Optimizer]


def nesterov(parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
    """The outer optimizer of the paper."""
    return torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)


@dataclass
class Fragment:
    """Some parameters of the model, and what all ranks know about them."""

    local: list[nn.Parameter]
    due: int  # of every `steps` inner steps, the one after which it is sent
    shared: nn.Parameter  # the global parameters: flat, fp32, on the CPU
    optimizer: torch.optim.Optimizer
    error: torch.Tensor  # what this rank's encoding lost; added to the next outer gradient
    owner_error: torch.Tensor | None = None  # the same of the mean of this rank's part
    in_flight: InFlight | None = None


@dataclass
class InFlight:
    """A fragment's outer gradient on its way: the inner step when it was sent, and the worker's parameters then."""

    began: int
    sent: torch.Tensor
    mean: FewBitsMean


def _outer_step(fragment: Fragment, gradient: torch.Tensor) -> None:
    """Move the global parameters by the mean of the outer gradients, as the outer optimizer does."""
    fragment.shared.grad = gradient
    fragment.optimizer.step()


def _whole_mean(fragment: Fragment, gradient: torch.Tensor) -> None:
    """Move them to the mean of the workers' parameters."""
    fragment.shared.data -= gradient


@dataclass
class Counters:
    """The cost of the outer steps for this rank so far: bytes sent without headers, seconds waited for the network."""

    updates: int = 0
    sent_bytes: int = 0
    waited_s: float = 0.0


class DiLoCo:
    """Call `step` after every step of the inner optimizer, or `optimizer.register_step_post_hook(diloco.step)`.

    model: each worker's own; not wrapped by DDP. Its parameters are made those of the lowest rank.
    outer_optimizer: makes the optimizer of a flat fp32 tensor of global parameters; it must work element by element.
    group: any process group (None: the default one). Raises ValueError for settings that contradict each other.
    Buffers of the model (of batch norm, say) stay each worker's own.
    """

    def __init__(
        self,
        model: nn.Module,
        outer_optimizer: OuterOptimizer = nesterov,
        group: dist.ProcessGroup | None = None,
        *,
        steps: int = 50,
        fragments: int = 4,
        overlap: int = 5,
        bits: int = 4,
        block: int = 64,
        rounding: str = NEAREST,
        error_feedback: bool = True,
        seed: int = 0,
    ) -> None:
        if not 1 <= fragments <= steps:
            raise ValueError(f"fragments is {fragments}: take 1 to {steps}, which is `steps`")
        if not 0 <= overlap < steps:
            raise ValueError(f"overlap is {overlap}: take 0 to {steps - 1}, less than `steps`")
        self._coding = Coding(bits, block, rounding, seed)
        self._steps, self._overlap, self._feeds_back = steps, overlap, error_feedback
        self._step = 0
        self.counters = Counters()
        self.fragments = [
            _fragment(parameters, (place + 1) * steps // fragments % steps, outer_optimizer)
            for place, parameters in enumerate(_cut(list(model.parameters()), fragments))
        ]
        self._group = group
        self.use(group)

    @property
    def inner_steps(self) -> int:
        """Inner steps so far, counted from the start of the training."""
        return self._step

    def step(self, *_: object) -> None:
        """An inner step is done. Sends, sums and applies the fragments whose turn it is.

        Raises the group's error if a rank died (with Netfold a NetfoldError that names it). Then make a group of those
        that are left, and give it to `use`.
        """
        self._step += 1
        for number, fragment in enumerate(self.fragments):
            flight = fragment.in_flight
            if flight is not None:
                # A turn when half of the time is over, whatever has come by then: all ranks must begin their
                # collectives in the same order.
                if self._step - flight.began == (self._overlap + 1) // 2:
                    flight.mean.turn()
                if self._step - flight.began == self._overlap:
                    self._apply(fragment, flight)
            if self._step % self._steps == fragment.due:
                flight = self._send(number, fragment)
                if self._overlap == 0:
                    flight.mean.turn()
                    self._apply(fragment, flight)

    def drain(self) -> None:
        """Wait for what is on its way, and apply it. All ranks call it after the same inner step, before one of them
        leaves or one joins. Raises the group's error."""
        flights = [(fragment, fragment.in_flight) for fragment in self.fragments if fragment.in_flight is not None]
        flights.sort(key=lambda pair: pair[1].began)
        for _, flight in flights:
            if self._step - flight.began < (self._overlap + 1) // 2:
                flight.mean.turn()
        for fragment, flight in flights:
            self._apply(fragment, flight)

    def finish(self) -> None:
        """End the training: the model and the global parameters become the mean of all workers' parameters. All ranks
        call it after the same inner step.

        Without it the global parameters lack what the workers learned since each fragment was sent: up to `steps` inner
        steps. The outer optimizer takes no part, since its momentum would go beyond the mean. Raises the group's error.
        """
        self.drain()
        flights = [self._send(number, fragment) for number, fragment in enumerate(self.fragments)]
        for flight in flights:
            flight.mean.turn()
        for fragment, flight in zip(self.fragments, flights, strict=True):
            self._apply(fragment, flight, _whole_mean)

    def use(self, group: dist.ProcessGroup | None) -> None:
        """Go on with these ranks: after a death, without one that left, or with newcomers, which make a DiLoCo of the
        same settings with this group meanwhile. Every rank of the group calls it.

        Outer gradients on their way are dropped; the next ones contain them again. The newest state (global parameters,
        outer optimizer, number of inner steps) is given to the ranks that do not have it. Their own parameters become
        the global ones. Raises the group's error.
        """
        self._group = group
        for fragment in self.fragments:
            fragment.in_flight = fragment.owner_error = None
        # Survivors of a death may have stopped at different steps (one was told of it later) with the same state.
        state = {name: each for name, each in self.state_dict().items() if name != "step"}
        newest = hand_over(state, (state["updates"], self._step), group)
        if newest is not None:
            self.load_state_dict({"step": self._step, **newest})
        last = torch.tensor([self._step])
        dist.all_reduce(last, dist.ReduceOp.MAX, group=group)
        self._step = int(last)

    def state_dict(self) -> dict[str, Any]:
        """The state that all ranks have with the same bits, also for a checkpoint: call `drain` before."""
        return {
            "step": self._step,
            "updates": self.counters.updates,
            "shared": [fragment.shared.detach() for fragment in self.fragments],
            "outer": [fragment.optimizer.state_dict() for fragment in self.fragments],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state. The model's own parameters become the global ones. Raises ValueError if it is of another
        model or of other fragments."""
        sizes = [shared.numel() for shared in state["shared"]]
        if sizes != [fragment.shared.numel() for fragment in self.fragments]:
            raise ValueError("the state is of another model or has other fragments: give all ranks the same settings")
        self._step, self.counters.updates = state["step"], state["updates"]
        for fragment, shared, outer in zip(self.fragments, state["shared"], state["outer"], strict=True):
            fragment.shared.data.copy_(shared)
            fragment.optimizer.load_state_dict(outer)
            fragment.error.zero_()
            _set(fragment.local, fragment.shared.detach())

    def _send(self, number: int, fragment: Fragment) -> InFlight:
        sent = _flat(fragment.local)
        gradient = fragment.shared.detach() - sent
        if self._feeds_back:
            gradient += fragment.error
        draw = (self._step, number)
        mean = FewBitsMean(gradient, fragment.owner_error, self._coding, self._group, draw)
        self.counters.sent_bytes += mean.sent_bytes
        fragment.in_flight = InFlight(self._step, sent, mean)
        return fragment.in_flight

    def _apply(
        self, fragment: Fragment, flight: InFlight, update: Callable[[Fragment, torch.Tensor], None] = _outer_step
    ) -> None:
        update(fragment, flight.mean.result())
        fragment.in_flight = None
        if self._feeds_back:  # not before: a mean that fails has lost nothing
            fragment.error, fragment.owner_error = flight.mean.error, flight.mean.owner_error
        # What the worker learned meanwhile is kept. It is in its next outer gradient.
        meanwhile = _flat(fragment.local) - flight.sent
        _set(fragment.local, fragment.shared.detach() + meanwhile)
        self.counters.updates += 1
        self.counters.waited_s += flight.mean.waited_s


def _cut(parameters: list[nn.Parameter], fragments: int) -> list[list[nn.Parameter]]:
    """Neighbouring parameters, about as many elements in each fragment; never an empty one."""
    total = sum(parameter.numel() for parameter in parameters)
    cut: dict[int, list[nn.Parameter]] = {}
    before = 0
    for parameter in parameters:
        middle = before + parameter.numel() / 2
        cut.setdefault(int(middle * fragments / total), []).append(parameter)
        before += parameter.numel()
    return list(cut.values())


def _fragment(parameters: list[nn.Parameter], due: int, outer_optimizer: OuterOptimizer) -> Fragment:
    shared = nn.Parameter(_flat(parameters))
    return Fragment(parameters, due, shared, outer_optimizer([shared]), torch.zeros(shared.numel()))


def _flat(parameters: list[nn.Parameter]) -> torch.Tensor:
    """A copy of the parameters: flat, fp32, on the CPU."""
    return torch.cat([parameter.detach().to("cpu", torch.float32).reshape(-1) for parameter in parameters])


def _set(parameters: list[nn.Parameter], flat: torch.Tensor) -> None:
    """The opposite."""
    pieces = flat.split([parameter.numel() for parameter in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.data.copy_(piece.view_as(parameter))
