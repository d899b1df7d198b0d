# `make demo` and `make test` are the README's two commands. Each needs a Rust toolchain (rustup.rs) and says so.
SHELL := /bin/bash
NEARFAR := target/release/nearfar
DATA := $(or $(NEARFAR_DATA),../shared)
# What `make demo` compares, if it is there.
MEASURED := $(DATA)/measured/pcie-bench/nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s0-s0

.PHONY: all build demo test bench lint fmt clean tools

all: build

# What is missing is named with where to get it.
tools:
	@command -v cargo >/dev/null || { echo "missing: cargo, Rust's build tool. Install it from https://rustup.rs and open a new shell."; exit 1; }

build: tools
	NEARFAR_COMMIT="$$(git describe --always --dirty 2>/dev/null)" cargo build --release --workspace

# Simulates pcie-bench on six real machines and kPIO+WC on a seventh, judges the papers' claims and writes reports; then, if the measured
# files are there, compares one directory of them with the simulation, row by row.
demo: build
	$(NEARFAR) reproduce pcie-bench --report report --json report/claims.json
	$(NEARFAR) reproduce kpio-wc --report report
	@if [ -d "$(MEASURED)" ]; then \
		$(NEARFAR) compare "$(MEASURED)" --json report/compare.json; \
	else \
		echo "Skipped the comparison with measured files: no directory $(MEASURED) (set NEARFAR_DATA)."; \
	fi
	@echo "Open report/pcie-bench.html and report/kpio-wc.html in a browser."

# Builds everything once more, for the tests: some minutes the first time.
test: tools lint
	cargo test --workspace --no-run
	cargo test --workspace --quiet

lint: tools
	@cargo fmt --version >/dev/null 2>&1 || { echo "missing: rustfmt. Install it with: rustup component add rustfmt"; exit 1; }
	@cargo clippy --version >/dev/null 2>&1 || { echo "missing: clippy. Install it with: rustup component add clippy"; exit 1; }
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

fmt: tools
	cargo fmt --all

# Speed of the simulator: TLPs over window and IOMMU, packets, a TCP stream, the event queue, a directory's comparison, memory.
bench: build
	cargo bench --workspace --quiet
	@if [ -d "$(MEASURED)" ]; then \
		echo "compare of one directory:"; \
		python3 tools/measure.py $(NEARFAR) --quiet --no-cache compare "$(MEASURED)"; \
	else \
		echo "Skipped timing a comparison: no directory $(MEASURED) (set NEARFAR_DATA)."; \
	fi

clean:
	cargo clean
	rm -rf report
