# Every target makes .venv from requirements.lock when it is missing or stale.
PYTHON ?= python3
VENV ?=
ARGS ?=
PROFILE ?= quick
SUITE ?=
BUDGET ?=
REST ?=

# Where this is set, every process compiles anew whatever it loads: seconds for each command, a minute for the tests.
unexport PYTHONDONTWRITEBYTECODE

# Whatever else is set in the command is refused: earlier versions had a variable for each option.
TAKEN = ARGS PYTHON VENV REST SHELL $(if $(filter plan sweep,$(MAKECMDGOALS)),PROFILE SUITE BUDGET)
UNKNOWN := $(filter-out $(TAKEN),$(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name))))
$(if $(UNKNOWN),$(error make $(MAKECMDGOALS) takes no $(UNKNOWN:%=%=): options and arguments go into ARGS, \
	as in make sweep ARGS="--data photographs/"; .venv/bin/feedrate $(firstword $(MAKECMDGOALS)) --help lists them))

.DEFAULT_GOAL := help
.PHONY: help setup plan sweep gpu-reference run tune top site figures serve compare submit chromium slurm test test-all lint bench div2k lock clean
# With VENV=0 commands take the Python that is there (PYTHON=), as where a machine's own torch drives its GPU.
HERE = PYTHONPATH="$(CURDIR)/harness$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON) -m feedrate
FEEDRATE = $(if $(filter 0,$(VENV)),$(HERE),$(CURDIR)/.venv/bin/feedrate)
READY = $(if $(filter 0,$(VENV)),,.venv/ready)
# So many files of tests at a time: two on fewer than four cores, as more would disturb those that measure. The slow ones
# wait much of their time: on two cores four at a time take 12 minutes, three take 14.
# One thread a process: threads of torch spin while they wait for each other, and several processes share few cores.
PYTEST = OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n $(1) --dist loadfile --no-loadscope-reorder
FILES := $(shell [ $$(nproc) -ge 4 ] && echo 3 || echo 2)
ASKED = --profile "$(PROFILE)" --suite "$(SUITE)" --budget "$(BUDGET)"
NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "feedrate needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) -V 2>&1): make PYTHON=python3.12 ..."; exit 2; }

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "; print "feedrate: how fast can a machine feed its accelerator?\n"} \
		/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile
	@echo; echo '  plan and sweep take PROFILE=quick|gpu|transfer|reference|tune|full SUITE=NAME BUDGET=30m.'; \
	echo '  Every command takes more options in ARGS, such as ARGS="--data photographs/"; .venv/bin/feedrate COMMAND --help lists them.'; \
	echo '  With VENV=0 PYTHON=python3 commands take the Python that is there.'

setup: .venv/ready ## Make .venv from requirements.lock (every target does this by itself)

PIP = .venv/bin/python -m pip install --disable-pip-version-check --progress-bar off -q --no-compile
# uv takes a quarter of pip's time. It knows none of pip's settings: it gets the index, and where it fails pip has its turn.
UV = UV_DEFAULT_INDEX="$$(.venv/bin/pip config get global.index-url 2>/dev/null)" \
	.venv/bin/uv pip install -q --python .venv/bin/python --cache-dir .venv/uv

.venv/ready: requirements.lock site/package-lock.json
	@echo "Making .venv from requirements.lock (1 to 4 minutes and 6 GB, most of it PyTorch) ..."
	@$(NEW_ENOUGH)
	@rm -rf .venv && $(PYTHON) -m venv .venv
	@$(PIP) $$(grep ^uv== requirements.lock)
	@$(UV) -r requirements.lock 2>/dev/null || $(PIP) -r requirements.lock
	@$(PIP) --no-deps -e . && rm -rf .venv/uv
	@mkdir .venv/npm && cp site/package.json site/package-lock.json .venv/npm && \
		PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/npm ci --prefix .venv/npm --ignore-scripts --no-audit --no-fund --silent
	@sync  # gigabytes on their way to the disk would slow down whatever is measured or tested next
	@touch $@ && echo ".venv is ready."

plan: $(READY) ## Print what the matrix expands to on this machine
	@$(FEEDRATE) plan $(ASKED) $(ARGS)

sweep: $(READY) ## Measure: results/MACHINE/RUN/*.parquet (PROFILE= SUITE= BUDGET=)
	@$(FEEDRATE) sweep $(ASKED) $(ARGS)

gpu-reference: ## On a GPU machine, with its own Python (PYTHON=): about 22 min by estimate, or one step, 9 at most (ARGS="--step probe")
	@$(NEW_ENOUGH)
	@$(HERE) gpu-reference $(ARGS)

run: $(READY) ## Say what holds back a training script of yours (ARGS="-- python train.py")
	@$(FEEDRATE) run $(ARGS)

tune: $(READY) ## Find the loader settings that feed a script of yours best (ARGS="-- python train.py")
	@$(FEEDRATE) tune $(ARGS)

top: $(READY) ## The same of a training that already runs (ARGS=PID)
	@$(FEEDRATE) top $(ARGS)

site: .venv/ready ## Build the website from all results into build/site
	@$(FEEDRATE) site $(ARGS)

figures: .venv/ready ## Write every figure for papers: SVG, PNG, PDF, CSV, Vega-Lite, figures.bib
	@$(FEEDRATE) figures $(ARGS)

serve: .venv/ready ## Show the website on this machine; build again when results change
	@$(FEEDRATE) serve $(ARGS)

compare: $(READY) ## Compare two machines, or two runs of one (ARGS="A B": id, folder or trials.parquet)
	@$(FEEDRATE) compare $(ARGS)

submit: $(READY) ## Publish a run: shows what will be public, asks first (ARGS=RUN)
	@$(FEEDRATE) submit $(ARGS)

# What tests need of the system is installed here where this is root on Debian, else the one line to type is said.
INSTALL = command -v $(1) >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		echo "Installing $(2) for the tests ..." && apt-get update -qq >/dev/null && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(2) >/dev/null 2>&1; } || \
		{ echo "The tests need $(2); type: sudo apt-get install $(2)"; exit 2; }

chromium:
	@$(call INSTALL,chromium,chromium)

slurm:
	@$(call INSTALL,slurmctld,slurm-wlm munge)

test: .venv/ready chromium ## Run the tests (3 minutes on 2 cores)
	@$(call PYTEST,$(FILES)) -m "not slow"

test-all: .venv/ready chromium slurm ## Run all tests: kills, fuzzing, full matrices too (REST=1: without those of make test)
	@$(call PYTEST,4) $(if $(REST),-m slow)

lint: .venv/ready ## ruff, strict mypy, import contracts, types of the site's scripts
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && .venv/bin/lint-imports
	@.venv/npm/node_modules/@typescript/*/lib/tsc -p site

bench: .venv/ready ## Measure what feedrate promises of itself: results/MACHINE/bench/
	@$(FEEDRATE) bench $(ARGS)

div2k: .venv/ready ## Download DIV2K's photographs and cut them
	@$(FEEDRATE) data div2k $(ARGS)

lock: .venv/ready ## Compile requirements.lock anew from pyproject.toml
	@.venv/bin/uv pip compile -q --universal --python-version 3.11 --group dev --all-extras pyproject.toml --no-emit-index-url --no-annotate \
		--custom-compile-command 'make lock' -o requirements.lock

clean: ## Remove what was built: build/, packed data, caches (never results/, nor what was downloaded)
	@if [ -d data ]; then find data -mindepth 1 -maxdepth 1 ! -name 'DIV2K*' ! -name 'oxford-*' -exec rm -rf {} +; fi
	@rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
