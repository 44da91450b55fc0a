# Flags and libraries.  pkg-config runs once for each set.
pkg      = $(shell pkg-config $(1) $(2) 2>/dev/null)

# VERBS names the ibverbs libraries, if they are installed.
VERBS   := $(if $(shell pkg-config --exists libibverbs librdmacm 2>/dev/null && echo yes),libibverbs librdmacm)
# VULKAN is `yes` if Vulkan's headers are installed.  Programs open the Vulkan library when they need it.
VULKAN  ?= $(if $(call pkg,--modversion,vulkan),yes)
# CUDA is the folder of the CUDA toolkit (12.8 or later), if a toolkit is installed.
cuda_at  = $(firstword $(foreach d,$(1),$(if $(wildcard $(d)/include/cuda_runtime_api.h),$(d))))
CUDA    ?= $(call cuda_at,$(CUDA_PATH) $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc 2>/dev/null))) /usr/local/cuda)
VULKAN  := $(VULKAN)
CUDA    := $(CUDA)

PACKAGES := yaml-0.1 libmicrohttpd jansson libpcap kissfft-float $(VERBS)
PACKAGES_CFLAGS := $(call pkg,--cflags,$(PACKAGES))
LIBS        := $(call pkg,--libs,$(PACKAGES)) -lev -lpthread -lm
HDF5_CFLAGS := $(call pkg,--cflags,hdf5)
HDF5_LIBS   := $(call pkg,--libs,hdf5)
CHECK_CFLAGS := $(call pkg,--cflags,check)
CHECK_LIBS  := $(call pkg,--libs,check)
KISSFFT_LIBS := $(call pkg,--libs,kissfft-float)
VULKAN_CFLAGS := $(if $(VULKAN),-DCBF_VULKAN $(call pkg,--cflags,vulkan))

CFLAGS  ?= -O3 -g
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wno-unused-parameter -Wno-missing-field-initializers \
           $(if $(filter clang%,$(notdir $(CC))),-Wthread-safety) $(if $(WERROR),-Werror)
# Options that make bugs harder to exploit, for optimised builds without sanitizers.  If the given flags set a level
# of FORTIFY_SOURCE, as in builds of Debian packages, this level stays.
OPTIMISED := $(filter-out -O0,$(filter -O%,$(CFLAGS)))
FORTIFY   := $(if $(OPTIMISED),$(if $(findstring _FORTIFY_SOURCE,$(CPPFLAGS) $(CFLAGS)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3))
HARDEN_CFLAGS  := $(if $(SANITIZE),,-fPIE -fstack-protector-strong $(FORTIFY) -Wformat-security \
                  $(if $(filter x86_64,$(shell uname -m)),-fcf-protection))
HARDEN_LDFLAGS := $(if $(SANITIZE),,-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
PIE            := $(if $(SANITIZE),,-pie)
# The compiler must not contract products and sums to FMA instructions: the kernels' C versions must give the same
# bits on every CPU.  No code reads floating-point exceptions, so -fno-trapping-math lets the compiler replace
# branches by selections.  Loops with selections can be vectorised, and their results stay the same.
ALL_CFLAGS := -std=c11 -D_GNU_SOURCE -I. -fno-math-errno -fno-trapping-math -ffp-contract=off -fno-omit-frame-pointer $(WARN) \
              $(if $(findstring thread,$(SANITIZE)),-Wno-unknown-pragmas,-fopenmp) \
              $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -DCBF_SANITIZE) \
              $(PACKAGES_CFLAGS) $(HARDEN_CFLAGS) $(CPPFLAGS) $(CFLAGS)
# LDFLAGS may differ from target to target.
ALL_LDFLAGS = $(HARDEN_LDFLAGS) -Wl,--as-needed $(if $(SANITIZE),-fsanitize=$(SANITIZE)) $(if $(findstring thread,$(SANITIZE)),,-fopenmp) $(LDFLAGS)

# Every object depends on the file `flags`.  This file changes only when the flags change.
FLAGS := $(BUILD)/flags
in_lines = tr -s ' ' '\n' < $(1) | sort -u
$(FLAGS): FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(CC) $(ALL_CFLAGS) CUDA=$(CUDA) VERBS=$(VERBS) VULKAN=$(VULKAN_CFLAGS) $(prefix))' > $@.new
	@if cmp -s $@.new $@; then rm $@.new; exit; fi; \
	[ ! -e $@ ] || echo "  FLAGS   all is compiled again, these differ:" $$({ $(call in_lines,$@); $(call in_lines,$@.new); } | sort | uniq -u); \
	mv $@.new $@

# If libraries are missing, prints one message, before the compiler complains about each header.  libev has no file
# for pkg-config, so the compiler looks for its header.
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
$(OBJ)/%.o: %.c $(FLAGS) | libraries
	$(compile)
$(OBJ)/%.o: $(BUILD)/%.c $(FLAGS) | libraries
	$(compile)
$(OBJ)/pic/%.o: %.c $(FLAGS) | libraries
	$(compile)
$(OBJ)/pic/%.o: $(BUILD)/%.c $(FLAGS) | libraries
	$(compile)

-include $(shell find $(OBJ) -name '*.d' 2>/dev/null)

# Links a program from the objects and archives that it depends on, with these libraries.
define link
	@mkdir -p $(@D)
	@echo "  LINK    $@"
	$(Q)$(CC) $(PIE) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(1) $(LIBS)
endef
define archive
	@rm -f $@
	@$(AR) rcs $@ $^
endef

# Embeds files as text, and writes the result only if it changes.  $(call embed,header,NAME,files) writes an array
# NAMEs of struct NAME {name, text}.
define embed
	@mkdir -p $(@D)
	@{ echo '#include "$(1)"'; echo 'const struct $(2) $(2)s[] = {'; \
	for file in $(3); do echo "{\"$$file\","; \
		sed 's/\\/\\\\/g; s/"/\\"/g; s/^/"/; s/$$/\\n"/' $$file; echo '},'; done; echo '};'; \
	echo 'const size_t n_$(2)s = sizeof($(2)s) / sizeof($(2)s[0]);'; } > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
endef

# Flags that only some files need.  The quotes are escaped for JSON.
PATH_CFLAGS = $(if $(CUDA),-isystem $(CUDA)/include) -DCBF_LIBDIR=\\\"$(prefix)/lib/cbf\\\" -DCBF_CUDA_LIBRARIES=\\\"$(CUDA_LIBRARIES)\\\"
compile_commands.json: $(FLAGS) ## the flags of each file, for editors and clang's tools
	@{ echo '['; separator=; for file in $$(git ls-files --cached --others --exclude-standard '*.c'); do \
		printf '%s{"directory": "%s", "file": "%s", "command": "%s"}\n' "$$separator" '$(CURDIR)' "$$file" \
		'$(CC) $(ALL_CFLAGS) $(HDF5_CFLAGS) $(CHECK_CFLAGS) $(VULKAN_CFLAGS) $(PATH_CFLAGS) '"-c $$file"; separator=,; done; echo ']'; } > $@
