# tendril's build. `make demo` shows the main job, `make test` proves it.

GO      ?= go
GIT     ?= git
BIN     := bin/tendril
VERSION := $(shell $(GIT) describe --tags --always --dirty 2>/dev/null || echo unknown)
GVISOR  := $(shell sed -n 's/^[[:space:]]*gvisor.dev\/gvisor \(v[^ ]*\).*/\1/p' go.mod)
LDFLAGS := -s -w -X main.version=$(VERSION) -X gvisor.dev/gvisor/runsc/version.version=$(GVISOR)
# The race detector needs a C compiler; the shipped binary must not have one.
RACE    := $(shell command -v gcc >/dev/null 2>&1 && echo -race)
SUBSTRATE ?=
FUZZTIME  ?= 10s

.PHONY: build demo test lint bench soak fuzz clients generate clean

build: $(BIN)

# The Go tool knows what is up to date, so all binaries are always asked for. (A
# pattern rule does not apply to a phony target, hence FORCE.)
FORCE:
ARCH := $(shell $(GO) env GOARCH)
$(BIN): stoma/binary/built/stoma-linux-$(ARCH) sprout/binary/built/sprout-linux-$(ARCH) FORCE
	@echo "building $(BIN) (the first time takes some minutes: gVisor is compiled in)" >&2
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "$(LDFLAGS)" -o $(BIN) ./cmd/tendril

stoma/binary/built/stoma-linux-%: FORCE
	CGO_ENABLED=0 GOOS=linux GOARCH=$* $(GO) build -trimpath -ldflags "-s -w" -o $@ ./cmd/stoma

sprout/binary/built/sprout-linux-%: FORCE
	CGO_ENABLED=0 GOOS=linux GOARCH=$* $(GO) build -trimpath -ldflags "-s -w" -o $@ ./cmd/sprout

# What gVisor's own runsc does with the same bundle: the baseline of the benchmarks.
bin/baseline: build FORCE
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$(GVISOR)" -o $@ ./bench/baseline

demo:
	@scripts/check build
	@$(MAKE) --no-print-directory build
	@scripts/demo "$(SUBSTRATE)"

test:
	@scripts/check build
	@$(MAKE) --no-print-directory bin/baseline
	@scripts/test $(RACE)

lint:
	@scripts/lint

bench: bin/baseline
	@scripts/bench

soak: build
	@scripts/soak

fuzz:
	@FUZZTIME=$(FUZZTIME) scripts/fuzz

# Documentation that is made from the program.
generate: build
	@scripts/generate

# The client side builds where no wall does.
clients:
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) build -trimpath -o bin/tendril-darwin-arm64 ./cmd/tendril
	CGO_ENABLED=0 GOOS=windows GOARCH=amd64 $(GO) build -trimpath -o bin/tendril-windows-amd64.exe ./cmd/tendril

clean:
	rm -rf bin stoma/binary/built/stoma-* sprout/binary/built/sprout-*
