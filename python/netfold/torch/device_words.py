"""The two words by which a device and the engine say that a tensor may be read, and that a collective is over.

A pair is used again when the engine and the device have done with it. The memory is never freed: a stream may still
wait for a word when the group that used it is gone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

PAIRS = 512  # made at once: a page of memory
STEP = 2  # between two numbers of a pair; the engine writes the odd one between them after a failure
NUMBERS = 1 << 30  # of a pair, before it begins again; the device compares with signs


@dataclass
class Words:
    """`words`: two int32 in pinned memory, `copied` and `over`. `number`: what both become. `passed`: the event after
    which the device no longer looks at them, if it does."""

    words: torch.Tensor
    number: int = 0
    passed: Any = None

    @property
    def copied_ptr(self) -> int:
        """Address of the word that the device writes."""
        return self.words.data_ptr()

    @property
    def over_ptr(self) -> int:
        """Address of the word that the engine writes."""
        return self.words.data_ptr() + self.words.element_size()

    @property
    def over(self) -> torch.Tensor:
        """The word that the engine writes: `number`, or number + 1 after a failure."""
        return self.words[1:]

    def is_free(self) -> bool:
        """Whether neither the engine nor the device uses them any more."""
        return int(self.words[1]) >= self.number and (self.passed is None or bool(self.passed.query()))

    def drop(self) -> None:
        """The collective was not submitted."""
        self.words[1] = self.number + 1


class WordPool:
    """Pairs of words; `pinned` makes int32 tensors of a size, in memory that a device reads and writes too."""

    def __init__(self, pinned: Callable[[int], torch.Tensor]) -> None:
        self._pinned = pinned
        self._lock = threading.Lock()
        self._pairs: deque[Words] = deque()

    def take(self) -> Words:
        """A pair with a number of its own, which goes back by itself."""
        with self._lock:
            if not self._pairs or not self._pairs[0].is_free():
                more = self._pinned(2 * PAIRS)
                self._pairs.extendleft(Words(each) for each in more.zero_().split(2))
            words = self._pairs.popleft()
            if words.number >= NUMBERS:
                words.words.zero_()
                words.number = 0
            words.number += STEP
            words.passed = None
            self._pairs.append(words)
            return words
