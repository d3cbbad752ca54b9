"""torchvision's own decoders (libpng and libjpeg-turbo), which give a tensor.

The operator behind ``torchvision.io.decode_image`` is called directly: the function itself has warned since 0.29 that
it is to be removed in favour of TorchCodec. Behind one's back: it takes only a tensor of bytes, and one over memory
that cannot be written to warns, so the file is copied once (1 % of decoding); the result is channels × height × width
in name alone, as its memory lies height × width × channels and turning it back copies nothing; grey stays grey;
and a damaged PNG file, which libpng notices, kills the process instead of raising (0.29.2: any flipped byte among the
pixels), so that none may reach it.
"""

from __future__ import annotations

from typing import Any

import torch
import torchvision.io  # registers the operator

REQUIRES: dict[str, str] = {"torch": "torch", "torchvision": "torchvision"}
CODECS: tuple[str, ...] = ("png", "jpeg", "webp")
FAILURES = (RuntimeError,)

_UNCHANGED = torchvision.io.ImageReadMode.UNCHANGED.value


def decode(data: bytes, _shape: tuple[int, ...]) -> Any:
    """Decode a PNG, JPEG or WebP file."""
    tensor = torch.ops.image.decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), _UNCHANGED, False)
    return tensor.permute(1, 2, 0).contiguous().numpy()
