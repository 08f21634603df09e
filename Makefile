# Every goal does its own set-up: a virtual environment in .venv, the dependencies, the build.
# The second time, only what has changed is done again. PYTHON=python3.12 picks the interpreter.
.DELETE_ON_ERROR:
.SUFFIXES:
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= python3
, := ,
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps

# Where no GPU is meant, tests run on the emulated driver; AIOCUDA_DRIVER=nvidia runs them on a GPU.
AIOCUDA_DRIVER ?= emulated
PYTEST_ARGUMENTS ?=
# Files of tests run side by side in so many processes.
TEST_PROCESSES ?= 2

# Where there is a GPU, what compiles kernels for it comes along: NVRTC and CUDA's headers. Where there are several, NCCL.
EXTRAS := cli$(if $(wildcard /dev/nvidiactl /dev/dxg),$(,)cu13)$(if $(word 2,$(wildcard /dev/nvidia[0-9]*)),$(,)nccl)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# pip takes a package for installed that it was installing when it was interrupted. Such a package is forgotten first: it
# lacks the file that pip writes at the end.
FORGET_HALF_INSTALLED := for each in $(VENV)/lib/python*/site-packages/*.dist-info; do \
	[ -e "$$each/INSTALLER" ] || rm -rf "$$each"; done
# What decides whether the installed build is up to date. src/ is used in place; examples/mlp is copied.
BUILD_INPUTS := pyproject.toml CMakeLists.txt $(shell find cmake native emulator examples/mlp -type f \
	-not -path '*/tests/*' -not -path '*/__pycache__/*')

.PHONY: help demo serve test soak check check-python check-format-cpp check-tidy-cpp check-instructions check-cpp check-site \
	test-address test-thread docs wheels bench bench-instructions bench-growth clean

help:
	@echo "make demo    train a small network on the devices there are (a GPU, or none)"
	@echo "make serve   a server that decodes text in batches, at http://127.0.0.1:8000 (AIOCUDA_DRIVER=nvidia: on a GPU)"
	@echo "make test    the test suite, on the emulated driver (AIOCUDA_DRIVER=nvidia: on a GPU)"
	@echo "make soak    long runs: ten thousand random programs, then everything at once for ten minutes"
	@echo "make check   formatting, types, rooms, C++ unit tests under sanitizers, documentation"
	@echo "make test-address, make test-thread   the test suite with the native code under a sanitizer"
	@echo "make docs    the documentation, into build/docs/html; make check-site looks at it in a browser"
	@echo "make wheels  a wheel for each Python of this machine, each tried in an empty environment, into dist"
	@echo "make bench   the benchmarks"
	@echo "make bench-instructions   what a launch and an await cost in instructions (needs valgrind)"
	@echo "make check-instructions   whether that is more than was written down"
	@echo "make bench-growth   how that grows with what there is: streams, slices, arrays, waiters, nodes (some minutes)"
	@echo "make clean   remove all that make has made"

demo: $(STAMPS)/built
	@$(BIN)/aiocuda demo

# PORT=8001 is another port, SERVER_SIZE=small another model (examples/server/sizes.py).
serve: $(STAMPS)/built $(STAMPS)/test
	@echo "ask it: curl -N 127.0.0.1:$(or $(PORT),8000)/generate --json '{\"prompt\": [1, 2, 3], \"limit\": 20}'"
	@AIOCUDA_DRIVER=$(AIOCUDA_DRIVER) $(BIN)/python -m uvicorn --app-dir examples/server app:app --port $(or $(PORT),8000) \
	  --timeout-graceful-shutdown 30

test: $(STAMPS)/built $(STAMPS)/test $(STAMPS)/browser
	@AIOCUDA_DRIVER=$(AIOCUDA_DRIVER) $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile $(PYTEST_ARGUMENTS)

soak: $(STAMPS)/built $(STAMPS)/test
	@AIOCUDA_DRIVER=$(AIOCUDA_DRIVER) AIOCUDA_HYPOTHESIS=long $(BIN)/python -m pytest --timeout 0 tests/ordering tests/arrays tests/signature
	@AIOCUDA_DRIVER=$(AIOCUDA_DRIVER) AIOCUDA_SOAK_S=$${AIOCUDA_SOAK_S:-600} $(BIN)/python -m pytest -m soak tests/soak tests/cluster tests/hosts

check: check-python check-format-cpp check-tidy-cpp check-instructions check-cpp check-site
	@echo "make check: all passed"

check-python: $(STAMPS)/built $(STAMPS)/test $(STAMPS)/check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	AIOCUDA_DRIVER=$(AIOCUDA_DRIVER) $(BIN)/python -m pytest --quiet tests/public/test_typing.py
	$(BIN)/lint-imports

check-format-cpp: $(STAMPS)/check
	find native emulator \( -name '*.cpp' -o -name '*.hpp' \) -print0 | xargs -0 $(BIN)/clang-format --dry-run --Werror

# Unit by unit, as they are built: most of what a file takes is to read its headers. (Files that name less than they need
# are found by the public CI, which builds each by itself.)
check-tidy-cpp: $(STAMPS)/built $(STAMPS)/check
	@PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S . -B build/tidy -G Ninja --log-level=WARNING -DCMAKE_UNITY_BUILD=ON \
	  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
	  -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python" > /dev/null
	@$(BIN)/run-clang-tidy.py -quiet -j $$(nproc) -clang-tidy-binary $(CURDIR)/$(BIN)/clang-tidy \
	  -p build/tidy '/(native|emulator)/' > build/tidy.log 2> /dev/null || { cat build/tidy.log; exit 1; }

# Whether a launch or an await takes more instructions than were written down in benchmarks/instructions/held.json.
check-instructions: $(STAMPS)/built
	@if command -v valgrind > /dev/null; then $(BIN)/python benchmarks/bench_instructions.py --hold; \
	else echo "No count of instructions is held: valgrind was not found."; fi

# One sanitizer after the other: a build already uses every core. The sanitizers of older compilers
# cannot live with the wide address randomisation of newer kernels, so it is off where it can be.
check-cpp: $(STAMPS)/build
	@export PATH="$(CURDIR)/$(BIN):$$PATH"; \
	fixed=""; if setarch -R true 2>/dev/null; then fixed="setarch -R"; fi; \
	for sanitizer in address thread; do \
	  echo "C++ unit tests under the $$sanitizer sanitizer"; \
	  cmake --preset $$sanitizer --log-level=WARNING -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python"; \
	  cmake --build --preset $$sanitizer; \
	  $$fixed ctest --preset $$sanitizer --parallel $$(nproc); \
	done

# The Python suite, with the native module and the emulated driver under a sanitizer of g++, in a virtual environment of
# its own. The sanitizer's runtime must be in the process before all else. Python itself leaks by design, so leaks are
# not looked for; and where objects begin and end would be hidden by Python's own allocator. Tests ask for more memory than
# there is, which is to be an error and not the end. The flags are those of the presets for C++ unit tests.
test-address: RUNTIMES := asan ubsan
test-thread: RUNTIMES := tsan
test-address test-thread: test-%:
	@export CXX="$${CXX:-g++}"; preloaded=""; \
	for runtime in $(RUNTIMES) stdc++; do \
	  found=$$($$CXX -print-file-name=lib$$runtime.so || true); \
	  [ -e "$$found" ] || { \
	    echo "error: $$CXX has no lib$$runtime.so; make $@ needs g++ and its sanitizers." >&2; \
	    echo "       Debian and Ubuntu have both in g++; on Fedora: sudo dnf install gcc-c++ libasan libubsan libtsan" >&2; \
	    exit 1; }; \
	  preloaded="$$preloaded:$$found"; \
	done; \
	SKBUILD_BUILD_DIR=build/python-$* SKBUILD_CMAKE_BUILD_TYPE=RelWithDebInfo SKBUILD_INSTALL_STRIP=false \
	  SKBUILD_CMAKE_DEFINE="AIOCUDA_SANITIZE=$*;AIOCUDA_WARNINGS_AS_ERRORS=ON;CMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1" \
	  $(MAKE) --no-print-directory VENV=.venv-$* .venv-$*/.stamps/test; \
	fixed=""; if setarch -R true 2>/dev/null; then fixed="setarch -R"; fi; \
	AIOCUDA_DRIVER=emulated PYTHONMALLOC=malloc LD_PRELOAD="$${preloaded#:}" \
	  ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
	  TSAN_OPTIONS=halt_on_error=1:suppressions="$(CURDIR)/native/tests/thread_suppressions.txt" \
	  $$fixed .venv-$*/bin/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --timeout 1200 $(PYTEST_ARGUMENTS)

docs: $(STAMPS)/built $(STAMPS)/docs
	AIOCUDA_DRIVER=$(AIOCUDA_DRIVER) $(BIN)/sphinx-build --fail-on-warning --keep-going --quiet \
	  -b html -d build/docs/doctrees docs build/docs/html
	@echo "documentation: build/docs/html/index.html"

# In a browser: whole pages at two widths, links, pictures, light and dark, the search.
check-site: docs $(STAMPS)/test $(STAMPS)/browser
	AIOCUDA_DRIVER=$(AIOCUDA_DRIVER) AIOCUDA_SITE=build/docs/html $(BIN)/python -m pytest --quiet tests/site

wheels: $(STAMPS)/venv
	@$(BIN)/python packaging/wheels.py $(WHEEL_ARGUMENTS)

bench: $(STAMPS)/built $(STAMPS)/test
	@echo "== aiocuda bench"; AIOCUDA_DRIVER=$(AIOCUDA_DRIVER) $(BIN)/aiocuda bench
	@for benchmark in $$(find benchmarks -name 'bench_*.py' -not -name bench_instructions.py -not -name bench_growth.py | sort); do \
	  echo "== $$benchmark"; AIOCUDA_DRIVER=$(AIOCUDA_DRIVER) $(BIN)/python "$$benchmark"; \
	done

# Needs valgrind, and no device: the driver does nothing.
bench-instructions: $(STAMPS)/built
	@$(BIN)/python benchmarks/bench_instructions.py

# With BENCH_ARGUMENTS="--json PATH" it writes its figures, which benchmarks/draw_growth.py draws.
bench-growth: $(STAMPS)/built
	@$(BIN)/python benchmarks/bench_growth.py $(BENCH_ARGUMENTS)

clean:
	rm -rf $(VENV) .venv-address .venv-thread build dist docs/generated .mypy_cache .pytest_cache .ruff_cache .hypothesis \
	  .import_linter_cache
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# --- set-up ---------------------------------------------------------------------------------------

$(STAMPS)/venv:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "error: $(PYTHON) was not found; aiocuda needs Python 3.11 or newer." >&2; \
	  echo "       Name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $$($(PYTHON) --version) is too old; aiocuda needs Python 3.11 or newer." >&2; \
	  echo "       Name another with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@missing=""; packages=""; \
	version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  missing="$$missing, Python's venv module"; packages="$$packages python$$version-venv"; }; \
	$(PYTHON) -c 'import pathlib, sysconfig; pathlib.Path(sysconfig.get_path("include"), "Python.h").stat()' 2>/dev/null || { \
	  missing="$$missing, Python's C headers"; packages="$$packages python$$version-dev"; }; \
	command -v "$${CXX:-c++}" >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || { \
	  missing="$$missing, a C++ compiler ($${CXX:-c++}, g++ or clang++)"; packages="$$packages g++"; }; \
	[ -z "$$missing" ] || { \
	  echo "error: not found:$${missing#,}." >&2; \
	  echo "       On Debian and Ubuntu: sudo apt-get install$$packages" >&2; exit 1; }
	@echo "set-up: a virtual environment in $(VENV), with the dependencies"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install "pip>=25.1" # the first that reads dependency groups
	@mkdir -p $(STAMPS)
	@touch $@

# What the build itself needs, from [build-system] and the group `build`.
$(STAMPS)/build: pyproject.toml | $(STAMPS)/venv
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  > $(STAMPS)/build-requirements.txt
	@$(FORGET_HALF_INSTALLED)
	@$(PIP) install -r $(STAMPS)/build-requirements.txt --group build
	@touch $@

$(STAMPS)/test $(STAMPS)/check $(STAMPS)/docs: $(STAMPS)/%: pyproject.toml | $(STAMPS)/built
	@$(FORGET_HALF_INSTALLED)
	@$(PIP) install --group $*
	@touch $@

# For the tests of pages: the system's Chromium, else Playwright's own, else the distribution's.
$(STAMPS)/browser: | $(STAMPS)/test
	@command -v chromium chromium-browser google-chrome >/dev/null \
	  || $(BIN)/playwright install $$([ "$$(id -u)" != 0 ] || echo --with-deps) chromium \
	  || { [ "$$(id -u)" = 0 ] && apt-get install --yes --no-install-recommends chromium; } \
	  || echo "set-up: no Chromium could be installed: the tests of pages are skipped" >&2
	@touch $@

# Editable: an edited Python file is in use at once, an edited C++ file after an incremental build.
$(STAMPS)/built: $(BUILD_INPUTS) | $(STAMPS)/build
	@$(FORGET_HALF_INSTALLED)
	@$(BIN)/python cmake/build_progress.py "set-up: building aiocuda" \
	  $(BIN)/python -m pip --disable-pip-version-check install --verbose --no-build-isolation -e ".[$(EXTRAS)]"
	@touch $@
