# Run `make` for the list of targets.

GO       ?= go
PKG      ?= ./...
RUN      ?= .
FUZZTIME ?= 30s
COUNT    ?= 10
ROUNDS   ?= 500
SEEDS    ?= 100000
LIVES    ?= 10000
CHAOS    ?= 30m
VULN     ?= golang.org/x/vuln/cmd/govulncheck@v1.9.0

# The linter is pinned in tools/go.mod, built once into bin/ and reused.
LINT := bin/golangci-lint

# Everything that is done to real processes, at full size.
REAL := RAFTYARD_TEST_SCALE=full RAFTYARD_CHAOS_DURATION=$(CHAOS) \
  $(GO) test -v -count=1 -timeout 0 -p 1 ./test ./test/crash

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: check
check: tidy-check lint race ## Everything a change must pass before review.

.PHONY: build
build: ## Build the commands into bin/.
	$(GO) build -trimpath -o bin/ ./cmd/...

# -count=1: the tests of ./test build the daemon themselves, which the cache of
# test results does not see.
.PHONY: test
test: ## All tests but the long ones: make test PKG=./group RUN=TestX
	$(GO) test -short -count=1 -run '$(RUN)' $(PKG)

.PHONY: race
race: ## All tests, with the race detector and internal invariants on.
	$(GO) test -race -shuffle=on -tags invariants -run '$(RUN)' $(PKG)

.PHONY: stress
stress: ## Repeat RUN in PKG, to shake out flakes: make stress PKG=./node RUN=TestX
	$(GO) test -race -count=$(COUNT) -failfast -run '$(RUN)' $(PKG)

# Three parts, each with its own measure. All run, whichever fails.
.PHONY: mutants
mutants: ## Plant bugs, one after the other, and see that the tests find each.
	$(GO) test -tags mutants -v -count=1 -run TestMutants ./test/sim -seeds 1000
	$(GO) test -tags mutants -count=1 \
	  -run 'TestTornUpdate|TestClampTail|TestSkippedSync' ./storage ./internal/simdisk

.PHONY: soak
soak: ## Hours: chaos with ROUNDS kills in each loop, SEEDS and LIVES simulations.
	@status=0; \
	RAFTYARD_CRASH_ROUNDS=$(ROUNDS) $(REAL) || status=1; \
	$(GO) test -v -count=1 -timeout 0 -run TestSeeds ./test/sim -seeds $(SEEDS) || status=1; \
	$(GO) test -v -count=1 -timeout 0 -run TestLifeCycle ./test/sim -seeds $(LIVES) || status=1; \
	RAFTYARD_TEST_SCALE=full $(GO) test -v -count=1 -timeout 0 ./test/memory || status=1; \
	RAFTYARD_TEST_SCALE=full $(GO) test -v -count=1 -timeout 0 -run 'Inside|Brim' \
	  ./node ./internal/badgerdb || status=1; \
	exit $$status

# Tests that need namespaces of their own make them, and need no root where users may do so.
.PHONY: chaos
chaos: ## Two hours: all that is done to real processes at full size, CHAOS of it at random.
	$(REAL)

# Only packages whose tests use datadriven know the flag -rewrite.
.PHONY: golden
golden: ## Rewrite golden files. Read the diff before you commit it.
	@pkgs=$$($(GO) list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' $(PKG) \
	  | awk '/cockroachdb\/datadriven/ {print $$1}'); \
	if [ -z "$$pkgs" ]; then echo "no golden files in $(PKG)"; exit 0; fi; \
	echo $(GO) test -run '$(RUN)' $$pkgs -rewrite; \
	$(GO) test -run '$(RUN)' $$pkgs -rewrite

.PHONY: fuzz
fuzz: ## Run every fuzz target in PKG for FUZZTIME.
	@for pkg in $$($(GO) list $(PKG)); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$f"; \
	    $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; \
	done

# Those of ./test/bench fail when they do much worse beside their baselines than they did.
.PHONY: bench
bench: ## Benchmarks, in the form that benchstat reads: make bench PKG=./test/bench RUN=Storage
	RAFTYARD_BENCH_CHECK=1 \
	  $(GO) test -run '^$$' -bench '$(RUN)' -benchmem -timeout 0 -count=$(COUNT) $(PKG)

.PHONY: bench-peers
bench-peers: ## Compare with other libraries: make bench-peers PEERS='-cells 1x64 raftyard etcd'
	cd test/peers && $(GO) run . $(PEERS)

.PHONY: check-peers
check-peers: $(LINT) ## Lint and test what compares with other libraries, a module of its own.
	cd test/peers && $(GO) mod tidy -diff
	cd test/peers && ../../$(LINT) run -c ../../.golangci.yml ./...
	cd test/peers && $(GO) test -race ./...

.PHONY: cover
cover: ## Coverage report in cover.html.
	$(GO) test -short -coverpkg=./... -coverprofile=cover.out $(PKG)
	$(GO) tool cover -html=cover.out -o cover.html

.PHONY: lint
lint: $(LINT) ## Formatting and linters.
	$(LINT) fmt --diff
	$(LINT) run

.PHONY: fmt
fmt: $(LINT) ## Format the code.
	$(LINT) fmt

# go build leaves a binary alone that is up to date, so its time may be old.
$(LINT): tools/go.mod tools/go.sum
	$(GO) build -modfile=tools/go.mod -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

.PHONY: vuln
vuln: ## Known vulnerabilities in what we call (needs the network).
	$(GO) run $(VULN) ./...

.PHONY: tidy-check
tidy-check: ## Check that the modules are what go.sum says.
	$(GO) mod tidy -diff
	$(GO) mod verify

.PHONY: clean
clean: ## Delete what the other targets have built.
	rm -rf bin cover.out cover.html
