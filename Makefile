# make quickstart   the whole job on text that ships with dana: no data, no hub, no GPU
# make test         the default test suite
# make test-core    the core alone, installed without dana/studies
# make coverage     the share of lines and branches of dana/ that the default tests run, in build/coverage.md
# make docs         the documentation's site, in site/
PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart test test-slow test-core coverage lint docs clean

quickstart: .venv/offline
	$(BIN)/dana quickstart

test: .venv/test
	$(BIN)/python -m pytest -m "not slow and not gpu" --numprocesses auto --maxprocesses 8 --dist loadfile

test-slow: .venv/test .venv/deepspeed
	$(BIN)/python -m pytest -m slow --durations 25 --numprocesses auto --maxprocesses 2 --dist loadfile

# Of a clone, installed into an environment of its own; a recipe runs to its verdict in tests/stages/steps.
test-core:
	rm -rf build/core
	git clone --quiet . build/core
	cd build/core && rm -r dana/studies tests/studies && $(MAKE) .venv/test \
	  && .venv/bin/dana --help && .venv/bin/python -m pytest --collect-only --quiet --quiet \
	  && .venv/bin/python -m pytest -m "not slow and not gpu" --numprocesses auto --maxprocesses 8 --dist loadfile \
	    tests/core tests/cli tests/api tests/report tests/stages/steps tests/weighting tests/test_recipes.py tests/test_versions.py

coverage: .venv/test
	$(BIN)/python -m pip install --quiet "pytest-cov>=6"
	mkdir -p build
	$(BIN)/python -m pytest -m "not slow and not gpu" --numprocesses auto --maxprocesses 8 --dist loadfile \
	  --cov=dana --cov-branch --cov-report=markdown:build/coverage.md --cov-report=term $(TESTS)

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The variable silences an advertisement.
docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

# One marker an extra: reinstalled only when pyproject.toml changes.
.venv/%: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet -e ".[$*]"
	touch $@

clean:
	rm -rf .venv runs site build dist *.egg-info
