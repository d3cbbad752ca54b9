"""Trains ResNet-18 on a tree of JPEG files, as PyTorch's ImageNet example does; it knows nothing of feedrate.

``--make`` writes such a tree, of 500 × 375 pixels and some 100 kB a file, where it is not there. Without a GPU batches
and images are small, so that a rehearsal takes minutes.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

CUDA = torch.cuda.is_available()
FILES, CLASSES = (8192, 16) if CUDA else (512, 4)
BATCH, SIZE = (128, 224) if CUDA else (8, 32)


def make(path: Path) -> None:
    """Write one file of the tree."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        bands = [Image.effect_noise((125, 94), 90).resize((500, 375), Image.Resampling.BICUBIC) for _ in range(3)]
        detail = Image.merge("RGB", [Image.effect_noise((500, 375), 20)] * 3)
        Image.blend(Image.merge("RGB", bands), detail, 0.3).save(path, quality=88)


def train(root: Path, workers: int) -> None:
    """Train until somebody stops it."""
    steps = [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    images = datasets.ImageFolder(str(root), transforms.Compose(steps))
    device = "cuda" if CUDA else "cpu"
    loader = DataLoader(
        images,
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        pin_memory=CUDA,
        persistent_workers=workers > 0,
    )
    model = models.resnet18(num_classes=CLASSES).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    while True:
        for batch, classes in loader:
            pixels = batch.to(device, non_blocking=True, memory_format=torch.channels_last)
            labels = classes.to(device, non_blocking=True)
            with torch.autocast(device, torch.bfloat16, enabled=CUDA):
                loss = criterion(model(pixels), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("-j", "--workers", type=int, default=4)
    parser.add_argument("--make", action="store_true", help="write the files and end")
    asked = parser.parse_args()
    if asked.make:
        names = (f"class{place % CLASSES:02d}/{place:05d}.jpg" for place in range(FILES))
        with ProcessPoolExecutor() as pool:
            list(pool.map(make, map(asked.root.joinpath, names), chunksize=16))
    else:
        train(asked.root, asked.workers)
