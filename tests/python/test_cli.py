"""The `netfold` program as a whole."""

from __future__ import annotations

import pytest

from netfold import cli


@pytest.mark.parametrize(("status", "told"), [(0, 0), (None, None), (1, 1), (2, 2), (130, 1), (143, 1), ("why", 1)])
def test_exit_statuses_are_0_1_and_2(monkeypatch: pytest.MonkeyPatch, status: object, told: object) -> None:
    class App:
        def __getattr__(self, name: str) -> object:
            return lambda *_, **__: lambda command: command

        def __call__(self) -> None:
            raise SystemExit(status)

    monkeypatch.setattr(cli, "app", App())
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == told
