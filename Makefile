# Two commands do everything on a fresh machine with Python 3.11: `make reproduce` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
LOWEST := .venv-lowest

.PHONY: help reproduce quick play test test-whole test-slow test-lowest check format bench bench-page deep-study fleet-study docs site clean

help:
	@echo "make reproduce  every experiment, figure and claim of the paper -> reproduction/report.html"
	@echo "make quick      a smaller version of it: about 12 seconds"
	@echo "make play       the playground, in a browser on 127.0.0.1"
	@echo "make test       the tests          make test-whole whole programs: browser, servers, documentation"
	@echo "make test-slow  long statistical and timing tests"
	@echo "make test-lowest some tests on the lowest versions of the packages that we ask for (Python 3.11)"
	@echo "make check      lint and types     make format     let the formatter at it"
	@echo "make bench      updates a second, beside plain Python"
	@echo "make bench-page from the playground's slider to the screen, in a headless Chromium"
	@echo "make deep-study deep RL with shaped replay: hours of training -> docs/deep.md"
	@echo "make fleet-study thousands of networks in JAX: needs a GPU -> docs/fleet.md"
	@echo "make docs       regenerate the generated pages, pictures and notebooks of docs/"
	@echo "make site       the documentation as a site, built strictly and without network -> site/index.html"

$(VENV)/core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "safereplay needs Python 3.11 or newer: make PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing safereplay into $(VENV), and compiling (about two minutes) ..."
	@$(PIP) install -c constraints.txt -e .
	@$(BIN)/safereplay compile
	@touch $@

$(VENV)/dev: $(VENV)/core
	@echo "installing the tools for tests ..."
	@$(PIP) install --upgrade "pip>=25.1"
	@$(PIP) install -c constraints.txt -e . --group dev
	@$(PIP) install -c constraints.txt stormpy || echo "stormpy does not install here: the tests that ask it are skipped"
	@touch $@

$(VENV)/web: $(VENV)/core
	@$(PIP) install -c constraints.txt -e ".[web]"
	@touch $@

$(VENV)/docs: $(VENV)/core
	@$(PIP) install -c constraints.txt -e ".[docs]"
	@touch $@

# A virtual environment of its own, whose constraints are the lower bounds in pyproject.toml.
$(LOWEST)/ready: pyproject.toml .ci/lowest.py
	@$(PYTHON) -m venv --clear $(LOWEST)
	@$(LOWEST)/bin/python .ci/lowest.py web > $(LOWEST)/constraints.txt
	@echo "installing the lowest versions into $(LOWEST) ..."
	@$(LOWEST)/bin/pip --disable-pip-version-check --quiet install -c $(LOWEST)/constraints.txt -e ".[web]" httpx hypothesis pytest
	@touch $@

reproduce: $(VENV)/core
	$(BIN)/safereplay reproduce --out reproduction

quick: $(VENV)/core
	$(BIN)/safereplay reproduce --quick --out reproduction

play: $(VENV)/web
	$(BIN)/safereplay play

test: $(VENV)/dev
	$(BIN)/pytest -q -n auto --dist worksteal -p no:schemathesis -m "not slow and not whole"

test-whole: $(VENV)/dev
	$(BIN)/pytest -q -n auto --dist worksteal -m "whole and not slow" tests

test-slow: $(VENV)/dev
	$(BIN)/pytest -q -m slow
	$(BIN)/pytest -q -m "hypothesis and not slow" --hypothesis-profile=thorough tests

test-lowest: $(LOWEST)/ready
	NUMBA_CACHE_DIR=$(CURDIR)/$(LOWEST)/compiled $(LOWEST)/bin/pytest -q -o filterwarnings=default -k "not polars" \
	  tests/cli/test_first_contact.py tests/test_gym.py tests/test_mdp.py tests/test_verdicts.py tests/engines/test_store.py \
	  tests/views tests/web/test_answers.py

check: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/core
	$(BIN)/safereplay bench

bench-page: $(VENV)/dev
	$(BIN)/pytest -q -s -m slow tests/web/pages/test_speed.py

deep-study: $(VENV)/dev
	$(BIN)/python -m studies.deep --out deep-study --docs docs

fleet-study: $(VENV)/dev
	$(BIN)/python -m studies.fleet --out fleet-study --docs docs

docs: $(VENV)/dev
	$(BIN)/python docs/generate.py

site: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html; search needs a server: $(BIN)/python -m http.server --directory site"

clean:
	rm -rf $(VENV) $(LOWEST) reproduction site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
