/* vworld.c - visrec in a simulated world: seeds draw X-engines, a network and a disk with faults, and a configuration.
 *
 *     build/tests/vworld [--verbose] FIRST_SEED [N_SEEDS]
 *
 * HDF5 writes real files to memory.  Afterwards each run reads them, and checks these properties:
 *   exact     each value that is not flagged is the value that the X-engine sent;
 *   complete  a heap that arrived in time is in its dump, and the dump is in a file;
 *   counted   each packet that the recorder read is in one counter, and each complete heap is in a file;
 *   kept      a kill between two writes or within a write, or a full disk, leaves a file with all dumps that were
 *             counted as written.
 * The process ends with exit status 1 and the seed at the first failure. */
#include "common/base/units.h"
#include "tests/world/disk.h"
#include "tests/world/dumps.h"
#include "tests/world/dumps_files.h"
#include "tests/world/faults.h"
#include "tests/world/network.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"
#include "tests/world/visrec_counters.h"
#include "tests/world/wire.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int visrec_main(int argc, char **argv);

#define SYNC_UNIX_S   1759990000
#define WRAP_UNIX_S   1485122094          /* sync time with which the timestamps exceed 2^48 after 0.944 s */
#define SPREAD_NS     (DUMPS_NS * 4 / 10) /* time in which the X-engines send a dump */
#define MAX_PACKETS   20000
#define MAX_KILLS     3
#define MILD_DELAY_NS (DUMPS_NS / 200) /* so slow a disk does not delay a dump by a dump's duration */
#define SENDER        "10.0.0.1"
#define STRANGER      "10.0.0.2"
#define OLD_TEXT      "an older recording"

struct scenario {
    int64_t sync_unix_s, first_number;
    unsigned n_endpoints, max_file_dumps;
    bool is_absent[DUMPS_MAX][DUMPS_MAX_SUBSTREAMS], is_astray[DUMPS_MAX][DUMPS_MAX_SUBSTREAMS];
    bool has_astray, has_jumps, has_forgery, stops_early, overwrites;
    unsigned buffer_bytes, fail_memory; /* fail_memory: as in struct device_faults */
    struct disk_faults disk;
};

/* A file that a kill would have left. */
struct killed {
    char path[DUMPS_FILES_PATH_BYTES];
    unsigned file;      /* number of the file */
    uint64_t n_counted; /* dumps in visrec_dumps_total at the kill */
};

static struct scenario s;
static struct network_port *ports[DUMPS_MAX_SUBSTREAMS];
static struct dumps_packet packets[MAX_PACKETS];
static size_t n_packets;
static uint64_t heap_cnt;
static struct killed killed[MAX_KILLS];
static unsigned n_killed;
static bool disk_ran_out;
static uint64_t n_counted_then; /* dumps in visrec_dumps_total when the disk ran out */
static char directory[] = "/dev/shm/vworld.XXXXXX";

/* ---- X-engines -------------------------------------------------------------------------------------------------- */

static void send_packet(const struct dumps_packet *fate, const struct wire_packet *packet)
{
    uint8_t bytes[DUMPS_MAX_HEAP + 256];

    if (n_packets == MAX_PACKETS)
        world_fail("more than %d packets", MAX_PACKETS);
    packets[n_packets] = *fate;
    size_t n_bytes = wire_write(packet, bytes);
    if (dumps.shape.has_crc)
        wire_add_crc(bytes, n_bytes);
    network_send_from(ports[fate->substream % s.n_endpoints],
                      inet_addr(fate->kind == DUMPS_STRANGER ? STRANGER : SENDER), bytes, n_bytes, dumps_seen,
                      &packets[n_packets++]);
}

/* Makes the packet of a part of a heap.  'payload' gets the whole heap. */
static struct wire_packet make_part(const struct dumps_packet *fate, uint8_t *payload)
{
    const struct dumps_shape *shape = &dumps.shape;
    size_t offset = fate->part * shape->part_bytes, n_left = shape->heap_bytes - offset;
    struct wire_packet packet = {
        .heap_cnt = heap_cnt++,
        .heap_bytes = shape->heap_bytes,
        .offset = offset,
        .payload_bytes = n_left < shape->part_bytes ? n_left : shape->part_bytes,
        .payload = payload + offset,
        .n_items = 3,
        .items = {{WIRE_TIMESTAMP, false, (uint64_t)(dumps.numbers[fate->dump] * DUMPS_SAMPLES)},
                  {WIRE_FREQUENCY, false, fate->substream * shape->n_chan},
                  {WIRE_XENG_RAW, true, 0}},
    };

    if (shape->weights)
        packet.items[packet.n_items++] = (struct wire_item){WIRE_XENG_WEIGHTS, true, dumps_weights_offset()};
    if (shape->gate) {
        packet.items[packet.n_items++] = (struct wire_item){WIRE_XENG_GATE, false, 1};
        packet.items[packet.n_items++] = (struct wire_item){WIRE_GATE_SPECTRA, true, dumps_gate_offset()};
    }
    if (shape->has_crc)
        packet.items[packet.n_items++] = (struct wire_item){WIRE_CRC, false, 0};
    dumps_fill_heap(fate->dump, fate->substream, fate->kind == DUMPS_FORGED || fate->kind == DUMPS_STRANGER, payload);
    return packet;
}

static void send_part(enum dumps_kind kind, unsigned dump, unsigned substream, unsigned part)
{
    struct dumps_packet fate = {kind, dump, substream, part, false};
    uint8_t payload[DUMPS_MAX_HEAP];
    struct wire_packet packet = make_part(&fate, payload);

    switch (kind) {
    case DUMPS_FAR:
        fate.is_astray = s.is_astray[dump][substream];
        packet.items[0].value += DUMPS_FAR_AWAY * (uint64_t)DUMPS_SAMPLES;
        break;
    case DUMPS_NO_ITEMS: packet.items[world_random(3)].id = 0x7FF; break;
    case DUMPS_HEAP_SIZE: packet.heap_bytes += 8; break;
    case DUMPS_ALIGNMENT:
        packet.offset += 4;
        packet.payload_bytes -= 4;
        break;
    case DUMPS_BAD_TIMESTAMP: packet.items[0].value += 1 + world_random(DUMPS_SAMPLES - 1); break;
    case DUMPS_BAD_FREQUENCY:
        packet.items[1].value = dumps.shape.n_chan * dumps.shape.n_substreams + world_random(100);
        break;
    default: break;
    }
    send_packet(&fate, &packet);
}

/* Sends a descriptor heap or a stop heap of a substream. */
static void send_control(enum dumps_kind kind, unsigned substream)
{
    static const uint8_t payload[64];
    const struct dumps_packet fate = {.kind = kind, .substream = substream};
    const bool is_stop = kind == DUMPS_STOP;
    const struct wire_packet packet = {
        .heap_cnt = heap_cnt++,
        .heap_bytes = is_stop ? 1 : sizeof(payload),
        .payload_bytes = is_stop ? 1 : sizeof(payload),
        .payload = payload,
        .n_items = is_stop ? 2 : 1,
        .items = {{is_stop ? WIRE_STREAM_CTRL : WIRE_DESCRIPTOR, !is_stop, is_stop ? 2 : 0}, {0, true, 0}},
    };

    send_packet(&fate, &packet);
}

static void send_controls(enum dumps_kind kind)
{
    for (unsigned substream = 0; substream < dumps.shape.n_substreams; substream++)
        send_control(kind, substream);
}

static void send_garbage(unsigned substream)
{
    uint8_t bytes[200];
    size_t n_bytes = world_random(sizeof(bytes));

    for (size_t i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)world_random(256);
    if (n_bytes > 0)
        bytes[0] = 0;
    packets[n_packets] = (struct dumps_packet){.kind = DUMPS_MALFORMED};
    network_send(ports[substream % s.n_endpoints], bytes, n_bytes, dumps_seen, &packets[n_packets++]);
}

/* Sends packets that an attacker or a wrong configuration might send. */
static void send_forgery(unsigned dump)
{
    unsigned substream = (unsigned)world_random(dumps.shape.n_substreams);
    unsigned part = (unsigned)world_random(dumps.shape.n_parts);
    unsigned kind = DUMPS_FORGED + (unsigned)world_random(DUMPS_N_KINDS - DUMPS_FORGED);

    if (kind == DUMPS_FORGED)
        for (unsigned k = world_random(2) ? part : 0; k <= (part ? part : dumps.shape.n_parts - 1); k++)
            send_part(DUMPS_FORGED, dump, substream, k);
    else if (kind == DUMPS_FAR)
        for (unsigned i = 0, n = (unsigned)world_random(5); i <= n; i++)
            for (unsigned k = 0; k < dumps.shape.n_parts; k++)
                send_part(DUMPS_FAR, dump > i ? dump - i : 0, (substream + i) % dumps.shape.n_substreams, k);
    else if (kind == DUMPS_DESCRIPTOR || kind == DUMPS_STOP)
        send_control(kind, substream);
    else if (kind == DUMPS_MALFORMED)
        send_garbage(substream);
    else
        send_part(kind, dump, substream, part);
}

static void send_dump(unsigned dump, int64_t begin_ns)
{
    const struct dumps_shape *shape = &dumps.shape;
    unsigned n_slots = shape->n_parts * shape->n_substreams;

    for (unsigned slot = 0; slot < n_slots; slot++) {
        unsigned substream = slot % shape->n_substreams;
        run_sleep(begin_ns + SPREAD_NS * slot / n_slots - world_now_ns());
        if (!s.is_absent[dump][substream])
            send_part(s.is_astray[dump][substream] ? DUMPS_FAR : DUMPS_GENUINE, dump, substream,
                      slot / shape->n_substreams);
        if (s.has_forgery && dump > 3 && world_random(n_slots) == 0)
            send_forgery(dump);
    }
}

static void send_all(void)
{
    int64_t begin_ns = (world_now_ns() / DUMPS_NS + 2) * DUMPS_NS;
    bool was_absent = true;

    for (unsigned dump = 0; dump < dumps.n; dump++) {
        bool is_absent = true;
        for (unsigned substream = 0; substream < dumps.shape.n_substreams; substream++)
            is_absent &= s.is_absent[dump][substream];
        run_sleep(begin_ns + dump * (int64_t)DUMPS_NS - world_now_ns());
        if (is_absent != was_absent) {
            heap_cnt = 0;
            send_controls(is_absent ? DUMPS_STOP : DUMPS_DESCRIPTOR);
            world_note(is_absent ? "X-engines stop" : "X-engines start");
        }
        was_absent = is_absent;
        send_dump(dump, begin_ns + dump * (int64_t)DUMPS_NS);
    }
}

/* ---- The scenario ----------------------------------------------------------------------------------------------- */

static void draw_network(struct network_faults *f)
{
    static const double rates[] = {0, 0, 0.001, 0.01, 0.1};
    static const int64_t jitters_ns[] = {0, NS_PER_MS, DUMPS_NS / 10, SPREAD_NS, 4 * (int64_t)DUMPS_NS};

    f->lose = rates[world_random(5)];
    f->duplicate = rates[world_random(5)];
    f->truncate = rates[world_random(4)];
    f->burst = world_random(3) == 0 ? 0.005 : 0;
    f->burst_length = 40;
    f->flip = dumps.shape.has_crc ? rates[world_random(4)] : 0; /* without a CRC a flipped bit is not noticed */
    f->jitter_ns = (int64_t)world_random((uint64_t)jitters_ns[world_random(5)] + 1);
    if (world_random(3) == 0) {
        f->partition_from_ns = (int64_t)world_random(40) * DUMPS_NS;
        f->partition_to_ns = f->partition_from_ns + (int64_t)world_random(30) * DUMPS_NS;
    }
}

static void draw_disk(void)
{
    struct disk_faults *f = &s.disk;

    f->reserves = world_random(4) != 0;
    f->n_bytes = f->reserves || world_random(2) ? UINT64_MAX : 100000 + world_random(500000);
    if (f->reserves && world_random(3) == 0) {
        f->full_from_ns = (int64_t)(10 + world_random(30)) * DUMPS_NS;
        f->full_to_ns = f->full_from_ns + (int64_t)world_random(20) * DUMPS_NS;
    }
    unsigned slow = (unsigned)world_random(4);
    f->delay_ns = slow == 0 ? MILD_DELAY_NS : slow == 1 ? (int64_t)world_random(DUMPS_NS / 4) : 0;
    f->n_kills = (unsigned)world_random(MAX_KILLS + 1);
    f->kill = 0.002;
}

/* Draws a time in which the X-engines, or one of them, send nothing or false times. */
static void draw_silence(void)
{
    unsigned from = (unsigned)world_random(dumps.n), n = 1 + (unsigned)world_random(25);
    unsigned one = (unsigned)world_random(dumps.shape.n_substreams);
    bool all = world_random(2), astray = !all && !s.has_astray && !s.has_jumps && !s.has_forgery && world_random(2);

    s.has_astray |= astray;

    for (unsigned i = from; i < from + n && i < dumps.n; i++)
        for (unsigned substream = 0; substream < dumps.shape.n_substreams; substream++)
            if (all || substream == one)
                *(astray ? &s.is_astray[i][substream] : &s.is_absent[i][substream]) = true;
    world_note(all ? "X-engines restart" : astray ? "an X-engine's time is wrong" : "an X-engine is silent");
}

/* Draws the number of each dump. */
static void draw_numbers(void)
{
    int64_t shift = 0;
    unsigned epoch = 0;

    for (unsigned i = 0; i < dumps.n; i++) {
        if (s.has_jumps && i > 5 && world_random(25) == 0) {
            int64_t far = 1000 + (int64_t)world_random(10000);
            unsigned kind = (unsigned)world_random(3);
            shift += kind == 0 ? 1 + (int64_t)world_random(3 * dumps.shape.window) : kind == 1 ? far : -far;
            epoch++;
            world_note(kind == 0   ? "timestamps jump by a few dumps"
                       : kind == 1 ? "timestamps jump ahead"
                                   : "timestamps jump back");
        }
        dumps.numbers[i] = s.first_number + i + shift;
        dumps.epochs[i] = epoch;
    }
}

static void draw_scenario(void)
{
    struct dumps_shape shape = {0};

    memset(&s, 0, sizeof(s));
    n_packets = n_killed = 0;
    heap_cnt = 0;
    disk_ran_out = false;
    shape.n_ants = 1 + (unsigned)world_random(DUMPS_MAX_ANTS);
    shape.n_chan = 1 + (unsigned)world_random(DUMPS_MAX_CHANS);
    shape.n_substreams = 1 + (unsigned)world_random(DUMPS_MAX_SUBSTREAMS);
    shape.window = 1 + (unsigned)world_random(4);
    shape.weights = world_random(2);
    shape.gate = world_random(3) == 0;
    shape.gate_channels = shape.gate && world_random(2);
    shape.real = world_random(3) == 0;
    shape.has_crc = world_random(3) == 0;
    dumps_begin(&shape, 1 + (unsigned)world_random(4));
    dumps.n = 20 + (unsigned)world_random(DUMPS_MAX - 20);
    s.sync_unix_s = world_random(3) ? SYNC_UNIX_S : WRAP_UNIX_S;
    s.n_endpoints = world_random(2) ? 1 : dumps.shape.n_substreams;
    s.max_file_dumps = world_random(3) ? 0 : 1 + (unsigned)world_random(15);
    s.stops_early = world_random(4) == 0;
    s.overwrites = world_random(4) == 0;
    s.has_jumps = world_random(3) == 0;
    s.has_forgery = !s.has_jumps && world_random(2);
    for (unsigned i = 0; i < 2; i++)
        if (world_random(3) == 0)
            draw_silence();
    dumps.shape.has_clock = !s.has_jumps && world_random(2);
    s.buffer_bytes = world_random(8) ? 4000000 : 4096 * s.n_endpoints;
    s.fail_memory = world_random(40) ? 0 : 1 + (unsigned)world_random(3);
    draw_disk();
}

static void write_config(const char *path)
{
    const struct dumps_shape *shape = &dumps.shape;
    FILE *file = fopen(path, "w");

    if (!file)
        world_fail("cannot write %s", path);
    fprintf(file,
            "time: {sync_time: %lld, adc_sample_rate: %d, clock_tolerance: %d}\n"
            "recv: {sources: \"239.2.0.1+%u:7148\", interface: lo, window: %u, buffer: %u, crc: %s, from: " SENDER "}\n"
            "stream: {channels: %u, channels_per_substream: %u, weights: %s, %s spectra_per_heap: 16,\n"
            "         samples_between_spectra: 256, integration_batches: 25, values: %s}\n"
            "telescope: {name: t, latitude: -30, longitude: 21, altitude: 1000}\n"
            "antennas: [",
            (long long)s.sync_unix_s, DUMPS_RATE_HZ, shape->has_clock ? 3 : 0, s.n_endpoints - 1, shape->window,
            s.buffer_bytes, shape->has_crc ? "true" : "false", shape->n_chan * shape->n_substreams, shape->n_chan,
            shape->weights ? "true" : "false",
            shape->gate_channels ? "gate: g, gate_channels: true,"
            : shape->gate        ? "gate: g,"
                                 : "",
            shape->real ? "float32" : "int32");
    for (unsigned ant = 0; ant < shape->n_ants; ant++)
        fprintf(file, "{name: a%u, position: [%u, 2, 3]}, ", ant, 10 * ant);
    fprintf(file, "]\noutput: {file: %s/x.uvh5, max_file_time: %g, overwrite: %s}\n", directory,
            s.max_file_dumps * (DUMPS_NS * 1e-9), s.overwrites ? "true" : "false");
    fclose(file);
}

/* ---- One run ---------------------------------------------------------------------------------------------------- */

static void on_disk_event(enum disk_event event, const char *path, const char *copy)
{
    uint64_t n_counted = run_counter("visrec_dumps_total", "");

    if (event == DISK_FULL) {
        disk_ran_out = true;
        n_counted_then = n_counted;
        return;
    }
    const char *dash = strrchr(path, '-');
    killed[n_killed] = (struct killed){.file = dash ? (unsigned)atoi(dash + 1) : 1, .n_counted = n_counted};
    snprintf(killed[n_killed++].path, DUMPS_FILES_PATH_BYTES, "%s", copy);
}

/* Returns true if a dump that was read at this time may have found the disk full. */
static bool may_find_disk_full(int64_t read_ns)
{
    int64_t last_ns = read_ns + 2 * NS_PER_S + 3 * (int64_t)dumps.shape.window * DUMPS_NS;

    return disk_ran_out ||
           (s.disk.full_to_ns > s.disk.full_from_ns && read_ns <= s.disk.full_to_ns && last_ns >= s.disk.full_from_ns);
}

/* Checks that the files have all dumps with heaps that arrived in time. */
static void check_promises(const struct dumps_tally *tally)
{
    for (unsigned dump = 0; dump < dumps.n; dump++)
        for (unsigned substream = 0; substream < dumps.shape.n_substreams; substream++) {
            if (!dumps_promised(dump, substream))
                continue;
            world_note("heaps promised");
            if (!tally->has_dump[dump] && !may_find_disk_full(dumps.heaps[dump][substream].last_read_ns))
                world_fail("dump %u: a heap arrived in time, and no file has the dump", dump);
            if (tally->has_dump[dump] && !tally->has_heap[dump][substream])
                world_fail("dump %u, substream %u: flagged, and the heap arrived in time", dump, substream);
        }
}

static void check_killed(const struct dumps_tally *tally)
{
    for (unsigned i = 0; i < n_killed; i++) {
        if (run_is_verbose)
            fprintf(stderr, "%s: %llu dumps were counted\n", killed[i].path, (unsigned long long)killed[i].n_counted);
        uint64_t n_before = 0;
        for (unsigned file = 1; file < killed[i].file; file++)
            n_before += tally->n_in_file[file];
        dumps_files_check_killed(killed[i].path, killed[i].file, killed[i].n_counted - n_before, tally);
    }
}

static void write_old(const char *path)
{
    FILE *file = fopen(path, "w");

    if (!file || fputs(OLD_TEXT, file) < 0 || fclose(file) != 0)
        world_fail("cannot write %s", path);
}

/* A recorder without dumps leaves the old file as it is.  Returns true if the old file is there, and removes it. */
static bool take_old(const char *path)
{
    char text[sizeof(OLD_TEXT)] = "";
    FILE *file = fopen(path, "r");

    if (!file)
        return false;
    bool is_old = fread(text, 1, sizeof(text) - 1, file) > 0 && strcmp(text, OLD_TEXT) == 0;
    fclose(file);
    if (is_old)
        unlink(path);
    return is_old;
}

static void show_run(void)
{
    const struct network_faults *f = network_faults(ports[0]);
    const struct dumps_shape *shape = &dumps.shape;

    fprintf(
        stderr,
        "%u antennas, %u substreams of %u channels, %u packets a heap, window of %u, %u dumps, weights %d, gate %d; "
        "lose %g, duplicate %g, truncate %g, burst %g, jitter %.3f ms; reserves %d, full %.3f to %.3f s, delay %.3f "
        "ms, %u kills; digest %016llx\n",
        shape->n_ants, shape->n_substreams, shape->n_chan, shape->n_parts, shape->window, dumps.n, shape->weights,
        shape->gate, f->lose, f->duplicate, f->truncate, f->burst, (double)f->jitter_ns * 1e-6, s.disk.reserves,
        (double)s.disk.full_from_ns * 1e-9, (double)s.disk.full_to_ns * 1e-9, (double)s.disk.delay_ns * 1e-6, n_killed,
        (unsigned long long)world_digest());
    for (unsigned substream = 0; substream < shape->n_substreams; substream++) {
        for (unsigned i = 0; i < dumps.n; i++)
            fputc(s.is_absent[i][substream]       ? '-'
                  : s.is_astray[i][substream]     ? '?'
                  : !dumps_arrived(i, substream)  ? 'x'
                  : !dumps_promised(i, substream) ? 'l'
                                                  : '.',
                  stderr);
        fputc('\n', stderr);
    }
}

static void begin_network(void)
{
    struct network_faults faults = {.latency_ns = 20000};

    draw_network(&faults);
    for (unsigned i = 0; i < s.n_endpoints; i++) {
        char endpoint[32];
        snprintf(endpoint, sizeof(endpoint), "239.2.0.%u:7148", 1 + i);
        ports[i] = network_port(endpoint);
        *network_faults(ports[i]) = faults;
    }
    dumps.shape.is_prompt = faults.jitter_ns <= SPREAD_NS;
    world_note(dumps.shape.is_prompt ? "runs without packets out of the window"
                                     : "runs with packets out of the window");
}

static void note_scenario(void)
{
    if (s.sync_unix_s == WRAP_UNIX_S)
        world_note("runs across 2^48 samples");
    if (s.overwrites)
        world_note("runs that replace an old file");
    if (s.max_file_dumps > 0)
        world_note("runs with limited files");
    if (s.stops_early)
        world_note("runs that stop with open dumps");
    if (s.has_forgery)
        world_note("runs with forged packets");
    if (!s.disk.reserves)
        world_note("runs on a disk without reservations");
    if (dumps.shape.has_clock)
        world_note("runs with a clock");
    if (dumps.shape.has_crc)
        world_note("runs with CRCs");
}

/* Checks the files, and the counters if 'has_counts' is true.  'has_ended': the recorder ended by itself. */
static void check_run(struct visrec_counts counts, bool has_counts, bool has_ended, int status)
{
    char old[DUMPS_FILES_PATH_BYTES];
    struct dumps_tally tally;

    dumps_files_name(directory, 1, old);
    bool has_old = take_old(old);
    dumps_files_check(directory, s.sync_unix_s, disk_ran_out, &tally);
    if (has_old != (s.overwrites && tally.n_dumps == 0))
        world_fail(has_old ? "a dump did not replace the old file" : "no dump replaced the old file");
    /* Without dumps, the exit status is also 1 if visibilities were refused. */
    if (has_counts && tally.n_dumps > 0 && status != (counts.n_unwritten > 0))
        world_fail("%llu dumps were lost, and the exit status is %d", (unsigned long long)counts.n_unwritten, status);
    /* If a new file finds no room, the recorder goes on, perhaps in the file before. */
    if (disk_ran_out &&
        (status != 1 || tally.n_dumps < n_counted_then || (has_ended && tally.n_dumps > n_counted_then + 1)))
        world_fail("the disk ran out after %llu dumps: %llu dumps, exit status %d", (unsigned long long)n_counted_then,
                   (unsigned long long)tally.n_dumps, status);
    if (has_counts) {
        visrec_counters_check(&counts, &tally);
        world_note("runs with exact counters");
    }
    if (s.disk.delay_ns <= MILD_DELAY_NS || (has_counts && counts.n_no_chunk == 0))
        check_promises(&tally);
    check_killed(&tally);
}

/* A recorder without memory for its chunks ends, and leaves the files as they were. */
static void check_failed_start(int status)
{
    char old[DUMPS_FILES_PATH_BYTES];
    struct dumps_tally tally;

    dumps_files_name(directory, 1, old);
    bool has_old = take_old(old);
    dumps_files_check(directory, s.sync_unix_s, false, &tally);
    if (!device_faults_failed() || status == 0 || tally.n_dumps > 0 || has_old != s.overwrites)
        world_fail("the recorder did not start: exit status %d, %llu dumps, %s old file", status,
                   (unsigned long long)tally.n_dumps, has_old ? "an" : "no");
    world_note("runs that end at the start");
}

/* Sends all dumps to a recorder, stops it, and checks its files. */
static void run_recording(struct run_daemon *daemon)
{
    struct visrec_counts counts = {0};

    s.first_number = (world_unix_ns() / NS_PER_S - s.sync_unix_s) * DUMPS_RATE_HZ / DUMPS_SAMPLES - 1;
    draw_numbers();
    send_all();
    /* A recorder whose disk is broken ends by itself, and its counters vanish. */
    bool has_counts = s.disk.n_bytes == UINT64_MAX && !s.stops_early;
    if (has_counts)
        counts = visrec_counters_await_end((const struct network_port *const *)ports, s.n_endpoints);
    bool has_ended = run_has_ended();
    int status = run_stop_code(daemon);
    disk_end();
    if (run_is_verbose)
        show_run();
    check_run(counts, has_counts, has_ended, status);
}

static void run_seed(uint64_t seed, const char *path)
{
    char old[DUMPS_FILES_PATH_BYTES];

    world_begin(seed);
    network_begin();
    draw_scenario();
    begin_network();
    write_config(path);
    dumps_files_name(directory, 1, old);
    if (s.overwrites)
        write_old(old);
    note_scenario();
    disk_begin(&s.disk, on_disk_event);
    device_faults_set(&(struct device_faults){.fail_memory = s.fail_memory});
    struct run_daemon daemon = run_start("visrec", visrec_main, path);
    if (run_has_ended())
        check_failed_start(run_stop_code(&daemon));
    else
        run_recording(&daemon);
    disk_end();
    dumps_files_remove(directory);
    world_end(); /* the last packets may still be on their way */
    network_end();
}

/* The recorder writes no progress to a terminal. */
int isatty(int fd)
{
    return 0;
}

static void leave_out_rows(void)
{
    static const char no_operations[] = "visrec only takes memory from its device";

    world_leave_out("counter visrec_ignored_packets_total{reason=\"other_thread\"}", "visrec has one receive thread");
    world_leave_out("counter visrec_rejected_packets_total{reason=\"bad_source\"}",
                    "a packet's frequency determines its source, and a wrong frequency is a reason of its own");
    world_leave_out("device: operation failed", no_operations);
    world_leave_out("device: operation refused", no_operations);
    world_leave_out("device: slow operation", no_operations);
    world_leave_out("device: flipped bit", no_operations);
    world_leave_out("network: no room in the sender's socket", "visrec sends nothing");
    world_leave_out("network: refused by the sender's socket", "visrec sends nothing");
}

int main(int argc, char **argv)
{
    if (!mkdtemp(directory))
        world_fail("cannot create %s", directory);
    leave_out_rows();
    int exit_code = run_seeds(argc, argv, run_seed);
    rmdir(directory);
    return exit_code;
}
