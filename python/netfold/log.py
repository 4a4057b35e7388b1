"""What Netfold says while it works: Python's logging, logger `netfold`.

Without NETFOLD_LOG it is the program's own logging that decides, as with any library. With it, Netfold writes to
standard error by itself.
"""

from __future__ import annotations

import logging

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}

logger = logging.getLogger("netfold")
_handler = logging.StreamHandler()


def write_to_stderr(level: str) -> None:
    """From now on, in this process, write what is of this level (a key of LEVELS) or above; "" changes nothing."""
    if not level:
        return
    logger.setLevel(LEVELS[level])
    logger.addHandler(_handler)  # a second time does nothing
    logger.propagate = False  # or a program that logs by itself would write it twice
