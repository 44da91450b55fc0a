# One Makefile for everything.  `make demo` shows fringes, `make check` runs the tests; both install what is missing.
#
#   make                     build the daemons and tools into build/
#   make demo                the demonstration: simulated array to fringes (a minute); KEEP=1: it keeps running
#   make check               unit and engine tests (15 minutes at most)
#   make check-all           what is slow: sanitizer builds, the other compiler, fuzz corpora, fresh schemas
#   make fuzz                the fuzz targets, FUZZ_SECONDS=600 each, two at a time; make check-fuzz: their corpora once
#   make qualify-f           measures the F-engine against the acceptance catalogue; writes docs/qualification.md
#   make check-compile       compiles the CUDA kernels for every kind of GPU, without one (6 minutes on two cores)
#   make check-gpu           the same on an NVIDIA GPU, and compute-sanitizer; docs/gpu-tests.md
#   make gpu-pack            packs what that needs into .gpu/pack.tar.gz, for a machine with a GPU and none of our libraries
#   make bench-recv          receiving packets, beside spead2 (3 minutes, and 2 more to build it the first time)
#   make bench-send          sending packets, beside spead2 (2 minutes); PACKETS_FLAGS="--all --rounds 3" for both
#   make bench-cpu           what the kernels cost on this machine (a minute); docs/performance.md
#   make bench-fgpu          what the F-engine reaches on the device that there is; FGPU_FLAGS="--device cpu --channels 1024"
#   make bench-xbgpu         what the X-engine's kernels reach on it; XBGPU_FLAGS="--shapes --antennas 80 --bits 8"
#   make bench-ddc           what the down-converter reaches on it; DDC_FLAGS="--shapes --subsampling 8"
#   make bench-peers         builds spead2, which the benchmarks are measured against, and tries it
#   make CUDA=               builds without the CUDA toolkit that there is; CUDA=DIRECTORY takes another
#   make VERBS=              builds without ibverbs, as where libibverbs and librdmacm are not there
#   make man                 the manual pages, in build/man
#   make examples            config/*.yaml and docs/reference anew, after a change of keys, requests, sensors or metrics
#   make V=1                 shows the commands
#   make install DESTDIR= prefix=/usr/local
#   make deb                 Debian packages, in build-deb; docs/operation.md
#   make check-systemd       installs them on a machine with a real systemd in a container, and runs them (5 minutes)
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

# Network cards by way of ibverbs, if the libraries are here.
VERBS   := $(if $(shell pkg-config --exists libibverbs librdmacm 2>/dev/null && echo yes),libibverbs librdmacm)

# ---- The pipeline, in the order in which data meet it ------------------------------------------------------------
PACKETS  = common/net/endpoint.o common/net/frame.o common/recv/source.o common/recv/source_udp.o common/recv/gro.o common/net/packet_filter.o \
           common/recv/source_pcap.o $(VERBS_OBJS) common/net/spead.o common/net/spead_shape.o common/net/crc32c.o common/base/copy.o
# Where they cannot be built, common/net/verbs.h takes their place.
VERBS_OBJS = $(if $(VERBS),common/net/verbs.o common/recv/source_verbs.o common/recv/source_verbs_open.o,common/recv/source_verbs_none.o)
CHUNKS   = common/base/inbox.o common/base/loan.o common/recv/chunk.o common/recv/reject.o common/recv/chunk_heap.o common/telemetry/data_time.o \
           common/recv/held.o common/recv/claims.o common/recv/assemble.o common/recv/receiver.o common/recv/receiver_metrics.o \
           common/recv/receiver_set.o common/recv/matcher.o common/base/presence.o
DEVICE   = common/device/device.o common/device/plugin.o common/device/cpu.o common/device/cpu_direct.o common/base/memory.o
# The cuda device is a shared object; the part of it that knows files, NVRTC and Vulkan is tested without a GPU.
IMAGES   = common/device/cuda/image.o common/device/cuda/cache.o common/device/cuda/nvrtc.o common/device/cuda/library.o common/device/cuda/texts.o \
           common/device/cuda/vulkan.o
CUDA_SO  = common/device/cuda/device.o common/device/cuda/gpu.o common/device/cuda/memory.o common/device/cuda/direct.o common/device/cuda/exported.o common/device/cuda/tensor.o common/device/cuda/stream.o \
           common/device/cuda/failure.o common/device/cuda/fft.o common/device/cuda/kernel.o $(IMAGES) common/base/clock.o common/base/thread.o common/base/file.o common/base/trust.o \
           common/base/memory.o common/base/version.o
SENDING  = common/send/sink.o common/send/sink_udp.o common/send/sink_pcap.o \
           $(if $(VERBS),common/send/sink_verbs.o,common/send/sink_verbs_none.o) common/send/stream.o common/send/sender.o \
           common/send/sender_group.o
TIME     = common/base/clock.o common/time/clock_state.o common/time/timebase.o
SERVICE  = common/config/config.o common/config/file.o common/config/load.o common/config/values.o common/config/format.o \
           common/config/print.o common/config/man.o common/daemon/command_line.o common/config/time_keys.o common/device/keys.o \
           common/config/transport_keys.o common/recv/keys.o common/send/keys.o common/http/keys.o common/katcp/keys.o common/telemetry/stats.o \
           common/base/datagram.o common/daemon/notify.o common/base/log_ring.o common/base/log.o common/base/thread.o common/daemon/service.o common/base/process.o \
           common/http/status.o common/http/history.o common/http/spectrum.o common/http/page.o common/http/http.o common/http/clients.o common/http/names.o \
           common/daemon/daemon.o common/daemon/drain.o common/base/file.o common/base/trust.o common/config/table_file.o common/daemon/state_file.o \
           common/katcp/python_number.o common/base/version.o
CONTROL  = common/telemetry/sensor.o common/katcp/message.o common/net/access.o common/katcp/server.o common/katcp/client.o \
           common/katcp/call.o common/katcp/standard.o common/katcp/sampling.o common/katcp/log.o common/katcp/sensors.o \
           common/katcp/name_pattern.o
KERNELS  = kernels/filterbank/design_pfb.o kernels/ddc/remez.o kernels/ddc/design_ddc.o kernels/ddc/mixer.o kernels/ddc/ddc.o \
           kernels/filterbank/pfb_fir.o kernels/filterbank/pfb_fir_complex.o kernels/util/power.o kernels/filterbank/postproc.o \
           kernels/filterbank/channelise_fused.o kernels/filterbank/channelise_narrow.o kernels/filterbank/channelise.o kernels/filterbank/channelise_choice.o \
           kernels/filterbank/channelise_timing.o kernels/filterbank/channelise_tune.o kernels/util/gather.o kernels/correlate/select_spectra.o kernels/correlate/correlate.o \
           kernels/correlate/correlate_shape.o kernels/correlate/checksum.o kernels/correlate/checksum_dump.o kernels/correlate/reduce.o
FGPU     = fgpu/config.o fgpu/layout.o fgpu/recv.o fgpu/delay.o fgpu/delay_file.o \
           fgpu/delay_text.o fgpu/gain_file.o fgpu/baseband.o fgpu/walk.o fgpu/level.o fgpu/monitor.o \
           fgpu/antenna.o fgpu/status.o fgpu/pipeline.o fgpu/send.o fgpu/settings.o fgpu/control.o fgpu/facts.o \
           fgpu/tune.o
XBGPU    = xbgpu/config.o xbgpu/gate_config.o xbgpu/labels.o xbgpu/layout.o xbgpu/fengs.o xbgpu/recv.o xbgpu/window.o xbgpu/audit.o xbgpu/checksums.o \
           xbgpu/gate.o xbgpu/gating.o xbgpu/correlation.o xbgpu/xinput.o xbgpu/xsend.o xbgpu/facts.o xbgpu/settings.o \
           xbgpu/control.o xbgpu/status.o xbgpu/xpipeline.o
DSIM     = tools/dsim/config.o tools/dsim/parse.o tools/dsim/print.o tools/dsim/control.o tools/dsim/signal.o tools/dsim/live.o tools/shared/vdif.o \
           tools/dsim/recording.o tools/dsim/recording_raw.o tools/dsim/recording_vdif.o \
           tools/dsim/recording_vdif_read.o tools/dsim/play.o tools/dsim/send.o
FSIM     = tools/fsim/config.o tools/fsim/signal.o tools/fsim/recording.o tools/fsim/heaps.o tools/fsim/antenna.o \
           tools/fsim/send.o
VISREC   = tools/visrec/config.o tools/visrec/recv.o tools/visrec/array.o tools/visrec/dump.o tools/visrec/writer.o \
           tools/visrec/health.o tools/visrec/antennas.o tools/visrec/files.o tools/visrec/uvh5_header.o tools/visrec/uvh5_rows.o tools/visrec/uvh5.o
DOCTOR   = tools/doctor/report.o tools/doctor/sys.o tools/doctor/files.o tools/doctor/http.o tools/doctor/kernel.o \
           tools/doctor/sockets.o tools/doctor/cpu.o tools/doctor/nic.o tools/doctor/nics.o tools/doctor/verbs.o tools/doctor/gpu.o \
           tools/doctor/direct.o tools/doctor/memory.o tools/doctor/time.o tools/doctor/config.o tools/doctor/recorder.o tools/doctor/listen.o \
           tools/doctor/source.o tools/doctor/streams.o tools/doctor/judge.o tools/doctor/drops.o \
           tools/doctor/loss.o tools/doctor/engine.o tools/doctor/bundle.o

LIB_OBJS     := $(PACKETS) $(CHUNKS) $(DEVICE) $(IMAGES) $(SENDING) $(TIME) $(SERVICE) $(CONTROL) $(KERNELS)
DAEMON_OBJS  := $(FGPU) $(XBGPU)
TOOL_OBJS    := $(DSIM) $(FSIM) $(VISREC) $(DOCTOR)
PROGRAMS     := fgpu xbgpu dsim fsim visrec
# One program for each tests/unit/FOLDER/check_*.c, FOLDER being that of what is tested.
UNIT_SOURCES := $(basename $(sort $(wildcard $(addsuffix check_*.c,tests/unit/*/ tests/unit/*/*/ tests/unit/*/*/*/))))
# Programs that need a part that is not built are left out.
UNIT_TESTS   := $(filter-out $(if $(VERBS),,check_fake_verbs check_packet_sink_verbs check_packet_source_verbs),$(notdir $(UNIT_SOURCES)))

# ---- Flags ---------------------------------------------------------------------------------------------------------
PACKAGES = yaml-0.1 libmicrohttpd jansson libpcap kissfft-float $(VERBS)
HDF5     = hdf5
pkg      = $(shell pkg-config $(1) $(2) 2>/dev/null)

CFLAGS  ?= -O3 -g
WARN     = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wno-unused-parameter -Wno-missing-field-initializers \
           $(if $(filter clang%,$(notdir $(CC))),-Wthread-safety) $(if $(WERROR),-Werror)
# Against what a fault in here could be made to do; an optimised build without sanitizers.  A level of FORTIFY_SOURCE
# that comes from outside, as with Debian's packages, stays.
OPTIMISED = $(filter-out -O0,$(filter -O%,$(CFLAGS)))
FORTIFY   = $(if $(OPTIMISED),$(if $(findstring _FORTIFY_SOURCE,$(CPPFLAGS) $(CFLAGS)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3))
HARDEN_CFLAGS  = $(if $(SANITIZE),,-fPIE -fstack-protector-strong $(FORTIFY) -Wformat-security \
                 $(if $(filter x86_64,$(shell uname -m)),-fcf-protection))
HARDEN_LDFLAGS = $(if $(SANITIZE),,-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
PIE            = $(if $(SANITIZE),,-pie)
# No contraction into FMA: the kernels' twins must give the same bits wherever they run.  Nobody reads floating point
# exceptions (trapping-math), so that comparisons may become selections, which vectorise; that changes no bits.
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -I. -fno-math-errno -fno-trapping-math -ffp-contract=off -fno-omit-frame-pointer $(WARN) \
             $(if $(findstring thread,$(SANITIZE)),-Wno-unknown-pragmas,-fopenmp) \
             $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -DCBF_SANITIZE) \
             $(call pkg,--cflags,$(PACKAGES)) $(HARDEN_CFLAGS) $(CPPFLAGS) $(CFLAGS)
ALL_LDFLAGS = $(HARDEN_LDFLAGS) $(if $(SANITIZE),-fsanitize=$(SANITIZE)) $(if $(findstring thread,$(SANITIZE)),,-fopenmp) $(LDFLAGS)
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

# Vulkan's headers, if they are there; the library is opened when it is needed.  VULKAN= builds without.
VULKAN  ?= $(if $(call pkg,--modversion,vulkan),yes)
VULKAN_CFLAGS = $(if $(VULKAN),-DCBF_VULKAN $(call pkg,--cflags,vulkan))

.PHONY: all help setup unit-tests check check-unit check-engine check-all qualify-f fuzz fuzz-targets check-fuzz
.PHONY: check-compile check-gpu gpu-pack gpu-programs fake-verbs
.PHONY: bench-cpu bench-fgpu bench-xbgpu bench-ddc bench-recv bench-send bench-peers demo install clean examples reference man
.PHONY: deb cuda-device check-systemd
all: $(addprefix $(BUILD)/,$(PROGRAMS) clock-state) $(CUDA_DEVICE)
	@$(if $(CUDA),:,echo "  no CUDA toolkit: without the cuda device (cbf-cuda.so)")

# ---- Programs ------------------------------------------------------------------------------------------------------
OBJ      = $(BUILD)/obj
objects  = $(addprefix $(OBJ)/,$(1))
PARTS_fgpu   = $(FGPU)
PARTS_xbgpu  = $(XBGPU)
PARTS_dsim   = $(DSIM)
PARTS_fsim   = $(FSIM) tools/shared/vdif.o
PARTS_visrec = $(VISREC)
PARTS_cbf-doctor = $(DOCTOR) $(FGPU) $(XBGPU) tools/visrec/config.o
main_of  = $(if $(wildcard $(1)/main.c),$(1)/main.o,tools/$(patsubst cbf-%,%,$(1))/main.o)

$(BUILD)/libcbf.a: $(call objects,$(LIB_OBJS))
	@rm -f $@
	@$(AR) rcs $@ $^

define program
$(BUILD)/$(1): $(call objects,$(call main_of,$(1)) $(PARTS_$(1))) $(BUILD)/libcbf.a
	@echo "  LINK    $$@"
	$$(Q)$$(CC) $$(PIE) $$(ALL_LDFLAGS) -o $$@ $$^ $(if $(filter visrec,$(1)),$$(HDF5_LIBS)) $$(LIBS)
endef
$(foreach p,$(PROGRAMS),$(eval $(call program,$(p))))

$(BUILD)/clock-state: $(call objects,tools/clock_state.o) $(BUILD)/libcbf.a
	@echo "  LINK    $@"
	$(Q)$(CC) $(PIE) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

# The manual pages, from the key tables and docs/reference; those of programs without a configuration lie beside them.
TABLE_PAGES = $(foreach p,$(PROGRAMS),$(BUILD)/man/man1/$(p).1 $(BUILD)/man/man5/$(p).yaml.5)
MAN_PAGES   = $(TABLE_PAGES) $(addprefix $(BUILD)/man/man1/,$(notdir $(wildcard tools/*/*.1)))
$(BUILD)/manpage: $(call objects,tools/manpage.o $(DAEMON_OBJS) $(TOOL_OBJS)) $(BUILD)/libcbf.a
	@echo "  LINK    $@"
	$(Q)$(CC) $(PIE) $(ALL_LDFLAGS) -o $@ $^ $(HDF5_LIBS) $(LIBS)
# They name documents where these are installed.
$(TABLE_PAGES): $(BUILD)/manpage $(wildcard docs/reference/*.txt)
	@mkdir -p $(@D)
	@$< $(@F) $(patsubst %.1,docs/reference/%.txt,$(filter %.1,$(@F))) > $@ || { rm -f $@; false; }
	@sed -i 's| (docs/|\n(docs/|; $(INSTALLED_DOCS)' $@
$(BUILD)/man/man1/%.1: tools/doctor/%.1
	@mkdir -p $(@D)
	@cp $< $@
man: $(MAN_PAGES)

# Their loops cost a sixth more with checks in them; what comes in was checked before.
$(OBJ)/kernels/%.o: EXTRA_CFLAGS = -U_FORTIFY_SOURCE -fno-stack-protector
$(OBJ)/tools/visrec/%.o $(OBJ)/tests/fuzz/fuzz_visrec.o: EXTRA_CFLAGS = $(HDF5_CFLAGS)
$(OBJ)/tests/unit/%.o: EXTRA_CFLAGS = $(call pkg,--cflags,check)

# Files that are embedded as text; written when they change.  $(call embed,header,array,files): struct {name, text}.
define embed
	@mkdir -p $(@D)
	@{ echo '#include "$(1)"'; echo 'const struct $(2) $(2)s[] = {'; \
	for file in $(3); do echo "{\"$$file\","; \
		sed 's/\\/\\\\/g; s/"/\\"/g; s/^/"/; s/$$/\\n"/' $$file; echo '},'; done; echo '};'; \
	echo 'const size_t n_$(2)s = sizeof($(2)s) / sizeof($(2)s[0]);'; } > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
endef

# The kernels' texts, which the cuda device compiles when it runs.
$(BUILD)/common/device/cuda/texts.c: FORCE
	$(call embed,common/device/cuda/texts.h,kernel_text,$(wildcard kernels/*/*.cu kernels/*/*.h) common/device/tensor_map.h)

# The status page, which http.c serves.
$(BUILD)/common/http/page.c: FORCE
	$(call embed,common/http/page.h,page_text,$(wildcard common/http/page/*))

# Its objects may lie anywhere in memory, and nothing of it is seen but what device/plugin.h says.
CUDA_LIBRARIES = $(if $(CUDART),$(dir $(CUDART)),/usr/local/cuda/lib64)
$(OBJ)/pic/%: EXTRA_CFLAGS += -fPIC -fvisibility=hidden -isystem $(CUDA)/include
$(OBJ)/common/device/cuda/library.o $(OBJ)/pic/common/device/cuda/library.o: EXTRA_CFLAGS += -DCBF_CUDA_LIBRARIES='"$(patsubst %/,%,$(CUDA_LIBRARIES))"'
$(OBJ)/common/device/cuda/vulkan.o $(OBJ)/pic/common/device/cuda/vulkan.o: EXTRA_CFLAGS += $(VULKAN_CFLAGS)
# Made anew when the headers have come or gone since.
VULKAN_MARK = $(OBJ)/vulkan-$(or $(VULKAN),no)
$(OBJ)/common/device/cuda/vulkan.o $(OBJ)/pic/common/device/cuda/vulkan.o: $(VULKAN_MARK)
$(VULKAN_MARK):
	@mkdir -p $(@D)
	@rm -f $(OBJ)/vulkan-* && touch $@
$(OBJ)/common/device/plugin.o: EXTRA_CFLAGS += -DCBF_LIBDIR='"$(prefix)/lib/cbf"'
$(BUILD)/cbf-cuda.so: $(addprefix $(OBJ)/pic/,$(CUDA_SO))
	@echo "  LINK    $@"
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -Wl,--exclude-libs,ALL -o $@ $^ $(CUDART) -ldl -lrt -lpthread

# The build id is written to a file that changes only when it does, so that --version is true after every build.
BUILD_ID ?= $(shell git describe --always --dirty 2>/dev/null || echo release)
$(BUILD)/build-id: FORCE
	@mkdir -p $(@D)
	@echo '$(BUILD_ID)' | cmp -s - $@ || echo '$(BUILD_ID)' > $@
$(OBJ)/common/base/version.o $(OBJ)/pic/common/base/version.o: $(BUILD)/build-id
$(OBJ)/common/base/version.o $(OBJ)/pic/common/base/version.o: EXTRA_CFLAGS += -DCBF_BUILD_ID='"$(BUILD_ID)"'
FORCE:

# Said once, instead of what a compiler says of each header.  libev has no file for pkg-config.
libraries:
	@{ pkg-config --exists yaml-0.1 libmicrohttpd jansson libpcap kissfft-float hdf5 && \
		echo '#include <ev.h>' | $(CC) $(CPPFLAGS) $(CFLAGS) -E -x c -o /dev/null - 2>/dev/null; } || \
		{ echo "make: libraries are missing; install them with: make setup" >&2; exit 1; }
.PHONY: libraries

define compile
	@mkdir -p $(@D)
	@echo "  CC      $<"
	$(Q)$(CC) $(ALL_CFLAGS) $(EXTRA_CFLAGS) -MMD -MP -c -o $@ $<
endef
$(OBJ)/%.o: %.c | libraries
	$(compile)
$(OBJ)/%.o: $(BUILD)/%.c | libraries
	$(compile)
$(OBJ)/pic/%.o: %.c | libraries
	$(compile)
$(OBJ)/pic/%.o: $(BUILD)/%.c | libraries
	$(compile)

-include $(shell find $(OBJ) -name '*.d' 2>/dev/null)

# Programs without a configuration file of their own.
COMMANDS := cbf-doctor
$(foreach p,$(COMMANDS),$(eval $(call program,$(p))))
all: $(addprefix $(BUILD)/,$(COMMANDS))
install: install-commands
install-commands: all
	install -d $(DESTDIR)$(prefix)/bin
	install -m 755 $(addprefix $(BUILD)/,$(COMMANDS)) $(DESTDIR)$(prefix)/bin
.PHONY: install-commands

# ---- Tests ---------------------------------------------------------------------------------------------------------
# Every unit test is one Check suite, linked with everything but the main files.
UNIT_OBJS = $(call objects,tests/fakes/emulator/device_emulated.o tests/fakes/emulator/kernel_cache.o tests/fakes/direct_guard/direct_guard.o $(DAEMON_OBJS) $(TOOL_OBJS))
$(foreach t,$(UNIT_SOURCES),$(eval $(BUILD)/tests/$(notdir $(t)): $(OBJ)/$(t).o $(UNIT_OBJS) $(BUILD)/libcbf.a))
$(addprefix $(BUILD)/tests/,$(UNIT_TESTS)):
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) $(PIE) $(ALL_LDFLAGS) -o $@ $^ $(HDF5_LIBS) $(CHECK_LIBS) $(LIBS)

# The cuda device on a CUDA runtime of our own that needs no GPU (tests/fakes/cuda/fake_cuda.h).
FAKE_CUDA = $(filter-out $(filter-out %/library.o %/vulkan.o,$(IMAGES)) common/device/cuda/fft.o,$(CUDA_SO)) common/device/cpu.o common/device/cpu_direct.o tests/fakes/emulator/device_emulated.o tests/fakes/emulator/kernel_cache.o tests/fakes/cuda/fake_runtime.o tests/fakes/cuda/fake_image.o tests/fakes/cuda/fake_counts.o
$(BUILD)/tests/cbf-cuda-fake.so: $(addprefix $(OBJ)/pic/,$(FAKE_CUDA))
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -o $@ $^ $(call pkg,--libs,kissfft-float) -lpthread

# libibverbs and librdmacm without a network card (tests/fakes/verbs/README.md), where their headers are.
FAKE_VERBS_DIR = $(BUILD)/tests/fake_verbs
FAKE_VERBS     = $(if $(VERBS),$(addprefix $(FAKE_VERBS_DIR)/,libibverbs.so.1 librdmacm.so.1))
fake_objects   = $(patsubst %.c,$(OBJ)/pic/%.o,$(wildcard $(addprefix tests/fakes/verbs/,$(1))))
$(OBJ)/pic/tests/fakes/verbs/%: EXTRA_CFLAGS = -fPIC
$(FAKE_VERBS_DIR)/libibverbs.so.1: $(filter-out %/fake_rdmacm.o,$(call fake_objects,fake_*.c)) tests/fakes/verbs/libibverbs.map
$(FAKE_VERBS_DIR)/librdmacm.so.1: $(call fake_objects,fake_rdmacm.c) tests/fakes/verbs/librdmacm.map $(FAKE_VERBS_DIR)/libibverbs.so.1
$(FAKE_VERBS_DIR)/%.so.1:
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) -shared $(ALL_LDFLAGS) -Wl,-soname,$(@F),--version-script,tests/fakes/verbs/$*.map -o $@ $(filter-out %.map,$^) -lpthread

fake-verbs: $(FAKE_VERBS)
VERBS_TESTS = $(addprefix $(BUILD)/tests/check_,fake_verbs packet_source_verbs)
$(VERBS_TESTS): $(FAKE_VERBS)
$(VERBS_TESTS): LDFLAGS += -Wl,-rpath,'$$ORIGIN/fake_verbs'

# A Vulkan of our own that needs no GPU either, under the name of the real one.
FAKE_VULKAN = $(if $(VULKAN),$(BUILD)/tests/fake_vulkan/libvulkan.so.1)
$(BUILD)/tests/fake_vulkan/libvulkan.so.1: tests/fakes/vulkan/fake_vulkan.c
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) -shared -fPIC -fvisibility=hidden -Wl,-soname,libvulkan.so.1 -std=c11 -D_GNU_SOURCE $(WARN) $(VULKAN_CFLAGS) -g -o $@ $<

# Preloaded, it notices who reads direct memory (tests/fakes/direct_guard/direct_guard.h).
DIRECT_GUARD = $(BUILD)/tests/direct-guard.so
$(DIRECT_GUARD): tests/fakes/direct_guard/direct_guard.c tests/fakes/direct_guard/preload.c tests/fakes/direct_guard/direct_guard.h
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) -shared -fPIC -std=c11 -D_GNU_SOURCE $(WARN) -O2 -o $@ $(filter %.c,$^)

# Preloaded, it is the kernel's clock, and as wrong as a test says.
FAKE_CLOCK = $(BUILD)/tests/fake-clock.so
$(FAKE_CLOCK): tests/fakes/clock/fake_clock.c
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) -shared -fPIC -std=c11 -D_GNU_SOURCE $(WARN) -O2 -o $@ $<

FAKE_CUDA_DEVICE = $(if $(CUDA),$(BUILD)/tests/cbf-cuda-fake.so)
unit-tests: $(addprefix $(BUILD)/tests/,$(UNIT_TESTS)) $(FAKE_CUDA_DEVICE) $(FAKE_VERBS) $(FAKE_VULKAN) $(DIRECT_GUARD) $(FAKE_CLOCK)

# Where nobody says how many compilers may run.
ALL_CORES = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

help:
	@sed -n 's/^#   //p' Makefile

# The command of a newcomer.  Set-up comes first and in a make of its own, because the rules above ask pkg-config.
check:
	@scripts/setup check
	@$(MAKE) --no-print-directory $(ALL_CORES) all unit-tests
	@$(MAKE) --no-print-directory check-unit check-engine

check-unit: unit-tests
	@scripts/run-unit-tests $(BUILD)/tests $(UNIT_SKIP)

check-engine: all $(FAKE_CUDA_DEVICE) $(FAKE_VERBS) $(FAKE_VULKAN) $(DIRECT_GUARD) $(FAKE_CLOCK) $(BUILD)/tests/check_design_ddc
	@CBF_BUILD=$(BUILD) .venv/bin/python -m pytest -q -rs -n $(shell nproc) --dist worksteal tests/system tests/scripts $(PYTEST_FLAGS)

# Packet readers, fed with anything (libFuzzer, so clang): its own build, with a target for each tests/fuzz/fuzz_*.c.
FUZZ_SECONDS ?= 600
FUZZ_TARGETS := $(patsubst tests/fuzz/%.c,%,$(filter-out %/fuzz_log.c,$(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_MAKE     = $(MAKE) --no-print-directory CC=clang SANITIZE=fuzzer-no-link,address,undefined BUILD=build-fuzz \
                fuzz-targets

$(addprefix $(BUILD)/fuzz/,$(FUZZ_TARGETS)): $(BUILD)/fuzz/%: $(OBJ)/tests/fuzz/%.o $(OBJ)/tests/fuzz/fuzz_log.o \
		$(call objects,$(DAEMON_OBJS) $(TOOL_OBJS)) $(BUILD)/libcbf.a
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) -fsanitize=fuzzer $(ALL_LDFLAGS) -o $@ $^ $(HDF5_LIBS) $(LIBS)

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
	$(Q)$(CC) $(PIE) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

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
	@.venv/bin/python scripts/bench/peer_check.py

demo:
	@scripts/setup demo
	@$(MAKE) --no-print-directory $(ALL_CORES) all
	@BUILD=$(BUILD) .venv/bin/python scripts/demo $(if $(KEEP),--keep)

setup:
	@scripts/setup check

# The example configurations come from the key tables; a test holds them to it.
examples: reference
	@for program in $(PROGRAMS); do $(BUILD)/$$program --print-example > config/$$program.yaml || exit 1; done

# Requests, sensors and metrics, as running programs say them; a test holds docs/reference to it.
reference: $(addprefix $(BUILD)/,$(PROGRAMS))
	@CBF_BUILD=$(BUILD) .venv/bin/python tests/system/reference.py

# ---- Benchmarks ----------------------------------------------------------------------------------------------------
# Programs of the benchmarks are linked like unit tests.  docs/performance.md has the results.
BENCHES       = arrivals count_heaps $(patsubst scripts/bench/%.c,%,$(wildcard scripts/bench/bench_*.c))
BENCH_COMMON  = scripts/bench/bench.o scripts/bench/ceilings.o scripts/bench/fgpu_runs.o scripts/bench/matrix_product.o

$(addprefix $(BUILD)/bench/,$(BENCHES)): $(BUILD)/bench/%: $(OBJ)/scripts/bench/%.o \
		$(call objects,$(BENCH_COMMON) $(DAEMON_OBJS) $(TOOL_OBJS)) $(BUILD)/libcbf.a
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) $(PIE) $(ALL_LDFLAGS) -o $@ $^ $(HDF5_LIBS) $(LIBS)

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
	@.venv/bin/python scripts/bench/bench_packets.py $(@:bench-%=%) --build $(BUILD) $(PACKETS_FLAGS)

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
unitdir   ?= $(prefix)/lib/systemd/system
docdir    ?= $(prefix)/share/doc/cbf
sysconfdir = $(if $(filter /usr,$(prefix)),/etc,$(prefix)/etc)
INTO       = $(DESTDIR)$(prefix)
INSTALLED_DOCS = s|docs/\([a-z-]*\.md\)|$(docdir)/docs/\1|g
unit       = sed '$(INSTALLED_DOCS); s|@prefix@|$(prefix)|g; s|@engine@|$(3)|g; s|@what@|$(4)|g' systemd/$(2) > $(DESTDIR)$(unitdir)/$(1)

install: all man
	install -d $(INTO)/bin $(INTO)/share/cbf/config/demo $(INTO)/share/cbf/config/array $(INTO)/share/cbf/scripts $(INTO)/share/cbf/systemd \
		$(INTO)/share/man/man1 $(INTO)/share/man/man5 $(DESTDIR)$(unitdir) $(DESTDIR)$(docdir)/docs/reference \
		$(DESTDIR)$(docdir)/docs/images $(INTO)/lib/sysusers.d $(DESTDIR)$(sysconfdir)/sysctl.d $(DESTDIR)$(sysconfdir)/security/limits.d
	install -m 755 $(addprefix $(BUILD)/,$(PROGRAMS)) $(INTO)/bin
	install -d $(INTO)/lib/cbf
	install -m 755 $(BUILD)/clock-state $(INTO)/lib/cbf
	$(if $(CUDA_DEVICE),install -m 644 $(CUDA_DEVICE) $(INTO)/lib/cbf)
	install -m 644 config/*.yaml $(INTO)/share/cbf/config
	sed -i '$(INSTALLED_DOCS)' $(patsubst config/%,$(INTO)/share/cbf/config/%,$(wildcard config/*.yaml))
	install -m 644 config/demo/* $(INTO)/share/cbf/config/demo
	install -m 755 scripts/repair_uvh5.py scripts/array $(INTO)/share/cbf/scripts
	install -m 644 scripts/array_* $(INTO)/share/cbf/scripts
	install -m 644 config/array/* $(INTO)/share/cbf/config/array
	sed -i '$(INSTALLED_DOCS)' $(INTO)/share/cbf/config/array/*.yaml
	install -m 644 $(filter %.1,$(MAN_PAGES)) $(INTO)/share/man/man1
	install -m 644 $(filter %.5,$(MAN_PAGES)) $(INTO)/share/man/man5
	install -m 644 systemd/*.service systemd/*.target $(DESTDIR)$(unitdir)
	$(call unit,fgpu@.service,engine@.service.in,fgpu,F-engine)
	$(call unit,xbgpu@.service,engine@.service.in,xbgpu,X-engine)
	$(call unit,visrec@.service,engine@.service.in,visrec,recorder)
	$(call unit,gpucbf-clock.service,gpucbf-clock.service.in)
	install -m 644 systemd/realtime.conf systemd/ibverbs.conf $(INTO)/share/cbf/systemd
	install -m 644 systemd/sysusers.conf $(INTO)/lib/sysusers.d/gpucbf.conf
	sed '$(INSTALLED_DOCS)' systemd/sysctl.conf > $(DESTDIR)$(sysconfdir)/sysctl.d/60-gpucbf.conf
	install -m 644 systemd/limits.conf $(DESTDIR)$(sysconfdir)/security/limits.d/60-gpucbf.conf
	install -m 644 README.md LICENSE $(DESTDIR)$(docdir)
	install -m 644 CHANGELOG.md $(wildcard docs/*.md) $(DESTDIR)$(docdir)/docs
	install -m 644 $(wildcard docs/reference/*.txt) $(DESTDIR)$(docdir)/docs/reference
	install -m 644 $(wildcard docs/images/*) $(DESTDIR)$(docdir)/docs/images

# Debian packages of the tree as it is, in build-deb.
deb:
	@scripts/setup deb
	@scripts/deb

check-systemd:
	@scripts/check-systemd

# For debian/rules: there is a package of the cuda device only where there is a CUDA toolkit.
cuda-device:
	@echo $(CUDA_DEVICE)

clean:
	rm -rf build build-*
