"""What every command of a lab does about errors and signals."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from netfold.lab.errors import UsageError

FAILED = 1
WRONG_USAGE = 2


@contextmanager
def sentences() -> Iterator[None]:
    """Errors become a sentence on standard error and an exit status: 2 for wrong usage, 1 for the rest.

    SIGTERM ends a command as Ctrl-C does, through everybody's `finally`.
    """

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except UsageError as error:
        print(f"netfold: {error}", file=sys.stderr)
        raise SystemExit(WRONG_USAGE) from None
    except (RuntimeError, OSError) as error:  # LabError, MeasurementError, NetfoldError; a full disk
        print(f"netfold: {error}", file=sys.stderr)
        raise SystemExit(FAILED) from None
    except KeyboardInterrupt:
        print("netfold: interrupted; everything it started is gone", file=sys.stderr)
        raise SystemExit(FAILED) from None
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals wait until this is done: for clearing away, which takes seconds at most."""
    numbers = {signal.SIGINT, signal.SIGTERM}
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
