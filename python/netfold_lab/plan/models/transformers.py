"""Transformers: encoders and decoders of text, and vision transformers, from their published sizes.

Operations are those of one sample: two for each weight and token, and the products of attention. A decoder's attention
reads half of the tokens on average.

Bytes that are kept for the backward pass, for each of the s b h elements of a block in bf16, with flash attention,
and divided by a group with sequence parallelism. GPT (Korthikanti et al., section 4.1): attention 11, feed-forward
part 19, 2 for each normalization. Llama has no dropout, fewer keys and values, and three matrices: inputs of the
normalization, of the matrices, queries and the result of attention 2 each, keys and values 2 for each head of theirs;
feed-forward, the inputs of the normalization and of the matrices, the gate, what it multiplies, and the product.

Bytes that a forward pass reads and writes beside matrix products: 2 for each element of each tensor of an operation in
bf16, 1 for the mask of a dropout. A normalization takes 4, an addition 6 (with dropout 7), GELU or the product with the
gate 4 or 6 for each element of the inner width, the rotation of positions 4 for each query and key. Operations are
fused as Megatron-LM fuses them (Narayanan et al., section 4.2).

Software of 2021 had neither flash attention nor sequence parallelism. It computed and stored the scores of all pairs of
tokens: softmax reads and writes 4 bytes of each, dropout 5. Each GPU of a group normalized, dropped out and added all
elements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from netfold_lab.plan.models.layers import Layer, Model


@dataclass(frozen=True)
class Text:
    """A decoder: blocks, width, heads, heads of keys and values, width of the feed-forward part, vocabulary, tokens of
    a sample. `is_gated`: the feed-forward part has a third matrix, matrices have no biases, the output has weights of
    its own (Llama); else positions are learned and the output is the embedding (GPT-2). `experts`: feed-forward parts
    of a block, of which each token takes `chosen`."""

    blocks: int
    width: int
    heads: int
    key_heads: int
    inner: int
    vocabulary: int
    tokens: int
    is_gated: bool
    experts: int = 0
    chosen: int = 0


NORMALIZED, ADDED, DROPPED, ROTATED = 4.0, 6.0, 1.0, 4.0  # bytes moved for each element
GELU, GATE = 4.0, 6.0  # for each element of the inner width
SCORED = 9.0  # for each score of attention, in software of 2021
_MEGATRON = {  # Narayanan et al., table 1: blocks, width, heads
    "1.7b": (24, 2304, 24),
    "3.6b": (30, 3072, 32),
    "7.5b": (36, 4096, 32),
    "18b": (40, 6144, 48),
    "39b": (48, 8192, 64),
    "76b": (60, 10240, 80),
    "145b": (80, 12288, 96),
    "310b": (96, 16384, 128),
    "530b": (105, 20480, 128),
    "1t": (128, 25600, 160),
}
TEXTS = {
    # Radford et al., 2019; parameters as in the released weights
    "gpt2": Text(12, 768, 12, 12, 3072, 50257, 1024, False),
    "gpt2-medium": Text(24, 1024, 16, 16, 4096, 50257, 1024, False),
    "gpt2-large": Text(36, 1280, 20, 20, 5120, 50257, 1024, False),
    "gpt2-xl": Text(48, 1600, 25, 25, 6400, 50257, 1024, False),
    # Brown et al., 2020, table 2.1
    "gpt3": Text(96, 12288, 96, 96, 49152, 50257, 2048, False),
    **{
        f"megatron-{name}": Text(blocks, width, heads, heads, 4 * width, 51200, 2048, False)
        for name, (blocks, width, heads) in _MEGATRON.items()
    },
    # "The Llama 3 Herd of Models", table 3
    "llama3-8b": Text(32, 4096, 32, 8, 14336, 128256, 8192, True),
    "llama3-70b": Text(80, 8192, 64, 8, 28672, 128256, 8192, True),
    "llama3-405b": Text(126, 16384, 128, 8, 53248, 128256, 8192, True),
    # Jiang et al., "Mixtral of Experts", table 1, and the released weights; samples of 4096 tokens
    "mixtral-8x7b": Text(32, 4096, 32, 8, 14336, 32000, 4096, True, 8, 2),
    "mixtral-8x22b": Text(56, 6144, 48, 8, 16384, 32000, 4096, True, 8, 2),
}
# Dosovitskiy et al., table 1: blocks, width, pixels of a patch's side; pictures of 224 pixels
VISIONS = {"vit-b16": (12, 768, 16), "vit-l16": (24, 1024, 16), "vit-h14": (32, 1280, 14)}
PIXELS, CHANNELS, CLASSES = 224, 3, 1000


def decoder(name: str, is_of_2021: bool = False) -> Model:
    """A model of text by name. `is_of_2021`: what GPT computed and moved with the software of that year."""
    told = TEXTS[name]
    width, tokens = told.width, told.tokens
    keys = width * told.key_heads // told.heads
    attention, inner = 2 * width * width + 2 * width * keys, (3 if told.is_gated else 2) * width * told.inner
    biases, norm = (0, width) if told.is_gated else (4 * width, 2 * width)
    products = 2 * tokens * tokens * width  # query by key and weights by value, half of each
    words = told.vocabulary * width
    sent = float(tokens * width)
    beside = NORMALIZED + ADDED + (0.0 if told.is_gated else DROPPED)
    layers = [_embeddings(told)]
    for number in range(1, told.blocks + 1):
        extra = 0 if told.is_gated else told.inner + width
        layers += [
            Layer(
                f"{number}-attention",
                attention + biases + norm,
                2.0 * tokens * attention + products,
                exchanged=sent,
                kept=8.0 + 4.0 * told.key_heads / told.heads if told.is_gated else 13.0,
                moved=beside + (ROTATED * (1 + told.key_heads / told.heads) if told.is_gated else 0.0),
            ),
            *_feed_forward(f"{number}", told, inner, extra + norm, beside),
        ]
    scored = float(tokens * told.vocabulary)
    output = norm + (words if told.is_gated else 0)
    shared = 0 if told.is_gated else words
    logits = 2.0 * tokens * words
    layers.append(
        Layer("output", output, logits, exchanged=sent, scored=scored, shared=shared, kept=4.0, moved=NORMALIZED)
    )
    return Model(
        name, tuple(_of_2021(told, each, beside) if is_of_2021 else each for each in layers), tokens, told.heads
    )


def _of_2021(told: Text, layer: Layer, beside: float) -> Layer:
    """Attention multiplies all pairs of tokens, and moves their scores."""
    found = replace(layer, moved=max(0.0, layer.moved - beside), moved_by_each=min(beside, layer.moved))
    if not layer.name.endswith("-attention"):
        return found
    other_half = 2.0 * told.tokens * told.tokens * told.width
    scores = SCORED * told.tokens * told.heads / told.width
    return replace(found, operations=layer.operations + other_half, moved=found.moved + scores)


def _embeddings(told: Text) -> Layer:
    """Words, and positions that are learned. GPT's dropout keeps a mask of a byte."""
    rows = told.vocabulary + (0 if told.is_gated else told.tokens)
    sent = float(told.tokens * told.width)
    return Layer("embeddings", rows * told.width, 0.0, exchanged=sent, kept=0.0 if told.is_gated else 1.0)


def _feed_forward(number: str, told: Text, inner: int, extra: int, beside: float) -> list[Layer]:
    """The second half of a block. `inner`: weights of one feed-forward part; `extra`: its biases and a
    normalization; `beside`: bytes moved by the latter and an addition."""
    width, tokens = told.width, told.tokens
    sent = float(tokens * width)
    moved = (GATE if told.is_gated else GELU) * told.inner / width
    if not told.experts:
        kept = 4.0 + 6.0 * told.inner / width if told.is_gated else 21.0
        operations = 2.0 * tokens * inner
        name = f"{number}-feed-forward"
        return [Layer(name, inner + extra, operations, exchanged=sent, kept=kept, moved=beside + moved)]
    router, chosen = width * told.experts, told.chosen
    weights, operations = told.experts * inner, 2.0 * tokens * chosen * inner
    return [
        Layer(f"{number}-router", router + extra, 2.0 * tokens * router),
        Layer(
            f"{number}-experts",
            weights,
            operations,
            exchanged=chosen * sent,
            experts=told.experts,
            moved=beside / chosen + moved,
        ),
    ]


def vision(name: str) -> Model:
    """A vision transformer by name."""
    blocks, width, side = VISIONS[name]
    patches, pixels = (PIXELS // side) ** 2, CHANNELS * side * side
    tokens = patches + 1
    attention, inner = 4 * width * width, 8 * width * width
    layers = [Layer("patches", pixels * width + width + (tokens + 1) * width, 2.0 * patches * pixels * width)]
    for number in range(1, blocks + 1):
        products = 4.0 * tokens * tokens * width
        layers += [
            Layer(f"{number}-attention", attention + 4 * width + 2 * width, 2.0 * tokens * attention + products),
            Layer(f"{number}-feed-forward", inner + 5 * width + 2 * width, 2.0 * tokens * inner),
        ]
    layers.append(Layer("head", 2 * width + width * CLASSES + CLASSES, 2.0 * width * CLASSES))
    return Model(name, tuple(layers))
