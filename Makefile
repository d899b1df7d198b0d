# `make demo` and `make test` are the README's two commands. Each needs a Rust toolchain (rustup.rs) and says so.
SHELL := /bin/bash
NEARFAR := $(or $(CARGO_TARGET_DIR),target)/release/nearfar
DATA := $(or $(NEARFAR_DATA),../shared)
# What `make demo` compares, if it is there.
MEASURED := $(DATA)/measured/pcie-bench/nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s0-s0

# The environment of the Python module's tests and of what builds wheels.
VENV := target/venv

.PHONY: all help build demo static release test live test-python bench bench-peers lint fmt clean tools

all: build

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14 | sed 's/^/  make /'

# What is missing is named with where to get it.
tools:
	@command -v cargo >/dev/null || { echo "missing: cargo, Rust's build tool. Install it from https://rustup.rs and open a new shell."; exit 1; }

# Which version the program says it is.
COMMIT := NEARFAR_COMMIT="$$(git describe --always --dirty 2>/dev/null)"

build: tools ## the program, as target/release/nearfar
	$(COMMIT) cargo build --release -p nearfar-cli

# Simulates pcie-bench on six real machines and kPIO+WC on a seventh, judges the papers' claims and writes reports; then, if the measured
# files are there, compares one directory of them with the simulation, row by row.
demo: build ## the program, then two papers' claims, judged, as pages in report/
	$(NEARFAR) reproduce pcie-bench --report report --json report/claims.json
	$(NEARFAR) reproduce kpio-wc --report report
	@if [ -d "$(MEASURED)" ]; then \
		$(NEARFAR) compare "$(MEASURED)" --json report/compare.json; \
	else \
		echo "Skipped the comparison with measured files: no directory $(MEASURED) (set NEARFAR_DATA)."; \
	fi
	@echo "Open report/pcie-bench.html and report/kpio-wc.html in a browser."

# Files to hand on: a program that runs on any Linux of this architecture, with its completions and manual pages, and the
# Python module as a wheel. The program is linked with the C library, so its target is named, which keeps what runs at
# build time apart.
TARGET := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
STATIC := target/$(TARGET)/dist/nearfar
static: tools ## a static program, for servers without a toolchain
	$(COMMIT) RUSTFLAGS="-C target-feature=+crt-static" cargo build --profile dist --target $(TARGET) -p nearfar-cli
	@ls -l $(STATIC)

release: static $(VENV)/installed ## a static program and a wheel, in target/dist
	mkdir -p target/dist/nearfar && cp $(STATIC) README.md LICENSE target/dist/nearfar/
	for shell in bash zsh fish; do $(STATIC) completions $$shell > target/dist/nearfar/completions.$$shell; done
	$(STATIC) manual target/dist/nearfar/man1
	tar -C target/dist -czf target/dist/nearfar-$(TARGET).tar.gz nearfar
	$(VENV)/bin/maturin build --quiet --profile release --manifest-path python/Cargo.toml --out target/dist
	@ls -l target/dist/*.tar.gz target/dist/*.whl

# Builds everything once more, for the tests: some minutes the first time. The last tests, some minutes, are with Linux in virtual machines by
# the program that the tests before have built; where QEMU or a kernel cannot be had, they are ignored.
test: tools lint ## formatting, lints, API documentation, all tests
	cargo test --workspace --no-run
	cargo test --workspace --quiet --no-fail-fast
	@$(MAKE) --no-print-directory test-python
	@SHORT=1 LIMIT=150 TRIES=2 tools/live/test $(or $(CARGO_TARGET_DIR),target) nvme hot-plug nic lend-nic lockstep

# Linux itself on simulated devices. QEMU, a kernel and busybox are fetched once, into target/live.
live: tools ## all tests with Linux in virtual machines: N passed, N failed
	cargo build --quiet -p nearfar-cli
	tools/live/test $(or $(CARGO_TARGET_DIR),target)

HAS_PYTHON := python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null

# What the module's tests ask, from the package index.
$(VENV)/installed: python/pyproject.toml
	python3 -m venv $(VENV)
	$(VENV)/bin/python tools/requirements.py python/pyproject.toml test > $(VENV)/requirements.txt
	$(VENV)/bin/pip install --quiet --disable-pip-version-check maturin -r $(VENV)/requirements.txt
	touch $@

test-python: tools ## tests of the Python module
	@if ! $(HAS_PYTHON); then \
		echo "ignored: the tests of the Python module. They take Python 3.11 or newer with venv (Debian: python3-venv)."; \
	elif ! $(MAKE) --no-print-directory $(VENV)/installed; then \
		echo "ignored: the tests of the Python module. What they ask cannot be installed."; test -z "$$CI"; \
	else \
		VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/maturin develop --quiet --profile dev --manifest-path python/Cargo.toml && \
		$(VENV)/bin/python -m pytest --quiet python/tests; \
	fi

lint: tools ## formatting, lints, API documentation
	@cargo fmt --version >/dev/null 2>&1 || { echo "missing: rustfmt. Install it with: rustup component add rustfmt"; exit 1; }
	@cargo clippy --version >/dev/null 2>&1 || { echo "missing: clippy. Install it with: rustup component add clippy"; exit 1; }
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps

fmt: tools ## formats the sources
	cargo fmt --all

# Speed of the simulator: TLPs over window and IOMMU, packets, a TCP stream, the event queue, a directory's comparison, memory.
bench: build ## speed of the simulator
	GLIBC_TUNABLES=glibc.malloc.hugetlb=1 cargo bench --workspace --quiet # in huge pages, as the program
	@if [ -d "$(MEASURED)" ]; then \
		echo "compare of one directory:"; \
		python3 tools/measure.py $(NEARFAR) --quiet --no-cache compare "$(MEASURED)"; \
	else \
		echo "Skipped timing a comparison: no directory $(MEASURED) (set NEARFAR_DATA)."; \
	fi

# Others that simulate PCIe or events, from the package index, on the same streams.
bench-peers: build ## speed of others that simulate PCIe or events
bench-peers: $(VENV)/installed
	$(VENV)/bin/pip install --quiet --disable-pip-version-check cocotbext-pcie simpy
	$(VENV)/bin/python tools/peers $(NEARFAR)

clean: ## removes what was built
	cargo clean
	rm -rf report
