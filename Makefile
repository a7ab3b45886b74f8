# Every target makes its own virtual environment; `make test` also installs what the rig needs from Debian.
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp

.PHONY: demo test test-slow test-gpu faults lint bench schema pictures clean system

$(STAMP): pyproject.toml constraints.txt
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "moetop needs Python 3.10 or later: make PY=python3.12" >&2; exit 1; }
	$(PY) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	@if [ -t 1 ]; then $(BIN)/moetop --demo; else $(BIN)/moetop --demo --snapshot -; fi

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

system:
	@tests/rig/install-system.sh

test: $(STAMP) system lint
	$(BIN)/pytest -n 4 --dist worksteal -m "not slow and not faults"

test-slow: $(STAMP) system
	$(BIN)/pytest -m "slow and not faults"

faults: $(STAMP) system
	$(BIN)/python -m tests.faults
	$(BIN)/pytest -n 2 tests/rig/test_retune_faults.py tests/rig/test_retune_loop.py tests/rig/test_retune_operators.py

test-gpu:
	bash tests/gpu/first_look.sh
	bash tests/gpu/retune_loop.sh
	PYTHONPATH=$(CURDIR):/tmp/site $(PY) -m tests.gpu.peers_cost

bench: $(STAMP)
	$(BIN)/python -m tests.bench

schema: $(STAMP)
	$(BIN)/python -m moetop.export.schema

pictures: $(STAMP)
	$(BIN)/python docs/make_pictures.py docs/img

clean:
	rm -rf $(VENV) build dist *.egg-info tests/.build .mypy_cache .ruff_cache .hypothesis
