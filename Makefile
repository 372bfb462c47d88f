# What there is to do here. `make run` and `make test` are the two to remember.

CARGO ?= cargo
LISTEN ?= 127.0.0.1:2181
ARGS ?=

# What `srvr` says of the build: the time of the commit, so that the same source gives the same
# program. Outside a git checkout nothing is said.
COMMIT_TIME := $(shell TZ=UTC0 git log -1 --date='format-local:%Y-%m-%d %H:%M UTC' --format=%cd 2>/dev/null)
BUILT_ON := $(if $(COMMIT_TIME),ZKSHIM_BUILT_ON="$(COMMIT_TIME)")

.PHONY: help run build test bench fmt lint docs check tools clean

help: ## Show this list.
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /|/' | awk -F'|' '{ printf "  make %-8s %s\n", $$1, $$2 }'

run: build ## Build the server and start it on port 2181 with its embedded store (LISTEN=..., ARGS="...").
	exec target/release/zkshim serve --listen $(LISTEN) $(ARGS)

build: ## Build the server as it should be used: target/release/zkshim.
	$(BUILT_ON) $(CARGO) build --locked --release --package zkshim

test: ## Run every test; what needs Java, Maven, Go or Python and did not find it is listed at the end.
	@CARGO="$(CARGO)" .ci/test

bench: ## Measure zkshim against ZooKeeper (ARGS="--quick" for a first look) and write docs/benchmarks.md.
	tools/bench $(ARGS)

fmt: ## Format the code.
	$(CARGO) fmt --all

lint: ## What the compiler and clippy have to say; any warning is an error.
	$(CARGO) clippy --locked --workspace --all-targets -- --deny warnings

docs: ## Build the documentation of the code; any warning is an error.
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --locked --workspace --no-deps --document-private-items

check: ## All that a change must pass.
	.ci/run

tools: ## Fetch and build the real servers that the tests run against (done by the tests themselves, too).
	tools/protoc/protoc --version
	tools/etcd/build
	tools/etcd/oldest
	tools/zookeeper/fetch

clean: ## Remove what was built, tools included; ./zkshim-data stays.
	$(CARGO) clean
	rm -rf .tools
