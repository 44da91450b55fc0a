/* fuzz_beamrec.c - beamrec from a packet's items to its files.  One part tests to which heap a packet belongs.  The
 * other part passes batches at any times, of a voltage beam or of detected beams, through the writer thread.  The
 * target then reads the files back, with their lists of gaps.
 *
 * The target states the rules for items, gaps and files a second time.  Input: a shape, then packets and batches. */
#include "common/base/units.h"
#include "common/recv/chunk.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_service.h"
#include "tools/beamrec/header.h"
#include "tools/beamrec/recv.h"
#include "tools/beamrec/writer.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    BATCHES_MAX = 24,
    SUBSTREAMS_MAX = 4,
    POWER_MAX = 1 << 20,
    N_ITEMS = 7, /* of packets: timestamp, frequency, voltages, powers, fractions, offsets, scales */
    N_SPECTRA = 16,
    BATCH_SAMPLES = N_SPECTRA * 256,
    GAP_MAX = 5,
    PATH_BYTES = 200
};

static const struct kind {
    unsigned n_chan, n_chan_substream;
    unsigned n_beams; /* detected ones; 0: a voltage beam */
    unsigned n_windows, n_products, group_channels;
    bool is_uint8;
    unsigned bits;
} kinds[] = {{4, 4, .bits = 32},           {6, 3, .bits = 32},           {8, 2, .bits = 32},
             {4, 1, .bits = 32},           {8, 4, 2, 4, 4, 2, true, 32}, {6, 3, 1, 16, 1, 1, false, 8},
             {4, 1, 3, 2, 1, 1, false, 32}};

static char directory[] = "/dev/shm/fuzz_beamrec.XXXXXX";
static struct service *service;
static struct recording {
    struct beamrec_config config;
    struct config *book; /* the values refer to it */
    const struct kind *kind;
    size_t n_chan, n_chan_substream, n_substreams, heap_bytes;
    size_t n_rows;                    /* of a batch */
    size_t n_groups;                  /* of a substream */
    size_t dada_bytes, fil_bytes;     /* of a batch */
    unsigned n_items, items[N_ITEMS]; /* that its heaps have behind timestamp and frequency: their numbers */
    size_t offsets[N_ITEMS];          /* of these in the heap, by number */
} recordings[ARRAY_LEN(kinds)];

/* The keys of the beams. */
static void write_beams(int fd, const struct kind *kind)
{
    if (kind->n_beams == 0)
        dprintf(fd, "beams: [{name: b, sources: 239.1.1.1, voltages: %s/x0.dada, filterbank: %s/x0.fil, bits: 32}]\n",
                directory, directory);
    else
        dprintf(fd,
                "detected: [{name: b, sources: 239.1.1.1, dada: '%s/x{beam}.dada', filterbank: '%s/x{beam}.fil', "
                "bits: %u, beams: %u, products: %s, windows: %u, spectra: %u, channels: %u, format: %s}]\n",
                directory, directory, kind->bits, kind->n_beams, kind->n_products == 1 ? "I" : "IQUV", kind->n_windows,
                N_SPECTRA / kind->n_windows, kind->group_channels, kind->is_uint8 ? "uint8" : "float32");
}

/* Adds an item to the heap. */
static void add_item(struct recording *recording, unsigned item, size_t n_bytes)
{
    recording->items[recording->n_items++] = item;
    recording->offsets[item] = recording->heap_bytes;
    recording->heap_bytes += n_bytes;
}

static void set_sizes(struct recording *recording)
{
    const struct kind *kind = recording->kind;

    recording->n_chan = kind->n_chan;
    recording->n_chan_substream = kind->n_chan_substream;
    recording->n_substreams = kind->n_chan / kind->n_chan_substream;
    recording->n_rows = N_SPECTRA;
    recording->dada_bytes = N_SPECTRA * recording->n_chan * 2;
    recording->fil_bytes = N_SPECTRA * recording->n_chan * 4;
    if (kind->n_beams == 0) {
        add_item(recording, 2, recording->n_chan_substream * N_SPECTRA * 2);
        return;
    }
    recording->n_rows = kind->n_windows;
    recording->n_groups = kind->n_chan_substream / kind->group_channels;
    recording->dada_bytes = recording->fil_bytes =
        kind->n_windows * kind->n_products * kind->n_chan / kind->group_channels * kind->bits / 8;
    size_t n_cells = kind->n_beams * kind->n_products * recording->n_groups;
    add_item(recording, 4, kind->n_windows * sizeof(float));
    if (kind->is_uint8) {
        add_item(recording, 5, n_cells * sizeof(float));
        add_item(recording, 6, n_cells * sizeof(float));
    }
    add_item(recording, 3, n_cells * kind->n_windows * (kind->is_uint8 ? 1 : sizeof(float)));
}

static void load(struct recording *recording, const struct kind *kind)
{
    char path[64];
    int fd = memfd_create("config", MFD_CLOEXEC);

    assert(fd >= 0);
    dprintf(fd,
            "time: {sync_time: 1700000000, adc_sample_rate: 1e6, timebase: packets}\n"
            "stream: {channels: %u, channels_per_substream: %u, spectra_per_heap: %d, samples_between_spectra: 256}\n"
            "output: {max_gap: %f}\n", /* half a batch more */
            kind->n_chan, kind->n_chan_substream, N_SPECTRA, (GAP_MAX + 0.5) * BATCH_SAMPLES / 1e6);
    write_beams(fd, kind);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int err = config_load(&beamrec_config_table, path, &recording->config, &recording->book);
    if (err)
        config_print_errors(recording->book, stderr);
    close(fd);
    assert(!err);
    recording->kind = kind;
    set_sizes(recording);
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
        load(&recordings[kind], &kinds[kind]);
}

/* ---- Packets ----------------------------------------------------------------------------------------------------- */

static void check_packet(struct fuzz_input *input, const struct recording *recording)
{
    static const unsigned streams[] = {7};
    struct beamrec_heap heaps[8] = {[7] = beamrec_heap_of_voltages(recording->heap_bytes)};
    unsigned all = 3; /* items that must be there */
    bool items = true;

    if (recording->kind->n_beams > 0) {
        const struct beamrec_powers powers = beamrec_config_powers(&recording->config, 0);
        heaps[7] = beamrec_heap_of_powers(&powers);
    }
    const struct beamrec_recv_context context = {recording->n_chan, recording->n_chan_substream, heaps, streams};
    struct spead_packet packet = {.is_stop = fuzz_u8(input) % 16 == 0};
    struct receiver_identity identity = {.source = UINT32_MAX};

    /* As they ought to be but for what the input changes. */
    for (unsigned i = 0; i < recording->n_items; i++)
        all |= 1 << recording->items[i];
    packet.found = all & ~(fuzz_u8(input) & fuzz_u8(input));
    packet.immediate = (0x3 ^ (fuzz_u8(input) & fuzz_u8(input) & fuzz_u8(input))) & packet.found;
    packet.heap_length = recording->heap_bytes + (uint64_t)(fuzz_u8(input) % 8 == 0 ? fuzz_i8(input) : 0);
    packet.wanted[0] = (uint64_t)fuzz_u16(input) << 32 | fuzz_u16(input);
    packet.wanted[1] = (uint64_t)(fuzz_u8(input) % 8 == 0 ? fuzz_i8(input) : (int)fuzz_u8(input) % 12);
    unsigned wrong = fuzz_u8(input) % 8 == 0 ? fuzz_u8(input) : 0;
    for (unsigned i = 0; i < recording->n_items; i++) {
        unsigned item = recording->items[i];
        packet.wanted[item] = recording->offsets[item] + (wrong % recording->n_items == i ? wrong : 0);
        items = items && packet.wanted[item] == recording->offsets[item];
    }
    items = items && packet.found == all && (packet.immediate & all) == 3;
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
static bool is_wild; /* powers that are not numbers, or huge, are among those that are sent */

/* Makes a heap such as X-engines send: some windows lack antennas or all of them, and powers are whole numbers. */
static void tame(const struct recording *recording, uint8_t *heap)
{
    static const float fractions[] = {0, 0.25f, 1, 1};

    for (unsigned i = 0; i < recording->n_items; i++) {
        unsigned item = recording->items[i];
        size_t end = i + 1 < recording->n_items ? recording->offsets[recording->items[i + 1]] : recording->heap_bytes;
        for (size_t at = recording->offsets[item]; at < end && !(item == 3 && recording->kind->is_uint8); at += 4) {
            uint32_t bits;
            memcpy(&bits, heap + at, 4);
            float value = item == 4 ? fractions[bits >> 30] : (float)(bits >> 24);
            memcpy(heap + at, &value, 4);
        }
    }
}

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
    bool wild = recording->kind->n_beams > 0 && fuzz_u8(input) % 8 == 0;
    is_wild = is_wild || wild;
    for (size_t i = 0; i < recording->n_substreams; i++) {
        batch->present[i] = !(absent >> i & 1);
        if (recording->kind->n_beams > 0 && !wild)
            tame(recording, (uint8_t *)batch->heaps + i * recording->heap_bytes);
    }
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

/* x0.dada, x0-2.dada, x0-3.dada ... of beam 0 */
static void name_file(unsigned beam, unsigned number, const char *ending, char path[PATH_BYTES])
{
    if (number == 1)
        snprintf(path, PATH_BYTES, "%s/x%u%s", directory, beam, ending);
    else
        snprintf(path, PATH_BYTES, "%s/x%u-%u%s", directory, beam, number, ending);
}

/* Reads a file and removes it.  Returns its bytes, or -1 where there is none. */
static long take_file(unsigned beam, unsigned number, const char *ending, void *data, size_t n_max)
{
    char path[PATH_BYTES];

    name_file(beam, number, ending, path);
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

/* How much of the antennas' data a row has: more than 0 where it has any. */
static float fraction_of(const struct recording *recording, const struct sent *batch, size_t substream, size_t row)
{
    float fraction = 1;

    if (!batch || !batch->present[substream])
        return 0;
    if (recording->kind->n_beams > 0)
        memcpy(&fraction, batch->heaps + substream * recording->heap_bytes + 4 * row, 4);
    return fraction;
}

/* A power that came; 'group' counts within the substream. */
static double power_of(const struct recording *recording, const struct sent *batch, size_t beam, size_t substream,
                       size_t row, size_t product, size_t group)
{
    const struct kind *kind = recording->kind;
    const uint8_t *heap = (const uint8_t *)batch->heaps + substream * recording->heap_bytes;
    const uint8_t *powers = heap + recording->offsets[3];
    size_t at = ((beam * kind->n_windows + row) * kind->n_products + product) * recording->n_groups + group;
    size_t cell = (beam * kind->n_products + product) * recording->n_groups + group;
    float power, offset, scale;

    if (!kind->is_uint8) {
        memcpy(&power, powers + 4 * at, 4);
        return (double)power;
    }
    memcpy(&offset, heap + recording->offsets[5] + 4 * cell, 4);
    memcpy(&scale, heap + recording->offsets[6] + 4 * cell, 4);
    return (double)offset + (double)scale * powers[at];
}

/* A float in a file of a detected beam. */
static void check_power(const struct recording *recording, const struct sent *batch, size_t beam, size_t row,
                        size_t product, size_t group, float found)
{
    size_t substream = group / recording->n_groups;

    if (fraction_of(recording, batch, substream, row) > 0) {
        float power = (float)power_of(recording, batch, beam, substream, row, product, group % recording->n_groups);
        assert(found == power || (isnan(found) && isnan(power)));
    } else {
        assert(is_wild || (found >= 0 && found <= POWER_MAX));
    }
}

/* Both files of a detected beam have the same values, in PSRDADA files rising in frequency. */
static void check_powers(const struct recording *recording, const struct sent *batch, size_t beam, const uint8_t *dada,
                         const uint8_t *fil)
{
    const struct kind *kind = recording->kind;
    size_t n_groups = kind->n_chan / kind->group_channels, bytes = kind->bits / 8;

    for (size_t i = 0; i < kind->n_windows * kind->n_products * n_groups; i++) {
        size_t group = i % n_groups, column = i / n_groups;
        const uint8_t *value = dada + bytes * i;
        float power;
        assert(memcmp(value, fil + bytes * (column * n_groups + n_groups - 1 - group), bytes) == 0);
        if (kind->bits != 32)
            continue;
        memcpy(&power, value, sizeof(power));
        check_power(recording, batch, beam, column / kind->n_products, column % kind->n_products, group, power);
    }
}

static void check_voltages(const struct recording *recording, const struct sent *batch, const int8_t *voltages,
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
        for (size_t row = 0, n_rows; row < recording->n_rows; row += n_rows + 1) { /* that behind a gap has data */
            for (n_rows = 0; row + n_rows < recording->n_rows; n_rows++)
                if (fraction_of(recording, batch, i, row + n_rows) > 0)
                    break;
            if (n_rows > 0)
                n += (size_t)sprintf(text + n, "%zu %zu %zu %zu\n", first_row + row, n_rows,
                                     i * recording->n_chan_substream, recording->n_chan_substream);
        }
    return n;
}

/* The files of a beam with the batches [first, end). */
static void check_files(const struct recording *recording, unsigned beam, unsigned number, size_t first, size_t end)
{
    enum { FILE_MAX = BATCHES_MAX * (GAP_MAX + 2) * N_SPECTRA * 8 * 4 + 2 * BEAMREC_DADA_BYTES };
    static uint8_t dada[FILE_MAX], fil[FILE_MAX];
    static char gaps[FILE_MAX], expected[FILE_MAX];
    size_t dada_bytes = recording->dada_bytes, fil_bytes = recording->fil_bytes, n_batches = 0, n_text = 0;
    long n_dada = take_file(beam, number, ".dada", dada, FILE_MAX);
    long n_fil = take_file(beam, number, ".fil", fil, FILE_MAX);
    size_t n_all = (size_t)(sent[end - 1].number - sent[first].number + 1);

    assert(n_dada == (long)(BEAMREC_DADA_BYTES + n_all * dada_bytes));
    assert(strtoul((char *)dada + BEAMREC_DADA_SIZE_OFFSET, NULL, 10) == n_all * dada_bytes);
    const uint8_t *powers = fil + n_fil - (long)(n_all * fil_bytes);
    assert(powers > fil && memcmp(powers - 10, "HEADER_END", 10) == 0);
    for (size_t i = first; i < end; i++)
        do {
            int64_t number_here = sent[first].number + (int64_t)n_batches;
            const struct sent *batch = number_here == sent[i].number ? &sent[i] : NULL;
            const uint8_t *rows = dada + BEAMREC_DADA_BYTES + n_batches * dada_bytes;
            if (recording->kind->n_beams > 0)
                check_powers(recording, batch, beam, rows, powers + n_batches * fil_bytes);
            else
                check_voltages(recording, batch, (const int8_t *)rows, powers + n_batches * fil_bytes);
            n_text += add_gaps(recording, batch, n_batches * recording->n_rows, expected + n_text);
            n_batches++;
        } while (sent[first].number + (int64_t)n_batches <= sent[i].number);
    for (int i = 0; i < 2; i++) {
        long n_gaps = take_file(beam, number, i ? ".dada.gaps" : ".fil.gaps", gaps, FILE_MAX);
        assert(n_gaps == (n_text > 0 ? (long)n_text : -1) && (n_text == 0 || !memcmp(gaps, expected, n_text)));
    }
}

/* A batch that is not later, or much later, than the one before begins the next file.  Returns how many there are. */
static unsigned check_all(const struct recording *recording, unsigned n_beams)
{
    unsigned number = 0;

    for (size_t first = 0, end; first < n_sent; first = end) {
        for (end = first + 1; end < n_sent; end++) {
            int64_t n_absent = sent[end].number - sent[end - 1].number - 1;
            if (n_absent < 0 || n_absent > GAP_MAX)
                break;
        }
        number++;
        for (unsigned beam = 0; beam < n_beams; beam++)
            check_files(recording, beam, number, first, end);
    }
    return number;
}

static uint64_t count_partial(const struct recording *recording)
{
    uint64_t n = 0;

    for (size_t i = 0; i < n_sent; i++)
        for (size_t s = 0; s < recording->n_substreams; s++)
            for (size_t row = 0; row < recording->n_rows && sent[i].present[s]; row++)
                n += !(fraction_of(recording, &sent[i], s, row) >= 1);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct fuzz_input input = {data, n_bytes};
    struct beamrec_writer_stats stats = {0};

    if (!service)
        begin();
    const struct recording *recording = &recordings[fuzz_u8(&input) % ARRAY_LEN(kinds)];
    unsigned n_beams = recording->kind->n_beams > 0 ? recording->kind->n_beams : 1;
    n_sent = 0;
    is_wild = false;
    while (!fuzz_ended(&input) && n_sent < BATCHES_MAX) {
        if (fuzz_u8(&input) % 4 == 0)
            check_packet(&input, recording);
        else
            draw_batch(&input, recording);
    }
    write_all(recording, &stats);
    assert(counter_get(&stats.batches) == n_sent && counter_get(&stats.unwritten_batches) == 0);
    assert(counter_get(&stats.partial_windows) == count_partial(recording));
    unsigned n_files = check_all(recording, n_beams);
    assert(counter_get(&stats.files) == 2 * n_beams * (n_files > 0 ? n_files : 1));
    for (size_t i = 0; i < n_sent; i++)
        free(sent[i].heaps);
    return 0;
}
