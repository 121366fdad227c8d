# Every target is a step of .ci/run, so that a green make is a green CI.
.DEFAULT_GOAL := help
.PHONY: help build test race fuzz lint vuln demo check quick contract

help: ## what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## compile everything, static
	.ci/run build

test: ## go test ./...
	.ci/run test

race: ## the tests under the race detector
	.ci/run race

fuzz: ## each fuzz target for a while (FUZZTIME=20000x)
	.ci/run fuzz

lint: ## gofmt, go vet, golangci-lint, shellcheck
	.ci/run format vet lint

vuln: ## known vulnerabilities in what is called
	.ci/run vuln

demo: ## the README's first command, and what it answers
	.ci/run demo

quick: ## what CI runs, without the steps that take minutes
	.ci/run quick

check: ## all that CI runs
	.ci/run

contract: ## fill in docs/contract.md from the tests' comments
	go test ./internal/contracttest -update
