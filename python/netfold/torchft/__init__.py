"""Netfold under torchft: training goes on when a worker dies. Needs the extra `netfold[torchft]`.

See docs/how-to/survive-failures.md.
"""

from netfold.torchft.process_group import ProcessGroupNetfold

__all__ = ["ProcessGroupNetfold"]
