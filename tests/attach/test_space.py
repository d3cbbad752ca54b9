"""The settings that a search chooses among."""

from __future__ import annotations

import pytest

from feedrate.attach.space import Asked, Machine, Setting, asked, fitting, settings
from feedrate.schema.errors import InputError

PRESENT = Setting(0)
TWO_CORES = Machine(2, memory_bytes=8 << 30, shm_bytes=1 << 30, worker_bytes=100 << 20, epoch_steps=1000)


def test_the_space_is_a_grid_from_cheap_to_dear() -> None:
    """Workers, what they prepare ahead and whether they live on: 49 settings on two cores, fewest workers first.

    The present setting is among them, however odd it is.
    """
    found = settings(PRESENT, Asked(), TWO_CORES, cuda=False)
    assert len(found) == len(set(found)) == 49
    assert [each.num_workers for each in found] == sorted(each.num_workers for each in found)
    assert found[0] == PRESENT
    odd = Setting(5, 7, persistent_workers=True)
    assert odd in settings(odd, Asked(), TWO_CORES, cuda=False)


def test_pinning_is_a_question_of_cuda_alone() -> None:
    """Without a device there is nothing to pin for; copies that were seen may return early where batches are pinned."""

    def copies(present: Setting, *, cuda: bool) -> set[tuple[bool, bool | None]]:
        return {(each.pin_memory, each.non_blocking) for each in settings(present, Asked(), TWO_CORES, cuda=cuda)}

    assert copies(PRESENT, cuda=False) == {(False, None)}
    assert copies(PRESENT, cuda=True) == {(False, None), (True, None)}
    assert copies(Setting(0, non_blocking=False), cuda=True) == {(False, False), (True, False), (True, True)}


def test_what_does_not_fit_is_left_out_with_the_reason() -> None:
    """Eight workers that hold four batches of 200 MB each would take 6 GB of shared memory."""
    machine = Machine(2, memory_bytes=32 << 30, shm_bytes=4 << 30, batch_bytes=200 << 20)
    reasons = dict(fitting(settings(PRESENT, Asked(), machine, cuda=False), machine, PRESENT))
    assert "8 workers × 4 batches of 200 MiB do not fit in /dev/shm" in reasons[Setting(8, 4)]
    assert Setting(1, 4) not in reasons
    assert PRESENT not in reasons


@pytest.mark.parametrize(("sizes", "methods"), [("32,many", ""), ("0", ""), ("", "clone")])
def test_what_cannot_be_asked_for_is_refused(sizes: str, methods: str) -> None:
    """The message names the option and what was expected."""
    with pytest.raises(InputError, match="expected"):
        asked(sizes, methods, 0)
