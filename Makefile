# Espalier's targets; `make help` lists them. CI runs the same ones.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed

# Where everything of this installation lies; the programs read the same variable.
ESPALIER_HOME ?= $(CURDIR)/data
export ESPALIER_HOME

# Nothing here talks to a hub or reports home; one thread per process, since two cores are shared by several
# processes and OpenMP's spinning makes that ten times slower; Triton fuses multiply-adds as on a GPU.
export HF_HUB_OFFLINE := 1
export DAGSTER_DISABLE_TELEMETRY := 1
export GX_ANALYTICS_ENABLED := false
export OMP_NUM_THREADS := 1
export TRITON_DEFAULT_FP_FUSION := 1

# Without cached bytecode every process that imports torch and TRL pays about 25 seconds.
unexport PYTHONDONTWRITEBYTECODE
# A virtual environment of somebody else's shell must not steer pip or uv.
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH

.PHONY: help
help: ## list the targets
	@echo "Espalier: search -> exploration logs -> tables -> views -> datasets -> training -> search"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  Data lies in ESPALIER_HOME (now $(ESPALIER_HOME)). The program itself: $(VENV)/bin/espalier --help"

.PHONY: setup
setup: $(STAMP) ## .venv with the pinned versions, from any Python 3.11 or newer

# The stamp is older than these files after a change of pins, and is missing on a fresh clone.
$(STAMP): requirements.txt pyproject.toml
	@python=""; \
	for candidate in $${ESPALIER_PYTHON:-} python3 python3.13 python3.12 python3.11 python; do \
	    if $$candidate -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then echo "setup: no Python 3.11 or newer with the venv module; install one, or name it: make setup ESPALIER_PYTHON=/path/to/python3" >&2; exit 2; fi; \
	if [ ! -x $(PYTHON) ]; then echo "setup: creating $(VENV) with $$($$python --version)"; $$python -m venv $(VENV); fi
	@if [ ! -x $(VENV)/bin/uv ]; then $(PYTHON) -m pip install --quiet uv; fi
	@echo "setup: installing the pinned versions (about a minute the first time)"
	@quiet=--quiet; if [ -t 2 ]; then quiet=; fi; $(VENV)/bin/uv pip install $$quiet --python $(PYTHON) -r requirements.txt
	@$(VENV)/bin/uv pip install --quiet --python $(PYTHON) --no-deps -e .
	@touch $(STAMP)

.PHONY: setup-spark
setup-spark: setup ## the jars of the Spark engine, fetched once into .venv; needs Java 17 or 21
	@$(PYTHON) -m store.spark_jars

.PHONY: run
run: setup ## the whole loop: search, tables, views, datasets, training, search again, report
	@$(PYTHON) -m dagster_project.run_loop

.PHONY: ui
ui: setup ## Dagster on a port it prints, with the history of `make run`
	@$(PYTHON) -m dagster_project.ui

.PHONY: test
test: setup ## every test that this machine can run, two files at a time; ESPALIER_SAMPLE_LOGS names the folder of real logs
	@if [ -n "$${JAVA_HOME:-}" ] || command -v java >/dev/null 2>&1; then $(PYTHON) -m store.spark_jars || true; fi
	@$(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(PYTEST_ARGUMENTS)

.PHONY: test-long
test-long: setup ## law 1 at length: 2,000 histories in memory, 120 over Delta, 3 on Spark, 200 kills (about an hour)
	@ESPALIER_LONG_TESTS=1 $(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/views $(PYTEST_ARGUMENTS)

.PHONY: lint
lint: setup ## ruff, mypy, import order
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check --quiet . || { echo "lint: these files are laid out otherwise; 'make format' does it:"; $(VENV)/bin/ruff format --check .; }
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-cache

.PHONY: format
format: setup ## sort imports and lay out the code
	@$(VENV)/bin/ruff check --quiet --select I --fix .
	@$(VENV)/bin/ruff format .

.PHONY: bench
bench: setup bench-startup ## the measurements that take a minute: start-up, compaction and the judge
	@$(PYTHON) benchmarks/compaction.py
	@$(PYTHON) benchmarks/judge_speed.py

.PHONY: bench-views
bench-views: setup ## views kept up against computed, at scale: NODES=1000000 ENGINE=duckdb SEED=1 OUT=FILE (half an hour)
	@$(PYTHON) -m benchmarks.views_at_scale

.PHONY: bench-planner
bench-planner: setup ## what the choice between incremental and full costs: 20 changes, both ways (half an hour)
	@$(PYTHON) -m benchmarks.planner_choice

PEERS := .venv-peers
$(PEERS)/.installed: benchmarks/peers/requirements.txt | setup
	@echo "bench-peers: installing dbt-duckdb and SQLMesh into $(PEERS)"
	@$(VENV)/bin/uv venv --quiet --allow-existing --python $(PYTHON) $(PEERS)
	@$(VENV)/bin/uv pip sync --quiet --python $(PEERS)/bin/python benchmarks/peers/requirements.txt
	@touch $@

.PHONY: bench-peers
bench-peers: $(PEERS)/.installed ## dpo_pairs kept up by us, dbt-duckdb and SQLMesh: NODES=100000 SEED=1 OUT=FILE
	@$(PYTHON) -m benchmarks.peers.compare_peers --python $(PEERS)/bin/python

.PHONY: bench-startup
bench-startup: setup ## seconds until `espalier --help` is on the screen
	@$(PYTHON) benchmarks/startup.py

.PHONY: pins
pins: setup ## compile requirements.in into requirements.txt (exact versions, no addresses)
	@for folder in . benchmarks/peers; do \
	    $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header \
	        --upgrade $$folder/requirements.in --output-file $$folder/requirements.txt; done
	@echo "pins: requirements.txt holds $$(wc -l < requirements.txt) versions"

.PHONY: clean
clean: ## remove caches and build outputs; data and .venv stay (rm -rf .venv to install afresh)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find . \( -path './.venv*' -o -path ./data \) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
