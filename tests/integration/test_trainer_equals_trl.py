"""The loss, its gradients, advantages, log-probs and metrics are those of TRL 1.16's GRPOTrainer.

TRL's own methods run: `_generate_and_score_completions` on completions given by a `rollout_func`,
then `compute_loss` on what came out. Ours runs on the same model object, so with the same weights.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the trainer extra")
trl = pytest.importorskip("trl", reason="compares with TRL: pip install trl==1.16.0")
if trl.__version__ != "1.16.0":
    pytest.skip(f"compares with TRL 1.16.0, this is {trl.__version__}", allow_module_level=True)
pytest.importorskip("datasets")
pytest.importorskip("peft")

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402
from trl.trainer.utils import add_fused_lm_head, split_tensor_dict  # noqa: E402

from grpo_doctor_trainer.algorithm.logprobs import (  # noqa: E402
    completion_logits,
    logprobs_in_parts,
    token_logprobs,
)
from grpo_doctor_trainer.algorithm.loss import (  # noqa: E402
    group_advantages,
    grpo_loss,
    tokens_in_loss,
)
from grpo_doctor_trainer.config import TrainerConfig  # noqa: E402
from grpo_doctor_trainer.data.experience import Experience, TokenBatch, mask_after_end  # noqa: E402
from grpo_doctor_trainer.flags import parse  # noqa: E402
from grpo_doctor_trainer.model.load import load_model  # noqa: E402
from grpo_doctor_trainer.ranks import Ranks  # noqa: E402
from grpo_doctor_trainer.rewards.scoring import combine  # noqa: E402
from grpo_doctor_trainer.steplog import (  # noqa: E402
    completion_metrics,
    loss_metrics,
    reward_metrics,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.heavy,
    pytest.mark.filterwarnings("ignore:.*rollout_func.*:UserWarning"),
]
TOLERANCE = 1e-5
ALONE = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("cpu"), threads=1)
GROUP, LONGEST, TEMPERATURE = 4, 6, 0.9
PROMPTS = ["1+1", "a longer prompt: 3+4"]
LENGTHS = [6, 2, 5, 6, 1, 3, 6, 4]
ENDED = [False, True, True, True, True, True, False, True]
WEIGHTS = [1.0, 0.5]
SCORES: list[list[float | None]] = [
    [1.0, 0.2], [0.0, None], [0.5, 0.9], [None, 0.4],
    [0.3, 0.3], [None, None], [1.0, -2.0], [0.0, 0.7],
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One combination of what changes the loss; `off_policy`: the weights moved since sampling."""

    loss_type: str = "grpo"
    kl: bool = False
    off_policy: bool = False
    scale_rewards: str = "group"
    mask_truncated: bool = False
    epsilon_high: float | None = None
    correction: str | None = None
    share_prompts: bool = True

    @property
    def config(self) -> TrainerConfig:
        """Ours."""
        return TrainerConfig(
            num_generations=GROUP,
            max_completion_length=LONGEST,
            temperature=TEMPERATURE,
            loss_type=self.loss_type,
            beta=0.07 if self.kl else 0.0,
            epsilon=0.1,
            epsilon_high=self.epsilon_high,
            scale_rewards=self.scale_rewards,
            mask_truncated_completions=self.mask_truncated,
            rollout_importance_sampling_mode=self.correction,
            rollout_importance_sampling_threshold=1.3,
            share_prompts=self.share_prompts,
        )


class Pair:
    """A model, TRL's trainer of it, and one batch of completions."""

    def __init__(self, train_type: str, folder: Path) -> None:
        torch.manual_seed(0)
        flags = ["--train_type", train_type, "--beta", "0.07", "--max_completion_length", "6"]
        loaded = load_model(parse(flags, 1), torch.float32)
        self.model, self.tokenizer = loaded.policy.train(), loaded.tokenizer
        self.lora = train_type == "lora"
        if self.lora:  # new adapters change nothing: give them something to say
            for name, weight in self.model.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(weight, std=0.05)
        self.tokens = self._tokens(loaded.end_tokens)
        self.trained = {n: w for n, w in self.model.named_parameters() if w.requires_grad}
        generator = torch.Generator().manual_seed(7)
        self.moves = {
            name: 0.01 * torch.randn(weight.shape, generator=generator)
            for name, weight in self.trained.items()
        }
        noise = torch.randn(self.tokens.completion_tokens.shape, generator=generator)
        self.sampling = self.logprobs() + 0.3 * noise
        # Last, because TRL patches the model's forward for calls of its own.
        self.trl = self._trl(folder)
        self.reference = None
        if not self.lora:
            self.reference = copy.deepcopy(self.model)
            del self.reference.forward  # bound to the policy
            add_fused_lm_head(self.reference, temperature=TEMPERATURE)
            with torch.no_grad():
                for name, weight in self.reference.named_parameters():
                    weight.add_(self.moves[name].flip(0), alpha=2)

    def _tokens(self, end_tokens: tuple[int, ...]) -> TokenBatch:
        self.tokenizer.padding_side = "left"
        texts = [text for text in PROMPTS for _ in range(GROUP)]
        prompts = self.tokenizer(texts, return_tensors="pt", padding=True)
        generator = torch.Generator().manual_seed(3)
        completions = torch.randint(0, 256, (len(texts), LONGEST), generator=generator)
        for row, (length, ended) in enumerate(zip(LENGTHS, ENDED, strict=True)):
            if ended:
                completions[row, length - 1] = end_tokens[0]
                completions[row, length:] = self.tokenizer.pad_token_id
        mask = mask_after_end(completions, end_tokens)
        assert mask.sum(dim=1).tolist() == LENGTHS
        return TokenBatch(prompts["input_ids"], prompts["attention_mask"], completions, mask)

    def _trl(self, folder: Path) -> Any:
        def scored(column: int) -> Any:
            def function(completions: list[str], **_: Any) -> list[float | None]:
                assert len(completions) == len(SCORES)
                return [row[column] for row in SCORES]

            function.__name__ = f"function_{column}"
            return function

        settings = GRPOConfig(
            output_dir=str(folder), use_cpu=True, report_to=[], bf16=False, beta=0.0,
            per_device_train_batch_size=len(LENGTHS), num_generations=GROUP,
            reward_weights=WEIGHTS, temperature=TEMPERATURE, max_completion_length=LONGEST,
            gradient_checkpointing=False, vllm_importance_sampling_clip_max=1.3,
            # DeepSeek-V3.2's KL term, weighted by the ratio; ours is DeepSeekMath's, as ms-swift's.
            use_bias_correction_kl=False,
        )  # fmt: skip
        rows = Dataset.from_list([{"prompt": text} for text in PROMPTS for _ in range(GROUP)])
        trainer = GRPOTrainer(
            model=self.model, reward_funcs=[scored(0), scored(1)], args=settings,
            train_dataset=rows, processing_class=self.tokenizer, rollout_func=self._rollout,
        )  # fmt: skip
        trainer.current_gradient_accumulation_steps = 1
        return trainer

    def _rollout(self, prompts: list[str], _trainer: Any) -> dict[str, Any]:
        assert prompts == [text for text in PROMPTS for _ in range(GROUP)]
        cut = [int(n) for n in self.tokens.prompt_mask.sum(dim=1)]
        return {
            "prompt_ids": [
                r[-n:].tolist() for r, n in zip(self.tokens.prompt_tokens, cut, strict=True)
            ],
            "completion_ids": [
                r[:n].tolist() for r, n in zip(self.tokens.completion_tokens, LENGTHS, strict=True)
            ],
            "logprobs": [r[:n].tolist() for r, n in zip(self.sampling, LENGTHS, strict=True)],
        }

    def logprobs(self, model: Any | None = None, *, share: bool = True) -> torch.Tensor:
        """In parts of three completions, which cut the groups of four."""
        model = model or self.model
        return logprobs_in_parts(model, self.tokens, TEMPERATURE, 3, share_prompts=share)

    def reference_logprobs(self, *, share: bool) -> torch.Tensor:
        with self.model.disable_adapter() if self.lora else nullcontext():
            return self.logprobs(self.reference, share=share)

    @contextmanager
    def moved(self, by: float) -> Iterator[None]:
        """Holds other weights, as after an optimizer step."""
        before = {name: weight.detach().clone() for name, weight in self.trained.items()}
        with torch.no_grad():
            for name, weight in self.trained.items():
                weight.add_(self.moves[name], alpha=by)
        yield
        with torch.no_grad():
            for name, weight in self.trained.items():
                weight.copy_(before[name])

    def gradients(self, loss: torch.Tensor) -> dict[str, torch.Tensor]:
        values = torch.autograd.grad(loss, list(self.trained.values()))
        return dict(zip(self.trained, values, strict=True))

    def theirs(self, case: Case) -> tuple[Any, torch.Tensor, dict[str, torch.Tensor], Any]:
        """TRL's inputs of the loss, its loss, gradients and metrics."""
        trainer, config = self.trl, case.config
        trainer.loss_type, trainer.beta = case.loss_type, config.beta
        trainer.epsilon_low = config.epsilon
        trainer.epsilon_high = case.epsilon_high or config.epsilon
        trainer.scale_rewards = case.scale_rewards
        trainer.mask_truncated_completions = case.mask_truncated
        trainer.num_iterations = 2 if case.off_policy else 1
        trainer.ref_model = self.reference if case.kl else None
        trainer.use_vllm = case.correction is not None
        trainer.vllm_importance_sampling_correction = case.correction is not None
        trainer.vllm_importance_sampling_mode = case.correction
        trainer._last_loaded_step = trainer.state.global_step  # no engine to load weights into
        trainer._metrics["train"].clear()
        rows = [{"prompt": text} for text in PROMPTS for _ in range(GROUP)]
        inputs = trainer._generate_and_score_completions(rows)
        with self.moved(1.0 if case.off_policy else 0.0):
            loss = trainer.compute_loss(self.model, inputs)
            gradients = self.gradients(loss)
        metrics = {name: values[-1] for name, values in trainer._metrics["train"].items()}
        return inputs, loss.detach(), gradients, metrics

    def ours(self, case: Case) -> tuple[Any, torch.Tensor, dict[str, torch.Tensor], Any]:
        """The same of ours."""
        config = case.config
        scores = torch.tensor([[math.nan if s is None else s for s in row] for row in SCORES])
        rewards = combine(scores, WEIGHTS)
        ended = torch.tensor(ENDED)
        experience = Experience(
            self.tokens,
            group_advantages(rewards, GROUP, case.scale_rewards),
            self.logprobs(share=case.share_prompts) if case.off_policy else None,
            self.reference_logprobs(share=case.share_prompts) if case.kl else None,
            self.sampling if case.correction else None,
            ended.long() if case.mask_truncated else None,
        )
        with self.moved(1.0 if case.off_policy else 0.0):
            tokens = tokens_in_loss([experience], ALONE)
            loss, statistics = grpo_loss(self.model, experience, config, tokens)
            gradients = self.gradients(loss)
        names = ["function_0", "function_1"]
        metrics = reward_metrics(rewards, scores, names, GROUP)
        metrics |= completion_metrics(torch.tensor(LENGTHS).float(), ended.float())
        metrics |= loss_metrics([statistics], ALONE)
        return experience, loss.detach(), gradients, metrics


@pytest.fixture(scope="module", params=["full", "lora"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(request.param, tmp_path_factory.mktemp("trl"))


def relative(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The norm of the difference, as a share of what is expected."""
    difference = float((actual - expected).norm())
    return difference and difference / float(expected.norm())


def compare(pair: Pair, case: Case) -> None:
    """Loss and the gradient of every parameter, of one case."""
    experience, loss, gradients, _ = pair.ours(case)
    _, their_loss, their_gradients, _ = pair.theirs(case)
    # The losses of tokens are of the size of the advantages and cancel out, on-policy even to zero.
    size = max(abs(float(their_loss)), float(experience.advantages.abs().mean()))
    assert abs(float(loss - their_loss)) < TOLERANCE * size, case
    largest = max(float(gradient.norm()) for gradient in their_gradients.values())
    assert largest > 0, case
    for name, expected in their_gradients.items():
        assert relative(gradients[name], expected) < TOLERANCE, (name, case)


@pytest.mark.parametrize("off_policy", [False, True], ids=["on_policy", "off_policy"])
@pytest.mark.parametrize("kl", [False, True], ids=["no_kl", "kl"])
@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo"])
def test_loss_and_gradients(pair: Pair, loss_type: str, kl: bool, off_policy: bool) -> None:
    for scale, masked, high, correction in itertools.product(
        ["group", "batch", "none"],
        [False, True],
        [None, 0.25] if off_policy else [None],  # on-policy every ratio is one: nothing to clip
        [None, "token_truncate", "token_mask"],
    ):
        compare(pair, Case(loss_type, kl, off_policy, scale, masked, high, correction))


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo"])
def test_loss_and_gradients_with_a_prompt_for_each_completion(pair: Pair, loss_type: str) -> None:
    for off_policy, masked in ((False, False), (True, True)):
        compare(
            pair,
            Case(
                loss_type,
                kl=True,
                off_policy=off_policy,
                mask_truncated=masked,
                correction="token_truncate",
                share_prompts=False,
            ),
        )


@pytest.mark.parametrize("correction", ["sequence_truncate", "sequence_mask"])
def test_sequence_modes_are_those_of_trl_where_both_mean_the_same(
    pair: Pair, correction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL multiplies a completion's ratios, ms-swift and ours take their geometric mean.

    Where one token alone differs from the trainer's log-probs, and completions have one token, both
    are equal: so the completions are cut down to their first token, for this test.
    """
    tokens = pair.tokens
    first = TokenBatch(
        tokens.prompt_tokens,
        tokens.prompt_mask,
        tokens.completion_tokens[:, :1],
        tokens.completion_mask[:, :1],
    )
    monkeypatch.setattr(pair, "tokens", first)
    monkeypatch.setattr(pair, "sampling", pair.sampling[:, :1])
    monkeypatch.setitem(globals(), "LENGTHS", [1] * len(LENGTHS))
    compare(pair, Case("dapo", kl=True, off_policy=True, correction=correction))


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_with_weights_and_missing_scores(pair: Pair, scale: str) -> None:
    experience, *_ = pair.ours(Case(scale_rewards=scale))
    inputs, *_ = pair.theirs(Case(scale_rewards=scale))
    torch.testing.assert_close(experience.advantages, inputs["advantages"], atol=1e-6, rtol=1e-6)
    assert experience.advantages[5] == 0  # no function applied


def test_log_probs_and_entropies(pair: Pair) -> None:
    case = Case(kl=True, off_policy=True)
    experience, *_ = pair.ours(case)
    inputs, *_ = pair.theirs(case)
    mask = pair.tokens.completion_mask
    for ours, theirs in (
        (experience.old_logprobs, inputs["old_per_token_logps"]),
        (experience.reference_logprobs, inputs["ref_per_token_logps"]),
    ):
        torch.testing.assert_close(ours * mask, theirs * mask, atol=1e-5, rtol=1e-5)
    sequences = [
        torch.cat([inputs[f"prompt_{part}"], inputs[f"completion_{part}"]], dim=1)
        for part in ("ids", "mask")
    ]
    with torch.no_grad():
        _, theirs, _ = pair.trl._get_per_token_logps_and_entropies(
            pair.model, *sequences, LONGEST, compute_entropy=True
        )
        logits = completion_logits(pair.model, pair.tokens)
        actual = token_logprobs(logits, pair.tokens.completion_tokens, TEMPERATURE, entropy=True)
    torch.testing.assert_close(actual.entropies * mask, theirs * mask, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("correction", [None, "token_truncate", "token_mask"])
@pytest.mark.parametrize("kl", [False, True])
def test_metrics_have_trls_names_and_values(pair: Pair, kl: bool, correction: str | None) -> None:
    case = Case(
        "dapo", kl, off_policy=True, mask_truncated=True, epsilon_high=0.2, correction=correction
    )
    *_, statistics = pair.ours(case)
    *_, expected = pair.theirs(case)
    assert expected.pop("num_tokens") > 0  # the log adds ours up
    # TRL's are logged by the Trainer of transformers.
    statistics.pop("loss"), statistics.pop("step_tokens")
    assert statistics.pop("rewards/missing_ratio") == 1 / len(SCORES)  # ours alone
    assert not statistics.keys() - expected.keys()
    left_out = expected.keys() - statistics.keys()  # TRL's extremes of its micro-batches
    assert all(name.endswith(("_min", "_max", "/min", "/max")) for name in left_out)
    for name, value in statistics.items():
        assert value == pytest.approx(expected[name], rel=1e-4, abs=1e-6), name
    assert statistics["clip_ratio/region_mean"] > 0


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo"])
def test_accumulated_gradients(pair: Pair, loss_type: str) -> None:
    """Two micro-batches of one optimizer step: the engines divide ours by two."""
    case = Case(loss_type, kl=True, mask_truncated=True)
    experience, *_ = pair.ours(case)
    inputs, *_ = pair.theirs(case)
    parts = [experience.select(torch.arange(start, start + 4)) for start in (0, 4)]
    tokens = tokens_in_loss(parts, ALONE)
    ours = [grpo_loss(pair.model, part, case.config, tokens)[0] / 2 for part in parts]
    pair.trl.current_gradient_accumulation_steps = pair.trl.args.steps_per_generation = 2
    try:
        halves = split_tensor_dict(inputs, 2)
        theirs = [pair.trl.compute_loss(pair.model, half) for half in halves]
    finally:
        pair.trl.current_gradient_accumulation_steps = pair.trl.args.steps_per_generation = 1
    found, expected = (pair.gradients(torch.stack(losses).sum()) for losses in (ours, theirs))
    for name, gradient in expected.items():
        assert relative(found[name], gradient) < TOLERANCE, name
