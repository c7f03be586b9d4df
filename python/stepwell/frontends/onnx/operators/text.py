"""TfIdfVectorizer: counts of known sequences of tokens."""

from __future__ import annotations

import itertools

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import reduce
from stepwell.mlir import ir


@operator("TfIdfVectorizer")
def tf_idf_vectorizer(node: Node, x: Tensor) -> ir.Value:
    """How often each n-gram of the pool stands in every row of x, skips allowed, then weighted."""
    if not node.integers("pool_int64s", []):
        node.unsupported("its pool holds strings; only pools of integers are supported")
    if x.rank not in (1, 2):
        node.unsupported(f"the input {list(x.shape)} is neither a row nor a batch of rows")
    rows, length = (1, x.shape[0]) if x.rank == 1 else x.shape
    tokens = hlo.reshape(hlo.convert(x.value, np.int64), [rows, length])
    indexes = node.integers("ngram_indexes", [])
    counts: list[ir.Value] = []
    counted: list[int] = []
    for size, grams, places in _pool(node, indexes):
        counts.append(_count(node, tokens, size, grams))
        counted += places
    size = max(indexes) + 1
    frequencies = _placed(node, counts, counted, [rows, size])
    mode = node.text("mode", "TF")
    weights = node.numbers("weights", [])
    result = frequencies
    if mode == "IDF":
        present = hlo.compare(frequencies, hlo.full_like(frequencies, 0), "GT")
        result = hlo.convert(present, np.float32)
    elif mode not in ("TF", "TFIDF"):
        node.unsupported(f'the mode "{mode}" is not known')
    if mode != "TF" and weights:
        factors = node.constant(np.array(weights[:size], np.float32), "weights")
        result = hlo.multiply(result, hlo.broadcast_in_dim(factors, [rows, size], [1]))
    return hlo.reshape(result, [size] if x.rank == 1 else [rows, size])


def _pool(node: Node, indexes: list[int]) -> list[tuple[int, np.ndarray, list[int]]]:
    """Of each length that counts: the n-grams [count, length], and their places in the result."""
    pool, starts = node.integers("pool_int64s", []), node.integers("ngram_counts", [])
    shortest = node.integer("min_gram_length", 1)
    longest = node.integer("max_gram_length", 1)
    found: list[tuple[int, np.ndarray, list[int]]] = []
    first = 0
    for size, (start, end) in enumerate(itertools.pairwise([*starts, len(pool)]), 1):
        grams = np.array(pool[start:end], np.int64).reshape(-1, size)
        places = indexes[first : first + len(grams)]
        first += len(grams)
        if shortest <= size <= longest and len(grams):
            found.append((size, grams, places))
    return found


def _count(node: Node, tokens: ir.Value, size: int, grams: np.ndarray) -> ir.Value:
    """[rows, n-grams]: occurrences with 0, 1, ... tokens left out between neighbours."""
    rows, length = hlo.shape(tokens)
    pool = node.constant(grams, f"pool_{size}")
    skips = range(1 if size == 1 else node.integer("max_skip_count", 0) + 1)
    total = hlo.full(0, [rows, len(grams)], np.float32)
    for distance in (skip + 1 for skip in skips):
        starts = length - distance * (size - 1)
        if starts <= 0:
            break
        shape = [rows, starts, len(grams)]
        hit: ir.Value | None = None
        for i in range(size):
            token = hlo.slice(tokens, [0, i * distance], [rows, i * distance + starts])
            wanted = hlo.reshape(hlo.slice(pool, [0, i], [len(grams), i + 1]), [len(grams)])
            same = hlo.compare(
                hlo.broadcast_in_dim(token, shape, [0, 1]),
                hlo.broadcast_in_dim(wanted, shape, [2]),
                "EQ",
            )
            hit = same if hit is None else hlo.and_(hit, same)
        assert hit is not None
        total = hlo.add(total, reduce(hlo.convert(hit, np.float32), [1], "add", keep=False))
    return total


def _placed(node: Node, counts: list[ir.Value], places: list[int], shape: list[int]) -> ir.Value:
    """The columns of `counts` at `places`, added up where they are the same; the others zero."""
    if not counts:
        return hlo.full(0, shape, np.float32)
    columns = hlo.concatenate(counts, 1)
    matrix = np.zeros((len(places), shape[1]), np.float32)
    matrix[np.arange(len(places)), places] = 1
    return hlo.dot_general(columns, node.constant(matrix, "places"), ([1], [0]))
