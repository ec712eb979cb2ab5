from __future__ import annotations

import re

from grpo_doctor_reports.prometheus import render_prometheus
from tests.demo_reports import DEMOS

LINE = re.compile(r'[a-z_]+\{(?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)*\} -?[\d.]+(?:e[+-]?\d+)?')


def test_every_line_is_one_of_the_format() -> None:
    for name in ("slow", "hostile", "crowded"):
        for line in render_prometheus(DEMOS[name]()).splitlines():
            assert line.startswith("# ") or LINE.fullmatch(line), line


def test_phases_by_kind_add_up_to_the_step() -> None:
    document = DEMOS["slow"]()
    text = render_prometheus(document)
    seconds = [
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("grpo_doctor_phase_seconds{")
    ]
    assert abs(sum(seconds) - document["summary"]["step_time_s"]) < 0.01 * sum(seconds)


def test_findings_are_counted_by_severity() -> None:
    document = DEMOS["slow"]()
    high = sum(finding["severity"] == "high" for finding in document["findings"])
    (line,) = (ln for ln in render_prometheus(document).splitlines() if 'severity="high"' in ln)
    assert line.endswith(f" {high}")
