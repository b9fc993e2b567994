# SPDX-License-Identifier: MIT OR Apache-2.0

CARGO ?= cargo
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
FUZZ_SECONDS ?= 60

# scripts/setup finds toolchains that only the login shell has in PATH (rustup).
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
export CARGO_TERM_PROGRESS_WHEN ?= auto

.PHONY: help build peers demo test test-bindings test-debian13 run-tests lint test-kernel test-kernel-fast test-kernel-debug shell-check check-unsafe fresh clips fuzz check-licenses

help:
	@echo "make demo     installs missing packages, builds, runs the lab's quick set (90 s), writes report.html"
	@echo "make test     installs missing packages, builds, runs every test"
	@echo "make test-bindings  builds, installs and tests the bindings for Python, C and GStreamer (part of make test)"
	@echo "make test-debian13  builds and tests the bindings on Debian 13 in a root of its own (needs root; the first run takes 15 minutes)"
	@echo "make lint     checks format, lints and documentation in every set of features; takes a minute; run it before each commit"
	@echo "make test-kernel        tests the kernel module and its installation under Debian's kernel in QEMU (needs root; the first run makes a Debian root)"
	@echo "make test-kernel-fast   tests the kernel module in User-Mode Linux, for the edit loop (the first run builds the kernel)"
	@echo "make test-kernel-debug  tests the kernel module in User-Mode Linux with KASAN, lockdep and kmemleak"
	@echo "make build    builds the framepath command and the peers, installs nothing"
	@echo "make peers    builds all peers, including iceoryx2's for lab handoff (the first run takes minutes)"
	@echo "make check-unsafe  model-checks the lock-free code (loom), and runs it under Miri if Miri is installed"
	@echo "make check-licenses  checks licences and sources of dependencies by deny.toml; installs cargo-deny where it is missing"
	@echo "make fuzz     runs every fuzz target for FUZZ_SECONDS ($(FUZZ_SECONDS)) each; needs cargo-fuzz and nightly Rust"
	@echo "make fresh    runs make demo and make test in a minimal Debian 13 (needs root)"
	@echo "make clips    regenerates the committed clips (clips/README.md)"

build:
	$(CARGO) build --release --locked --features http,net,kms,wayland
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
	@$(MAKE) run-tests
	@$(MAKE) -s test-bindings

# Python, C and GStreamer: each is built, installed into a folder of its own and tested there.
test-bindings:
	@CARGO_TARGET_DIR=$(TARGET) bindings/python/check
	@CARGO_TARGET_DIR=$(TARGET) bindings/c/check
	@CARGO_TARGET_DIR=$(TARGET) bindings/gstreamer/check

test-debian13:
	@scripts/check-debian13

# The tests without what they need; .ci/second-try names one of them in TEST_FLAGS.
run-tests:
	$(CARGO) test --workspace --features http,net,kms,portal,wayland --locked --profile checked $(TEST_FLAGS)

# Two of them check the command without the lab and without a window; the last are for the bindings.
lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --locked -- -D warnings
	$(CARGO) clippy --workspace --all-targets --features http,net,kms,portal,wayland --locked -- -D warnings
	$(CARGO) clippy -p framepath-cli --no-default-features --locked -- -D warnings
	$(CARGO) clippy -p framepath-cli --no-default-features --features lab --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --features http,net,kms,portal,wayland --no-deps --locked
	@for binding in c gstreamer python; do $(CARGO) fmt --manifest-path bindings/$$binding/Cargo.toml --check || exit 1; done
	@for binding in c python $$(pkg-config --exists gstreamer-video-1.0 gstreamer-check-1.0 && echo gstreamer); do \
		$(CARGO) clippy --quiet --release --locked --all-targets --manifest-path bindings/$$binding/Cargo.toml --target-dir $(TARGET)/bindings -- -D warnings || exit 1; done

test-kernel:
	@tests/vm/install
	@tests/vm/test real

test-kernel-fast:
	@tests/vm/test fast

test-kernel-debug:
	@tests/vm/test debug

VM_SCRIPTS = kernel/take-mem2mem $(addprefix tests/vm/,make run test install check-depends) $(wildcard tests/vm/lib/* tests/vm/inside/* tests/vm/guest/* tests/vm/jobs/*)
SHELL_SCRIPTS = scripts/debian-root scripts/setup scripts/fresh scripts/fuzz scripts/check-debian13 scripts/check-licenses scripts/check-packages scripts/check-unsafe scripts/check-units scripts/check-user scripts/prune-target scripts/thread-cpu bindings/python/build bindings/python/check bindings/python/lab bindings/c/install bindings/c/check bindings/c/abi bindings/gstreamer/check .ci/run .ci/crates .ci/check clips/make.sh peers/gst-push/check peers/handoff/check $(VM_SCRIPTS)

shell-check:
	@for script in $(SHELL_SCRIPTS); do bash -n $$script || exit 1; done
	@if command -v shellcheck >/dev/null; then shellcheck $(SHELL_SCRIPTS); \
	else echo "shell-check: skipped: shellcheck is not installed; apt install shellcheck"; fi

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
