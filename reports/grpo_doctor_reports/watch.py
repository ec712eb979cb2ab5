"""Following a run: the page, and one screen of a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from grpo_doctor_reports import assets, formatting
from grpo_doctor_reports.formatting import clean
from grpo_doctor_reports.palette import PHASE_COLORS
from grpo_doctor_reports.schema.watch import Snapshot

_STEPS_SHOWN = 8
_BAR = 40


def live_page(now: Snapshot) -> bytes:
    """Return the page; what it shows comes as events."""
    return assets.own_page(
        assets.template_environment(), "watch.html.j2", assets.style("watch.css"),
        ("page.js", "watch.js"), "; connect-src 'self'; frame-src 'self'", run=now.run,
    )  # fmt: skip


def live_text(now: Snapshot, width: int) -> RenderableType:
    """Return one screen: state, verdicts, last steps, where the ranks are, GPUs."""
    code = f" (exit code {now.exit_code})" if now.exit_code else ""
    since = f" · {formatting.seconds(now.duration_s)}" if now.duration_s else ""
    head = f"{now.run} · {now.framework} · {now.state}{code}{since}"
    parts: list[RenderableType] = [Text(clean(head), style="bold")]
    parts += [
        Text(clean(f"{verdict.state}: {verdict.headline}"), style="bold red")
        for verdict in now.verdicts
    ]
    return Group(*parts, _steps(now, width), _ranks(now), _gpus(now))


def _steps(now: Snapshot, width: int) -> RenderableType:
    if not now.steps:
        return Text("no step has ended yet")
    longest = max(step.seconds for step in now.steps[-_STEPS_SHOWN:])
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    room = max(10, min(_BAR, width - 30))
    for step in now.steps[-_STEPS_SHOWN:]:
        bar = Text()
        for phase, seconds in step.phases.items():
            length = round(room * seconds / longest) if longest else 0
            bar.append("█" * length, style=PHASE_COLORS.get(phase, "#888888"))
        table.add_row(f"step {step.number}", formatting.seconds(step.seconds), bar)
    phases = dict.fromkeys(phase for step in now.steps for phase in step.phases)
    legend = Text()
    for phase in phases:
        legend.append("█ ", style=PHASE_COLORS.get(phase, "#888888"))
        legend.append(f"{clean(phase)}  ")
    return Group(table, legend)


def _ranks(now: Snapshot) -> RenderableType:
    where = ", ".join(f"{count} in {clean(name)}" for name, count in now.where.items())
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for rank in now.longest[:_STEPS_SHOWN]:
        name = f"{rank.role} {rank.rank}".strip() if rank.role else f"rank {rank.rank}"
        table.add_row(clean(name), clean(rank.phase), formatting.seconds(rank.since_s))
    counted = formatting.count(now.ranks, "process", "processes")
    return Group(Text(f"{counted}: {where}" if where else counted), table)


def _gpus(now: Snapshot) -> RenderableType:
    if not now.gpus:
        return Text("no GPU is sampled")
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for gpu in now.gpus:
        memory = f"{formatting.size(gpu.memory_bytes)} of {formatting.size(gpu.memory_total_bytes)}"
        table.add_row(clean(f"{gpu.host} GPU {gpu.index}"), formatting.percent(gpu.busy_pct),
                      memory)  # fmt: skip
    return table
