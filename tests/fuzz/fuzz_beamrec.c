/* fuzz_beamrec.c - beamrec from a packet's items to its files: which heap a packet belongs to, and batches at any times
 * through the writer thread, read back from the files with their lists of gaps.
 *
 * The rules for items, gaps and files are stated here once more.  Input: a shape, then packets and batches. */
#include "common/base/units.h"
#include "common/recv/chunk.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_service.h"
#include "tools/beamrec/header.h"
#include "tools/beamrec/recv.h"
#include "tools/beamrec/writer.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    BATCHES_MAX = 24,
    SUBSTREAMS_MAX = 4,
    N_SPECTRA = 16,
    BATCH_SAMPLES = N_SPECTRA * 256,
    GAP_MAX = 5,
    PATH_BYTES = 200
};

static const struct {
    unsigned n_chan, n_chan_substream;
} kinds[] = {{4, 4}, {6, 3}, {8, 2}, {4, 1}};

static char directory[] = "/dev/shm/fuzz_beamrec.XXXXXX";
static struct service *service;
static struct recording {
    struct beamrec_config config;
    struct config *book; /* the values refer to it */
    size_t n_chan, n_chan_substream, n_substreams, heap_bytes;
} recordings[ARRAY_LEN(kinds)];

static void load(struct recording *recording, size_t kind)
{
    char path[64];
    int fd = memfd_create("config", MFD_CLOEXEC);

    assert(fd >= 0);
    dprintf(fd,
            "time: {sync_time: 1700000000, adc_sample_rate: 1e6, timebase: packets}\n"
            "stream: {channels: %u, channels_per_substream: %u, spectra_per_heap: %d, samples_between_spectra: 256}\n"
            "output: {max_gap: %f}\n" /* half a batch more */
            "beams: [{name: b, sources: 239.1.1.1, voltages: %s/x.dada, filterbank: %s/x.fil, bits: 32}]\n",
            kinds[kind].n_chan, kinds[kind].n_chan_substream, N_SPECTRA, (GAP_MAX + 0.5) * BATCH_SAMPLES / 1e6,
            directory, directory);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int err = config_load(&beamrec_config_table, path, &recording->config, &recording->book);
    if (err)
        config_print_errors(recording->book, stderr);
    close(fd);
    assert(!err);
    recording->n_chan = kinds[kind].n_chan;
    recording->n_chan_substream = kinds[kind].n_chan_substream;
    recording->n_substreams = recording->n_chan / recording->n_chan_substream;
    recording->heap_bytes = recording->n_chan_substream * N_SPECTRA * 2;
}

static void remove_directory(void)
{
    rmdir(directory);
}

static void begin(void)
{
    if (!mkdtemp(directory)) /* there is no memory to put files in */
        assert(mkdtemp(strcpy(directory, "/tmp/fuzz_beamrec.XXXXXX")));
    atexit(remove_directory);
    service = fuzz_open_service();
    for (size_t kind = 0; kind < ARRAY_LEN(kinds); kind++)
        load(&recordings[kind], kind);
}

/* ---- Packets ----------------------------------------------------------------------------------------------------- */

static void check_packet(struct fuzz_input *input, const struct recording *recording)
{
    static const unsigned streams[] = {7};
    struct beamrec_heap heaps[8] = {[7] = beamrec_heap_of_voltages(recording->heap_bytes)};
    const struct beamrec_recv_context context = {recording->n_chan, recording->n_chan_substream, heaps, streams};
    struct spead_packet packet = {.is_stop = fuzz_u8(input) % 16 == 0};
    struct receiver_identity identity = {.source = UINT32_MAX};

    /* Timestamp, frequency, voltages: as they ought to be but for what the input changes. */
    packet.found = 0x7 & ~(fuzz_u8(input) & fuzz_u8(input));
    packet.immediate = (0x3 ^ (fuzz_u8(input) & fuzz_u8(input) & fuzz_u8(input))) & packet.found;
    packet.heap_length = recording->heap_bytes + (uint64_t)(fuzz_u8(input) % 8 == 0 ? fuzz_i8(input) : 0);
    packet.wanted[0] = (uint64_t)fuzz_u16(input) << 32 | fuzz_u16(input);
    packet.wanted[1] = (uint64_t)(fuzz_u8(input) % 8 == 0 ? fuzz_i8(input) : (int)fuzz_u8(input) % 12);
    packet.wanted[2] = fuzz_u8(input) % 8 == 0 ? fuzz_u8(input) : 0;
    bool items = packet.found == 7 && (packet.immediate & 7) == 3 && packet.wanted[2] == 0;
    bool chan = packet.wanted[1] < recording->n_chan && packet.wanted[1] % recording->n_chan_substream == 0;
    bool ours = !packet.is_stop && items && packet.heap_length == recording->heap_bytes && chan;
    enum reject reject = beamrec_recv_identify(&context, 0, &packet, &identity);
    assert((reject == REJECT_NONE) == ours && (reject == REJECT_STOP) == packet.is_stop);
    if (reject == REJECT_NONE)
        assert(identity.member == 7 && identity.source == packet.wanted[1] / recording->n_chan_substream &&
               identity.wire_timestamp == packet.wanted[0]);
    else
        assert(identity.source == UINT32_MAX);
}

/* ---- Batches ----------------------------------------------------------------------------------------------------- */

static struct sent {
    int64_t number;
    uint8_t present[SUBSTREAMS_MAX];
    int8_t *heaps; /* [substream][heap_bytes] */
} sent[BATCHES_MAX];
static size_t n_sent;

/* A batch behind the one before, or anywhere. */
static void draw_batch(struct fuzz_input *input, const struct recording *recording)
{
    struct sent *batch = &sent[n_sent];
    unsigned how = fuzz_u8(input), absent = fuzz_u8(input) & fuzz_u8(input), random = fuzz_u16(input);
    size_t n_bytes = recording->n_substreams * recording->heap_bytes;

    batch->number = n_sent > 0 ? sent[n_sent - 1].number + 1 : 1000;
    batch->number += how < 128 ? 0 : how < 200 ? (int64_t)how % 8 : fuzz_i8(input);
    batch->number = batch->number < 0 ? 0 : batch->number;
    batch->heaps = (int8_t *)fuzz_exact(n_bytes);
    for (size_t i = 0; i < n_bytes; i++) {
        random = random * 1664525 + 1013904223;
        batch->heaps[i] = (int8_t)(random >> 24);
    }
    for (size_t i = 0; i < recording->n_substreams; i++)
        batch->present[i] = !(absent >> i & 1);
    n_sent++;
}

static void write_all(const struct recording *recording, struct beamrec_writer_stats *stats)
{
    static struct device *device; /* holds the chunks' memory */
    struct inbox *free_chunks, *inbox;
    struct chunk_pool *pool;
    struct beamrec_writer *writer;
    struct inbox_item item;
    char why[600] = "";
    const struct chunk_shape chunks = {
        .n_chunks = 2, .n_heaps = recording->n_substreams, .heap_bytes = recording->heap_bytes};

    if (!device)
        assert(!device_open(&(struct device_config){.kind = DEVICE_CPU, .n_threads = 1}, &device, why, sizeof(why)));
    assert(inbox_create(2, &free_chunks) == 0 && inbox_create(2, &inbox) == 0);
    assert(chunk_pool_create(device, &chunks, 0, free_chunks, BEAMREC_ITEM_CHUNK, &pool, why, sizeof(why)) == 0);
    const struct beamrec_writer_config config = {
        .inbox = inbox,
        .config = &recording->config,
        .timebase = {recording->config.time.sync_time_s, recording->config.time.adc_sample_rate_hz, false},
        .service = service,
    };
    assert(beamrec_writer_create(&config, stats, &writer, why, sizeof(why)) == 0 && beamrec_writer_start(writer) == 0);
    for (size_t i = 0; i < n_sent; i++) {
        assert(inbox_pop(free_chunks, &item) == 0);
        struct chunk *chunk = item.object;
        chunk_reset(chunk, sent[i].number * BATCH_SAMPLES);
        memcpy(chunk->present, sent[i].present, recording->n_substreams);
        memcpy(chunk->payload, sent[i].heaps, recording->n_substreams * recording->heap_bytes);
        buffer_ref_set(&chunk->ref, 1);
        inbox_push(inbox, &(struct inbox_item){BEAMREC_ITEM_CHUNK, 0, chunk});
    }
    inbox_stop(inbox);
    assert(beamrec_writer_join(writer) == 0 && inbox_length(free_chunks) == 2);
    beamrec_writer_destroy(writer);
    chunk_pool_destroy(pool);
    inbox_destroy(inbox);
    inbox_destroy(free_chunks);
}

/* ---- What the files have ----------------------------------------------------------------------------------------- */

/* x.dada, x-2.dada, x-3.dada ... */
static void name_file(unsigned number, const char *ending, char path[PATH_BYTES])
{
    if (number == 1)
        snprintf(path, PATH_BYTES, "%s/x%s", directory, ending);
    else
        snprintf(path, PATH_BYTES, "%s/x-%u%s", directory, number, ending);
}

/* Reads a file and removes it.  Returns its bytes, or -1 where there is none. */
static long take_file(unsigned number, const char *ending, void *data, size_t n_max)
{
    char path[PATH_BYTES];

    name_file(number, ending, path);
    FILE *file = fopen(path, "rb");
    if (!file)
        return -1;
    size_t n = fread(data, 1, n_max, file);
    assert(n < n_max && fclose(file) == 0 && unlink(path) == 0);
    return (long)n;
}

/* The sample of a batch, or NULL where its heap did not come; 'batch' NULL: none of its heaps did. */
static const int8_t *find_sample(const struct recording *recording, const struct sent *batch, size_t chan,
                                 size_t spectrum)
{
    if (!batch || !batch->present[chan / recording->n_chan_substream])
        return NULL;
    return batch->heaps + (chan * N_SPECTRA + spectrum) * 2;
}

static void check_rows(const struct recording *recording, const struct sent *batch, const int8_t *voltages,
                       const uint8_t *powers)
{
    for (size_t i = 0; i < N_SPECTRA * recording->n_chan; i++) {
        size_t chan = i % recording->n_chan, spectrum = i / recording->n_chan;
        const int8_t *v = find_sample(recording, batch, chan, spectrum);
        float power;
        memcpy(&power, powers + 4 * (spectrum * recording->n_chan + recording->n_chan - 1 - chan), sizeof(power));
        assert(voltages[2 * i] == (v ? v[0] : 0) && voltages[2 * i + 1] == (v ? v[1] : 0));
        assert(v ? power == (float)(v[0] * v[0] + v[1] * v[1]) : power >= 0 && power <= 2 * 128 * 128);
    }
}

static size_t add_gaps(const struct recording *recording, const struct sent *batch, size_t first_row, char *text)
{
    size_t n = 0;

    for (size_t i = 0; i < recording->n_substreams; i++)
        if (!batch || !batch->present[i])
            n += (size_t)sprintf(text + n, "%zu %d %zu %zu\n", first_row, N_SPECTRA, i * recording->n_chan_substream,
                                 recording->n_chan_substream);
    return n;
}

/* The files with the batches [first, end). */
static void check_files(const struct recording *recording, unsigned number, size_t first, size_t end)
{
    enum { FILE_MAX = BATCHES_MAX * (GAP_MAX + 2) * N_SPECTRA * 8 * 4 + 2 * BEAMREC_DADA_BYTES };
    static uint8_t dada[FILE_MAX], fil[FILE_MAX];
    static char gaps[FILE_MAX], expected[FILE_MAX];
    size_t row_samples = N_SPECTRA * recording->n_chan, n_batches = 0, n_text = 0;
    long n_dada = take_file(number, ".dada", dada, FILE_MAX), n_fil = take_file(number, ".fil", fil, FILE_MAX);
    size_t n_all = (size_t)(sent[end - 1].number - sent[first].number + 1);

    assert(n_dada == (long)(BEAMREC_DADA_BYTES + n_all * row_samples * 2));
    assert(strtoul((char *)dada + BEAMREC_DADA_SIZE_OFFSET, NULL, 10) == n_all * row_samples * 2);
    const uint8_t *powers = fil + n_fil - (long)(n_all * row_samples * 4);
    assert(powers > fil && memcmp(powers - 10, "HEADER_END", 10) == 0);
    for (size_t i = first; i < end; i++)
        do {
            int64_t number_here = sent[first].number + (int64_t)n_batches;
            const struct sent *batch = number_here == sent[i].number ? &sent[i] : NULL;
            check_rows(recording, batch, (int8_t *)dada + BEAMREC_DADA_BYTES + n_batches * row_samples * 2,
                       powers + n_batches * row_samples * 4);
            n_text += add_gaps(recording, batch, n_batches * N_SPECTRA, expected + n_text);
            n_batches++;
        } while (sent[first].number + (int64_t)n_batches <= sent[i].number);
    for (int i = 0; i < 2; i++) {
        long n_gaps = take_file(number, i ? ".dada.gaps" : ".fil.gaps", gaps, FILE_MAX);
        assert(n_gaps == (n_text > 0 ? (long)n_text : -1) && (n_text == 0 || !memcmp(gaps, expected, n_text)));
    }
}

/* A batch that is not later, or much later, than the one before begins the next file.  Returns how many there are. */
static unsigned check_all(const struct recording *recording)
{
    unsigned number = 0;

    for (size_t first = 0, end; first < n_sent; first = end) {
        for (end = first + 1; end < n_sent; end++) {
            int64_t n_absent = sent[end].number - sent[end - 1].number - 1;
            if (n_absent < 0 || n_absent > GAP_MAX)
                break;
        }
        check_files(recording, ++number, first, end);
    }
    return number;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct fuzz_input input = {data, n_bytes};
    struct beamrec_writer_stats stats = {0};

    if (!service)
        begin();
    const struct recording *recording = &recordings[fuzz_u8(&input) % ARRAY_LEN(kinds)];
    n_sent = 0;
    while (!fuzz_ended(&input) && n_sent < BATCHES_MAX) {
        if (fuzz_u8(&input) % 4 == 0)
            check_packet(&input, recording);
        else
            draw_batch(&input, recording);
    }
    write_all(recording, &stats);
    assert(counter_get(&stats.batches) == n_sent && counter_get(&stats.unwritten_batches) == 0);
    unsigned n_files = check_all(recording);
    assert(counter_get(&stats.files) == 2 * (n_files > 0 ? n_files : 1));
    for (size_t i = 0; i < n_sent; i++)
        free(sent[i].heaps);
    return 0;
}
