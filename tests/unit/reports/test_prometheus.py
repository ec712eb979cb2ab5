from __future__ import annotations

import re

from grpo_doctor_reports.prometheus import render_prometheus
from tests.demo_reports import DEMOS

LINE = re.compile(r'[a-z_]+\{(?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)*\} -?[\d.]+(?:e[+-]?\d+)?')


def test_every_line_is_one_of_the_format() -> None:
    for name in ("slow", "hostile", "crowded"):
        for line in render_prometheus(DEMOS[name]()).splitlines():
            assert line.startswith("# ") or LINE.fullmatch(line), line
