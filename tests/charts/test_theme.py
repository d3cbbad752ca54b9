"""The palette can be read and told apart, in both themes and by every eye."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from feedrate.charts.theme import PALETTE
from feedrate.schema.columns import PHASES

_SEEN = {  # Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB
    "all colours": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritanopia": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}


def linear(code: str) -> np.ndarray:
    """A colour as linear RGB."""
    parts = np.array([int(code[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio."""
    low, high = sorted(float(linear(code) @ [0.2126, 0.7152, 0.0722]) for code in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(code: str, eye: np.ndarray) -> np.ndarray:
    """A colour in CIE Lab (D65) as an eye sees it."""
    seen = np.clip(eye @ linear(code), 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    x, y, z = np.cbrt(np.maximum(xyz / [0.9505, 1.0, 1.089], 0.0089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", [0, 1])
def test_text_can_be_read_in_both_themes(theme: int) -> None:
    """Text has WCAG's contrast of 4.5 on paper and panel."""
    palette = {name: pair[theme] for name, pair in PALETTE.items()}
    for text in ("ink", "muted", "accent"):
        for ground in ("paper", "panel"):
            assert contrast(palette[text], palette[ground]) >= 4.5, (text, ground)


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize("eye", list(_SEEN))
def test_phases_can_be_told_apart_by_every_eye(eye: str, theme: int) -> None:
    """With each kind of colour vision every two phases differ by at least 10 in CIE Lab, and each from the paper."""
    names = [*(f"phase-{phase}" for phase in (*PHASES, "emulated")), "paper"]
    colours = {name: lab(PALETTE[name][theme], _SEEN[eye]) for name in names}
    for one, other in combinations(names, 2):
        assert np.linalg.norm(colours[one] - colours[other]) >= 10, (one, other)
