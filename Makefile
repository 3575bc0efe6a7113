# fedkit: two commands matter, `make test` and `make book`; each sets itself up.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup test lint format book print draft check-book kernels bench lab figure sync lock serve clean distclean

PYTHON ?= python3
PROFILE ?= smoke
JOBS ?= 2
VENV := .venv
BENCH := _bench
LAB := _lab
BIN := $(VENV)/bin
RUN := OMP_NUM_THREADS=1 $(BIN)/python
# a process that compiles torch and pandas anew starts seconds later, and there are dozens
export PYTHONDONTWRITEBYTECODE :=

help: ## show this help
	@echo "fedkit: who contributed what in federated learning"
	@echo
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  Variables: PROFILE=$(PROFILE) (smoke, laptop, paper), JOBS=$(JOBS), PYTHON=$(PYTHON),"
	@echo "  FEDKIT_DATA=folder with data sets (see README.md)"

# The environment is made once; its stamp holds a hash of everything that it was made from, so a
# second call is instant and a changed lock is never overlooked.
setup: ## make or update .venv from requirements.lock
	@want=$$(cat requirements.lock requirements-uv.txt pyproject.toml | cksum); \
	if [ "$$(cat $(VENV)/.fedkit-stamp 2>/dev/null)" != "$$want" ]; then \
	  $(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if v >= (3, 11) else f"fedkit needs Python 3.11 or later, and $(PYTHON) is {v[0]}.{v[1]}: call make PYTHON=python3.11")'; \
	  echo "==> setting up $(VENV) (once; the packages of requirements.lock, torch among them)"; \
	  [ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV); \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.txt; \
	  $(BIN)/uv pip sync --quiet --require-hashes --python $(BIN)/python requirements.lock; \
	  $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .; \
	  echo "$$want" > $(VENV)/.fedkit-stamp; \
	  echo "==> $(VENV) is ready"; \
	fi

test: setup ## run the tests
	@echo "==> tests"
	@$(RUN) -m pytest -n $(JOBS) -m "not book and not weekly"

lint: setup ## ruff, formatting, mypy
	@echo "==> lint"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: setup ## mend formatting and what ruff can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

book: setup ## run every notebook and render the book (strict)
	@echo "==> book"
	@$(RUN) -m reproduction.commands book --profile $(PROFILE) build --jobs $(JOBS)

print: book ## the whole book as one page, and as a PDF where there is a Chromium
	@echo "==> print"
	@$(RUN) book/print.py

draft: setup ## build what there is of the book; ONLY="name ..." for some notebooks
	@$(RUN) -m reproduction.commands book --profile $(PROFILE) build --jobs $(JOBS) --draft $(foreach name,$(ONLY),--only $(name))

check-book: setup ## check the rendered book, that shown cells run alone, and the numbers of the pages
	@echo "==> checks of the rendered book"
	@$(RUN) -m pytest -n $(JOBS) -m book tests/test_book.py tests/test_notebooks.py tests/test_snapshots.py

kernels: setup ## tests and book with the kernels of other processors; ONLY="sse4-1 ..."
	@echo "==> kernels"
	@$(BIN)/python .ci/kernels.py $(WHAT) --jobs $(JOBS) $(if $(ONLY),--only $(ONLY))

# The newest shapiq wants Python 3.12, which the lock does not: its regressions stand beside ours in
# an environment of their own, of the newest versions that install where there is no such Python.
bench: setup ## speed and accuracy, side by side with peers (SHORT=1: a look whether it runs)
	@$(RUN) -m benchmarks $(if $(SHORT),--short)
	@[ -x $(BENCH)/bin/python ] || { \
	  found=$$($(BIN)/uv python find --no-python-downloads ">=3.12,<3.14" 2>/dev/null || echo $(BIN)/python); \
	  $(BIN)/uv venv --quiet --python "$$found" $(BENCH); \
	  $(BIN)/uv pip install --quiet --python $(BENCH)/bin/python -e ".[run]" shapiq lightgbm xgboost; }
	@$(BENCH)/bin/python -c 'import platform, importlib.metadata as m; print("\n=== test bed: Python", platform.python_version() + ", shapiq", m.version("shapiq"))'
	@OMP_NUM_THREADS=1 $(BENCH)/bin/python -m benchmarks.recorded --margins
	@OMP_NUM_THREADS=1 $(BENCH)/bin/python -m benchmarks.testbed $(if $(SHORT),--short --kept _rounds/short.csv)

# JupyterLab stands beside .venv, whose packages its kernel finds: nobody else needs it.
lab: setup ## open the notebooks in JupyterLab, their text rendered as MyST
	@[ -x $(LAB)/bin/jupyter-lab ] || { \
	  echo "==> setting up $(LAB) (once; JupyterLab and its rendering of MyST)"; \
	  $(BIN)/uv venv --quiet --python $(BIN)/python $(LAB); \
	  $(BIN)/uv pip install --quiet --python $(LAB)/bin/python --constraint requirements.lock --group lab; \
	  $(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	    > "$$($(LAB)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/fedkit-lab.pth"; }
	@$(LAB)/bin/jupyter-lab --notebook-dir=notebooks $(LAB_OPTIONS)

figure: setup ## draw the figure of the README
	@$(RUN) book/figures.py

sync: setup ## write the .ipynb of every notebook source
	@$(BIN)/python -m reproduction.commands book sync

lock: ## resolve requirements.lock anew from pyproject.toml (UPGRADE=1: newest of everything)
	@[ -x $(BIN)/uv ] || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --require-hashes -r requirements-uv.txt; }
	@$(BIN)/uv pip compile pyproject.toml --quiet --all-extras --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-annotate --no-header $(if $(UPGRADE),--upgrade) \
	  --output-file requirements.lock
	@{ echo '# Every package of every extra, for Python 3.11 to 3.13: written by "make lock".'; \
	  cat requirements.lock; } > requirements.lock.new && mv requirements.lock.new requirements.lock

serve: book ## build the book and show it on http://localhost:8000
	@$(BIN)/python -m http.server --directory _build/html --bind 127.0.0.1 8000

clean: ## remove what builds leave behind (keeps .venv)
	@rm -rf _build _stage _runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print | xargs -r rm -rf

distclean: clean ## remove the environments too
	@rm -rf $(VENV) $(BENCH) $(LAB) *.egg-info
