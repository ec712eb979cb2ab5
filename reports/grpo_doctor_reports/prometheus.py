"""A report's numbers as a Prometheus textfile, for node_exporter's textfile collector.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Iterator

from grpo_doctor_reports import digest
from grpo_doctor_reports.schema import AnyDocument
from grpo_doctor_reports.schema.report import ReportDocument, read_report


def render_prometheus(document: AnyDocument) -> str:
    """Gauges of the run: step and phase seconds by kind, GPU busy, tokens, findings by severity."""
    report = read_report(document)
    return "\n".join(_lines(report)) + "\n"


def _lines(report: ReportDocument) -> Iterator[str]:
    labels = {"run": report.run.id, "framework": report.run.framework}
    phases = [
        ({**labels, "phase": part.phase, "role": "trainer", "kind": kind}, seconds)
        for part in digest.step_bar(report)
        for kind, seconds in (
            ("work", part.work_seconds),
            ("wait", part.wait_seconds),
            ("transfer", part.transfer_seconds),
            ("idle", part.idle_seconds),
        )
    ]
    yield from _gauge(
        "grpo_doctor_phase_seconds", "Seconds of a phase per step, the mean over ranks.", phases
    )
    summary = report.summary
    for name, text, value in (
        ("grpo_doctor_step_seconds", "Seconds of a step.", summary.step_time_s),
        ("grpo_doctor_steps", "Steps that the means are over.", float(summary.steps)),
        ("grpo_doctor_gpu_busy_percent", "GPU utilization in the steps.", summary.gpu_busy_pct),
        ("grpo_doctor_tokens_per_second", "Completion tokens per second.", summary.tokens_per_s),
    ):
        if value is not None:
            yield from _gauge(name, text, [(labels, value)])
    counts = dict.fromkeys(("high", "medium", "low", "info"), 0)
    for finding in report.findings:
        counts[finding.severity] = counts.get(finding.severity, 0) + 1
    yield from _gauge(
        "grpo_doctor_findings",
        "Findings by severity.",
        [({**labels, "severity": severity}, float(n)) for severity, n in counts.items()],
    )


def _gauge(name: str, text: str, rows: list[tuple[dict[str, str], float]]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} gauge"
    for labels, value in rows:
        pairs = ",".join(f'{key}="{_value(label)}"' for key, label in labels.items())
        yield f"{name}{{{pairs}}} {value:.9g}"


def _value(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
