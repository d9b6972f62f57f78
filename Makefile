# Everything a fresh machine with Python >= 3.11 needs: `make demo` and `make test` set themselves up.
# A CPU-only torch on Linux: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make setup

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

# What a change is likely to break, in a minute and a half: the contract of all methods on a family of each kind, the
# guards of the house, and the quick tests of each room.
LONG := $(addprefix tests/house/,test_benchmarks.py test_docs.py test_examples.py test_plugins.py test_readme.py test_site.py test_wheel.py)  # they start Python again and again
QUICK := tests/test_contract.py $(filter-out $(LONG),$(wildcard tests/house/test_*.py)) \
  $(addprefix tests/,system/test_files.py methods/test_text_form.py methods/test_deltas.py \
  models/test_sites.py models/test_site_probe.py models/test_families.py models/test_positions.py attachment/test_bank_rows.py attachment/test_artifact_folder.py \
  data/test_corpus.py data/test_bleu.py data/test_scores.py report/test_verdict.py report/test_table.py \
  tasks/test_likelihood.py tasks/test_templates.py trial/test_train.py trial/test_open.py search/test_objective.py \
  probes/test_round.py probes/test_pattern.py exchange/test_peft_lora.py \
  comparison/test_pilot.py comparison/test_progress.py lab/test_world.py lab/test_lessons.py \
  reproduce/test_run.py theory/test_theorems.py)

# Of the families that have no file, one of each build.
TODAY := gemma3_text,phi3,olmo2,mixtral,jamba,modernbert,mt5,whisper

# Where it is set, as in many images of containers, every process of a test would compile torch and transformers anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo quick test slow soak check docs rooms bench bench-gpu

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: tunescope needs Python 3.11 or newer; name one: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e ".[dev]"  # a module is compiled when it is first imported
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/tunescope demo

quick: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --families gpt2,bert,t5,$(TODAY) $(QUICK)

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# What `make test` leaves out: processes of other programs begun again and again, families built as no other.
slow: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --slow -m slow

# Kills, failing writes and power losses, for an hour: what it finds goes to benchmarks/results/soak.json.
soak: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/soak

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The site, in docs/_build: begin at docs/_build/index.html.
docs: $(STAMP)
	$(BIN)/python -m scripts.method_pages
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs docs/_build

rooms:
	$(PYTHON) -m scripts.rooms

bench: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

bench-gpu: $(STAMP)
	TUNESCOPE_BENCH_DEVICE=cuda $(BIN)/python -m benchmarks
