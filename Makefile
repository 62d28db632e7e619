# Everything a newcomer needs: `make demo` and `make test`. Each makes the environment it needs first.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.demo-ready
MINUTES ?= 10
WHERE ?=

.PHONY: install demo check test fuzz lint bench lock clean check-java

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

test: check-java install lint
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 20

fuzz: check-java install  # make fuzz MINUTES=60 WHERE=tests/sim: new cases for every property test
	@$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(WHERE)

lint: install
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: check-java install
	@$(BIN)/steelyard bench run --all --quick --out docs/results
	@$(BIN)/steelyard bench report --out docs/results

lock: install
	@$(BIN)/python -m pip freeze --exclude-editable > constraints.txt

clean:
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
