# Everything a newcomer needs: `make demo` and `make test`. Both set up what they use.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FORMAT ?= eo-kafka
# Show the demo and the soak by `eo-kafka watch`: make demo WATCH=1
WATCHED := $(if $(WATCH),--watch)
# Test files that run at the same time
JOBS ?= 2
# 0 to 2: of the tests that take over three seconds, a third
TURN ?=
# Of the tests: kafka crash maps queues tables state tools soak containers (integration_tests/), unit (tests/)
GROUP ?=
PACKAGES := core clients connectors formats sources sinks state tools broker targets testing templates windows
CODE := setup.cfg pyproject.toml __init__.py errors.py registration.py $(shell find entry $(PACKAGES) -type f -not -path '*/__pycache__/*' -not -path '*.egg-info/*' -not -type l)
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python

TESTS := $(if $(filter unit,$(GROUP)),tests,$(if $(GROUP),integration_tests/$(GROUP),integration_tests tests))
REPORT_OF_TESTS := .pytest_cache/report.xml
# The longest files first, by integration_tests/durations.json (integration_tests/support/balance.py)
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --junitxml=$(REPORT_OF_TESTS)

.PHONY: help setup demo demo-postgres demo-cluster test test-all test-full test-containers durations soak lint lint-types lint-paths docs format public-api release bench clean

help: ## What can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

demo: $(VENV)/installed ## The main job on 336,776 real flights, killed while it runs (FORMAT=kafka: Spark's own connector)
	$(BIN)/eo-kafka prepare
	$(BIN)/python examples/flights/demo.py --format $(FORMAT) $(WATCHED)

demo-postgres: $(VENV)/installed ## The same into a topic and a table of PostgreSQL, by one decision; killed seven times
	$(BIN)/eo-kafka prepare
	$(BIN)/python examples/flights/demo.py --format eo-postgres $(WATCHED)

demo-cluster: $(VENV)/installed ## The same on containers: three brokers, a Spark cluster; a worker and the driver killed
	docker/engine.sh bash -c 'PYTHON=$(CURDIR)/$(BIN)/python docker/build-local.sh kafka job && $(BIN)/python examples/flights/cluster.py'

test: setup ## In minutes: unit tests, and one of each kind with a real Kafka, a real Spark, real kills
	$(PYTEST) -m "(unit or smoke) and not full" $(TESTS)

test-all: setup ## What CI runs in turns: all kills, all formats, a minute of random faults (GROUP=maps: a part)
	$(PYTEST) -m "not full" $(addprefix --turn=,$(TURN)) $(TESTS)

test-full: setup ## For a release: what is too long for CI, too (GROUP=maps: a part)
	$(PYTEST) $(TESTS)

test-containers: ## Brokers in containers, killed and with a full disk (docker/README.md)
	$(MAKE) test-all GROUP=containers

durations: ## Keep how long each test took in the last run, by which the next one is ordered
	$(BIN)/python integration_tests/support/balance.py $(REPORT_OF_TESTS)

soak: setup ## Three jobs under random faults, and a checker (MINUTES=5 SEED=random REPORT=soak.html)
	$(BIN)/python integration_tests/soak/run.py --minutes $(or $(MINUTES),5) $(if $(filter-out random,$(SEED)),--seed $(SEED)) --report $(or $(REPORT),soak.html) $(WATCHED)

lint: setup ## ruff, ruff format, mypy --strict, every import of ours by its path
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory --jobs 2 --output-sync lint-types lint-paths

lint-types:
	$(BIN)/mypy -p eo_kafka -m pyspark_eo_files -m pyspark_eo_kafka -m pyspark_eo_map -m pyspark_eo_postgres -m pyspark_eo_queue -m pyspark_eo_state -m pyspark_eo_target
	$(BIN)/python tests/project/lint_templates.py

lint-paths:
	$(BIN)/basedpyright

docs: setup ## The documentation as a site, in site/; a broken link or reference is an error
	@$(BIN)/python -c 'import mkdocstrings, material' 2>/dev/null || $(BIN)/pip install --quiet ".[docs]"
	@rm -rf build *.egg-info
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: setup ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

public-api: setup ## Write tests/golden/public_api.txt anew, after a change to names or options
	$(BIN)/python tests/project/public_api.py

release: setup ## Build and check wheel and sdist of this version, and try the wheel; uploads nothing
	$(BIN)/python .ci/release.py

bench: setup ## Throughput beside kafka (JVM), Flink and Quix Streams, in ratios; what snapshots cost
	$(BIN)/python -m benchmarks.throughput
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.decoding
	$(BIN)/python -m benchmarks.scaling
	$(BIN)/python -m benchmarks.commit_round
	$(BIN)/python -m benchmarks.latency
	$(BIN)/python -m benchmarks.typed
	$(BIN)/python -m benchmarks.typed --format avro
	$(BIN)/python -m benchmarks.guarantee_cost
	$(BIN)/python -m benchmarks.snapshots
	$(BIN)/python -m benchmarks.snapshot_interval
	$(BIN)/python -m benchmarks.maps
	$(BIN)/python -m benchmarks.map_topic
	$(BIN)/python -m benchmarks.map_put
	$(BIN)/python -m benchmarks.map_two_phase
	$(BIN)/python -m benchmarks.tables
	$(BIN)/python -m benchmarks.tables_jdbc

setup: $(VENV)/dev ## A virtual environment with the project in it, and what tests and linters need

# The project is installed as users install it, so that what is tested is what they get. setuptools
# would put files that were deleted since into the wheel again: hence the rm.
$(VENV)/installed: $(VENV)/dependencies $(CODE)
	@rm -rf build *.egg-info entry/*.egg-info
	@$(BIN)/pip install --quiet --no-deps --force-reinstall --no-build-isolation .
	@rm -rf build *.egg-info entry/*.egg-info
	@touch $@

$(VENV)/dependencies: setup.cfg
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "eo-kafka needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) --version). Set PYTHON=..."; exit 1; }
	@command -v "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" >/dev/null || { echo "PySpark and Kafka need Java 17 or newer: install one, or set JAVA_HOME."; exit 1; }
	@case "$(CURDIR)" in *[[:space:]]*) echo "Spark finds no format of Python's where the path of Python has a space in it. Move this folder, $(CURDIR), to a path without one."; exit 1;; esac
	@echo "Setting up $(VENV) (a minute or two, once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --upgrade pip "setuptools>=77" wheel
	@$(BIN)/pip install --quiet --no-build-isolation ".[demo]"
	@rm -rf build *.egg-info entry/*.egg-info
	@touch $@

# On top, after the project: linters, type stubs and servers, which a demo does not need
$(VENV)/dev: setup.cfg | $(VENV)/installed
	@$(BIN)/pip install --quiet --no-build-isolation ".[dev]"
	@rm -rf build *.egg-info entry/*.egg-info
	@touch $@

clean: ## Remove what was made
	rm -rf $(VENV) build dist *.egg-info entry/*.egg-info demo-output site .pytest_cache .mypy_cache .ruff_cache .hypothesis
