# Every target sets up .venv by itself when it is missing or older than pyproject.toml: the demo
# with what it needs, the others with the tools of development, with which the demo runs as well.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
LAB := $(if $(wildcard $(READY)),$(READY),.venv/lab)
OLDEST := .venv-oldest

.PHONY: demo test quick oldest bench docs lint browser release-check clean

demo: $(LAB)  ## what a network learned, without learning its filters, pruned: in one page
	$(BIN)/python examples/demo.py

test: lint browser  ## everything: style, types, doctests, tests, the whole zoo
	$(BIN)/pytest -q -n 2

quick: lint browser  ## the part for daily work
	$(BIN)/pytest -q -n 2 -m "not zoo"

oldest: $(OLDEST)/ready  ## the quick tests with the oldest Python and packages that are promised
	$(OLDEST)/bin/pytest -q -n 2 -m "not zoo" -W default

bench: $(READY)  ## times and ratios: the methods, explanations, pruning, training (45 minutes)
	$(BIN)/python benchmarks/filters.py
	@echo
	$(BIN)/python benchmarks/explain.py
	@echo
	$(BIN)/python benchmarks/prune.py
	@echo
	$(BIN)/python benchmarks/training.py

docs: $(READY)  ## the documentation site, in build/site; it opens from disk
	$(BIN)/python tools/docs/build.py
	@echo "Wrote build/site/index.html"

release-check: $(READY)  ## build the package as it would be released, check it, and use it
	rm -rf dist build/wheel build/newcomer
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/python tools/check_wheel.py dist/*.whl
	$(BIN)/python -m pip install --quiet --no-deps --target build/wheel dist/*.whl
	PYTHONPATH=build/wheel $(BIN)/python tools/newcomer.py build/newcomer

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The page is tested in a real browser: Debian's chromium, or any Chrome that is there.
browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    { echo "installing chromium for the tests of the page"; \
	      apt-get -qq update && apt-get -qq install -y chromium >/dev/null; }; } || \
	  echo "NOTE: no chromium and no way to install it: the page's browser tests are left out"

.venv/lab: EXTRA := lab
$(READY): EXTRA := dev
.venv/lab $(READY): pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "explainfix needs Python 3.11 or newer; try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRA)]'
	@touch $@

$(OLDEST)/ready: pyproject.toml tools/lower_bounds.py
	python3.11 -m venv --clear $(OLDEST)
	python3.11 tools/lower_bounds.py > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --upgrade pip
	$(OLDEST)/bin/python -m pip install --quiet --editable '.[dev]' \
	  --constraint $(OLDEST)/constraints.txt
	@touch $@

clean:
	rm -rf .venv $(OLDEST) demo build
