# Everything a fresh machine with Python >= 3.11 needs: `make demo` and `make test` set themselves up.
# A CPU-only torch on Linux: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make setup

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test check rooms bench bench-gpu

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: tunescope needs Python 3.11 or newer; name one: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/tunescope demo

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

rooms:
	$(PYTHON) -m scripts.rooms

bench: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

bench-gpu: $(STAMP)
	TUNESCOPE_BENCH_DEVICE=cuda $(BIN)/python -m benchmarks
