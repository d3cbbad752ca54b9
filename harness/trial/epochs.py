"""Real epochs: a loader whose iterator is made anew every so many batches, as ``for batch in loader`` does.

What an epoch's border costs, workers that end and workers that start, or that are told to go on, is paid where a
training script pays it: in the wait for the first batch of the next epoch.

Epochs deal out one endless order, each the next part of it. So the batches are the same ones in the same order whatever
the length of an epoch is, and whether its workers are kept; and an epoch as long as the set is one new permutation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from harness.trial.loader import Batch


class EpochBatches:
    """Batches of indices for one epoch at every iteration: a ``batch_sampler``."""

    def __init__(self, batches: Iterable[list[int]], steps: int) -> None:
        """Cut an order into epochs.

        Args:
            batches: batches of indices without end; iterated over once, for all epochs.
            steps: batches of an epoch.
        """
        self._batches = iter(batches)
        self._steps = steps

    def __iter__(self) -> Iterator[list[int]]:
        return islice(self._batches, self._steps)


class Epochs:
    """The batches of one epoch after the other, without end."""

    def __init__(self, source: Iterable[Batch]) -> None:
        """Begin no epoch yet.

        Args:
            source: gives the batches of the next epoch at every iteration, one at least.
        """
        self._source = source
        self.begun = 0
        """Epochs whose first batch was asked for."""

    def __iter__(self) -> Iterator[Batch]:
        while True:
            self.begun += 1
            yield from self._source
