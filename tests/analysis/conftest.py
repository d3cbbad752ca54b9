"""What simulations of many runs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scipy import special

from feedrate.analysis import estimate, verdicts


@pytest.fixture(scope="module")
def quick_tails() -> Iterator[None]:
    """Take Student's t from SciPy, in a tenth of the time; ``tests/plan/test_stopping.py`` holds ours against it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdicts, "tail", lambda t, df: float(special.stdtr(df, -t)))
        patch.setattr(estimate, "t_quantile", lambda df, level: float(special.stdtrit(df, 0.5 + level / 2)))
        yield
