# make quickstart   the whole job on text from this machine: no data, no hub, no GPU
# make test         the default test suite
# make docs         the documentation's site, in site/
PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart test test-slow lint docs clean

quickstart: .venv/offline
	$(BIN)/dana quickstart

test: .venv/test
	$(BIN)/python -m pytest -m "not slow and not gpu" --numprocesses auto --maxprocesses 8 --dist loadfile

test-slow: .venv/test .venv/deepspeed
	$(BIN)/python -m pytest -m slow

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The variable silences an advertisement.
docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

# One marker an extra: reinstalled only when pyproject.toml changes.
.venv/%: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet -e ".[$*]"
	touch $@

clean:
	rm -rf .venv runs site build dist *.egg-info
