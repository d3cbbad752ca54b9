"""Small photographs of four kinds, made up, and a data set that reads them."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

SIZE, KINDS = 64, 4


def make(folder: Path, count: int, under: str = "images") -> None:
    """Write JPEGs to ``FOLDER/UNDER/KIND/NUMBER.jpg``: noise whose brightness tells its kind."""
    random = np.random.default_rng(0)
    for kind in range(KINDS):
        (folder / under / str(kind)).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        pixels = random.integers(40 * (number % KINDS), 40 * (number % KINDS) + 100, (SIZE, SIZE, 3), np.uint8)
        Image.fromarray(pixels).save(folder / under / str(number % KINDS) / f"{number:05d}.jpg")


class Images(Dataset):
    """The images below a folder, with their kinds."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("images/*/*.jpg"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        pixels = np.array(Image.open(self.paths[index]))
        return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255, int(self.paths[index].parent.name)
