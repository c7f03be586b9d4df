"""The PyTorch frontend: `torch.export.ExportedProgram` to StableHLO.

`exporting` makes any model of PyTorch an exported program of static shapes, `graph` turns its graph
into a program file (the torch dialect, and the weights beside it), and `importer` reads that file
in the compiler's process, which has no need of PyTorch. `backend` is torch.compile's.
"""
