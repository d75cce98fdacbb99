# Needs Python 3.11 or newer with venv, and nothing else: see `make help`.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
# Two processes: the suite has many tests that wait for something.
PYTEST_ARGS ?= -n 2

BIN := $(VENV)/bin
RUN := $(BIN)/python -W error
PATHS := payments_integration example_project tests $(wildcard benchmarks)

.DEFAULT_GOAL := help
.PHONY: help demo test lint format clean

help: ## Show this
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(VENV)/.ready ## Sandbox, shop, worker and beat, and a story; ARGS=--once ends after it
	@$(BIN)/python manage.py demo $(ARGS)

test: $(VENV)/.ready-dev ## The tests that need no server
	$(RUN) -m pytest $(PYTEST_ARGS) tests/unit tests/integration

lint: $(VENV)/.ready-dev ## Format, style, types, layers, migrations, system checks
	$(BIN)/ruff format --check $(PATHS)
	$(BIN)/ruff check $(PATHS)
	$(BIN)/mypy
	$(BIN)/lint-imports
	DATABASE_URL=sqlite://:memory: $(RUN) manage.py makemigrations --check --dry-run
	$(RUN) manage.py check

format: $(VENV)/.ready-dev ## Format the code and mend what can be mended
	$(BIN)/ruff check --fix --exit-zero --quiet $(PATHS)
	$(BIN)/ruff format $(PATHS)

clean: ## Remove the environment, caches and what was built
	rm -rf $(VENV) build dist var .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name one with PYTHON=python3.12"; exit 1; }
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

# Installed once, and again when the dependencies change.
$(VENV)/.ready: pyproject.toml | $(VENV)/bin/python
	@echo "Installing what the project needs into $(VENV); this takes a minute ..."
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.ready-dev: pyproject.toml | $(VENV)/bin/python
	@echo "Installing what the tests and checks need into $(VENV); this takes a minute ..."
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(VENV)/.ready $@
