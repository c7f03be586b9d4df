"""lit: every `.mlir` file under test/ runs its `// RUN:` lines. Start it as `lit test`."""

import os
import sys
from pathlib import Path

import lit.formats

config.name = "stepwell"  # noqa: F821
config.test_format = lit.formats.ShTest()  # noqa: F821
config.suffixes = [".mlir"]  # noqa: F821
config.excludes = ["Output", "Inputs", "python", "conformance", "runtime"]  # noqa: F821
config.test_source_root = str(Path(__file__).parent)  # noqa: F821
config.test_exec_root = str(Path(__file__).parents[1] / "build" / "lit")  # noqa: F821

# The tools of the environment lit itself was started from come first.
tools = str(Path(sys.executable).parent)
config.environment["PATH"] = os.pathsep.join([tools, os.environ["PATH"]])  # noqa: F821
for name in ("XDG_CACHE_HOME", "HOME"):
    if name in os.environ:
        config.environment[name] = os.environ[name]  # noqa: F821
