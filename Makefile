# Two commands do everything: make up (see it work), make test (prove it). `make help` lists the rest.

# The cases that must be done (internal/casetest), and where they are: the test program of any other package would be built for nothing.
CASES      := agent:1-40 transfer:1-56 workload:1-70
CASE       := Test[A-Z][a-z]+Case[0-9]
WITH_CASES  = $(sort $(dir $(shell grep -rlE --include='*_test.go' --exclude-dir='.?*' --exclude-dir=testdata '^func $(CASE)' .)))
# What has tests on hosts beside its cases, which -short leaves out.
ON_HOSTS := ./internal/host/packages/apt ./internal/host/service ./internal/host/unit
# What takes minutes, the longest first: go test begins in this order, and what is begun last is waited for alone.
LONGEST  := $(addprefix ./e2e/,workloads path alone api source) ./internal/host/packages/apt
# The targets of the transfer are fuzzed in each run, for so long each; make fuzz DECODERS=./... takes all others too.
FUZZ     := 10s
DECODERS := ./internal/agent/held ./internal/bundle ./internal/catalog ./internal/layerstore ./internal/transfer/... ./internal/trust
# The simulation of which SEED replays a world.
WORLD    := internal/sim
RESULTS := .scratch/results

# Without the tag, kustomize's library links package plugin, for which the linker keeps 37 MB that nothing calls. With -trimpath, what was
# compiled in one clone is not compiled again in the next. They are here and nowhere else, so that each go command of this file, and of
# what it starts, has them.
SMALL := kustomize_disable_go_plugin_support
export GOFLAGS := $(filter-out -tags=$(SMALL) -trimpath,$(shell go env GOFLAGS)) -tags=$(SMALL) -trimpath
# For tests of the built programs. What a command line says replaces what GOFLAGS says.
E2E := -tags=e2e,$(SMALL)

testsum := go run ./tools/testsum -log $(RESULTS)
# Tests wait for a third of their time, so three test programs run on two processors. Vet is of `check`, which vets everything, once.
gotest  := go test -json -vet=off -p $(shell echo $$(($$(nproc) * 3 / 2)))
tools   := go tool -modfile=tools/pinned/go.mod
# Asked when a recipe runs, not before: needs may just have installed the compiler.
race     = $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)
skips    = $(shell tools/needs.sh complete || echo -allow-skips)

.DEFAULT_GOAL := test
.PHONY: up down test needs check unit cases sim e2e fuzz bench soak mutants generate hooks help

up: ## run a server and an agent on examples/hello, below .scratch; Ctrl-C stops them
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/ ./cmd/tako ./cmd/tako-agent
	@tools/up.sh

down: ## stop them, and leave nothing behind
	@tools/down.sh

# Every stage runs, also after one that failed; the last line counts. Hosts are mostly waited for, so simulating and fuzzing run beside them.
test: needs ## everything that CI runs: check, unit, cases, sim, e2e with fuzz, cheapest first
	@rm -rf $(RESULTS); failed=; \
	for stage in check unit "cases sim" "e2e fuzz"; do \
		echo "== $$stage"; \
		$(MAKE) --no-print-directory -k -j2 $$stage || failed="$$failed $$stage"; \
	done; \
	test -z "$$failed" || printf '\nstages that failed:%s\n' "$$failed"; \
	$(testsum) -total && test -z "$$failed"

needs:
	@tools/needs.sh install

check: ## format, vet, staticcheck, tidy, generated files
	@status=0; \
	$(testsum) -step format tools/format.sh || status=1; \
	$(testsum) -step vet go vet $(E2E) ./... || status=1; \
	$(testsum) -step staticcheck $(tools) staticcheck $(E2E) ./... || status=1; \
	$(testsum) -step generated tools/generated.sh || status=1; \
	$(testsum) -stage tidy $(gotest) -timeout 30m -run '^TestTree$$' ./internal/tidy || status=1; \
	exit $$status

# The agent's cases are left to `cases`: they are mostly processes, which start slowly with -race. A simulated world has one thread: it is
# left to `sim`.
unit: ## unit tests, with -race where there is a C compiler
	@test -n "$(race)" || echo "unit: no C compiler: WITHOUT -race"
	@$(testsum) -stage unit $(gotest) $(race) -short -timeout 20m -skip '^TestTree$$|^TestAgentCase' $$(go list ./... | grep -v /$(WORLD))

cases: ## the cases, in full; writes cases.json
	@rm -rf .scratch/cases && mkdir -p .scratch/cases
	@status=0; \
	TAKO_CASES=$(CURDIR)/.scratch/cases $(testsum) -stage cases $(gotest) $(E2E) -count=1 -timeout 50m -run '^$(CASE)' $(WITH_CASES) || status=1; \
	$(testsum) -step cases go run ./tools/cases -dir .scratch/cases -out cases.json -want '$(CASES)' $(skips) || status=1; \
	exit $$status

# Without -race. Its clock is not that of the machine, so it takes what others leave.
sim: ## fifty fleets of fifty hosts on a virtual clock, and fifty that run workloads; SEED=n replays one of WORLD=internal/sim[/workloads], with its trace
ifdef SEED
	@TAKO_SEED=$(SEED) go test -count=1 -v -run '^TestSeeds$$' ./$(WORLD)
else
	@$(testsum) -stage sim chrt -i 0 $(gotest) -count=1 -timeout 15m ./internal/sim/...
endif

e2e: ## the real thing: hosts with systemd, built binaries
	@$(testsum) -stage e2e $(gotest) $(E2E) -count=1 -timeout 60m -skip '^$(CASE)' $(LONGEST) ./e2e/... ./examples/... $(ON_HOSTS)

fuzz: ## every decoder of the transfer for FUZZ=10s, two at a time
	@$(testsum) -stage fuzz chrt -i 0 tools/fuzz.sh -json $(FUZZ) $(DECODERS)

bench: ## the table of bars, with peers
	@go run ./bench

soak: ## long runs: fuzzing, simulation with many seeds, kills at random times
	@tools/fuzz.sh 5m
	@TAKO_SEEDS=1000 TAKO_SOAK=1 go test $(E2E) -count=1 -timeout 12h ./...

mutants: ## break the code line by line, and see the tests go red
	@go run ./tools/mutants

generate: ## generate all generated files
	@tools/generate.sh

hooks: ## check each commit before it is made
	@git config core.hooksPath hooks

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile
