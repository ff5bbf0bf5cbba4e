PYTHON ?= python3
BIN := .venv/bin
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo test quick lint clean

demo: .venv/installed  ## the whole chain on real statutes, about 15 minutes on two cores
	$(BIN)/python -m demo

test: .venv/installed lint  ## every test
	$(BIN)/python -m pytest -q

quick: .venv/installed  ## the tests without the slow ones
	$(BIN)/python -m pytest -q -m "not slow"

lint: .venv/installed
	$(BIN)/ruff check .

.venv/installed: requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv runs
