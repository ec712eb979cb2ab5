from __future__ import annotations

from itertools import combinations

import pytest

from grpo_doctor_reports import palette


def test_every_phase_has_its_own_colour() -> None:
    assert set(palette.PHASE_COLORS) == {*palette.PHASE_ORDER, palette.UNATTRIBUTED}
    assert len(set(palette.PHASE_COLORS.values())) == len(palette.PHASE_COLORS)


@pytest.mark.parametrize(("surface", "ratio"), [("#ffffff", 2.0), ("#14161a", 2.5)])
@pytest.mark.parametrize("phase", palette.PHASE_COLORS)
def test_colours_stand_out_from_both_themes(phase: str, surface: str, ratio: float) -> None:
    color, ground = (
        palette.relative_luminance(palette.PHASE_COLORS[phase]),
        palette.relative_luminance(surface),
    )
    assert palette.contrast(color, ground) >= ratio


@pytest.mark.parametrize("phase", palette.PHASE_COLORS)
def test_text_on_a_phase_is_readable(phase: str) -> None:
    ink, ground = (
        palette.relative_luminance(palette.ink_on(phase)),
        palette.relative_luminance(palette.PHASE_COLORS[phase]),
    )
    assert palette.contrast(ink, ground) >= 4.5


# Viénot 1999 (protan, deutan): linear RGB as a dichromat sees it.
_VISIONS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "deutan": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
}


@pytest.mark.parametrize("vision", _VISIONS)
def test_any_two_phases_differ_also_for_the_colour_blind(vision: str) -> None:
    colors = {phase: _oklab(color, vision) for phase, color in palette.PHASE_COLORS.items()}
    closest = min(
        (sum((x - y) ** 2 for x, y in zip(colors[a], colors[b], strict=True)) ** 0.5, a, b)
        for a, b in combinations(palette.PHASE_ORDER, 2)
    )
    assert closest[0] > 0.06, closest


def test_sub_spans_have_the_colour_of_their_phase_and_unknown_ones_grey() -> None:
    assert palette.color_of("rollout/generate") == palette.PHASE_COLORS["rollout"]
    assert palette.color_of("nonsense") == palette.PHASE_COLORS[palette.UNATTRIBUTED]


def test_order_is_canonical_with_unattributed_last() -> None:
    assert sorted(["unattributed", "zzz", "train", "init"], key=palette.order_of) == [
        "init", "train", "zzz", "unattributed",
    ]  # fmt: skip


def _oklab(color: str, vision: str) -> tuple[float, ...]:
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    colors = _times(_VISIONS[vision], linear)
    lms = _times(
        ((0.41222, 0.53633, 0.05145), (0.2119, 0.6807, 0.1074), (0.0883, 0.28172, 0.62998)), colors
    )
    roots = [max(0.0, value) ** (1 / 3) for value in lms]
    return tuple(
        _times(
            ((0.21045, 0.79362, -0.00407), (1.978, -2.42859, 0.45059), (0.0259, 0.78277, -0.80868)),
            roots,
        )
    )


def _times(matrix: tuple[tuple[float, ...], ...], vector: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]
