# `make demo` shows the product, `make check`, `make smoke` and `make test` test it. All work on a fresh Debian or Ubuntu, as root or not.

VENV := .venv
BIN := $(VENV)/bin
PACKAGES := policy sandbox tools runner profiles ringfence.py
PIP := $(BIN)/python -m pip --disable-pip-version-check
CORES := $(shell getconf _NPROCESSORS_ONLN)
# More workers than processors, because many tests mostly wait.
PYTEST := $(BIN)/python -m pytest -n $(shell expr $(CORES) + 2)

# Bytecode is cached beside the sources whatever the environment says, as in a usual shell.
unexport PYTHONDONTWRITEBYTECODE
unexport PYTHONPYCACHEPREFIX

.DEFAULT_GOAL := help
.PHONY: help demo check smoke test test-matrix tests-of durations lint types imports docs site tables bench fuzz flow lock peers witness clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.run  ## install into .venv and watch the whole thing work on a small repository (no key, no network)
	@$(BIN)/agent demo

check: lint types imports  ## lint, types, imports and the unit tests: about a minute and a half on two cores
	$(BIN)/python -m pytest -n $(CORES) tests/unit  # these never wait

smoke: lint types imports $(VENV)/.bytecode  ## check, and the first row of every other test of at most four seconds: one backend, one user
	$(PYTEST) --smoke

test: lint types imports $(VENV)/.bytecode  ## install what the tests need and run every test once
	$(PYTEST) --durations=20

test-matrix: lint types imports $(VENV)/.bytecode  ## the same, each row as each user on each backend, and many examples of each law: before a release
	$(PYTEST) --matrix --durations=20

tests-of: $(VENV)/.dev  ## run the tests that concern MODULE: a path, a dotted name, or several
	$(BIN)/python -m tests.support.tests_of $(MODULE) --run -q

durations: $(VENV)/.bytecode  ## run everything and write the processor seconds of each test file into tests/durations.json
	$(PYTEST) --record-durations

# Compile each changed test file once: on a fresh checkout each worker of pytest-xdist would compile all of them. What cannot
# be collected is reported by the run itself.
$(VENV)/.bytecode: $(wildcard tests/*/*.py tests/*.py) $(VENV)/.dev
	@$(BIN)/python -m compileall -q $(PACKAGES) tests/support
	@printf '%s\n' tests/unit tests/process "tests/sandbox tests/services tests/terminal tests/laws" \
	    | xargs -P $(CORES) -L 1 $(BIN)/python -m pytest --collect-only -qq -p no:cacheprovider > /dev/null 2>&1 || true
	@touch $@

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy --num-workers $(CORES)

imports: $(VENV)/.dev
	$(BIN)/lint-imports

docs: $(VENV)/.run  ## write the generated parts of docs/ (keys, events, JSON, the tests of each threat), the help page, and the parsed rules
	$(BIN)/python docs/make_configuration.py
	$(BIN)/python docs/make_events.py
	$(BIN)/python docs/make_help.py
	$(BIN)/python docs/make_packaged.py
	$(BIN)/python docs/make_json.py
	$(BIN)/python docs/make_threat_tests.py

site: $(VENV)/.site  ## build the static site in build/site; a link or an anchor that leads nowhere is an error
	$(BIN)/python docs/make_commands.py
	$(BIN)/python -m sphinx -q -W --keep-going -b html -c docs . build/site
	@echo "open build/site/index.html"

tables: $(VENV)/.dev  ## run the escape attempts and everyday work on every backend, and write the results into docs/security/
	$(BIN)/python -m tests.support.make_tables

bench: $(VENV)/.dev  ## ratios measured in one run (these say more than milliseconds on a noisy machine)
	$(BIN)/python tests/bench/bench.py
	$(BIN)/python tests/bench/screen.py
	$(BIN)/python tests/bench/seat.py
	$(BIN)/python tests/bench/attach.py
	$(BIN)/python tests/bench/container.py
	$(BIN)/python tests/bench/staying.py
	$(BIN)/python tests/bench/servers.py
	$(BIN)/python tests/bench/hooks.py
	$(BIN)/python tests/bench/flow.py
	$(BIN)/python tests/bench/pages.py
	$(BIN)/python tests/bench/resident.py
	$(BIN)/python tests/bench/transactions.py

fuzz: $(VENV)/.dev  ## ten minutes each: real bash as the judge of the reader, the laws of the gate, real Git as the judge of its files
	$(BIN)/python tests/fuzz/fuzz_bash.py --seconds 600
	$(BIN)/python tests/fuzz/fuzz_policy.py --seconds 600
	$(BIN)/python tests/fuzz/fuzz_git.py --seconds 600

lock:  ## resolve the dependencies anew, with hashes
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	    --python-version 3.11 --extra build pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	    --python-version 3.11 --extra build --extra fleet --extra mcp --extra web --extra documents --extra code --extra editor --extra remote --extra ray --extra dev -c requirements.lock pyproject.toml -o requirements-dev.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	    --python-version 3.11 --extra build --extra site -c requirements-dev.lock pyproject.toml -o requirements-site.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	    --python-version 3.11 tests/services/peers/requirements.in -o tests/services/peers/requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	    --python-version 3.11 -c requirements-dev.lock pyproject.toml tests/flow/requirements.in -o tests/flow/requirements.lock

flow: $(VENV)/.flow  ## install benchmarks of injected text into .venv/flow (1 GB), run them through the policy, write their tables
	$(VENV)/flow/bin/python -m tests.flow.run

$(VENV)/.flow: tests/flow/requirements.lock $(VENV)/.run
	@"$$(.ci/system python)" -m venv $(VENV)/flow
	@$(VENV)/flow/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps -r tests/flow/requirements.lock
	@touch $@

peers: $(VENV)/.peers  ## install the real peers that some tests use: tool servers, other agents, a conformance suite

PEERS = tests/services/peers
$(VENV)/.peers: $(PEERS)/package-lock.json $(PEERS)/requirements.lock $(VENV)/.dev
	@mkdir -p $(VENV)/peers && cp $(PEERS)/package*.json $(VENV)/peers/
	@npm ci --prefix $(VENV)/peers --silent --no-audit --no-fund
	@"$$(.ci/system python)" -m venv $(VENV)/peers/python
	@$(VENV)/peers/python/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps -r $(PEERS)/requirements.lock
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.run: requirements.lock pyproject.toml .ci/system
	@.ci/system run
	@test -x $(BIN)/python || "$$(.ci/system python)" -m venv $(VENV)
	@echo "installing the locked dependencies into $(VENV)"
	@$(PIP) install --quiet --require-hashes --no-deps -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation --no-index -e .
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@touch $@

$(VENV)/.site: requirements-site.lock $(VENV)/.run
	@echo "installing what the site needs into $(VENV)"
	@$(PIP) install --quiet --require-hashes --no-deps -r requirements-site.lock
	@touch $@

$(VENV)/.dev: requirements-dev.lock tests/services/web/package-lock.json $(VENV)/.run
	@.ci/system test
	@echo "installing what the tests need into $(VENV)"
	@$(PIP) install --quiet --require-hashes --no-deps -r requirements-dev.lock
	@mkdir -p $(VENV)/web && cp tests/services/web/*.json $(VENV)/web/
	@npm ci --prefix $(VENV)/web --silent --no-audit --no-fund || echo "npm could not install Vite and Playwright: their tests are skipped"
	@touch $@
