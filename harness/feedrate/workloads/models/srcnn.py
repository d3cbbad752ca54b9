"""SRCNN 9-5-5 in RGB: three convolutions that sharpen a bicubic-upsampled image. 69,251 parameters.

Dong, Loy, He and Tang, "Image Super-Resolution Using Deep Convolutional Networks", TPAMI 2016 (arXiv 1501.00092); its
variant with filter sizes 9-5-5 and widths 64 and 32. Two departures: three colour channels rather than luma, and zero
padding, so that the output has the input's size and the loss needs no cropping. It has few parameters and much
arithmetic a pixel: on a processor it is compute-bound whatever the loader does.

The original has no batch norm: ``norm = batch`` is there for the questions that are asked about one.
"""

from __future__ import annotations

from torch import nn

REQUIRES: dict[str, str] = {"torch": "torch"}
TASK: str = "super-resolution"
KNOBS: tuple[str, ...] = ("norm", "conv_bias")


def build(*, norm: str = "none", conv_bias: bool = True) -> nn.Module:
    """Make the network: from float images, batch × 3 × height × width in 0..1, to images of the same shape.

    With ``norm = batch`` a batch norm follows every convolution but the last. In training it takes away the mean of its
    batch, and a bias with it (Ioffe and Szegedy 2015, section 3.2): without ``conv_bias`` the function is the same.
    """
    layers: list[nn.Module] = []
    for inputs, outputs, kernel in ((3, 64, 9), (64, 32, 5)):
        layers += [_convolution(inputs, outputs, kernel, bias=norm == "none" or conv_bias)]
        layers += [nn.BatchNorm2d(outputs)] if norm == "batch" else []
        layers += [nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, _convolution(32, 3, 5, bias=True))


def _convolution(inputs: int, outputs: int, kernel: int, *, bias: bool) -> nn.Module:
    """A convolution that keeps the image's size; a bias is drawn in any case, so that all weights stay the same."""
    layer = nn.Conv2d(inputs, outputs, kernel_size=kernel, padding=kernel // 2)
    if not bias:
        layer.register_parameter("bias", None)
    return layer
