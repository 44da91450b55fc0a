/* check_cuda_device.c - the cuda device without a GPU, and with a GPU that fails.  The test checks the choice of the
 * GPU, the sentences, and the end of a failure: one sentence, one call, and all callbacks.  It runs on a fake CUDA
 * runtime (fake_cuda.h); with CBF_TEST_DEVICE=cuda also on a GPU, with kernels that fail. */
#include "common/base/clock.h"
#include "common/device/plugin.h"
#include "common/base/inbox.h"
#include "common/base/units.h"
#include "tests/unit/device_under_test.h"
#include "common/device/tensor_map.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define N_STREAMS    3
#define N_OPERATIONS 120
#define GRACE_NS     (20 * NS_PER_MS)

/* ---- Which GPU, and what is said --------------------------------------------------------------------------------- */

#define UUID_1 "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f"

static const struct choice {
    const char *fake, *gpu;
    int err;
    const char *words; /* of the log where it opens, else of the sentence, which begins with a key */
} choices[] = {
    {"driver=0", NULL, -ENODEV, "device.kind: there is no NVIDIA driver here"},
    {"driver=0", "0", -ENODEV, "device.gpu: there is no NVIDIA driver here"},
    {"driver=11040", NULL, -ENODEV, "device.kind: the NVIDIA driver is too old: it supports CUDA 11.4, but CUDA "},
    {"gpus=0", NULL, -ENODEV, "device.kind: the NVIDIA driver offers no GPU"},
    {"major=7", NULL, -ENODEV,
     "device.kind: no GPU here has compute capability 8.0 or more: 0 = Fake 0 (0000:3a:00.0, GPU-00010203-"},
    {"major=7", "0", -ENODEV, "device.gpu: GPU 0, Fake 0, has compute capability 7.0, and 8.0 or more is needed"},
    {"gpus=2", "2", -ENODEV, "device.gpu: there is no GPU \"2\" here; there are: 0 = Fake 0 (0000:3a:00.0, "},
    {"gpus=2", "GPU-20111213-1415-1617-1819-1a1b1c1d1e1f", -ENODEV, "1 = Fake 1 (0000:3b:00.0, " UUID_1 ")"},
    {"gpus=2", "0001:3b:00.0", -ENODEV, "device.gpu: there is no GPU \"0001:3b:00.0\" here"},
    {"init=46", NULL, -EBUSY, "device.kind: cudaInitDevice failed: the words of CUDA"},
    {"init=2", NULL, -ENOMEM, "cudaErrorMemoryAllocation"},
    {"init=802", NULL, -EIO, "device.kind: cudaInitDevice failed"},
    {"compiler=0", NULL, -ENOTSUP, "device.kind: there is no compiler for compute capability 9.0"},
    {"gpus=1", NULL, 0, "device: cuda, GPU 0 of 1: Fake 0 (PCI 0000:3a:00.0, UUID GPU-00010203-"},
    {"gpus=1", "auto", 0, "1024 MiB, compute capability 9.0); driver for CUDA "},
    {"gpus=1", "", 0, "kernels are kept in no directory"},
    {"gpus=3", NULL, 0, "GPU 2 of 3"}, /* the first that will do */
    {"gpus=2", "1", 0, "GPU 1 of 2: Fake 1 (PCI 0000:3b:00.0, UUID " UUID_1},
    {"gpus=2", UUID_1, 0, "GPU 1 of 2"},
    {"gpus=2", "gpu-10111213-1415-1617-1819-1A1B1C1D1E1F", 0, "GPU 1 of 2"},
    {"gpus=2", "0000:3b:00.0", 0, "GPU 1 of 2"},
    {"gpus=2", "00000000:3B:00.0", 0, "GPU 1 of 2"},
    {"gpus=2", "3b:00.0", 0, "GPU 1 of 2"},
};

static struct device *device;
static char why[600];

static void close_device(void)
{
    device_close(device);
    device = NULL;
}

static void setup(void)
{
    test_use_fake_cuda();
    why[0] = '\0';
}

static _Atomic int n_failures;

static void count_failure(void *arg)
{
    ck_assert_ptr_eq(arg, &n_failures);
    n_failures++;
}

static void open_as(const char *fake, const struct device_config *config)
{
    setenv("CBF_FAKE_CUDA", fake, 1);
    ck_assert_msg(device_open(config, &device, why, sizeof(why)) == 0, "%s", why);
}

static void open_with_cache(const char *path)
{
    open_as("gpus=1", &(struct device_config){.kind = DEVICE_CUDA, .n_threads = 1, .kernel_cache = path});
}

/* Its failures are counted. */
static void open_counted(const char *fake)
{
    open_as(fake,
            &(struct device_config){.kind = DEVICE_CUDA, .on_failure = count_failure, .failure_arg = &n_failures});
}

static void open_fake(const char *fake)
{
    setenv("CBF_FAKE_CUDA", fake, 1);
    device = test_open_device(1);
}

/* Opens a device of 'kind'; returns the log. */
static const char *open_and_listen(enum device_kind kind, const char *gpu, int *err)
{
    static char said[4096];
    struct device_config config = {.kind = kind, .gpu = gpu, .n_threads = 1};
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);

    dup2(fileno(file), STDERR_FILENO);
    *err = device_open(&config, &device, why, sizeof(why));
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
    fclose(file);
    return said;
}

static const char *no_fake(void)
{
    return test_fake_cuda() ? NULL : "there was no CUDA toolkit";
}

static const char *no_vulkan(void)
{
    return test_fake_vulkan() ? no_fake() : "built without Vulkan's headers";
}

TEST(the_gpu_is_chosen_or_missed_in_plain_words, .end = ARRAY_LEN(choices), .skip = no_fake())
{
    const struct choice *c = &choices[_i];
    int err;

    setenv("CBF_FAKE_CUDA", c->fake, 1);
    const char *said = open_and_listen(DEVICE_CUDA, c->gpu, &err);
    ck_assert_int_eq(err, c->err);
    ck_assert_msg(strstr(err ? why : said, c->words), "%s%s", why, said);
    ck_assert_int_eq(!device, err != 0);
    if (err) {
        ck_assert_str_eq(said, "");
        ck_assert_msg(strncmp(why, "device.", 7) == 0, "%s", why);
    }
}

/* Where there is no GPU that will do, and none is asked for by name; never where there is one that cannot be had
 * now. */
TEST(auto_does_without_a_gpu_that_there_is_not, .end = ARRAY_LEN(choices), .skip = no_fake())
{
    const struct choice *c = &choices[_i];
    bool falls_back = c->err == -ENODEV && !c->gpu;
    int err;

    setenv("CBF_FAKE_CUDA", c->fake, 1);
    const char *said = open_and_listen(DEVICE_AUTO, c->gpu, &err);
    ck_assert_int_eq(err, falls_back ? 0 : c->err);
    if (!err)
        ck_assert_str_eq(device_name(device), falls_back ? "cpu" : "cuda");
    if (falls_back)
        ck_assert_msg(strstr(said, "device: cpu, as ") && strstr(said, strchr(c->words, ' ')) &&
                          !strstr(said, "; install"),
                      "%s", said);
}

TEST(builds_do_not_mix, .skip = no_fake())
{
    struct device_host stranger = {.build_id = "another"};
    struct device_config config = {.kind = DEVICE_CUDA};
    device_plugin_open_fn *open;
    void *plugin = dlopen(test_fake_cuda(), RTLD_NOW | RTLD_LOCAL);
    void *symbol = plugin ? dlsym(plugin, DEVICE_PLUGIN_OPEN) : NULL;

    ck_assert_ptr_nonnull(symbol);
    memcpy(&open, &symbol, sizeof(open));
    ck_assert_int_eq(open(&config, &stranger, &device, why, sizeof(why)), -ENODEV);
    ck_assert_msg(strstr(why, "this program is from build another"), "%s", why);
}

/* What a process left in the cache that was killed while it wrote. */
TEST(the_cache_is_tidied, .skip = no_fake())
{
    const struct timespec old[] = {{.tv_sec = 1}, {.tv_sec = 1}};
    char directory[] = "/tmp/check_cuda_device-XXXXXX", path[64];

    ck_assert(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/cbf-new-abcdef", directory);
    fclose(fopen(path, "w"));
    ck_assert_int_eq(utimensat(AT_FDCWD, path, old, 0), 0);
    open_with_cache(directory);
    close_device();
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_eq(rmdir(directory), 0);
}

/* Code that others may have put there is not run; the start goes on. */
TEST(a_shared_cache_is_not_used, .skip = no_fake())
{
    char directory[] = "/tmp/check_cuda_device-XXXXXX";

    ck_assert(mkdtemp(directory));
    for (int shared = 0; shared < 2; shared++) {
        ck_assert_int_eq(chmod(directory, shared ? 0777 : 0755), 0);
        open_with_cache(directory);
        ck_assert_int_eq(device_cache_directory(device) == NULL, shared);
        close_device();
    }
    ck_assert_int_eq(rmdir(directory), 0);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

TEST(memory_that_cannot_be_registered_is_cudas_own, .skip = no_fake())
{
    open_fake("register=0");
    uint8_t *memory[3];

    for (size_t k = 0; k < ARRAY_LEN(memory); k++) {
        memory[k] = device_alloc_pinned(device, (3 << 20) + k);
        ck_assert_ptr_nonnull(memory[k]);
        memset(memory[k], 1, (3 << 20) + k);
    }
    device_free_pinned(device, memory[1]);
    device_free_pinned(device, memory[0]);
    device_free_pinned(device, memory[2]);
}

TEST(too_little_gpu_memory_is_said_with_both_sizes, .skip = no_fake())
{
    open_fake("memory_mib=1000");
    uint64_t mib = 1 << 20;
    ck_assert_int_eq(device_check_memory(device, mib, 500 * mib, "a.b", "lower it", why, sizeof(why)), 0);
    ck_assert_int_eq(device_check_memory(device, mib, 501 * mib, "a.b", "lower it", why, sizeof(why)), -ENOMEM);
    ck_assert_str_eq(why,
                     "a.b: this configuration needs 501 MiB of GPU memory; the total is 1000 MiB, of which 500 MiB are "
                     "available; lower it");
    ck_assert_int_eq(device_check_memory(device, mib, 1001 * mib, "a.b", "lower it", why, sizeof(why)), -E2BIG);
}

/* ---- Direct memory ----------------------------------------------------------------------------------------------- */

TEST(direct_memory_is_vulkans, .skip = no_vulkan())
{
    struct device_direct direct[3];
    struct device_stream *stream;
    uint8_t expected[3000], found[3000];

    setenv("CBF_FAKE_CUDA", "gpus=1", 1);
    setenv("CBF_FAKE_VULKAN", "", 1);
    test_use_fake_vulkan();
    device = test_open_device(1);
    ck_assert_int_eq(device_stream_create(device, "copies", &stream), 0);
    ck_assert_int_eq(device_check_direct(device, 256 << 20, "a.b", "lower it", why, sizeof(why)), 0);
    for (size_t k = 0; k < ARRAY_LEN(direct); k++) {
        ck_assert_msg(!device_alloc_direct(device, sizeof(found), &direct[k], why, sizeof(why)), "%s", why);
        ck_assert_ptr_ne(direct[k].host, direct[k].device);
        memset(expected, (int)k + 1, sizeof(expected));
        memcpy(direct[k].host, expected, sizeof(expected));
        test_read(stream, found, direct[k].device, sizeof(found));
        ck_assert_mem_eq(found, expected, sizeof(found));
    }
    for (size_t k = 0; k < ARRAY_LEN(direct); k++)
        device_free_direct(device, &direct[(k + 1) % 3]);
    device_free_direct(device, &(struct device_direct){0});
    device_stream_destroy(stream);
}

static const struct {
    const char *cuda, *vulkan;
    int err;
    const char *words;
} direct_failures[] = {
    {"gpus=1", "heap_mib=246", -E2BIG,
     "a.b: this configuration needs 256 MiB of GPU memory that the host can write to; the total is 246 MiB, of which "
     "246 MiB are "
     "available; lower it"},
    {"gpus=1", "gpus=1", -ENODEV,
     "a.b: Vulkan does not see the GPU with UUID 00010203-0405-0607-0809-0a0b0c0d0e0f; it sees Fake Vulkan 0 "
     "(eeeeeeee-eeee-eeee-eeee-eeeeeeeeeeee)"},
    {"gpus=1", "vkMapMemory=-5", -ENOMEM, "vkMapMemory failed: VK_ERROR_MEMORY_MAP_FAILED (-5)"},
    {"import=999", "", -EIO, "cudaImportExternalMemory failed: the words of CUDA (cudaErrorUnknown)"},
    {"map=2", "", -ENOMEM, "cudaExternalMemoryGetMappedBuffer failed: the words of CUDA (cudaErrorMemoryAllocation)"},
};

/* The device itself is well. */
TEST(failure_of_direct_memory_is_said, .end = ARRAY_LEN(direct_failures), .skip = no_vulkan())
{
    struct device_direct direct;

    setenv("CBF_FAKE_CUDA", direct_failures[_i].cuda, 1);
    setenv("CBF_FAKE_VULKAN", direct_failures[_i].vulkan, 1);
    test_use_fake_vulkan();
    device = test_open_device(1);
    int err = device_check_direct(device, 256 << 20, "a.b", "lower it", why, sizeof(why));
    if (!err)
        err = device_alloc_direct(device, 1000, &direct, why, sizeof(why));
    ck_assert_int_eq(err, direct_failures[_i].err);
    ck_assert_str_eq(why, direct_failures[_i].words);
    ck_assert(device_ok(device));
}

/* ---- Exported memory --------------------------------------------------------------------------------------------- */

static const struct {
    const char *fake;
    int err;
    const char *words;
} export_failures[] = {
    {"dmabuf=-1", -ENODEV, "the NVIDIA driver is too old to share the GPU's memory with network cards"},
    {"dmabuf=801", -ENODEV,
     "the NVIDIA driver does not share the GPU's memory with network cards (cuMemGetHandleForAddressRange: error 801): "
     "install NVIDIA's open kernel modules and Linux 5.12 or later"},
    {"dmabuf=2", -ENOMEM,
     "the NVIDIA driver does not share the GPU's memory with network cards (cuMemGetHandleForAddressRange: error 2): "
     "install NVIDIA's open kernel modules and Linux 5.12 or later"},
};

/* What is found before anything is allocated. */
static const struct {
    const char *fake;
    const char *words; /* NULL: it is as it should be */
} export_checks[] = {
    {"ordering=100,flushes=1", NULL},
    {"ordering=100,flushes=0", NULL},
    {"ordering=0,flushes=3", NULL},
    {"ordering=0,flushes=2", "recv.gpudirect: this GPU neither orders a network card's writes"},
    {"has_dmabuf=0", "recv.gpudirect: the NVIDIA driver does not share this GPU's memory as a dma-buf"},
};

TEST(what_exporting_needs_is_checked, .end = ARRAY_LEN(export_checks), .skip = no_fake())
{
    const char *words = export_checks[_i].words;

    open_fake(export_checks[_i].fake);
    ck_assert_int_eq(device_check_exported(device, "recv.gpudirect", why, sizeof(why)), words ? -ENODEV : 0);
    ck_assert_msg(words ? strstr(why, words) == why : why[0] == '\0', "%s", why);
}

TEST(failure_to_export_is_said, .end = ARRAY_LEN(export_failures), .skip = no_fake())
{
    struct device_exported exported;

    open_fake(export_failures[_i].fake);
    ck_assert_int_eq(device_alloc_exported(device, 1000, &exported, why, sizeof(why)), export_failures[_i].err);
    ck_assert_str_eq(why, export_failures[_i].words);
    ck_assert(device_ok(device));
}

/* Where the GPU does not keep the order, what fails is the device's end. */
TEST(writes_of_cards_are_flushed_where_they_must_be, .end = 2, .skip = no_fake())
{
    open_counted(_i ? "ordering=0,flush=999" : "ordering=100,flush=999");
    device_flush_exported(device);
    ck_assert(device_ok(device) == (_i == 0));
    ck_assert_int_eq(n_failures, _i);
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

static const char *const tensor_fakes[] = {"", "tensor=-1", "tensor=1"};

/* A driver that does not know of tensors, or refuses one, is the device's end. */
TEST(tensors_are_described_by_the_driver, .end = ARRAY_LEN(tensor_fakes), .skip = no_fake())
{
    struct device_tensor tensor = {NULL, {100, 3, 20}, {1024, 4096}, {32, 2, 4}};
    struct device_tensor_map map;
    struct device_tensor got;
    struct device_stream *stream;

    memset(&map, 0xA5, sizeof(map));
    open_counted(tensor_fakes[_i]);
    ck_assert_int_eq(device_stream_create(device, "test", &stream), 0);
    device_map_tensor(stream, &tensor, &map);
    ck_assert(device_ok(device) == (_i == 0));
    ck_assert_int_eq(n_failures, _i > 0);
    memcpy(&got, &map, sizeof(got));
    if (_i == 0) {
        ck_assert_ptr_eq(got.base, tensor.base);
        ck_assert_mem_eq(got.extent, tensor.extent, sizeof(got.extent));
        ck_assert_mem_eq(got.pitch, tensor.pitch, sizeof(got.pitch));
        ck_assert_mem_eq(got.box, tensor.box, sizeof(got.box));
        ck_assert_uint_eq(device_multiprocessors(device), 8); /* as the fake says */
    }
    device_stream_destroy(stream);
}

/* ---- Failures ---------------------------------------------------------------------------------------------------- */

static struct inbox *inbox;

static void push_arg(void *arg)
{
    inbox_push(inbox, &(struct inbox_item){.object = arg});
}

static void run_nothing(const void *args, int n_threads)
{
}

static const struct kernel nothing = {.name = "nothing", .args_bytes = 8, .cpu = run_nothing};

static struct bed {
    struct device_stream *streams[N_STREAMS];
    struct device_event *event;
    struct device_kernel *kernel;
    uint8_t *memory[N_STREAMS], *pinned[N_STREAMS]; /* nothing orders the streams */
    uint8_t called[N_OPERATIONS];                   /* one per callback, whose address is its argument */
    size_t n_callbacks;
} bed;

static void create_bed_of(const char *fake, const struct kernel *kernel, struct device_kernel **made)
{
    static const char *const names[N_STREAMS] = {"abc", "bc", "c"};

    ck_assert_int_eq(inbox_create(N_OPERATIONS, &inbox), 0);
    open_counted(fake);
    for (int k = 0; k < N_STREAMS; k++) {
        ck_assert_int_eq(device_stream_create(device, names[k], &bed.streams[k]), 0);
        bed.memory[k] = device_alloc(device, 100);
        bed.pinned[k] = device_alloc_pinned(device, 100);
    }
    ck_assert_int_eq(device_event_create(device, &bed.event), 0);
    ck_assert_int_eq(device_kernel_create(device, kernel, NULL, 0, made), 0);
}

static void create_bed(const char *fake)
{
    create_bed_of(fake, &nothing, &bed.kernel);
}

static void destroy_bed(void)
{
    device_event_destroy(bed.event);
    for (int k = 0; k < N_STREAMS; k++)
        device_stream_destroy(bed.streams[k]);
    for (int k = 0; k < N_STREAMS; k++) {
        device_free(device, bed.memory[k]);
        device_free_pinned(device, bed.pinned[k]);
    }
    device_kernel_destroy(bed.kernel);
    close_device();
    inbox_destroy(inbox);
    memset(&bed, 0, sizeof(bed));
}

static void enqueue_something(void)
{
    size_t s = random_below(N_STREAMS);
    struct device_stream *stream = bed.streams[s];
    uint64_t args = 0;

    switch (random_below(6)) {
    case 0: device_copy(stream, bed.memory[s], bed.pinned[s], 100); break;
    case 1: device_copy_2d(stream, bed.pinned[s], 20, bed.memory[s], 30, 10, 3); break;
    case 2: device_fill(stream, bed.memory[s], 7, 100); break;
    case 3: device_launch(stream, bed.kernel, &(struct kernel_grid){{1, 1, 1}, 32, 0}, &args); break;
    case 4: device_event_record(bed.event, stream); break;
    case 5: device_stream_wait_event(stream, bed.event); break;
    }
    if (random_below(3) == 0)
        device_then(stream, push_arg, &bed.called[bed.n_callbacks++]);
}

/* Each callback has come once, and none twice; waits for those that are on their way. */
static void assert_all_called(void)
{
    struct inbox_item item;

    for (size_t k = 0; k < bed.n_callbacks; k++) {
        ck_assert_int_eq(inbox_pop(inbox, &item), 0);
        ck_assert_int_eq((*(uint8_t *)item.object)++, 0);
    }
    ck_assert_int_eq(inbox_pop_until(inbox, clock_monotonic_ns() + GRACE_NS, &item), -ETIMEDOUT);
}

/* Wherever it happens. */
TEST(a_failure_is_said_once_and_all_callbacks_come, .end = 40, .skip = no_fake())
{
    char fake[64];

    random_state += (uint64_t)_i;
    snprintf(fake, sizeof(fake), "%s=%d", _i % 2 ? "die" : "refuse", 1 + (int)random_below(N_OPERATIONS / 2));
    create_bed(fake);
    for (int k = 0; k < N_OPERATIONS; k++)
        enqueue_something();
    assert_all_called();
    ck_assert(!device_ok(device));
    ck_assert_int_eq(n_failures, 1);
    destroy_bed();
    ck_assert_int_eq(n_failures, 1);
}

/* Nobody calls the device any more; only the watch can notice. */
TEST(a_gpu_that_dies_while_all_wait_is_noticed, .skip = no_fake())
{
    create_bed("die=3");
    device_copy(bed.streams[0], bed.memory[0], bed.pinned[0], 100);
    device_fill(bed.streams[1], bed.memory[1], 7, 100);
    device_fill(bed.streams[2], bed.memory[2], 7, 100);
    device_then(bed.streams[2], push_arg, &bed.called[bed.n_callbacks++]);
    assert_all_called();
    ck_assert(!device_ok(device));
    ck_assert_int_eq(n_failures, 1);
    destroy_bed();
}

static void fail_launch(void)
{
    uint64_t args = 0;

    create_bed("");
    device_fill(bed.streams[1], bed.memory[1], 7, 100);
    device_launch(bed.streams[0], bed.kernel, &(struct kernel_grid){{1, 2, 3}, 2000, 40}, &args);
    destroy_bed();
}

TEST(the_sentence_names_call_stream_and_kernel, .skip = no_fake())
{
    char said[2048];
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);

    dup2(fileno(file), STDERR_FILENO);
    fail_launch();
    dup2(saved, STDERR_FILENO);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
    ck_assert_msg(strstr(said, " error: cuda: nothing: cudaLaunchKernel of 1 x 2 x 3 blocks of 2000 threads and 40 "
                               "bytes of shared memory on stream abc failed: the words of CUDA ("),
                  "%s", said);
    ck_assert_msg(strstr(said, "newest operation of each stream: c: nothing, bc: fill, abc: nothing"), "%s", said);
    ck_assert_ptr_eq(strstr(said, " error: "), strrchr(said, '[') + strcspn(strrchr(said, '['), " "));
}

/* ---- On a GPU ---------------------------------------------------------------------------------------------------- */

static const struct kernel failing[] = {
    {.name = "wild", .args_bytes = 8, .cuda_text = "extern \"C\" __global__ void wild(int *where) { *where = 1; }"},
    {.name = "trap", .args_bytes = 8, .cuda_text = "extern \"C\" __global__ void trap(int *where) { __trap(); }"},
};

/* One that fails long after it was enqueued, when everybody waits; one that later calls stumble over. */
TEST(a_kernel_that_fails_ends_the_device, .end = 2 * (int)ARRAY_LEN(failing), .setup = test_no_setup,
     .unless = !test_on_cuda())
{
    const struct kernel_grid one = {{1, 1, 1}, 1, 0};
    struct device_kernel *kernel;
    uint64_t where = 16;

    create_bed_of("", &failing[_i / 2], &kernel);
    for (int k = 0; k < 10; k++) {
        device_copy(bed.streams[0], bed.memory[0], bed.pinned[0], 100);
        device_then(bed.streams[0], push_arg, &bed.called[bed.n_callbacks++]);
    }
    device_launch(bed.streams[1], kernel, &one, &where);
    device_then(bed.streams[1], push_arg, &bed.called[bed.n_callbacks++]);
    if (_i % 2)
        device_stream_wait(bed.streams[1]);
    for (int k = 0; k < 10 && _i % 2; k++) {
        device_copy(bed.streams[0], bed.memory[0], bed.pinned[0], 100);
        device_then(bed.streams[0], push_arg, &bed.called[bed.n_callbacks++]);
    }
    assert_all_called();
    ck_assert(!device_ok(device));
    ck_assert_int_eq(n_failures, 1);
    device_kernel_destroy(kernel);
    destroy_bed();
}

TEST(without_anybody_to_tell_the_process_ends, .exit_status = 1, .skip = no_fake())
{
    open_fake("refuse=1");
    struct device_stream *stream;
    void *memory = device_alloc(device, 10);

    ck_assert_int_eq(device_stream_create(device, "alone", &stream), 0);
    device_fill(stream, memory, 0, 10);
}

SUITE(.timeout_s = 60, .setup = setup, .teardown = close_device, .start = random_start);
