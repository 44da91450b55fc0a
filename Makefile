# One Makefile for everything.  `make demo` shows fringes, `make check` runs the tests; both install what is missing.
#
#   make                     build the daemons and tools into build/
#   make demo                the demonstration: simulated array to fringes (a minute)
#   make check               unit and engine tests (15 minutes at most)
#   make check-all           what is slow: sanitizer builds, the other compiler, fuzz corpora, fresh schemas
#   make fuzz                the fuzz targets, FUZZ_SECONDS=600 each, two at a time; make check-fuzz: their corpora once
#   make qualify-f           measures the F-engine against the acceptance catalogue; writes docs/qualification.md
#   make check-compile       compiles the CUDA kernels for every kind of GPU, without one (6 minutes on two cores)
#   make check-gpu           the same on an NVIDIA GPU, and compute-sanitizer; docs/gpu-tests.md
#   make gpu-pack            packs what that needs into .gpu/, for a machine with a GPU and none of our libraries
#   make bench-recv          receiving packets, beside spead2 (3 minutes, and 2 more to build it the first time)
#   make bench-send          sending packets, beside spead2 (a minute)
#   make bench-cpu           what the kernels cost on this machine (a minute); docs/performance.md
#   make bench-fgpu          what the F-engine reaches on the device that there is; FGPU_FLAGS="--device cpu --channels 1024"
#   make bench-xbgpu         what the X-engine's kernels reach on it; XBGPU_FLAGS="--shapes --antennas 80 --bits 8"
#   make bench-ddc           what the down-converter reaches on it; DDC_FLAGS="--shapes --subsampling 8"
#   make bench-peers         builds spead2, which the benchmarks are measured against, and tries it
#   make CUDA=               builds without the CUDA toolkit that there is; CUDA=DIRECTORY takes another
#   make V=1                 shows the commands
#   make install DESTDIR= prefix=/usr/local
#
# Variants: CC=clang, SANITIZE=address,undefined, SANITIZE=thread, WERROR=1; each builds into its own directory.

CC      ?= gcc
ifeq ($(origin CC),default)
CC      := gcc
endif
prefix  ?= /usr/local
SANITIZE ?=
WERROR  ?=
comma   := ,
Q       := $(if $(V),,@)
BUILD   ?= build$(if $(filter-out gcc,$(CC)),-$(notdir $(CC)))$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))

# ---- The pipeline, in the order in which data meet it ------------------------------------------------------------
PACKETS  = common/endpoint.o common/packet_source.o common/packet_source_udp.o common/packet_filter.o common/packet_source_pcap.o \
           common/spead.o common/spead_shape.o common/copy.o
CHUNKS   = common/inbox.o common/loan.o common/chunk.o common/assemble.o common/receiver.o \
           common/receiver_metrics.o common/receiver_set.o common/matcher.o common/presence.o
DEVICE   = common/device.o common/device_plugin.o common/device_cpu.o common/memory.o
# The cuda device is a shared object; the part of it that knows files and NVRTC is tested without a GPU.
IMAGES   = common/cuda/image.o common/cuda/cache.o common/cuda/nvrtc.o common/cuda/library.o common/cuda/texts.o
CUDA_SO  = common/cuda/device.o common/cuda/gpu.o common/cuda/memory.o common/cuda/stream.o common/cuda/failure.o \
           common/cuda/fft.o common/cuda/kernel.o $(IMAGES) common/thread.o common/file.o common/version.o
SENDING  = common/packet_sink.o common/packet_sink_udp.o common/packet_sink_pcap.o common/send_stream.o \
           common/sender.o common/sender_group.o
TIME     = common/clock.o common/timebase.o
SERVICE  = common/config.o common/config_file.o common/config_load.o common/config_values.o common/config_format.o \
           common/config_print.o common/config_main.o common/sections.o common/stats.o common/log.o common/thread.o \
           common/service.o common/http.o common/daemon.o common/file.o common/version.o
KERNELS  = kernels/design_pfb.o kernels/remez.o kernels/design_ddc.o kernels/mixer.o kernels/ddc.o \
           kernels/pfb_fir.o kernels/pfb_fir_complex.o kernels/power.o kernels/postproc.o \
           kernels/channelise_fused.o kernels/channelise_narrow.o kernels/channelise.o kernels/channelise_choice.o \
           kernels/channelise_timing.o kernels/channelise_tune.o kernels/select_spectra.o kernels/correlate.o \
           kernels/correlate_shape.o kernels/reduce.o
FGPU     = fgpu/config.o fgpu/layout.o fgpu/recv.o fgpu/delay.o fgpu/table_file.o fgpu/delay_file.o \
           fgpu/gain_file.o fgpu/baseband.o fgpu/walk.o fgpu/level.o fgpu/antenna.o fgpu/pipeline.o fgpu/send.o \
           fgpu/tune.o
XBGPU    = xbgpu/config.o xbgpu/gate_config.o xbgpu/layout.o xbgpu/recv.o xbgpu/window.o xbgpu/audit.o xbgpu/gate.o \
           xbgpu/correlation.o xbgpu/xinput.o xbgpu/xpipeline.o xbgpu/xsend.o
DSIM     = tools/dsim_config.o tools/dsim_parse.o tools/dsim_signal.o tools/dsim_live.o tools/vdif.o \
           tools/dsim_recording.o tools/dsim_recording_raw.o tools/dsim_recording_vdif.o \
           tools/dsim_recording_vdif_read.o tools/dsim_play.o tools/dsim_send.o
FSIM     = tools/fsim_config.o tools/fsim_signal.o tools/fsim_recording.o tools/fsim_heaps.o tools/fsim_antenna.o \
           tools/fsim_send.o
VISREC   = tools/visrec_config.o tools/visrec_recv.o tools/visrec_array.o tools/visrec_dump.o tools/visrec_writer.o \
           tools/visrec_uvh5_header.o tools/visrec_uvh5_rows.o tools/visrec_uvh5.o

LIB_OBJS     := $(PACKETS) $(CHUNKS) $(DEVICE) $(IMAGES) $(SENDING) $(TIME) $(SERVICE) $(KERNELS)
DAEMON_OBJS  := $(FGPU) $(XBGPU)
TOOL_OBJS    := $(DSIM) $(FSIM) $(VISREC)
PROGRAMS     := fgpu xbgpu dsim fsim visrec
UNIT_TESTS   := $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/check_*.c))

# ---- Flags ---------------------------------------------------------------------------------------------------------
PACKAGES = yaml-0.1 libmicrohttpd libsystemd libpcap kissfft-float
HDF5     = hdf5
pkg      = $(shell pkg-config $(1) $(2) 2>/dev/null)

CFLAGS  ?= -O3 -g
WARN     = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wno-unused-parameter -Wno-missing-field-initializers \
           $(if $(filter clang%,$(notdir $(CC))),-Wthread-safety) $(if $(WERROR),-Werror)
# No contraction into FMA: the kernels' twins must give the same bits wherever they run.  Nobody reads floating point
# exceptions (trapping-math), so that comparisons may become selections, which vectorise; that changes no bits.
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -I. -fno-math-errno -fno-trapping-math -ffp-contract=off -fno-omit-frame-pointer $(WARN) \
             $(if $(findstring thread,$(SANITIZE)),-Wno-unknown-pragmas,-fopenmp) \
             $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -DCBF_SANITIZE) \
             $(call pkg,--cflags,$(PACKAGES)) $(CFLAGS)
ALL_LDFLAGS = $(if $(SANITIZE),-fsanitize=$(SANITIZE)) $(if $(findstring thread,$(SANITIZE)),,-fopenmp) $(LDFLAGS)
LIBS     = $(call pkg,--libs,$(PACKAGES)) -lev -lpthread -lm
HDF5_CFLAGS = $(call pkg,--cflags,$(HDF5))
HDF5_LIBS   = $(call pkg,--libs,$(HDF5))
CHECK_LIBS  = $(call pkg,--libs,check)

# The CUDA toolkit (12.8 or later), if there is one: CUDA=DIRECTORY, or CUDA= for none.
cuda_at  = $(firstword $(foreach d,$(1),$(if $(wildcard $(d)/include/cuda_runtime_api.h),$(d))))
CUDA    ?= $(call cuda_at,$(CUDA_PATH) $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc 2>/dev/null))) /usr/local/cuda)
CUDART   = $(firstword $(wildcard $(addsuffix /libcudart_static.a,$(CUDA)/lib64 $(CUDA)/lib \
           $(CUDA)/lib/x86_64-linux-gnu)))
CUDA_DEVICE = $(if $(CUDA),$(BUILD)/cbf-cuda.so)

.PHONY: all setup unit-tests check check-unit check-engine check-all qualify-f fuzz fuzz-targets check-fuzz
.PHONY: check-compile check-gpu gpu-pack gpu-programs
.PHONY: bench-cpu bench-fgpu bench-xbgpu bench-ddc bench-recv bench-send bench-peers demo install clean examples
all: $(addprefix $(BUILD)/,$(PROGRAMS)) $(CUDA_DEVICE)
	@$(if $(CUDA),:,echo "  no CUDA toolkit: without the cuda device (cbf-cuda.so)")

# ---- Programs ------------------------------------------------------------------------------------------------------
OBJ      = $(BUILD)/obj
objects  = $(addprefix $(OBJ)/,$(1))
PARTS_fgpu   = $(FGPU)
PARTS_xbgpu  = $(XBGPU)
PARTS_dsim   = $(DSIM)
PARTS_fsim   = $(FSIM) tools/vdif.o
PARTS_visrec = $(VISREC)
main_of  = $(if $(wildcard $(1)/main.c),$(1)/main.o,tools/$(1).o)

$(BUILD)/libcbf.a: $(call objects,$(LIB_OBJS))
	@rm -f $@
	@$(AR) rcs $@ $^

define program
$(BUILD)/$(1): $(call objects,$(call main_of,$(1)) $(PARTS_$(1))) $(BUILD)/libcbf.a
	@echo "  LINK    $$@"
	$$(Q)$$(CC) $$(ALL_LDFLAGS) -o $$@ $$^ $(if $(filter visrec,$(1)),$$(HDF5_LIBS)) $$(LIBS)
endef
$(foreach p,$(PROGRAMS),$(eval $(call program,$(p))))

$(OBJ)/tools/visrec%.o: EXTRA_CFLAGS = $(HDF5_CFLAGS)
$(OBJ)/tests/unit/%.o: EXTRA_CFLAGS = $(call pkg,--cflags,check)

# The kernels' texts, which the cuda device compiles when it runs.  Written when it changes.
KERNEL_TEXTS = $(wildcard kernels/*.cu kernels/*.cuh kernels/*.h)
$(BUILD)/common/cuda/texts.c: FORCE
	@mkdir -p $(@D)
	@{ echo '#include "common/cuda/texts.h"'; echo 'const struct kernel_text kernel_texts[] = {'; \
	for file in $(KERNEL_TEXTS); do echo "{\"$$file\","; \
		sed 's/\\/\\\\/g; s/"/\\"/g; s/^/"/; s/$$/\\n"/' $$file; echo '},'; done; echo '};'; \
	echo 'const size_t n_kernel_texts = sizeof(kernel_texts) / sizeof(kernel_texts[0]);'; } > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# Its objects may lie anywhere in memory, and nothing of it is seen but what device_plugin.h says.
CUDA_LIBRARIES = $(if $(CUDART),$(dir $(CUDART)),/usr/local/cuda/lib64)
$(OBJ)/pic/%: EXTRA_CFLAGS += -fPIC -fvisibility=hidden -isystem $(CUDA)/include
$(OBJ)/common/cuda/library.o $(OBJ)/pic/common/cuda/library.o: EXTRA_CFLAGS += -DCBF_CUDA_LIBRARIES='"$(patsubst %/,%,$(CUDA_LIBRARIES))"'
$(OBJ)/common/device_plugin.o: EXTRA_CFLAGS += -DCBF_LIBDIR='"$(prefix)/lib/cbf"'
$(BUILD)/cbf-cuda.so: $(addprefix $(OBJ)/pic/,$(CUDA_SO))
	@echo "  LINK    $@"
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -Wl,--exclude-libs,ALL -o $@ $^ $(CUDART) -ldl -lrt -lpthread

# The build id is written to a file that changes only when it does, so that --version is true after every build.
BUILD_ID := $(shell git describe --always --dirty 2>/dev/null || echo release)
$(BUILD)/build-id: FORCE
	@mkdir -p $(@D)
	@echo '$(BUILD_ID)' | cmp -s - $@ || echo '$(BUILD_ID)' > $@
$(OBJ)/common/version.o $(OBJ)/pic/common/version.o: $(BUILD)/build-id
$(OBJ)/common/version.o $(OBJ)/pic/common/version.o: EXTRA_CFLAGS += -DCBF_BUILD_ID='"$(BUILD_ID)"'
FORCE:

define compile
	@mkdir -p $(@D)
	@echo "  CC      $<"
	$(Q)$(CC) $(ALL_CFLAGS) $(EXTRA_CFLAGS) -MMD -MP -c -o $@ $<
endef
$(OBJ)/%.o: %.c
	$(compile)
$(OBJ)/%.o: $(BUILD)/%.c
	$(compile)
$(OBJ)/pic/%.o: %.c
	$(compile)
$(OBJ)/pic/%.o: $(BUILD)/%.c
	$(compile)

-include $(shell find $(OBJ) -name '*.d' 2>/dev/null)

# ---- Tests ---------------------------------------------------------------------------------------------------------
# Every unit test is one Check suite, linked with everything but the main files.
$(addprefix $(BUILD)/tests/,$(UNIT_TESTS)): $(BUILD)/tests/%: $(OBJ)/tests/unit/%.o \
		$(call objects,tests/emulator/device_emulated.o $(DAEMON_OBJS) $(TOOL_OBJS)) $(BUILD)/libcbf.a
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(HDF5_LIBS) $(CHECK_LIBS) $(LIBS)

# The cuda device on a CUDA runtime of our own that needs no GPU (tests/fake_cuda/fake_cuda.h).
FAKE_CUDA = $(filter-out $(IMAGES) common/cuda/fft.o,$(CUDA_SO)) common/device_cpu.o tests/emulator/device_emulated.o tests/fake_cuda/fake_runtime.o tests/fake_cuda/fake_image.o
$(BUILD)/tests/cbf-cuda-fake.so: $(addprefix $(OBJ)/pic/,$(FAKE_CUDA))
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -o $@ $^ $(call pkg,--libs,kissfft-float) -lpthread

FAKE_CUDA_DEVICE = $(if $(CUDA),$(BUILD)/tests/cbf-cuda-fake.so)
unit-tests: $(addprefix $(BUILD)/tests/,$(UNIT_TESTS)) $(FAKE_CUDA_DEVICE)

# What a newcomer types.  Set-up comes first and in a make of its own, because the rules above ask pkg-config.
check:
	@scripts/setup check
	@$(MAKE) --no-print-directory check-unit check-engine

check-unit: unit-tests
	@scripts/run-unit-tests $(BUILD)/tests

check-engine: all $(FAKE_CUDA_DEVICE) $(BUILD)/tests/check_design_ddc
	@CBF_BUILD=$(BUILD) .venv/bin/python -m pytest -q tests/engine $(PYTEST_FLAGS)

# What reads packets, fed with anything (libFuzzer, so clang): its own build, with a target for each tests/fuzz/fuzz_*.c.
FUZZ_SECONDS ?= 600
FUZZ_TARGETS := $(patsubst tests/fuzz/%.c,%,$(filter-out %/fuzz_log.c,$(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_MAKE     = $(MAKE) --no-print-directory CC=clang SANITIZE=fuzzer-no-link,address,undefined BUILD=build-fuzz \
                fuzz-targets

$(addprefix $(BUILD)/fuzz/,$(FUZZ_TARGETS)): $(BUILD)/fuzz/%: $(OBJ)/tests/fuzz/%.o $(OBJ)/tests/fuzz/fuzz_log.o \
		$(call objects,$(DAEMON_OBJS)) $(BUILD)/libcbf.a
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) -fsanitize=fuzzer $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

fuzz-targets: $(addprefix $(BUILD)/fuzz/,$(FUZZ_TARGETS))

fuzz:
	+@$(FUZZ_MAKE)
	@scripts/run-fuzz $(FUZZ_SECONDS) $(addprefix build-fuzz/fuzz/,$(FUZZ_TARGETS))

check-fuzz:
	+@$(FUZZ_MAKE)
	@scripts/run-fuzz corpus $(addprefix build-fuzz/fuzz/,$(FUZZ_TARGETS))

# Every kernel for every kind of GPU, as far as the CUDA toolkit can tell without one.
$(BUILD)/tests/compile_kernels: $(OBJ)/tests/gpu/compile_kernels.o $(BUILD)/libcbf.a
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

check-compile: $(BUILD)/tests/compile_kernels
	@$<

# The device is CBF_TEST_DEVICE (cpu, cuda).
QUALIFY_FLAGS ?= --output docs/qualification.md --plots docs/images
qualify-f:
	@scripts/setup check
	@$(MAKE) --no-print-directory all $(BUILD)/tests/check_design_ddc
	@CBF_BUILD=$(BUILD) .venv/bin/python tests/qualify/qualify_f.py $(QUALIFY_FLAGS)

check-all:
	@scripts/setup ci
	@scripts/check-variants

# spead2 from source, with GRO and GSO, beside PyPI's wheel: what the packet benchmarks are measured against.
bench-peers:
	@scripts/setup bench
	@.venv/bin/python tests/bench/peer_check.py

demo:
	@scripts/setup demo
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) .venv/bin/python scripts/demo

setup:
	@scripts/setup check

# The example configurations come from the key tables; a test holds them to it.
examples: $(BUILD)/fgpu $(BUILD)/xbgpu $(BUILD)/fsim
	$(BUILD)/fgpu --print-example > config/fgpu.yaml
	$(BUILD)/xbgpu --print-example > config/xbgpu.yaml
	$(BUILD)/fsim --print-example > config/fsim.yaml

# ---- Benchmarks ----------------------------------------------------------------------------------------------------
# Programs of the benchmarks are linked like unit tests.  docs/performance.md has the results.
BENCHES       = count_heaps $(patsubst tests/bench/%.c,%,$(wildcard tests/bench/bench_*.c))
BENCH_COMMON  = tests/bench/bench.o tests/bench/ceilings.o tests/bench/fgpu_runs.o tests/bench/matrix_product.o

$(addprefix $(BUILD)/bench/,$(BENCHES)): $(BUILD)/bench/%: $(OBJ)/tests/bench/%.o \
		$(call objects,$(BENCH_COMMON) $(DAEMON_OBJS) $(TOOL_OBJS)) $(BUILD)/libcbf.a
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(HDF5_LIBS) $(LIBS)

bench-cpu: $(BUILD)/bench/bench_cpu
	@$<

bench-fgpu: $(BUILD)/bench/bench_fgpu
	@$< --json $(BUILD)/bench-fgpu.json $(FGPU_FLAGS)

bench-xbgpu: $(BUILD)/bench/bench_xbgpu
	@$< $(XBGPU_FLAGS)

bench-ddc: $(BUILD)/bench/bench_ddc
	@$< $(DDC_FLAGS)

bench-recv bench-send:
	@scripts/setup bench
	@$(MAKE) --no-print-directory $(addprefix $(BUILD)/bench/bench_,machine feed receive send)
	@.venv/bin/python tests/bench/bench_packets.py $(@:bench-%=%) --build $(BUILD)

# ---- Tests on a GPU ------------------------------------------------------------------------------------------------
# Where there is no GPU, this says so.
check-gpu:
	@scripts/gpu check

gpu-pack:
	@scripts/setup check
	@scripts/gpu pack

# All that the parts of scripts/gpu run.
gpu-programs: all unit-tests $(addprefix $(BUILD)/bench/,$(BENCHES))

# ---- Installing ----------------------------------------------------------------------------------------------------
install: all
	install -d $(DESTDIR)$(prefix)/bin $(DESTDIR)$(prefix)/share/cbf/config/demo $(DESTDIR)$(prefix)/share/cbf/scripts \
		$(DESTDIR)$(prefix)/share/doc/cbf
	install -m 755 $(addprefix $(BUILD)/,$(PROGRAMS)) $(DESTDIR)$(prefix)/bin
	$(if $(CUDA_DEVICE),install -d $(DESTDIR)$(prefix)/lib/cbf && install -m 644 $(CUDA_DEVICE) $(DESTDIR)$(prefix)/lib/cbf)
	install -m 644 config/*.yaml $(DESTDIR)$(prefix)/share/cbf/config
	install -m 644 config/demo/* $(DESTDIR)$(prefix)/share/cbf/config/demo
	install -m 755 scripts/repair_uvh5.py $(DESTDIR)$(prefix)/share/cbf/scripts
	install -d $(DESTDIR)$(prefix)/lib/systemd/system
	for unit in systemd/*.service; do \
		sed 's|@prefix@|$(prefix)|' $$unit > $(DESTDIR)$(prefix)/lib/systemd/system/$$(basename $$unit); done
	install -m 644 README.md LICENSE $(wildcard docs/*.md) $(DESTDIR)$(prefix)/share/doc/cbf

clean:
	rm -rf build build-*
