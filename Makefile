# `make run` starts Palyra, `make test` checks all of it; both set the machine up first. `make help` lists the rest.
#
# All checks share one target directory, one lock file and one set of flags, so that nothing is built twice. What tests run is built by
# clippy's compiler, so that linting takes no build of its own; `make lint` is for those who want to know only that.

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
# The example skills are a workspace of their own, beside ours.
SKILLS := --workspace --locked --target-dir $(abspath $(TARGET_DIR))/skills

# A flag and not a variable, so that what tests build themselves is built as anybody builds it.
LINTED := --config 'build.rustc-workspace-wrapper="$(abspath scripts/linting-rustc)"'

# A shell that is older than the rustup installation does not have its programs in PATH yet.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup run demo test fmt lint build unit doc policy-test bench deny dist clean elsewhere skills

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what is missing: Debian packages, the Rust toolchain, cargo-nextest, Python and Node packages
	@scripts/setup

run: ## Build Palyra and start it here; stop it with Ctrl-C
	@scripts/setup --build
	cargo build --release --locked -p palyra-cli
	@$(TARGET_DIR)/release/palyra up

demo: ## Watch a scripted agent meet the daemon that `make run` started, from a second terminal
	@test -x $(TARGET_DIR)/release/palyra || { printf 'error: palyra is not built yet\nhelp: make run\n' >&2; exit 1; }
	@$(TARGET_DIR)/release/palyra demo

test: fmt elsewhere unit doc policy-test ## Run every check, one after the other

fmt: setup ## Check the formatting
	cargo fmt --all --check
	cd skills && cargo fmt --all --check

lint: setup ## Run clippy over everything, benchmarks included, and nothing else; a warning is an error
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cd skills && cargo clippy $(SKILLS) --all-targets -- -D warnings
	cd skills && cargo clippy $(SKILLS) --release --target wasm32-wasip2 -- -D warnings

build: setup ## Lint and build everything that tests run, benchmarks included; a warning is an error
	cargo build --workspace --all-targets --locked $(LINTED)

# Keyrings of other systems: their types are checked, and nothing is run.
elsewhere: setup ## Check the vault for macOS and Windows
	cargo check --locked -p palyra-vault --target aarch64-apple-darwin --target x86_64-pc-windows-gnu

skills: setup ## Build the example skills for WebAssembly
	cd skills && cargo build $(SKILLS) --release --target wasm32-wasip2

# The tests of skills run on this machine; tests of the workspace run what was built of them. That is optimised, which clippy's compiler
# does not do as rustc does, so for WebAssembly linting is a step of its own.
unit: skills build ## Run the unit, property, whole-system and architecture tests
	cd skills && cargo clippy $(SKILLS) --release --target wasm32-wasip2 -- -D warnings
	cd skills && cargo nextest run $(SKILLS) $(LINTED) --no-fail-fast
	cargo nextest run --workspace --locked $(LINTED) --no-fail-fast

doc: setup ## Run the examples in the documentation
	cargo test --doc --workspace --locked $(LINTED)

policy-test: build ## Run the policy tests in policies/tests and check the policies' own formatting
	$(TARGET_DIR)/debug/palyra policy fmt --check policies/baseline.cedar policies/presets
	$(TARGET_DIR)/debug/palyra policy test policies/tests

bench: dist ## Measure, each figure next to its floor
	cargo bench --profile dist --locked -p palyra-benches

deny: setup ## Check dependencies with cargo-deny: architecture, licences, sources
	@command -v cargo-deny >/dev/null || { printf 'error: cargo-deny is not installed\nhelp: cargo install --locked cargo-deny\n' >&2; exit 1; }
	cargo deny --locked check --allow unused-wrapper bans licenses sources

dist: setup ## Build what is shipped: link-time optimisation, no symbols
	cargo build --profile dist --locked -p palyra-cli -p palyra-daemon

clean: ## Delete everything that was built
	cargo clean
