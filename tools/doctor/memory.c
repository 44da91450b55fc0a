/* memory.c - checks whether this host has enough memory and free ports for the daemons of all files together. */
#include "common/base/units.h"
#include "fgpu/memory.h"
#include "tools/doctor/doctor.h"
#include "xbgpu/memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GIB  0x1p30
#define FULL 0.9 /* largest fraction of the available memory that the daemons may need */

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static uint64_t file_bytes(const struct doctor *doctor, const struct doctor_file *file)
{
    return bytes_plus(file->memory.host_bytes, doctor_file_on_cpu(doctor, file) ? file->memory.device_bytes : 0);
}

/* Host memory that an engine needs in addition to its layout, for libraries, the GPU's driver, stacks, and control and
 * status clients. */
#define BESIDE_BYTES (4 * (UINT64_C(1) << 30))

uint64_t doctor_memory_max(const struct doctor *doctor, const struct doctor_file *file)
{
    uint64_t layout_bytes = file_bytes(doctor, file);
    uint64_t bytes = bytes_plus(layout_bytes, layout_bytes / 4);

    bytes_add(&bytes, file->n_recv_sockets, file->recv_socket_bytes);
    return bytes_plus(bytes, BESIDE_BYTES);
}

static uint64_t bytes_with(const struct doctor *doctor, const struct doctor_file *file, size_t n_ants)
{
    bool on_cpu = doctor_file_on_cpu(doctor, file);
    struct memory_use memory;

    if (file->kind == DOCTOR_FGPU) {
        struct fgpu_config config = file->fgpu;
        struct fgpu_layout layout;
        config.antennas.n = n_ants;
        fgpu_layout_init(&layout, &config);
        memory = fgpu_memory(&layout, &config, on_cpu ? 0 : DOCTOR_SHARED_BYTES, NULL, file->recv_mtu);
        return bytes_plus(memory.host_bytes, on_cpu ? memory.device_bytes : 0);
    }
    struct xbgpu_config config = file->xbgpu;
    struct xbgpu_layout layout;
    config.recv.n_ants = (int64_t)n_ants;
    xbgpu_layout_init(&layout, &config);
    memory = xbgpu_memory(&layout, &config, !on_cpu, file->recv_mtu);
    return bytes_plus(memory.host_bytes, on_cpu ? memory.device_bytes : 0);
}

static size_t file_ants(const struct doctor_file *file)
{
    return file->kind == DOCTOR_FGPU ? file->fgpu.antennas.n : (size_t)file->xbgpu.recv.n_ants;
}

/* Returns the greatest number of the file's antennas for which the daemon's memory fits into 'bytes'. */
static size_t ants_that_fit(const struct doctor *doctor, const struct doctor_file *file, uint64_t bytes)
{
    size_t fit = 0, too_many = file_ants(file) + 1;

    if (file->kind == DOCTOR_XBGPU && file->xbgpu.recv.shifts.n > 0)
        return 0; /* here the number of antennas cannot be lowered, because 'shifts' has one entry per antenna */
    while (too_many - fit > 1) {
        size_t middle = fit + (too_many - fit) / 2;
        if (bytes_with(doctor, file, middle) <= bytes)
            fit = middle;
        else
            too_many = middle;
    }
    return fit;
}

static void check_memory(struct doctor *doctor)
{
    const struct doctor_file *largest = NULL;
    uint64_t needed = 0;
    size_t n = 0, n_running = 0;
    struct memory memory;

    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_ANY, file));) {
        if (doctor_file_runs(file)) {
            n_running++; /* a running daemon has already allocated its memory */
            continue;
        }
        uint64_t bytes = file_bytes(doctor, file);
        needed = bytes_plus(needed, bytes);
        if (!largest || bytes > file_bytes(doctor, largest))
            largest = file;
        n++;
    }
    memory_find(doctor->root, &memory);
    if (n == 0 || memory.available_bytes == UINT64_MAX) {
        struct finding *f = doctor_add(doctor, n_running ? FINDING_OK : FINDING_SKIPPED, "host.memory", "");
        if (n_running)
            SAY(f->found, "%zu daemon%s run%s, and there is enough memory", n_running, plural(n_running),
                n_running == 1 ? "s" : "");
        else
            SAY(f->found, "the files do not show how much memory is needed, or this host does not show how much "
                          "memory it has");
        return;
    }
    double share = (double)needed / (double)memory.available_bytes;
    enum finding_status status = share > 1 ? FINDING_FAIL : share > FULL ? FINDING_WARN : FINDING_OK;
    struct finding *f = doctor_add(doctor, status, "host.memory", n == 1 ? largest->name : "");
    SAY(f->found, "%.3g GiB are needed by %zu daemon%s that will be started; %.3g of %.3g GiB are free",
        (double)needed / GIB, n, plural(n), (double)memory.available_bytes / GIB, (double)memory.total_bytes / GIB);
    SAY(f->expected, "at least %.3g GiB free", (double)needed / GIB / FULL);
    SAY(f->why, "a daemon that finds too little free memory at the start does not start");
    if (share <= FULL)
        return;
    uint64_t others = needed - file_bytes(doctor, largest);
    uint64_t rest = memory.available_bytes > others ? memory.available_bytes - others : 0;
    size_t fit = ants_that_fit(doctor, largest, rest);
    if (fit > 0)
        SAY(f->fix, "%s: use only %zu of its %zu antennas; or lower recv.chunks or %s", largest->name, fit,
            file_ants(largest), largest->kind == DOCTOR_FGPU ? "recv.chunk_samples" : "recv.batches_per_chunk");
    else
        SAY(f->fix, "%s: lower recv.chunks, %s, or the channels of one engine", largest->name,
            largest->kind == DOCTOR_FGPU ? "recv.chunk_samples" : "recv.batches_per_chunk");
}

/* ---- Ports ------------------------------------------------------------------------------------------------------- */

/* Adds a finding about a port that is in use.  If 'rival' is true, another file uses the port; otherwise a running
 * program does. */
static void add_conflict(struct doctor *doctor, const struct doctor_file *file, const char *key,
                         const struct endpoint *endpoint, const char *with, bool rival)
{
    char text[32];
    struct finding *f = doctor_add(doctor, FINDING_FAIL, "host.ports", file->name);

    SAY(f->found, "%s %s is %s", key, endpoint_format(endpoint, text, sizeof(text)), with);
    SAY(f->expected, "a port that no other program uses");
    SAY(f->why, "only one program on a host can use a port, so the second program does not start");
    if (rival)
        SAY(f->fix, "give %s in %s another port", key, file->path);
    else
        SAY(f->fix, "sudo ss -lntup 'sport = :%u'   # which program uses the port; then change %s in %s",
            endpoint->port, key, file->path);
}

/* Returns true if a program can bind to the endpoint on this host now. */
static bool is_free(const struct endpoint *endpoint, int type)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(endpoint->port), .sin_addr = endpoint->address};
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), on = 1;

    if (fd < 0)
        return true;
    /* the daemon sets the same option, so that a connection that has just ended does not block the port */
    if (type == SOCK_STREAM)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    bool taken = bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 && errno == EADDRINUSE;
    close(fd);
    return !taken;
}

/* Finds a listener with the same port as listener 'l' of file 'i'.  Searches only the files before 'i'.  Writes a
 * description to 'rival', for example "used by http.listen of x.yaml, too".  Returns false if there is no such listener.  Two
 * listeners of one file on the same port are an error that the file's own checks report. */
static bool find_rival(const struct doctor *doctor, size_t i, size_t l, char *rival, size_t rival_bytes)
{
    const struct endpoint *mine = &doctor->files[i].listeners[l].list->items[0];

    for (size_t j = 0; j < i; j++) {
        const struct doctor_file *other = &doctor->files[j];
        for (size_t k = 0; k < other->n_listeners; k++)
            if (other->listeners[k].list->n > 0 && endpoints_collide(mine, &other->listeners[k].list->items[0])) {
                snprintf(rival, rival_bytes, "used by %s of %s, too", other->listeners[k].key, other->name);
                return true;
            }
    }
    return false;
}

static size_t check_listeners(struct doctor *doctor, size_t i)
{
    const struct doctor_file *file = &doctor->files[i];
    size_t n = 0;

    for (size_t l = 0; l < file->n_listeners; l++) {
        char with[128] = "taken by another program";
        if (file->listeners[l].list->n == 0)
            continue;
        const struct endpoint *mine = &file->listeners[l].list->items[0];
        bool rival = find_rival(doctor, i, l, with, sizeof(with));
        bool taken = rival || (!is_free(mine, SOCK_STREAM) && !doctor_file_runs(file));
        if (taken)
            add_conflict(doctor, file, file->listeners[l].key, mine, with, rival);
        n += taken;
    }
    return n;
}

/* Checks that no other program receives at the unicast endpoints of file 'i'.  A multicast group may have several
 * receivers, but a unicast packet goes to one receiver. */
static size_t check_unicast(struct doctor *doctor, size_t i)
{
    const struct doctor_file *file = &doctor->files[i];
    char with[128];
    size_t n = 0;

    if (file->recv->pcap_file)
        return 0;
    for (size_t e = 0; e < file->recvs.n; e++) {
        const struct endpoint *mine = &file->recvs.items[e];
        if (endpoint_is_multicast(mine))
            continue;
        bool shared = false, rival = false;
        for (size_t j = 0; j < i && !shared; j++)
            for (size_t o = 0; doctor->files[j].ok && o < doctor->files[j].recvs.n && !shared; o++)
                if (endpoint_equal(mine, &doctor->files[j].recvs.items[o])) {
                    snprintf(with, sizeof(with), "received by %s, too", doctor->files[j].name);
                    shared = rival = true;
                }
        if (!shared && !is_free(mine, SOCK_DGRAM) && !doctor_file_runs(file)) {
            snprintf(with, sizeof(with), "taken by another program");
            shared = true;
        }
        if (shared) {
            add_conflict(doctor, file, mine->key ? mine->key : "recv", mine, with, rival);
            n++;
        }
    }
    return n;
}

static void check_ports(struct doctor *doctor)
{
    size_t n_conflicts = 0, n_files = 0;

    for (size_t i = 0; i < doctor->n_files; i++)
        if (doctor->files[i].ok) {
            n_conflicts += check_listeners(doctor, i) + check_unicast(doctor, i);
            n_files++;
        }
    if (n_files > 0 && n_conflicts == 0)
        doctor_note(doctor, FINDING_OK, "host.ports", "", "no port is configured twice or used by another program");
}

void doctor_check_memory(struct doctor *doctor)
{
    check_memory(doctor);
    check_ports(doctor);
}
