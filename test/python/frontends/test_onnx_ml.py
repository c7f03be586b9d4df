"""Operators of ai.onnx.ml against onnxruntime, on seeded random models.

Labels and choices must be equal; scores may differ by the order of float32 sums.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import stepwell
from stepwell.errors import UnsupportedError

RTOL = 2e-5
"""Sums of up to a hundred float32 terms, and exponentials of them."""

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def _model(
    node: onnx.NodeProto, feed: dict[str, np.ndarray], outputs: list[int], version: int = 3
) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node],
        "ml",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feed.items()
        ],
        [helper.make_tensor_value_info(f"y{i}", code, None) for i, code in enumerate(outputs)],
    )
    domains = [helper.make_opsetid("ai.onnx.ml", version), helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


def _check(
    node: onnx.NodeProto, x: np.ndarray, outputs: list[int], version: int = 3, **more: np.ndarray
) -> None:
    feed = {"x": x, **more}
    model = _model(node, feed, outputs, version)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = session.run(None, feed)
    results = stepwell.compile(model, threads=1, options={"progress": False}).run(feed)
    for i, value in enumerate(wanted):
        result = results[f"y{i}"]
        assert result.dtype == value.dtype
        np.testing.assert_allclose(result, value, rtol=RTOL, atol=1e-6)


def _node(
    name: str, outputs: int = 1, inputs: tuple[str, ...] = ("x",), **attributes
) -> onnx.NodeProto:
    names = [f"y{i}" for i in range(outputs)]
    return helper.make_node(name, list(inputs), names, domain="ai.onnx.ml", **attributes)


def _forest(rng: np.random.Generator, trees: int, targets: int, role: str, low: float) -> dict:
    """Random trees of depth up to five; every leaf speaks of one or two targets."""
    nodes: dict[str, list] = {
        key: [] for key in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids",
                            "falsenodeids", "missing_value_tracks_true")
    }  # fmt: skip
    leaves: dict[str, list] = {key: [] for key in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        count = 0

        def grow(depth: int, tree: int = tree) -> int:
            nonlocal count
            own, count = count, count + 1
            is_leaf = depth == 5 or (depth > 1 and rng.random() < 0.3)
            position = len(nodes["nodeids"])
            mode = rng.choice(["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"])
            row = (tree, own, int(rng.integers(0, 4)), float(rng.standard_normal()),
                   "LEAF" if is_leaf else str(mode), 0, 0, int(rng.integers(0, 2)))  # fmt: skip
            for key, value in zip(nodes, row, strict=True):
                nodes[key].append(value)
            if is_leaf:
                for target in rng.choice(targets, min(targets, 2), replace=False):
                    row = (tree, own, int(target), float(rng.uniform(low, 1)))
                    for key, value in zip(leaves, row, strict=True):
                        leaves[key].append(value)
            else:
                nodes["truenodeids"][position] = grow(depth + 1)
                nodes["falsenodeids"][position] = grow(depth + 1)
            return own

        grow(0)
    return {f"nodes_{k}": v for k, v in nodes.items()} | {
        f"{role}_{k}": v for k, v in leaves.items()
    }


def _rows(rng: np.random.Generator) -> np.ndarray:
    x = rng.standard_normal((37, 4)).astype(np.float32)
    x[3, 1] = np.nan
    return x


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_tree_regressor(aggregate: str, targets: int) -> None:
    rng = np.random.default_rng(targets)
    node = _node(
        "TreeEnsembleRegressor",
        n_targets=targets,
        aggregate_function=aggregate,
        base_values=[0.25] * targets,
        **_forest(rng, 7, targets, "target", -1),
    )
    _check(node, _rows(rng), [FLOAT])


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize(("classes", "low"), [(2, 0), (2, -1), (3, -1)])
def test_tree_classifier(transform: str, classes: int, low: float) -> None:
    """Two classes share one score, which decides by its sign, or is a probability."""
    rng = np.random.default_rng(classes)
    scores = 1 if classes == 2 else classes
    attributes = _forest(rng, 5, scores, "class", low)
    if low == 0:
        attributes["class_weights"] = [w / 5 for w in attributes["class_weights"]]
    labels = [10 * i + 5 for i in range(classes)]
    node = _node(
        "TreeEnsembleClassifier",
        2,
        classlabels_int64s=labels,
        post_transform=transform,
        **attributes,
    )
    _check(node, _rows(rng), [INT64, FLOAT])


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX"])
def test_linear_regressor(transform: str) -> None:
    rng = np.random.default_rng(0)
    node = _node(
        "LinearRegressor",
        coefficients=rng.standard_normal(12).tolist(),
        intercepts=[0.5, -1.0, 2.0],
        targets=3,
        post_transform=transform,
    )
    _check(node, rng.standard_normal((9, 4)).astype(np.float32), [FLOAT])


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 4])
def test_linear_classifier(transform: str, classes: int) -> None:
    rng = np.random.default_rng(classes)
    node = _node(
        "LinearClassifier",
        2,
        coefficients=rng.standard_normal(4 * classes).tolist(),
        intercepts=rng.standard_normal(classes).tolist(),
        classlabels_ints=[7, 3, 5, 1][:classes],
        post_transform=transform,
    )
    _check(node, rng.standard_normal((9, 4)).astype(np.float32), [INT64, FLOAT])


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(kernel: str, one_class: int) -> None:
    rng = np.random.default_rng(1)
    node = _node(
        "SVMRegressor",
        kernel_type=kernel,
        kernel_params=[0.3, 0.1, 3.0],
        n_supports=5,
        support_vectors=rng.standard_normal(20).tolist(),
        coefficients=rng.standard_normal(5).tolist(),
        rho=[0.2],
        one_class=one_class,
    )
    _check(node, rng.standard_normal((9, 4)).astype(np.float32), [FLOAT])


def _svm(classes: int, kernel: str = "RBF", probabilities: bool = False, **more: object) -> dict:
    rng = np.random.default_rng(classes)
    counts = [2, 3, 1, 4][:classes]
    pairs = classes * (classes - 1) // 2
    attributes = {
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.1, 3.0],
        "classlabels_ints": [7, 3, 5, 1][:classes],
        "vectors_per_class": counts,
        "support_vectors": rng.standard_normal(4 * sum(counts)).tolist(),
        "coefficients": rng.standard_normal((classes - 1) * sum(counts)).tolist(),
        "rho": rng.standard_normal(pairs).tolist(),
    }
    if probabilities:
        attributes["prob_a"] = rng.uniform(-3, -1, pairs).tolist()
        attributes["prob_b"] = rng.uniform(-1, 1, pairs).tolist()
    return {**attributes, **more}


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("classes", [2, 4])
def test_svm_classifier(kernel: str, probabilities: bool, classes: int) -> None:
    node = _node("SVMClassifier", 2, **_svm(classes, kernel, probabilities))
    x = np.random.default_rng(0).standard_normal((19, 4)).astype(np.float32)
    _check(node, x, [INT64, FLOAT])


@pytest.mark.parametrize("transform", ["LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize(("classes", "probabilities"), [(2, True), (3, True), (2, False)])
def test_svm_classifier_transforms(transform: str, classes: int, probabilities: bool) -> None:
    attributes = _svm(classes, probabilities=probabilities, post_transform=transform)
    if transform == "PROBIT" and not probabilities:
        pytest.skip("leaves a score open, and is refused")
    x = np.random.default_rng(0).standard_normal((19, 4)).astype(np.float32)
    _check(_node("SVMClassifier", 2, **attributes), x, [INT64, FLOAT])


@pytest.mark.parametrize("probabilities", [False, True])
def test_svm_classifier_of_no_rows(probabilities: bool) -> None:
    node = _node("SVMClassifier", 2, **_svm(3, probabilities=probabilities))
    _check(node, np.zeros((0, 4), np.float32), [INT64, FLOAT])


def test_svm_classifier_refuses_what_does_not_fit() -> None:
    node = _node("SVMClassifier", 2, **_svm(3))
    x = np.zeros((2, 4, 4), np.float32)
    with pytest.raises(UnsupportedError, match="neither a row nor a matrix of rows"):
        stepwell.compile(_model(node, {"x": x}, [INT64, FLOAT]))
    with pytest.raises(UnsupportedError, match="do not fit 6 vectors of 5 and 3 classes"):
        stepwell.compile(_model(node, {"x": x[:, 0, :1].repeat(5, 1)}, [INT64, FLOAT]))


@pytest.mark.parametrize("low", [-1, 0])
@pytest.mark.parametrize("classes", [1, 2, 3])
@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_linear_svm_classifier(low: int, classes: int, kind: type) -> None:
    rng = np.random.default_rng(classes)
    node = _node(
        "SVMClassifier",
        2,
        kernel_params=[0.0, 0.0, 0.0],
        classlabels_ints=[7, 3, 5][:classes],
        coefficients=rng.uniform(low, 1, 4 * classes).tolist(),
        rho=[0.25],
    )
    _check(node, rng.uniform(-3, 3, (9, 4)).astype(kind), [INT64, FLOAT])


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    x = np.random.default_rng(2).standard_normal((5, 6)).astype(np.float32)
    x[2] = 0
    _check(_node("Normalizer", norm=norm), x, [FLOAT])


def test_scaler_imputer_binarizer() -> None:
    x = np.random.default_rng(3).standard_normal((5, 3)).astype(np.float32)
    _check(_node("Scaler", offset=[0.5, 1.0, 1.5], scale=[2.0, 3.0, 4.0]), x, [FLOAT])
    _check(_node("Binarizer", threshold=0.3), x, [FLOAT])
    x[1, 1] = np.nan
    imputed = {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")}
    _check(_node("Imputer", **imputed), x, [FLOAT])
    integers = np.arange(6).reshape(2, 3)
    _check(_node("Imputer", imputed_value_int64s=[9], replaced_value_int64=4), integers, [INT64])


def test_array_feature_extractor() -> None:
    x = np.random.default_rng(4).standard_normal((2, 3, 5)).astype(np.float32)
    node = _node("ArrayFeatureExtractor", inputs=("x", "i"))
    _check(node, x, [FLOAT], i=np.array([4, 0, 2]))
    _check(node, x[0, 0], [FLOAT], i=np.array([1, 1]))


def test_encoders() -> None:
    x = np.array([[1, 5], [7, 2]])
    _check(_node("OneHotEncoder", cats_int64s=[5, 1, 2]), x, [FLOAT])
    node = _node(
        "LabelEncoder", keys_int64s=[1, 2, 7], values_floats=[0.5, 1.5, 2.5], default_float=-1.0
    )
    _check(node, x, [FLOAT])
    node = _node("LabelEncoder", keys_floats=[1.0, float("nan")], values_int64s=[3, 4])
    _check(node, np.array([np.nan, 1, 2], np.float32), [INT64], version=4)


def test_feature_vectorizer() -> None:
    rng = np.random.default_rng(5)
    x, z = (rng.standard_normal((4, n)).astype(np.float32) for n in (2, 3))
    node = _node("FeatureVectorizer", inputs=("x", "z"), inputdimensions=[2, 3])
    _check(node, x, [FLOAT], z=z)
