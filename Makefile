# `make run` shows the main job, `make test` proves everything. Both install what they lack.

MESSAGE ?= hello
CARGO ?= cargo
# Tests must not see the configuration of the user who runs them.
UNSET := env $(patsubst %,-u %,$(filter CAPSTAN_%,$(.VARIABLES)))

.PHONY: run test check deny format lint unit python doc bench soak install tools-run tools-test

run: tools-run
	@$(CARGO) build
	@$(CARGO) run --quiet -- run "$(MESSAGE)"

test: tools-test format check lint doc python unit

check:
	scripts/check_code.py
	scripts/check_dependencies.py

# By hand: known vulnerabilities are in a database that needs the network.
deny:
	@scripts/tools build deny
	$(CARGO) deny check

format:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings

unit:
	$(UNSET) $(CARGO) nextest run --workspace --all-features --no-fail-fast

# The Python SDK and the plugins in Python; types are checked where mypy is installed.
python:
	$(UNSET) sdk/python/scripts/check.sh

doc:
	$(UNSET) $(CARGO) test --quiet --workspace --all-features --doc

bench: tools-run
	$(CARGO) build --release --package capstan
	$(CARGO) run --release --package capstan-bench -- all

install: tools-run
	$(CARGO) install --path crates/cli --locked

tools-run:
	@scripts/tools build

tools-test:
	@scripts/tools build test

# The long tests: every commit of the crash matrix, 300 random kills with files changed in between, long sessions.
# CRASH_SEED, SOAK_KILLS and SOAK_SEED are passed on.
soak: tools-test
	$(UNSET) $(CARGO) nextest run --workspace --all-features --no-fail-fast --profile soak --run-ignored only -E 'test(soak)'
