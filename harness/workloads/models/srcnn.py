"""SRCNN 9-5-5 in RGB: three convolutions that sharpen a bicubic-upsampled image. 69,251 parameters.

Dong, Loy, He and Tang, "Image Super-Resolution Using Deep Convolutional Networks", TPAMI 2016 (arXiv 1501.00092); its
variant with filter sizes 9-5-5 and widths 64 and 32. Two departures: three colour channels rather than luma, and zero
padding, so that the output has the input's size and the loss needs no cropping. It has few parameters and much
arithmetic a pixel: on a processor it is compute-bound whatever the loader does.
"""

from __future__ import annotations

from torch import nn

REQUIRES: dict[str, str] = {"torch": "torch"}
TASK: str = "super-resolution"


def build() -> nn.Module:
    """Make the network, with PyTorch's default initialisation.

    Returns:
        A module from float images, batch × 3 × height × width in 0..1, to images of the same shape.
    """
    return nn.Sequential(
        nn.Conv2d(3, 64, kernel_size=9, padding=4),
        nn.ReLU(inplace=True),
        nn.Conv2d(64, 32, kernel_size=5, padding=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 3, kernel_size=5, padding=2),
    )
