"""Where the hardware's sources and tools lie."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "rtl" / "src"
