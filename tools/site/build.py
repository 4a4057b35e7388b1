"""Builds the documentation site (`make site`): every Markdown file of the repository as a page, for any web server.

The documents stay as they are, with the links that work in a checkout. They are copied into one folder, where links
between them are rewritten, and each file of the sources that they link becomes a page of its own. Sphinx then makes
HTML of them, and its warnings are errors: a link or an anchor without a target, a page that no other one reaches.

    .venv/bin/python tools/site/build.py [OUT]     OUT: build/site
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
DOCS = ROOT / "docs"
HOME, CONTENTS = ROOT / "README.md", DOCS / "README.md"
# Where documents outside docs/ go: each is one of the four kinds, or about the project.
ELSEWHERE = {
    HOME: "index.md",
    CONTENTS: "contents.md",
    ROOT / "ARCHITECTURE.md": "explanation/architecture.md",
    ROOT / "core" / "wire" / "PROTOCOL.md": "reference/protocol.md",
    ROOT / "CONTRIBUTING.md": "project/contributing.md",
    ROOT / "CHANGELOG.md": "project/changelog.md",
}
RECORDS = (DOCS / "measurements", DOCS / "decisions")
KINDS = {"tutorial": "Tutorial", "how-to": "How-to", "reference": "Reference", "explanation": "Explanation"}
LINK = re.compile(r"(\]\()([^)\s#]*)(#[^)\s]*)?((?:\s[^)]*)?\))")
BLOCK = re.compile(r"^ *```.*?^ *```$", re.S | re.M)
LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".cc": "cpp", ".toml": "toml", ".yaml": "yaml", ".sh": "bash"}


class Site:
    """The pages, by the file that each comes from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pages = dict(ELSEWHERE)
        self._pages |= {
            path: str(path.relative_to(DOCS)).replace("README.md", "index.md")
            for path in sorted(DOCS.rglob("*.md"))
            if path not in ELSEWHERE
        }
        self._sources: set[Path] = set()

    def lay_out(self) -> None:
        """Write all pages, pictures and sources into the folder."""
        for path in list(self._pages):
            # A record is reached from the table of its kind: 90 of them in the navigation would hide the rest.
            head = "---\norphan: true\n---\n" if self._is_record(path) else ""
            self._write(self._pages[path], head + self._linked(path) + self._children(path))
        while missing := [path for path in sorted(self._sources) if not self._file(path).exists()]:
            for path in missing:
                self._write(self._name(path), self._source(path))
        self._write("sources.md", "# Sources that the documents name\n" + _tree(map(self._name, sorted(self._sources))))

    def _file(self, path: Path) -> Path:
        return self._folder / self._name(path)

    def _write(self, name: str, text: str) -> None:
        to = self._folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text, encoding="utf-8")

    def _name(self, path: Path) -> str:
        """The place of a file's page, or of the picture, on the site."""
        if path in self._pages:
            return self._pages[path]
        if path.is_relative_to(DOCS):
            return str(path.relative_to(DOCS))
        return f"sources/{path.relative_to(ROOT)}{'/index' if path.is_dir() else ''}.md"

    def _linked(self, path: Path) -> str:
        """The text of a document, whose links lead to pages of the site."""

        def moved(link: re.Match[str]) -> str:
            start, target, anchor, end = link.groups()
            if not target or "://" in target or target.startswith("mailto:"):
                return link[0]
            to = (path.parent / target).resolve()
            if not to.exists():
                raise SystemExit(f"{path.relative_to(ROOT)}: the link {target} leads nowhere")
            if to not in self._pages and not to.is_relative_to(DOCS):
                self._sources.add(to)
            elif to.suffix != ".md":
                self._copy(to)
            return f"{start}{os.path.relpath(self._name(to), Path(self._name(path)).parent)}{anchor or ''}{end}"

        parts, at = [], 0
        text = path.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            parts += [LINK.sub(moved, text[at : block.start()]), block[0]]
            at = block.end()
        return "".join([*parts, LINK.sub(moved, text[at:])])

    def _copy(self, picture: Path) -> None:
        to = self._folder / picture.relative_to(DOCS)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(picture, to)

    def _is_record(self, path: Path) -> bool:
        return path.parent in RECORDS and path.name != "README.md"

    def _children(self, path: Path) -> str:
        """The part of the navigation that hangs from a page."""
        if path == HOME:
            text = _tree(["contents.md"])
            for kind, title in KINDS.items():
                pages = self._in_order(name for name in self._pages.values() if Path(name).parent == Path(kind))
                text += _tree(pages, title)
            records = ["measurements/index.md", "decisions/index.md"]
            about = sorted(name for name in self._pages.values() if name.startswith("project/"))
            return text + _tree(records, "Records") + _tree([*about, "sources.md"], "Project")
        name = self._name(path)
        if name != "reference/bibliography.md":
            return ""
        below = [each for each in self._pages.values() if each.startswith("reference/papers/")]
        return _tree(os.path.relpath(each, Path(name).parent) for each in sorted(below))

    def _in_order(self, names: Iterable[str]) -> list[str]:
        """As docs/README.md links them."""
        text = CONTENTS.read_text(encoding="utf-8")
        targets = [(CONTENTS.parent / link[2]).resolve() for link in LINK.finditer(text) if link[2]]
        order = [self._pages[target] for target in targets if target in self._pages]
        return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))

    def _source(self, path: Path) -> str:
        title = f"# {path.relative_to(ROOT)}\n"
        if path.is_dir():
            inside = [each for each in sorted(path.iterdir()) if each.is_file()]
            self._sources.update(inside)
            return title + "\n".join(f"- [{each.name}]({each.name}.md)" for each in inside) + "\n"
        fence = "`````"
        text = path.read_text(encoding="utf-8")
        return f"{title}\n{fence}{LANGUAGES.get(path.suffix, 'none')}\n{text}\n{fence}\n"


def _tree(names: Iterable[str], title: str = "") -> str:
    caption = f":caption: {title}\n" if title else ""
    return "\n\n```{toctree}\n:hidden:\n" + caption + "\n" + "\n".join(names) + "\n```\n"


def build(out: Path) -> None:
    """Build the site in `out`, which is emptied before. Raises SystemExit at the first warning."""
    pages = out.parent / f"{out.name}-pages"
    for folder in (out, pages):
        shutil.rmtree(folder, ignore_errors=True)
    pages.mkdir(parents=True)
    Site(pages).lay_out()
    words = ["-q", "-W", "--keep-going", "-b", "html", "-c", str(HERE), "-d", str(pages / ".doctrees")]
    done = subprocess.run([sys.executable, "-m", "sphinx", *words, str(pages), str(out)], check=False)
    if done.returncode != 0:
        raise SystemExit("site: Sphinx has warned, see above; nothing in the site may lead nowhere")


if __name__ == "__main__":
    to = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build" / "site"
    build(to)
    print(f"site: {to}/index.html")
