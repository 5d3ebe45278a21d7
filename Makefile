# quatro: `make demo` shows the product at work, `make test` proves it. Both make what they need.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: help demo test check test-slow test-mutants test-gpu bench clean

help:
	@echo "make demo       install, fine-tune the embedded model with QUATRO and GSPO, measure both, draw the figures"
	@echo "make test       install, lint, type-check, run the tests with coverage"
	@echo "make test-slow  the tests that take minutes"
	@echo "make test-mutants  break the methods on purpose, one place at a time: each break must be noticed"
	@echo "make test-gpu   the tests that need a CUDA device"
	@echo "make bench      the speed comparisons of benchmarks/"
	@echo "make clean      remove the environment and what tools left behind (runs/ and samples/ stay)"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "quatro needs Python 3.11 or newer; try make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[train,plot,dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/quatro demo

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check
	$(BIN)/python -m pytest --cov --cov-report=term:skip-covered --cov-fail-under=85

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

test-mutants: $(STAMP)
	$(BIN)/python tests/mutants.py

test-gpu: $(STAMP)
	$(BIN)/python -m pytest -m gpu

bench: $(STAMP)
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
