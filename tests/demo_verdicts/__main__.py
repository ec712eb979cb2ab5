"""`python -m tests.demo_verdicts FOLDER` writes each as a page and as text."""

from __future__ import annotations

import sys
from pathlib import Path

from grpo_doctor_reports.hang.page import hang_page
from grpo_doctor_reports.hang.terminal import hang_text
from tests.demo_verdicts import VISITS


def main(folder: Path) -> None:
    """Write `<name>.html` and `<name>.txt` for every demo verdict into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in VISITS.items():
        (folder / f"{name}.html").write_bytes(hang_page(make()))
        text = hang_text(make(), width=100, color=False)
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "grpo-doctor-demo"))
