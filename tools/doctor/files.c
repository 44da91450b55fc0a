/* files.c - loads configurations with the daemons' own key tables, and derives the values that the checks need. */
#include "tools/doctor/doctor.h"

#include "common/base/units.h"
#include "fgpu/config_check.h"
#include "fgpu/gnss/gnss_config.h"
#include "fgpu/memory.h"
#include "tools/doctor/http.h"
#include "tools/doctor/nic.h"
#include "tools/doctor/sys.h"
#include "common/engine/labels.h"
#include "xbgpu/config_check.h"
#include "xbgpu/memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#define IP_UDP_BYTES 28
#define HEADER_BYTES (8 * (1 + 4 + 4) + IP_UDP_BYTES) /* size of the header in digitiser and F-engine packets */
#define TUNED_BITS   5e9 /* bits per second; below this rate, a host loses nothing even without tuning */

/* ---- The program of a file --------------------------------------------------------------------------------------- */

static const struct {
    const char *section;
    const char *program;
    enum doctor_kind kind;
} signs[] = {
    /* Sections that identify a file's program.  The first row whose section occurs in the file determines the
     * program. */
    {"engines", "cbf-control", DOCTOR_OTHER}, {"digitiser", "dsim", DOCTOR_OTHER},
    {"signals", "dsim", DOCTOR_OTHER},        {"recordings", "dsim", DOCTOR_OTHER},
    {"telescope", "visrec", DOCTOR_RECORDER}, {"output", "beamrec", DOCTOR_BEAM_RECORDER},
    {"stream", "fsim", DOCTOR_OTHER},         {"antennas", "fgpu", DOCTOR_FGPU},
    {"gates", "xbgpu", DOCTOR_XBGPU},         {"outputs", "xbgpu", DOCTOR_XBGPU},
};

static bool has_section(yaml_document_t *document, const char *name)
{
    yaml_node_t *root = yaml_document_get_root_node(document);

    if (!root || root->type != YAML_MAPPING_NODE)
        return false;
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
        yaml_node_t *key = yaml_document_get_node(document, p->key);
        if (key->type == YAML_SCALAR_NODE && strcmp((const char *)key->data.scalar.value, name) == 0)
            return true;
    }
    return false;
}

/* Returns the index of the file's row in 'signs'.  Returns -1 if no row matches, or if the file cannot be read. */
static int find_sign(const char *path)
{
    yaml_parser_t parser;
    yaml_document_t document;
    int found = -1;
    FILE *file = fopen(path, "r");

    if (!file)
        return -1;
    if (yaml_parser_initialize(&parser)) {
        yaml_parser_set_input_file(&parser, file);
        if (yaml_parser_load(&parser, &document)) {
            for (size_t i = 0; found < 0 && i < ARRAY_LEN(signs); i++)
                if (has_section(&document, signs[i].section))
                    found = (int)i;
            yaml_document_delete(&document);
        }
        yaml_parser_delete(&parser);
    }
    fclose(file);
    return found;
}

/* ---- Values derived from a file ---------------------------------------------------------------------------------- */

static double batch_s(const struct doctor_file *file, int64_t batch_samples)
{
    return (double)batch_samples / file->rate_hz;
}

static void add_recvs(struct doctor_file *file, const struct endpoint_list *list)
{
    struct endpoint *items = realloc(file->recvs.items, (file->recvs.n + list->n) * sizeof(*items));

    if (!items)
        abort();
    memcpy(items + file->recvs.n, list->items, list->n * sizeof(*items));
    file->recvs.items = items;
    file->recvs.n += list->n;
}

/* With ibverbs, replaces the sizes of socket buffers by the sizes of rings, because ibverbs has no sockets. */
static void derive_ring(struct doctor_file *file)
{
    if (file->recv->transport != TRANSPORT_IBVERBS || file->recv->pcap_file)
        return;
    file->recv_transport = TRANSPORT_IBVERBS;
    file->locked_bytes += file->memory.locked_bytes;
    file->n_recv_sockets = 0;
    file->recv_socket_bytes = 0;
    file->recv_socket_min_bytes = 0;
}

/* Adds the network load of an output's heaps. */
static void add_output(struct doctor_file *file, size_t heap_bytes, double bytes_per_s)
{
    size_t payload = heap_bytes;

    if ((size_t)file->send->packet_payload_bytes < payload)
        payload = (size_t)file->send->packet_payload_bytes;
    if (payload + HEADER_BYTES > file->send_packet_bytes)
        file->send_packet_bytes = payload + HEADER_BYTES;
    file->send_bits_per_s += 8.0 * bytes_per_s;
}

/* Adds the buffers of an output to the locked memory if the transport is ibverbs, because the NIC then reads the
 * buffers directly. */
static void add_output_buffers(struct doctor_file *file, uint64_t n_bytes)
{
    if (file->send_transport == TRANSPORT_IBVERBS)
        file->locked_bytes += n_bytes;
}

static void derive_fgpu(struct doctor_file *file, bool on_cpu)
{
    const struct fgpu_config *c = &file->fgpu;
    struct fgpu_layout layout;
    size_t fewest = SIZE_MAX, most = 0;

    fgpu_layout_init(&layout, c);
    file->memory = fgpu_memory(&layout, c, on_cpu ? 0 : DOCTOR_SHARED_BYTES, NULL, file->recv_mtu);
    file->gpudirect |= c->send.gpudirect;
    for (size_t input = 0; input < layout.n_inputs; input++)
        add_recvs(file, &fgpu_config_antenna(c, input / N_POLS)->pols[input % N_POLS]);
    for (size_t t = 0; t < layout.n_recv_threads; t++) { /* thread t receives every n_recv_threads-th input */
        size_t n = 0;
        for (size_t i = t; i < layout.n_inputs; i += layout.n_recv_threads)
            n += fgpu_config_antenna(c, i / N_POLS)->pols[i % N_POLS].n;
        fewest = n < fewest ? n : fewest;
        most = n > most ? n : most;
    }
    file->n_recv_sockets = file->recvs.n;
    file->recv_socket_bytes = (size_t)c->recv.base.buffer_bytes / fewest;
    file->recv_socket_min_bytes = (size_t)c->recv.base.buffer_bytes / most;
    file->recv_bits_per_s = (double)layout.n_inputs * file->rate_hz * (double)c->recv.sample_bits;
    file->recv_packet_bytes = layout.packet_bytes + HEADER_BYTES;
    for (size_t o = 0; o < c->outputs.n; o++) {
        const struct fgpu_config_output *output = fgpu_config_output(c, o);
        add_output(file, fgpu_batch_bytes(output) / output->destinations.n,
                   (double)(layout.n_ants * fgpu_batch_bytes(output)) / batch_s(file, fgpu_batch_samples(output)));
        uint64_t buffers =
            layout.n_ants * fgpu_output_buffers(c, output) * (uint64_t)output->n_batches * fgpu_batch_bytes(output);
        if (c->send.gpudirect)
            file->window_bytes += buffers;
        else
            /* each send thread registers all buffers */
            add_output_buffers(file, fgpu_send_shares(c, output) * buffers);
    }
    for (size_t g = 0; g < c->gnss.n; g++) {
        const size_t heap = fgpu_gnss_sizes(c, fgpu_config_gnss(c, g)).heap_bytes;
        add_output(file, heap, (double)(layout.n_ants * heap) / batch_s(file, c->recv.chunk_samples));
        add_output_buffers(file, layout.n_ants * FGPU_GNSS_N_BUFFERS * heap);
    }
}

static void derive_xbgpu(struct doctor_file *file, bool on_cpu)
{
    const struct xbgpu_config *c = &file->xbgpu;
    struct xbgpu_layout layout;

    xbgpu_layout_init(&layout, c);
    file->memory = xbgpu_memory(&layout, c, !on_cpu, file->recv_mtu);
    add_recvs(file, &c->recv.sources);
    file->n_recv_sockets = layout.n_recv_threads * c->recv.sources.n;
    file->recv_socket_bytes = (size_t)c->recv.base.buffer_bytes / c->recv.sources.n;
    file->recv_socket_min_bytes = file->recv_socket_bytes;
    file->recv_bits_per_s = 8.0 * (double)(layout.n_ants * layout.heap_bytes) / batch_s(file, layout.batch_samples);
    for (size_t o = 0; o < c->outputs.n; o++) {
        const struct xbgpu_config_output *output = xbgpu_config_output(c, o);
        size_t heap = xbgpu_dump_bytes(&layout, c, output);
        add_output(file, heap,
                   (double)heap / batch_s(file, layout.batch_samples * xbgpu_integration_batches(c, output)));
        add_output_buffers(file, xbgpu_output_buffers(c, output) * heap);
    }
    size_t heap = layout.n_chan * layout.n_spectra * 2;
    for (size_t b = 0; b < c->beams.n; b++)
        add_output(file, heap, (double)heap / batch_s(file, layout.batch_samples));
    add_output_buffers(file, xbgpu_beam_buffers(c, &layout) * layout.n_batches * c->beams.n * heap);
    for (size_t i = 0; i < c->detected.n; i++) {
        const struct xbgpu_detected_sizes s = xbgpu_detected_sizes(c, &layout, i);
        add_output(file, s.heap_bytes,
                   (double)s.heap_bytes / batch_s(file, s.heap_spectra * c->recv.samples_between_spectra));
        add_output_buffers(file, s.n_buffers * s.heap_bytes);
    }
}

static const struct config_table *table_of(const struct doctor_file *file)
{
    return file->kind == DOCTOR_FGPU ? &fgpu_config_table : &xbgpu_config_table;
}

/* Finds all keys of the file whose name contains "listen", for example http.listen. */
static void find_listeners(struct doctor_file *file, const void *values)
{
    const struct config_table *table = table_of(file);

    for (size_t i = 0; i < table->n_sections; i++) {
        const struct config_section *section = &table->sections[i];
        for (size_t k = 0; !section->repeats && k < section->n_keys; k++) {
            const struct config_key *key = &section->keys[k];
            if (key->type != CFG_ENDPOINTS || !strstr(key->name, "listen") || file->n_listeners == DOCTOR_LISTENERS_MAX)
                continue;
            struct doctor_listener *listener = &file->listeners[file->n_listeners++];
            snprintf(listener->key, sizeof(listener->key), "%s.%s", section->name, key->name);
            listener->list = (const void *)((const char *)values + section->offset + key->offset);
        }
    }
}

/* Returns the MTU of the interface that a configuration file names for receiving; 0: not known. */
static size_t find_mtu(const struct doctor *doctor, const char *asked)
{
    char interface[IF_NAMESIZE];
    int64_t mtu;

    return asked && nic_name(asked, interface) && nic_mtu(doctor->root, interface, &mtu) && mtu > 0 ? (size_t)mtu : 0;
}

static void derive(const struct doctor *doctor, struct doctor_file *file)
{
    bool f = file->kind == DOCTOR_FGPU;

    file->time = f ? &file->fgpu.time : &file->xbgpu.time;
    file->device = f ? &file->fgpu.daemon.device : &file->xbgpu.daemon.device;
    file->send = f ? &file->fgpu.send : &file->xbgpu.send;
    file->http = f ? &file->fgpu.daemon.http : &file->xbgpu.daemon.http;
    file->recv = f ? &file->fgpu.recv.base : &file->xbgpu.recv.base;
    file->recv_mtu = find_mtu(doctor, file->recv->interface);
    file->gpudirect = file->recv->gpudirect;
    find_listeners(file, f ? (const void *)&file->fgpu : (const void *)&file->xbgpu);
    file->rate_hz = timebase_decimal_to_double(file->time->adc_sample_rate_hz);
    file->send_transport = file->send->pcap_file ? TRANSPORT_UDP : file->send->transport;
    if (f)
        derive_fgpu(file, doctor_file_on_cpu(doctor, file));
    else
        derive_xbgpu(file, doctor_file_on_cpu(doctor, file));
    file->window_bytes += file->memory.direct_bytes + file->memory.frames_bytes;
    derive_ring(file);
}

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

/* Writes the fix for an error of a file.  'sentence' is the error message.  The message begins with
 * "FILE:line:column: ", or with "FILE: " if the file cannot be read. */
static void say_correction(struct finding *f, const struct doctor_file *file, const char *sentence)
{
    size_t n = strlen(file->path);
    int line;

    if (strncmp(sentence, file->path, n) == 0 && sscanf(sentence + n, ":%d:", &line) == 1)
        SAY(f->fix, "correct line %d of %s", line, file->path);
    else if (access(file->path, R_OK) != 0)
        SAY(f->fix, "give the path of a file that exists and that you may read; %s is not such a file", file->path);
    else
        SAY(f->fix, "correct %s", file->path);
}

/* Adds a finding for each error message of the daemon's own check. */
static void add_errors(struct doctor *doctor, const struct doctor_file *file)
{
    char *text = NULL, *rest = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    if (!out)
        abort();
    config_print_errors(file->config, out);
    fclose(out);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        bool warning = strstr(line, ": warning: ");
        struct finding *f = doctor_add(doctor, warning ? FINDING_WARN : FINDING_FAIL, "config.file", file->name);
        SAY(f->found, "%s", line);
        if (!warning)
            SAY(f->why, "the daemon does not start with this file, and no other check can use it");
        say_correction(f, file, line);
    }
    free(text);
}

void doctor_file_load(struct doctor *doctor, struct doctor_file *file, const char *path)
{
    const char *slash = strrchr(path, '/');
    int sign = find_sign(path);
    struct finding *f;

    file->path = path;
    file->name = slash ? slash + 1 : path;
    /* if no row matches, xbgpu's key table reports the file's errors */
    file->kind = sign < 0 ? DOCTOR_XBGPU : signs[sign].kind;
    if (file->kind == DOCTOR_OTHER) {
        f = doctor_add(doctor, FINDING_SKIPPED, "config.file", file->name);
        SAY(f->found, "this is a file of %s, but cbf-doctor examines only files of fgpu, xbgpu, visrec and beamrec",
            signs[sign].program);
        return;
    }
    if (file->kind == DOCTOR_RECORDER) {
        bool good = doctor_recorder_load(file, path);

        add_errors(doctor, file);
        if (good)
            doctor_recorder_describe(file, doctor_add(doctor, FINDING_OK, "config.file", file->name));
        return;
    }
    if (file->kind == DOCTOR_BEAM_RECORDER) {
        bool good = doctor_beam_recorder_load(file, path);

        add_errors(doctor, file);
        if (good)
            doctor_beam_recorder_describe(file, doctor_add(doctor, FINDING_OK, "config.file", file->name));
        return;
    }
    void *values = file->kind == DOCTOR_FGPU ? (void *)&file->fgpu : (void *)&file->xbgpu;
    int err = config_load(table_of(file), path, values, &file->config);
    if (!err && file->kind == DOCTOR_FGPU)
        fgpu_config_check(values, file->config);
    else if (!err)
        xbgpu_config_check(values, file->config);
    if (!file->config)
        abort();
    add_errors(doctor, file);
    file->ok = !err && config_n_errors(file->config) == 0;
    if (!file->ok)
        return;
    derive(doctor, file);
    f = doctor_add(doctor, FINDING_OK, "config.file", file->name);
    char in[DOCTOR_RATE_BYTES], out[DOCTOR_RATE_BYTES];
    SAY(f->found, "%s, receives %s, sends %s", table_of(file)->program, doctor_rate(file->recv_bits_per_s, in),
        doctor_rate(file->send_bits_per_s, out));
}

void doctor_file_free(struct doctor_file *file)
{
    void *values = file->kind == DOCTOR_FGPU ? (void *)&file->fgpu : (void *)&file->xbgpu;

    free(file->recvs.items);
    doctor_recorder_free(file);
    doctor_beam_recorder_free(file);
    if (file->config && !file->recorder && !file->beam_recorder)
        config_free(table_of(file), values, file->config);
}

void doctor_print_json(const struct doctor *doctor, FILE *out)
{
    const char **paths = calloc(doctor->n_files + 1, sizeof(*paths));

    if (!paths)
        abort();
    for (size_t i = 0; i < doctor->n_files; i++)
        paths[i] = doctor->files[i].path;
    report_print_json(&doctor->report, paths, doctor->n_files, out);
    free(paths);
}

bool doctor_file_runs(const struct doctor_file *file)
{
    char *page = file->http->listen.n ? doctor_metrics_get(&file->http->listen.items[0]) : NULL;
    bool answers = page && strstr(page, file->kind == DOCTOR_FGPU ? "\nfgpu_" : "\nxbgpu_");

    free(page);
    return answers || sys_runs_file(table_of(file)->program, file->path);
}

bool doctor_file_instance(const struct doctor *doctor, const struct doctor_file *file, char instance[NAME_MAX])
{
    size_t n_root = strlen(doctor->root), n = strlen(file->name);

    if (strncmp(file->path, doctor->root, n_root) != 0 ||
        strncmp(file->path + n_root, CONFIG_DIRECTORY, strlen(CONFIG_DIRECTORY)) != 0 || n <= 5)
        return false;
    snprintf(instance, NAME_MAX, "%.*s", (int)n - 5, file->name);
    return true;
}

bool doctor_file_on_cpu(const struct doctor *doctor, const struct doctor_file *file)
{
    return file->device->kind == DEVICE_CPU || (file->device->kind == DEVICE_AUTO && !file->gpu_opened &&
                                                !sys_exists(doctor->root, "/proc/driver/nvidia/version"));
}

char *doctor_antenna(const struct doctor *doctor, const struct doctor_file *x, size_t feng_id,
                     const struct doctor_file **fgpu, char text[DOCTOR_NAME_BYTES])
{
    struct labels labels;

    snprintf(text, DOCTOR_NAME_BYTES, "feng %zu", feng_id);
    *fgpu = NULL;
    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_FGPU, file));)
        for (size_t a = 0; a < file->fgpu.antennas.n; a++) {
            const struct fgpu_config_antenna *ant = fgpu_config_antenna(&file->fgpu, a);
            if ((size_t)ant->feng_id != feng_id)
                continue;
            *fgpu = file;
            snprintf(text, DOCTOR_NAME_BYTES, "%s", ant->name);
        }
    if (x->xbgpu.recv.antenna_names && feng_id < (size_t)x->xbgpu.recv.n_ants) {
        if (labels_init(&labels, (size_t)x->xbgpu.recv.n_ants, x->xbgpu.recv.antenna_names,
                        x->xbgpu.recv.input_labels) == 0)
            snprintf(text, DOCTOR_NAME_BYTES, "%.*s", DOCTOR_NAME_BYTES - 1, labels.antennas[feng_id]);
        labels_fini(&labels);
    }
    return text;
}

struct doctor_file *doctor_next(const struct doctor *doctor, enum doctor_kind kind, const struct doctor_file *file)
{
    for (size_t i = file ? (size_t)(file - doctor->files) + 1 : 0; i < doctor->n_files; i++)
        if (doctor->files[i].ok && (kind == DOCTOR_ANY || doctor->files[i].kind == kind))
            return &doctor->files[i];
    return NULL;
}

/* ---- Rates ------------------------------------------------------------------------------------------------------- */

char *doctor_rate(double bits_per_s, char text[DOCTOR_RATE_BYTES])
{
    bool giga = bits_per_s >= 1e9;

    snprintf(text, DOCTOR_RATE_BYTES, "%.4g %s", bits_per_s / (giga ? 1e9 : 1e6), giga ? "Gb/s" : "Mb/s");
    return text;
}

double doctor_recv_bits_per_s(const struct doctor *doctor)
{
    double sum = 0;

    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_ANY, file));)
        sum += file->recv_bits_per_s;
    return doctor_next(doctor, DOCTOR_ANY, NULL) ? sum : -1;
}

enum finding_status doctor_tuning(const struct doctor *doctor, bool bad)
{
    double rate = doctor_recv_bits_per_s(doctor);

    return bad && (rate < 0 || rate >= TUNED_BITS) ? FINDING_WARN : FINDING_OK;
}
