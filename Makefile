# Needs Python 3.11 or newer with venv, and nothing else: see `make help`.
PYTHON ?= python3
VENV ?= .venv
# The tools of a release are apart: they bring packages, such as chardet, that would change what the tests see.
TOOLS ?= .venv-release
# moto and boto3 are apart as well: Sentry, for one, would patch them in the other suites.
FEEDS ?= .venv-feeds
ARGS ?=
# Two processes: many tests wait for something. What starts no server takes one for each core, from two to eight.
PROCESSES = 2
PYTEST_ARGS ?= -n $(PROCESSES)
CORES = $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# Of the simulator: how many schedules, from which seed, on which database (postgres, mariadb; SQLite without).
N ?= 1000
SEED ?=
DATABASE ?=
STAMP_mariadb := mysql
# Of a recorded part of its long run: for how long at most.
MINUTES ?= 85
# Of the fuzzer: for how long.
SECONDS ?= 60
# Of the foreign sites: which one (all without), and with which Python (the newest that is found).
SITE ?=
export PYTHON_NEWEST ?=
# Not empty: the versions of .ci/constraints.txt, checked by their hashes, and not the newest.
LOCKED ?=

# Images of Docker set it. The suites start hundreds of processes, and each would compile the package and the tests again.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
QUIETLY := --quiet --quiet --disable-pip-version-check
# Before a command that takes long: a dot every two seconds, if a person is watching.
DOTS := [ ! -t 2 ] || { (while sleep 2; do printf . >&2; done) & trap "kill $$!; echo >&2" EXIT; trap 'exit 130' INT TERM; };
RUN := $(BIN)/python -W error
PATHS := payments_integration example_project tests docs/site noxfile.py $(wildcard benchmarks)
SUITE := tests/unit tests/integration
SERVERS := $(RUN) -m tests.servers
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' payments_integration/__init__.py)

.DEFAULT_GOAL := help
.PHONY: help demo test lint format clean environment
.PHONY: test-slow test-flows test-postgres test-mariadb test-brokers test-deploy test-monitoring test-browser test-contract test-bookkeeping test-office
.PHONY: test-types test-quickstart test-sandbox test-foreign test-feeds matrix constraints cases simulate simulate-record mutants fuzz load
.PHONY: test-pgbouncer test-galera test-outages failover galera patroni restore upgrade replica growth workers bench
.PHONY: docs docs-serve dist sbom release-check

help: ## Show this
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

demo: $(VENV)/.ready ## Sandbox, shop, worker and beat, and a story; ARGS=--once ends after it
	@$(BIN)/python manage.py demo $(ARGS)

test test-slow test-flows: PROCESSES = $(shell n=$(CORES); [ $$n -ge 2 ] || n=2; [ $$n -le 8 ] || n=8; echo $$n)

test: $(VENV)/.ready-dev ## The tests of each module, without the slow ones; they need no server
	$(RUN) -m pytest $(PYTEST_ARGS) -m "not slow" tests/unit

test-slow: $(VENV)/.ready-dev ## Those that wait for sockets, or repeat one rule for every page, line or input
	$(RUN) -m pytest $(PYTEST_ARGS) -m slow $$(grep -rl --include='*.py' 'mark\.slow' tests/unit)

test-flows: $(VENV)/.ready-dev ## Flows through several modules, on SQLite: threads, kill -9, random schedules, the example shop
	$(RUN) -m pytest $(PYTEST_ARGS) tests/integration

test-postgres: $(VENV)/.ready-dev ## The tests that depend on the database, on PostgreSQL: TEST_POSTGRES_URL, or a new server
	$(SERVERS) postgres -- $(RUN) -m pytest $(PYTEST_ARGS) --create-db $(SUITE)

test-mariadb: $(VENV)/.ready-mysql ## The tests that depend on the database, on MariaDB: TEST_MARIADB_URL, or a new server
	$(SERVERS) mariadb -- $(RUN) -m pytest $(PYTEST_ARGS) --create-db $(SUITE)

test-pgbouncer: $(VENV)/.ready-dev ## The same through PgBouncer in transaction mode, in front of a new PostgreSQL
	$(RUN) -m tests.clusters pgbouncer -- $(RUN) -m pytest $(PYTEST_ARGS) --reuse-db -m "not own_session" $(SUITE)

test-galera: $(VENV)/.ready-mysql ## The same on one node of a Galera cluster of three
	$(RUN) -m tests.clusters galera -- $(RUN) -m pytest $(PYTEST_ARGS) --create-db $(SUITE)

test-outages: $(VENV)/.ready-brokers $(VENV)/.ready-mysql ## Failover, Galera, Patroni, restore, upgrade, replica, and load through PgBouncer, each small
	$(RUN) -m pytest tests/systems/outages

test-brokers: $(VENV)/.ready-brokers ## Celery workers and beat over Redis and RabbitMQ, on PostgreSQL
	$(RUN) -m pytest $(PYTEST_ARGS) tests/systems/brokers

test-deploy: $(VENV)/.ready-brokers ## The example under gunicorn
	$(RUN) -m pytest tests/systems/deploy

test-monitoring: $(VENV)/.ready-brokers ## Metrics of gunicorn and a Celery worker; alert rules and dashboard with promtool
	@command -v promtool >/dev/null || { echo "promtool is not there; on Debian: apt-get download prometheus && dpkg -x prometheus_*.deb DIR, and put DIR/usr/bin into PATH"; exit 1; }
	$(RUN) -m pytest tests/systems/monitoring

test-browser: $(VENV)/.ready-browser $(VENV)/.ready-node ## Admin, checkout and shop in a real browser; SCREENSHOTS=docs/images makes the pictures of the docs
	$(RUN) -m pytest $(PYTEST_ARGS) tests/browser

test-contract: $(VENV)/.ready-contract ## The REST API and the sandbox against their OpenAPI descriptions
	$(RUN) -m pytest tests/projects/contract

test-bookkeeping: $(VENV)/.ready-bookkeeping ## The journal's files as beancount and hledger read them
	@command -v hledger >/dev/null || { echo "hledger is not there; on Debian: apt-get install hledger"; exit 1; }
	$(RUN) -m pytest tests/systems/bookkeeping

test-types: $(VENV)/.ready-types ## A user's project, as mypy and pyright see it
	$(RUN) -m pytest tests/projects/types

test-quickstart: $(VENV)/.ready-dev ## docs/quickstart.md and docs/add-to-your-shop.md, followed word for word to a paid order and a refund
	$(RUN) -m pytest tests/projects/quickstart

test-sandbox: $(VENV)/.ready-dev ## The sandbox without a Django project: its Dockerfile's steps, and a payment taken in Node
	@command -v node >/dev/null || { echo "node is not there; on Debian: apt-get install nodejs"; exit 1; }
	$(RUN) -m pytest tests/projects/standalone

test-office: $(VENV)/.ready-dev ## Exports of the admin, opened with LibreOffice
	$(RUN) -m pytest tests/systems/office

test-feeds: $(FEEDS)/.ready ## The app of docs/reports.md: Kafka, SNS and a warehouse, in this process; DATABASE=postgres
	$(if $(DATABASE),$(FEEDS)/bin/python -m tests.servers $(DATABASE) --) $(FEEDS)/bin/python -W error -m pytest --ds=tests.systems.feeds.settings tests/systems/feeds

test-foreign: $(VENV)/.ready-dev ## The built wheel in sites of Wagtail, Oscar and others; SITE=wagtail|oscar|busy takes one
	$(RUN) -m pytest tests/projects/foreign $(if $(SITE),-k "$(SITE)")

matrix: $(VENV)/.ready-dev ## Every version that is claimed, for hours; writes tests/versions.md
	RECORD_VERSIONS=1 $(BIN)/nox -s matrix

constraints: $(VENV)/.ready-dev ## Write .ci/constraints.txt, the versions of LOCKED=1, from what is newest now
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes --no-emit-index-url \
	  --no-header --no-annotate --extra all --group dev --output-file .ci/constraints.txt pyproject.toml

cases: $(VENV)/.ready-all ## The failure catalogue: what proves each case, and where; ARGS=--from DIR reads earlier runs
	$(RUN) -m tests.cases $(ARGS)

simulate: $(VENV)/.ready-$(or $(STAMP_$(DATABASE)),dev) ## N=1000 simulated schedules of faults; SEED=… repeats one, DATABASE=postgres|mariadb
	$(if $(DATABASE),$(SERVERS) $(DATABASE) --) $(RUN) -m tests.simulation --schedules $(N) $(if $(SEED),--seed $(SEED))

simulate-record: $(VENV)/.ready-$(or $(STAMP_$(DATABASE)),dev) ## The next MINUTES=85 of the long run, added to the record in docs/reliability.md; DATABASE=…
	$(if $(DATABASE),$(SERVERS) $(DATABASE) --) $(RUN) -m tests.simulation --record --batch 25 --minutes $(MINUTES)

mutants: $(VENV)/.ready-dev ## Deliberate mistakes, each of which the simulator must find; ARGS="claim" takes those with that name
	$(RUN) -m tests.simulation.mutants $(ARGS)

fuzz: $(VENV)/.ready-fuzz ## SECONDS=60 of hostile bytes for each place that reads foreign ones
	$(RUN) -m tests.fuzz --seconds $(SECONDS)

load: $(VENV)/.ready-brokers ## 10,000 webhooks while the worker is killed: gunicorn, PostgreSQL, Redis
	$(RUN) benchmarks/load.py $(ARGS)

failover galera patroni restore upgrade replica: $(VENV)/.ready-brokers $(VENV)/.ready-mysql
	$(RUN) -m tests.systems.outages.$@ $(ARGS)

failover: ## PostgreSQL killed under load, with a synchronous standby; ARGS="--seconds 60" for longer, as for the next five
galera: ## A node of a MariaDB cluster killed under load, which joins again; ARGS=--everywhere has all three nodes written to
patroni: ## Three nodes under Patroni: the leader killed, switched over and cut off under load; ARGS=--asynchronous shows what is lost
restore: ## A dump taken under load, restored after a disaster
upgrade: ## A new version with a migration under load
replica: ## A replica that stands still under load

growth: $(VENV)/.ready-dev ## What is read of ten million events and of one million; needs 20 GB of disk below TMPDIR
	$(RUN) benchmarks/growth.py $(ARGS)

workers: $(VENV)/.ready-brokers ## How 1, 2, 4 and 8 Celery workers share the backlogs of two accounts with queues of their own
	$(RUN) benchmarks/workers.py $(ARGS)

bench: $(VENV)/.ready-brokers ## A short run of every benchmark against recorded ratios; ARGS=--record makes a long one and keeps it
	$(RUN) benchmarks/bench.py $(ARGS)

dist: $(TOOLS)/.ready ## The sdist, and the wheel that is built from it, in dist/
	rm -rf dist
	$(TOOLS)/bin/python -m build --quiet

sbom: dist/sbom-bare.json dist/sbom-all.json ## What an install consists of, bare and with [all], as CycloneDX in dist/

dist/sbom-all.json: EXTRAS = [all]
# Each in an environment of its own, build/bare and build/all. cyclonedx-py compares what it writes with the schema.
dist/sbom-%.json: dist
	@rm -rf build/$*
	@$(TOOLS)/bin/python -m venv --without-pip build/$*
	@$(TOOLS)/bin/python -m pip --python build/$*/bin/python install $(QUIETLY) "$$(echo dist/*.whl)$(EXTRAS)"
	@sed 's/^dynamic = .*/version = "$(VERSION)"/' pyproject.toml >build/$*/pyproject.toml
	$(TOOLS)/bin/cyclonedx-py environment build/$*/bin/python --pyproject build/$*/pyproject.toml --mc-type library --output-reproducible -o $@

release-check: sbom $(VENV)/.ready-dev ## Build all that a release publishes, and check it
	$(TOOLS)/bin/twine check --strict dist/*.whl dist/*.tar.gz
	$(TOOLS)/bin/check-wheel-contents dist/*.whl
	$(RUN) -m tests.installation build/bare/bin/python
	$(RUN) -m pytest tests/projects/release

docs: $(VENV)/.ready-docs ## The documentation site in build/site, and its tests
	$(RUN) -m pytest tests/projects/site

docs-serve: $(VENV)/.ready-docs ## The same while you write, on http://127.0.0.1:8000
	$(BIN)/mkdocs serve

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
	rm -rf $(VENV) $(TOOLS) $(FEEDS) .venv-peer .nox build dist var .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name one with PYTHON=python3.12"; exit 1; }
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

# An environment gets the pip of its Python. Those before 25.1 know no --group.
%/.pip: | %/bin/python
	@$*/bin/python -m pip install $(QUIETLY) 'pip>=25.1'
	@touch $@

$(TOOLS)/bin/python $(FEEDS)/bin/python:
	@$(PYTHON) -m venv $(@D:/bin=)

# What the demo and the example project use.
DEMO := api,checkout,xlsx

# Installed once, and again when the dependencies change.
$(VENV)/.ready: pyproject.toml | $(VENV)/bin/python
	@echo "Installing what the project needs into $(VENV); this takes a minute ..."
	@$(DOTS) $(BIN)/python -m pip install $(QUIETLY) -e '.[$(DEMO)]'
	@touch $@

$(VENV)/.ready-mysql: INSTALL = -e '.[mysql]'
$(VENV)/.ready-brokers: INSTALL = -e '.[beat]'
$(VENV)/.ready-browser: INSTALL = --group browser
$(VENV)/.ready-contract: INSTALL = --group contract
$(VENV)/.ready-bookkeeping: INSTALL = --group bookkeeping
$(VENV)/.ready-types: INSTALL = --group types
$(VENV)/.ready-docs: INSTALL = --group docs
$(VENV)/.ready-all: INSTALL = -e '.[mysql,beat]'

$(VENV)/.ready-%: pyproject.toml $(VENV)/.ready-dev
	@echo "Installing $(INSTALL) into $(VENV) ..."
	@$(DOTS) $(BIN)/python -m pip install $(QUIETLY) $(INSTALL) \
	  || { echo "The driver of MariaDB is built here; on Debian it needs: apt-get install gcc libmariadb-dev pkg-config"; exit 1; }
	@touch $@

# Atheris is not there for every Python: the fuzzer does without.
$(VENV)/.ready-fuzz: pyproject.toml $(VENV)/.ready-dev
	-@$(BIN)/python -m pip install $(QUIETLY) --group fuzz
	@touch $@

$(TOOLS)/.ready: pyproject.toml $(TOOLS)/.pip
	@echo "Installing the tools of a release into $(TOOLS) ..."
	@$(DOTS) $(TOOLS)/bin/python -m pip install $(QUIETLY) -e . --group release
	@touch $@

$(FEEDS)/.ready: pyproject.toml $(FEEDS)/.pip
	@echo "Installing what the feeds need into $(FEEDS); this takes a minute ..."
	@$(DOTS) $(FEEDS)/bin/python -m pip install $(QUIETLY) -e '.[all]' --group dev --group feeds
	@touch $@

# What builds the page of example_project/spa.
$(VENV)/.ready-node: example_project/spa/package.json | $(VENV)/bin/python
	@command -v npm >/dev/null || { echo "npm is not there; on Debian: apt-get install npm"; exit 1; }
	@mkdir -p $(VENV)/node && cp $< $(VENV)/node
	@npm install --prefix $(VENV)/node --no-package-lock --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

# All of the above at once.
environment: $(VENV)/.ready-fuzz $(VENV)/.ready-node
	@$(DOTS) $(BIN)/python -m pip install $(QUIETLY) -e '.[mysql,beat]' \
	  $(addprefix --group ,browser contract bookkeeping types docs)
	@touch $(foreach name,mysql brokers browser contract bookkeeping types docs all,$(VENV)/.ready-$(name))

$(VENV)/.ready-dev: pyproject.toml $(VENV)/.pip
	@echo "Installing what the tests and checks need into $(VENV); this takes a minute ..."
	@$(DOTS) if [ -n "$(LOCKED)" ]; then \
	  $(BIN)/python -m pip install $(QUIETLY) --require-hashes -r .ci/constraints.txt \
	    && $(BIN)/python -m pip install $(QUIETLY) --no-deps -e .; \
	else $(BIN)/python -m pip install $(QUIETLY) -e '.[all]' --group dev; fi
	@touch $(VENV)/.ready $@
