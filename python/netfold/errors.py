"""The one exception of Netfold. Its message says what happened, which part it concerns, and what to do."""

from __future__ import annotations


class NetfoldError(RuntimeError):
    """An error of the network, a peer or the switch.

    Attributes:
        code: one of invalid_argument, timeout, peer_failed, switch_failed, refused, mismatch, auth, system.
        rank: the rank that caused the error, or -1 if no rank did.
    """

    def __init__(self, message: str, code: str = "system", rank: int = -1) -> None:
        super().__init__(message)
        self.code = code
        self.rank = rank

    def __reduce__(self) -> tuple[type[NetfoldError], tuple[str, str, int]]:
        return type(self), (str(self), self.code, self.rank)
