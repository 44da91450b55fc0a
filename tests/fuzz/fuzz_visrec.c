/* fuzz_visrec.c - visrec from a packet's items to its files.  One part tests to which heap a packet belongs.  The other
 * part passes dumps of any content at any times through the writer thread, and reads them back from the files with
 * HDF5.
 *
 * The target states the rules for items, values and files a second time, as loops over antennas and polarisations.
 * Input: a shape, a limit of dumps, names that are taken, then packets and dumps. */
#include "common/recv/chunk.h"
#include "common/base/units.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_service.h"
#include "tools/visrec/files.h"
#include "tools/visrec/recv.h"
#include "tools/visrec/writer.h"

#include <fcntl.h>
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DUMPS_MAX = 12, PATH_BYTES = 200, NAMES_MAX = 4 };

/* ---- Recordings that there are ----------------------------------------------------------------------------------- */

static const struct {
    unsigned n_ants, n_chan, n_chan_substream;
    bool weights;
} kinds[] = {{1, 4, 4, false}, {2, 6, 3, true}, {3, 8, 2, true}, {4, 5, 1, false}};

static char directory[] = "/dev/shm/fuzz_visrec.XXXXXX";
static struct service *service;
static struct recording {
    struct visrec_config config;
    struct config *book; /* the values refer to it */
    struct visrec_array array;
    struct visrec_dump_shape shape;
    size_t heap_bytes, n_substreams;
} recordings[ARRAY_LEN(kinds)];

static void load(struct recording *recording, size_t kind)
{
    char path[64];
    int fd = memfd_create("config", MFD_CLOEXEC);

    assert(fd >= 0);
    dprintf(fd,
            "time: {sync_time: 1700000000, adc_sample_rate: 1e6}\n"
            "recv: {sources: 239.1.1.1}\n"
            "stream: {channels: %u, channels_per_substream: %u, weights: %s, spectra_per_heap: 16,\n"
            "         samples_between_spectra: 256, integration_batches: 10}\n"
            "telescope: {name: t, latitude: -30, longitude: 21, altitude: 1000}\n"
            "antennas: [",
            kinds[kind].n_chan, kinds[kind].n_chan_substream, kinds[kind].weights ? "true" : "false");
    for (unsigned a = 0; a < kinds[kind].n_ants; a++)
        dprintf(fd, "{name: a%u, position: [%u, 2, 3]}, ", a, 10 * a);
    dprintf(fd, "]\noutput: {file: %s/x.uvh5}\n", directory);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int err = config_load(&visrec_config_table, path, &recording->config, &recording->book);
    if (err)
        config_print_errors(recording->book, stderr);
    close(fd);
    assert(!err);
    recording->shape =
        (struct visrec_dump_shape){kinds[kind].n_chan, kinds[kind].n_chan_substream,
                                   kinds[kind].n_ants * (kinds[kind].n_ants + 1) / 2, kinds[kind].weights, 160};
    recording->n_substreams = visrec_dump_n_substreams(&recording->shape);
    recording->heap_bytes = visrec_dump_heap_bytes(&recording->shape);
    assert(visrec_array_init(&recording->array, &recording->config) == 0);
}

static void remove_directory(void)
{
    rmdir(directory);
}

static void begin(void)
{
    if (!mkdtemp(directory)) /* there is no memory to put files in */
        assert(mkdtemp(strcpy(directory, "/tmp/fuzz_visrec.XXXXXX")));
    atexit(remove_directory);
    service = fuzz_open_service();
    for (size_t kind = 0; kind < ARRAY_LEN(kinds); kind++)
        load(&recordings[kind], kind);
}

/* ---- Packets ----------------------------------------------------------------------------------------------------- */

static void check_packet(struct fuzz_input *input, const struct recording *recording)
{
    const struct visrec_dump_shape *shape = &recording->shape;
    struct spead_packet packet = {.is_stop = fuzz_u8(input) % 16 == 0};
    struct receiver_identity identity = {.source = UINT32_MAX};
    uint64_t vis_bytes = (uint64_t)shape->n_chan_substream * shape->n_baselines * 4 * 8;
    uint64_t heap_bytes = vis_bytes + (shape->weights ? shape->n_baselines * 4 : 0);

    /* Timestamp, frequency, visibilities, weights: as they ought to be but for what the input changes. */
    packet.found = 0xf & ~(fuzz_u8(input) & fuzz_u8(input));
    packet.immediate = (0x3 ^ (fuzz_u8(input) & fuzz_u8(input) & fuzz_u8(input))) & packet.found;
    packet.heap_length = heap_bytes + (uint64_t)(fuzz_u8(input) % 8 == 0 ? fuzz_i8(input) : 0);
    packet.wanted[0] = (uint64_t)fuzz_u16(input) << 32 | fuzz_u16(input);
    packet.wanted[1] = (uint64_t)(fuzz_u8(input) % 8 == 0 ? fuzz_i8(input) : (int)fuzz_u8(input) % 12);
    packet.wanted[2] = fuzz_u8(input) % 8 == 0 ? fuzz_u8(input) : 0;
    packet.wanted[3] = vis_bytes + (uint64_t)(fuzz_u8(input) % 8 == 0 ? fuzz_i8(input) : 0);
    bool items = (packet.found & 7) == 7 && (packet.immediate & 7) == 3 && packet.wanted[2] == 0;
    bool weights = !shape->weights || ((packet.found & 8) && !(packet.immediate & 8) && packet.wanted[3] == vis_bytes);
    bool chan = packet.wanted[1] < shape->n_chan && packet.wanted[1] % shape->n_chan_substream == 0;
    bool ours = !packet.is_stop && items && packet.heap_length == heap_bytes && weights && chan;
    enum reject reject = visrec_recv_identify(shape, fuzz_u8(input), &packet, &identity);
    assert((reject == REJECT_NONE) == ours && (reject == REJECT_STOP) == packet.is_stop);
    if (reject == REJECT_NONE)
        assert(identity.source == packet.wanted[1] / shape->n_chan_substream &&
               identity.wire_timestamp == packet.wanted[0]);
    else
        assert(identity.source == UINT32_MAX);
}

/* ---- Dumps ------------------------------------------------------------------------------------------------------- */

static struct sent {
    int64_t timestamp_samples;
    uint8_t *present; /* [substream] */
    uint8_t *heaps;   /* [substream][heap_bytes] */
} sent[DUMPS_MAX];
static size_t n_sent;

/* Words that say something: the mark of a missing value and its halves, the limits, weights. */
static uint32_t word_of(uint32_t random)
{
    static const uint32_t words[] = {0x80000000, 1, 0x7fffffff, 0, 160, 80, 0xffffffff, 0x80000000};

    return random & 0x100 ? random * 2654435761u : words[random >> 9 & 7];
}

static void fill_heaps(const struct recording *recording, uint32_t random, uint8_t *heaps)
{
    size_t n_words = recording->n_substreams * recording->heap_bytes / 4;

    for (size_t i = 0; i < n_words; i++) {
        random = random * 1664525 + 1013904223;
        uint32_t word = word_of(random >> 12);
        for (int byte = 0; byte < 4; byte++)
            heaps[4 * i + (size_t)byte] = (uint8_t)(word >> 8 * byte);
    }
}

/* A dump behind the one before, or anywhere. */
static void draw_dump(struct fuzz_input *input, const struct recording *recording)
{
    struct sent *dump = &sent[n_sent];
    int64_t length = visrec_config_integration_samples(&recording->config);
    int64_t index = n_sent > 0 ? sent[n_sent - 1].timestamp_samples / length : 1000;
    unsigned how = fuzz_u8(input), absent = fuzz_u8(input) & fuzz_u8(input);

    index += how < 128 ? 1 : fuzz_i8(input) * (INT64_C(1) << how % 24);
    index = index < 0 ? -index : index;
    dump->timestamp_samples = index * length;
    dump->present = fuzz_exact(recording->n_substreams);
    dump->heaps = fuzz_exact(recording->n_substreams * recording->heap_bytes);
    for (size_t i = 0; i < recording->n_substreams; i++)
        dump->present[i] = !(absent >> i & 1);
    fill_heaps(recording, fuzz_u16(input), dump->heaps);
    n_sent++;
}

static uint32_t get_word(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* ---- Through the writer ------------------------------------------------------------------------------------------ */

static void write_all(const struct recording *recording, int64_t max_dumps, struct visrec_writer_stats *stats)
{
    static struct device *device; /* holds the chunks' memory */
    struct inbox *free_chunks, *inbox;
    struct chunk_pool *pool;
    struct visrec_files *files;
    struct visrec_writer *writer;
    char why[600] = "";
    const struct chunk_shape chunks = {
        .n_chunks = 2, .n_heaps = recording->n_substreams, .heap_bytes = recording->heap_bytes};

    if (!device)
        assert(device_open(&(struct device_config){.kind = DEVICE_CPU, .n_threads = 1}, &device, why, sizeof(why)) ==
               0);
    assert(inbox_create(2, &free_chunks) == 0 && inbox_create(2, &inbox) == 0);
    assert(chunk_pool_create(device, &chunks, 0, free_chunks, VISREC_ITEM_CHUNK, &pool, why, sizeof(why)) == 0);
    assert(visrec_files_open(&recording->config, &recording->array, &files, why, sizeof(why)) == 0);
    const struct visrec_writer_config config = {
        .inbox = inbox,
        .array = &recording->array,
        .shape = recording->shape,
        .timebase = {recording->config.time.sync_time_s, recording->config.time.adc_sample_rate_hz, false},
        .integration_samples = visrec_config_integration_samples(&recording->config),
        .max_dumps = max_dumps,
        .files = files,
        .service = service,
    };
    assert(visrec_writer_create(&config, stats, &writer) == 0 && visrec_writer_start(writer) == 0);
    for (size_t d = 0; d < n_sent; d++) {
        struct inbox_item item;
        assert(inbox_pop(free_chunks, &item) == 0);
        struct chunk *chunk = item.object;
        chunk_reset(chunk, sent[d].timestamp_samples);
        memcpy(chunk->present, sent[d].present, recording->n_substreams);
        memcpy(chunk->payload, sent[d].heaps, recording->n_substreams * recording->heap_bytes);
        buffer_ref_set(&chunk->ref, 1);
        inbox_push(inbox, &(struct inbox_item){VISREC_ITEM_CHUNK, 0, chunk});
    }
    inbox_stop(inbox);
    assert(visrec_writer_join(writer) == 0);
    assert(inbox_length(free_chunks) == 2);
    assert(visrec_files_close(files, why, sizeof(why)) == 0);
    visrec_writer_destroy(writer);
    chunk_pool_destroy(pool);
    inbox_destroy(inbox);
    inbox_destroy(free_chunks);
}

/* ---- What the files have ----------------------------------------------------------------------------------------- */

static void read_set(hid_t file, const char *name, hid_t type, size_t n, size_t value_bytes, void *values)
{
    hid_t set = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(set), own = H5Dget_type(set);

    assert(set >= 0 && H5Sget_simple_extent_npoints(space) == (hssize_t)n);
    assert(type >= 0 || H5Tget_size(own) == value_bytes);
    assert(H5Dread(set, type >= 0 ? type : own, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Tclose(own);
    H5Sclose(space);
    H5Dclose(set);
}

/* One value of a dump: what the definition says of it. */
static void check_value(const struct recording *recording, const struct sent *dump, unsigned a1, unsigned a2,
                        size_t chan, unsigned pol, const int32_t vis[2], int flag, float nsamples)
{
    static const unsigned p1s[] = {0, 1, 0, 1}, p2s[] = {0, 1, 1, 0}; /* xx, yy, xy, yx */
    const struct visrec_dump_shape *shape = &recording->shape;
    size_t substream = chan / shape->n_chan_substream, baseline = (size_t)a2 * (a2 + 1) / 2 + a1;
    const uint8_t *heap = dump->heaps + substream * recording->heap_bytes;
    size_t product = 4 * baseline + p1s[pol] + 2 * p2s[pol];
    const uint8_t *in = heap + (chan % shape->n_chan_substream * 4 * shape->n_baselines + product) * 8;
    int32_t re = (int32_t)get_word(in), im = (int32_t)get_word(in + 4);
    uint32_t weight =
        shape->weights ? get_word(heap + shape->n_chan_substream * 4 * shape->n_baselines * 8 + 4 * baseline) : 160;
    bool absent = !dump->present[substream] || (re == INT32_MIN && im == 1) || weight == 0;

    assert(flag == absent);
    assert(vis[0] == (absent ? 0 : re) && vis[1] == (absent ? 0 : im == INT32_MIN ? INT32_MAX : -im));
    assert(nsamples == (absent ? 0 : (float)weight / 160.0f));
}

/* The file has the dumps [first, end). */
static void check_file(const char *path, const struct recording *recording, size_t first, size_t end)
{
    enum { ROWS_MAX = DUMPS_MAX * 10, VALUES_MAX = ROWS_MAX * 8 * 4 };
    static int32_t vis[VALUES_MAX][2];
    static int8_t flags[VALUES_MAX];
    static float nsamples[VALUES_MAX];
    static double times[ROWS_MAX];
    size_t n_baselines = recording->shape.n_baselines, n_chan = recording->shape.n_chan;
    size_t n_rows = (end - first) * n_baselines, n_values = n_rows * n_chan * 4;
    int64_t n_times;
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);

    assert(file >= 0);
    read_set(file, "Header/Ntimes", H5T_NATIVE_INT64, 1, sizeof(n_times), &n_times);
    assert(n_times == (int64_t)(end - first));
    read_set(file, "Header/time_array", H5T_NATIVE_DOUBLE, n_rows, sizeof(double), times);
    read_set(file, "Data/visdata", -1, n_values, sizeof(vis[0]), vis);
    read_set(file, "Data/flags", -1, n_values, sizeof(flags[0]), flags);
    read_set(file, "Data/nsamples", H5T_NATIVE_FLOAT, n_values, sizeof(float), nsamples);
    H5Fclose(file);
    size_t row = 0;
    for (size_t d = first; d < end; d++)
        for (unsigned a1 = 0; a1 < recording->array.n_ants; a1++)
            for (unsigned a2 = a1; a2 < recording->array.n_ants; a2++, row++) {
                double middle_s = 1.7e9 + ((double)sent[d].timestamp_samples +
                                           (double)visrec_config_integration_samples(&recording->config) / 2) /
                                              1e6;
                assert(fabs(times[row] - (2440587.5 + middle_s / 86400)) < 1e-8);
                assert(row < n_baselines || times[row] > times[row - n_baselines]);
                for (size_t i = 0; i < n_chan * 4; i++) {
                    size_t at = row * n_chan * 4 + i;
                    check_value(recording, &sent[d], a1, a2, i / 4, i % 4, vis[at], flags[at], nsamples[at]);
                }
            }
}

/* x.uvh5, x-2.uvh5, x-3.uvh5 ... without those that were taken. */
static void name_file(unsigned number, char path[PATH_BYTES])
{
    if (number == 1)
        snprintf(path, PATH_BYTES, "%s/x.uvh5", directory);
    else
        snprintf(path, PATH_BYTES, "%s/x-%u.uvh5", directory, number);
}

static bool is_taken(unsigned taken, unsigned number)
{
    return number >= 2 && number < 2 + NAMES_MAX && taken >> (number - 2) & 1;
}

static void take_names(unsigned taken)
{
    char path[PATH_BYTES];

    for (unsigned number = 2; number < 2 + NAMES_MAX; number++)
        if (is_taken(taken, number)) {
            name_file(number, path);
            close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        }
}

/* A dump that is not later than the one before begins the next free file.  Returns how many there are. */
static size_t check_files(const struct recording *recording, size_t n_dumps, unsigned taken)
{
    char path[PATH_BYTES];
    unsigned number = 1;
    size_t n_files = 0;

    for (size_t first = 0, end; first < n_dumps; first = end, number++, n_files++) {
        for (end = first + 1; end < n_dumps; end++)
            if (sent[end].timestamp_samples <= sent[end - 1].timestamp_samples)
                break;
        while (is_taken(taken, number))
            number++;
        name_file(number, path);
        check_file(path, recording, first, end);
        assert(unlink(path) == 0);
    }
    for (unsigned i = 1; i < number + NAMES_MAX + 2; i++) {
        name_file(i, path);
        assert((unlink(path) == 0) == is_taken(taken, i)); /* and no more */
    }
    return n_files;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct fuzz_input input = {data, n_bytes};

    if (!service)
        begin();
    const struct recording *recording = &recordings[fuzz_u8(&input) % ARRAY_LEN(kinds)];
    unsigned limit = fuzz_u8(&input) % 32, taken = fuzz_u8(&input) & fuzz_u8(&input);
    struct visrec_writer_stats stats = {0};

    n_sent = 0;
    while (!fuzz_ended(&input) && n_sent < DUMPS_MAX) {
        if (fuzz_u8(&input) % 4 == 0)
            draw_dump(&input, recording);
        else
            check_packet(&input, recording);
    }
    size_t n_dumps = limit > 0 && limit < n_sent ? limit : n_sent;
    take_names(taken);
    write_all(recording, limit, &stats);
    assert(counter_get(&stats.dumps) == n_dumps && counter_get(&stats.unwritten_dumps) == 0);
    size_t n_files = check_files(recording, n_dumps, taken);
    assert(counter_get(&stats.rollovers) == (n_files > 0 ? n_files - 1 : 0));
    for (size_t d = 0; d < n_sent; d++) {
        free(sent[d].present);
        free(sent[d].heaps);
    }
    return 0;
}
