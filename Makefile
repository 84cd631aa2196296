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
RUN := $(BIN)/python -m embedded run --
LOWEST := import sys; sys.exit(sys.version_info < (3, 11))

.PHONY: help venv demo test lint serve migrations-check clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 26

# The stamp holds a hash of pyproject.toml, the Django pin and the interpreter asked for: a change of any of them makes the venv anew.
# A name on PATH may be a shim that fails: an interpreter counts only when it runs.
venv: ## make or refresh the virtual environment
	@want=$$(printf '%s|%s|' '$(DJANGO)' '$(PYTHON)' | cat - pyproject.toml | cksum); \
	if [ -x $(BIN)/python ] && [ "$$(cat $(VENV)/.stamp 2>/dev/null)" = "$$want" ] && $(BIN)/python -c '$(LOWEST)' 2>/dev/null; then exit 0; fi; \
	python=''; \
	if [ -n '$(PYTHON)' ]; then candidates='$(PYTHON)'; else \
		candidates="python3.13 python3.12 python3.11 python3"; \
		for v in 13 12 11; do for p in "$$HOME"/.pyenv/versions/3.$$v.*/bin/python; do candidates="$$candidates $$p"; done; done; fi; \
	for p in $$candidates; do \
		if "$$p" --version >/dev/null 2>&1 && "$$p" -c '$(LOWEST); import ensurepip, venv' 2>/dev/null; then python=$$p; break; fi; done; \
	if [ -z "$$python" ]; then echo "No working Python >= 3.11 with venv among: $$candidates. Install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; fi; \
	echo "Making $(VENV) with $$("$$python" --version) ($$python)"; \
	rm -rf $(VENV) && "$$python" -m venv $(VENV) \
	&& $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' 'django$(DJANGO)' \
	&& printf '%s\n' "$$want" > $(VENV)/.stamp
