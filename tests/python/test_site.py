"""The documentation site (`make site`): it builds without a warning, and leads to every page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from repository import ROOT, files

KINDS = ("Tutorial", "How-to", "Reference", "Explanation")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "html"
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "site" / "build.py", out],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


def test_every_document_is_a_page_and_the_navigation_has_the_four_kinds(site: Path) -> None:
    documents = [path for path in files(".md") if path.is_relative_to(ROOT / "docs")]
    assert len(list(site.rglob("*.html"))) > len(documents) > 100
    home = (site / "index.html").read_text()
    captions = re.findall(r'class="caption"[^>]*><span class="caption-text">([^<]+)<', home)
    assert captions[: len(KINDS)] == list(KINDS)
    for path in documents:
        if path.parent.name in ("tutorial", "how-to", "reference", "explanation"):
            assert f'href="{path.parent.name}/{path.stem}.html"' in home, path


def test_every_link_and_picture_has_its_file(site: Path) -> None:
    wrong = []
    for page in site.rglob("*.html"):
        text = page.read_text()
        for target in re.findall(r'(?:href|src)="([^"]+)"', text):
            name = unquote(target.partition("#")[0].partition("?")[0])
            if name and "://" not in target and not target.startswith(("data:", "mailto:")):
                wrong += [] if (page.parent / name).exists() else [f"{page.relative_to(site)}: {target}"]
        assert "file://" not in text, page
    assert wrong == []


def test_the_site_needs_no_other_server(site: Path) -> None:
    loaded = r'<(?:script|link|img)\b[^>]*(?:src|href)="(?:https?:)?//[^"]+"'
    assert {found for page in site.rglob("*.html") for found in re.findall(loaded, page.read_text())} == set()


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "site"))
    import build

    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    page.write_text("# A page\n[gone](gone.md)\n")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    site = build.Site(tmp_path / "out")
    with pytest.raises(SystemExit, match=r"docs/page\.md: the link gone\.md leads nowhere"):
        site._linked(page)
