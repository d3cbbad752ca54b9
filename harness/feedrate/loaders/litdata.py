"""LitData's own loader: PyTorch's worker processes stream chunks, each its share of them, and mix within a chunk.

Every sample comes once a pass. Chunks are dealt to workers at random; of a chunk the samples are mixed within 256.
https://github.com/Lightning-AI/litData#speed-up-model-training
"""

from __future__ import annotations

from collections.abc import Iterator

from litdata import StreamingDataLoader, StreamingDataset

from feedrate.loaders import Fields, LoadOptions, StampedCollate, StampedStream

REQUIRES: dict[str, str] = {"torch": "torch", "litdata": "litdata"}
TRAITS: dict[str, object] = {
    "title": "LitData",
    "workers": "processes",
    "streams": ("litdata",),
    "order": "chunks at random, samples at random within 256 of a chunk",
    "resumes": True,
    "lacks": "a shuffle of all samples",
}


class _Samples(StreamingDataset):  # type: ignore[misc]
    """Samples of the chunks that fall to a worker, pass after pass where there is no end."""

    def __init__(self, stream: StampedStream) -> None:
        super().__init__(str(stream.root), shuffle=stream.buffer > 0)
        self.stream = stream

    def __iter__(self) -> Iterator[Fields]:
        while True:
            super().__iter__()
            rows = iter(self.__next__, None)
            yield from self.stream.one_pass((index, list(map(bytes, files))) for index, *files in rows)
            if not self.stream.endless:
                return
            self.current_epoch += 1


def build(dataset: StampedStream, collate: StampedCollate, _batches: None, options: LoadOptions) -> StreamingDataLoader:
    """Assemble its loader, which takes PyTorch's arguments."""
    batches = {"batch_size": options.batch_size, "drop_last": True, "collate_fn": collate}
    return StreamingDataLoader(_Samples(dataset), **batches, **options.of_processes())
