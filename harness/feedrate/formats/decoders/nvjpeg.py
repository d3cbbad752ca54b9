"""nvJPEG through torchvision: the GPU decodes whole batches; workers read files and hand over their bytes.

Behind one's back: the bytes must lie in the host's memory, and are copied by the library itself; each image is a tensor
of its own on the device, where it is cropped and resized one by one; the decoder shares the GPU with the model, unless
it has an engine for it. JPEG only, and no damaged file is noticed before the library stumbles over it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torchvision.io import ImageReadMode, decode_jpeg

REQUIRES: dict[str, str] = {"torch": "torch", "torchvision": "torchvision"}
CODECS: tuple[str, ...] = ("jpeg",)
DEVICE: str = "cuda"


def decode_all(files: Sequence[torch.Tensor], device: torch.device) -> Sequence[torch.Tensor]:
    """Decode JPEG files, uint8 tensors on the host: uint8, 3 × height × width, on the device.

    Raises:
        RuntimeError: a file cannot be decoded.
    """
    images: Sequence[torch.Tensor] = decode_jpeg(list(files), mode=ImageReadMode.RGB, device=device)
    return images
