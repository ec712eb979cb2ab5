"""`python -m tests.stock_scripts DIR...`: checks all launches of frameworks' repositories.

Each DIR is a checkout of a repository. Shell scripts, notebooks and pages are read, none is run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.pages import put_section
from tests.stock_scripts.judge import Answer, ask
from tests.stock_scripts.scripts import SUPPORTED, scripts_in


def main() -> int:
    """0; 1 where a script crashes the reader, or gets another framework's advice."""
    parser = argparse.ArgumentParser(prog="python -m tests.stock_scripts", description=__doc__)
    add = parser.add_argument
    add("folders", nargs="+", type=Path, metavar="DIR", help="checkouts of repositories")
    add("--write", type=Path, metavar="PAGE", help="write the table there")
    add("--json", type=Path, metavar="FILE", help="write every answer there")
    arguments = parser.parse_args()
    answers = [ask(script) for folder in arguments.folders for script in scripts_in(folder)]
    page = section(answers)
    sys.stdout.write(page + "\n")
    if arguments.write:
        put_section(arguments.write, "stock scripts", page)
    if arguments.json:
        arguments.json.write_text(json.dumps([_plain(answer) for answer in answers], indent=1))
    return int(any(answer.state == "crashed" or answer.wrong for answer in answers))


def section(answers: Sequence[Answer]) -> str:
    """Markdown: a row per repository, and each script that got a no."""
    head = (
        "repository", "launches looked at", "start GRPO with a supported framework", "of them read",
        "of them refused", "other GRPO trainings", "no", "advice of another framework", "crashes",
    )  # fmt: skip
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    names = dict.fromkeys(answer.script.repository for answer in answers)
    rows += [_row(name, [a for a in answers if a.script.repository == name]) for name in names]
    rows.append(_row(f"all {len(names)} repositories", answers))
    noes = [_no(answer) for answer in answers if answer.said_no]
    refused = [
        f"- {a.script.repository} `{a.script.name}`: {a.headline[:200]}"
        for a in answers
        if a.state != "read" and a.starts in SUPPORTED
    ]
    parts = ["# Launch scripts of the frameworks' own repositories", _HOW, "\n".join(rows)]
    for title, lines in (("Each no:", noes), ("Each GRPO launch that was refused:", refused)):
        parts += [title, "\n".join(lines)] if lines else []
    return "\n\n".join(parts)


_HOW = (
    "Written by `python -m tests.stock_scripts DIR... --write benchmarks/results/accuracy.md`, "
    "where each DIR is a checkout of a repository. Looked at are its shell scripts, the shell "
    "blocks of its Markdown pages, the shell cells of its notebooks and the examples in Python "
    "that call GRPOTrainer. Each is read and checked for eight H100 of 80 GB, "
    "or as many as it asks for. Whether it starts GRPO, and with what, is decided by its words and "
    "not by the reader that is measured. First answers, before anything was corrected for them: on "
    "ten repositories of users (TinyZero, Visual-RFT, Search-R1, RAGEN, EasyR1, simpleRL-reason, "
    "open-r1, VLM-R1, rllm, Video-R1) 31 no of 504 launches, all false (19 for a copy of verl 0.1, "
    "6 for a trainer class of the script's own, 6 for servers on other hosts); on 13 more (from "
    "BytedTsinghua-SIA/DAPO to willccbb/verifiers) 5 no of 856, 4 of them false; on 14 more (from "
    "Agent-RL/ReCall to microsoft/agent-lightning) 28 no of 1871, 20 of them false (12 for copies "
    "of verl in a subfolder, whose versions were missing); on 13 more (from FlagOpen/FlagScale to "
    "sail-sg/oat) 3 no of 728, all true; on verl's own after all of its scripts were rewritten "
    "(verl-project/verl) 14 no of 344, 2 of them false (experts that copies of an engine share, "
    "VeOmni's offloading) and 1 for a wrong reason; on all 62 once more 67 no, 7 of them false "
    "(runs of verl that only validate). The four that are refused start their launch with an "
    "argument."
)


# Why a no is true: what was looked up, tried or added up, by words of the script's name or the no.
_WHY = {
    "Hydra refuses": "Hydra 1.3.2 with verl's own configuration refuses the same overrides",
    "Hydra takes a new key": "the repository's own configuration has no such key",
    "needs --vllm_mode": "ms-swift raises that vllm_mode is required when use_vllm is true",
    "pass --": "the page shows some of the options alone, and ms-swift needs these",
    "the server needs": "CUDA_VISIBLE_DEVICES has one GPU, the engine asks for two",
    "sglang may use": "685 GB of FP8 weights do not fit into eight H100",
    "inference_engines.md": "0.99 of the GPU, and the context beside it",
    "begins a command": "a comment, after a backslash or between lines, ends the command in bash",
    "rollout.name is not set": "true of verl since 0.6; the page is of an older copy",
    "micro batches hold": "verl asserts that they hold the longest row (rearrange_micro_batches)",
    "no micro batch": "arguments of the script were to give it",
    "peft_integration": "TRL 1.16 raises the same for this command, which starts one process",
    "One process": "the page starts one process and says nothing of GPUs; eight were given",
    **dict.fromkeys(
        ("vl_7b_fsdp", "vl-7b_lora"),
        "the engine keeps 47.5 GiB, and verl gathers 31 GiB of float32 weights to find "
        "the adapters (fsdp_utils.collect_lora_params)",
    ),
    **dict.fromkeys(
        ("gsm8k_megatron", "ppo_trainer/run_qwen3_8b_megatron", "grpo_megatron"),
        "nothing is offloaded: the engine, and what is trained with gradients and moments",
    ),
    "ARNOLD_WORKER_NUM": "its value is TO_BE_FILLED, which its reader has to fill",
    "in the sync phase": "by ms-swift 4.6's source: without --move_model_batches all weights are "
    "gathered on each GPU at once (rollout_mixin.split_batches)",
    "copy of the experts": "Megatron raises that the ranks are not divisible by these "
    "(parallel_state.py), and verl leaves expert tensor parallelism to it",
    "30b_a3b_megatron": "18 bytes of 3.7e9 parameters are 67 GiB of each GPU before any token",
    "dppo": "18 bytes of 3.7e9 parameters are 67 GiB of each GPU before any token",
    "32b_megatron": "18 bytes of 4.1e9 parameters are 69 GiB on each GPU, and 32768 tokens without "
    "recomputation take more than is left of 80 GB; verl refuses an option of it anyway",
    "7b_megatron": "nothing is offloaded: 47.5 GiB of the engine, 28.8 of the trainer and 3.5 of "
    "the reference are more than 79.1",
    "8b_megatron": "nothing is offloaded: the engine, the trainer and the reference together",
    "vl_30b_a3b_fsdp": "nothing is offloaded: 47.5 GiB of the engine and 43.4 of the trainer",
    "colocate_multi_node": "the engine keeps its half of the GPU (no --sleep_level): with two "
    "copies of the weights and the optimizer's state that is 80.3 GiB",
    "hybrid_engine": "true of a row of 74240 tokens: 52 GiB of logits in float32",
    "stage1.sh": "true of an answer of 29000 tokens alone, which this data hardly has",
    "does not fit": "an estimate; nobody has measured this script",
    "cannot hold its weights": "an estimate of the weights of each GPU",
}


def _no(answer: Answer) -> str:
    said = f"{answer.script.name} {answer.headline}"
    why = next((why for words, why in _WHY.items() if words in said), "not looked at")
    return f"- {answer.script.repository} `{answer.script.name}`: {answer.headline} ({why})"


def _row(name: str, answers: Sequence[Answer]) -> str:
    ours = [answer for answer in answers if answer.starts in SUPPORTED]
    cells = (
        name, len(answers), len(ours),
        sum(answer.state == "read" for answer in ours),
        sum(answer.state == "refused" for answer in ours),
        sum(bool(answer.starts) for answer in answers) - len(ours),
        sum(answer.said_no for answer in answers),
        sum(bool(answer.wrong) for answer in answers),
        sum(answer.state == "crashed" for answer in answers),
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def _plain(answer: Answer) -> dict[str, object]:
    return {
        "repository": answer.script.repository, "name": answer.script.name,
        "starts": answer.starts, "state": answer.state, "framework": answer.framework,
        "headline": answer.headline, "no": answer.said_no, "wrong": answer.wrong,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
