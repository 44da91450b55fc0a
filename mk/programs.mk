# Daemons and tools, and their manual pages.  A folder's files form one library; main.c makes the program.
PROGRAMS := fgpu xbgpu dsim fsim visrec beamrec
# Programs without a configuration file.
COMMANDS := cbf-doctor

# If ibverbs is not installed, NO_VERBS replaces VERBS_SOURCES.  Programs then refuse `transport: ibverbs`.
VERBS_SOURCES := common/net/verbs.c common/recv/source_verbs.c common/recv/source_verbs_open.c common/send/sink_verbs.c
NO_VERBS      := common/recv/source_verbs_none.c common/send/sink_verbs_none.c
# The cuda device is a shared object.  Its code for files, NVRTC and Vulkan is tested without a GPU.
IMAGES   := $(addprefix common/device/cuda/,image.c cache.c nvrtc.c library.c vulkan.c)

sources  = $(filter-out %/main.c,$(wildcard $(addsuffix /*.c,$(1))))
objects  = $(patsubst %.c,$(OBJ)/%.o,$(1))
COMMON   := $(filter-out $(if $(VERBS),$(NO_VERBS),$(VERBS_SOURCES)),$(call sources,common/*)) $(IMAGES)
GENERATED := common/device/texts.c common/http/page.c
LIB_SOURCES    := $(COMMON) $(GENERATED) $(call sources,kernels/*)
DAEMON_SOURCES := $(call sources,fgpu fgpu/* xbgpu xbgpu/*)
TOOL_SOURCES   := $(call sources,tools/*)

$(BUILD)/libcbf.a: $(call objects,$(LIB_SOURCES))
	$(archive)
$(BUILD)/libdaemons.a: $(call objects,$(DAEMON_SOURCES))
	$(archive)
$(BUILD)/libtools.a: $(call objects,$(TOOL_SOURCES))
	$(archive)
ARCHIVES := $(addprefix $(BUILD)/,libtools.a libdaemons.a libcbf.a)

all: $(addprefix $(BUILD)/,$(PROGRAMS) $(COMMANDS) clock-state)
main_of = $(firstword $(wildcard $(1)/main.c tools/$(patsubst cbf-%,%,$(1))/main.c))
$(foreach p,$(PROGRAMS) $(COMMANDS),$(eval $(BUILD)/$(p): $(call objects,$(call main_of,$(p)))))
$(BUILD)/clock-state: $(call objects,tools/clock_state.c)
$(addprefix $(BUILD)/,$(PROGRAMS) $(COMMANDS) clock-state): $(ARCHIVES)
	$(call link,$(HDF5_LIBS))

# The kernels have no run-time checks of memory, which would make their loops a sixth slower.  The kernels' input has
# already been checked.
$(OBJ)/kernels/%.o: EXTRA_CFLAGS = -U_FORTIFY_SOURCE -fno-stack-protector
$(OBJ)/tools/visrec/%.o $(OBJ)/tests/fuzz/fuzz_visrec.o: EXTRA_CFLAGS = $(HDF5_CFLAGS)
$(OBJ)/common/device/plugin.o: EXTRA_CFLAGS = -DCBF_LIBDIR='"$(prefix)/lib/cbf"'

# The source texts of the kernels.  The cuda device compiles these texts at run time.
$(BUILD)/common/device/texts.c: FORCE
	$(call embed,common/device/texts.h,kernel_text,$(wildcard kernels/*/*.cu kernels/*/*.h) common/device/tensor_map.h)

# The status page, which http.c serves.
$(BUILD)/common/http/page.c: FORCE
	$(call embed,common/http/page.h,page_text,$(wildcard common/http/page/*))

# If the build id has changed, make writes the file build-id, and compiles version.c again.  So --version shows the
# right build id after every build.
BUILD_ID ?= $(shell git describe --always --dirty 2>/dev/null || echo release)
BUILD_ID := $(BUILD_ID)
$(BUILD)/build-id: FORCE
	@mkdir -p $(@D)
	@echo '$(BUILD_ID)' | cmp -s - $@ || echo '$(BUILD_ID)' > $@
VERSION_OBJECTS := $(OBJ)/common/base/version.o $(OBJ)/pic/common/base/version.o
$(VERSION_OBJECTS): $(BUILD)/build-id
$(VERSION_OBJECTS): EXTRA_CFLAGS += -DCBF_BUILD_ID='"$(BUILD_ID)"'

# The manual pages are made from the programs, docs/man and docs/reference.  The page of a program without a
# configuration file is a finished text in the program's folder.
TABLE_PAGES := $(foreach p,$(PROGRAMS),$(BUILD)/man/man1/$(p).1 $(BUILD)/man/man5/$(p).yaml.5)
MAN_PAGES   := $(TABLE_PAGES) $(addprefix $(BUILD)/man/man1/,$(notdir $(wildcard tools/*/*.1)))
# The pages name documents by their installed paths.
$(TABLE_PAGES): scripts/manpages.py $(addprefix $(BUILD)/,$(PROGRAMS)) $(wildcard docs/man/* docs/reference/*.txt)
	@mkdir -p $(@D)
	@$< $(BUILD) $(@F) > $@ || { rm -f $@; false; }
	@sed -i 's| (docs/|\n(docs/|; $(INSTALLED_DOCS)' $@
$(BUILD)/man/man1/%.1: tools/doctor/%.1
	@mkdir -p $(@D)
	@cp $< $@
man: $(MAN_PAGES) ## the manual pages, in build/man
.PHONY: man
