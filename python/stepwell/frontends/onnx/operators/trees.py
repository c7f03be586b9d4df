"""Decision trees of ai.onnx.ml: TreeEnsemble, TreeEnsembleRegressor, TreeEnsembleClassifier.

All trees are walked at once: the state is the node of every row in every tree, and one step
replaces each node by its child. Leaves are their own children, so that trees of any depth end
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.classification import post_transform, select_labels
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import reduce
from stepwell.mlir import ir

_DOMAIN = "ai.onnx.ml"
_MODES = ("LE", "LT", "GE", "GT", "EQ", "NE")
_MODE_NAMES = {
    "BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3, "BRANCH_EQ": 4,
    "BRANCH_NEQ": 5,
}  # fmt: skip
_MEMBER = 6
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass
class _Forest:
    """Nodes by number, inner nodes and leaves alike; a leaf's children are itself.

    `weights` has a row a node and a column a target; `reached` tells which of them a leaf sets.
    """

    features: np.ndarray
    splits: np.ndarray
    modes: np.ndarray
    children: tuple[np.ndarray, np.ndarray]
    missing_is_true: np.ndarray
    weights: np.ndarray
    reached: np.ndarray
    roots: np.ndarray

    def depth(self) -> int:
        """How many steps lead from a root to the farthest leaf."""
        nodes, steps = np.unique(self.roots), 0
        inner = self.children[1] != np.arange(self.features.size)
        inner |= self.children[0] != np.arange(self.features.size)
        while inner[nodes].any():
            if steps > self.features.size:
                return -1
            nodes = np.unique(np.concatenate([side[nodes] for side in self.children]))
            steps += 1
        return steps


def _take(table: ir.Value, indices: ir.Value) -> ir.Value:
    """`table[indices]` of a vector."""
    shape = hlo.shape(indices)
    dimensions = hlo.GatherDimensions((), (0,), (0,), len(shape))
    return hlo.gather(table, hlo.reshape(indices, [*shape, 1]), dimensions, [1])


def _leaves(node: Node, forest: _Forest, x: ir.Value) -> ir.Value:
    """The number of the leaf that each row of `x` [N, F] reaches in each tree: [N, trees]."""
    rows, features = hlo.shape(x)
    shape = [rows, forest.roots.size]
    depth = forest.depth()
    if depth < 0:
        node.unsupported("the nodes of a tree form a cycle")
    flat = hlo.reshape(x, [rows * features])
    first = hlo.multiply(hlo.iota(shape, 0, np.int32), hlo.full(features, shape, np.int32))
    roots = node.constant(forest.roots.astype(np.int32), "roots")
    start = hlo.broadcast_in_dim(roots, shape, [1])
    if not depth:
        return start

    def table(name: str, array: np.ndarray) -> ir.Value:
        return node.constant(array, name)

    feature = table("features", forest.features.astype(np.int32))
    split = table("splits", forest.splits.astype(hlo.dtype(x)))
    on_true, on_false = (
        table(name, side.astype(np.int32))
        for name, side in zip(("true", "false"), forest.children, strict=True)
    )
    modes = sorted(set(forest.modes.tolist()))
    mode = table("modes", forest.modes.astype(np.int32)) if len(modes) > 1 else None
    track = forest.missing_is_true.any()
    missing = table("missing", forest.missing_is_true) if track else None

    def step(index: ir.Value) -> ir.Value:
        value = _take(flat, hlo.add(first, _take(feature, index)))
        limit = _take(split, index)
        holds = hlo.compare(value, limit, _MODES[modes[0]])
        for code in modes[1:]:
            assert mode is not None
            here = hlo.compare(_take(mode, index), hlo.full(code, shape, np.int32), "EQ")
            holds = hlo.select(here, hlo.compare(value, limit, _MODES[code]), holds)
        if missing is not None:
            nan = hlo.compare(value, value, "NE")
            holds = hlo.or_(holds, hlo.and_(nan, _take(missing, index)))
        return hlo.select(holds, _take(on_true, index), _take(on_false, index))

    def more(count: ir.Value, index: ir.Value) -> ir.Value:
        return hlo.compare(count, hlo.full(depth, [], np.int32), "LT")

    def body(count: ir.Value, index: ir.Value) -> Sequence[ir.Value]:
        return [hlo.add(count, hlo.full(1, [], np.int32)), step(index)]

    return hlo.while_loop([hlo.full(0, [], np.int32), start], more, body)[1]


def _scores(node: Node, forest: _Forest, x: Tensor, aggregate: str) -> ir.Value:
    """[N, targets]: the weights of the leaves reached, summed (averaged) or their least, greatest.

    Targets that no reached leaf speaks of get 0.
    """
    kind = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    value = hlo.convert(x.value, kind)
    if x.rank == 1:
        value = hlo.reshape(value, [1, *x.shape])
    leaves = _leaves(node, forest, value)
    rows, trees = hlo.shape(leaves)
    targets = forest.weights.shape[1]
    indices = hlo.reshape(leaves, [rows, trees, 1])
    dimensions = hlo.GatherDimensions((2,), (0,), (0,), 2)

    def gathered(table: np.ndarray, role: str) -> ir.Value:
        return hlo.gather(node.constant(table, role), indices, dimensions, [1, targets])

    if aggregate in ("SUM", "AVERAGE"):
        total = reduce(gathered(forest.weights.astype(kind), "weights"), [1], "add", keep=False)
        if aggregate == "SUM":
            return total
        return hlo.divide(total, hlo.full_like(total, trees))
    combine, absent = ("minimum", np.inf) if aggregate == "MIN" else ("maximum", -np.inf)
    weights = np.where(forest.reached, forest.weights, absent).astype(kind)
    extreme = reduce(gathered(weights, "weights"), [1], combine, keep=False)
    nothing = hlo.compare(extreme, hlo.full_like(extreme, absent), "EQ")
    return hlo.select(nothing, hlo.full_like(extreme, 0), extreme)


# --- TreeEnsemble --------------------------------------------------------------------------------


@operator("TreeEnsemble", since=5, domain=_DOMAIN)
def tree_ensemble(node: Node, x: Tensor) -> ir.Value:
    """Any number of regression trees; set membership becomes a chain of equalities."""
    forest = _read_ensemble(node)
    aggregate = _AGGREGATES[node.integer("aggregate_function", 1)]
    scores = _scores(node, forest, x, aggregate)
    transform = _TRANSFORMS[node.integer("post_transform", 0)]
    return hlo.convert(post_transform(scores, transform), x.dtype)


def _read_ensemble(node: Node) -> _Forest:
    modes, splits = node.array("nodes_modes"), node.array("nodes_splits")
    leaf_weights = node.array("leaf_weights")
    if modes is None or splits is None or leaf_weights is None:
        node.unsupported("nodes_modes, nodes_splits and leaf_weights have to be given")
    count = modes.size

    def integers(name: str) -> np.ndarray:
        return np.array(node.integers(name, [0] * count), np.int64)

    # Inner nodes first, then the leaves; links of set membership are appended after them.
    number = {False: 0, True: count}
    sides = [
        np.array(
            [n + number[bool(leaf)] for n, leaf in zip(integers(ids), integers(leafs), strict=True)]
        )
        for ids, leafs in (
            ("nodes_truenodeids", "nodes_trueleafs"),
            ("nodes_falsenodeids", "nodes_falseleafs"),
        )
    ]
    leaves = leaf_weights.size
    own = np.arange(count, count + leaves)
    features = np.concatenate([integers("nodes_featureids"), np.zeros(leaves, np.int64)])
    forest = _Forest(
        features,
        np.concatenate([splits.astype(np.float64), np.zeros(leaves)]),
        np.concatenate([modes.astype(np.int64), np.zeros(leaves, np.int64)]),
        (np.concatenate([sides[0], own]), np.concatenate([sides[1], own])),
        np.concatenate([integers("nodes_missing_value_tracks_true") > 0, np.zeros(leaves, bool)]),
        np.zeros((0, 0)),
        np.zeros((0, 0), bool),
        np.array(node.integers("tree_roots", [0]), np.int64),
    )
    _expand_membership(node, forest, count)
    targets = np.array(node.integers("leaf_targetids", [0] * leaves), np.int64)
    shape = (forest.features.size, node.integer("n_targets", 1))
    forest.weights, forest.reached = np.zeros(shape), np.zeros(shape, bool)
    forest.weights[own, targets] = leaf_weights
    forest.reached[own, targets] = True
    return forest


def _expand_membership(node: Node, forest: _Forest, count: int) -> None:
    """x in {a, b} becomes x == a, else x == b."""
    members = np.flatnonzero(forest.modes[:count] == _MEMBER)
    if not members.size:
        return
    values = node.array("membership_values")
    if values is None or np.isnan(values).sum() != members.size:
        node.unsupported("membership_values has to hold a set for every membership node")
    ends = np.flatnonzero(np.isnan(values))
    begins = [0, *(ends[:-1] + 1)]
    # The sets stand in the order of a walk from the roots, true branches first.
    for index, begin, end in zip(_membership_order(forest, members), begins, ends, strict=True):
        members_of_node = values[begin:end].astype(np.float64)
        if not members_of_node.size:
            node.unsupported("a membership node has an empty set")
        extra = members_of_node.size - 1
        new = forest.features.size + np.arange(extra)
        links = [index, *new]
        on_true, on_false = (side[index] for side in forest.children)
        forest.features = np.append(forest.features, [forest.features[index]] * extra)
        forest.missing_is_true = np.append(
            forest.missing_is_true, [forest.missing_is_true[index]] * extra
        )
        forest.splits = np.append(forest.splits, np.zeros(extra))
        forest.modes = np.append(forest.modes, np.zeros(extra, np.int64))
        on, off = (np.append(side, np.zeros(extra, np.int64)) for side in forest.children)
        forest.children = (on, off)
        forest.splits[links] = members_of_node
        forest.modes[links] = _MODES.index("EQ")
        forest.children[0][links] = on_true
        forest.children[1][links] = [*new, on_false]


def _membership_order(forest: _Forest, members: np.ndarray) -> list[int]:
    found: list[int] = []
    wanted = set(members.tolist())
    for root in forest.roots.tolist():
        stack = [root]
        while stack:
            index = stack.pop()
            if index in wanted:
                found.append(index)
            following = [int(side[index]) for side in forest.children]
            if following[0] != index or following[1] != index:
                stack += reversed(following)
    return found


# --- The older operators -------------------------------------------------------------------------


def _read_nodes(node: Node, role: str, targets: int) -> _Forest:
    """The attributes `nodes_*`, and the leaves' `role`: target or class."""
    trees, ids = (node.integers(f"nodes_{name}", []) for name in ("treeids", "nodeids"))
    number = {key: i for i, key in enumerate(zip(trees, ids, strict=True))}
    texts = {a.name: [s.decode() for s in a.strings] for a in node.proto.attribute}
    names, count = texts.get("nodes_modes", []), len(ids)
    is_leaf = np.array([name == "LEAF" for name in names])
    unknown = sorted({n for n in names if n not in _MODE_NAMES} - {"LEAF"})
    if unknown or len(names) != count:
        node.unsupported(f"nodes_modes {unknown or 'of another length'} cannot be read")
    sides = []
    for name in ("nodes_truenodeids", "nodes_falsenodeids"):
        links = zip(trees, node.integers(name, [0] * count), is_leaf, strict=True)
        sides.append(
            np.array([i if leaf else number[tree, n] for i, (tree, n, leaf) in enumerate(links)])
        )
    roots = [min(i for i, t in enumerate(trees) if t == tree) for tree in dict.fromkeys(trees)]
    weights, reached = np.zeros((count, targets)), np.zeros((count, targets), bool)
    for tree, leaf, target, weight in zip(
        node.integers(f"{role}_treeids", []),
        node.integers(f"{role}_nodeids", []),
        node.integers(f"{role}_ids", []),
        _numbers(node, f"{role}_weights", []),
        strict=True,
    ):
        weights[number[tree, leaf], target] += weight
        reached[number[tree, leaf], target] = True
    missing = node.integers("nodes_missing_value_tracks_true", [0] * count)
    return _Forest(
        np.where(is_leaf, 0, np.array(node.integers("nodes_featureids", [0] * count), np.int64)),
        np.array(_numbers(node, "nodes_values", [0.0] * count)),
        np.array([_MODE_NAMES.get(name, _MODE_NAMES.get(names[0], 0)) for name in names]),
        (sides[0], sides[1]),
        np.array(missing or [0] * count) > 0,
        weights,
        reached,
        np.array(roots, np.int64),
    )


def _numbers(node: Node, name: str, default: list[float]) -> list[float]:
    """A list of floats, or of doubles in the tensor attribute of that name."""
    array = node.array(f"{name}_as_tensor")
    return node.numbers(name, default) if array is None else array.reshape(-1).tolist()


def _with_base(node: Node, scores: ir.Value) -> ir.Value:
    base = np.array(_numbers(node, "base_values", []), hlo.dtype(scores))
    if not base.size:
        return scores
    targets = hlo.shape(scores)[1]
    row = node.constant(np.broadcast_to(base, (targets,)), "base_values")
    return hlo.add(scores, hlo.broadcast_in_dim(row, hlo.shape(scores), [1]))


@operator("TreeEnsembleRegressor", domain=_DOMAIN)
def tree_ensemble_regressor(node: Node, x: Tensor) -> ir.Value:
    """float32, whatever the type of x."""
    forest = _read_nodes(node, "target", node.integer("n_targets", 1))
    scores = _scores(node, forest, x, node.text("aggregate_function", "SUM"))
    scores = hlo.convert(_with_base(node, scores), np.float32)
    return post_transform(scores, node.text("post_transform", "NONE"))


@operator("TreeEnsembleClassifier", domain=_DOMAIN)
def tree_ensemble_classifier(node: Node, x: Tensor) -> list[ir.Value]:
    """Labels and scores; two classes may share one score, that of the second."""
    labels = node.integers("classlabels_int64s", [])
    if not labels:
        node.unsupported("its class labels are strings; only integer labels are supported")
    forest = _read_nodes(node, "class", len(labels))
    scores = hlo.convert(_with_base(node, _scores(node, forest, x, "SUM")), np.float32)
    transform = node.text("post_transform", "NONE")
    ids = set(node.integers("class_ids", []))
    if len(labels) == 2 and len(ids) == 1:
        rows = hlo.shape(scores)[0]
        score = hlo.slice(scores, [0, min(ids)], [rows, min(ids) + 1])
        positive = min(_numbers(node, "class_weights", [])) >= 0
        return _binary(node, score, labels, transform, positive)
    return [select_labels(node, scores, labels), post_transform(scores, transform)]


def _binary(
    node: Node, score: ir.Value, labels: list[int], transform: str, positive: bool
) -> list[ir.Value]:
    """One score s, that of the second class. Where all weights are positive it is a probability,
    and the first class has 1 - s; else a decision, and the first class has -s."""
    threshold = hlo.full_like(score, 0.5 if positive else 0.0)
    second = hlo.compare(score, threshold, "GT")
    rows = hlo.shape(score)[0]
    choices = [hlo.full(label, [rows, 1], np.int64) for label in labels]
    label = hlo.reshape(hlo.select(second, choices[1], choices[0]), [rows])
    if transform == "PROBIT":
        return [label, post_transform(score, transform)]
    if positive and transform != "LOGISTIC":
        other = hlo.subtract(hlo.full_like(score, 1), score)
        return [label, hlo.concatenate([other, score], 1)]
    both = hlo.concatenate([hlo.negate(score), score], 1)
    return [label, post_transform(both, transform) if transform == "LOGISTIC" else both]
