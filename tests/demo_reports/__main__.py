"""`python -m tests.demo_reports FOLDER` writes every demo as a page and as text."""

from __future__ import annotations

import sys
from pathlib import Path

from grpo_doctor_reports import render_html, render_text
from tests.demo_reports.documents import DEMOS


def main(folder: Path) -> None:
    """Write `<name>.html` and `<name>.txt` for every demo document into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in DEMOS.items():
        document = make()
        (folder / f"{name}.html").write_text(render_html(document), encoding="utf-8")
        text = render_text(document, width=100, color=False)
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "grpo-doctor-demo"))
