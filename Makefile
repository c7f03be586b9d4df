# make demo: set up and run the main job on a real model.   make test: set up and pass all tests.
# Every target sets up what it needs in VENV first, and only when pyproject.toml or the C sources
# changed since.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BUILD_INPUTS := pyproject.toml CMakeLists.txt $(wildcard runtime/*.[ch])
WORKERS ?= auto
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: setup demo test test-gpu lint bench clean

setup: $(VENV)/.stamp-dev

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.stamp-dev: $(BUILD_INPUTS) | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@ $(VENV)/.stamp-demo

# The demo needs far fewer packages than the tests.
$(VENV)/.stamp-demo: $(BUILD_INPUTS) | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e '.[onnx]'
	touch $@

# ResNet-50 as it lies in the onnx package.
DEMO_MODEL = $(shell $(BIN)/python -c 'import onnx, os; print(os.path.dirname(onnx.__file__))')/backend/test/data/light/light_resnet50.onnx

demo: $(VENV)/.stamp-demo
	mkdir -p build
	stepwell compile $(DEMO_MODEL) -o build/resnet50.stepwell
	stepwell inspect build/resnet50.stepwell
	stepwell run build/resnet50.stepwell --random-inputs 0
	stepwell bench build/resnet50.stepwell

# Threads of numpy's that wait for work would keep the other worker from its processor.
test: export OPENBLAS_NUM_THREADS ?= 1
# The compiler starts some hundred times.
test: export PYTHONDONTWRITEBYTECODE :=
test: setup
	lit -s test
	python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart=0

# With an NVIDIA GPU: models and kernels against the CPU, and the tests of kernels that `make test` runs
# on the emulator.
ON_GPU = device repeated_calls open_sizes_on_gpus torch_on_gpus warpgroup stream_k tensor_core split_f32 float8 attention warpgroup_attention \
  contraction_tiles grouped_convolutions grouped_products rounded_on_tensor_cores quantized \
  reduction_forms grid_scans sorts transposes
test-gpu: setup
	STEPWELL_TEST_GPU=1 python -m pytest $(ON_GPU:%=test/gpu/test_%.py)

lint: setup build/typecheck
	ruff check .
	ruff format --check .
	pyright

# The package as pyright should see it: dialects/, passes/ and tools/ stand outside python/stepwell.
.PHONY: build/typecheck
build/typecheck:
	@rm -rf $@ && mkdir -p $@/stepwell
	@for path in python/stepwell/* dialects passes tools; do \
	  ln -s ../../../$$path $@/stepwell/$$(basename $$path); \
	done

bench: setup
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	python -m benchmarks.run
	python -m benchmarks.report

# On a machine with a compiler and a GPU; else build here, carry the folder there, and measure.
.PHONY: bench-gpu
bench-gpu: setup
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	python -m benchmarks.gpu.build build/bench-gpu
	python -m benchmarks.gpu.measure build/bench-gpu

clean:
	rm -rf build $(VENV)
