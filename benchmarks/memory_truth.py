"""The memory ledger against real code that ran without its memory, term by term.

`python -m benchmarks.memory_truth --points 300` draws that many steps of training and runs those
that are not in the data yet (seconds each; with `.[dev]` and PEFT). `--write` compares what is
there and writes both documents, `--worst N` shows where each term is furthest off.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.memory_accuracy import PAGE, cell
from grpo_doctor.memory import GIB, Component, ModelShape, Setup, ledger_of, model_shape
from grpo_doctor.memory.facts import Calibration, calibration
from tests.pages import put_section

DATA = Path(__file__).with_name("memory_truth.csv")
FAMILIES = {
    "Qwen/Qwen3-30B": "qwen3_moe", "Qwen/Qwen3": "qwen3", "Qwen/Qwen2.5": "qwen2",
    "meta-llama": "llama", "mistralai": "mistral", "google/gemma-2": "gemma2",
    "google/gemma-3": "gemma3_text",
}  # fmt: skip
MODELS = (
    "Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-1.5B", "Qwen/Qwen2.5-3B", "Qwen/Qwen2.5-7B",
    "Qwen/Qwen2.5-14B", "Qwen/Qwen2.5-32B", "Qwen/Qwen2.5-72B", "Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B",
    "Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.1-8B", "mistralai/Mistral-7B-v0.1",
    "google/gemma-2-9b", "google/gemma-3-1b-it",
)  # fmt: skip
HELD_OUT_FAMILY, HELD_OUT_TARGETS = "qwen3", "attention"
TINY = "tiny"
_LOSSES = {
    "cross entropy": "float32", "rows": "upcast", "rows in 16 bits": "bfloat16", "trl": "triton",
    "bundled": "blocks", "verl": "inplace", "verl, entropy": "entropy", "none": "none",
    "values": "none",
}  # fmt: skip
_KERNELS = {"fused": "flash", "masked": "fused", "eager": "eager"}
STATES = ("trained weights", "frozen weights", "gradients", "optimizer states")
_PASSING = ("kept for backward",)
_OURS = {
    "optimizer moments": "optimizer states",
    "checkpoints": "kept for backward",
    "activations": "kept for backward",
    "16-bit weights": "kept for backward",
}
_FIXED = ("CUDA context", "NCCL buffers", "workspaces")
Pair = tuple[int, int]
"""Bytes by the ledger, and in truth."""


@dataclass(frozen=True, slots=True)
class Point:
    """A training step to run; a model of full width, with fewer layers."""

    model: str
    layers: int = 3
    method: str = "full"
    targets: str = "all-linear"
    lora_rank: int = 16
    optimizer: str = "adamw_foreach"
    trained_bytes: int = 2
    ranks: int = 1
    micro_batch: int = 1
    prompt: int = 256
    completion: int = 768
    recompute: str = "full"
    attention: str = "fused"
    loss: str = "rows"
    wraps: str = "layers"
    """What FSDP2 wraps beside the model itself: its layers, or the tables too, as verl does."""

    @property
    def shape(self) -> ModelShape:
        """The model's sizes."""
        if self.model == TINY:
            return ModelShape(TINY, 64, self.layers, 4, 2, 16, 128, 512, True, "", qkv_bias=True)
        shape = model_shape(self.model)
        experts = replace(shape.experts, layers=self.layers) if shape.experts else None
        return replace(shape, layers=self.layers, experts=experts, head=self.loss != "values")

    @property
    def family(self) -> str:
        """The architecture, as transformers calls it."""
        return next((f for name, f in FAMILIES.items() if self.model.startswith(name)), "qwen2")

    @property
    def held_out(self) -> str:
        """What of it was kept from those who wrote the formulas."""
        if self.family == HELD_OUT_FAMILY:
            return "family"
        return "method" if (self.method, self.targets) == ("lora", HELD_OUT_TARGETS) else ""

    @property
    def setup(self) -> Setup:
        """The same step in the ledger's words."""
        grpo, verl = self.loss != "cross entropy", self.loss in ("verl", "verl, entropy", "values")
        tokens = self.micro_batch * (self.prompt + self.completion) if verl else None
        settings: dict[str, Any] = {
            "ranks": self.ranks, "engine": "fsdp" if self.ranks > 1 else "torch",
            "framework": "verl" if verl else "bundled" if self.loss == "bundled" else "trl",
            "padding_free": verl, "scores_prompts": verl,
            "train_tokens": tokens, "logprob_tokens": tokens,
            "method": self.method, "lora_rank": self.lora_rank, "lora_targets": self.targets,
            "trained_dtype_bytes": self.trained_bytes, "optimizer": self.optimizer,
            "micro_batch": self.micro_batch, "packing": not grpo,
            "prompt_tokens": self.prompt if grpo else self.prompt + self.completion,
            "completion_tokens": self.completion if grpo else 0,
            "recompute": self.recompute, "loss": _LOSSES[self.loss],
            "attention": _KERNELS[self.attention], "fused_experts": True,
        }  # fmt: skip
        return Setup(self.shape, 80 * GIB, wraps_tables=self.wraps == "tables", **settings)


def drawn(count: int, seed: int) -> Iterator[Point]:
    """Points over everything that is varied, small and large models alike."""
    choose = random.Random(seed)
    for number in range(count):
        method = choose.choice(("full", "full", "lora"))
        ranks = choose.choice((1, 1, 1, 2, 8, 64) if method == "full" else (1, 1, 8))
        losses = ["rows", "bundled", "cross entropy", "verl", "verl, entropy"]
        losses += ["rows in 16 bits", "trl", "none"] if ranks == 1 else []
        loss = choose.choice(losses)
        prompt, completion = choose.choice(((128, 256), (256, 768), (512, 1536), (1024, 3072)))
        kernels = ("fused", "masked", "eager") if prompt < 512 else ("fused", "masked")
        lora = choose.choice(("all-linear", "all-linear", "attention")) if method == "lora" else ""
        bits = choose.choice((2, 4))
        yield Point(
            MODELS[number % len(MODELS)], choose.choice((2, 3, 4)), method, lora or "all-linear",
            choose.choice((8, 16, 64)) if lora else 16, choose.choice(("adamw", "adamw_foreach")),
            (4 if ranks > 1 else 2) if lora else bits, ranks, choose.choice((1, 2, 4)),
            prompt, completion, choose.choice(("full", "full", "none")),
            "fused" if "verl" in loss else choose.choice(kernels), loss,
            choose.choice(("layers", "tables")) if ranks > 1 else "layers",
        )  # fmt: skip


def critics() -> Iterator[Point]:
    """verl's critics: rows packed, one value a token."""
    for model in MODELS[::2]:
        for ranks, recompute in product((1, 8), ("full", "none")):
            for prompt, wraps in ((256, "layers"), (1024, "tables")):
                if ranks > 1 or wraps == "layers":
                    yield Point(
                        model, 3, optimizer="adamw", trained_bytes=4, ranks=ranks, micro_batch=2,
                        prompt=prompt, recompute=recompute, loss="values", wraps=wraps,
                    )  # fmt: skip


def stored(path: Path = DATA) -> Iterator[tuple[Point, dict[str, int]]]:
    """The points that were run, each with its terms in bytes."""
    whole = {field.name: field.type == "int" for field in fields(Point)}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            settings: dict[str, Any] = {
                name: int(row[name]) if number else row[name] for name, number in whole.items()
            }
            yield Point(**settings), {n: int(text) for n, text in row.items() if n not in settings}


def run(points: Iterable[Point], model: str) -> None:
    """Runs points of a model that are not stored yet, and appends each."""
    from benchmarks.memory_fake import measure  # noqa: PLC0415 - torch takes seconds

    done = {point for point, _ in stored()} if DATA.exists() else set()
    for point in points:
        if point in done or model not in point.model:
            continue
        try:
            row = {**asdict(point), **measure(point)}
        except RuntimeError as error:  # fake tensors lack some kernels' rules
            print("not run:", point, str(error).splitlines()[0], flush=True)
            continue
        with DATA.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, row, lineterminator="\n")
            if not file.tell():
                writer.writeheader()
            writer.writerow(row)
        print(len(done), point.model, f"{row['peak'] / GIB:.1f} GiB", flush=True)
        done.add(point)


def without_allocator() -> Calibration:
    """Fake tensors have no allocator that wastes something."""
    names = [field.name for field in fields(Calibration) if field.name.startswith("fragmentation")]
    return replace(calibration(), **dict.fromkeys(names, 1.0))


def phases_of(point: Point) -> dict[str, list[Component]]:
    """The ledger's entries by phase, without what no tensor takes."""
    phases = ledger_of(point.setup, without_allocator()).pools[0].phases
    return {p.name: [e for e in p.components if e.name not in _FIXED] for p in phases}


def compared(point: Point, truth: dict[str, int]) -> dict[str, Pair]:
    """Each term and phase that is at least a hundredth of the peak.

    *At work* is what comes and goes at the worst moment beside what is kept for the backward pass;
    it is named after that moment. So a term of the ledger that has no name here counts there.
    """
    phases = phases_of(point)
    states = sum(truth[name] for name in STATES)
    moments = {
        "logits and loss": truth["logits and loss"],
        "a layer": truth["tied table"] + truth["one layer"],
        "tables": truth["tables"] - truth["kept"],
    }
    moment = max(moments, key=lambda name: moments[name])
    if point.ranks > 1:
        moments["FSDP2's groups too"] = truth["peak"] - states - truth["kept"]
        moment = "FSDP2's groups too"
    true = {
        **{name: truth[name] for name in (*STATES, "optimizer scratch")},
        "kept for backward": truth["kept"],
        f"at work: {moment}": moments[moment],
    }
    ours: dict[str, int] = defaultdict(int)
    for phase, left in (("train", f"at work: {moment}"), ("optimizer", "optimizer scratch")):
        for entry in phases[phase]:
            name = _OURS.get(entry.name, entry.name)
            if phase == "train" or name not in {*STATES, *_PASSING}:
                ours[name if name in {*STATES, *_PASSING} else left] += entry.bytes
    if "logprob" in phases and point.ranks == 1:
        name = "log-probs without gradient"
        true[name] = truth["logprob"]
        ours[name] = sum(
            e.bytes for e in phases["logprob"] if _OURS.get(e.name, e.name) not in STATES
        )
    at_rest = (*STATES, "optimizer scratch")
    passing = (*STATES, *_PASSING, f"at work: {moment}")
    for phase, names in (("train", passing), ("optimizer", at_rest)):
        true[f"phase: {phase}"] = sum(true[name] for name in names)
        ours[f"phase: {phase}"] = sum(ours[name] for name in names)
    least = truth["peak"] / 100
    return {
        name: (ours[name], size)
        for name, size in true.items()
        if size > 0 and max(size, ours[name]) >= least
    }


def errors() -> dict[str, list[tuple[float, Point, Pair]]]:
    """By term, how far the ledger is off at each point."""
    found = defaultdict(list)
    for point, truth in stored():
        for name, pair in compared(point, truth).items():
            found[name].append((pair[0] / pair[1] - 1, point, pair))
    return dict(sorted(found.items(), key=lambda item: (item[0].startswith("phase"), item[0])))


def accuracy_table() -> str:
    """How far each term is off, and apart for what was held out."""
    lines = [
        "| term | points | known | held-out family | held-out method |",
        "|---|---|---|---|---|",
    ]
    for name, found in errors().items():
        cells = (
            cell((e for e, p, _ in found if p.held_out == kind), 1)
            for kind in ("", "family", "method")
        )
        lines.append(f"| {name} | {len(found)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def terms_list() -> str:
    """Each entry of some ledgers with its formula and source, and how far its term is off."""
    seven = "Qwen/Qwen2.5-7B"
    examples = (
        Point(seven, 28, micro_batch=4, ranks=8, trained_bytes=4),
        Point(seven, 28, micro_batch=4, recompute="none"),
        Point(seven, 28, micro_batch=4, method="lora", loss="none"),
    )
    terms = {"logprob": "log-probs without gradient", "optimizer": "optimizer scratch"}
    found = errors()
    rows: dict[str, str] = {}
    for name, entry in ((n, e) for p in examples for n, es in phases_of(p).items() for e in es):
        if entry.bytes and name in {"train", *terms}:
            term = _OURS.get(entry.name, entry.name)
            if term not in {*STATES, *_PASSING}:
                term = terms.get(name, "at work")
            same = [off for key, offs in found.items() if key.startswith(term) for off, *_ in offs]
            rows.setdefault(
                entry.name,
                f"- **{entry.name}**, {cell(same, 1)}: {entry.formula} ({entry.source})",
            )
    return "\n".join(rows.values())


def main() -> int:
    """Runs points, compares, writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=0, help="draw so many, run the new ones")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--model", default="", help="only of models with this in their name")
    parser.add_argument("--write", action="store_true", help="the tables of both pages")
    parser.add_argument("--worst", type=int, default=0, help="the N points furthest off, by term")
    parser.add_argument("--critics", action="store_true", help="run those of PPO's critics")
    options = parser.parse_args()
    run(critics() if options.critics else drawn(options.points, options.seed), options.model)
    print(accuracy_table())
    for name, found in errors().items() if options.worst else ():
        known = [entry for entry in found if not entry[1].held_out]
        print(f"\n{name}")
        for off, point, (ours, true) in sorted(known, key=lambda e: -abs(e[0]))[: options.worst]:
            print(f"  {100 * off:+.0f}%: ledger {ours:,} B, truth {true:,} B, {point}")
    if options.write:
        put_section(PAGE, "memory truth", accuracy_table())
        put_section(PAGE.parents[2] / "docs" / "memory.md", "terms", terms_list())
    return 0


if __name__ == "__main__":
    sys.exit(main())
