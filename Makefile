# make demo: set up and run the main job on a real model.   make test: set up and pass all tests.
# Every target sets up what it needs in VENV first, and only when pyproject.toml or the C sources
# changed since.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BUILD_INPUTS := pyproject.toml CMakeLists.txt $(wildcard runtime/*.[ch])
WORKERS ?= auto
export PATH := $(abspath $(BIN)):$(PATH)

.PHONY: setup demo test lint bench clean

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

demo: $(VENV)/.stamp-demo
	@model=$$(python -m stepwell.tools.demo_model); \
	set -x; \
	stepwell compile $$model -o build/demo.stepwell; \
	stepwell inspect build/demo.stepwell; \
	stepwell run build/demo.stepwell --random-inputs 0; \
	stepwell bench build/demo.stepwell --per-kernel

test: setup
	lit -s test
	python -m pytest -n $(WORKERS)

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
	python benchmarks/run.py

clean:
	rm -rf build $(VENV)
