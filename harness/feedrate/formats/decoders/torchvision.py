"""torchvision's own decoders (libpng and libjpeg-turbo), which give a tensor.

The operator behind ``torchvision.io.decode_image`` is called directly: the function itself has warned since 0.29 that
it is to be removed in favour of TorchCodec. Behind one's back: it takes only a tensor of bytes, and one over memory
that cannot be written to warns, so the file is copied once (1 % of decoding); the result is channels × height × width
in name alone, as its memory lies height × width × channels and turning it back copies nothing; grey stays grey;
and a damaged PNG file, which libpng notices, kills the process instead of raising (0.29.2: any flipped byte among the
pixels), so that none may reach it.
"""

from __future__ import annotations

import numpy as np
import torch
import torchvision.io  # registers the operator
from numpy.typing import NDArray

from feedrate.formats import Image
from feedrate.formats.decoders import Undecodable, check, shaped

REQUIRES: dict[str, str] = {"torch": "torch", "torchvision": "torchvision"}
CODECS: tuple[str, ...] = ("png", "jpeg")

_UNCHANGED = torchvision.io.ImageReadMode.UNCHANGED.value


def decode(data: bytes, shape: tuple[int, ...]) -> Image:
    """Decode one file.

    Args:
        data: a PNG or JPEG file.
        shape: height, width, channels that are expected.

    Returns:
        uint8, height × width × channels, writable and owning its memory.

    Raises:
        Undecodable: it is damaged, or of another shape.
    """
    check(data, shape)
    try:
        tensor = torch.ops.image.decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), _UNCHANGED, False)
    except RuntimeError as error:
        raise Undecodable(f"damaged ({str(error).splitlines()[0]})") from error
    pixels: NDArray[np.uint8] = tensor.permute(1, 2, 0).contiguous().numpy()
    return shaped(pixels, shape)
