"""Options that name output files. Their paths are checked before anything is measured."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import typer

ROOM_BYTES = (
    1 << 16
)  # free space that a disk must have; this detects a full disk, although pages and pictures may need more


def output(text: str, **more: Any) -> Any:
    """typer's option for a file. It creates the folder, and rejects a file that cannot be written. `text`: its help."""
    return typer.Option(help=text, callback=_writable, **more)


def output_folder(text: str, **more: Any) -> Any:
    """Like output, for a folder."""
    return typer.Option(help=text, callback=_writable_folder, **more)


def _writable(path: Path | None) -> Path | None:
    if path is not None:
        try:
            _try_folder(path.parent)
            if path.exists():
                with path.open("ab"):
                    pass
        except OSError as error:
            raise typer.BadParameter(f"{path} cannot be written: {error.strerror}") from None
    return path


def _writable_folder(path: Path | None) -> Path | None:
    if path is not None:
        try:
            _try_folder(path)
        except OSError as error:
            raise typer.BadParameter(f"{path} cannot be written to: {error.strerror}") from None
    return path


def _try_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as trial:
        trial.write(bytes(ROOM_BYTES))
