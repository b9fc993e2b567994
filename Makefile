# SPDX-License-Identifier: MIT OR Apache-2.0

CARGO ?= cargo
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
FUZZ_SECONDS ?= 60

# setup finds a toolchain that rustup put where the login shell looks for it.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
export CARGO_TERM_PROGRESS_WHEN ?= auto

# The sink `play` has a window where SDL2 is installed.
PLAY = $(shell pkg-config --exists sdl2 2>/dev/null && echo --features play)

.PHONY: help build peers demo test lint test-kernel test-kernel-fast test-kernel-debug shell-check check-unsafe fresh clips fuzz check-licenses

help:
	@echo "make demo     installs what is missing, builds, runs the lab's quick set (90 s), ends with report.html"
	@echo "make test     installs what is missing, builds, runs every test"
	@echo "make lint     format, lints and documentation without a warning, in every set of features: a minute, before each commit"
	@echo "make test-kernel        tests the kernel module and how it is installed under Debian's own kernel in QEMU (root; the first time makes a Debian root)"
	@echo "make test-kernel-fast   the same in User-Mode Linux, the edit loop (the first time builds the kernel)"
	@echo "make test-kernel-debug  the same in User-Mode Linux with KASAN, lockdep and kmemleak"
	@echo "make build    builds the framepath command and the peers, installs nothing"
	@echo "make peers    builds the peers, iceoryx2's too, which lab handoff compares with (minutes, the first time)"
	@echo "make check-unsafe  model-checks the lock-free code (loom), and runs it under Miri where that is installed"
	@echo "make check-licenses  checks licences and sources of dependencies by deny.toml; installs cargo-deny where it is missing"
	@echo "make fuzz     runs every fuzz target for FUZZ_SECONDS ($(FUZZ_SECONDS)) each; needs cargo-fuzz and nightly Rust"
	@echo "make fresh    proves make demo and make test in a minimal Debian 13 (root)"
	@echo "make clips    makes the committed clips again (clips/README.md)"

build:
	$(CARGO) build --release --locked $(PLAY)
	@$(MAKE) -s -C peers TARGET=$(TARGET)

peers:
	@$(MAKE) -s -C peers TARGET=$(TARGET) CARGO=$(CARGO) all iceoryx2

demo:
	@scripts/setup demo
	@$(MAKE) -s build
	@$(TARGET)/release/framepath lab --quick

test:
	@scripts/setup test
	@$(MAKE) -s shell-check
	@scripts/check-units
	@$(MAKE) -s -C peers TARGET=$(TARGET) CARGO=$(CARGO) all check
	$(CARGO) test --workspace --features play --locked --profile checked

# The last clippy is the command without the lab: run, stages and serve need none of it.
lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --workspace --all-targets --features play --locked -- -D warnings
	$(CARGO) clippy -p framepath-cli --no-default-features --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --features play --no-deps --locked

test-kernel:
	@tests/vm/install
	@tests/vm/test real

test-kernel-fast:
	@tests/vm/test fast

test-kernel-debug:
	@tests/vm/test debug

VM_SCRIPTS = kernel/take-mem2mem $(addprefix tests/vm/,make run test install check-depends) $(wildcard tests/vm/lib/* tests/vm/inside/* tests/vm/guest/* tests/vm/jobs/*)
SHELL_SCRIPTS = scripts/debian-root scripts/setup scripts/fresh scripts/fuzz scripts/check-licenses scripts/check-packages scripts/check-unsafe scripts/check-units scripts/check-user scripts/prune-target .ci/run .ci/crates .ci/check clips/make.sh peers/gst-push/check peers/handoff/check $(VM_SCRIPTS)

shell-check:
	@for script in $(SHELL_SCRIPTS); do bash -n $$script || exit 1; done
	@if command -v shellcheck >/dev/null; then shellcheck $(SHELL_SCRIPTS); \
	else echo "shell-check: skipped, not installed: apt install shellcheck"; fi

fresh:
	@scripts/fresh

clips:
	@clips/make.sh

check-unsafe:
	@scripts/check-unsafe

check-licenses:
	@scripts/check-licenses

fuzz:
	@scripts/fuzz $(FUZZ_SECONDS)
