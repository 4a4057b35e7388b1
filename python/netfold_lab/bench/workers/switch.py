"""The switch of a measurement: `python -m netfold_lab.bench.workers.switch ADDRESS:PORT READY_FILE PARENT`.

It ends at a signal, or when the coordinator that started it is gone.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from netfold import _core


def main() -> None:
    """Open the switch, write its address, wait for a signal."""
    bind, ready, parent = sys.argv[1:4]  # parent: the address of the switch above, or empty
    coordinator = os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    switch = _core.Switch(bind, parent=parent)
    temporary = Path(ready + ".new")
    temporary.write_text(switch.address)
    temporary.replace(ready)
    while os.getppid() == coordinator and signal.sigtimedwait({signal.SIGTERM, signal.SIGINT}, 1.0) is None:
        pass
    switch.close()


if __name__ == "__main__":
    main()
