"""What a model is made of, as far as memory goes: its linear layers, norms and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Part = Literal["language", "experts", "vision", "aligner", "embedding", "head"]
VisionKind = Literal["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "intern_vit", "siglip"]


@dataclass(frozen=True, slots=True)
class Linear:
    """`copies` linear layers of one form."""

    name: str
    inputs: int
    outputs: int
    copies: int
    part: Part
    bias: bool = False

    @property
    def parameters(self) -> int:
        """Parameters of all copies."""
        return self.copies * self.outputs * (self.inputs + self.bias)


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts; `layers` of the model's layers have one."""

    layers: int
    count: int
    active: int
    intermediate: int
    shared_intermediate: int = 0
    shared_gate: bool = False


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """DeepSeek's attention through a compressed cache (MLA)."""

    query_rank: int
    """0: queries are not compressed."""
    cache_rank: int
    plain_dim: int
    rotary_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Vision:
    """A vision tower with the layers that lead into the language model."""

    kind: VisionKind
    hidden: int
    layers: int
    intermediate: int
    patch: int
    merge: int
    """Patches per side that become one token."""
    positions: int = 0
    """Entries of a learned position table."""
    temporal_patch: int = 1
    taps: int = 0
    """Deeper layers whose output is merged into the language model as well."""

    @property
    def pixels_per_token(self) -> int:
        """Pixels of an image that become one token of the language model."""
        return (self.patch * self.merge) ** 2


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model's sizes, in elements; `source` says where they were read."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool
    source: str
    qkv_bias: bool = False
    output_bias: bool = False
    query_key_norm: bool = False
    norms_per_layer: int = 2
    capped_logits: bool = False
    """Logits go through a tanh (Gemma 2)."""
    head: bool = True
    """A critic has one output in place of logits."""
    max_positions: int | None = None
    experts: Experts | None = None
    latent: LatentAttention | None = None
    vision: Vision | None = None
    bits: int = 16
    """Of a weight in a linear layer of the checkpoint."""
    other_parameters: int = 0
    """Of modules that are loaded and held, and that this list of layers lacks (audio, MTP)."""

    @property
    def dense_layers(self) -> int:
        """Layers with an ordinary MLP."""
        return self.layers - (self.experts.layers if self.experts else 0)

    @property
    def query_width(self) -> int:
        """Outputs of all query heads together."""
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Outputs of all key heads together; of MLA, what the cache keeps of a token in half."""
        if self.latent:
            return (self.latent.cache_rank + self.latent.rotary_dim) // 2
        return self.kv_heads * self.head_dim

    @property
    def parameters(self) -> int:
        """All parameters, tied ones once."""
        return _counts(self)["all"]

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token table; the head has as many."""
        return self.vocabulary * self.hidden

    @property
    def table_parameters(self) -> int:
        """Parameters of token table and head; tied ones once."""
        return self.embedding_parameters * (1 if self.tied or not self.head else 2)

    @property
    def vision_parameters(self) -> int:
        """Parameters of the vision tower and what connects it."""
        return _counts(self)["vision"]

    @property
    def expert_parameters(self) -> int:
        """Parameters that expert parallelism divides."""
        return _counts(self)["experts"]

    @property
    def layer_parameters(self) -> int:
        """Parameters of a decoder layer, on average."""
        return _counts(self)["layer"]

    @property
    def linears(self) -> tuple[Linear, ...]:
        """The linear layers of the decoder and the vision tower, without the head."""
        return _linears(self)

    @property
    def norm_parameters(self) -> int:
        """Parameters of the decoder's norms."""
        per_layer = self.norms_per_layer * self.hidden
        if self.query_key_norm:
            per_layer += 2 * self.head_dim
        if self.latent:
            per_layer += self.latent.cache_rank + self.latent.query_rank
        return self.layers * per_layer + self.hidden


@lru_cache(maxsize=64)
def _counts(shape: ModelShape) -> dict[str, int]:
    """Parameters: all, of the vision tower, of experts, of a layer."""
    of_part: Counter[Part] = Counter()
    for linear in shape.linears:
        of_part[linear.part] += linear.parameters
    vision = of_part["vision"] + of_part["aligner"]
    vision += _vision_tables(shape.vision) if shape.vision else 0
    decoder = of_part["language"] + of_part["experts"]
    everything = decoder + shape.norm_parameters + vision + shape.table_parameters
    return {
        "all": everything + shape.other_parameters,
        "vision": vision,
        "experts": of_part["experts"],
        "layer": decoder // shape.layers,
    }


@lru_cache(maxsize=64)
def _linears(shape: ModelShape) -> tuple[Linear, ...]:
    linears = list(_attention(shape))
    if shape.dense_layers:
        linears += _gated("mlp", shape.hidden, shape.intermediate, shape.dense_layers, "language")
    if shape.experts:
        linears += _experts(shape.hidden, shape.experts)
    if shape.vision:
        linears += _vision(shape.vision, shape.hidden)
    return tuple(linears)


def _attention(shape: ModelShape) -> Iterator[Linear]:
    hidden, layers = shape.hidden, shape.layers
    if shape.latent is None:
        for name, outputs in (
            ("q_proj", shape.query_width),
            ("k_proj", shape.kv_heads * shape.head_dim),
            ("v_proj", shape.kv_heads * shape.head_dim),
        ):
            yield Linear(name, hidden, outputs, layers, "language", shape.qkv_bias)
        yield Linear("o_proj", shape.query_width, hidden, layers, "language", shape.output_bias)
        return
    mla = shape.latent
    queries = shape.heads * (mla.plain_dim + mla.rotary_dim)
    if mla.query_rank:
        yield Linear("q_a_proj", hidden, mla.query_rank, layers, "language")
        yield Linear("q_b_proj", mla.query_rank, queries, layers, "language")
    else:
        yield Linear("q_proj", hidden, queries, layers, "language")
    yield Linear("kv_a_proj_with_mqa", hidden, mla.cache_rank + mla.rotary_dim, layers, "language")
    decompressed = shape.heads * (mla.plain_dim + mla.value_dim)
    yield Linear("kv_b_proj", mla.cache_rank, decompressed, layers, "language")
    yield Linear("o_proj", shape.heads * mla.value_dim, hidden, layers, "language")


def _gated(  # noqa: PLR0913 - a gated MLP has that many sizes
    name: str, hidden: int, intermediate: int, copies: int, part: Part, bias: bool = False
) -> Iterator[Linear]:
    yield Linear(f"{name}.gate_proj", hidden, intermediate, copies, part, bias)
    yield Linear(f"{name}.up_proj", hidden, intermediate, copies, part, bias)
    yield Linear(f"{name}.down_proj", intermediate, hidden, copies, part, bias)


def _experts(hidden: int, experts: Experts) -> Iterator[Linear]:
    yield Linear("router", hidden, experts.count, experts.layers, "language")
    copies = experts.layers * experts.count
    yield from _gated("experts", hidden, experts.intermediate, copies, "experts")
    if experts.shared_intermediate:
        yield from _gated(
            "shared_expert", hidden, experts.shared_intermediate, experts.layers, "language"
        )
    if experts.shared_gate:
        yield Linear("shared_expert_gate", hidden, 1, experts.layers, "language")


def _vision(vision: Vision, out: int) -> Iterator[Linear]:
    width, layers = vision.hidden, vision.layers
    yield Linear("visual.qkv", width, 3 * width, layers, "vision", True)
    yield Linear("visual.proj", width, width, layers, "vision", True)
    if vision.kind == "qwen2_5_vl":
        yield from _gated("visual.mlp", width, vision.intermediate, layers, "vision", True)
    else:
        yield Linear("visual.fc1", width, vision.intermediate, layers, "vision", True)
        yield Linear("visual.fc2", vision.intermediate, width, layers, "vision", True)
    merged = width * vision.merge**2
    if vision.kind == "siglip":
        yield Linear("projector", width, out, 1, "aligner")
    elif vision.kind == "intern_vit":
        yield Linear("mlp1.1", merged, out, 1, "aligner", True)
        yield Linear("mlp1.3", out, out, 1, "aligner", True)
    else:
        mergers = 1 + vision.taps
        yield Linear("merger.0", merged, merged, mergers, "aligner", True)
        yield Linear("merger.2", merged, out, mergers, "aligner", True)


def _vision_tables(vision: Vision) -> int:
    """Patch embedding, norms, positions and scales."""
    width = vision.hidden
    merged = width * vision.merge**2
    patches = 3 * vision.temporal_patch * vision.patch**2 * width
    layer_norms = 2 * 2 * width * vision.layers
    positions = vision.positions * width
    if vision.kind == "qwen2_vl":
        return patches + layer_norms + 2 * width
    if vision.kind == "qwen2_5_vl":
        return patches + layer_norms // 2 + width
    if vision.kind == "qwen3_vl":
        return patches + width + layer_norms + positions + 2 * width + vision.taps * 2 * merged
    if vision.kind == "intern_vit":
        scales = 2 * width * vision.layers
        return patches + width + width + positions + layer_norms + scales + 2 * merged
    return patches + width + positions + layer_norms + 2 * width + width  # siglip, projector norm
