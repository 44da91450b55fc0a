/* fake_verbs.h - libibverbs and librdmacm without a NIC: raw packet queues over AF_PACKET sockets on veth interfaces.
 * Tests use them for programs that are linked against the real libraries (or open them).  README.md says how to use the
 * fake and lists its checks.
 *
 * Flow:      post_recv -> queue -> receiving thread: recvmmsg into the program's memory -> completion queue -> poll_cq
 *            post_send -> queue -> sending thread, paced: sendmmsg from the program's memory -> completion queue
 * Threads:   two for each queue pair.  The program may call from any thread, as with the real libraries.
 * Locks:     turn (held by a queue's thread while it works on the queue) > context > queue pair > completion queue >
 *            events.  'pinned' (of a protection domain) is read-locked while memory is touched, and no other lock is
 *            taken under it.  So deregistered memory is not touched any more.
 * Errors:    as the real functions: an errno, or NULL with errno.  fake_complain() writes to stderr about mistakes of a
 *            program that a NIC would not notice. */
#ifndef TESTS_FAKE_VERBS_H
#define TESTS_FAKE_VERBS_H

#include <infiniband/verbs.h>

#include <net/if.h>
#include <linux/filter.h>
#include <stdatomic.h>
#include <stdbool.h>

#define FAKE_BATCH       64 /* frames at most that one system call moves */
#define FAKE_MAX_DEVICES 64
#define FAKE_MAX_EVENTS  1024
#define FAKE_MAX_MRS     4096
#define FAKE_MAX_PARTS   32 /* of a work request */
#define FAKE_MAX_FRAME   65536
#define FAKE_PORT        1

/* ---- fake_trouble.c: what environment variables ask for ---------------------------------------------------------- */

/* The errno that this call of 'name' must end with, or 0.  Counts the calls. */
int fake_fails(const char *name);
/* The status that the next completion must have; IBV_WC_SUCCESS mostly. */
enum ibv_wc_status fake_completion_status(void);
/* True once, when the device is to vanish. */
bool fake_is_removal_due(void);
/* The number that $CBF_FAKE_VERBS_LIMITS has for 'name', or 'otherwise'. */
long fake_limit(const char *name, long otherwise);
/* A line of the trace of set-up calls, which is a file if $CBF_FAKE_VERBS_TRACE names one. */
void fake_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A mistake of the program, on stderr and in the trace. */
void fake_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- fake_events.c, fake_device.c -------------------------------------------------------------------------------- */

struct fake_device {
    struct ibv_device device; /* first */
    void *provider;           /* NULL; providers' libraries look for their own behind a device */
    char interface[IF_NAMESIZE];
    int index; /* of the interface */
    uint8_t mac[6];
};

/* Things to be read from a file descriptor that poll() sees: completions of a channel, events of a device. */
struct fake_events {
    int fd; /* a semaphore */
    pthread_mutex_t lock;
    struct ibv_async_event ring[FAKE_MAX_EVENTS];
    size_t n_put, n_taken;
};
int fake_events_init(struct fake_events *events);
void fake_events_fini(struct fake_events *events);
void fake_events_put(struct fake_events *events, const struct ibv_async_event *event);
int fake_events_take(struct fake_events *events, struct ibv_async_event *event); /* 0 or errno; blocks as the fd does */
void fake_events_forget(struct fake_events *events, const void *object);         /* of which no more must come */

enum fake_link { FAKE_GONE, FAKE_DOWN, FAKE_UP };
enum fake_link fake_device_link(const struct fake_device *device);

struct fake_qp;
struct fake_context {
    struct fake_device *device;
    struct ibv_device_attr_ex limits;
    struct fake_events events;
    pthread_mutex_t lock;
    struct fake_qp *qps; /* [lock] */
    atomic_int n_pds, n_cqs, n_channels;
    atomic_bool removed;
    struct fake_context *next; /* of those that are open */
    struct verbs_context verbs;
};
struct fake_context *fake_context_of(struct ibv_context *context);
void fake_context_remove(struct fake_context *context); /* the device is gone */
void fake_context_event(struct fake_context *context, enum ibv_event_type type, void *object);
/* What a call of 'name' must end with before it does anything: an errno, or 0. */
int fake_enter(struct ibv_context *context, const char *name);
/* Adds to a counter that the kernel would show, in device->ibdev_path. */
void fake_count(struct fake_device *device, const char *counter, uint64_t n);

/* ---- fake_memory.c ----------------------------------------------------------------------------------------------- */

struct fake_mr {
    struct ibv_mr mr; /* first */
    uint64_t address; /* by which work requests name it */
    uint8_t *host;    /* where it is */
    unsigned access;
    bool is_mapped; /* by us, of a file descriptor */
};

struct fake_pd {
    struct ibv_pd pd; /* first */
    pthread_rwlock_t pinned;
    struct fake_mr *mrs[FAKE_MAX_MRS]; /* [pinned] */
    atomic_int n_mrs, n_qps;
};
/* Where a part of a work request is, or NULL if it may not be used.  With 'pinned' locked. */
uint8_t *fake_memory_at(struct fake_pd *pd, const struct ibv_sge *part, bool writes);

struct ibv_mr *fake_reg_mr_at(struct ibv_pd *pd, void *host, size_t length, uint64_t address, unsigned access,
                              bool is_mapped);

/* ---- fake_cq.c --------------------------------------------------------------------------------------------------- */

struct fake_channel {
    struct ibv_comp_channel channel; /* first */
    struct fake_events events;
    atomic_int n_cqs;
};

struct fake_queue;
struct fake_completion {
    struct ibv_wc wc;
    struct fake_queue *queue; /* whose requests up to and with 'number' it retires */
    uint64_t number;
};

struct fake_cq {
    struct ibv_cq cq; /* first */
    pthread_mutex_t lock;
    struct fake_completion *ring; /* [lock] of cqe */
    uint64_t n_pushed, n_popped;  /* [lock] */
    bool is_armed, is_solicited;  /* [lock] */
    bool is_overrun;              /* [lock] */
    uint32_t n_events;            /* [cq.mutex] taken by the program, to be acknowledged */
    atomic_int n_qps;
};
void fake_cq_push(struct fake_cq *cq, const struct fake_completion *completions, size_t n);
void fake_cq_forget(struct fake_cq *cq, const struct fake_queue *queue);
int fake_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int fake_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* ---- fake_qp.c --------------------------------------------------------------------------------------------------- */

struct fake_request {
    uint64_t wr_id;
    unsigned flags;
    uint32_t n_parts;
    uint32_t n_inline;
};

struct fake_queue {
    uint32_t n_slots, max_parts, max_inline;
    struct fake_request *requests; /* [n_slots] */
    struct ibv_sge *parts;         /* [n_slots][max_parts] */
    uint8_t *inlined;              /* [n_slots][max_inline] */
    uint64_t n_posted;             /* [qp lock] */
    _Atomic uint64_t n_done;       /* [turn] by its thread */
    _Atomic uint64_t n_retired;    /* the program has polled their completions, or later ones' */
    pthread_mutex_t turn;
    int wake;   /* eventfd of its thread */
    int socket; /* [turn] -1 mostly */
    pthread_t thread;
    bool is_running;
};

struct fake_qp {
    struct ibv_qp qp; /* first */
    struct fake_context *context;
    pthread_mutex_t lock;
    enum ibv_qp_state state; /* [lock] */
    bool signals_all;
    bool is_patient;           /* frames wait for a request */
    bool poisons;              /* memory that is posted to be received into */
    int64_t delay_ns;          /* from posting to sending, without a rate */
    bool is_stopping;          /* [lock] */
    uint32_t rate_kbps, burst; /* [lock] 0: as fast as it goes; bytes */
    struct fake_flow *flows;   /* [lock] */
    struct fake_queue recv, send;
    uint64_t n_missed;    /* [turn of recv] frames that this library was too slow for */
    struct fake_qp *next; /* of its context */
};
void fake_qp_fail(struct fake_qp *qp, bool says_so); /* to the error state, with an event or without */
int fake_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);

/* ---- fake_queue.c: requests are numbered from 0 ------------------------------------------------------------------ */

int fake_queue_init(struct fake_queue *queue, uint32_t n_slots, uint32_t max_parts, uint32_t max_inline);
void fake_queue_stop(struct fake_queue *queue); /* its thread, which knows by 'is_stopping' */
void fake_queue_fini(struct fake_queue *queue);
void fake_queue_close(struct fake_queue *queue); /* its socket, with the turn */
struct fake_request *fake_queue_request(struct fake_queue *queue, uint64_t number);
struct ibv_sge *fake_queue_parts(struct fake_queue *queue, uint64_t number);
struct fake_completion fake_completion(struct fake_qp *qp, struct fake_queue *queue, uint64_t number,
                                       enum ibv_wc_status status);
/* Ends the next 'n' requests, which have these completions; with the turn. */
void fake_queue_complete(struct fake_qp *qp, struct fake_queue *queue, const struct fake_completion *completions,
                         size_t n_completions, size_t n);
void fake_queue_flush(struct fake_qp *qp, struct fake_queue *queue); /* all there are; with the turn */
int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* ---- fake_flow.c: steering, by the kernel's filters -------------------------------------------------------------- */

struct fake_flow {
    struct ibv_flow flow; /* first */
    struct fake_qp *qp;
    struct fake_flow *next;
    size_t n_code;
    struct sock_filter code[96]; /* ends the filter with success, or goes on behind itself */
};
struct ibv_flow *fake_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr);
int fake_destroy_flow(struct ibv_flow *flow);
int fake_flows_attach(struct fake_qp *qp, int socket); /* with the queue pair's lock */

/* ---- fake_receive.c, fake_send.c: the threads -------------------------------------------------------------------- */

int fake_receive_open(struct fake_qp *qp); /* with the turn; 0 or errno */
void *fake_receive_run(void *qp);
int fake_send_open(struct fake_qp *qp);
void *fake_send_run(void *qp);

#endif
