"""The one exception of Netfold: what happened, whom it concerns and what to do, in its message."""

from __future__ import annotations


class NetfoldError(RuntimeError):
    """An error of the network, a peer or the switch.

    Attributes:
        code: one of invalid_argument, timeout, peer_failed, switch_failed, refused, mismatch, auth, system.
        rank: the rank that is to blame, -1 where nobody is.
    """

    def __init__(self, message: str, code: str = "system", rank: int = -1) -> None:
        super().__init__(message)
        self.code = code
        self.rank = rank

    def __reduce__(self) -> tuple[type[NetfoldError], tuple[str, str, int]]:
        return type(self), (str(self), self.code, self.rank)
