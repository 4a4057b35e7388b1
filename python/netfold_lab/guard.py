"""Error and signal handling of the commands that use a lab."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from netfold_lab.errors import UsageError

FAILED = 1
WRONG_USAGE = 2


@contextmanager
def sentences() -> Iterator[None]:
    """Errors become a sentence on standard error and an exit status: 2 for wrong usage, 1 for other errors.

    SIGTERM ends a command like Ctrl-C, through all `finally` clauses.
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
        print("netfold: interrupted; all processes and files of the command are removed", file=sys.stderr)
        raise SystemExit(FAILED) from None
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay signals until this block ends: for clean-up, which takes seconds at most."""
    numbers = {signal.SIGINT, signal.SIGTERM}
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
