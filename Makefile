# Everything a newcomer needs: `make demo` and `make test`. Each makes the environment it needs first.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.demo-ready
CLASSES := $(VENV)/spark-classes.jsa
MINUTES ?= 10
WHERE ?=

# Tests start about a hundred processes: what Python compiled is kept, also where the environment says otherwise.
test check fuzz: export PYTHONDONTWRITEBYTECODE :=

.PHONY: install demo check test fuzz lint style types layers bench lock clean check-java

install: $(READY)

check-java:
	@$(PYTHON) src/steelyard/spark/java.py

define make_environment  # $(call make_environment,extras): the environment, with what these extras need
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is %d.%d: set PYTHON=/path/to/python3.11" % sys.version_info[:2])'
	@echo 'Making the environment in $(VENV): some minutes, once.'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(1)]'
	@touch $@
endef

$(READY): pyproject.toml constraints.txt
	$(call make_environment,dev)

$(DEMO_READY): pyproject.toml constraints.txt
	$(call make_environment,plot)

demo: check-java $(if $(wildcard $(READY)),install,$(DEMO_READY))  # what the demo needs, and no more
	@$(BIN)/steelyard demo

check: install lint  # what needs neither Spark nor a broker: minutes
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not spark"

test: check-java install
	@$(MAKE) --no-print-directory -j 4 style types layers $(CLASSES)
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 20

$(CLASSES): $(READY)  # what JVMs of the tests start from, in half the time
	@$(BIN)/python -m tests.spark_classes

fuzz: check-java install  # make fuzz MINUTES=60 WHERE=tests/sim: new cases for every property test
	@$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(WHERE)

lint: install
	@$(MAKE) --no-print-directory -j 3 style types layers

style:
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types:
	@$(BIN)/mypy

layers:
	@$(BIN)/lint-imports

bench: check-java install
	@$(BIN)/steelyard bench run --all --quick --out docs/results
	@$(BIN)/steelyard bench report --out docs/results

lock: install
	@$(BIN)/python -m pip freeze --exclude-editable > constraints.txt

clean:
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
