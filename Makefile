# SPDX-License-Identifier: Apache-2.0
# Needs Go, git and make. `make` alone prints what there is to make.
SEEDS  ?= 1
MODE   ?= sim
REPORT ?= reports/out

TOOL    = go tool -modfile=tools/go.mod
VERSION = $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

scenario: build ## rehearse: play the built-in suite and write the report (SEEDS=1 MODE=sim REPORT=reports/out)
	bin/adit run --mode $(MODE) --seeds $(SEEDS) --report $(REPORT)

test: controlplane ## run all Go tests
	go test -timeout 20m $$(go list ./... | grep -v /live$$)
	go test -timeout 20m -parallel 2 ./live

check: ## find what is wrong without running it: gofmt, vet, staticcheck, the laws of the house
	@out=$$(gofmt -l .); test -z "$$out" || { echo "to mend, gofmt -w:" $$out; exit 1; }
	go vet ./...
	$(TOOL) staticcheck ./...
	go test ./internal/tidy

generate: ## write what is generated: deepcopy functions, config/crd, gRPC
	go generate ./...
verify: ## show that what is generated and go.mod are fresh; changes nothing
	.ci/verify

build: ## build bin/adit, bin/operator and bin/ha-service
	go build -ldflags "-X main.version=$(VERSION)" -o bin/ ./cmd/...
controlplane: ## build etcd, kube-apiserver, kubectl and more into bin/k8s (a quarter of an hour, once)
	tools/controlplane/build bin/k8s

bench: ## measure, minutes long; name, value and unit, tab between, also in reports/bench.tsv
	go run ./internal/bench
mutants: ## break the programs on purpose and show that explorations find it (long)
	go run ./internal/bench -only mutants -out reports/mutants.tsv
seeds: build ## play the suite with 50 seeds each, every run twice (long)
	bin/adit run --mode $(MODE) --seeds 50 --verify
clean: ## remove what was built and reported, but for the control plane
	rm -rf bin/adit bin/operator bin/ha-service reports/out reports/*.tsv

.PHONY: help scenario test check generate verify build controlplane bench mutants seeds clean
