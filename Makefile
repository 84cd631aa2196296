# Python >= 3.11 and make are enough. `make help` lists the targets.
#   PYTHON=/path/to/python3.12  interpreter for the virtual environment
#   VENV=.venv                  where it lives           DJANGO='~=6.1.0'  pins Django (default: the newest that the interpreter can have)
#   REDIS_URL, DATABASE_URL     use these servers instead of private ones
#   ARGS                        passed on to demo and serve        PYTEST_ARGS  passed on to pytest
SHELL := /bin/sh
VENV ?= .venv
DJANGO ?=
ARGS ?=
PYTEST_ARGS ?=
BIN := $(VENV)/bin
RUN := $(BIN)/python -m embedded run
LOWEST := import sys; sys.exit(sys.version_info < (3, 11))

.PHONY: help venv demo test lint serve migrations-check clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 26

# The stamp holds a hash of pyproject.toml and the Django pin; when it differs the packages are brought up to date. An interrupted
# installation has no stamp and is made anew, as is one whose interpreter is gone or is not the one asked for.
# A name on PATH may be a shim that fails: an interpreter counts only when it runs.
venv: ## make the virtual environment, or bring it up to date
	@want=$$(printf '%s|' '$(DJANGO)' | cat - pyproject.toml | cksum); python='$(PYTHON)'; \
	base='import sys; print(sys.base_prefix)'; have=$$($(BIN)/python -c '$(LOWEST)' 2>/dev/null && $(BIN)/python -c "$$base"); \
	if [ -n "$$have" ] && [ -n "$$python" ] && [ "$$have" != "$$("$$python" -c "$$base")" ]; then have=''; fi; \
	if [ ! -s $(VENV)/.stamp ]; then have=''; fi; \
	if [ -n "$$have" ] && [ "$$(cat $(VENV)/.stamp)" = "$$want" ]; then exit 0; fi; \
	if [ -z "$$have" ]; then \
		candidates="$${python:-python3.13 python3.12 python3.11 python3 $$(ls -d "$$HOME"/.pyenv/versions/3.1[1-3].*/bin/python 2>/dev/null | sort -rV | tr '\n' ' ')}"; \
		python=''; for candidate in $$candidates; do \
			if "$$candidate" --version >/dev/null 2>&1 && "$$candidate" -c '$(LOWEST)' && "$$candidate" -c 'import ensurepip, venv' 2>/dev/null; \
			then python=$$candidate; break; fi; done; \
		if [ -z "$$python" ]; then \
			echo "No working Python >= 3.11 that can make virtual environments among: $$candidates. Install one, or name it: make PYTHON=/path/to/python3" >&2; \
			exit 1; fi; \
		echo "Making $(VENV) with $$("$$python" --version) ($$python)"; rm -rf $(VENV); "$$python" -m venv $(VENV) || exit 1; fi; \
	rm -f $(VENV)/.stamp; extras=dev; \
	if $(BIN)/python -c 'import sysconfig, sys; sys.exit("musl" not in (sysconfig.get_config_var("HOST_GNU_TYPE") or ""))'; then extras=site,checks; fi; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$$extras]" 'django$(DJANGO)' && printf '%s\n' "$$want" > $(VENV)/.stamp

# Every line that starts servers is one plain command: no shell stands between make and it, so a signal to make reaches it.
demo: venv ## the noisy-neighbour story on private servers
	@$(RUN) -- $(BIN)/python manage.py demo $(ARGS)

serve: venv ## site and workers, to look at in a browser
	@$(RUN) -- $(BIN)/python manage.py serve $(ARGS)

test: lint ## lint, then the tests on private servers (PYTEST_ARGS="-k name")
	@$(RUN) --no-fsync -- $(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

lint: venv migrations-check ## ruff, mypy, import-linter, migrations
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

migrations-check: venv ## every model change has its migration
	$(RUN) --no-fsync -- $(BIN)/python manage.py makemigrations --check --dry-run

clean: ## remove the virtual environments, caches and what killed runs left
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m embedded clean; fi
	rm -rf .venv .venv-* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
