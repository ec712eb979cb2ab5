"""Writes `docs/check.md` from the rules: `python -m grpo_doctor.launches.docs [FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from grpo_doctor.knobs.option_lists import FOLDER, option_list
from grpo_doctor.launches.rules import load
from grpo_doctor.markdown import wrapped

_TOP = """\
# Checking a launch

<!-- Made by `python -m grpo_doctor.launches.docs`; edit `grpo_doctor/launches/` instead. -->

`grpo-doctor check -- LAUNCH` predicts whether a launch fits in memory and can start, before you
start it: `grpo-doctor check --gpus 8xA100-80G -- swift rlhf --rlhf_type grpo ...`. The first line
is the verdict. Below it are the peak of each phase, the flags to change, and what is wrong. Last
come the assumptions about what the launch does not set.

Nothing is started, imported or fetched. Files that the launch names are read where they are.

## What it reads

- the bundled trainer's arguments: as `grpo-doctor run` takes them
- `swift rlhf`, `swift rollout`, `megatron rlhf`: flags; a YAML or JSON file; `NPROC_PER_NODE`,
  `NNODES`, `MAX_PIXELS`
- `trl grpo`, `trl vllm-serve`: flags; `--config`; accelerate's options and file
- a script under `accelerate launch`, `torchrun`, `deepspeed` or `python`: flags; literals and
  options of its `argparse` in `GRPOConfig(...)`, `LoraConfig(...)` ...
- `python -m verl.trainer.main_ppo`: overrides with `+`, `++` and `~`; `--config-path` with
  `--config-name`
- `python -m openrlhf.cli.train_ppo_ray`, also in `ray job submit`: flags, old and new
- `vllm serve`, `python -m sglang.launch_server`: flags
- a bash script: all of the above, with arrays, functions, branches, loops; `$(...)` is never run
- one argument with spaces: a command as text

Add more commands of the same run with `--with 'swift rollout ...'`. DeepSpeed's presets and
JSON files are read wherever they are named. YAML files need PyYAML, which training images have.

The GPUs are those of this host, or `--gpus 8xA100-80G`; for a GPU that is not in the list, give
its memory: `--gpus 8x80G`. The version of the framework is the one of `--version ms-swift=4.6.0`,
else the installed one, else the newest that accepts all the given options.

## What it answers

- `--json` prints the [document](schemas/check.json); `--format github` prints a line for each
  problem, with its line in the script; `--format sarif` does the same for code scanning.
- `--solve train.micro_batch` adds the largest value of a setting that still fits.
- `grpo-doctor run` prints the first line if the exit code would be 9, and starts the job anyway;
  `--no-check` skips it. After one recorded step `report` compares the estimate with what
  was measured: [memory.md](memory.md#after-one-recorded-step).

| first line | `verdict` | exit code | when |
|---|---|---|---|
| It probably fits | `fits` | 0 | the whole interval leaves 7% of the GPU memory free |
| It may fit, It may not fit | `tight` | 0 | the interval reaches above that |
| It probably does not fit | `oom` | 9 | the whole interval is above the GPU memory |
| No | `invalid` | 9 | the job ends at startup, or cannot do its work |
| Not modeled | `not-modelled` | 0 | another kind of training, framework or engine: no numbers |
| Unknown | `unknown` | 0 | a file that holds settings was not read, or no memory estimate |

The exit code is 2 for wrong usage, and 6 for `--fail-on SEVERITY`. No line has a percentage:
[how often the interval holds](memory.md) depends on the kind of launch.

Each rule and the memory model declare the frameworks and kinds of training that they know
(the second argument of `@rule`). The memory model knows GRPO and what differs from it only in the
loss: DAPO, GSPO, Dr. GRPO, REINFORCE++, RLOO of ms-swift, verl and OpenRLHF; and
PPO of verl and OpenRLHF with its critic. SFT, DPO, KTO, other PPO, GKD, TRL's RLOO and reward
models on the GPUs are not modeled.

## Options of each version

For an option that a version does not accept, `check` names its new name, the version that removed
it, or the most similar option. The lists are made from the packages themselves by
`python -m tests.wheels --options`:
"""
_RULES = """
## What is wrong with a launch

Each rule is a function in `grpo_doctor/launches/rules/`, in the file of its family.
"""


def page() -> str:
    """Return the whole page in Markdown."""
    rules = [f"**{rule.id} `{rule.slug}`**: {' '.join(rule.text.split())}\n" for rule in load()]
    return wrapped("\n".join([_TOP, *_lists(), _RULES, *rules]))


def _lists() -> Iterator[str]:
    for path in sorted(FOLDER.glob("*.txt")):
        listed = option_list(path.stem)
        assert listed is not None
        first, last = listed.read[0], listed.read[-1]
        versions = f"{first} to {last}" if first != last else first
        yield f"- `{path.stem}`: {len(listed.ranges)} options, {versions}"


def main(arguments: Sequence[str]) -> int:
    """Write the page."""
    Path(arguments[0] if arguments else "docs/check.md").write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
