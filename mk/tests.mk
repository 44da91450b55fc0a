# Tests.  A unit test is one Check suite for a file of the same folder: tests/unit/FOLDER/check_*.c.
UNIT_SOURCES := $(sort $(wildcard $(addsuffix check_*.c,tests/unit/*/ tests/unit/*/*/ tests/unit/*/*/*/)))
# If the parts with libibverbs are not built, the tests of these parts are left out.
UNIT_SOURCES := $(filter-out $(if $(VERBS),,%/check_fake_verbs.c %/check_sink_verbs.c %/check_source_verbs.c),$(UNIT_SOURCES))
UNIT_TESTS   := $(patsubst %.c,$(BUILD)/tests/%,$(notdir $(UNIT_SOURCES)))
EMULATOR     := tests/fakes/emulator/device_emulated.c tests/fakes/emulator/kernel_cache.c

$(OBJ)/tests/unit/%.o: EXTRA_CFLAGS = $(CHECK_CFLAGS)
$(foreach t,$(UNIT_SOURCES),$(eval $(BUILD)/tests/$(basename $(notdir $(t))): $(call objects,$(t))))
$(UNIT_TESTS): $(call objects,tests/unit/test_main.c $(EMULATOR) tests/fakes/direct_guard/direct_guard.c) $(ARCHIVES)
	$(call link,$(HDF5_LIBS) $(CHECK_LIBS))

# The cuda device on a fake CUDA runtime that needs no GPU (tests/fakes/cuda/fake_cuda.h).
FAKE_CUDA := $(filter-out $(addprefix common/device/cuda/,image.c cache.c nvrtc.c fft.c) common/device/texts.c,$(CUDA_SOURCES)) \
             common/device/cpu.c common/device/cpu_direct.c $(EMULATOR) $(wildcard tests/fakes/cuda/*.c)
$(BUILD)/tests/cbf-cuda-fake.so: $(call pic_objects,$(FAKE_CUDA))
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -o $@ $^ $(KISSFFT_LIBS) -lpthread

# libibverbs and librdmacm without a network card (tests/fakes/verbs/README.md), if their headers are installed.
FAKE_VERBS_DIR := $(BUILD)/tests/fake_verbs
FAKE_VERBS     := $(if $(VERBS),$(addprefix $(FAKE_VERBS_DIR)/,libibverbs.so.1 librdmacm.so.1))
FAKE_RDMACM    := tests/fakes/verbs/fake_rdmacm.c
$(OBJ)/pic/tests/fakes/verbs/%: EXTRA_CFLAGS = -fPIC
$(FAKE_VERBS_DIR)/libibverbs.so.1: $(call pic_objects,$(filter-out $(FAKE_RDMACM),$(wildcard tests/fakes/verbs/*.c))) tests/fakes/verbs/libibverbs.map
$(FAKE_VERBS_DIR)/librdmacm.so.1: $(call pic_objects,$(FAKE_RDMACM)) tests/fakes/verbs/librdmacm.map $(FAKE_VERBS_DIR)/libibverbs.so.1
$(FAKE_VERBS_DIR)/%.so.1:
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -Wl,-soname,$(@F),--version-script,tests/fakes/verbs/$*.map -o $@ $(filter-out %.map,$^) -lpthread

fake-verbs: $(FAKE_VERBS)
VERBS_TESTS := $(addprefix $(BUILD)/tests/check_,fake_verbs source_verbs)
$(VERBS_TESTS): $(FAKE_VERBS)
$(VERBS_TESTS): override LDFLAGS += -Wl,-rpath,'$$ORIGIN/fake_verbs'

# Libraries that tests preload, or that programs open in place of the real libraries.
define fake
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) -shared -fPIC -std=c11 -D_GNU_SOURCE $(WARN) -O2 -g $(1) -o $@ $(filter %.c,$^)
endef
FAKE_VULKAN  := $(if $(VULKAN),$(BUILD)/tests/fake_vulkan/libvulkan.so.1)
DIRECT_GUARD := $(BUILD)/tests/direct-guard.so
FAKE_CLOCK   := $(BUILD)/tests/fake-clock.so
$(BUILD)/tests/fake_vulkan/libvulkan.so.1: tests/fakes/vulkan/fake_vulkan.c
	$(call fake,-fvisibility=hidden -Wl$(comma)-soname$(comma)libvulkan.so.1 $(VULKAN_CFLAGS))
$(DIRECT_GUARD): $(wildcard tests/fakes/direct_guard/*)
	$(fake)
$(FAKE_CLOCK): tests/fakes/clock/fake_clock.c
	$(fake)
FAKES := $(if $(CUDA),$(BUILD)/tests/cbf-cuda-fake.so) $(FAKE_VERBS) $(FAKE_VULKAN) $(DIRECT_GUARD) $(FAKE_CLOCK)

# The emulated CUDA kernels that the unit tests ask for, compiled before the tests (tests/fakes/emulator/kernel_cache.h).
# TEST_SEED chooses many of the kernels' sizes.
ifeq ($(TEST_SEED),)
TEST_SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
endif
export TEST_SEED
KERNEL_TESTS   := $(shell grep -lE 'TEST_ON_DEVICE|test_device_open|test_open_variant|device_emulated_open' $(UNIT_SOURCES))
KERNEL_VARIANT := $(TEST_SEED)$(addprefix -,$(filter address,$(subst $(comma), ,$(SANITIZE))))
KERNEL_STAMPS  := $(patsubst %.c,build-emulated/%-$(KERNEL_VARIANT),$(notdir $(KERNEL_TESTS)))
$(KERNEL_STAMPS): $(KERNEL_TESTS) $(wildcard kernels/*/* tests/fakes/emulator/*)
$(KERNEL_STAMPS): build-emulated/%-$(KERNEL_VARIANT): | $(BUILD)/tests/%
	@mkdir -p $(@D)
	@echo "  KERNELS $*"
	@EMULATE=compile CK_TIMEOUT_MULTIPLIER=20 $(BUILD)/tests/$* >/dev/null 2>&1 || true
	@touch $@

unit-programs: $(UNIT_TESTS) $(FAKES)
unit-tests: unit-programs $(KERNEL_STAMPS)

# A newcomer runs this target first.  It installs missing packages before it starts the build.  The build runs in a
# separate make, because the rules above need pkg-config when they are read.
check:
	@scripts/setup check
	@scripts/check-layers
	@scripts/check-words
	@scripts/check-links
	@$(SUBMAKE) $(ALL_CORES) all unit-tests
	@$(SUBMAKE) check-unit check-engine

# Sanitizers and coverage instrument atomic operations in their own way, so their builds leave out explore.
NO_EXPLORE := $(SANITIZE)$(findstring --coverage,$(CFLAGS))
check-unit: unit-tests $(addprefix $(BUILD)/tests/,fworld vworld xworld $(if $(NO_EXPLORE),,explore))
	@scripts/run-unit-tests $(BUILD)/tests $(UNIT_SKIP)
	@$(BUILD)/tests/fworld 1 $(if $(SANITIZE),40,200)
	@$(BUILD)/tests/xworld 1 $(if $(SANITIZE),40,200)
	@$(BUILD)/tests/vworld 1 $(if $(SANITIZE),20,100)
	@$(if $(NO_EXPLORE),,$(BUILD)/tests/explore --quick)

# The sanitizers instrument the daemons, which tests/scripts and tests/control hardly use.
ENGINE_TESTS ?= tests/system $(if $(SANITIZE),,tests/scripts tests/control)
# Two tests run on each CPU, because tests often wait for timers.  Sanitizers need the CPUs for one test each.
ENGINE_JOBS ?= $(shell expr $$(nproc) '*' $(if $(SANITIZE),1,2))
check-engine: all $(FAKES) $(addprefix $(BUILD)/,tests/check_design_ddc bench/count_heaps)
	@CBF_BUILD=$(BUILD) .venv/bin/python -m pytest -q -rs -n $(ENGINE_JOBS) --dist worksteal $(ENGINE_TESTS) $(PYTEST_FLAGS)

# The coverage build is not optimised, because optimisation would leave lines without code.  Counters are atomic,
# because threads share them.  The counts of an earlier measurement are deleted, because they would hide lines that no
# test runs any more.  A failed test does not end the measurement.
COVERAGE_SEEDS ?= 1000
coverage: ## lines and branches that the tests run, with limits; as HTML in build-coverage/html (40 minutes)
	@scripts/setup coverage
	@$(SUBMAKE) $(ALL_CORES) $(COVERAGE) all unit-tests $(addprefix build-coverage/tests/,fworld vworld xworld)
	@find build-coverage/obj -name '*.gcda' -delete
	@-$(SUBMAKE) -k $(COVERAGE) check-unit check-engine
	@-for world in fworld vworld xworld; do build-coverage/tests/$$world 1 $(COVERAGE_SEEDS); done
	@scripts/coverage build-coverage
COVERAGE := BUILD=build-coverage CFLAGS="-Og -g --coverage -fprofile-update=atomic" LDFLAGS=--coverage

check-all:
	@scripts/setup ci
	@scripts/check-variants

# Fuzz tests, which feed arbitrary bytes to the readers of packets and files.  libFuzzer needs clang and a separate
# build, with a target for each tests/fuzz/fuzz_*.c.
#
# With AFL=1, AFL++ (package afl++) runs the same targets, built in build-afl.
FUZZ_SECONDS ?= 600
T            ?= 28800
AFL          ?=
FUZZ_TARGETS := $(patsubst tests/fuzz/%.c,%,$(filter-out %/fuzz_log.c,$(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_BUILD   := $(if $(AFL),build-afl,build-fuzz)
FUZZ_CC      := $(if $(AFL),afl-clang-fast,clang)
FUZZ_KINDS   := $(if $(AFL),,fuzzer-no-link$(comma))address,undefined
FUZZ_MAKE     = AFL_QUIET=1 $(SUBMAKE) CC=$(FUZZ_CC) SANITIZE=$(FUZZ_KINDS) BUILD=$(FUZZ_BUILD) fuzz-targets
FUZZ_RUN      = @scripts/run-fuzz $(if $(AFL),--afl) $(1) $(addprefix $(FUZZ_BUILD)/fuzz/,$(FUZZ_TARGETS))

# Tracing of comparisons would take half of the time of fuzz_flood, whose packets are well-formed without the fuzzer's
# guesses.
ifneq ($(findstring fuzzer,$(SANITIZE)),)
$(OBJ)/common/recv/%.o $(OBJ)/common/time/%.o $(OBJ)/common/base/inbox.o $(OBJ)/common/net/spead.o \
    $(OBJ)/common/net/spead_shape.o $(OBJ)/fgpu/recv.o $(OBJ)/xbgpu/recv.o $(OBJ)/tests/fuzz/fuzz_flood.o: EXTRA_CFLAGS += -fno-sanitize-coverage=trace-cmp
endif

$(addprefix $(BUILD)/fuzz/,$(FUZZ_TARGETS)): LDFLAGS += -fsanitize=fuzzer
$(addprefix $(BUILD)/fuzz/,$(FUZZ_TARGETS)): $(BUILD)/fuzz/%: $(OBJ)/tests/fuzz/%.o $(OBJ)/tests/fuzz/fuzz_log.o $(ARCHIVES)
	$(call link,$(HDF5_LIBS))

fuzz-targets: $(addprefix $(BUILD)/fuzz/,$(FUZZ_TARGETS))

fuzz: ## the fuzz targets, FUZZ_SECONDS=600 each, two at a time, with AFL=1 under AFL++; make check-fuzz: their corpora once
	+@$(FUZZ_MAKE)
	$(call FUZZ_RUN,--seconds $(FUZZ_SECONDS))

fuzz-night: ## the fuzz targets, T=28800 seconds in total, then a merge of their corpora
	+@$(FUZZ_MAKE)
	$(call FUZZ_RUN,--total $(T))

check-fuzz:
	+@$(FUZZ_MAKE)
	$(call FUZZ_RUN,--corpus)

# Compiles every kernel for every kind of GPU.  The CUDA toolkit can do this without a GPU.
$(BUILD)/tests/compile_kernels: $(OBJ)/tests/gpu/compile_kernels.o $(ARCHIVES)
	$(call link)

check-compile: $(BUILD)/tests/compile_kernels ## compiles the CUDA kernels for every kind of GPU, without one (6 minutes)
	@$< $(COMPILE_FLAGS)

# CBF_TEST_DEVICE (cpu, cuda) chooses the device.
QUALIFY_FLAGS ?= --output docs/qualification.md --plots docs/images
qualify-f: ## measures the F-engine against the acceptance catalogue; writes docs/qualification.md
	@scripts/setup check
	@$(SUBMAKE) all $(BUILD)/tests/check_design_ddc
	@CBF_BUILD=$(BUILD) .venv/bin/python tests/qualify/qualify_f.py $(QUALIFY_FLAGS)

QUALIFY_B_FLAGS ?= --output docs/qualification-beams.md
qualify-b: ## measures beams against the acceptance catalogue; writes docs/qualification-beams.md
	@scripts/setup check
	@$(SUBMAKE) all
	@CBF_BUILD=$(BUILD) .venv/bin/python tests/qualify/qualify_b.py $(QUALIFY_B_FLAGS)

QUALIFY_GNSS_FLAGS ?= --output docs/qualification-gnss.md
qualify-gnss: ## satellites of simulated skies against their model, and by gnss-sdr; writes docs/qualification-gnss.md
	@scripts/setup check
	@$(SUBMAKE) all
	@CBF_BUILD=$(BUILD) .venv/bin/python tests/qualify/qualify_gnss.py $(QUALIFY_GNSS_FLAGS)

check-systemd: ## installs the packages in a container with a real systemd, and runs them (5 minutes)
	@scripts/check-systemd

check-kubernetes: ## makes a container image, and runs an array from its manifests in podman (5 minutes)
	@scripts/check-kubernetes

# The exit code 77 says that namespaces are not permitted here.
ARRAY_FLAGS ?= --output $(BUILD)/check-array
check-array: ## an array of 16 F-engines and 8 X-engines on 11 namespaces: its playbook, three faults, a spare (5 minutes)
	@scripts/setup ci
	@$(SUBMAKE) all $(FAKE_CLOCK)
	@CBF_BUILD=$(BUILD) .venv/bin/python tests/netns/many_hosts.py $(ARRAY_FLAGS) || [ $$? = 77 ]

# Without a GPU this target prints a message.
check-gpu: ## unit and engine tests on an NVIDIA GPU, and compute-sanitizer; docs/gpu-tests.md
	@scripts/gpu check

gpu-pack: ## packs the files of check-gpu into .gpu/pack.tar.gz, for a machine with a GPU and none of our libraries
	@scripts/setup check
	@scripts/gpu pack

.PHONY: unit-programs unit-tests check check-unit check-engine check-all coverage fake-verbs fuzz fuzz-night fuzz-targets check-fuzz check-compile qualify-f qualify-b qualify-gnss
.PHONY: check-systemd check-kubernetes check-array check-gpu gpu-pack check-static

check-static: ## cppcheck, clang-tidy and gcc's analyser on all C files of the product
	@scripts/check-static

# Daemons in a simulated world (tests/world/sched.h).  The world's objects define clock.h, thread.h, service.h, libev and
# the UDP sockets, so the linker leaves out the daemons' own objects.  --wrap redirects locks to the world's scheduler.
WORLD_SOURCES := $(addprefix tests/world/,faults.c sched.c seams.c clock.c loop.c lines.c memory.c network.c sent.c wire.c run.c)
WORLD_WRAPS   := $(addprefix pthread_mutex_,init destroy lock trylock unlock) \
                 $(addprefix pthread_cond_,init destroy wait timedwait signal broadcast) mlockall getrandom adjtimex \
                 log_message log_limited endpoint_listen accept4 recv send close device_cpu_open katcp_text_add \
                 sensors_add config_print_errors malloc calloc realloc strdup posix_memalign free
WORLDS        := $(BUILD)/tests/fworld $(BUILD)/tests/vworld $(BUILD)/tests/xworld
$(WORLDS): override LDFLAGS += $(addprefix -Wl$(comma)--wrap=,$(WORLD_WRAPS))
$(BUILD)/tests/xworld: $(call objects,$(addprefix tests/world/,refusals.c xbeams.c xdraw.c xdumps.c xheaps.c xothers.c xrequests.c))
$(BUILD)/tests/fworld: $(call objects,$(addprefix tests/world/,refusals.c ffaults.c fothers.c fsettings.c fmodel.c fjudge.c fgnss.c ftrack.c ftrack_model.c ftrack_sums.c ftrack_delay.c ftrack_start.c fsums.c))
$(WORLDS): $(BUILD)/tests/%: $(OBJ)/tests/world/%.o $(call objects,$(WORLD_SOURCES)) $(ARCHIVES)
	$(call link,$(HDF5_LIBS))

# The recorder's world also has a disk, and reads the files with HDF5.
VWORLD_SOURCES := $(addprefix tests/world/,visrec_main.c disk.c dumps.c dumps_files.c recording.c visrec_counters.c)
$(BUILD)/tests/vworld: $(call objects,$(VWORLD_SOURCES))
$(OBJ)/tests/world/recording.o: EXTRA_CFLAGS = $(HDF5_CFLAGS)

# The hand-over protocols in all orders of their threads' steps (tests/world/explore.h).  -fsanitize=thread makes atomic
# operations call functions, which explore_seams.c defines.  The sanitizer's library is not linked.
EXPLORE          := $(BUILD)/tests/explore
EXPLORE_SOURCES  := $(addprefix tests/world/,explore.c explore_seams.c protocols.c protocols_drain.c)
EXPLORED_ATOMICS := common/base/buffer_ref.c common/engine/command.c common/recv/receiver.c common/send/sink.c
EXPLORE_WRAPS    := $(addprefix pthread_mutex_,init destroy lock unlock) \
                    $(addprefix pthread_cond_,init destroy wait timedwait signal broadcast) \
                    malloc calloc realloc strdup posix_memalign free log_message log_limited
$(OBJ)/explore/%.o: EXTRA_CFLAGS = -fsanitize=thread
$(OBJ)/explore/%.o: %.c $(FLAGS) | libraries
	$(compile)
check-explore: $(EXPLORE) ## the hand-over protocols of threads in all orders of their steps, for small cases (2 minutes)
	@$<

.PHONY: check-explore
$(EXPLORE): override LDFLAGS += $(addprefix -Wl$(comma)--wrap=,$(EXPLORE_WRAPS))
$(EXPLORE): $(call objects,$(EXPLORE_SOURCES)) $(EXPLORED_ATOMICS:%.c=$(OBJ)/explore/%.o) $(ARCHIVES)
	$(call link,$(HDF5_LIBS))
