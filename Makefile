# quatro: `make demo` shows the product at work, `make test` proves it. Both make what they need.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: help demo test check test-base test-slow test-mutants test-gpu bench clean

help:
	@echo "make demo       install, fine-tune the embedded model with QUATRO and GSPO, measure both, draw the figures"
	@echo "make test       install, lint, type-check, run the tests with coverage"
	@echo "make test-base  the measuring half, in an environment without torch"
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
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --cov --cov-report=term:skip-covered --cov-fail-under=85

# The measuring half on a machine without torch: its own environment, base install plus figures.
$(VENV)-base/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-base
	$(VENV)-base/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[plot]' pytest hypothesis
	@touch $@

test-base: $(VENV)-base/.installed
	! $(VENV)-base/bin/python -c 'import torch' 2>/dev/null
	$(VENV)-base/bin/python -m pytest tests/evals tests/quatro_cli/test_eval.py tests/quatro_cli/test_table.py tests/quatro_cli/test_grade.py tests/quatro/test_config.py tests/quatro/test_yaml_loader.py

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
