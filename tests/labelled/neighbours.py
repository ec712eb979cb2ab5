"""What rldoctor 0.2.0 and rlprobe 0.1.0 say of a run, in the ids of our rules.

Both read metrics after the fact, under TRL's names, which are those of the bundled trainer. They
are installed in environments of their own, outside of the repository::

    python -m tests.labelled.neighbours --install        # into $GRPO_DOCTOR_NEIGHBOURS
    python -m tests.labelled.neighbours RUN_DIR [...]    # what they say of recorded runs

A finding of theirs counts from "warning" up: what they call info is a note in their own words.
Where one of their names means several of ours, it counts as any of them. What we have no rule for,
such as a plateau, is kept under their own name, so that a false alarm on a healthy run still counts
as one.

traceml-ai 0.5.0 is not asked: it reads no log but runs the job itself (`traceml run job.py --args`,
no launcher), and its verdicts are of time: input-bound, residual-heavy, compute-bound, straggler.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo_doctor.trace.merge import read_metrics

HOME = Path(
    os.environ.get("GRPO_DOCTOR_NEIGHBOURS", f"{tempfile.gettempdir()}/grpo-doctor-neighbours")
)
PACKAGES = {"rldoctor": "rldoctor==0.2.0", "rlprobe": "rlprobe==0.1.0"}
LIMIT_S = 120.0

_GROUPS = frozenset({"GD050", "GD059"})  # equal rewards, be it in groups or everywhere
# Detectors that have one meaning; those with several are read in `_meaning`.
RLDOCTOR: dict[str, frozenset[str]] = {
    "advantage_collapse": _GROUPS,
    "entropy_collapse": frozenset({"GD052"}),
    "kl_drift": frozenset({"GD055"}),
    "reward_composition": frozenset({"GD057"}),
}
RLPROBE: dict[str, frozenset[str]] = {
    "KL_BLOWUP": frozenset({"GD055"}),
    "REF_POLICY_DRIFT_ASYMMETRY": frozenset({"GD055"}),
    "ENTROPY_COLLAPSE": frozenset({"GD052"}),
    "REWARD_HACK_LENGTH": frozenset({"GD056"}),
    "FORMAT_GAMING": frozenset({"GD057"}),
    "CLIP_SATURATION": frozenset({"GD053"}),
    "DEGENERATE_GROUPS": _GROUPS,
    "ADV_COLLAPSE": _GROUPS,
    "REWARD_STD_DEATH": _GROUPS,
    "GRAD_PATHOLOGY": frozenset({"GD062", "GD064"}),
    "TRUNCATION_STARVE": frozenset({"GD051"}),
}
# The rules of ours that each tool has anything like: of others it can't be asked.
LOOKS_FOR: dict[str, frozenset[str]] = {
    "rldoctor": frozenset().union(
        *RLDOCTOR.values(),
        {"GD051", "GD053", "GD054", "GD056", "GD058", "GD062", "GD063", "GD064"},
    ),
    # A reward that is NaN is a matter of learning too: neither has a name for it.
    "rlprobe": frozenset().union(*RLPROBE.values(), {"GD058"}),
}
_RLPROBE_NAMES = {
    "reward": "reward_mean",
    "reward_std": "reward_std",
    "frac_reward_zero_std": "zero_variance_group_frac",
    "kl": "kl_mean",
    "entropy": "entropy_mean",
    "clip_ratio/region_mean": "clip_fraction",
    "loss": "loss",
    "learning_rate": "lr",
    "grad_norm": "grad_norm",
    "completions/mean_length": "completion_len_mean",
    "completions/max_length": "completion_len_max",
    "completions/clipped_ratio": "truncation_rate",
    "step_time": "step_time_s",
}
_RECORD = """
import json, sys
from rlprobe.recorder.core import Recorder
rows = json.load(sys.stdin)
recorder = Recorder(sys.argv[1], algorithm="grpo", capture_env=False, install_handlers=False)
for row in rows:
    recorder.log_step(row.pop("step"), **row)
recorder.close()
"""
_COUNTS = {"warn", "warning", "critical"}


class NeighbourError(RuntimeError):
    """A tool is not installed, or did not answer."""


def ask(run_dir: Path) -> dict[str, frozenset[str]]:
    """Rule ids by tool, for a run directory with `metrics.jsonl`.

    Raises:
        NeighbourError: a tool is not there or failed.
    """
    rows = rows_of(run_dir)
    with tempfile.TemporaryDirectory(prefix="neighbours-") as folder:
        return {
            "rldoctor": rldoctor(rows, Path(folder)),
            "rlprobe": rlprobe(rows, Path(folder) / "rlprobe"),
        }


def rows_of(run_dir: Path) -> list[dict[str, Any]]:
    """What TRL would have logged: a row per step, NaN as such."""
    metrics, _ = read_metrics(run_dir / "metrics.jsonl")
    rows: list[dict[str, Any]] = [{"step": int(step)} for step in metrics.steps]
    for key, values in metrics.values.items():
        absent = metrics.absent.get(key)
        for i, value in enumerate(values.tolist()):
            if absent is None or not absent[i]:
                rows[i][key] = value
    return rows


def rldoctor(rows: list[dict[str, Any]], folder: Path) -> frozenset[str]:
    """Diagnoses the rows as a `trainer_state.json`."""
    state = folder / "trainer_state.json"
    last = rows[-1]["step"] if rows else 0
    state.write_text(json.dumps({"global_step": last, "max_steps": last, "log_history": rows}))
    output = _run([str(_bin("rldoctor") / "rldoctor"), "diagnose", str(state), "-f", "json"])
    rules: set[str] = set()
    for entry in json.loads(output)["findings"]:
        if str(entry["severity"]).lower() in _COUNTS:
            rules |= _meaning(entry)
    return frozenset(rules)


def _meaning(entry: Mapping[str, Any]) -> frozenset[str]:
    """Ids of ours. Some detectors look for two things at once: their numbers say which it was."""
    name, numbers = str(entry["detector"]), entry.get("metrics") or {}
    words = str(entry["summary"]).lower()
    asymmetry = numbers.get("clip_asymmetry", 1)
    shown = {
        # The thresholds are the tool's own, of its mildest grade.
        "length_pathology": {
            "GD051": numbers.get("truncation_rate", 0) >= 0.05,
            "GD056": "grow" in words or "grew" in words,
        },
        "clip_saturation": {
            "GD053": numbers.get("clipfrac", 0) >= 0.10,
            "GD054": asymmetry >= 3 or 0 < asymmetry <= 1 / 3,
        },
        "gradient_pathology": {
            "GD062": bool(numbers.get("n_spikes")),
            "GD064": bool(numbers.get("n_nonfinite")),
            "GD059": numbers.get("zero_grad_step_frac", 0) >= 0.20,
        },
        "plateau": {"GD063": "declining" in words},
    }.get(name, {})
    rules = RLDOCTOR.get(name, frozenset()) | {rule for rule, is_so in shown.items() if is_so}
    return frozenset(rules or {f"rldoctor:{name}"})


def rlprobe(rows: list[dict[str, Any]], folder: Path) -> frozenset[str]:
    """Records the rows as its own callback for TRL does (NaN left out), and diagnoses that."""
    records = json.dumps([_rlprobe_row(row) for row in rows])
    python = str(_bin("rlprobe") / "python")
    _run([python, "-c", _RECORD, str(folder)], records)
    output = _run([str(_bin("rlprobe") / "rlprobe"), "doctor", str(folder), "--json"])
    answer = json.loads(output)
    entries = answer["findings"] if isinstance(answer, dict) else answer
    rules: set[str] = set()
    for entry in entries:
        if str(entry["severity"]).lower() in _COUNTS:
            name = entry["signature_id"]
            rules |= RLPROBE.get(name, frozenset({f"rlprobe:{name}"}))
    return frozenset(rules)


def _rlprobe_row(row: Mapping[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {"step": row["step"]}
    parts: dict[str, float] = {}
    for key, value in row.items():
        if not isinstance(value, float) or math.isnan(value):
            continue
        if key in _RLPROBE_NAMES:
            record[_RLPROBE_NAMES[key]] = value
        elif key.startswith("rewards/") and key.endswith("/mean"):
            parts[key.removeprefix("rewards/").removesuffix("/mean")] = value
    return {**record, "reward_components": parts} if parts else record


def _bin(tool: str) -> Path:
    folder = HOME / tool / "bin"
    if not folder.is_dir():
        raise NeighbourError(
            f"{tool} is not in {HOME}: run `python -m tests.labelled.neighbours --install`, or "
            "set GRPO_DOCTOR_NEIGHBOURS to the folder that has its environment"
        )
    return folder


def _run(command: list[str], text: str | None = None) -> str:
    """Its output. A tool's own exit codes say how grave its findings are, and are no failure."""
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if not done.stdout.strip() and done.returncode:
        raise NeighbourError(f"{command[0]} failed: {done.stderr.strip()[-400:]}")
    return done.stdout


def install() -> None:
    """Makes an environment for each."""
    for tool, package in PACKAGES.items():
        venv.create(HOME / tool, with_pip=True)
        pip = str(HOME / tool / "bin" / "pip")
        subprocess.run([pip, "install", "-q", package], check=True)


def main() -> int:
    """Prints one line per run and tool."""
    parser = argparse.ArgumentParser(prog="python -m tests.labelled.neighbours")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("runs", nargs="*", type=Path)
    arguments = parser.parse_args()
    if arguments.install:
        install()
    for run in arguments.runs:
        for tool, rules in ask(run).items():
            sys.stdout.write(f"{run}: {tool}: {' '.join(sorted(rules)) or 'nothing'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
