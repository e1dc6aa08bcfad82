# `make demo` and `make test` do all set-up themselves; `make help` lists the rest.
# Needs: make, and Python >= 3.12 on PATH or in pyenv (or PYTHON=/path/to/python3.12).

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL: # every target installs into the same virtual environment
.PHONY: environment help demo test testall lint typecheck bench sbc docs gallery paper wheel lowest constraints clean

VENV := .venv
BIN := $(VENV)/bin
CACHE := .cache
STAMPS := $(VENV)/.stamps
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Python compiles a module when it is first imported: all of them at once take 20 s or more.
INSTALL := $(PIP) install -qq --no-compile --constraint constraints.txt
SETUP := Makefile pyproject.toml constraints.txt

PYTHON ?=
DEMO_ARGS ?=
SBC_ARGS ?=
BENCH_ARGS ?=
# Tests of a file share their programs.
PYTEST_ARGS ?= -n 2 --dist loadfile
FAST := -m 'not slow'
BENCH ?= $(sort $(basename $(notdir $(wildcard tests/benchmarks/bench_*.py))))

# Everything that the tools write stays in the repository.
export TMPDIR := $(CURDIR)/$(CACHE)/tmp
export MPLCONFIGDIR := $(CURDIR)/$(CACHE)/matplotlib
export HYPOTHESIS_STORAGE_DIRECTORY := $(CURDIR)/$(CACHE)/hypothesis
export PIP_CACHE_DIR ?= $(CURDIR)/$(CACHE)/pip

help: ## show this list
	@echo "make <target>; the virtual environment is made in $(VENV) when a target first needs it"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1 | \2/p' Makefile | awk -F'|' '{ printf "%-12s%s\n", $$1, $$2 }'

demo: $(STAMPS)/base ## run the main example (DEMO_ARGS="--rare 17" passes arguments)
	@$(BIN)/python examples/beam.py $(DEMO_ARGS)

# Compiling is most of the work. So programs are kept, for the other worker and for the next run,
# small ones too: there are thousands of them. And XLA optimizes less, which halves the time; the
# accuracy of the bank is tested as users compile. Not for the benchmarks: they time compilation.
test testall lowest: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/$(CACHE)/jax
test testall lowest: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0
test testall lowest: export JAX_DISABLE_MOST_OPTIMIZATIONS ?= 1
# Workers whose threads wait for each other multiply matrices 40 times as slowly: 12 s for .3 s.
test testall lowest: export OPENBLAS_NUM_THREADS ?= 1

test: $(STAMPS)/tests ## run one case of each quick test, the doctests and the README's code: 6 to 11 minutes (PYTEST_ARGS="-k name")
	@$(BIN)/python -m pytest $(FAST) $(PYTEST_ARGS)

testall: $(STAMPS)/tests ## run all cases of all tests, as CI does: 35 to 65 minutes
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(STAMPS)/lint ## check style, format and spelling
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --check . && $(BIN)/codespell

typecheck: $(STAMPS)/lint ## check types (mypy strict)
	@$(BIN)/python -m mypy

bench: $(STAMPS)/bench ## run the benchmarks (BENCH=bench_name for one)
	@test -n "$(BENCH)" || { echo "no benchmark: tests/benchmarks holds no bench_*.py" >&2; exit 1; }
	@set -e; for name in $(BENCH); do $(BIN)/python -m tests.benchmarks.$$name $(BENCH_ARGS); done

sbc: $(STAMPS)/base ## simulation-based calibration, 200 data sets (SBC_ARGS="--num-datasets 50")
	@$(BIN)/python -m tests.sbc.run_sbc $(SBC_ARGS)

docs: $(STAMPS)/docs ## build the documentation in docs/_build
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "documentation: docs/_build/index.html"

gallery: $(STAMPS)/examples ## make the pictures and tables of the gallery page anew
	@$(BIN)/python docs/gallery/make_gallery.py

paper: $(STAMPS)/examples ## redo the paper's figures and tables for the documentation
	@$(BIN)/python examples/operators/reproduce.py --out docs/_static/paper

wheel: $(STAMPS)/base ## build the wheel in dist
	@$(PIP) wheel -qq --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

lowest: $(STAMPS)/base ## run the tests with the lowest versions of jax, numpyro and scipy that they allow
	@rm -rf $(CACHE)/lowest && $(BIN)/python -m venv $(CACHE)/lowest
	@$(CACHE)/lowest/bin/python -m pip install -qq --upgrade pip
	@$(CACHE)/lowest/bin/python -m pip install -qq --no-compile '.[viz]' --group tests --group lowest
	@$(CACHE)/lowest/bin/python -m pytest $(FAST) $(PYTEST_ARGS)

constraints: $(STAMPS)/base ## renew constraints.txt with the newest versions of everything
	@rm -rf $(CACHE)/newest && $(BIN)/python -m venv $(CACHE)/newest
	@$(CACHE)/newest/bin/python -m pip install -qq --upgrade pip
	@$(CACHE)/newest/bin/python -m pip install -qq '.[viz,examples]' --group build --group tests \
	  --group docs --group lint --group benchmarks
	@sed -n '/^#/p' constraints.txt > $(CACHE)/constraints.txt
	@$(CACHE)/newest/bin/python -m pip list --format=freeze --exclude nn_uq_dist \
	  >> $(CACHE)/constraints.txt
	@mv $(CACHE)/constraints.txt constraints.txt

clean: ## remove the virtual environment, caches and builds
	@rm -rf $(VENV) $(CACHE) build dist docs/_build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- set-up: each stamp is one pip call, repeated when $(SETUP) change ---------------------------

# Prints the first Python >= 3.12 that can make virtual environments. Running each candidate matters:
# a pyenv shim exists for versions that are not active.
FIND_PYTHON = \
  for candidate in $(if $(PYTHON),"$(PYTHON)",python3.12 python3.13 python3 python3.14 \
      "$${PYENV_ROOT:-$$(pyenv root 2>/dev/null || echo $$HOME/.pyenv)}"/versions/3.1[2-9]*/bin/python); do \
    "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 12))' \
      >/dev/null 2>&1 && { echo "$$candidate"; break; }; \
  done

environment:
	@python=$$($(FIND_PYTHON)); \
	if [ -z "$$python" ]; then \
	  echo "error: no usable Python: expected >= 3.12 with the venv module, got" \
	    "$(if $(PYTHON),PYTHON=$(PYTHON),$$(python3 --version 2>&1) as python3)." >&2; \
	  echo "Install one (for example 'pyenv install 3.12', or your system's python3.12 and" \
	    "python3.12-venv packages), or pass PYTHON=/path/to/python3.12." >&2; \
	  exit 1; \
	fi; \
	echo "set-up: virtual environment $(VENV) ($$("$$python" --version))"; \
	"$$python" -m venv --clear $(VENV)

# The test fails, too, for a link to a Python that is gone: then the environment is made anew.
$(STAMPS)/base: $(SETUP) $(if $(shell test -x $(BIN)/python && echo found),,environment)
	@mkdir -p $(STAMPS) $(CACHE)/tmp
	@$(INSTALL) pip hatchling editables # pip first: --group needs pip >= 25.1
	@echo "set-up: nn_uq_dist and its dependencies (a minute or less)"
	@$(INSTALL) --no-build-isolation --editable '.[viz]'
	@touch $@

$(STAMPS)/examples: $(STAMPS)/base
	@echo "set-up: packages of the examples"
	@$(INSTALL) --no-build-isolation --editable '.[examples]'
	@touch $@

$(STAMPS)/tests: $(STAMPS)/base
	@echo "set-up: packages of the tests"
	@$(INSTALL) --group tests
	@touch $@

$(STAMPS)/lint: $(STAMPS)/base
	@echo "set-up: ruff, mypy and codespell"
	@$(INSTALL) --group lint
	@touch $@

$(STAMPS)/docs: $(STAMPS)/base
	@echo "set-up: packages of the documentation"
	@$(INSTALL) --group docs
	@touch $@

$(STAMPS)/bench: $(STAMPS)/examples
	@echo "set-up: packages of the benchmarks"
	@$(INSTALL) --group benchmarks
	@touch $@
