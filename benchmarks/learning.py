"""Whether the demo learns: the bundled trainer with its default settings, one run per seed.

Prints the mean reward of the first and of the last steps and draws the curves. Ends with 1 unless
every seed gets over 80 % of the largest reward.

    python -m benchmarks.learning [--seeds 1 2 3] [--svg docs/images/learning.svg] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.record.rundir import RUN_DIR_VARIABLE

LARGEST_REWARD = 2.0  # accuracy and arithmetic, each at most 1
REQUIRED_SHARE = 0.8
_ENDS = 5  # steps that are averaged at each end of a curve
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 720, 320, 56, 28, 44
_COLOURS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#495057")


@dataclass(frozen=True)
class Curve:
    """The mean reward of each step of one run, and the seconds that the job took."""

    seed: int
    rewards: list[float]
    seconds: float

    @property
    def start(self) -> float:
        """Mean of the first steps."""
        return sum(self.rewards[:_ENDS]) / _ENDS

    @property
    def end(self) -> float:
        """Mean of the last steps."""
        return sum(self.rewards[-_ENDS:]) / _ENDS

    @property
    def share(self) -> float:
        """The end as a share of the largest reward."""
        return self.end / LARGEST_REWARD


def train(seed: int, folder: Path, flags: list[str]) -> Curve:
    """Runs the demo with one seed, on two gloo ranks."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2",
        "-m", "grpo_doctor_trainer", "--seed", str(seed), "--logging_steps", "1",
        "--save_steps", "0", "--output_dir", str(folder / "out"), *flags,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", RUN_DIR_VARIABLE: str(folder)}
    began = time.monotonic()
    job = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if job.returncode:
        raise SystemExit(f"the trainer ended with {job.returncode}\n{job.stderr[-3000:]}")
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rewards = [json.loads(line)["metrics"]["reward"] for line in lines]
    return Curve(seed, rewards, time.monotonic() - began)


def draw(curves: list[Curve]) -> str:
    """Draws the curves as an SVG: reward over steps, and the share that is wanted."""
    right, bottom = _WIDTH - 150, _HEIGHT - _BOTTOM
    steps = max(len(curve.rewards) for curve in curves)

    def across(step: int) -> float:
        return _LEFT + (right - _LEFT) * (step - 1) / max(1, steps - 1)

    def down(reward: float) -> float:
        return bottom - (bottom - _TOP) * reward / LARGEST_REWARD

    elements = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'font-family="system-ui, sans-serif" font-size="12" fill="#343a40">'
        ),
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
    ]
    for tenths in range(0, 21, 5):
        level = down(tenths / 10)
        elements += [
            f'<path d="M{_LEFT} {level:.1f}H{right}" stroke="#dee2e6"/>',
            f'<text x="{_LEFT - 8}" y="{level + 4:.1f}" text-anchor="end">{tenths / 10}</text>',
        ]
    goal_y = down(REQUIRED_SHARE * LARGEST_REWARD)
    elements += [
        f'<path d="M{_LEFT} {goal_y:.1f}H{right}" stroke="#868e96" stroke-dasharray="5 4"/>',
        f'<text x="{right + 8}" y="{goal_y + 4:.1f}">{REQUIRED_SHARE:.0%} of the largest</text>',
        f'<text x="{_LEFT}" y="16">mean reward of a step</text>',
        f'<text x="{right}" y="{_HEIGHT - 10}" text-anchor="end">optimizer step</text>',
    ]
    for step in (1, *range(20, steps + 1, 20)):
        elements.append(
            f'<text x="{across(step):.1f}" y="{bottom + 18}" text-anchor="middle">{step}</text>'
        )
    for index, curve in enumerate(curves):
        colour = _COLOURS[index % len(_COLOURS)]
        points = " ".join(
            f"{across(step):.1f},{down(reward):.1f}"
            for step, reward in enumerate(curve.rewards, start=1)
        )
        label = _TOP + 90 + 18 * index
        elements += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>',
            (
                f'<text x="{right + 8}" y="{label}" fill="{colour}">seed {curve.seed}: '
                f"{curve.start:.2f} to {curve.end:.2f}</text>"
            ),
        ]
    return "\n".join([*elements, "</svg>"]) + "\n"


def main() -> int:
    """Runs the seeds in turn."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--svg", type=Path, default=Path("docs/images/learning.svg"))
    parser.add_argument("--json", action="store_true")
    options, flags = parser.parse_known_args()  # the rest goes to the trainer
    options.svg.parent.mkdir(parents=True, exist_ok=True)
    curves = []
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            curves.append(train(seed, Path(folder), flags))
        options.svg.write_text(draw(curves), encoding="utf-8")
        last = curves[-1]
        if not options.json:
            print(
                f"seed {seed}: reward {last.start:.3f} -> {last.end:.3f}, "
                f"{last.share:.0%} of {LARGEST_REWARD:g}, {len(last.rewards)} steps, "
                f"{last.seconds:.0f} s",
                flush=True,
            )
    if options.json:
        rows = [
            {"seed": c.seed, "start": c.start, "end": c.end, "share": c.share, "rewards": c.rewards}
            for c in curves
        ]
        print(json.dumps(rows, indent=1))
    return int(any(curve.share <= REQUIRED_SHARE for curve in curves))


if __name__ == "__main__":
    sys.exit(main())
