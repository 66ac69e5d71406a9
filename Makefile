# Every target sets up .venv by itself when it is missing or older than pyproject.toml.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test quick bench lint clean

demo: $(READY)  ## fix U-NetD with all six methods, describe it, draw the filters
	$(BIN)/python examples/demo.py

test: lint  ## everything: style, types, doctests, tests, the whole zoo
	$(BIN)/pytest -q -n 2

quick: lint  ## the part for daily work
	$(BIN)/pytest -q -n 2 -m "not zoo"

bench: $(READY)  ## times of the methods and their ratios to a plain loop
	$(BIN)/python benchmarks/filters.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(READY): pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "explainfix needs Python 3.11 or newer; try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv demo
