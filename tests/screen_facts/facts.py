"""Each fact of a first screen, and whether it is true of the run."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import grpo_doctor.findings
from tests.screen_facts.cases import Case
from tests.screen_facts.raw import Raw, quantile

VERSIONS = {
    "bundled": "0.1.0", "trl": "1.16.0", "ms-swift": "4.6.0", "verl": "0.9.1",
    "openrlhf": "0.11.2",
}  # fmt: skip
RULES = len(list(Path(grpo_doctor.findings.__file__).parent.glob("rules/gd*.py")))
_UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "min": 60.0, "h": 3600.0}
_TIME = r"([\d.,]+) (s|ms|µs|min|h)"
_BAR = re.compile(rf"^(\w+) +[█▏▎▍▌▋▊▉▒░]* +{_TIME} +<?([\d.]+)%(?: +wait {_TIME})?", re.MULTILINE)
_ROUNDING = 0.02
_SHARE_OFF = 0.6  # in percent: whole ones are shown
_SET_APART = ("warmup", "eval", "cut")


@dataclass(frozen=True)
class Fact:
    """`shown` is what the screen says, `truth` what holds."""

    subject: str
    shown: str
    truth: str
    is_true: bool


@dataclass(frozen=True)
class Screen:
    """What the report shows first: digest and page, and the document they were made of."""

    case: Case
    raw: Raw
    text: str
    page: str
    document: dict[str, Any]

    @property
    def flat(self) -> str:
        """The digest without its line breaks."""
        return " ".join(self.text.split())

    @property
    def headline(self) -> str:
        return str(self.document["summary"]["verdict"])

    def facts(self) -> Iterator[Fact]:
        """All facts that can be judged by how the run was started, or by its events."""
        for part in (
            _header,
            _page,
            _settings,
            _ending,
            _averages,
            _bar,
            _findings,
            _advice,
            _choice,
            _memory,
            _counts,
        ):
            yield from part(self)

    @property
    def used(self) -> set[int]:
        """The whole steps, less those that are set apart and the one that was cut."""
        apart = self.document["summary"]["set_apart"]
        excluded = {number for kind in _SET_APART for number in apart.get(kind, ())}
        cut = set() if self.case.truth.state == "finished" else {self.raw.last_begun}
        return self.raw.whole() - excluded - cut


def _seconds(match: re.Match[str], group: int = 1) -> float:
    return float(match[group].replace(",", "")) * _UNITS[match[group + 1]]


def _time(subject: str, shown_s: float, truth_s: float, slack_s: float = 0.0) -> Fact:
    close = abs(shown_s - truth_s) <= max(_ROUNDING * abs(truth_s), slack_s)
    return Fact(subject, f"{shown_s:.4g} s", f"{truth_s:.4g} s", close)


def _header(screen: Screen) -> Iterator[Fact]:
    truth, run = screen.case.truth, screen.document["run"]
    first = screen.text.splitlines()[0].replace(screen.case.name, "")
    named = [word for word in VERSIONS if re.search(rf"\b{word}\b", first)]
    expected = [truth.framework] if truth.framework else []
    yield Fact("framework", " ".join(named), truth.framework or "none", named == expected)
    if truth.framework:
        version, shown = VERSIONS[truth.framework], str(run["framework_version"])
        yield Fact("version", shown, version, shown == version and version in first)
    spread = run["parallelism"]
    trainer, _, engine = spread.partition(";")
    layout = {word for word in trainer.split(", ") if word not in ("", "LoRA")}
    yield Fact("LoRA", spread, truth.trained, ("LoRA" in spread) == (truth.trained == "lora"))
    yield Fact("layout", spread, ", ".join(truth.layout), layout <= set(truth.layout))
    yield Fact("engine", engine, str(truth.engine), truth.engine or not engine)
    if ranks := re.search(r"Ranks (\d+)", screen.flat):
        yield Fact("ranks", ranks[1], str(truth.ranks), int(ranks[1]) == truth.ranks)
    if hosts := re.search(r"on (\d+) hosts?\)", screen.flat):
        yield Fact("hosts", hosts[1], "1", hosts[1] == "1")


def _page(screen: Screen) -> Iterator[Fact]:
    """The page's header holds facts alone, and its numbers are those of the digest."""
    truth = screen.case.truth
    setup = html.unescape(screen.page.partition('<p class="setup">')[2].partition("</p>")[0])
    shown = re.findall("<span>(.*?)</span>", setup)
    framework = {"bundled": "bundled trainer", "": ""}.get(truth.framework, truth.framework)
    known = {f"{truth.ranks} rank{'s' * (truth.ranks > 1)} without a GPU", truth.model}
    known |= {
        f"{framework} {VERSIONS.get(truth.framework, '')}",
        screen.document["run"]["parallelism"],
    }
    for part in shown:
        yield Fact("page header", part, ", ".join(sorted(known)), part in known)
    if truth.model:
        yield Fact("model", ", ".join(shown), truth.model, truth.model in shown)
    headline = html.unescape(
        screen.page.partition("<h1")[2]
        .partition(">")[2]
        .partition("</h1>")[0]
        .replace("<code>", "`")
        .replace("</code>", "`")
    )
    yield Fact("page headline", headline, screen.headline, headline == screen.headline)
    numbers = screen.page.partition('class="key-numbers"')[2].partition("</dl>")[0]
    for name, value in re.findall("<dt>(.*?)</dt><dd>([^<]*[^< ])", numbers):
        plain = html.unescape(value)
        yield Fact(f"page {name}", plain, "as in the digest", f"{name} {plain}" in screen.flat)


def _settings(screen: Screen) -> Iterator[Fact]:
    """What the command gave is known, and as given or read, not assumed."""
    run = screen.document["run"]
    for name, value in screen.case.truth.settings.items():
        source, shown = run["provenance"].get(name), run["knobs"].get(name)
        is_fact = shown == value and source in ("given", "read")
        yield Fact(name, f"{shown} ({source})", str(value), is_fact)


def _ending(screen: Screen) -> Iterator[Fact]:
    truth, raw = screen.case.truth, screen.raw
    if shown := re.search(r"Exit (\w+)", screen.flat):
        yield Fact("exit", shown[1], truth.state, shown[1] == truth.state)
    ended = re.search(r"(failed|interrupted|killed|hung)", screen.headline)
    how = ended[1] if ended else "finished"
    yield Fact("how it ended", how, truth.state, how == truth.state)
    begun = raw.last_begun
    if "before its first step" in screen.headline:
        yield Fact("before its first step", "yes", f"{begun} begun", bool(truth.framework) > begun)
    for shown in re.finditer(r"\b(in|after) step (\d+)", screen.headline):
        is_right = int(shown[2]) == begun - (shown[1] == "after")
        yield Fact("last step", shown[0], f"in step {begun}", is_right)
    for word in truth.says:
        yield Fact("why it ended", word if word in screen.flat else "", word, word in screen.flat)


def _averages(screen: Screen) -> Iterator[Fact]:
    used = screen.used
    shown = re.search(rf"Step time {_TIME}", screen.flat)
    if shown is None or not used:
        yield Fact(
            "step time", shown[0] if shown else "none", f"{len(used)} steps", not (shown or used)
        )
        return
    lengths = [mean(seconds) for seconds in screen.raw.step_seconds(used).values()]
    yield _time("step time", _seconds(shown), mean(lengths))
    if spread := re.search(rf"p10.p90 {_TIME} to {_TIME}", screen.flat):
        yield _time("p10", _seconds(spread), quantile(lengths, 0.1))
        yield _time("p90", _seconds(spread, 3), quantile(lengths, 0.9))
    if steps := re.search(r"Steps (\d+)", screen.flat):
        yield Fact("steps", steps[1], str(len(used)), int(steps[1]) == len(used))


def _bar(screen: Screen) -> Iterator[Fact]:
    """A driver's phases are split by what its actors did meanwhile: there the parts must add up."""
    if not screen.used:
        return
    step_s = screen.raw.mean_step_s(screen.used)
    phases = screen.raw.phase_seconds(screen.used)
    rows = list(_BAR.finditer(screen.text))
    for row in rows:
        name, length_s, share = row[1], _seconds(row, 2), float(row[4])
        truth_s = phases.get(name, step_s - sum(phases.values()))
        if screen.raw.has_driver:
            truth_s = length_s
        yield _time(f"{name} time", length_s, truth_s, 2e-5)
        part = 100 * truth_s / step_s
        yield Fact(f"{name} share", f"{share}%", f"{part:.2g}%", abs(share - part) < _SHARE_OFF)
        if row[5]:
            wait_s = _seconds(row, 5)
            yield Fact(f"{name} wait", row[5], "at most the phase", wait_s <= length_s)
    yield _time("sum of the phases", sum(_seconds(row, 2) for row in rows), step_s)


def _findings(screen: Screen) -> Iterator[Fact]:
    summary = screen.document["summary"]
    named = {finding["id"] for finding in screen.document["findings"]}
    for rule in screen.case.truth.faults:
        yield Fact("injected fault", ", ".join(sorted(named)), rule, rule in named)
    for finding in screen.document["findings"]:
        cost, subject = finding["cost"], finding["id"]
        if not cost["seconds_per_step"]:
            continue
        blamed_s = sum(
            part["seconds"] for name, part in summary["phases"].items() if name in finding["phases"]
        )
        cost_s, step_s = cost["seconds_per_step"], summary["step_time_s"]
        limit_s = blamed_s if finding["phases"] else step_s
        yield Fact(
            f"{subject} cost", f"{cost_s:.4g} s", f"at most {limit_s:.4g} s",
            cost_s <= limit_s * (1 + _ROUNDING),
        )  # fmt: skip
        share = cost_s / step_s
        is_share = abs(cost["share"] - share) < 0.006
        yield Fact(f"{subject} share", f"{cost['share']:.1%}", f"{share:.1%}", is_share)
        # Other ranks wait less too: a gain may be larger than what its phase costs by that.
        waits = sum(part["wait_seconds"] for part in summary["phases"].values()) / step_s
        limit = cost["share"] + waits + 0.015
        for change in (*finding["fixes"], *finding["next_steps"]):
            predicted = change.get("predicted") or {}
            if predicted.get("unit") == "step_time_pct":
                gain = -predicted["mid"] / 100
                yield Fact(f"{subject} gain", f"{gain:.1%}", f"at most {limit:.1%}", gain <= limit)


def _advice(screen: Screen) -> Iterator[Fact]:
    if not screen.case.truth.flags:
        pasted = re.findall(r"^ *fix +(--.*)$", screen.text, re.MULTILINE)
        yield Fact("flags to paste", "; ".join(pasted), "the script takes none", not pasted)
    if not screen.case.truth.framework:
        pasted = re.findall(r"^ *fix +(-.*|set .*)$", screen.text, re.MULTILINE)
        yield Fact("flags to paste", "; ".join(pasted), "of no framework", not pasted)
    if screen.case.truth.framework:
        by_hand = "grpo_doctor_probes import" in screen.text
        yield Fact("mark phases by hand", str(by_hand), "the framework is hooked", not by_hand)


def _choice(screen: Screen) -> Iterator[Fact]:
    """The headline is about the first card, unless the run died."""
    findings = screen.document["findings"]
    tops = [finding for finding in findings if finding["severity"] != "info"]
    if screen.case.truth.state == "finished":
        clean = "no problem found" in screen.headline.lower()
        yield Fact("no problem found", str(clean), f"{len(tops)} findings", clean <= (not tops))
    if costliest := screen.case.truth.costliest:
        first = screen.document["findings"][0]["id"] if screen.document["findings"] else ""
        yield Fact("costs most", first, " or ".join(sorted(costliest)), first in costliest)
    wrong = screen.case.truth.faults or screen.case.truth.state in ("failed", "hung")
    if wrong:
        clean = "no problem found" in screen.flat.lower()
        yield Fact("no problem found", str(clean), "something is wrong", not clean)


def _memory(screen: Screen) -> Iterator[Fact]:
    """A prediction that is far off is not printed as if it held, nor built on."""
    shown = re.search(r"([\d.]+) ([KMG]i)?B (?:more|above)[^.;]*", screen.flat)
    told = re.search(
        r"([\d.]+) ([KMG]i)?B (?:predicted|foretold)|predicted:? ([\d.]+) ([KMG]i)?B", screen.flat
    )
    if shown is None or told is None:
        return
    measured, predicted = _bytes(shown[1], shown[2]), _bytes(told[1] or told[3], told[2] or told[4])
    far_off = not measured / 2 <= predicted <= measured * 2
    admitted = re.search(r"prediction is wrong|not modeled|outside", screen.flat) is not None
    yield Fact("memory", told[0], shown[0], admitted or not far_off)


def _bytes(number: str, unit: str | None) -> float:
    return float(number) * {None: 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}[unit]


def _counts(screen: Screen) -> Iterator[Fact]:
    parts = ("findings", "passed", "not_run", "not_applicable")
    total = sum(len(screen.document[part]) for part in parts)
    yield Fact("checks", str(total), str(RULES), total == RULES)
