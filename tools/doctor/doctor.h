/* doctor.h - finds faults of a host, its configurations or its streams, and names remedies.
 *
 * Flow:    files -> checks, each of which adds findings -> report (text or JSON) -> exit code
 * Threads: one.
 * Blocking: the checks of streams and losses take 'seconds' each; no other wait is longer than 2 s.
 * Effects: multicast groups are joined for a while, a GPU is opened and closed, and /metrics is read.  Nothing else
 * changes.
 *
 * A check that cannot read its data reports FINDING_SKIPPED, which does not count as a failure. */
#ifndef TOOLS_DOCTOR_DOCTOR_H
#define TOOLS_DOCTOR_DOCTOR_H

#include "common/base/memory.h"
#include "fgpu/config/config.h"
#include "tools/doctor/report.h"
#include "tools/doctor/sys.h"
#include "xbgpu/config/config.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kinds of checks, as bits. */
enum doctor_topic {
    TOPIC_HOST = 1,
    TOPIC_CONFIG = 2,
    TOPIC_STREAMS = 4,
    TOPIC_LOSS = 8,
    TOPIC_ALL = 15,
    TOPIC_BUNDLE = 31, /* all checks, and an archive of the results */
};

enum doctor_kind { DOCTOR_OTHER, DOCTOR_FGPU, DOCTOR_XBGPU, DOCTOR_RECORDER, DOCTOR_BEAM_RECORDER, DOCTOR_ANY };

struct doctor_recorder;
struct doctor_beam_recorder;

#define DOCTOR_LISTENERS_MAX 4

/* Largest shared memory of a block on current GPUs.  The GPU memory that a layout needs depends on this size. */
#define DOCTOR_SHARED_BYTES ((size_t)227 << 10)

/* A key such as http.listen, which sets the endpoint on which a daemon listens.  If the key is empty, 'list' is empty.
 * Otherwise 'list' has one endpoint. */
struct doctor_listener {
    char key[64];
    const struct endpoint_list *list;
};

/* A configuration file.  The members after the union exist for both fgpu and xbgpu. */
struct doctor_file {
    const char *path;
    const char *name; /* file name without the directory */
    enum doctor_kind kind;
    /* true: the file is loaded and has passed its own checks.  The members below may be used only if 'ok' is true.
     * 'ok' is always false for a recorder's file. */
    bool ok;
    /* Configuration of visrec; NULL for other programs.  A recorder's file sets only two of the members below:
     * 'config' and the recorder's own configuration. */
    struct doctor_recorder *recorder;
    struct doctor_beam_recorder *beam_recorder; /* configuration of beamrec; NULL for other programs */
    struct config *config;
    union {
        struct fgpu_config fgpu;
        struct xbgpu_config xbgpu;
    };
    const struct config_time *time;
    const struct config_device *device;
    const struct config_send *send;
    const struct config_http *http;
    const struct config_recv *recv;
    struct doctor_listener listeners[DOCTOR_LISTENERS_MAX]; /* TCP listeners */
    size_t n_listeners;
    size_t recv_socket_bytes;     /* largest socket buffer that the daemon requests, in bytes */
    size_t recv_socket_min_bytes; /* smallest socket buffer that the daemon requests, in bytes */
    size_t n_recv_sockets;
    int recv_transport;         /* value of enum transport; with ibverbs each thread has a ring instead of sockets */
    int send_transport;         /* value of enum transport; with ibverbs the NIC reads from the output buffers */
    size_t recv_mtu;            /* MTU of recv.interface in bytes; 0: not known */
    bool gpudirect;             /* true: recv.gpudirect or send.gpudirect is set */
    uint64_t window_bytes;      /* bytes of GPU memory that the bus must map for recv.direct and gpudirect */
    uint64_t locked_bytes;      /* bytes of locked memory for ibverbs rings and output buffers */
    bool gpu_opened;            /* true: doctor_check_gpu() could open the GPU */
    double rate_hz;             /* sample rate of the digitisers, in Hz */
    double recv_bits_per_s;     /* received payload rate when all sources send, in bits per second */
    double send_bits_per_s;     /* payload rate of all outputs together, in bits per second */
    struct memory_use memory;   /* memory that the daemon needs; device_bytes is host memory if the kernels run on
                                 * the CPU */
    size_t recv_packet_bytes;   /* bytes of a received packet with its IP header; 0: the file does not determine this
                                 * size */
    size_t send_packet_bytes;   /* bytes of the largest sent packet with its IP header */
    struct endpoint_list recvs; /* all endpoints at which the daemon receives; owns the list but not its items */
};

struct doctor {
    /* Prefix of paths in /proc, /sys and /etc/cbf.  The prefix "" means this host.  Tests, and users with a copy of
     * another host's files, give another prefix. */
    const char *root;
    double seconds; /* duration of the observation, for the checks of streams and losses */
    /* Topics of this run.  A fix must not suggest a topic that this run includes. */
    enum doctor_topic topics;
    size_t n_files;
    struct doctor_file *files;
    struct report report;
};

/* ---- Files (doctor/files.c) ---- */

/* Loads a file.  Every fault of the file becomes a finding. */
void doctor_file_load(struct doctor *doctor, struct doctor_file *file, const char *path);
void doctor_file_free(struct doctor_file *file);

/* Returns the first file after 'file' that has a true 'ok'.  If 'file' is NULL, the search begins at the first file.
 * Returns NULL if the search finds no file.  'kind' selects files of one kind.  DOCTOR_ANY selects all files. */
struct doctor_file *doctor_next(const struct doctor *doctor, enum doctor_kind kind, const struct doctor_file *file);

/* Returns true if the file's daemon runs.  The daemon must answer at the file's http.listen, or a process on this host
 * must have been started with the file. */
bool doctor_file_runs(const struct doctor_file *file);

/* Writes the instance of the file's systemd unit to 'instance': "m000" for /etc/cbf/m000.yaml.  Returns false if the
 * file is in another directory. */
#define CONFIG_DIRECTORY "/etc/cbf/"
bool doctor_file_instance(const struct doctor *doctor, const struct doctor_file *file, char instance[NAME_MAX]);

/* Returns true if the file's kernels would run on this host's CPU.  Does not open a GPU. */
bool doctor_file_on_cpu(const struct doctor *doctor, const struct doctor_file *file);

/* ---- Files of visrec (doctor/recorder.c) ---- */

/* Loads a file.  Returns false if 'file->config' has errors. */
bool doctor_recorder_load(struct doctor_file *file, const char *path);
void doctor_recorder_free(struct doctor_file *file);

/* Describes the contents of a file that has no errors. */
void doctor_recorder_describe(const struct doctor_file *file, struct finding *finding);

/* Checks recorders.  'host': disk, unit, port and groups.  'config': comparison with the X-engines' files.  'loss':
 * counters of running recorders. */
void doctor_check_recorders(struct doctor *doctor, bool host, bool config, bool loss);

/* ---- Files of beamrec (doctor/beam_recorder.c): like files of visrec ---- */

bool doctor_beam_recorder_load(struct doctor_file *file, const char *path);
void doctor_beam_recorder_free(struct doctor_file *file);
void doctor_beam_recorder_describe(const struct doctor_file *file, struct finding *finding);

/* Checks beam recorders.  'host': disks, units and names.  'config': comparison with the X-engines' files.  'loss':
 * counters of running recorders. */
void doctor_check_beam_recorders(struct doctor *doctor, bool host, bool config, bool loss);

/* ---- Values derived from a file ---- */

/* Returns a value for MemoryMax= in the systemd unit of a file's daemon.  The value is the memory that the daemon
 * needs, plus a margin (doctor/memory.c). */
uint64_t doctor_memory_max(const struct doctor *doctor, const struct doctor_file *file);

/* Finds the PCI address of a file's GPU, in the form that /sys uses.  If device.gpu contains an address, this address
 * identifies the GPU.  Otherwise the GPU is the host's only GPU.  Returns false if the GPU is not known. */
bool doctor_file_gpu(const struct doctor *doctor, const struct doctor_file *file, char address[SYS_PCI_BYTES]);

/* Writes a rate such as "34.24 Gb/s" or "40 Mb/s" to 'text'.  Returns 'text'. */
#define DOCTOR_RATE_BYTES 32
char *doctor_rate(double bits_per_s, char text[DOCTOR_RATE_BYTES]);

/* Writes a time such as "12 s ago" to 'text' (doctor/engine.c).  Returns 'text'. */
#define DOCTOR_AGO_BYTES 32
char *doctor_ago(double s, char text[DOCTOR_AGO_BYTES]);

/* Writes the name of an F-engine's antenna to 'text'.  The name comes from recv.antenna_names of the xbgpu's file 'x'.
 * If 'x' has no names, the name comes from the file of the antenna's fgpu.  Without that file, the name is "feng 3".
 * Sets *fgpu to the fgpu's file, or to NULL if the file was not given.  Returns 'text'. */
#define DOCTOR_NAME_BYTES 72
char *doctor_antenna(const struct doctor *doctor, const struct doctor_file *x, size_t feng_id,
                     const struct doctor_file **fgpu, char text[DOCTOR_NAME_BYTES]);

/* Returns the bits per second that the daemons of all files receive.  Returns a negative number if no file is 'ok'. */
double doctor_recv_bits_per_s(const struct doctor *doctor);

/* Returns true if this run of cbf-doctor checks the topic.  A fix must then not suggest another run with the topic. */
static inline bool doctor_runs(const struct doctor *doctor, enum doctor_topic topic)
{
    return (doctor->topics & topic) == topic;
}

/* Returns the status of a finding about a host's setting.  Returns FINDING_WARN if the setting is 'bad' and the data
 * rate is so high that packets would be lost.  Otherwise returns FINDING_OK. */
enum finding_status doctor_tuning(const struct doctor *doctor, bool bad);

/* Adds a finding to the report.  The caller writes the finding's texts. */
static inline struct finding *doctor_add(struct doctor *doctor, enum finding_status status, const char *id,
                                         const char *subject)
{
    return report_add(&doctor->report, status, id, subject);
}

/* Adds a finding that has only the text 'found'. */
#define doctor_note(doctor, status, id, subject, ...) SAY(doctor_add(doctor, status, id, subject)->found, __VA_ARGS__)

/* ---- The checks ---- */

void doctor_check_sockets(struct doctor *doctor); /* doctor/sockets.c: sockets of running daemons */
void doctor_check_kernel(struct doctor *doctor);  /* doctor/kernel.c: the kernel's settings for network and memory */
void doctor_check_cpu(struct doctor *doctor);     /* doctor/cpu.c */
void doctor_check_nics(struct doctor *doctor);    /* doctor/nics.c */
void doctor_check_verbs(struct doctor *doctor);   /* doctor/verbs.c */
void doctor_check_gpu(struct doctor *doctor);     /* doctor/gpu.c */
void doctor_check_direct(struct doctor *doctor);  /* doctor/direct.c: writing to the GPU's memory */
void doctor_check_memory(struct doctor *doctor);  /* doctor/memory.c: memory and ports that the files need here */
void doctor_check_time(struct doctor *doctor);    /* doctor/time.c */
/* doctor/config.c: compares F-engines' files with X-engines' files, on any host */
void doctor_check_config(struct doctor *doctor);
void doctor_check_streams(struct doctor *doctor); /* doctor/streams.c */
void doctor_check_loss(struct doctor *doctor);    /* doctor/loss.c */
void doctor_check_engines(struct doctor *doctor); /* doctor/engine.c: status of running engines */

/* Prints the report as JSON (doctor/files.c). */
void doctor_print_json(const struct doctor *doctor, FILE *out);

/* Writes the support bundle: report, files, metrics and facts about the kernel, as a tar.gz.  Returns the exit
 * code. */
int doctor_bundle(const struct doctor *doctor, const char *path);

#endif
