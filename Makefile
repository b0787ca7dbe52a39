# Every target makes its own .venv first; when nothing changed that costs less than a second.
# ARGS passes options on: make bench ARGS=--quick, make lock ARGS=--upgrade, make test ARGS=--lf

.DEFAULT_GOAL := help
.PHONY: help setup demo test check soak bench docs lock fmt lint clean
BIN := .venv/bin
ARGS ?=

# The tests start hundreds of Python processes. Without cached bytecode each of them compiles every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

# Many tests wait for other processes, so three processes keep two cores busy. `worksteal` gives each process one part of
# the tests and moves tests over when a process runs out.
PYTEST := $(BIN)/pytest -n 3 --dist worksteal

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS='	' read -r target what; do printf '  make %-7s %s\n' "$$target" "$$what"; done

setup: ## make .venv from the lock files (PYTHON=... picks the interpreter)
	@./scripts/setup.sh

demo: setup ## see OmniGraph work on the example graph
	@$(BIN)/python scripts/demo.py

test: lint ## everything: style, types, layers and all tests
	$(PYTEST) $(ARGS)

check: lint ## the same with one case of each quick test, without Spark and S3, for while you work
	OMNIGRAPH_CASES=1 $(PYTEST) -m "not (slow or spark or s3 or soak)" $(ARGS)

soak: setup ## the tests with all cases and long runs; takes hours
	OMNIGRAPH_SOAK=$${OMNIGRAPH_SOAK:-600} $(PYTEST) -m soak $(ARGS)

bench: setup ## run every benchmark and check its goals
	@$(BIN)/python scripts/bench_peers.py
	@$(BIN)/python bench/run.py $(ARGS)

docs: setup ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lock: setup ## write the lock files anew from pyproject.toml
	./scripts/lock.sh $(ARGS)
	@./scripts/setup.sh

fmt: setup ## format the code and fix what can be fixed
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format --quiet .

lint: setup ## style, types and layers only
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

clean: ## remove the environments and everything that was built
	rm -rf .venv .venv-s3 .venv-bench site dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
