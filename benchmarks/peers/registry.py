"""Facts about the peers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ONNX = frozenset({"torch", "quantized", "pruned", "light"})
ALL = ONNX | {"jax"}


@dataclass(frozen=True)
class PeerInfo:
    """One peer. `families` of models that it reads; `reads_portable` instead of the model's own
    file; `cache` is the environment variable of a cache folder, for a second, warm start;
    `starts_pinned` when it sizes its pool by the affinity it starts with; `packages` whose
    versions are reported; `precisions` of a float32 model's products that it can be asked for."""

    module: str
    packages: tuple[str, ...]
    families: frozenset[str] = ONNX
    reads_portable: bool = False
    cache: str = ""
    starts_pinned: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    precisions: tuple[str, ...] = ("f32",)


PEERS: dict[str, PeerInfo] = {
    "stepwell": PeerInfo(
        "stepwell_peer",
        ("stepwell", "torch-mlir", "llvmlite"),
        families=ALL,
        cache="STEPWELL_CACHE_DIR",
        precisions=("f32", "bf16"),
    ),
    "onnxruntime": PeerInfo("onnxruntime_peer", ("onnxruntime",)),
    "openvino": PeerInfo("openvino_peer", ("openvino",), precisions=("f32", "bf16")),
    "eager": PeerInfo("torch_eager", ("torch", "transformers"), families=frozenset({"torch"})),
    "inductor": PeerInfo(
        "torch_inductor",
        ("torch", "transformers"),
        families=frozenset({"torch"}),
        cache="TORCHINDUCTOR_CACHE_DIR",
    ),
    "xla": PeerInfo(
        "xla",
        ("jax", "jaxlib"),
        families=ALL,
        reads_portable=True,
        starts_pinned=True,
        variables={"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"},
    ),
    "iree": PeerInfo(
        "iree_peer",
        ("iree-base-compiler", "iree-base-runtime"),
        families=ALL,
        reads_portable=True,
    ),
    "tvm": PeerInfo("tvm_peer", ("apache-tvm",)),
}
"""All peers by name; Stepwell is one of them."""
