# Every target sets up .venv by itself; nothing needs to be installed before.
PYTHON ?= python3
PY := .venv/bin/python
READY := .venv/.ready
READY_DEMO := .venv/.ready-demo
WARM := .venv/.warm
KERNELS := $(shell grep -rlE '^(import|from) numba' unstraggle --include='*.py')
# Tests start Python hundreds of times: compiled modules are kept, else importing PyTorch takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check lint types tests docs bench clean

demo: $(READY_DEMO)  ## train a real model with slow workers, coded against uncoded, into out/demo
	.venv/bin/unstraggle demo -o out/demo

test: lint $(WARM)  ## lint, then types and all tests side by side
	@$(MAKE) --no-print-directory -j2 types tests

check: lint types  ## lint and types only

lint: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(READY)
	$(PY) -m mypy

tests: $(WARM)  ## five at a time, for many of them wait
	$(PY) -m pytest -n 5 --dist loadgroup

docs: $(READY)  ## build the documentation into docs/_build/html
	.venv/bin/pip install --quiet -c constraints.txt -e '.[docs]'
	$(PY) -m sphinx -W --keep-going -b html docs docs/_build/html

bench: $(READY)  ## measure again and rewrite benchmarks/results
	$(PY) -m benchmarks

clean:
	rm -rf .venv out docs/_build docs/generated
	find unstraggle -name '*.nb[ic]' -delete

$(READY): pyproject.toml constraints.txt
	@echo "Installing all that the tests need into .venv: a few minutes, once."
	test -x $(PY) || $(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --no-compile -c constraints.txt -e '.[dev]'  # most modules are never imported
	touch $(READY_DEMO) $(READY)

$(READY_DEMO): pyproject.toml constraints.txt
	@echo "Installing what the demo needs into .venv (PyTorch is the largest): about a minute, once."
	test -x $(PY) || $(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --no-compile -c constraints.txt -e '.[demo]'
	touch $(READY_DEMO)

# Numba keeps a compiled kernel until its own file changes, even if what it calls in another file has changed.
$(WARM): $(READY) $(KERNELS)
	find unstraggle -name '*.nb[ic]' -delete
	$(PY) -m tests.warm_up
	touch $(WARM)
