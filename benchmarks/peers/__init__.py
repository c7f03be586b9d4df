"""The systems that are timed: one module a peer, each run in a process of its own (`worker`).

A peer's module imports its library at the top (so that this is not counted as compiling) and has
one function, `prepare(job) -> Prepared`, which loads or compiles the model. These modules need
numpy alone beside the peer's own library: a peer may live in another Python environment.
"""
