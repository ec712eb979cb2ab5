"""A hook of MkDocs: pages of the repository outside of docs/, and every rule in the navigation.

Links between files of the repository work on a code host; here they are turned into links between
pages. What has no page, such as a source file, keeps its words and loses its link.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
INCLUDED = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "trainer/README.md": "project/trainer.md",
    "probes/README.md": "project/recorder.md",
}
_SOURCES = {page: source for source, page in INCLUDED.items()}
_LINK = re.compile(
    r"(?P<image>!?)\[(?P<words>[^\]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)"
)
_NESTED = re.compile(r"^(?: {2})+(?=[-*] )", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists each rule's page under the table of all, and what no entry names under "Reference"."""
    docs = ROOT / "docs"
    pages = sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))
    rules = [page for page in pages if re.fullmatch(r"rules/GD\d+\.md", page)]
    unnamed = sorted({*pages} - {*rules} - {*_named(config.nav)})
    for entry in config.nav or []:
        for section in entry.get("Reference", []):
            if "Rules" in section:
                section["Rules"] += rules
        entry.get("Reference", []).extend(unnamed)
    return config


def _named(nav: object) -> Iterator[str]:
    """Every page that the navigation names."""
    if isinstance(nav, str):
        yield nav
    for entry in nav if isinstance(nav, list) else nav.values() if isinstance(nav, dict) else ():
        yield from _named(entry)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are kept outside of docs/."""
    from mkdocs.structure.files import File

    for source, page in INCLUDED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Links and lists of one page as MkDocs wants them."""
    return _NESTED.sub(lambda match: match[0] * 2, linked(markdown, page.file.src_uri))


def linked(markdown: str, page: str) -> str:
    """Its links between files of the repository as links between pages of the site."""
    folder = posixpath.dirname(_SOURCES.get(page, f"docs/{page}"))

    def link(match: re.Match[str]) -> str:
        target = match["target"]
        if ":" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        to = INCLUDED.get(path) or (path[len("docs/") :] if path.startswith("docs/") else None)
        if (ROOT / path).is_dir() or (to is None and (ROOT / path).exists()):
            return match["words"]
        if to is None:
            return match[0]
        relative = posixpath.relpath(to, posixpath.dirname(page) or ".")
        return f"{match['image']}[{match['words']}]({relative}{match['anchor'] or ''})"

    return _LINK.sub(link, markdown)
