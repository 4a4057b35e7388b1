"""Models by name: those of the papers (perceptrons, AlexNet, GoogLeNet, VGG, ResNet, BERT), and transformers.

Sizes agree with "AllReduce-Switch", Table VIII (GoogLeNet with its two auxiliary classifiers), and with BERT's paper.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from netfold_lab.errors import UsageError
from netfold_lab.plan.models.layers import Layer, Model, Pictures
from netfold_lab.plan.models.transformers import TEXTS, VISIONS, decoder, vision

CLASSES = 1000
IMAGE_PIXELS = 224
SEQUENCE = 128  # tokens of a sample
VOCABULARY = 30522
POSITIONS = 512

RESNETS = {
    "resnet18": (False, (2, 2, 2, 2)),
    "resnet34": (False, (3, 4, 6, 3)),
    "resnet50": (True, (3, 4, 6, 3)),
    "resnet101": (True, (3, 4, 23, 3)),
    "resnet152": (True, (3, 8, 36, 3)),
}
VGGS = {"vgg11": (1, 1, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
BERTS = {"bert-base": (12, 768), "bert-large": (24, 1024)}
INCEPTIONS = {  # 1x1; 3x3 after its 1x1; 5x5 after its 1x1; 1x1 after the pooling
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def mlp(layers: int, width: int) -> Model:
    """`layers` square matrices without biases ("FPGA-based AI Smart NICs", section III)."""
    if layers < 1 or width < 1:
        raise UsageError(f"an mlp needs at least one layer of width one, not {layers} of {width}")
    return Model("mlp", tuple(Layer(f"layer {i + 1}", width * width, 2.0 * width * width) for i in range(layers)))


def alexnet() -> Model:
    """Krizhevsky et al., with its two groups."""
    picture = Pictures(3, 227)
    picture.convolve("conv1", 96, 11, 4, 0).pool(3, 2)
    picture.convolve("conv2", 256, 5, groups=2).pool(3, 2)
    picture.convolve("conv3", 384, 3).convolve("conv4", 384, 3, groups=2).convolve("conv5", 256, 3, groups=2)
    picture.pool(3, 2).connect("fc6", 4096).connect("fc7", 4096).connect("fc8", CLASSES)
    return Model("alexnet", tuple(picture.layers))


def vgg(name: str) -> Model:
    """Simonyan and Zisserman."""
    picture = Pictures(3, IMAGE_PIXELS)
    for stage, (channels, convolutions) in enumerate(zip((64, 128, 256, 512, 512), VGGS[name], strict=True), 1):
        for number in range(1, convolutions + 1):
            picture.convolve(f"conv{stage}-{number}", channels, 3)
        picture.pool(2, 2)
    picture.connect("fc6", 4096).connect("fc7", 4096).connect("fc8", CLASSES)
    return Model(name, tuple(picture.layers))


def googlenet() -> Model:
    """Szegedy et al., with the two auxiliary classifiers of training."""
    picture = Pictures(3, IMAGE_PIXELS)
    picture.convolve("conv1", 64, 7, 2).pool(3, 2, is_ceiled=True)
    picture.convolve("conv2-reduce", 64, 1).convolve("conv2", 192, 3).pool(3, 2, is_ceiled=True)
    for name, widths in INCEPTIONS.items():
        _inception(picture, name, widths)
        if name in ("4a", "4d"):
            _auxiliary(picture, f"auxiliary-{name}")
        if name in ("3b", "4e"):
            picture.pool(3, 2, is_ceiled=True)
    picture.pool(picture.pixels, 1).connect("fc", CLASSES)
    return Model("googlenet", tuple(picture.layers))


def _inception(picture: Pictures, name: str, widths: tuple[int, ...]) -> None:
    one, three_reduce, three, five_reduce, five, pooled = widths
    picture.branches(
        lambda p: p.convolve(f"{name}-1x1", one, 1),
        lambda p: p.convolve(f"{name}-3x3-reduce", three_reduce, 1).convolve(f"{name}-3x3", three, 3),
        lambda p: p.convolve(f"{name}-5x5-reduce", five_reduce, 1).convolve(f"{name}-5x5", five, 5),
        lambda p: p.convolve(f"{name}-pool", pooled, 1),
    )


def _auxiliary(picture: Pictures, name: str) -> None:
    channels, pixels = picture.channels, picture.pixels
    picture.pool(5, 3).convolve(f"{name}-conv", 128, 1)
    picture.connect(f"{name}-fc1", 1024).connect(f"{name}-fc2", CLASSES)
    picture.channels, picture.pixels = channels, pixels


def resnet(name: str) -> Model:
    """He et al., table 1; the stride of a stage is in its 3x3 convolution, as in most implementations since."""
    has_bottleneck, blocks = RESNETS[name]
    picture = Pictures(3, IMAGE_PIXELS)
    picture.convolve("conv1", 64, 7, 2, is_normalized=True).pool(3, 2, 1)
    for stage, (width, count) in enumerate(zip((64, 128, 256, 512), blocks, strict=True), 2):
        for number in range(count):
            stride = 2 if stage > 2 and number == 0 else 1
            _residual(picture, f"conv{stage}-{number + 1}", width, stride, has_bottleneck)
    picture.pool(picture.pixels, 1).connect("fc", CLASSES)
    return Model(name, tuple(picture.layers))


def _residual(picture: Pictures, name: str, width: int, stride: int, has_bottleneck: bool) -> None:
    channels, pixels = picture.channels, picture.pixels
    outputs = 4 * width if has_bottleneck else width
    if has_bottleneck:
        picture.convolve(f"{name}-a", width, 1, is_normalized=True)
        picture.convolve(f"{name}-b", width, 3, stride, is_normalized=True)
        picture.convolve(f"{name}-c", outputs, 1, is_normalized=True)
    else:
        picture.convolve(f"{name}-a", width, 3, stride, is_normalized=True)
        picture.convolve(f"{name}-b", width, 3, is_normalized=True)
    if stride > 1 or channels != outputs:
        picture.channels, picture.pixels = channels, pixels
        picture.convolve(f"{name}-shortcut", outputs, 1, stride, is_normalized=True)


def bert(name: str) -> Model:
    """Devlin et al.: the encoder with its embeddings and pooler, samples of 128 tokens."""
    blocks, width = BERTS[name]
    embeddings = (VOCABULARY + POSITIONS + 2 + 2) * width  # words, positions, segments, a normalization
    layers = [Layer("embeddings", embeddings, 0.0)]
    for number in range(1, blocks + 1):
        attention, forward = 4 * width * width, 8 * width * width
        scores = 2 * SEQUENCE * width  # query by key, and weights by value
        layers += [
            Layer(f"{number}-attention", attention + 4 * width + 2 * width, 2.0 * SEQUENCE * (attention + scores)),
            Layer(f"{number}-feed-forward", forward + 5 * width + 2 * width, 2.0 * SEQUENCE * forward),
        ]
    layers.append(Layer("pooler", width * width + width, 2.0 * width * width))
    return Model(name, tuple(layers))


MODELS: dict[str, Callable[[], Model]] = {
    "alexnet": alexnet,
    "googlenet": googlenet,
    **{name: partial(vgg, name) for name in VGGS},
    **{name: partial(resnet, name) for name in RESNETS},
    **{name: partial(bert, name) for name in BERTS},
    **{name: partial(decoder, name) for name in TEXTS},
    **{name: partial(vision, name) for name in VISIONS},
}


def model_of(name: str, layers: int = 20, width: int = 2048) -> Model:
    """A model by name: `mlp` (of `layers` and `width`), one of MODELS, or `package.module:callable` for a torch module
    (with the shape of its input after an `@`, such as `torchvision.models:resnet18@3x224x224`).

    Raises UsageError that lists the names.
    """
    if name == "mlp":
        return mlp(layers, width)
    if name in MODELS:
        return MODELS[name]()
    if ":" in name:
        from netfold_lab.plan.models.modules import model_of_module

        return model_of_module(name)
    raise UsageError(f"--model must be mlp, {', '.join(MODELS)} or package.module:callable@SHAPE, not {name}")
