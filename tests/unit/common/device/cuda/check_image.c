/* check_image.c - those parts of the cuda device's kernels that need no GPU: the cache, and NVRTC's compilation of
 * texts.  If NVRTC is not installed, the tests of NVRTC are skipped with a message. */
#include "common/device/cuda/cache.h"
#include "common/device/cuda/image.h"
#include "common/device/cuda/library.h"
#include "common/device/cuda/nvrtc.h"
#include "common/device/texts.h"
#include "common/base/units.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_WRITERS 8

static char directory[64]; /* for the cache; its parent is ours */
static char parent[32];

static const struct hash key = {UINT64_C(0x0123456789abcdef), 42};

static void setup(void)
{
    strcpy(parent, "/tmp/cbf-image-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(parent));
    snprintf(directory, sizeof(directory), "%s/cache", parent);
}

/* Calls fn(path) for each file of the cache; returns how many there are. */
static int for_each_entry(void (*fn)(const char *path))
{
    char path[512];
    DIR *dir = opendir(directory);
    struct dirent *entry;
    int n = 0;

    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        n++;
        if (fn)
            fn(path);
    }
    if (dir)
        closedir(dir);
    return n;
}

static void remove_entry(const char *path)
{
    unlink(path);
}

static void teardown(void)
{
    for_each_entry(remove_entry);
    rmdir(directory);
    rmdir(parent);
}

/* ---- The cache --------------------------------------------------------------------------------------------------- */

#define DATA_BYTES 3000
static uint8_t data[DATA_BYTES];

static void assert_cached(void)
{
    size_t bytes = 0;
    void *got = NULL;

    ck_assert_int_eq(cache_read(directory, key, &got, &bytes), 0);
    ck_assert_uint_eq(bytes, DATA_BYTES);
    ck_assert_mem_eq(got, data, DATA_BYTES);
    free(got);
}

static void assert_absent(void)
{
    size_t bytes = 17;
    void *got = &bytes;

    ck_assert_int_eq(cache_read(directory, key, &got, &bytes), -ENOENT);
    ck_assert_ptr_eq(got, &bytes);
    ck_assert_uint_eq(bytes, 17);
}

TEST(what_is_written_is_read)
{
    struct hash other = {key.high, key.low + 1};

    random_bytes(data, sizeof(data));
    assert_absent();
    ck_assert_int_eq(cache_write(directory, other, "x", 1), 0);
    assert_absent();
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(cache_write(directory, key, data, sizeof(data)), 0);
        assert_cached();
    }
    ck_assert_int_eq(for_each_entry(NULL), 2);
}

static char entry_path[512];
static uint8_t entry[DATA_BYTES + 500];
static size_t entry_bytes;

static void slurp(const char *path)
{
    FILE *file = fopen(path, "rb");

    snprintf(entry_path, sizeof(entry_path), "%s", path);
    entry_bytes = fread(entry, 1, sizeof(entry), file);
    fclose(file);
}

static void spill(size_t bytes)
{
    FILE *file = fopen(entry_path, "wb");

    ck_assert_uint_eq(fwrite(entry, 1, bytes, file), bytes);
    fclose(file);
}

TEST(damage_counts_as_absent)
{
    random_bytes(data, sizeof(data));
    ck_assert_int_eq(cache_write(directory, key, data, sizeof(data)), 0);
    ck_assert_int_eq(for_each_entry(slurp), 1);
    for (size_t bytes = 0; bytes < entry_bytes; bytes += bytes < 100 ? 1 : 97) {
        spill(bytes);
        assert_absent();
    }
    spill(entry_bytes - 1);
    assert_absent();
    entry[entry_bytes] = 0;
    spill(entry_bytes + 1);
    assert_absent();
    for (size_t k = 0; k < 400; k++) {
        size_t at = k < 100 ? k % 64 : random_below(entry_bytes);
        uint8_t bit = (uint8_t)(1 << random_below(8));

        entry[at] ^= bit;
        spill(entry_bytes);
        assert_absent();
        entry[at] ^= bit;
    }
    spill(entry_bytes);
    assert_cached();
    spill(10);
    ck_assert_int_eq(cache_write(directory, key, data, sizeof(data)), 0);
    assert_cached();
}

TEST(an_entry_under_another_name_is_none)
{
    struct hash other = {key.high ^ 1, key.low};
    char path[512];
    size_t bytes;
    void *got;

    ck_assert_int_eq(cache_write(directory, other, "other", 5), 0);
    ck_assert_int_eq(for_each_entry(slurp), 1);
    ck_assert_int_eq(cache_write(directory, key, "x", 1), 0);
    ck_assert_int_eq(cache_read(directory, key, &got, &bytes), 0);
    free(got);
    snprintf(path, sizeof(path), "%s/%016llx%016llx.bin", directory, (unsigned long long)key.high,
             (unsigned long long)key.low);
    ck_assert_int_eq(rename(entry_path, path), 0);
    assert_absent();
}

TEST(a_place_that_cannot_be_written_is_said)
{
    char below_file[128];
    size_t bytes;
    void *got;

    ck_assert_int_eq(cache_write("/proc/cbf", key, "x", 1), -ENOENT);
    ck_assert_int_eq(cache_write(directory, key, "x", 1), 0);
    ck_assert_int_eq(for_each_entry(slurp), 1);
    snprintf(below_file, sizeof(below_file), "%.100s", entry_path);
    ck_assert_int_eq(cache_write(below_file, key, "x", 1), -ENOTDIR);
    ck_assert_int_eq(cache_read(below_file, key, &got, &bytes), -ENOTDIR);
    if (geteuid() != 0) {
        chmod(directory, 0555);
        ck_assert_int_eq(cache_write(directory, key, "x", 1), -EACCES);
        chmod(directory, 0755);
    }
    ck_assert_int_eq(for_each_entry(NULL), 1);
}

/* A limit of the size of files stands for a disk that becomes full within an entry. */
TEST(a_full_disk_leaves_no_entry)
{
    struct rlimit before, small;
    struct dirent *file;

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = sizeof(data) / 2, .rlim_max = before.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    ck_assert_int_eq(cache_write(directory, key, data, sizeof(data)), -EFBIG);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_absent();
    DIR *dir = opendir(directory);
    while ((file = readdir(dir)))
        ck_assert_msg(!strcmp(file->d_name, ".") || !strcmp(file->d_name, ".."), "%s is left", file->d_name);
    closedir(dir);
    ck_assert_int_eq(cache_write(directory, key, data, sizeof(data)), 0);
    ck_assert_int_eq(for_each_entry(NULL), 1);
}

static int read_error(void)
{
    size_t bytes;
    void *got;
    int err = cache_read(directory, key, &got, &bytes);

    if (!err)
        free(got);
    return err;
}

/* A directory of which other users could change something is neither read nor written. */
static void assert_not_used(void)
{
    ck_assert_int_eq(read_error(), -EPERM);
    ck_assert_int_eq(cache_write(directory, key, "x", 1), -EPERM);
}

TEST(a_directory_that_others_may_change_is_not_used)
{
    static const mode_t modes[] = {0777, 0775, 0757, 01777};

    random_bytes(data, sizeof(data));
    ck_assert_int_eq(cache_write(directory, key, data, sizeof(data)), 0);
    for (size_t k = 0; k < ARRAY_LEN(modes); k++) {
        ck_assert_int_eq(chmod(directory, modes[k]), 0);
        assert_not_used();
    }
    ck_assert_int_eq(chmod(directory, 0755), 0);
    assert_cached();
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(directory, 12345, 0), 0);
        assert_not_used();
        ck_assert_int_eq(chown(directory, 0, 0), 0);
    } else {
        printf("not tried: a directory of another user, for which this must be root\n");
    }
    assert_cached();
}

TEST(an_entry_that_others_may_change_is_not_used)
{
    char moved[540];

    random_bytes(data, sizeof(data));
    ck_assert_int_eq(cache_write(directory, key, data, sizeof(data)), 0);
    ck_assert_int_eq(for_each_entry(slurp), 1);
    ck_assert_int_eq(chmod(entry_path, 0664), 0);
    ck_assert_int_eq(read_error(), -EPERM);
    ck_assert_int_eq(chmod(entry_path, 0600), 0);
    assert_cached();
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(entry_path, 12345, 0), 0);
        ck_assert_int_eq(read_error(), -EPERM);
        ck_assert_int_eq(chown(entry_path, 0, 0), 0);
    }
    snprintf(moved, sizeof(moved), "%s.moved", entry_path);
    ck_assert_int_eq(rename(entry_path, moved), 0);
    ck_assert_int_eq(symlink(moved, entry_path), 0);
    ck_assert_int_eq(read_error(), -ELOOP);
    ck_assert_int_eq(unlink(entry_path), 0);
    ck_assert_int_eq(mkfifo(entry_path, 0600), 0);
    ck_assert_int_eq(read_error(), -EINVAL); /* at once */
    ck_assert_int_eq(cache_write(directory, key, data, sizeof(data)), 0);
    assert_cached();
}

/* In a process of its own: writes, and reads whatever is there. */
static void write_and_read(void)
{
    for (int k = 0; k < 200; k++) {
        size_t bytes;
        void *got;
        int err;

        if (cache_write(directory, key, data, sizeof(data)))
            _exit(2);
        err = cache_read(directory, key, &got, &bytes);
        if (err || bytes != sizeof(data) || memcmp(got, data, bytes) != 0)
            _exit(3);
        free(got);
    }
    _exit(0);
}

/* Runs 'fn' in N_WRITERS processes at once; all must exit with 0. */
static void at_once(void (*fn)(void))
{
    pid_t pids[N_WRITERS];
    int status;

    for (int k = 0; k < N_WRITERS; k++) {
        pids[k] = fork();
        ck_assert_int_ge(pids[k], 0);
        if (pids[k] == 0)
            fn();
    }
    for (int k = 0; k < N_WRITERS; k++) {
        ck_assert_int_eq(waitpid(pids[k], &status, 0), pids[k]);
        ck_assert_int_eq(status, 0);
    }
}

TEST(writers_do_not_disturb_each_other)
{
    random_bytes(data, sizeof(data));
    at_once(write_and_read);
    assert_cached();
    ck_assert_int_eq(for_each_entry(NULL), 1); /* nothing unfinished is left */
}

/* ---- Libraries --------------------------------------------------------------------------------------------------- */

/* What is there and broken says more than what is not there, in any order. */
TEST(a_broken_library_is_named, .end = 2)
{
    char broken[64], why[512];
    const char *const names[] = {_i == 0 ? broken : "libcbf-none.so.2", _i == 0 ? "libcbf-none.so.2" : broken, NULL};
    const struct library_symbol none = {NULL, NULL};

    snprintf(broken, sizeof(broken), "%s/broken.so", parent);
    FILE *file = fopen(broken, "w");
    ck_assert_ptr_nonnull(file);
    fputs("this is no library\n", file);
    fclose(file);
    ck_assert_int_eq(library_open(names, &none, NULL, why, sizeof(why)), -ENODEV);
    ck_assert_msg(strstr(why, broken) && strstr(why, "file too short"), "%s", why);
    unlink(broken);
    ck_assert_int_eq(library_open(names, &none, NULL, why, sizeof(why)), -ENODEV);
    ck_assert_msg(strncmp(why, names[0], strlen(names[0])) == 0 && strstr(why, "No such file"), "%s", why);
}

/* ---- The compiler ------------------------------------------------------------------------------------------------ */

static const char twice_text[] = "#include \"common/device/device.h\"\n"
                                 "#include \"kernels/filterbank/pfb_fir.h\"\n"
                                 "struct twice_args { float *values; uint32_t n; };\n"
                                 "extern __shared__ float4 shared_memory[];\n"
                                 "extern \"C\" __global__ void twice(const struct twice_args args)\n"
                                 "{\n"
                                 "    uint32_t i = blockIdx.x * THREADS + threadIdx.x;\n"
                                 "    if (i < args.n)\n"
                                 "        args.values[i] *= 2;\n"
                                 "}\n";
static const struct kernel twice = {.name = "twice", .args_bytes = 16, .cuda_text = twice_text};
static const struct kernel_constant threads_64[] = {{"THREADS", 64}};
static const struct kernel_constant threads_128[] = {{"THREADS", 128}};
static const struct image_request request = {&twice, threads_64, 1, 9, 0};

static bool has_nvrtc(void)
{
    char why[512];

    return nvrtc_load(why, sizeof(why)) == 0;
}

/* Asked in a process of its own, so that each test loads NVRTC afresh. */
static bool child_has_nvrtc(void)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(!has_nvrtc());
    return waitpid(pid, &status, 0) == pid && status == 0;
}

static const char *no_nvrtc(void)
{
    static int has = -1;

    if (has < 0)
        has = child_has_nvrtc();
    return has ? NULL : "there is no NVRTC here";
}

/* What 'cache' gives for a request; the image is to be freed. */
static struct image get(const struct image_request *wanted)
{
    struct image image = {NULL, 0, false};

    ck_assert_int_eq(image_get(wanted, directory, &image), 0);
    return image;
}

static void assert_compiles(const struct image_request *wanted, bool expected)
{
    struct image image = get(wanted);

    ck_assert_int_eq(image.compiled, expected);
    image_free(&image);
}

TEST(the_second_time_it_is_there, .skip = no_nvrtc())
{
    struct image first = get(&request), second = get(&request);

    ck_assert(first.compiled && !second.compiled);
    ck_assert_mem_eq(first.data, "\177ELF", 4);
    ck_assert_uint_eq(first.bytes, second.bytes);
    ck_assert_mem_eq(first.data, second.data, first.bytes);
    image_free(&first);
    image_free(&second);
    ck_assert_int_eq(for_each_entry(NULL), 1);
}

/* Whatever the code depends on is in the key. */
TEST(another_request_is_compiled, .skip = no_nvrtc())
{
    static const char other_text[] = "extern \"C\" __global__ void twice() {}";
    struct kernel other = {.name = "twice", .args_bytes = 16, .cuda_text = other_text};
    struct image_request requests[] = {request, request, request, request};

    requests[0].constants = threads_128;
    requests[1].minor = 0, requests[1].major = 8;
    requests[2].minor = 6, requests[2].major = 8;
    requests[3].kernel = &other;
    assert_compiles(&request, true);
    for (size_t k = 0; k < ARRAY_LEN(requests); k++)
        assert_compiles(&requests[k], true);
    for (size_t k = 0; k < ARRAY_LEN(requests); k++)
        assert_compiles(&requests[k], false);
    assert_compiles(&request, false);
}

static void cut_off(const char *path)
{
    ck_assert_int_eq(truncate(path, 500), 0);
}

TEST(a_damaged_entry_is_compiled_again_and_replaced, .skip = no_nvrtc())
{
    assert_compiles(&request, true);
    for_each_entry(cut_off);
    assert_compiles(&request, true);
    assert_compiles(&request, false);
}

static void get_and_compare(void)
{
    struct image image;

    _exit(image_get(&request, directory, &image) != 0 || memcmp(image.data, "\177ELF", 4) != 0);
}

TEST(starts_at_once_share_a_cache, .skip = no_nvrtc())
{
    at_once(get_and_compare);
    assert_compiles(&request, false);
    ck_assert_int_eq(for_each_entry(NULL), 1);
}

/* Runs fn() and returns what it wrote to stderr. */
static const char *said_by(void (*fn)(void))
{
    static char said[8192];
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);

    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    fn();
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
    fclose(file);
    return said;
}

static int count(const char *text, const char *word)
{
    int n = 0;

    for (; (text = strstr(text, word)); text++)
        n++;
    return n;
}

static void get_without_cache(void)
{
    struct image image;

    for (int k = 0; k < 3; k++) {
        ck_assert_int_eq(image_get(&request, k < 2 ? "/proc/cbf" : NULL, &image), 0);
        ck_assert(image.compiled);
        image_free(&image);
    }
}

static void get_from_shared_cache(void)
{
    struct image image;

    chmod(directory, 0777);
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(image_get(&request, directory, &image), 0);
        ck_assert(image.compiled);
        image_free(&image);
    }
}

TEST(a_shared_cache_is_a_warning, .skip = no_nvrtc())
{
    assert_compiles(&request, true);
    const char *said = said_by(get_from_shared_cache);

    ck_assert_msg(count(said, "warning: device.kernel_cache: a compiled kernel in ") == 1, "%s", said);
    ck_assert_msg(strstr(said, directory) != NULL, "%s", said);
}

TEST(without_a_cache_there_is_one_warning, .skip = no_nvrtc())
{
    const char *said = said_by(get_without_cache);

    ck_assert_msg(count(said, "warning: device.kernel_cache: ") == 1, "%s", said);
    ck_assert_msg(count(said, "/proc/cbf") == 1, "%s", said);
}

static void get_wrong(void)
{
    static const struct kernel wrong = {.name = "wrong", .cuda_text = "int x;\n\nextern \"C\" nonsense;\n"};
    static const struct kernel missing = {.name = "missing"};
    struct image_request bad = {&wrong, NULL, 0, 9, 0};
    struct image image = {NULL, 7, false};

    ck_assert_int_eq(image_get(&bad, directory, &image), -EIO);
    bad.kernel = &missing;
    ck_assert_int_eq(image_get(&bad, directory, &image), -ENODEV);
    ck_assert_uint_eq(image.bytes, 7);
}

TEST(the_compiler_has_the_last_word, .skip = no_nvrtc())
{
    const char *said = said_by(get_wrong);

    ck_assert_msg(strstr(said, "kernel wrong does not compile with --gpu-architecture=sm_90a"), "%s", said);
    ck_assert_msg(strstr(said, "kernels/wrong.cu(3): error"), "%s", said);
    ck_assert_msg(strstr(said, "kernel missing: this build has no CUDA variant"), "%s", said);
    ck_assert_int_eq(for_each_entry(NULL), 0);
}

TEST(a_gpu_newer_than_the_compiler_gets_ptx, .skip = no_nvrtc())
{
    struct image_request newer = request;
    struct nvrtc_target target;
    char why[512];

    ck_assert_int_eq(nvrtc_choose_target(8, 0, &target, why, sizeof(why)), 0);
    ck_assert_str_eq(target.option, "--gpu-architecture=sm_80");
    ck_assert(!target.ptx);
    /* Code of 12.x runs on 12.y, y > x. */
    ck_assert_int_eq(nvrtc_choose_target(12, 9, &target, why, sizeof(why)), 0);
    ck_assert(!target.ptx && strncmp(target.option, "--gpu-architecture=sm_12", 24) == 0);
    newer.major = 99;
    struct image image = get(&newer);
    ck_assert_ptr_nonnull(strstr(image.data, ".entry twice"));
    ck_assert_int_eq(((char *)image.data)[image.bytes - 1], 0);
    image_free(&image);
    assert_compiles(&newer, false);
    ck_assert_int_eq(image_check(9, 0, why, sizeof(why)), 0);
    ck_assert_int_eq(image_check(3, 5, why, sizeof(why)), -ENOTSUP);
    ck_assert_msg(strstr(why, "does not compile for GPUs of compute capability 3.5"), "%s", why);
}

/* Each header of a kernel is one for both variants. */
TEST(headers_are_good_for_kernels, .skip = no_nvrtc())
{
    size_t n = 0;
    char text[4096] = "";

    for (size_t k = 0; k < n_kernel_texts; k++) {
        size_t length = strlen(kernel_texts[k].name);
        char cu[128];

        snprintf(cu, sizeof(cu), "%.*scu", (int)length - 1, kernel_texts[k].name); /* X.h -> X.cu */
        for (size_t i = 0; i < n_kernel_texts; i++)
            if (strcmp(kernel_texts[i].name, cu) == 0) {
                snprintf(text + strlen(text), sizeof(text) - strlen(text), "#include \"%s\"\n", kernel_texts[k].name);
                n++;
            }
    }
    printf("%zu headers of kernels that have a CUDA variant\n", n);
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "extern \"C\" __global__ void headers() {}\n");
    struct kernel headers = {.name = "headers", .cuda_text = text};
    struct image_request all = {&headers, NULL, 0, 9, 0};
    assert_compiles(&all, true);
}

/* ---- Where the cache is ------------------------------------------------------------------------------------------ */

TEST(the_cache_is_where_it_should_be)
{
    static const struct {
        const char *configured, *service, *user, *return_to, *expected;
    } table[] = {
        {"/a/b", "/s", "/u", "/h", "/a/b"},
        {"", "/s", "/u", "/h", "/s"},
        {NULL, "/s:/t", "/u", "/h", "/s"},
        {NULL, "", "/u", "/h", "/u/cbf"},
        {NULL, NULL, "relative", "/h", "/h/.cache/cbf"},
        {NULL, NULL, NULL, "/h", "/h/.cache/cbf"},
        {NULL, NULL, NULL, NULL, NULL},
    };

    for (size_t k = 0; k < ARRAY_LEN(table); k++) {
        const char *const names[] = {"CACHE_DIRECTORY", "XDG_CACHE_HOME", "HOME"};
        const char *const values[] = {table[k].service, table[k].user, table[k].return_to};

        for (size_t v = 0; v < ARRAY_LEN(names); v++)
            values[v] ? setenv(names[v], values[v], 1) : unsetenv(names[v]);
        char *found = image_cache_directory(table[k].configured);
        if (table[k].expected)
            ck_assert_str_eq(found, table[k].expected);
        else
            ck_assert_ptr_null(found);
        free(found);
    }
}

SUITE(.timeout_s = 120, .setup = setup, .teardown = teardown, .start = random_start);
