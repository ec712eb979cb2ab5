"""`python -m tests.case_studies`, or `make case-studies`: case 4 from complaint to cure."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from tests.case_studies.promises import promises
from tests.case_studies.recorded import CommandFailedError
from tests.case_studies.table import story
from tests.case_studies.treatment import treat

OUT = Path("grpo-doctor-out/case-studies")
BUSY = 0.5  # processes that want to run, per processor; above it step times are no measure


def main() -> int:
    """0: every promise was kept. 1: one was missed, or a command failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(
        prog="python -m tests.case_studies",
        description="Runs case 4 as it was, follows the report's advice, and runs it again.",
    )
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="default: %(default)s")
    out = _fresh(parser.parse_args().out.resolve())
    load = os.getloadavg()[0]
    if load > BUSY * (os.cpu_count() or 1):
        _say(f"note: other work is on this machine (load {load:.1f}); times will be off")
    try:
        treated = treat(out, _say)
    except CommandFailedError as problem:
        _say(str(problem))
        return 1
    outcomes = promises(treated)
    text = story(treated, outcomes)
    (out / "story.txt").write_text(text + "\n")
    _say("\n" + text)
    _say(f"\nreports: {out}/before/report.html, {out}/after/report.html")
    return int(not all(promise.kept for promise in outcomes))


def _fresh(folder: Path) -> Path:
    """`wanted`, or where it was used already `wanted-2` and so on: recordings are kept."""
    number, out = 1, folder
    while out.exists() and any(out.iterdir()):
        number += 1
        out = folder.with_name(f"{folder.name}-{number}")
    out.mkdir(parents=True, exist_ok=True)
    return out


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
