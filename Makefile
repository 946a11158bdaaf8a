# `make` lists the targets.
SHELL = /bin/sh
CARGO = cargo
PREFIX = /usr/local
DESTDIR =

TO = $(DESTDIR)$(PREFIX)
SHARE = $(TO)/share/bash-agent
DIST_NAME = bash-agent-$(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)-$(shell uname -s)-$(shell uname -m)
BIN = $${CARGO_TARGET_DIR:-target}/release/bash-agent
STATIC_TARGET = $(shell uname -m)-unknown-linux-musl
STATIC_BIN = $${CARGO_TARGET_DIR:-target}/$(STATIC_TARGET)/release/bash-agent
SCHEMA_VENV = $${XDG_CACHE_HOME:-$$HOME/.cache}/bash-agent/test-schema
# Programs in shell, the parts of the Bash agent, and the checks of the awk programs (tables of small pipelines).
SHELL_FILES = .ci/run scripts/*.sh src/assets/demo/*.sh
SHELL_PARTS = scripts/lib/*.sh
AWK_CHECKS = tests/awk/run.sh tests/awk/cases/*.sh

.PHONY: help build demo test test-all test-conformance test-awk test-scripts test-docs lint picture bench bench-check bench-peers static soak fuzz test-real test-schema install install-scripts uninstall dist clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{ printf "  %-18s %s\n", $$1, $$2 }' Makefile

build: ## The release binary: target/release/bash-agent
	$(CARGO) build --release --locked

demo: ## A real session on a throw-away project, without network or key (KEEP=1 keeps it)
	@scripts/demo.sh

test: lint build test-docs test-awk test-all ## Everything: lint, documentation, awk, unit, integration and conformance tests
	QUICK=1 CONFORMANCE_RETRY=1 scripts/test-conformance.sh

test-all: build
	AGENT=$${AGENT:-$$(realpath $(BIN))} $(CARGO) test --locked --workspace

test-conformance: build ## The conformance suite over every runtime and mix, as a matrix (AGENTS=LIST, QUICK=1)
	scripts/test-conformance.sh

test-awk: ## Only the awk programs, under every awk that is installed (AWKS="mawk;gawk" chooses)
	tests/awk/run.sh

test-scripts: build ## The conformance suite against the Bash agent
	AGENT=$(CURDIR)/scripts/agent.sh $(CARGO) test --locked --test conformance

test-docs: build ## Only the documentation: links, shell blocks, flags and commands
	scripts/check-docs.sh $(BIN)

picture: ## Records the README's picture anew: docs/demo.svg and docs/demo.cast (asciinema)
	PICTURE=1 $(CARGO) test --locked --test terminal picture

lint: ## Formatting, clippy, shellcheck, shfmt, the constructs that bash 3.2 and POSIX awk lack
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	shellcheck $(SHELL_FILES)
	shellcheck -s bash $(SHELL_PARTS)
	shellcheck -s bash -e SC1090,SC2016,SC2028,SC2034,SC2059,SC2086,SC2094,SC2154 $(AWK_CHECKS)
	shfmt -i 2 -d $(SHELL_FILES) $(SHELL_PARTS)
	scripts/check-portable.sh --selftest
	scripts/check-portable.sh

bench: build ## Whole processes against curl, cat, wc and the awk twins on the same data, as ratios (ROWS="hello deltas")
	scripts/bench.sh

bench-check: build ## Instructions of the hot paths against benches/baseline.json; fails when one grew by over 5 %
	scripts/bench-check.sh

bench-peers: build ## Other agents that are on PATH, on the same local model
	scripts/bench-peers.sh

static: ## The same binary without any shared library: target/TARGET/release/bash-agent (needs musl-gcc)
	rustup target add $(STATIC_TARGET)
	$(CARGO) build --release --locked --target $(STATIC_TARGET)
	@if command -v ldd >/dev/null && ! ldd $(STATIC_BIN) 2>&1 | grep -Eq 'static|not a dynamic'; then echo "$(STATIC_BIN) needs shared libraries" >&2; exit 1; fi
	@ls -l $(STATIC_BIN)

soak: build ## One agent kept busy (SECONDS_TO_RUN=120), every crash point, 50 rounds of 20 sub-agents
	AGENT=$${AGENT:-$(BIN)} scripts/soak.sh
	AGENT=$${AGENT:-$$(realpath $(BIN))} CRASH_FULL=1 $(CARGO) test --locked --test crash
	AGENT=$${AGENT:-$$(realpath $(BIN))} STRESS_ROUNDS=50 $(CARGO) test --locked --test stress
	AGENT=$${AGENT:-$$(realpath $(BIN))} DIFFERENTIAL_ROUNDS=50 $(CARGO) test --locked --test differential
	if $(CARGO) fuzz --version >/dev/null 2>&1; then $(MAKE) fuzz; else echo 'fuzz: skipped, cargo install cargo-fuzz'; fi

fuzz: ## Every fuzz target for FUZZ_SECONDS (450: an hour in all), from fuzz/seeds; needs cargo-fuzz and a nightly toolchain
	for target in model sse json resp message ndjson inbox replay; do \
	  mkdir -p fuzz/corpus/$$target && \
	  $(CARGO) +nightly fuzz run $$target fuzz/corpus/$$target fuzz/seeds/$$target -- -max_total_time=$${FUZZ_SECONDS:-450} -max_len=8192 || exit 1; \
	done

test-real: build ## Whole turns against real servers on this machine: llama.cpp and LiteLLM, from PyPI (not in `make test`)
	scripts/test-real.sh

test-schema: build ## Request bodies against the types of the vendors' newest Python SDKs, from PyPI (not in `make test`)
	python3 -m venv $(SCHEMA_VENV)
	$(SCHEMA_VENV)/bin/pip install -q -U anthropic openai pydantic
	$(SCHEMA_VENV)/bin/python tests/schema/check.py $(BIN)

install: build ## Binary, scripts, man page and completions, under PREFIX (/usr/local) and DESTDIR
	install -d $(TO)/bin $(TO)/share/man/man1
	install -d $(TO)/share/bash-completion/completions $(TO)/share/zsh/site-functions $(TO)/share/fish/vendor_completions.d
	install -m 755 $(BIN) $(TO)/bin/bash-agent
	$(BIN) man > $(TO)/share/man/man1/bash-agent.1
	$(BIN) completions bash > $(TO)/share/bash-completion/completions/bash-agent
	$(BIN) completions zsh > $(TO)/share/zsh/site-functions/_bash-agent
	$(BIN) completions fish > $(TO)/share/fish/vendor_completions.d/bash-agent.fish
	if [ -f scripts/agent.sh ]; then $(MAKE) install-scripts; fi

# The Bash agent finds its parts beside itself, so the tree is kept.
install-scripts:
	install -d $(TO)/bin $(SHARE)/scripts/lib $(SHARE)/awk $(SHARE)/src/assets/prompt
	install -m 755 scripts/agent.sh $(SHARE)/scripts/
	install -m 644 scripts/lib/* $(SHARE)/scripts/lib/
	chmod 755 $(SHARE)/scripts/lib/classify.sh $(SHARE)/scripts/lib/wire.sh $(SHARE)/scripts/lib/notify.sh $(SHARE)/scripts/lib/display.sh
	install -m 644 awk/*.awk $(SHARE)/awk/
	install -m 644 src/assets/*.* $(SHARE)/src/assets/
	install -m 644 src/assets/prompt/*.md $(SHARE)/src/assets/prompt/
	ln -sf ../share/bash-agent/scripts/agent.sh $(TO)/bin/bash-agent.sh

uninstall: ## Removes what install put there
	rm -rf $(SHARE)
	rm -f $(TO)/bin/bash-agent $(TO)/bin/bash-agent.sh $(TO)/share/man/man1/bash-agent.1
	rm -f $(TO)/share/bash-completion/completions/bash-agent $(TO)/share/zsh/site-functions/_bash-agent
	rm -f $(TO)/share/fish/vendor_completions.d/bash-agent.fish

dist: ## dist/bash-agent-VERSION-MACHINE.tar.gz with what install puts in place, and dist/agent.sh
	rm -rf dist/root
	$(MAKE) install DESTDIR=$(CURDIR)/dist/root PREFIX=/$(DIST_NAME)
	if [ -f scripts/build.sh ]; then scripts/build.sh dist/agent.sh; fi
	cp README.md CHANGELOG.md LICENSE dist/root/$(DIST_NAME)/
	tar -C dist/root -czf dist/$(DIST_NAME).tar.gz $(DIST_NAME)
	rm -rf dist/root
	@echo dist/$(DIST_NAME).tar.gz

clean: ## Removes what was built
	$(CARGO) clean
	rm -rf dist
