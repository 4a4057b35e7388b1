"""Netfold's messages while it works: Python's logging, logger `netfold`.

Without NETFOLD_LOG the program configures the logger, as with any library. With it, Netfold writes to standard error by
itself.
"""

from __future__ import annotations

import logging

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}

logger = logging.getLogger("netfold")
_handler = logging.StreamHandler()


def write_to_stderr(level: str) -> None:
    """From now on, write this process's messages of this level (a key of LEVELS) and above; "" changes nothing."""
    if not level:
        return
    logger.setLevel(LEVELS[level])
    logger.addHandler(_handler)  # adding it a second time does nothing
    logger.propagate = False  # otherwise a program with its own handler writes each message twice
