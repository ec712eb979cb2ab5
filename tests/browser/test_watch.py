"""The page that follows a run, in a browser, of a job that goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.recording import start_job

if TYPE_CHECKING:
    from tests.browser.devtools import Tab

pytestmark = pytest.mark.browser
_JOB = """
    import sys
    from grpo_doctor_probes import phase, step
    for number in range(99):
        with step(number):
            with phase("rollout"):
                pass
            with phase("<b>x</b>"):
                print(number, flush=True)
                if not sys.stdin.readline():
                    break
"""


def test_a_step_is_on_the_page_once_it_has_ended(tab: Tab, tmp_path: Path) -> None:
    run = tmp_path / "run"
    job = start_job(_JOB, run)
    assert job.stdin is not None
    assert job.stdout is not None

    def next_step(number: int) -> None:
        assert job.stdin is not None
        assert job.stdout is not None
        if number:
            job.stdin.write("go\n")
            job.stdin.flush()
        assert job.stdout.readline() == f"{number}\n"

    for number in range(5):
        next_step(number)
    before = {path: path.stat().st_size for path in run.rglob("*") if path.is_file()}
    watch = subprocess.Popen(
        [sys.executable, "-m", "grpo_doctor", "watch", "--quiet", str(run)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert watch.stdout is not None
        address = watch.stdout.readline().strip()
        tab.resize(800, 900)
        tab.events.clear()
        tab.call("Page.navigate", url=address)
        tab.wait_for(lambda: _text(tab, "headline").startswith("Step 3 took"))
        assert "1 in <b>x</b>" in _text(tab, "where")
        assert tab.evaluate("document.querySelectorAll('#steps > div').length") == 4
        next_step(5)
        tab.wait_for(lambda: _text(tab, "headline").startswith("Step 4 took"))
        tab.wait_for(lambda: _text(tab, "drawn").startswith("drawn at"))
        report = "document.querySelector('iframe:not(.waiting)').contentDocument"
        assert "run" in tab.evaluate(f"{report}.querySelector('.brand').textContent")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 800
        assert tab.problems() == []
        asked = {url.partition("?")[0] for url in tab.requests()}
        assert {url for url in asked if not url.startswith(("data:", "blob:"))} == {
            f"{address.partition('?')[0]}{path}" for path in ("", "report", "events")
        }
        after = {path: path.stat().st_size for path in run.rglob("*") if path.is_file()}
        assert after == before, "nothing is written into the run directory"
    finally:
        watch.terminate()
        watch.wait()
        job.communicate()


def _text(tab: Tab, element: str) -> str:
    return str(tab.evaluate(f"document.getElementById('{element}')?.textContent ?? ''"))
