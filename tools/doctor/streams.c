/* streams.c - joins the groups of all files for a while, and assigns each packet to its source. */
#include "tools/doctor/streams.h"

#include "common/base/clock.h"
#include "common/base/units.h"
#include "fgpu/config/layout.h"
#include "tools/doctor/listen.h"
#include "tools/doctor/nic.h"
#include "xbgpu/config/layout.h"

#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATE_MAX_S      0.5 /* seconds; allowance for delays by networks and by busy hosts */
#define EARLY_MAX_S     0.1 /* seconds; allowance for the errors of the clocks of two hosts */
#define LATE_HEAPS      32  /* assumed number of heaps in an F-engine's buffers, if its file was not given */
#define LATE_CHUNKS     4   /* assumed number of input chunks in an F-engine's buffers, if its file was given */
#define ELSEWHERE_MAX   16  /* greatest number of silent sources for which other interfaces are searched */
#define ELSEWHERE_MAX_S 2.0
#define INTERFACES_MAX  32

enum { WANT_TIMESTAMP, WANT_DIGITISER, WANT_STATUS, WANT_FENG, WANT_FREQUENCY, N_WANTED };
static const uint16_t wanted_ids[N_WANTED] = {SPEAD_TIMESTAMP, SPEAD_DIGITISER_ID, SPEAD_DIGITISER_STATUS,
                                              SPEAD_FENG_ID, SPEAD_FREQUENCY};

/* Owner of an endpoint. */
struct owner {
    struct stream_file *file;
    struct stream_input *input; /* input of fgpu; NULL for xbgpu, where the packet's feng_id determines the input */
    const char *interface;      /* interface on which the program listens for silent sources */
};

static void *allocate(size_t n, size_t bytes)
{
    void *memory = calloc(n ? n : 1, bytes);

    if (!memory)
        abort();
    return memory;
}

/* ---- Expected streams -------------------------------------------------------------------------------------------- */

static struct timebase timebase_of(const struct doctor_file *file)
{
    return (struct timebase){file->time->sync_time_s, file->time->adc_sample_rate_hz, false};
}

static int64_t half_ns_of(const struct doctor *doctor)
{
    return (int64_t)(doctor->seconds / 2 * (double)NS_PER_S);
}

static void expect_fgpu(const struct doctor *doctor, struct stream_file *stream)
{
    const struct fgpu_config *config = &stream->file->fgpu;

    stream->n_inputs = config->antennas.n * N_POLS;
    stream->inputs = allocate(stream->n_inputs, sizeof(*stream->inputs));
    for (size_t i = 0; i < stream->n_inputs; i++) {
        const struct fgpu_config_antenna *ant = fgpu_config_antenna(config, i / N_POLS);
        struct stream_input *input = &stream->inputs[i];
        input->endpoint = &ant->pols[i % N_POLS].items[0];
        snprintf(input->name, sizeof(input->name), "%s pol%zu", ant->name, i % N_POLS);
        input->shape = (struct source_shape){config->recv.packet_samples,
                                             (uint64_t)(config->recv.packet_samples * config->recv.sample_bits / 8),
                                             timebase_of(stream->file), half_ns_of(doctor)};
        input->id = i % N_POLS;
    }
    stream->late_max_s = LATE_MAX_S;
    stream->early_max_s = EARLY_MAX_S + (double)config->recv.packet_samples / stream->file->rate_hz;
}

static void expect_xbgpu(const struct doctor *doctor, struct stream_file *stream)
{
    const struct xbgpu_config *config = &stream->file->xbgpu;
    struct xbgpu_layout layout;

    xbgpu_layout_init(&layout, config);
    stream->n_inputs = layout.n_ants;
    stream->inputs = allocate(stream->n_inputs, sizeof(*stream->inputs));
    for (size_t i = 0; i < stream->n_inputs; i++) {
        struct stream_input *input = &stream->inputs[i];
        input->endpoint = &config->recv.sources.items[0];
        const struct doctor_file *fgpu;
        doctor_antenna(doctor, stream->file, i, &fgpu, input->name);
        input->shape = (struct source_shape){layout.batch_samples, layout.heap_bytes, timebase_of(stream->file),
                                             half_ns_of(doctor)};
        input->id = (uint64_t)config->recv.chan_offset;
    }
    double held_s = LATE_HEAPS * (double)layout.batch_samples / stream->file->rate_hz;
    for (const struct doctor_file *f = NULL; (f = doctor_next(doctor, DOCTOR_FGPU, f));) {
        double chunks_s = LATE_CHUNKS * (double)f->fgpu.recv.chunk_samples / f->rate_hz;
        held_s = chunks_s > held_s ? chunks_s : held_s;
    }
    stream->late_max_s = LATE_MAX_S + held_s;
    stream->early_max_s = EARLY_MAX_S + (double)layout.batch_samples / stream->file->rate_hz;
}

/* ---- Packets ----------------------------------------------------------------------------------------------------- */

/* Finds the input of a packet, and the packet's id.  Returns NULL if the packet belongs to no input. */
static struct stream_input *identify(const struct owner *owner, const struct spead_packet *spead,
                                     const struct listen_packet *packet, uint64_t *id)
{
    const uint32_t digitiser = 1u << WANT_TIMESTAMP | 1u << WANT_DIGITISER | 1u << WANT_STATUS;
    const uint32_t feng = 1u << WANT_TIMESTAMP | 1u << WANT_FENG | 1u << WANT_FREQUENCY;
    struct stream_file *file = owner->file;
    uint32_t needed = owner->input ? digitiser : feng;

    if ((spead->immediate & needed) != needed) {
        file->n_itemless++;
        return NULL;
    }
    if (owner->input) {
        *id = spead->wanted[WANT_DIGITISER];
        return owner->input;
    }
    *id = spead->wanted[WANT_FREQUENCY];
    if (spead->wanted[WANT_FENG] < file->n_inputs)
        return &file->inputs[spead->wanted[WANT_FENG]];
    file->n_unknown++;
    file->unknown_id = spead->wanted[WANT_FENG];
    file->unknown_from = packet->from;
    return NULL;
}

static void take(void *arg, const struct listen_packet *packet)
{
    const struct owner *owner = packet->want->owner;
    struct spead_packet spead;
    uint64_t id;

    if (spead_parse(packet->header, packet->header_bytes, packet->packet_bytes, wanted_ids, N_WANTED, &spead)) {
        owner->file->n_foreign++;
        owner->file->foreign_from = packet->from;
        return;
    }
    if (spead.is_descriptor || spead.is_stop)
        return;
    struct stream_input *input = identify(owner, &spead, packet, &id);
    if (!input)
        return;
    const struct source_packet taken = {
        .timestamp = spead.wanted[WANT_TIMESTAMP],
        .heap_length = spead.heap_length,
        .payload_length = spead.payload_length,
        .id = id,
        .from = packet->from,
        .arrival_unix_ns = packet->arrival_unix_ns,
    };
    source_take(&input->source, &input->shape, &taken);
}

/* ---- Listening --------------------------------------------------------------------------------------------------- */

/* Finds the interface on which the daemon of a file receives its streams.  If cbf-doctor cannot receive these streams,
 * adds a finding and returns false. */
static bool may_listen(struct doctor *doctor, const struct doctor_file *file, struct interface *interface)
{
    char why[400];
    struct finding *f;

    *interface = (struct interface){0};
    if (file->recv->pcap_file) {
        f = doctor_add(doctor, FINDING_SKIPPED, "streams.source", file->name);
        SAY(f->found, "it replays a capture");
        return false;
    }
    if (!file->recv->interface || endpoint_find_interface(file->recv->interface, interface, why, sizeof(why)) == 0)
        return true;
    f = doctor_add(doctor, FINDING_FAIL, "streams.interface", file->name);
    SAY(f->found, "recv.interface: %s", why);
    nic_list("", true, why, sizeof(why));
    SAY(f->expected, "one of %s", why);
    SAY(f->why, "the daemon does not start");
    SAY(f->fix, "ip -4 -brief address   # and put the right interface into recv.interface of %s", file->path);
    return false;
}

/* Appends the endpoints of a file, with their owners, to the list 'wants'.  Returns the new length of this list. */
static size_t add_wants(struct doctor *doctor, struct stream_file *stream, const struct interface *interface,
                        struct listen_want *wants, struct owner *owners, size_t n)
{
    const struct doctor_file *file = stream->file;
    size_t n_unicast = 0;

    for (size_t e = 0; e < file->recvs.n; e++) {
        if (!endpoint_is_multicast(&file->recvs.items[e])) {
            n_unicast++;
            continue;
        }
        owners[n] = (struct owner){.file = stream};
        if (file->kind == DOCTOR_FGPU) { /* 'recvs' lists all endpoints of input 0, then of input 1, and so on */
            size_t input = 0, first = 0;
            while (e >= first + fgpu_config_antenna(&file->fgpu, input / N_POLS)->pols[input % N_POLS].n) {
                first += fgpu_config_antenna(&file->fgpu, input / N_POLS)->pols[input % N_POLS].n;
                input++;
            }
            owners[n].input = &stream->inputs[input];
        }
        wants[n] = (struct listen_want){.endpoint = file->recvs.items[e], .interface = *interface, .owner = &owners[n]};
        n++;
    }
    if (n_unicast > 0)
        doctor_note(doctor, FINDING_SKIPPED, "streams.source", file->name,
                    "cbf-doctor does not listen on %zu unicast endpoints, because it would take the daemon's packets",
                    n_unicast);
    return n;
}

static void add_open_errors(struct doctor *doctor, const struct listen_want *wants, size_t n)
{
    char text[32];

    for (size_t i = 0; i < n; i++) {
        if (!wants[i].err)
            continue;
        const struct owner *owner = wants[i].owner;
        struct finding *f = doctor_add(doctor, FINDING_FAIL, "streams.join", owner->file->file->name);
        SAY(f->found, "%s cannot be joined: %s", endpoint_format(&wants[i].endpoint, text, sizeof(text)),
            strerror(-wants[i].err));
        SAY(f->expected, "membership in the multicast group");
        SAY(f->why, "the daemon cannot join the group, either");
        SAY(f->fix,
            wants[i].err == -ENODEV ? "set recv.interface in %s, because there is no route to the group"
                                    : "ip -4 -brief address; ip route get 239.0.0.1   # for %s",
            owner->file->file->path);
    }
}

/* ---- On other interfaces ----------------------------------------------------------------------------------------- */

static void take_elsewhere(void *arg, const struct listen_packet *packet)
{
    const struct owner *owner = packet->want->owner;
    const size_t room = sizeof(owner->input->elsewhere);

    if (!owner->input->elsewhere[0])
        snprintf(owner->input->elsewhere, room, "%s", owner->interface);
}

/* Lists the interfaces of this machine that support multicast, each interface once.  Returns the number of
 * interfaces. */
static size_t list_interfaces(struct interface *interfaces, char names[][IF_NAMESIZE], size_t n_max)
{
    struct ifaddrs *list;
    size_t n = 0;

    if (getifaddrs(&list))
        return 0;
    for (struct ifaddrs *i = list; i && n < n_max; i = i->ifa_next) {
        bool again = false;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) ||
            !(i->ifa_flags & (IFF_MULTICAST | IFF_LOOPBACK)))
            continue;
        for (size_t k = 0; k < n; k++)
            again |= strcmp(names[k], i->ifa_name) == 0;
        if (again)
            continue;
        interfaces[n].address = ((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
        interfaces[n].index = (int)if_nametoindex(i->ifa_name);
        snprintf(names[n++], IF_NAMESIZE, "%s", i->ifa_name);
    }
    freeifaddrs(list);
    return n;
}

static void look_elsewhere(const struct doctor *doctor, struct stream_file *stream)
{
    struct interface interfaces[INTERFACES_MAX];
    char names[INTERFACES_MAX][IF_NAMESIZE];
    size_t n_interfaces = list_interfaces(interfaces, names, INTERFACES_MAX), n = 0, n_silent = 0;
    struct listen_want *wants = allocate(n_interfaces * ELSEWHERE_MAX, sizeof(*wants));
    struct owner *owners = allocate(n_interfaces * ELSEWHERE_MAX, sizeof(*owners));
    struct listener *listener;

    for (size_t i = 0; i < stream->n_inputs && n_silent < ELSEWHERE_MAX; i++) {
        struct stream_input *input = &stream->inputs[i];
        if (input->source.n_packets > 0 || !endpoint_is_multicast(input->endpoint))
            continue;
        n_silent++;
        for (size_t k = 0; k < n_interfaces; k++) {
            if (strcmp(names[k], stream->interface) == 0)
                continue;
            owners[n] = (struct owner){stream, input, names[k]};
            wants[n] =
                (struct listen_want){.endpoint = *input->endpoint, .interface = interfaces[k], .owner = &owners[n]};
            n++;
        }
    }
    if (n > 0 && listener_open(wants, n, &listener) == 0) {
        double s = doctor->seconds < ELSEWHERE_MAX_S ? doctor->seconds : ELSEWHERE_MAX_S;
        listener_run(listener, (int64_t)(s * (double)NS_PER_S), take_elsewhere, NULL);
        listener_close(listener);
    }
    free(wants);
    free(owners);
}

/* ---- All files --------------------------------------------------------------------------------------------------- */

/* Returns true if all inputs are silent.  All F-engines send to the same groups.  So if packets of one F-engine
 * arrive, all groups arrive at this interface, and the other interfaces need not be searched. */
static bool all_silent(const struct stream_file *stream)
{
    for (size_t i = 0; i < stream->n_inputs; i++)
        if (stream->inputs[i].source.n_packets > 0)
            return false;
    return true;
}

void doctor_check_streams(struct doctor *doctor)
{
    struct stream_file *streams = allocate(doctor->n_files, sizeof(*streams));
    size_t n_streams = 0, n_wants = 0, n_endpoints = 0;
    struct listener *listener = NULL;
    struct interface interface;

    for (size_t i = 0; i < doctor->n_files; i++)
        n_endpoints += doctor->files[i].recvs.n;
    struct listen_want *wants = allocate(n_endpoints, sizeof(*wants));
    struct owner *owners = allocate(n_endpoints, sizeof(*owners));
    for (size_t i = 0; i < doctor->n_files; i++) {
        struct stream_file *stream = &streams[n_streams];
        if (!doctor->files[i].ok || !may_listen(doctor, &doctor->files[i], &interface))
            continue;
        stream->file = &doctor->files[i];
        if (!nic_name(stream->file->recv->interface, stream->interface))
            stream->interface[0] = '\0';
        if (stream->file->kind == DOCTOR_FGPU)
            expect_fgpu(doctor, stream);
        else
            expect_xbgpu(doctor, stream);
        n_wants = add_wants(doctor, stream, &interface, wants, owners, n_wants);
        n_streams++;
    }
    if (n_wants == 0)
        doctor_note(doctor, FINDING_SKIPPED, "streams.source", "", "no file names groups that could be joined");
    else if (listener_open(wants, n_wants, &listener) == 0) {
        add_open_errors(doctor, wants, n_wants);
        int64_t start_unix_ns = clock_unix_ns();
        listener_run(listener, (int64_t)(doctor->seconds * (double)NS_PER_S), take, NULL);
        uint64_t n_drops = listener_drops(listener);
        listener_close(listener);
        for (size_t i = 0; i < n_streams; i++) {
            struct stream_file *stream = &streams[i];
            stream->n_drops = n_drops;
            stream->start_unix_ns = start_unix_ns;
            stream->seconds = doctor->seconds;
            for (size_t k = 0; k < stream->n_inputs; k++)
                source_finish(&stream->inputs[k].source, &stream->inputs[k].shape);
            if (stream->file->kind == DOCTOR_FGPU || all_silent(stream))
                look_elsewhere(doctor, stream);
            doctor_judge(doctor, stream);
        }
    }
    for (size_t i = 0; i < n_streams; i++)
        free(streams[i].inputs);
    free(streams);
    free(wants);
    free(owners);
}
