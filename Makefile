# Every target does its own set-up: a virtual environment in .venv, the native core, the models it needs.
# Needs Python >= 3.10 (with venv and headers), a C++20 compiler and make, and `make test` Debian's Chromium; everything
# else is installed by name.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
NATIVE := CMakeLists.txt $(shell find csrc -name '*.cpp' -o -name '*.h' -o -name 'CMakeLists.txt')
PROMPT ?= Write a Python function that merges two sorted lists, with type hints and a docstring.

.PHONY: install demo check fix test bench peers clean sanitize fuzz aarch64 chromium

install: $(VENV)/.installed

$(VENV)/.tools: pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 10) and "Python %d.%d found; Outrider needs 3.10 or newer: make PYTHON=python3.x" % v[:2])'
	@echo 'Step 1 of 2, once: a virtual environment in $(VENV), and the build tools. About a minute.'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check 'scikit-build-core>=0.11' 'nanobind>=2.9' 'cmake>=3.20' ninja
	touch $@

$(VENV)/.installed: $(VENV)/.tools $(NATIVE)
	@echo 'Step 2 of 2, once: building the native core, and what Outrider needs to run. Some minutes, without a word.'
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e .
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	@echo 'Installing what checks and tests need.'
	$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation -e '.[dev]'
	touch $@

# What the tests and benchmarks compare with: transformers and torch, which nothing else needs.
$(VENV)/.reference: $(VENV)/.dev
	@echo 'Installing what the tests compare with.'
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

# The playground is tested in a browser. Root, as in a container, gets it by name; anybody else is told how to.
chromium:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -y -q --no-install-recommends chromium; } || \
	  { echo 'The playground is tested in Chromium: sudo apt-get install chromium'; exit 1; }

test: $(VENV)/.reference chromium
	$(BIN)/outrider models pull smollm2-135m
	$(BIN)/python -m pytest

bench: $(VENV)/.reference peers
	$(BIN)/python -m benchmarks.run_all

peers: $(VENV)/.dev
	$(BIN)/python -m benchmarks.peers.setup
	$(BIN)/python -m benchmarks.peers.convert qwen2.5-coder-1.5b qwen2.5-coder-0.5b

clean:
	rm -rf $(VENV) .peers build dist

# The native code's tests and the fuzz targets' corpus, watched for reads out of bounds, undefined behaviour and leaks.
WATCH    := -fno-sanitize-recover=all -fno-omit-frame-pointer -g1 -fsanitize=address,undefined
WATCHED  := build/watched
CONFIGURE = $(BIN)/cmake -S . -G Ninja -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DPython_EXECUTABLE=$(abspath $(BIN)/python) \
            -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)

sanitize: $(VENV)/.reference
	$(CONFIGURE) -B $(WATCHED) -DCMAKE_CXX_COMPILER=g++ -DCMAKE_CXX_FLAGS='$(WATCH)'
	$(BIN)/cmake --build $(WATCHED) --target _core kernel_tests fuzz_gguf fuzz_executor
	set -e; for test in $$($(WATCHED)/tests/native/kernel_tests list); do $(WATCHED)/tests/native/kernel_tests $$test; done
	set -e; for target in gguf executor; do \
	  rm -rf $(WATCHED)/$$target; $(BIN)/python -m zipfile -e tests/fuzz/corpus/$$target.zip $(WATCHED)/$$target; \
	  $(WATCHED)/tests/fuzz/fuzz_$$target $(WATCHED)/$$target/*; done
	rm -rf $(WATCHED)/site; mkdir $(WATCHED)/site; cp -r src/outrider $(WATCHED)/site; cp $(WATCHED)/_core*.so $(WATCHED)/site/outrider
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so.6)" ASAN_OPTIONS=detect_leaks=0 \
	  PYTHONPATH=$(WATCHED)/site:$$(echo $(VENV)/lib/python3*/site-packages) \
	  $(BIN)/python -S -m pytest -p no:cacheprovider --capture=sys tests/native/test_model_trees.py tests/native/test_model_errors.py \
	  tests/native/test_compressed.py tests/sampling/test_core_law.py

# Looks for inputs that the file parser or the executor mishandles, FUZZ_SECONDS each. Needs Clang with libFuzzer. What
# it finds is for the corpus, which `make sanitize` replays: add the files, `fuzz_x -merge=1` to drop what adds nothing.
FUZZ_SECONDS ?= 120
FUZZED       := build/fuzzed

fuzz: $(VENV)/.tools
	$(CONFIGURE) -B $(FUZZED) -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_CXX_FLAGS='$(WATCH),fuzzer-no-link'
	$(BIN)/cmake --build $(FUZZED) --target fuzz_gguf fuzz_executor
	set -e; for target in gguf executor; do \
	  $(BIN)/python -m zipfile -e tests/fuzz/corpus/$$target.zip $(FUZZED)/$$target; \
	  $(FUZZED)/tests/fuzz/fuzz_$$target -max_total_time=$(FUZZ_SECONDS) -max_len=700 -rss_limit_mb=2000 $(FUZZED)/$$target; done

# The kernels' tests for aarch64, with and without its dot products, on an emulator. Needs the Debian packages
# g++-aarch64-linux-gnu and qemu-user. Some six minutes of processor time, so CI does without.
EMULATED := build/aarch64

aarch64: $(VENV)/.tools
	$(BIN)/cmake -S . -B $(EMULATED) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
	  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
	  -DCMAKE_EXE_LINKER_FLAGS=-static -DPython_EXECUTABLE=$(abspath $(BIN)/python) \
	  -DPython_INCLUDE_DIR=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')
	$(BIN)/cmake --build $(EMULATED) --target kernel_tests outrider_model outrider_sampling
	set -e; for cpu in max cortex-a57; do for test in $$(qemu-aarch64 $(EMULATED)/tests/native/kernel_tests list); do \
	  qemu-aarch64 -cpu $$cpu $(EMULATED)/tests/native/kernel_tests $$test; done; done
