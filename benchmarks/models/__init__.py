"""The benchmark's models: real architectures with seeded weights, made once into the user's cache.

`python -m benchmarks.models [NAME ...]` makes them. Each model is a file that compilers read (ONNX,
or a StableHLO portable artifact for JAX), an .npz of inputs and float64 reference outputs, and a
.json of facts. `catalog` lists them; making them needs torch, transformers and jax.
"""
