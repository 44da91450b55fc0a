/* doctor.h - what is wrong with a host, its configurations or its streams, and what to do about it.
 *
 * Flow:    files -> checks, each of which adds findings -> report (text or JSON) -> exit code
 * Threads: one.   Blocking: the checks of streams and losses take 'seconds' each; nothing else waits for more than 2 s.
 * Effects: none, but that groups are joined for a while, a GPU is opened and closed, and /metrics are read.
 *
 * A check that cannot see what it needs says so (FINDING_SKIPPED) and is no failure. */
#ifndef TOOLS_DOCTOR_DOCTOR_H
#define TOOLS_DOCTOR_DOCTOR_H

#include "common/base/memory.h"
#include "fgpu/config.h"
#include "tools/doctor/report.h"
#include "tools/doctor/sys.h"
#include "xbgpu/config.h"

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
    TOPIC_BUNDLE = 31, /* and into an archive */
};

enum doctor_kind { DOCTOR_OTHER, DOCTOR_FGPU, DOCTOR_XBGPU, DOCTOR_RECORDER, DOCTOR_BEAM_RECORDER, DOCTOR_ANY };

struct doctor_recorder;
struct doctor_beam_recorder;

#define DOCTOR_LISTENERS_MAX 4

/* Shared memory of a block on the GPUs of today: what their kernels take follows from it. */
#define DOCTOR_SHARED_BYTES ((size_t)227 << 10)

/* Where a daemon listens, by the key that says so; the list has none, or one. */
struct doctor_listener {
    char key[64];
    const struct endpoint_list *list;
};

/* A configuration, and what the checks ask of both kinds. */
struct doctor_file {
    const char *path;
    const char *name; /* without the directory */
    enum doctor_kind kind;
    bool ok; /* loaded, and its own checks passed: only then the rest may be used; never of a recorder's file */
    struct doctor_recorder *recorder; /* of a file of visrec, which has none of what follows but config; else NULL */
    struct doctor_beam_recorder *beam_recorder; /* likewise of beamrec */
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
    struct doctor_listener listeners[DOCTOR_LISTENERS_MAX]; /* over TCP */
    size_t n_listeners;
    size_t recv_socket_bytes;     /* largest buffer asked for a socket */
    size_t recv_socket_min_bytes; /* and the smallest */
    size_t n_recv_sockets;
    int recv_transport;         /* enum transport; ibverbs has no sockets but a ring in each thread */
    int send_transport;         /* enum transport; ibverbs reads from the output buffers */
    size_t recv_mtu;            /* of its interface; 0: not known */
    bool gpudirect;             /* recv's or send's */
    uint64_t window_bytes;      /* of the GPU's memory that is seen from outside, for these */
    uint64_t locked_bytes;      /* of those rings and buffers */
    bool gpu_opened;            /* by doctor_check_gpu() */
    double rate_hz;             /* of the digitisers' samples */
    double recv_bits_per_s;     /* payload, when all sources send */
    double send_bits_per_s;     /* likewise */
    struct memory_use memory;   /* its device_bytes are of the GPU, or of the host where it computes */
    size_t recv_packet_bytes;   /* on the wire with its IP header; 0: not known from this file */
    size_t send_packet_bytes;   /* likewise */
    struct endpoint_list recvs; /* all that it receives; borrowed items, own list */
};

struct doctor {
    const char *root;         /* in front of /proc and /sys; "" but in tests and on images of hosts */
    double seconds;           /* that streams and losses are watched */
    enum doctor_topic topics; /* of this run: a fix that only names one of these leads in a circle */
    size_t n_files;
    struct doctor_file *files;
    struct report report;
};

/* ---- Files (doctor/files.c) ---- */

/* Loads a file; whatever is wrong becomes findings. */
void doctor_file_load(struct doctor *doctor, struct doctor_file *file, const char *path);
void doctor_file_free(struct doctor_file *file);

/* The good file after 'file', or the first if that is NULL; NULL: there is no other.  'kind': DOCTOR_ANY, or of that kind only. */
struct doctor_file *doctor_next(const struct doctor *doctor, enum doctor_kind kind, const struct doctor_file *file);

/* True if a daemon of the file's kind answers where the file has its monitoring, or a process here was given it. */
bool doctor_file_runs(const struct doctor_file *file);

/* "m000" of /etc/cbf/m000.yaml, the instance of a unit; returns false if the file lies elsewhere. */
#define CONFIG_DIRECTORY "/etc/cbf/"
bool doctor_file_instance(const struct doctor *doctor, const struct doctor_file *file, char instance[NAME_MAX]);

/* True if its kernels run on the CPU of this host, as far as can be told without opening a GPU. */
bool doctor_file_on_cpu(const struct doctor *doctor, const struct doctor_file *file);

/* ---- Files of visrec (doctor/recorder.c) ---- */

/* Loads; returns false if 'file->config' has errors. */
bool doctor_recorder_load(struct doctor_file *file, const char *path);
void doctor_recorder_free(struct doctor_file *file);

/* Describes the contents of a file without errors. */
void doctor_recorder_describe(const struct doctor_file *file, struct finding *finding);

/* 'host': disk, unit, port and groups; 'config': against the X-engines' files; 'loss': what running recorders count. */
void doctor_check_recorders(struct doctor *doctor, bool host, bool config, bool loss);

/* ---- Files of beamrec (doctor/beam_recorder.c): as those of visrec ---- */

bool doctor_beam_recorder_load(struct doctor_file *file, const char *path);
void doctor_beam_recorder_free(struct doctor_file *file);
void doctor_beam_recorder_describe(const struct doctor_file *file, struct finding *finding);

/* 'host': disks, units and names; 'config': against the X-engines' files; 'loss': what running recorders count. */
void doctor_check_beam_recorders(struct doctor *doctor, bool host, bool config, bool loss);

/* ---- What follows from a file ---- */

/* MemoryMax= that bounds a file's daemon without ever being in its way (doctor/memory.c). */
uint64_t doctor_memory_max(const struct doctor *doctor, const struct doctor_file *file);

/* The PCI address, as /sys has it, of the GPU that a file's device.gpu means: the one that it names by its address, or else
 * the only one there is.  Returns false where it is not known. */
bool doctor_file_gpu(const struct doctor *doctor, const struct doctor_file *file, char address[SYS_PCI_BYTES]);

/* "34.24 Gb/s" or "40 Mb/s" into 'text'; returns it. */
#define DOCTOR_RATE_BYTES 32
char *doctor_rate(double bits_per_s, char text[DOCTOR_RATE_BYTES]);

/* "12 s ago" into 'text'; returns it (doctor/engine.c). */
#define DOCTOR_AGO_BYTES 32
char *doctor_ago(double s, char text[DOCTOR_AGO_BYTES]);

/* The antenna of an F-engine by its name: of recv.antenna_names of the xbgpu's file 'x', or of the file of the fgpu that has
 * it, or else "feng 3".  The fgpu's file to *fgpu, NULL if it is not at hand.  Returns 'text'. */
#define DOCTOR_NAME_BYTES 72
char *doctor_antenna(const struct doctor *doctor, const struct doctor_file *x, size_t feng_id,
                     const struct doctor_file **fgpu, char text[DOCTOR_NAME_BYTES]);

/* Bits per second that all files receive; < 0 if there is none to tell. */
double doctor_recv_bits_per_s(const struct doctor *doctor);

/* True if this run has the findings of a topic, so that a fix need not send anybody there. */
static inline bool doctor_runs(const struct doctor *doctor, enum doctor_topic topic)
{
    return (doctor->topics & topic) == topic;
}

/* FINDING_WARN if 'bad' and the rates are so high here that this costs packets, else FINDING_OK. */
enum finding_status doctor_tuning(const struct doctor *doctor, bool bad);

/* Adds a finding to the report; the caller writes its texts. */
static inline struct finding *doctor_add(struct doctor *doctor, enum finding_status status, const char *id,
                                         const char *subject)
{
    return report_add(&doctor->report, status, id, subject);
}

/* Adds a finding that has nothing but 'found'. */
#define doctor_note(doctor, status, id, subject, ...) SAY(doctor_add(doctor, status, id, subject)->found, __VA_ARGS__)

/* ---- The checks ---- */

void doctor_check_sockets(struct doctor *doctor); /* doctor/sockets.c: those of running daemons */
void doctor_check_kernel(struct doctor *doctor);  /* doctor/kernel.c: network and memory of the kernel */
void doctor_check_cpu(struct doctor *doctor);     /* doctor/cpu.c */
void doctor_check_nics(struct doctor *doctor);    /* doctor/nics.c */
void doctor_check_verbs(struct doctor *doctor);   /* doctor/verbs.c */
void doctor_check_gpu(struct doctor *doctor);     /* doctor/gpu.c */
void doctor_check_direct(struct doctor *doctor);  /* doctor/direct.c: what writes to the GPU's memory */
void doctor_check_memory(struct doctor *doctor);  /* doctor/memory.c: memory and ports that the files want here */
void doctor_check_time(struct doctor *doctor);    /* doctor/time.c */
void doctor_check_config(struct doctor *doctor);  /* doctor/config.c: F against X, wherever they run */
void doctor_check_streams(struct doctor *doctor); /* doctor/streams.c */
void doctor_check_loss(struct doctor *doctor);    /* doctor/loss.c */
void doctor_check_engines(struct doctor *doctor); /* doctor/engine.c: what running engines say of themselves */

/* The report as JSON (doctor/files.c). */
void doctor_print_json(const struct doctor *doctor, FILE *out);

/* The support bundle: report, files, metrics and facts of the kernel as a tar.gz.  Returns the exit code. */
int doctor_bundle(const struct doctor *doctor, const char *path);

#endif
