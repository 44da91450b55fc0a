/* check_channelise_tune - the candidates of fgpu --tune, the file that keeps the choice, and a whole search on the emulated
 * device (or with CBF_TEST_DEVICE=cuda on a GPU).  That every candidate computes the same is check_channelise's. */
#include "kernels/filterbank/channelise_tune.h"

#include "tests/unit/device_under_test.h"
#include "tests/unit/test_random.h"
#include "tests/unit/test_main.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define N_WRITERS 6
#define N_WRITES  50

static char directory[64];

static void setup(void)
{
    strcpy(directory, "/tmp/cbf-tune-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
}

/* Runs fn(path) for each file of the directory; returns how many there are. */
static int for_each_file(void (*fn)(const char *path))
{
    DIR *dir = opendir(directory);
    struct dirent *entry;
    char path[400];
    int n = 0;

    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        n++;
        if (fn)
            fn(path);
    }
    closedir(dir);
    return n;
}

static void remove_file(const char *path)
{
    unlink(path);
}

static void teardown(void)
{
    for_each_file(remove_file);
    rmdir(directory);
}

/* ---- Candidates -------------------------------------------------------------------------------------------------- */

/* Whether two shapes are equal but for numbers that begin with 'prefix'; "section" belongs to the front. */
static bool same_back(const struct channelise_shape *x, const struct channelise_shape *y)
{
    size_t from = offsetof(struct channelise_shape, back_radix);

    return memcmp((const char *)x + from, (const char *)y + from, sizeof(*x) - from) == 0;
}

static bool same_front(const struct channelise_shape *x, const struct channelise_shape *y)
{
    return memcmp(x, y, offsetof(struct channelise_shape, back_radix)) == 0;
}

/* Returns how many candidates there are in all. */
static size_t check_candidates(const struct channelise_config *config, size_t shared_bytes)
{
    struct channelise_shape starts[CHANNELISE_TUNE_STARTS], candidates[CHANNELISE_TUNE_MOST];
    struct channelise_shape default_shape = channelise_fused_shape(config, shared_bytes);
    size_t n_starts = channelise_tune_starts(config, shared_bytes, starts), n_all = 0;

    if (channelise_shape_valid(config, &default_shape, shared_bytes))
        ck_assert_mem_eq(&starts[0], &default_shape, sizeof(default_shape));
    for (size_t s = 0; s < n_starts; s++) {
        ck_assert(channelise_shape_valid(config, &starts[s], shared_bytes));
        for (size_t t = 0; t < s; t++)
            ck_assert_uint_ne(starts[s].front_rows, starts[t].front_rows);
        for (unsigned group = 0; group < CHANNELISE_TUNE_N_GROUPS; group++) {
            size_t n = channelise_tune_candidates(config, shared_bytes, group, &starts[s], candidates);
            ck_assert_uint_lt(n, CHANNELISE_TUNE_MOST); /* none was left out */
            for (size_t i = 0; i < n; i++) {
                ck_assert(channelise_shape_valid(config, &candidates[i], shared_bytes));
                ck_assert_uint_eq(candidates[i].front_rows, starts[s].front_rows);
                ck_assert(same_front(&candidates[i], &starts[s]) != same_back(&candidates[i], &starts[s]));
                for (size_t j = 0; j < i; j++)
                    ck_assert_mem_ne(&candidates[i], &candidates[j], sizeof(candidates[i]));
            }
            n_all += n;
        }
    }
    return n_all;
}

TEST(candidates_are_valid, .unless = test_on_cuda())
{
    static const size_t shared_bytes[] = {99 << 10, 163 << 10, 227 << 10};
    static const unsigned taps[] = {1, 4, 16, 17, 32}, bits[] = {2, 8, 10, 16};

    for (unsigned log2_channels = 6; log2_channels <= 16; log2_channels++)
        for (size_t t = 0; t < ARRAY_LEN(taps); t++)
            for (size_t b = 0; b < ARRAY_LEN(bits); b++)
                for (size_t s = 0; s < ARRAY_LEN(shared_bytes); s++) {
                    struct channelise_config config = {
                        .n_chan = 1u << log2_channels, .n_taps = taps[t], .sample_bits = bits[b], .out_bits = 8};
                    size_t n = check_candidates(&config, shared_bytes[s]);
                    if (taps[t] == 16 && bits[b] == 10)
                        printf("%u channels, %zu KiB: %zu candidates\n", config.n_chan, shared_bytes[s] >> 10, n);
                    ck_assert(n > 3 || taps[t] > 16);
                }
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

/* A device that is only asked what it is. */
static struct device model_of(const char *model)
{
    struct device device = {.name = "none", .compiles = true, .shared_bytes = 227 << 10, .cache_directory = directory};

    snprintf(device.model, sizeof(device.model), "%s", model);
    return device;
}

static const struct channelise_work work = {
    .config = {.n_chan = 4096,
               .n_taps = 16,
               .sample_bits = 10,
               .spectra_per_heap = 256,
               .n_batches = 2,
               .out_bits = 8,
               .dither = true},
    .append_spectra = 100,
};

/* Some other valid choice than the default. */
static struct channelise_choice some_choice(const struct device *device)
{
    struct channelise_shape candidates[CHANNELISE_TUNE_MOST];
    struct channelise_shape base = channelise_fused_shape(&work.config, device->shared_bytes);
    size_t n = channelise_tune_candidates(&work.config, device->shared_bytes, 0, &base, candidates);

    return (struct channelise_choice){.shape = candidates[random_below(n)]};
}

static void assert_loads(struct device *device, const struct channelise_work *what,
                         const struct channelise_choice *expected)
{
    struct channelise_choice got;
    char why[5000] = "";

    memset(&got, 0xee, sizeof(got));
    ck_assert_msg(channelise_choice_load(device, what, &got, why, sizeof(why)) == 0, "%s", why);
    ck_assert_mem_eq(&got, expected, sizeof(got));
}

static void assert_refused(struct device *device, const struct channelise_work *what, int err, const char *words)
{
    struct channelise_choice got, before;
    char why[5000] = "";

    memset(&got, 0xee, sizeof(got));
    before = got;
    ck_assert_int_eq(channelise_choice_load(device, what, &got, why, sizeof(why)), err);
    ck_assert_msg(strstr(why, words) != NULL, "'%s' has no '%s'", why, words);
    ck_assert_mem_eq(&got, &before, sizeof(got));
}

TEST(what_is_stored_is_loaded, .unless = test_on_cuda())
{
    struct device device = model_of("NVIDIA H200/NVL, compute capability 9.0");
    struct channelise_choice first = some_choice(&device), second = some_choice(&device);
    struct channelise_work other;

    assert_refused(&device, &work, -ENOENT, "");
    ck_assert_int_eq(channelise_choice_store(&device, &work, &first), 0);
    assert_loads(&device, &work, &first);
    ck_assert_int_eq(channelise_choice_store(&device, &work, &second), 0);
    assert_loads(&device, &work, &second);
    ck_assert_int_eq(for_each_file(NULL), 1);
    other = work;
    other.config.seed = 17; /* does not count */
    assert_loads(&device, &other, &second);
    for (int i = 0; i < 8; i++) {
        other = work;
        switch (i) {
        case 0: other.config.n_chan *= 2; break;
        case 1: other.config.n_taps++; break;
        case 2: other.config.sample_bits = 8; break;
        case 3: other.config.out_bits = 4; break;
        case 4: other.config.dither = false; break;
        case 5: other.config.spectra_per_heap = 128; break;
        case 6: other.config.n_batches = 1; break;
        case 7: other.append_spectra = 64; break;
        }
        assert_refused(&device, &other, -ENOENT, "");
    }
    /* A device without a directory, and one that does not compile, have no choices. */
    device.compiles = false;
    assert_refused(&device, &work, -ENOENT, "");
    device.compiles = true;
    device.cache_directory = NULL;
    assert_refused(&device, &work, -ENOENT, "");
    ck_assert_int_eq(channelise_choice_store(&device, &work, &first), -ENOENT);
    device.cache_directory = "/tmp/cbf-tune-is-not-there";
    ck_assert_int_eq(channelise_choice_store(&device, &work, &first), -ENOENT);
}

static char text[4096], file_path[400];

static void slurp(const char *path)
{
    FILE *file = fopen(path, "r");

    snprintf(file_path, sizeof(file_path), "%s", path);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
}

static void spew(const char *path, const char *what, size_t bytes)
{
    FILE *file = fopen(path, "w");

    ck_assert_uint_eq(fwrite(what, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
}

/* The stored text with the first 'old' replaced. */
static void spew_changed(const char *old, const char *new)
{
    char changed[8192];
    const char *at = strstr(text, old);

    ck_assert_msg(at != NULL, "no '%s' in %s", old, text);
    snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    spew(file_path, changed, strlen(changed));
}

TEST(files_that_others_may_change_are_ignored, .unless = test_on_cuda())
{
    struct device device = model_of("NVIDIA H200, compute capability 9.0");
    struct channelise_choice choice = some_choice(&device);

    ck_assert_int_eq(channelise_choice_store(&device, &work, &choice), 0);
    for_each_file(slurp);
    ck_assert_int_eq(chmod(file_path, 0666), 0);
    assert_refused(&device, &work, -EPERM, "is ignored, as it cannot be trusted: ");
    ck_assert_int_eq(chmod(file_path, 0644), 0);
    assert_loads(&device, &work, &choice);
    ck_assert_int_eq(chmod(directory, 0777), 0);
    assert_refused(&device, &work, -EPERM, "is ignored, as it cannot be trusted: ");
}

TEST(wrong_files_are_ignored, .unless = test_on_cuda())
{
    struct device device = model_of("NVIDIA H200, compute capability 9.0");
    struct device other = model_of("NVIDIA L40, compute capability 8.9");
    struct channelise_choice choice = some_choice(&device);
    struct channelise_work sizes = work;
    char path[400], long_text[5000];

    choice.shape.front_blocks = 2;
    ck_assert_int_eq(channelise_choice_store(&device, &work, &choice), 0);
    for_each_file(slurp);
    /* Of another GPU and of other sizes, where somebody renamed it. */
    channelise_choice_path(&other, &work, path, sizeof(path));
    spew(path, text, strlen(text));
    assert_refused(&other, &work, -ESTALE, "another GPU");
    sizes.append_spectra++;
    channelise_choice_path(&device, &sizes, path, sizeof(path));
    spew(path, text, strlen(text));
    assert_refused(&device, &sizes, -ESTALE, "other sizes");
    spew_changed("kernels: ", "kernels: 0");
    assert_refused(&device, &work, -ESTALE, "other kernels");
    spew_changed("kernels: ", "back_bricks: 2\nkernels: 0"); /* which had other numbers */
    assert_refused(&device, &work, -ESTALE, "other kernels");
    /* Damaged. */
    spew(file_path, "", 0);
    assert_refused(&device, &work, -EINVAL, "lacks some lines");
    for (size_t n = 1; n < strlen(text) - 1; n++) {
        spew(file_path, text, n);
        struct channelise_choice got;
        char why[1000] = "";
        ck_assert_int_lt(channelise_choice_load(&device, &work, &got, why, sizeof(why)), 0);
    }
    spew(file_path, text, strlen(text) + 1); /* a zero behind it */
    assert_refused(&device, &work, -EINVAL, "not one of its kind");
    memset(long_text, '#', sizeof(long_text));
    spew(file_path, long_text, sizeof(long_text));
    assert_refused(&device, &work, -EINVAL, "not one of its kind");
    /* Edited. */
    spew_changed("front_blocks: 2", "front_blocks: two");
    assert_refused(&device, &work, -EINVAL, "has a line ");
    spew_changed("front_blocks: 2", "front_blocks: -2");
    assert_refused(&device, &work, -EINVAL, "has a line ");
    spew_changed("front_blocks: 2", "front_blocks: 99999999999999999999");
    assert_refused(&device, &work, -EINVAL, "has a line ");
    spew_changed("front_blocks: 2", "front_bricks: 2");
    assert_refused(&device, &work, -EINVAL, "has a line ");
    spew_changed("method: fused", "method: magic");
    assert_refused(&device, &work, -EINVAL, "has a line ");
    spew_changed("method: fused", "method: stages");
    choice.method = CHANNELISE_STAGES;
    assert_loads(&device, &work, &choice);
    choice.method = CHANNELISE_FUSED;
    spew_changed("front_blocks: 2", "front_blocks: 0");
    assert_refused(&device, &work, -EINVAL, "do not go together");
    spew_changed("method: fused\nunzip: 0", "method: stages\nunzip: 3");
    assert_refused(&device, &work, -EINVAL, "do not go together");
    spew_changed("front_section", "#front_section");
    assert_refused(&device, &work, -EINVAL, "lacks some lines");
    spew_changed("gpu: ", "#gpu: ");
    assert_refused(&device, &work, -EINVAL, "lacks some lines");
    spew(file_path, text, strlen(text));
    assert_loads(&device, &work, &choice);
    ck_assert_int_eq(unlink(file_path), 0);
    ck_assert_int_eq(mkdir(file_path, 0755), 0);
    assert_refused(&device, &work, -EISDIR, "cannot be read");
    ck_assert_int_eq(rmdir(file_path), 0);
}

/* Whatever numbers somebody writes: they are refused, or the launches that follow from them are sane. */
TEST(random_numbers, .unless = test_on_cuda())
{
    static const uint32_t usual[] = {0, 1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512};
    struct device device = model_of("any");
    struct channelise_choice choice, got;
    char why[1000];
    int n_valid = 0;

    for (int i = 0; i < 3000; i++) {
        uint32_t *numbers = (uint32_t *)&choice.shape;
        choice = some_choice(&device);
        for (size_t n = random_below(3); n > 0; n--)
            numbers[random_below(sizeof(choice.shape) / sizeof(*numbers))] =
                random_below(4) ? usual[random_below(ARRAY_LEN(usual))] : (uint32_t)random_u64();
        ck_assert_int_eq(channelise_choice_store(&device, &work, &choice), 0);
        if (channelise_choice_load(&device, &work, &got, why, sizeof(why)))
            continue;
        n_valid++;
        ck_assert(channelise_shape_valid(&work.config, &got.shape, device.shared_bytes));
        ck_assert_uint_le(got.shape.front_blocks, 32);
        ck_assert_uint_le(got.shape.back_blocks, 32);
        ck_assert_uint_le(got.shape.front_section, UINT32_MAX / 2);
    }
    ck_assert_int_gt(n_valid, 500);
    ck_assert_int_lt(n_valid, 2900);
}

/* Writers of the same choice at once, and readers: each sees one of those written, whole. */
TEST(several_at_once, .unless = test_on_cuda())
{
    struct device device = model_of("any");
    struct channelise_choice choice = some_choice(&device), got;
    char why[1000] = "";
    int status;

    choice.shape.front_section = 0;
    ck_assert_int_eq(channelise_choice_store(&device, &work, &choice), 0);
    for (int writer = 0; writer < N_WRITERS; writer++) {
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid > 0)
            continue;
        for (uint32_t i = 1; i <= N_WRITES; i++) {
            choice.shape.front_section = 64 * (uint32_t)(1 + writer); /* whatever else is in the shape */
            if (channelise_choice_store(&device, &work, &choice) ||
                channelise_choice_load(&device, &work, &got, why, sizeof(why)) || got.shape.front_section % 64)
                _exit(1);
        }
        _exit(0);
    }
    for (int writer = 0; writer < N_WRITERS; writer++) {
        ck_assert_int_gt(wait(&status), 0);
        ck_assert_int_eq(status, 0);
    }
    ck_assert_int_eq(for_each_file(NULL), 1);
}

/* ---- The search -------------------------------------------------------------------------------------------------- */

/* A device made up: a part takes the longer the further its numbers are from a target, doubled where the target's rows
 * are not met. */
struct made_up {
    struct channelise_shape target;
    double unit_ns, stages_ns;
    size_t n_measured;
    int fails_after; /* < 0: never */
};

static double distance(const struct channelise_shape *x, const struct channelise_shape *y, size_t from, size_t end)
{
    const uint32_t *a = (const uint32_t *)x, *b = (const uint32_t *)y;
    double sum = 0;

    for (size_t i = from / sizeof(*a); i < end / sizeof(*a); i++)
        sum += fabs(log2(1 + a[i]) - log2(1 + b[i]));
    return sum;
}

static int made_up_measure(void *of, const struct channelise_choice *choice, enum channelise_part part,
                           double hopeless_ns, double *ns)
{
    struct made_up *m = of;
    size_t middle = offsetof(struct channelise_shape, back_radix);

    ck_assert(choice->method == CHANNELISE_STAGES || channelise_shape_valid(&work.config, &choice->shape, 227 << 10));
    ck_assert_double_gt(hopeless_ns, 0);
    m->n_measured++;
    if (m->fails_after >= 0 && m->n_measured > (size_t)m->fails_after)
        return -EIO;
    *ns = 1 + (part == PART_FRONT ? distance(&choice->shape, &m->target, sizeof(uint32_t), middle)
                                  : distance(&choice->shape, &m->target, middle, sizeof(choice->shape)));
    if (choice->shape.front_rows != m->target.front_rows)
        *ns *= 2;
    if (choice->method == CHANNELISE_STAGES)
        *ns = m->stages_ns / (choice->unzip == 2 ? 2 : 1);
    *ns *= m->unit_ns;
    return 0;
}

static int search_made_up(struct made_up *m, struct channelise_tuned *tuned)
{
    const struct channelise_tune_config config = {.work = work, .limit_ns = 100 * NS_PER_S};

    m->n_measured = 0;
    return channelise_search(&config, 227 << 10, made_up_measure, m, tuned);
}

/* Where each number matters for itself, the search arrives at the best there is. */
TEST(search_finds_the_target, .unless = test_on_cuda())
{
    struct channelise_shape starts[CHANNELISE_TUNE_STARTS], candidates[CHANNELISE_TUNE_MOST];
    size_t n_starts = channelise_tune_starts(&work.config, 227 << 10, starts);

    for (int round = 0; round < 200; round++) {
        struct made_up m = {
            .target = starts[random_below(n_starts)], .unit_ns = 1e6, .stages_ns = 1000, .fails_after = -1};
        struct channelise_tuned tuned;
        unsigned group = (unsigned)random_below(CHANNELISE_TUNE_N_GROUPS);
        size_t n = channelise_tune_candidates(&work.config, 227 << 10, group, &m.target, candidates);

        if (n > 0)
            m.target = candidates[random_below(n)];
        ck_assert_int_eq(search_made_up(&m, &tuned), 0);
        ck_assert_mem_eq(&tuned.choice.shape, &m.target, sizeof(m.target));
        ck_assert_double_eq(tuned.best_ns, 2e6);
        ck_assert_double_ge(tuned.default_ns, 2e6);
        ck_assert(tuned.complete);
        ck_assert_int_eq(tuned.choice.method, CHANNELISE_FUSED);
        ck_assert_uint_le(tuned.n_candidates, 250);
        /* The stages, with two transforms, where they are faster. */
        m.stages_ns = 1.5;
        ck_assert_int_eq(search_made_up(&m, &tuned), 0);
        ck_assert_int_eq(tuned.choice.method, CHANNELISE_STAGES);
        ck_assert_uint_eq(tuned.choice.unzip, 2);
        ck_assert_double_eq(tuned.best_ns, 1.5e6);
        m.stages_ns = 10;
        ck_assert_int_eq(search_made_up(&m, &tuned), 0);
        ck_assert_int_eq(tuned.choice.method, CHANNELISE_FUSED);
        /* A device that fails at any time ends the search. */
        m.fails_after = (int)random_below(m.n_measured);
        memset(&tuned, 0xee, sizeof(tuned));
        ck_assert_int_eq(search_made_up(&m, &tuned), -EIO);
        ck_assert_uint_eq(m.n_measured, (size_t)m.fails_after + 1);
        ck_assert_uint_eq(tuned.n_candidates, (size_t)-1 / 0xff * 0xee);
    }
}

/* Where there is no shape, for want of shared memory, there are the stages. */
TEST(search_without_shapes, .unless = test_on_cuda())
{
    const struct channelise_tune_config config = {.work = work, .limit_ns = 100 * NS_PER_S};
    struct made_up m = {.unit_ns = 1, .stages_ns = 100, .fails_after = -1};
    struct channelise_tuned tuned;

    ck_assert_int_eq(channelise_search(&config, 1000, made_up_measure, &m, &tuned), 0);
    ck_assert_int_eq(tuned.choice.method, CHANNELISE_STAGES);
    ck_assert_uint_eq(tuned.choice.unzip, 2);
    ck_assert_double_eq(tuned.default_ns, 200);
    ck_assert_double_eq(tuned.best_ns, 100);
    ck_assert_uint_eq(m.n_measured, 6);
}

/* A whole run, limited to a few candidates; its choice is loaded by the next start. */
TEST(search)
{
    struct channelise_work small = {
        .config = {.n_chan = 128,
                   .n_taps = 4,
                   .w_cutoff = 1,
                   .sample_bits = 8,
                   .spectra_per_heap = 16,
                   .n_batches = 2,
                   .out_bits = 8,
                   .dither = true},
        .append_spectra = 20,
    };
    struct channelise_tune_config config = {
        .work = small, .run_ns = 0, .n_runs = 1, .limit_ns = 600 * NS_PER_S, .n_candidates = 9};
    struct channelise_tuned tuned;
    struct device *device;
    struct channelise *channelise;

    device = test_open_variant(true, 1);
    if (!device)
        return;
    device->cache_directory = directory;
    ck_assert_int_eq(channelise_tune(device, &config, &tuned), 0);
    ck_assert_uint_eq(tuned.n_candidates, 9);
    ck_assert(!tuned.complete);
    ck_assert_double_gt(tuned.best_ns, 0);
    ck_assert_double_le(tuned.best_ns, tuned.default_ns);
    ck_assert(tuned.choice.method == CHANNELISE_STAGES ||
              channelise_shape_valid(&small.config, &tuned.choice.shape, device_shared_bytes(device)));
    ck_assert_int_eq(channelise_choice_store(device, &small, &tuned.choice), 0);
    assert_loads(device, &small, &tuned.choice);
    channelise_choice_apply(&tuned.choice, &small.config);
    if (tuned.choice.method == CHANNELISE_FUSED)
        ck_assert_ptr_eq(small.config.shape, &tuned.choice.shape);
    ck_assert_int_eq(channelise_create(device, &small.config, &channelise), 0);
    channelise_destroy(channelise);
    device_close(device);
}

/* Zeroed, a choice stands for the defaults. */
TEST(no_choice, .unless = test_on_cuda())
{
    const struct channelise_choice none = {0};
    struct channelise_config config = work.config;

    channelise_choice_apply(&none, &config);
    ck_assert_ptr_null(config.shape);
    ck_assert_int_eq(config.method, CHANNELISE_FUSED);
    ck_assert_uint_eq(config.unzip, 0);
}

/* The shapes that the bench has been given to measure have names of members, and can be cut. */
TEST(shapes_of_the_bench, .unless = test_on_cuda())
{
    FILE *file = fopen("scripts/bench/fgpu_shapes.txt", "re");
    char line[512], *rest;
    size_t n = 0;

    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file)) {
        struct channelise_config config = {
            .n_chan = (unsigned)strtoul(line, &rest, 10), .n_taps = 16, .sample_bits = 10, .out_bits = 8};
        struct channelise_choice choice = {.method = CHANNELISE_FUSED};
        if (line[0] == '#')
            continue;
        ck_assert_msg(channelise_choice_parse(&config, 227 << 10, rest, &choice) == 0, "%u channels, line %zu",
                      config.n_chan, n);
        ck_assert_msg(channelise_shape_valid(&config, &choice.shape, 227 << 10), "%u channels, line %zu", config.n_chan,
                      n);
        n++;
    }
    ck_assert_uint_gt(n, 20);
    fclose(file);
}

static void start(void)
{
    umask(022);
    random_start();
}

SUITE(.timeout_s = 120, .setup = setup, .teardown = teardown, .start = start);
