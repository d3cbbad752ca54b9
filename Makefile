# Every target makes .venv from requirements.lock when it is missing or stale.
PYTHON ?= python3
VENV ?=
PROFILE ?= quick
SUITE ?=
BUDGET ?=
MATRIX ?= matrix.yaml
DATA ?=
DATA_ROOT ?= data
FRESH ?=
YES ?=
TUNE ?=
SEED ?=
WAIT_QUIET ?=
ON ?=
NODES ?=
TOGETHER ?=
PARTITION ?=
CONSTRAINT ?=
ACCOUNT ?=
TIME ?=
ONLY ?=
SPLIT ?= train
ARCHIVE ?=
OUT ?=
RUN ?=
LABEL ?=
NOTE ?=
WHY ?=
A ?=
B ?=
MARKDOWN ?=
ALL ?=
CMD ?=
DIR ?= .
STEPS ?=
LIVE ?=
HEADSPACE ?=
NAME ?=
PID ?=
STEP ?=
PROPOSED ?= proposed
SWEEP ?=
RESULTS ?=
FILES ?= $(or $(RESULTS),results)
REST ?=
# What people wrote reaches a command as they wrote it: neither make nor the shell looks for $ or ` in it.
override LABEL := $(value LABEL)
override NOTE := $(value NOTE)
override WHY := $(value WHY)
export LABEL NOTE WHY

# Where this is set, every process compiles anew whatever it loads: seconds for each command, a minute for the tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup plan sweep gpu-reference summarise site figures serve test test-all lint bench div2k pets readme lock clean chromium slurm submit withdraw label data-release compare nodes validate run top
# With VENV=0 commands take the Python that is there (PYTHON=), as where a machine's own torch drives its GPU.
HERE = PYTHONPATH="$(CURDIR)/harness$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON) -m feedrate
FEEDRATE = $(if $(filter 0,$(VENV)),$(HERE),$(CURDIR)/.venv/bin/feedrate)
READY = $(if $(filter 0,$(VENV)),,.venv/ready)
# Three files of tests at a time where there are four cores, else two: more would disturb those that measure, and on four
# cores four of them are hardly done sooner.
PYTEST := .venv/bin/python -m pytest -n $(shell [ $$(nproc) -ge 4 ] && echo 3 || echo 2) --dist loadfile --no-loadscope-reorder
AT := $(if $(RESULTS),--results "$(RESULTS)")
WHAT := --matrix "$(MATRIX)" --profile "$(PROFILE)" --suite "$(SUITE)" --budget "$(BUDGET)" --data "$(DATA)" \
	--data-root "$(DATA_ROOT)" $(if $(YES),--yes) $(if $(TUNE),--tune) $(AT)
NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "feedrate needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) -V 2>&1): make PYTHON=python3.12 ..."; exit 2; }

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "; print "feedrate: how fast can a machine feed its accelerator?\n"} \
		/^[a-z0-9-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile
	@echo; echo "  For plan and sweep: PROFILE=quick|gpu|transfer|reference|tune|full SUITE=NAME BUDGET=30m DATA=photographs/ DATA_ROOT=data MATRIX=matrix.yaml TUNE=1 (search for the best settings)"; \
	echo "  For sweep: FRESH=1 (do not resume) WAIT_QUIET=10m SEED=1 YES=1 (run a very large matrix)"; \
	echo "  On a cluster: ON=slurm NODES=4 PARTITION=NAME CONSTRAINT=FEATURE ACCOUNT=NAME TIME=2h TOGETHER=1 (all nodes load at the same moment)"; \
	echo "  For all that measure or read runs: VENV=0 PYTHON=python3 (the Python that is there, not .venv)"; \
	echo "  For all that read or write runs: RESULTS=results, or a store: s3://bucket/results, gs://, hf://, ssh:// … (with its client: pip install s3fs)"

setup: .venv/ready ## Make .venv from requirements.lock (every target does this by itself)

.venv/ready: requirements.lock site/package-lock.json
	@echo "Making .venv from requirements.lock (2 to 4 minutes and 6 GB, most of it PyTorch) ..."
	@$(NEW_ENOUGH)
	@rm -rf .venv && $(PYTHON) -m venv .venv
	@.venv/bin/python -m pip install --disable-pip-version-check --progress-bar off -q --no-compile -r requirements.lock
	@.venv/bin/python -m pip install --disable-pip-version-check -q --no-deps -e .
	@mkdir .venv/npm && cp site/package.json site/package-lock.json .venv/npm && \
		PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/npm ci --prefix .venv/npm --ignore-scripts --no-audit --no-fund --silent
	@sync  # gigabytes on their way to the disk would slow down whatever is measured or tested next
	@touch $@ && echo ".venv is ready."

plan: $(READY) ## Print what the matrix expands to on this machine
	@$(FEEDRATE) plan $(WHAT)

sweep: $(READY) ## Measure: results/MACHINE/RUN/*.parquet (BUDGET=, DATA=, PROFILE= …)
	@$(FEEDRATE) sweep $(WHAT) $(if $(FRESH),--fresh) $(if $(SEED),--seed $(SEED)) \
		$(if $(WAIT_QUIET),--wait-quiet $(WAIT_QUIET)) $(if $(ON),--on "$(ON)") $(if $(NODES),--nodes $(NODES)) $(if $(TOGETHER),--together) \
		$(if $(PARTITION),--partition "$(PARTITION)") $(if $(CONSTRAINT),--constraint "$(CONSTRAINT)") \
		$(if $(ACCOUNT),--account "$(ACCOUNT)") $(if $(TIME),--time $(TIME))

gpu-reference: ## On a GPU machine, with the Python there (PYTHON=): about 22 min by estimate, or one STEP=probe|tests|reference|transfer|hook, 9 at most (BUDGET=8m OUT=)
	@$(NEW_ENOUGH)
	@$(HERE) gpu-reference $(if $(STEP),--step $(STEP)) $(if $(BUDGET),--budget $(BUDGET)) $(if $(OUT),--out "$(OUT)") \
		--data-root "$(DATA_ROOT)" --matrix "$(MATRIX)"

run: $(READY) ## Say what holds back a training script of yours (CMD="python train.py", DIR=where, STEPS= LIVE=1 HEADSPACE=1 NAME=)
	@cd "$(DIR)" && $(FEEDRATE) run $(if $(STEPS),--steps $(STEPS)) $(if $(LIVE),--live) $(if $(HEADSPACE),--headspace) \
		$(if $(NAME),--name "$(NAME)") $(AT) -- $(CMD)

tune: $(READY) ## Find the loader settings that feed a script of yours best (CMD= or FILE=file.py:make, DIR=, WITHIN=3 BUDGET= BATCH_SIZES= FRESH=1)
	@cd "$(DIR)" && $(FEEDRATE) tune $(if $(WITHIN),--within $(WITHIN)) $(if $(BUDGET),--budget $(BUDGET)) \
		$(if $(BATCH_SIZES),--batch-size $(BATCH_SIZES)) $(if $(FRESH),--fresh) $(if $(NAME),--name "$(NAME)") $(AT) -- $(if $(FILE),"$(FILE)",$(CMD))

top: $(READY) ## The same of a training that already runs (PID=)
	@$(FEEDRATE) top $(PID)

summarise: $(READY) ## Sum up all runs in results/summaries/, for a store of very many; then make site shows the newest in full
	@$(FEEDRATE) summarise $(AT)

site: .venv/ready ## Build the website from all results into build/site
	@$(FEEDRATE) site $(AT)

figures: .venv/ready ## Write every figure for papers: SVG, PNG, PDF, CSV, Vega-Lite, figures.bib (OUT=build/figures)
	@$(FEEDRATE) figures $(if $(OUT),--out "$(OUT)") $(AT)

serve: .venv/ready ## Show the website on this machine; build again when results change
	@$(FEEDRATE) serve $(AT)

compare: $(READY) ## Compare two machines, or two runs of one (A=, B=: id, folder or trials.parquet; MARKDOWN=1, ALL=1)
	@$(FEEDRATE) compare "$(A)" "$(B)" $(if $(MARKDOWN),--markdown) $(if $(ALL),--all) $(AT)

nodes: $(READY) ## Say which nodes of a cluster's sweep stand out, in which stage, and by how much (SWEEP=, by default the newest)
	@$(FEEDRATE) nodes $(if $(SWEEP),"$(SWEEP)") $(AT)

validate: $(READY) ## Check result files of others: structure, ranges, identities (FILES="trials.parquet results/MACHINE/RUN …")
	@$(FEEDRATE) validate $(AT) $(FILES)

submit: $(READY) ## Publish a run: shows what will be public, asks first (RUN=, LABEL=, NOTE=, YES=1)
	@$(FEEDRATE) submit "$(RUN)" --label "$$LABEL" --note "$$NOTE" $(if $(YES),--yes) $(if $(OUT),--out "$(OUT)") $(AT)

label: $(READY) ## Give a run a label and a note (RUN=, LABEL=, NOTE=)
	@$(FEEDRATE) label "$(RUN)" --label "$$LABEL" --note "$$NOTE" $(AT)

withdraw: $(READY) ## Take back a run that has a defect, never for what it found (RUN=, WHY="the defect")
	@$(FEEDRATE) withdraw "$(RUN)" --why "$$WHY" $(AT)

data-release: .venv/ready ## Write all runs as one archive, with checksum and the metadata for a DOI (OUT=build/release)
	@$(FEEDRATE) data-release $(if $(OUT),--out "$(OUT)") $(AT)

# What tests need of the system is installed here where this is root on Debian, else the one line to type is said.
INSTALL = command -v $(1) >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		echo "Installing $(2) for the tests ..." && apt-get update -qq >/dev/null && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(2) >/dev/null 2>&1; } || \
		{ echo "The tests need $(2); type: sudo apt-get install $(2)"; exit 2; }

chromium:
	@$(call INSTALL,chromium,chromium)

slurm:
	@$(call INSTALL,slurmctld,slurm-wlm munge)

test: .venv/ready chromium ## Run the tests (4 minutes on 4 cores)
	@$(PYTEST) -m "not slow"

test-all: .venv/ready chromium slurm ## Run all tests: kills, fuzzing, full matrices too (REST=1: without those of make test)
	@$(PYTEST) $(if $(REST),-m slow)

lint: .venv/ready ## ruff, strict mypy, import contracts, types of the site's scripts
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && .venv/bin/lint-imports
	@.venv/npm/node_modules/@typescript/*/lib/tsc -p site

bench: .venv/ready ## Measure what feedrate promises of itself: results/MACHINE/bench/ (ONLY=accuracy,speed …)
	@$(FEEDRATE) bench $(if $(ONLY),--only "$(ONLY)") $(AT)

div2k: .venv/ready ## Download DIV2K's photographs and cut them (SPLIT=train|valid, ARCHIVE= your own copy)
	@$(FEEDRATE) div2k --split "$(SPLIT)" --archive "$(ARCHIVE)" --data-root "$(DATA_ROOT)"

pets: .venv/ready ## Download the Oxford-IIIT Pets, for the workload pets
	@$(FEEDRATE) pets --data-root "$(DATA_ROOT)"

readme: .venv/ready ## Put the newest loader run's figure and table, and what all runs found, into README.md
	@$(FEEDRATE) readme $(AT)

lock: ## Compile requirements.lock anew from pyproject.toml (needs uv)
	@uv pip compile -q --universal --python-version 3.11 --group dev --all-extras pyproject.toml --no-emit-index-url --no-annotate \
		--custom-compile-command 'make lock' -o requirements.lock

clean: ## Remove what was built: build/, packed data, caches (never results/, nor what was downloaded)
	@if [ -d data ]; then find data -mindepth 1 -maxdepth 1 ! -name 'DIV2K*' ! -name 'oxford-*' -exec rm -rf {} +; fi
	@rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
