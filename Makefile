# Every target does its own set-up: a virtual environment in .venv, the native core, the models it needs.
# Needs Python >= 3.10 (with venv and headers), a C++20 compiler and make; everything else is installed by name.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
NATIVE := CMakeLists.txt $(shell find csrc -name '*.cpp' -o -name '*.h' -o -name 'CMakeLists.txt')
PROMPT ?= Write a Python function that merges two sorted lists, with type hints and a docstring.

.PHONY: install demo check fix test bench peers clean sanitize

install: $(VENV)/.installed

$(VENV)/.tools: pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 10) and "Python %d.%d found; Outrider needs 3.10 or newer: make PYTHON=python3.x" % v[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check 'scikit-build-core>=0.11' 'nanobind>=2.9' 'cmake>=3.20' ninja
	touch $@

$(VENV)/.installed: $(VENV)/.tools $(NATIVE)
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e .
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e '.[dev]'
	touch $@

# What the tests and benchmarks compare with: transformers and torch, which nothing else needs.
$(VENV)/.reference: $(VENV)/.dev
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e '.[reference]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py '$(PROMPT)'

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fix: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(VENV)/.reference
	$(BIN)/outrider models pull smollm2-135m
	$(BIN)/python -m pytest

bench: $(VENV)/.reference peers
	$(BIN)/python -m benchmarks.run_all

peers: $(VENV)/.tools
	$(BIN)/python -m benchmarks.peers.setup

clean:
	rm -rf $(VENV) .peers build dist

# The kernels' own tests, watched for reads out of bounds, undefined behaviour and leaks.
sanitize: $(VENV)/.tools
	$(BIN)/cmake -S tests/native -B build/sanitized -DCMAKE_BUILD_TYPE=Debug \
	  -DCMAKE_CXX_FLAGS='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer'
	$(BIN)/cmake --build build/sanitized -j2
	set -e; for test in $$(build/sanitized/kernel_tests list); do echo $$test; build/sanitized/kernel_tests $$test; done
