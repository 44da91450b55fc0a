/* nvrtc.c - calls NVRTC, and provides small headers that replace the host's headers in kernels. */
#include "common/device/cuda/nvrtc.h"

#include "common/device/cuda/library.h"
#include "common/device/texts.h"
#include "common/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_ARCHITECTURES 64
#define OPTION_BYTES      128

/* The declarations equal those in nvrtc.h of all toolkits since version 11.  They are repeated here so that this
 * file compiles without the toolkit. */
typedef struct _nvrtcProgram *program_handle;

static struct {
    const char *(*error)(int result);
    int (*version)(int *major, int *minor);
    int (*n_architectures)(int *n);
    int (*architectures)(int *list);
    int (*create)(program_handle *program, const char *text, const char *name, int n_headers,
                  const char *const *headers, const char *const *names);
    int (*destroy)(program_handle *program);
    int (*compile)(program_handle program, int n_options, const char *const *options);
    int (*log_size)(program_handle program, size_t *bytes);
    int (*log)(program_handle program, char *text);
    int (*cubin_size)(program_handle program, size_t *bytes);
    int (*cubin)(program_handle program, char *code);
    int (*ptx_size)(program_handle program, size_t *bytes);
    int (*ptx)(program_handle program, char *code);
} nvrtc;
static const char *nvrtc_path; /* file of the loaded NVRTC; NULL: not loaded yet */

static const char integers[] = "#pragma once\n"
                               "typedef signed char int8_t;\n"
                               "typedef short int16_t;\n"
                               "typedef int int32_t;\n"
                               "typedef long long int64_t;\n"
                               "typedef unsigned char uint8_t;\n"
                               "typedef unsigned short uint16_t;\n"
                               "typedef unsigned int uint32_t;\n"
                               "typedef unsigned long long uint64_t;\n"
                               "typedef unsigned long long uintptr_t;\n";

static const struct kernel_text own_headers[] = {
    {"common/device/device.h", "#pragma once\n#include <stdint.h>\nstruct kernel;\n"},
    {"stdint.h", integers},
    {"stddef.h", "#pragma once\n"},
    {"stdbool.h", "#pragma once\n"},
};
#define N_OWN_HEADERS (sizeof(own_headers) / sizeof(own_headers[0]))

const char *const nvrtc_options[] = {"--std=c++17", "--device-as-default-execution-space", "--fmad=true",
                                     "--no-source-include", "--generate-line-info"};
const size_t n_nvrtc_options = sizeof(nvrtc_options) / sizeof(nvrtc_options[0]);

int nvrtc_load(char *why, size_t why_bytes)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL};
    static const struct library_symbol symbols[] = {
        {"nvrtcGetErrorString", &nvrtc.error},
        {"nvrtcVersion", &nvrtc.version},
        {"nvrtcGetNumSupportedArchs", &nvrtc.n_architectures},
        {"nvrtcGetSupportedArchs", &nvrtc.architectures},
        {"nvrtcCreateProgram", &nvrtc.create},
        {"nvrtcDestroyProgram", &nvrtc.destroy},
        {"nvrtcCompileProgram", &nvrtc.compile},
        {"nvrtcGetProgramLogSize", &nvrtc.log_size},
        {"nvrtcGetProgramLog", &nvrtc.log},
        {"nvrtcGetCUBINSize", &nvrtc.cubin_size},
        {"nvrtcGetCUBIN", &nvrtc.cubin},
        {"nvrtcGetPTXSize", &nvrtc.ptx_size},
        {"nvrtcGetPTX", &nvrtc.ptx},
        {NULL, NULL},
    };
    char reason[400];

    if (nvrtc_path)
        return 0;
    int err = library_open(names, symbols, &nvrtc_path, reason, sizeof(reason));
    if (err)
        snprintf(why, why_bytes,
                 "NVRTC, the CUDA toolkit's compiler for kernels, cannot be loaded: %s; install cuda-nvrtc, or "
                 "set device.kind: cpu",
                 reason);
    return err;
}

void nvrtc_identity(char *text, size_t text_bytes)
{
    struct stat st = {0};
    int major = 0, minor = 0;

    nvrtc.version(&major, &minor);
    /* NVRTC's version number has no patch level.  So builds with the same version number are distinguished by the
     * size of the library's file, which is hardly ever the same for two builds. */
    if (stat(nvrtc_path, &st) != 0)
        st.st_size = 0;
    snprintf(text, text_bytes, "%d.%d, %lld bytes", major, minor, (long long)st.st_size);
}

/* Returns the newest architecture that NVRTC supports and that is not newer than 'wanted'.  Returns 0 if there is none.
 * Code for an architecture also runs on GPUs with the same major version and a later minor version. */
static int best_architecture(int wanted)
{
    int list[MAX_ARCHITECTURES], n = 0, best = 0;

    if (nvrtc.n_architectures(&n) != 0 || n > MAX_ARCHITECTURES || nvrtc.architectures(list) != 0)
        return 0;
    for (int i = 0; i < n; i++)
        if (list[i] <= wanted && list[i] > best)
            best = list[i];
    return best;
}

int nvrtc_choose_target(int major, int minor, struct nvrtc_target *target, char *why, size_t why_bytes)
{
    int wanted = major * 10 + minor;
    int err = nvrtc_load(why, why_bytes);

    if (err)
        return err;
    int best = best_architecture(wanted);
    if (best == 0) {
        snprintf(why, why_bytes, "this NVRTC, %s, does not compile for GPUs of compute capability %d.%d", nvrtc_path,
                 major, minor);
        return -ENODEV;
    }
    target->ptx = best / 10 != major;
    /* The target sm_90a allows instructions that only compute capability 9.0 has, such as wgmma. */
    snprintf(target->option, sizeof(target->option), "--gpu-architecture=%s_%d%s", target->ptx ? "compute" : "sm", best,
             wanted == 90 && best == 90 ? "a" : "");
    return 0;
}

const char *nvrtc_text_of(const struct kernel *kernel)
{
    char file[128];

    if (kernel->cuda_text)
        return kernel->cuda_text;
    snprintf(file, sizeof(file), "/%s.cu", kernel->name); /* the file is kernels/FOLDER/NAME.cu */
    for (size_t k = 0; k < n_kernel_texts; k++) {
        const char *base = strrchr(kernel_texts[k].name, '/');

        if (base && strcmp(base, file) == 0)
            return kernel_texts[k].text;
    }
    return NULL;
}

static int create_program(const struct kernel *kernel, program_handle *program)
{
    const char *text = nvrtc_text_of(kernel);
    size_t n = n_kernel_texts + N_OWN_HEADERS;
    const char **headers = calloc(2 * n, sizeof(*headers));
    char name[128];

    if (!headers)
        return -ENOMEM;
    const char **names = headers + n;
    for (size_t k = 0; k < n; k++) {
        const struct kernel_text *header = k < N_OWN_HEADERS ? &own_headers[k] : &kernel_texts[k - N_OWN_HEADERS];

        headers[k] = header->text;
        names[k] = header->name;
    }
    snprintf(name, sizeof(name), "kernels/%s.cu", kernel->name);
    int result = nvrtc.create(program, text, name, (int)n, headers, names);
    free(headers);
    if (result != 0)
        log_error("kernel %s: nvrtcCreateProgram failed: %s", kernel->name, nvrtc.error(result));
    return result == 0 ? 0 : -EIO;
}

/* Returns the compiler's messages, which the caller frees, or NULL. */
static char *words_of(program_handle program)
{
    size_t bytes = 0;

    if (nvrtc.log_size(program, &bytes) != 0)
        return NULL;
    char *words = calloc(1, bytes + 1);
    if (words && nvrtc.log(program, words) == 0)
        return words;
    free(words);
    return NULL;
}

static void log_words(program_handle program)
{
    char *words = words_of(program), *rest = words, *line;

    while ((line = strsep(&rest, "\n")))
        if (line[0])
            log_error("%s", line);
    free(words);
}

/* Compiles a program.  'more' is an additional option, or NULL.  Returns NVRTC's result, or -1 if there is no
 * memory. */
static int compile(program_handle program, const struct kernel_constant *constants, size_t n_constants,
                   const struct nvrtc_target *target, const char *more)
{
    size_t n = 0;
    char(*defines)[OPTION_BYTES] = calloc(n_constants + 1, sizeof(*defines));
    const char **options = calloc(n_constants + n_nvrtc_options + 2, sizeof(*options));
    int result = -1;

    if (defines && options) {
        for (size_t k = 0; k < n_constants; k++) {
            snprintf(defines[k], OPTION_BYTES, "-D%s=%ld", constants[k].name, constants[k].value);
            options[n++] = defines[k];
        }
        for (size_t k = 0; k < n_nvrtc_options; k++)
            options[n++] = nvrtc_options[k];
        options[n++] = target->option;
        if (more)
            options[n++] = more;
        result = nvrtc.compile(program, (int)n, options);
    }
    free(options);
    free(defines);
    return result;
}

static int take_code(program_handle program, bool ptx, void **code, size_t *bytes)
{
    size_t n = 0;

    if ((ptx ? nvrtc.ptx_size : nvrtc.cubin_size)(program, &n) != 0 || n == 0)
        return -EIO;
    char *memory = malloc(n);
    if (!memory)
        return -ENOMEM;
    if ((ptx ? nvrtc.ptx : nvrtc.cubin)(program, memory) != 0) {
        free(memory);
        return -EIO;
    }
    *code = memory;
    *bytes = n;
    return 0;
}

/* Creates and compiles a program, which the caller must destroy.  Logs the reason for a failure. */
static int make_program(const struct kernel *kernel, const struct kernel_constant *constants, size_t n_constants,
                        const struct nvrtc_target *target, const char *more, program_handle *program)
{
    if (!nvrtc_text_of(kernel)) {
        log_error("kernel %s: this build has no CUDA variant of this kernel", kernel->name);
        return -ENODEV;
    }
    int err = create_program(kernel, program);
    if (err)
        return err;
    int result = compile(*program, constants, n_constants, target, more);
    if (result == 0)
        return 0;
    log_error("kernel %s does not compile with %s: %s", kernel->name, target->option,
              result > 0 ? nvrtc.error(result) : "not enough memory");
    log_words(*program);
    nvrtc.destroy(program);
    return -EIO;
}

int nvrtc_compile(const struct kernel *kernel, const struct kernel_constant *constants, size_t n_constants,
                  const struct nvrtc_target *target, void **code, size_t *bytes)
{
    program_handle program;
    int err = make_program(kernel, constants, n_constants, target, NULL, &program);

    if (err)
        return err;
    err = take_code(program, target->ptx, code, bytes);
    if (err)
        log_error("kernel %s: NVRTC returned no code for %s", kernel->name, target->option);
    nvrtc.destroy(&program);
    return err;
}

int nvrtc_report(const struct kernel *kernel, const struct kernel_constant *constants, size_t n_constants,
                 const struct nvrtc_target *target, char **report)
{
    program_handle program;
    int err = make_program(kernel, constants, n_constants, target, "--ptxas-options=-v", &program);

    if (err)
        return err;
    *report = words_of(program);
    nvrtc.destroy(&program);
    return *report ? 0 : -ENOMEM;
}
