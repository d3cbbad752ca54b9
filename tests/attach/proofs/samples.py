"""Images of random pixels."""

import torch
from torch.utils.data import Dataset


class Samples(Dataset):
    """So many images, each with one of four labels."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.rand(3, 16, 16), index % 4
