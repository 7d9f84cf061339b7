PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WAREHOUSE ?= ./data
# An editable install knows the packages that were there when it was made: a new one calls for another.
PACKAGES := $(wildcard */__init__.py platform/*/__init__.py)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup java s3 kafka-clients tools browser run test check bench notebooks clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) java ## Make .venv with everything in it, and see that Java is there for Spark

$(STAMP): pyproject.toml constraints.txt $(PACKAGES)
	@deploy/setup/ensure-python "$(PYTHON)"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,spark]'
	@touch $@

java:
	@deploy/setup/ensure-java

s3: $(STAMP)
	@deploy/setup/ensure-versitygw $(BIN)

kafka-clients: $(STAMP)
	@deploy/setup/ensure-kcat
	@deploy/setup/ensure-kafka-tools

tools: $(STAMP)
	@deploy/setup/ensure-deploy-tools $(BIN)

browser:
	@deploy/setup/ensure-chromium

run: $(STAMP) ## Serve the topics under ./data (WAREHOUSE=... for another place)
	@deploy/setup/ensure-java --check || echo "note: the gateway runs without Java; Spark jobs will not."
	$(BIN)/lakelog serve --warehouse $(WAREHOUSE)

test: setup s3 kafka-clients tools browser ## Run every test (ARGS=... goes to pytest)
	$(BIN)/pytest $(ARGS)

check: $(STAMP) ## Lint, formatting, types and import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP) ## Measure (ARGS=... goes to the benchmarks)
	$(BIN)/python -m tests.bench $(ARGS)

notebooks: setup ## Open the notebooks in JupyterLab
	@test -x $(BIN)/jupyter-lab || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[notebooks]'
	$(BIN)/jupyter lab notebooks

clean: ## Remove .venv, caches and build output; ./data stays
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf platform/*.egg-info *.egg-info spark-warehouse metastore_db derby.log
	find platform ingest_api consumer_groups compaction_jobs tests -name __pycache__ -type d -prune -exec rm -rf {} +
