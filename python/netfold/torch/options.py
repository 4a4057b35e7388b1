"""Process-group options of the backend: settings that a script gives to `init_process_group`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Backend

from netfold.torch import settings
from netfold.torch.settings import Settings


class Options(Backend.Options):
    """Process-group options: `init_process_group("netfold", pg_options=netfold.torch.Options(format="bfp"))`.

    Every setting of TABLE is a keyword; it overrides the environment. `timeout` is torch's own (a timedelta) and limits
    every wait, unless NETFOLD_TIMEOUT_S is set. Raises ValueError for a wrong value, TypeError for a setting that does
    not exist.
    """

    def __init__(self, *, timeout: timedelta | None = None, **given: Any) -> None:
        if timeout is None:
            super().__init__("netfold")
        else:
            super().__init__("netfold", timeout)
        self.given = settings.read(given)

    def clone(self) -> Options:
        """A copy, for another group."""
        copy = Options(timeout=self._timeout)
        copy.given = dict(self.given)
        return copy


def load(options: object | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Merge options over environment over defaults; raises ValueError like `settings.load`.

    `options` is an Options or None; options of other backends raise TypeError.
    """
    if options is not None and not isinstance(options, Options):
        raise TypeError(f"netfold takes netfold.torch.Options(...) as pg_options, not {type(options).__name__}")
    return settings.load(options.given if options is not None else {}, environ)
