# Each target sets up what it needs by itself: a virtual environment in .venv, the dependencies,
# the package, the default model. Needed beforehand: Python 3.11 or newer, make, and a C++
# compiler; without one all but the tests works, many times slower.
#
#   make PYTHON=/path/to/python      another Python
#   make test JOBS=4                 more test processes (each may hold a model in memory)
#   make test ARGS="-k theory"       pytest options

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install -qq
JOBS ?= 2
ARGS ?=

# The package is built once and installed from its wheel. The suite runs against that wheel too,
# unpacked where PYTHONPATH finds it: a module or a data file that is missing from the wheel fails
# here, not at a user's. (Not an editable install: its import hook would go before PYTHONPATH.)
WHEEL := $(CURDIR)/build/wheel
# One thread each: several processes that each spin on both cores are ten times slower than one.
PYTEST = OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 FORERUN_UNDER_TEST="$(WHEEL)" PYTHONPATH="$(WHEEL)" \
	$(PY) -m pytest -n $(JOBS) --dist loadfile
SHIPPED := $(shell find src -name __pycache__ -prune -o -name '_native.*.so' -prune -o -print) \
	CMakeLists.txt pyproject.toml README.md LICENSE
# For what looks at the sources themselves: the style checks, and the reference they write.
FROM_SOURCE := PYTHONPATH="$(CURDIR)/src" $(PY)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test test-all test-slow fuzz sanitize sanitize-threads lint format docs judge \
	model clean
.NOTPARALLEL:

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 28

# Something to copy, with a place where the model departs from the copy.
DEMO := Repeat this text exactly, word for word: The sea is calm tonight. The tide is full, the \
	moon lies fair upon the straits; on the coast the light gleams and is gone; the cliffs stand, \
	glimmering and vast, out in the tranquil bay.

demo: $(VENV)/ready  ## one prompt, plain and speculative side by side, and who wrote each token
	$(VENV)/bin/forerun generate --compare --max-tokens 96 \
	  "$(DEMO)"

test: $(VENV)/ready-test judge model build/wheel.ready  ## style, types and all tests but the slow
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: $(VENV)/ready-test judge model build/wheel.ready  ## the slow tests alone
	$(PYTEST) -m slow $(ARGS)

test-all: test test-slow  ## everything

N ?= 20000
SEED ?= 0
fuzz: $(VENV)/ready-test build/wheel.ready  ## N=20000 damaged models of each kind (SEED=0)
	PYTHONPATH="$(WHEEL):$(CURDIR)/tests" $(PY) -m fuzz.run $(N) $(SEED)

# A sanitizer has to be in the process before all else, and the C++ library that it looks after.
# Python itself leaks by design. What was freed is withheld for a while, 256 MB of it if nothing is
# said: tests that look at memory would see that.
NATIVE_TESTS := tests/native tests/test_native.py tests/targets/test_conformance.py
ASAN_OPTIONS := detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=64
SANITIZED = LD_PRELOAD="$$($(CXX) -print-file-name=lib$(1).so) \
	$$($(CXX) -print-file-name=libstdc++.so.6)" ASAN_OPTIONS=$(ASAN_OPTIONS) \
	UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=die_after_fork=0 \
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 PYTHONPATH="$(CURDIR)/build/$(1)/package" \
	$(PY) -m pytest -n $(JOBS) -m "not slow and not model" $(NATIVE_TESTS) $(2) $(ARGS)

sanitize: build/asan/ready $(VENV)/ready-test  ## native tests under the address and undefined-behaviour sanitizers
	$(call SANITIZED,asan,tests/fuzz)

sanitize-threads: build/tsan/ready $(VENV)/ready-test  ## native tests under the thread sanitizer
	$(call SANITIZED,tsan)

lint: $(VENV)/ready-test judge  ## style, format, types, layers, sizes and words
	$(FROM_SOURCE) -m pytest tests/project $(ARGS)

format: $(VENV)/ready-test  ## put all code into the project's format
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

docs: $(VENV)/ready  ## write the reference in docs/reference anew
	$(FROM_SOURCE) -m forerun.cli.reference

judge: $(VENV)/ready-judge  ## torch (a CPU build) and transformers, which judge the reference

model: $(VENV)/ready  ## fetch the default model
	$(VENV)/bin/forerun pull smollm2

clean:  ## remove all that make made here; the model stays in the user's cache
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests tools -name __pycache__ -prune -exec rm -rf {} +

$(PY):
	@for python in $(or $(PYTHON),python3.13 python3.12 python3.11 python3 python); do \
	  if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	      >/dev/null 2>&1; then \
	    echo "Setting up $(VENV) with $$("$$python" --version)"; \
	    "$$python" -m venv --clear $(VENV); exit $$?; \
	  fi; \
	done; \
	echo "No Python 3.11 or newer with the modules venv and ensurepip was found." >&2; \
	echo "Install one (on Debian also python3-venv), or name it: make PYTHON=/path/to/python" >&2; \
	exit 1

# Order-only: a virtual environment's python is a link to one as old as the system.
$(VENV)/ready-build: pyproject.toml | $(PY)
	@$(PIP) --upgrade "pip>=25.1"
	@$(PIP) --group build
	@touch $@

# Without pip's isolation and in a folder of its own, the C++ is compiled again only where it has
# changed. In CI a warning is an error; a newer compiler's must not keep a user from building.
build/wheel.ready: $(SHIPPED) | $(VENV)/ready-build
	@rm -rf build/wheel build/dist
	@for compiler in $${CXX:-c++} g++ clang++; do \
	  command -v "$$compiler" >/dev/null && export FORERUN_COMPILED=1; done; \
	test -n "$$FORERUN_COMPILED" || { \
	  echo "No C++ compiler was found: models will run on the reference target, many times slower." >&2; \
	  echo "Install one (on Debian: g++), or name it (make CXX=...), and call make again." >&2; }; \
	echo "Compiling Forerun: about a minute."; \
	FORERUN_STRICT=$(if $(CI),ON,OFF) $(PY) -m pip wheel -qq --no-deps --no-build-isolation \
	  --config-settings=build-dir=build/cmake --wheel-dir build/dist .
	@$(PIP) --no-deps --no-index --target build/wheel build/dist/*.whl
	@touch $@

# GCC's own sanitizers: those of Clang lie elsewhere.
build/asan/ready: SANITIZERS := address,undefined,float-cast-overflow
build/tsan/ready: SANITIZERS := thread
build/%/ready: $(SHIPPED) | $(VENV)/ready-build
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake -S . -B $(@D) -G Ninja -DCMAKE_CXX_COMPILER=$(CXX) \
	  -DPython_EXECUTABLE="$(CURDIR)/$(PY)" -DFORERUN_STRICT=OFF -DFORERUN_SANITIZE=$(SANITIZERS) >/dev/null
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake --build $(@D) >$(@D)/log || { cat $(@D)/log; exit 1; }
	rm -rf $(@D)/package
	mkdir $(@D)/package
	cp -R src/forerun $(@D)/package/
	rm -f $(@D)/package/forerun/_native.*.so
	cp $(@D)/_native.*.so $(@D)/package/forerun/
	@touch $@

# The first line brings the dependencies, the second the package, also if its version is the same.
$(VENV)/ready: build/wheel.ready
	@echo "Installing it and what it needs."
	@$(PIP) build/dist/*.whl
	@$(PIP) --no-deps --no-index --force-reinstall build/dist/*.whl
	@touch $@

$(VENV)/ready-test: pyproject.toml | $(VENV)/ready
	$(PIP) --group test
	@touch $@

# Not made if it would be a CUDA build: then the judge tests do not run, and say so.
$(VENV)/ready-judge: pyproject.toml tools/judge.py | $(VENV)/ready
	@$(PY) tools/judge.py $@
