# The verbs of the project; `make help` lists them. Everything runs in .venv, which is made on first use.
# A fresh machine needs python3 (3.11 to 3.13) and make; node 20 or newer as well for the lab extension.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed
TOUR := .venv/tour
BUNDLE := server_ext/replkernel_server/labextension
LINK := .venv/share/jupyter/labextensions/@replkernel/labextension
NODE := $(shell command -v npm 2>/dev/null)
PYTEST := $(BIN)/python -m pytest
CORES := $(shell nproc 2>/dev/null || echo 1)
# Tests run in five processes, where there are two cores: many wait for a kernel. Those in a browser take a core more
# often, for pages: at most one process more than cores. A file's tests stay together, in order; the files that take
# longest begin first.
PROCESSES ?= $(shell echo $$(($(CORES) < 2 ? 1 : 5)))
BROWSERS ?= $(shell cores=$(CORES); others=$$(($(PROCESSES) - 1)); \
  echo $$((others < 1 ? 1 : others > cores + 1 ? cores + 1 : others)))
beside = $(if $(filter 0 1,$(1)),,-n $(1) --dist loadfile --no-loadscope-reorder)
BESIDE := $(call beside,$(PROCESSES))
TESTS := tests/unit tests/golden tests/integration tests/security tests/fuzz tests/e2e
FAST := "not slow and not ui"
# What Python has compiled is kept, whatever the shell says: to compile the tests anew takes as long as to run them.
unexport PYTHONDONTWRITEBYTECODE
SOURCES := $(shell find labextension/src labextension/schema labextension/style -type f) package.json package-lock.json

.PHONY: all help run lab test unit nightly again slowest check types translations format e2e hosts cgroups kubernetes chaos soak ui pictures bench gpu sim conformance fuzz vsix docs lock audit compiled dist release clean

all: check test ## check and test (what `make` alone does)

help: ## list the verbs
	@sed -nE 's/^##@ (.*)/\n\1/p; s/^([a-z0-9]+):[^#]*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	  || { echo "replkernel needs Python 3.11 to 3.13 (newer ones are untried): run make PYTHON=/path/to/python3.13"; exit 1; }
	$(PYTHON) -m venv .venv

$(STAMP): pyproject.toml | $(BIN)/python
	@echo "Installing what tests and checks need into .venv: 2.5 GB, about four minutes …"
ifdef LOCKED
	$(BIN)/python -m pip install --quiet --no-compile --require-hashes --requirement requirements/dev.lock
endif
	$(BIN)/python -m pip install --quiet --quiet --no-compile --editable ".[dev]"
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib || true # On all cores: pip would compile one file after another.
	touch $@

# The tour needs little; where all is installed, it has that.
$(TOUR): pyproject.toml | $(BIN)/python
	@test $(STAMP) -nt pyproject.toml || { echo "Installing JupyterLab and the kernel into .venv: 340 MB, a minute or two …"; \
	  $(BIN)/python -m pip install --quiet --quiet --editable ".[tour]"; }
	@touch $@

##@ Try it

run: $(TOUR) lab ## open JupyterLab with the tour, on two pretended GPUs (GPUS=0: none); the first time two to four minutes, then seconds
	@$(BIN)/python examples/run.py $(if $(GPUS),--gpus $(GPUS)) $(if $(DISPLAY)$(WAYLAND_DISPLAY),,--no-browser) \
	  $(if $(filter 0,$(shell id -u)),--allow-root)

ifdef NODE
lab: $(TOUR) $(BUNDLE)/package.json ## build the lab extension and link it into .venv
	@mkdir -p $(dir $(LINK)) && ln -sfn $(CURDIR)/$(BUNDLE) $(LINK)
else
lab:
	@echo "node was not found: the kernel works without it, the status bar of JupyterLab stays as it is."
endif

node_modules/.package-lock.json: package-lock.json
	@echo "Fetching what builds the lab extension, into node_modules: about a minute …"
	@npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(BUNDLE)/package.json: node_modules/.package-lock.json $(SOURCES)
	@echo "Building the lab extension: half a minute …"
	@npm run --silent build

##@ Test (the first of them installs 2.5 GB: about four minutes)

test: $(STAMP) ## all tests but the slow ones and those in a browser: 11 minutes on two cores (PROCESSES=1: one after another)
	$(PYTEST) $(BESIDE) $(TESTS) -m $(FAST)

unit: $(STAMP) ## the tests of single parts, which start no kernel, agent or server: 90 s on two cores, for the loop while writing
	$(PYTEST) $(BESIDE) tests/unit -m $(FAST)

nightly: $(STAMP) lab ## what repeats for breadth: every example, the slow tests, other orders, the compiled core, Python 3.12 and 3.13 (PYTHONS=, ONLY=)
	$(BIN)/python -m tests.nightly --processes $(PROCESSES) $(if $(PYTHONS),--pythons $(PYTHONS)) $(if $(ONLY),--only "$(ONLY)")

again: $(STAMP) ## what failed last in make test or make ui, once more and alone; those of three modules at most (build/tests/by-chance.txt)
	$(BIN)/python -m tests.again $(TESTS) tests/ui

slowest: $(STAMP) ## the same tests with their times: the slowest 50, and what each folder takes (build/tests/slowest.md; if all pass, tests/README.md)
	$(PYTEST) $(BESIDE) -p tests.support.times $(TESTS) -m $(FAST); outcome=$$?; \
	  $(BIN)/python -m tests.slowest $$(test $$outcome != 0 || echo --readme); exit $$outcome

##@ Check

check: $(STAMP) ## lint, format, types, import rules; the same for the extensions of JupyterLab and VS Code where there is node
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python labextension/generate_types.py --check
ifdef NODE
	$(MAKE) --no-print-directory $(BUNDLE)/package.json
	npm run check
	npm test
	$(MAKE) --no-print-directory vscode/node_modules/.package-lock.json
	cd vscode && npm test
else
	@echo "node was not found: the extensions of JupyterLab and VS Code were not checked."
endif

types: $(STAMP) ## write the TypeScript types of what the server extension tells pages
	$(BIN)/python labextension/generate_types.py

translations: $(STAMP) node_modules/.package-lock.json ## the catalogue of what the lab extension says, and its languages (LOCALE=fr_FR begins one)
	$(BIN)/python labextension/catalogue.py $(LOCALE)

format: $(STAMP) ## write what `make check` wants to see
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(if $(NODE),npm run format)

##@ Test what takes longer (minutes to hours)

e2e: $(STAMP) ## every end-to-end test, the slow ones too
	$(PYTEST) tests/e2e

hosts: $(STAMP) ## replicas on machines of their own (namespaces; needs root), and other tests across them (DELAY_MS=, JITTER_MS=, LOSS=)
	$(PYTEST) tests/e2e/hosts
	$(BIN)/python -m tests.e2e.hosts.across

cgroups: $(STAMP) ## cells' limits of cores and memory, in a Linux of its own with cgroup v2 (needs Debian's user-mode-linux)
	$(BIN)/python -m tests.support.own_linux

kubernetes: .venv/kubespawner ## chart, launcher, a Hub and images on a real Kubernetes, which it builds from Debian's source once (16 minutes of a core; 4 GB)
	tests/kubernetes/get.sh build/kubernetes
	$(BIN)/python -m tests.support.helm --once
	$(PYTEST) tests/kubernetes

# With it a Hub starts users' servers in pods.
.venv/kubespawner: $(STAMP)
	$(BIN)/python -m pip install --quiet --quiet "jupyterhub-kubespawner>=7,<8"
	touch $@

chaos: $(STAMP) ## 200 seeds of kills, partitions and broken stores; SEED=n plays one again (SEEDS=, CELLS=, JOBS=)
	$(BIN)/python -m tests.e2e.faults.chaos $(SEED) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(CELLS),--cells $(CELLS)) \
	  $(if $(JOBS),--jobs $(JOBS))

soak: $(STAMP) ## a day of a notebook in minutes, beside a stock kernel: faults, leaks, a table (MINUTES=30, SEED=1)
	$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

# What they need themselves is in .venv already.
build/beside/installed: pyproject.toml | $(STAMP)
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --quiet --no-deps --target $(@D) $$($(BIN)/python -c 'import tomllib; \
	  print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["beside"])')
	touch $@

ui: $(STAMP) lab build/beside/installed ## JupyterLab in a real browser, but for what is slow (needs node and chromium)
	$(PYTEST) $(call beside,$(BROWSERS)) tests/ui -m "not slow"

pictures: $(STAMP) lab ## the pictures of README and site, from the real thing, into docs/pictures (needs what `make ui` needs)
	$(BIN)/python -m tests.ui.pictures

##@ Measure (minutes to hours)

bench: $(STAMP) ## measure against the stock kernel; writes build/bench/*.json
	$(BIN)/python -m tests.bench

# With PYTHON= nothing is installed: that interpreter has all it needs.
ifeq ($(origin PYTHON),command line)
gpu: ## on a machine with a GPU: its tests, its figures into replkernel/gpu/README.md, in ten minutes (PYTHON=, MINUTES=, PRETEND=1)
	$(PYTHON) -m tests.bench.gpu $(if $(MINUTES),--minutes $(MINUTES)) $(if $(PRETEND),--pretend)
else
gpu: $(STAMP)
	$(BIN)/python -m tests.bench.gpu $(if $(MINUTES),--minutes $(MINUTES)) $(if $(PRETEND),--pretend)
endif

sim: $(STAMP) ## the papers' figures beside ours, on recorded traces; written into their pages (SUITES=; SHORT=1: seconds, compared)
	$(BIN)/python -m tests.paper $(if $(SHORT),--short) $(SUITES)

##@ Test against others

conformance: $(STAMP) ## the official kernel test, and ipykernel's own suite, against this kernel
	$(BIN)/python -m tests.conformance

fuzz: .venv/fuzz ## malformed input for everything that parses, guided by coverage; writes build/fuzz/*.json (MINUTES=10, TARGETS=)
	$(BIN)/python -m tests.fuzz $(if $(MINUTES),--minutes $(MINUTES)) $(TARGETS)

.venv/fuzz: $(STAMP)
	$(BIN)/python -m pip install --quiet --quiet --only-binary atheris --editable ".[fuzz]" \
	  || { echo "The fuzzer could not be installed: atheris has wheels for some Pythons only, on Linux."; exit 3; }
	touch $@

##@ Document and release

vsix: vscode/node_modules/.package-lock.json ## check, test and pack the extension for VS Code, into dist (needs node)
	cd vscode && npm test && mkdir -p ../dist && npm run package

vscode/node_modules/.package-lock.json: vscode/package-lock.json
	cd vscode && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

docs: .venv/docs ## the site, into build/docs; a link that leads nowhere is an error
	$(BIN)/python -m docs.build_site

.venv/docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --quiet --editable ".[docs]"
	touch $@

lock: .venv/upkeep ## write requirements/dev.lock anew (UPGRADE=0: with the versions that it has)
	UPGRADE=$(UPGRADE) $(BIN)/python requirements/lock.py

audit: .venv/upkeep ## known vulnerabilities of the lock and of the lab extension (exits with 4 where nobody could be asked)
	@$(BIN)/python requirements/audit.py

.venv/upkeep: $(STAMP)
	$(BIN)/python -m pip install --quiet --quiet --editable ".[upkeep]"
	touch $@

compiled: $(STAMP) ## the scheduler's core compiled by mypyc, into build/compiled (needs a C compiler; about two minutes)
	$(BIN)/python scheduler/compiled.py build/compiled

.venv/build: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --quiet "build>=1.2"
	touch $@

dist: .venv/build ## build wheel and sdist into dist/ (needs node)
	rm -rf dist
	$(BIN)/python -m build

release: .venv/release ## what is published, checked: dist by twine, npm package, conda recipe, workflows (after make dist)
	$(BIN)/python -m release

.venv/release: $(STAMP)
	$(BIN)/python -m pip install --quiet --quiet --editable ".[release]"
	touch $@

clean: ## remove what was built, but not .venv and node_modules
	rm -rf build dist labextension/lib $(BUNDLE) .mypy_cache .ruff_cache .pytest_cache .hypothesis
