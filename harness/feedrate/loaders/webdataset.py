"""WebDataset's own pipeline: workers stream tar files, each its share of them, and shuffle in a buffer.

Every sample comes once a pass, in an order that is random within reach of the buffer. A pass whose worker has no shard
is an error; a tar file that ends early is fewer samples, and no error.
https://github.com/webdataset/webdataset#the-webdataset-pipeline-api
"""

from __future__ import annotations

from typing import Any

from webdataset import WebDataset, WebLoader

from feedrate.loaders import LoadOptions, StampedCollate, StampedStream

REQUIRES: dict[str, str] = {"torch": "torch", "webdataset": "webdataset"}
TRAITS: dict[str, object] = {
    "title": "WebDataset",
    "workers": "processes",
    "streams": ("webdataset",),
    "order": "shards at random, samples at random within a buffer",
    "lacks": "random access; a shuffle of all samples",
}


def build(dataset: StampedStream, collate: StampedCollate, _batches: None, options: LoadOptions) -> WebLoader:
    """Assemble the pipeline: whole batches are made in the workers, as its documentation advises."""
    shards = sorted(map(str, dataset.root.glob("*.tar")))
    records = WebDataset(shards, shardshuffle=len(shards)).shuffle(dataset.buffer).map(_record)
    batches = records.compose(dataset.one_pass).batched(options.batch_size, collation_fn=collate, partial=False)
    return WebLoader(batches.repeat() if dataset.endless else batches, batch_size=None, **options.of_processes())


def _record(files: dict[str, Any]) -> tuple[int, list[bytes]]:
    """A sample's index and its files, in the order of their names."""
    return int(files["__key__"]), [content for name, content in sorted(files.items()) if not name.startswith("__")]
