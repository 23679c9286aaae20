# Recipes that only install or only forward to a tool stay silent, so that output is the tool's own.

PYTHON ?= python3
ARGS ?=
bin := .venv/bin
code := $(wildcard src tests bench tools)
server := .venv/.server-installed
dev := .venv/.dev-installed

.DEFAULT_GOAL := help
.PHONY: help serve test check lint types contracts docs generated fix bench gen lock

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: $(server) ## run the server; ARGS="--port 9000" passes flags on
	@exec $(bin)/headgate serve $(ARGS)

test: $(dev) ## run all tests; ARGS="tests/core -x" narrows them down
	@$(bin)/python -m pytest $(ARGS)

check: lint types contracts test generated ## everything that CI runs

lint: $(dev) ## find faults in style and formatting
	@$(bin)/ruff check $(code)
	@$(bin)/ruff format --check $(code)

types: $(dev) ## check the types, strictly
	@$(bin)/mypy $(code)

contracts: $(dev) ## check that imports point inward
	@$(bin)/lint-imports

docs: generated ## run what README and docs show, and check generated pages
	@$(bin)/python -m pytest tests/test_docs.py

generated: $(dev) ## check that the generated pages are up to date
	@$(bin)/python -m tools.gen --check

fix: $(dev) ## repair style and formatting where a tool can
	@$(bin)/ruff check --fix $(code)
	@$(bin)/ruff format $(code)

bench: $(dev) ## measure; ARGS="--help" lists what can be measured
	@$(bin)/python -m bench $(ARGS)

gen: $(dev) ## write the generated pages anew
	@$(bin)/python -m tools.gen

lock: $(dev) ## take the newest versions into the lock files
	@$(bin)/python -m tools.lock

$(server): requirements.lock pyproject.toml tools/make-venv
	@tools/make-venv $(PYTHON) requirements.lock
	@touch $@

$(dev): requirements-dev.lock pyproject.toml tools/make-venv
	@tools/make-venv $(PYTHON) requirements-dev.lock
	@touch $@
