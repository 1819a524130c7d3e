# Everything a person or CI runs. `make` alone lists the targets.
#
# A fresh machine needs rustup, a C toolchain and make; what else the build needs (cmake and perl, for
# the Kafka client and its TLS) `make tools` installs where it may, and names where it may not.

SHELL := /bin/bash
.DEFAULT_GOAL := help
CARGO ?= cargo

.PHONY: help demo tools build release plugins bench test soak test-unit lint fmt up down clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: tools ## Show the main job, checked, on an SQLite file and a Kafka in the process
	cd plugins && env -u CARGO_TARGET_DIR $(CARGO) build --locked --release -p order-events
	@$(CARGO) run --locked -p haulier -- demo

tools: ## Make sure that what the build needs is there
	@tests/tools

build: tools ## Build the host for development
	$(CARGO) build --workspace --bins

release: tools ## Build target/release/haulier
	$(CARGO) build --release -p haulier

plugins: tools ## Build the guest components
	cd plugins && $(CARGO) build --release

bench: tools plugins ## Measure what plugins cost, beside native Rust in the same run
	$(CARGO) bench --package haulier --bench plugins

test: tools plugins ## Run every tier; services are started, and stopped afterwards
	@tests/run

soak: tools ## Random faults for ten minutes (MINUTES=60, SEED=... for the same again)
	@tests/run soak

test-unit: tools ## Run what needs no services
	$(CARGO) test --workspace --lib --bins
	$(CARGO) test --workspace --test tidy
	cd plugins && $(CARGO) test --workspace --exclude misbehave --exclude other-version --exclude other-world \
	  --exclude trespass --exclude bench-parse --exclude bench-route --lib --target $$(rustc -vV | sed -n 's/^host: //p')

lint: tools ## Formatting and lints, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	cd plugins && $(CARGO) fmt --all --check && $(CARGO) clippy --workspace -- -D warnings

fmt: ## Format everything
	$(CARGO) fmt --all
	cd plugins && $(CARGO) fmt --all

up: ## Start PostgreSQL and Kafka for this checkout
	tests/services up

down: ## Stop them and remove their data
	tests/services down

clean: down ## Remove everything that was built
	$(CARGO) clean
	cd plugins && $(CARGO) clean
