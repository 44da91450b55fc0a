# The build.  Its parts are in mk/*.mk.  `make help` lists the targets.
##
##  Variants, each in a separate directory: CC=clang, SANITIZE=address,undefined, SANITIZE=thread, WERROR=1.
##  CUDA=DIRECTORY uses another CUDA toolkit; CUDA=, VERBS= and VULKAN= build without it. V=1 shows the commands.
##
CC       ?= gcc
ifeq ($(origin CC),default)
CC       := gcc
endif
prefix   ?= /usr/local
SANITIZE ?=
WERROR   ?=
comma    := ,
Q        := $(if $(V),,@)
BUILD    ?= build$(if $(filter-out gcc,$(CC)),-$(notdir $(CC)))$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))
OBJ      := $(BUILD)/obj
# Number of compilers if the command does not set one.
ALL_CORES = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
SUBMAKE   = $(MAKE) --no-print-directory

.DEFAULT_GOAL := all
all: ## the daemons and tools, in build/
demo: ## the demonstration: a simulated array to fringes, in a minute; KEEP=1: the array keeps running
check: ## unit and engine tests (15 minutes at most)
check-all: ## slow tests: other compilers, sanitizers, fuzz corpora, both Debian releases

include mk/flags.mk mk/programs.mk mk/cuda.mk mk/tests.mk mk/bench.mk mk/install.mk mk/docs.mk

setup: ## installs the packages that building and testing need
	@scripts/setup check

demo:
	@scripts/setup demo
	@$(SUBMAKE) $(ALL_CORES) all
	@BUILD=$(BUILD) .venv/bin/python scripts/demo $(if $(KEEP),--keep)

demo-beam: ## a pulsar in a tied-array beam, recorded and folded, in seconds
	@scripts/setup demo
	@$(SUBMAKE) $(ALL_CORES) all
	@BUILD=$(BUILD) .venv/bin/python scripts/demo_beam

demo-gnss: ## four antennas calibrated by six satellites: a table and a picture, in half a minute
	@scripts/setup demo
	@$(SUBMAKE) $(ALL_CORES) all
	@BUILD=$(BUILD) .venv/bin/python scripts/demo_gnss

check-pulsar: demo-beam ## programs from PyPI (your, riptide-ffa, baseband) find the pulsar of make demo-beam
	@python3 -m venv .venv-pulsar
	@.venv-pulsar/bin/pip install -q your==0.6.7 riptide-ffa==0.2.7 baseband==4.3.0
	@.venv-pulsar/bin/python scripts/check_pulsar

examples: reference ## writes config/*.yaml and docs/reference again, after a change of keys, requests, sensors or metrics
	@for program in $(PROGRAMS); do $(BUILD)/$$program --print-example > config/$$program.yaml || exit 1; done

reference: $(addprefix $(BUILD)/,$(PROGRAMS))
	@CBF_BUILD=$(BUILD) .venv/bin/python tests/system/reference.py

help:
	@awk -F ':.*## ' '/^##/ {print substr($$0, 4)} /^[a-z_.-]+:.*## / {printf "  make %-21s %s\n", $$1, $$2}' $(filter-out %.d,$(MAKEFILE_LIST))

clean: ## removes all build outputs
	rm -rf build build-* compile_commands.json

.PHONY: all demo demo-beam demo-gnss check-pulsar setup examples reference help clean FORCE
FORCE:
