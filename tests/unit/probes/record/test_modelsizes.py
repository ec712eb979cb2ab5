"""What a run says of its model to the recorder, the bundled trainer and hooked ones."""

from __future__ import annotations

from types import SimpleNamespace

from grpo_doctor_probes.record.modelsizes import model_sizes, weight_counts

QWEN = SimpleNamespace(
    vocab_size=151_936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24
)
SIZES = {f"model_{name}": size for name, size in vars(QWEN).items()}


def test_sizes_are_those_that_the_language_model_says() -> None:
    assert model_sizes(QWEN) == SIZES
    assert model_sizes(SimpleNamespace(text_config=QWEN, hidden_size=1)) == SIZES
    small = SimpleNamespace(hidden_size=64, vocab_size=None)
    assert model_sizes(small) == {"model_hidden_size": 64}


class Weight:
    def __init__(self, size: int, *, trained: bool, full_size: int | None = None) -> None:
        self.size, self.requires_grad = size, trained
        if full_size is not None:
            self.ds_numel = full_size

    def numel(self) -> int:
        return self.size


def test_weights_count_whole_where_zero3_has_partitioned_them() -> None:
    weights = [Weight(10, trained=False), Weight(0, trained=True, full_size=6)]
    model = SimpleNamespace(parameters=lambda: iter(weights))
    assert weight_counts(model) == {"model_parameters": 16, "model_trained_parameters": 6}
