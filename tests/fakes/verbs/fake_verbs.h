/* fake_verbs.h - libibverbs and librdmacm without a NIC: raw packet queues over AF_PACKET sockets on veth interfaces.
 * Tests use them for programs that are linked against the real libraries, or that open the real libraries.  README.md
 * says how to use the fake and lists its checks.
 *
 * Flow:      post_recv -> queue -> receiving thread: recvmmsg into the program's memory -> completion queue -> poll_cq
 *            post_send -> queue -> sending thread, paced: sendmmsg from the program's memory -> completion queue
 * Threads:   two for each queue pair.  The program may call from any thread, as with the real libraries.
 * Locks:     threads take locks in this order: turn (held by a queue's thread while it works on the queue), context,
 *            queue pair, completion queue, events.  A protection domain's lock 'pinned' is read-locked while a thread
 *            touches memory, so no thread touches deregistered memory.  A thread that holds 'pinned' takes no other
 *            lock.
 * Errors:    the functions return an errno, or NULL and set errno, like the real functions.  fake_complain() reports
 *            mistakes of a program that a NIC would not notice. */
#ifndef TESTS_FAKE_VERBS_H
#define TESTS_FAKE_VERBS_H

#include <infiniband/verbs.h>

#include <net/if.h>
#include <linux/filter.h>
#include <stdatomic.h>
#include <stdbool.h>

#define FAKE_BATCH       64 /* greatest number of frames that one system call moves */
#define FAKE_MAX_DEVICES 64
#define FAKE_MAX_EVENTS  1024
#define FAKE_MAX_MRS     4096
#define FAKE_MAX_PARTS   32 /* of a work request */
#define FAKE_MAX_FRAME   65536
#define FAKE_PORT        1

/* ---- fake_trouble.c: faults and limits that environment variables set -------------------------------------------- */

/* Counts a call of the function 'name'.  Returns the errno with which this call must fail, or 0. */
int fake_fails(const char *name);
/* Returns the status that the next completion must have; usually IBV_WC_SUCCESS. */
enum ibv_wc_status fake_completion_status(void);
/* Returns true, once, when the device must be removed. */
bool fake_is_removal_due(void);
/* Returns the number that $CBF_FAKE_VERBS_LIMITS has for 'name', or 'otherwise' if it has none. */
long fake_limit(const char *name, long otherwise);
/* Writes a line about a set-up call to the file $CBF_FAKE_VERBS_TRACE, if this variable is set. */
void fake_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Reports a mistake of the program on stderr and in the trace. */
void fake_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- fake_events.c, fake_device.c -------------------------------------------------------------------------------- */

struct fake_device {
    struct ibv_device device; /* first */
    void *provider;           /* always NULL; in the real library, a pointer that belongs to the NIC's driver */
    char interface[IF_NAMESIZE];
    int index; /* of the interface */
    uint8_t mac[6];
};

/* Events of a completion channel or of a device.  poll() on 'fd' shows whether any event is waiting. */
struct fake_events {
    int fd; /* a semaphore */
    pthread_mutex_t lock;
    struct ibv_async_event ring[FAKE_MAX_EVENTS];
    size_t n_put, n_taken;
};
int fake_events_init(struct fake_events *events);
void fake_events_fini(struct fake_events *events);
void fake_events_put(struct fake_events *events, const struct ibv_async_event *event);
int fake_events_take(struct fake_events *events,
                     struct ibv_async_event *event);                     /* returns 0 or errno; may block, like 'fd' */
void fake_events_forget(struct fake_events *events, const void *object); /* removes the events of an object */

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
    struct fake_context *next; /* next context in the list of open contexts */
    struct verbs_context verbs;
};
struct fake_context *fake_context_of(struct ibv_context *context);
void fake_context_remove(struct fake_context *context); /* removes the device, as if it were unplugged */
void fake_context_event(struct fake_context *context, enum ibv_event_type type, void *object);
/* The function 'name' calls this function first.  Returns the errno with which 'name' must fail, or 0. */
int fake_enter(struct ibv_context *context, const char *name);
/* Adds 'n' to a counter in the directory device->ibdev_path, where the kernel would show a NIC's counters. */
void fake_count(struct fake_device *device, const char *counter, uint64_t n);

/* ---- fake_memory.c ----------------------------------------------------------------------------------------------- */

struct fake_mr {
    struct ibv_mr mr; /* first */
    uint64_t address; /* first address of the region, as used in work requests */
    uint8_t *host;    /* first address of the region in the process's memory */
    unsigned access;
    bool is_mapped; /* true: this library has mapped the region from a file descriptor */
};

struct fake_pd {
    struct ibv_pd pd; /* first */
    pthread_rwlock_t pinned;
    struct fake_mr *mrs[FAKE_MAX_MRS]; /* [pinned] */
    atomic_int n_mrs, n_qps;
};
/* Returns the memory of a part of a work request.  If the request may not use the memory, returns NULL.  The caller
 * holds the lock 'pinned'. */
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
    struct fake_queue *queue; /* this completion retires the queue's requests up to and including 'number' */
    uint64_t number;
};

struct fake_cq {
    struct ibv_cq cq; /* first */
    pthread_mutex_t lock;
    struct fake_completion *ring; /* [lock] [cqe] */
    uint64_t n_pushed, n_popped;  /* [lock] */
    bool is_armed, is_solicited;  /* [lock] */
    bool is_overrun;              /* [lock] */
    uint32_t n_events;            /* [cq.mutex] events that the program has taken and must acknowledge */
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
    _Atomic uint64_t n_done;       /* [turn] number of requests that the queue's thread has finished */
    _Atomic uint64_t n_retired;    /* number of retired requests: the program has polled the request's
                                    * completion, or a later completion */
    pthread_mutex_t turn;
    int wake;   /* eventfd that wakes the queue's thread */
    int socket; /* [turn] -1: not open */
    pthread_t thread;
    bool is_running;
};

struct fake_qp {
    struct ibv_qp qp; /* first */
    struct fake_context *context;
    pthread_mutex_t lock;
    enum ibv_qp_state state; /* [lock] */
    bool signals_all;
    bool is_patient;           /* true: frames wait for a receive request */
    bool poisons;              /* true: memory is overwritten when it is posted for receiving */
    int64_t delay_ns;          /* time from posting to sending, if there is no rate limit */
    bool is_stopping;          /* [lock] */
    uint32_t rate_kbps, burst; /* [lock] rate limit (0: none), and burst in bytes */
    struct fake_flow *flows;   /* [lock] */
    struct fake_queue recv, send;
    uint64_t n_missed;    /* [turn of recv] number of frames lost because this library was too slow */
    struct fake_qp *next; /* next queue pair in the context's list */
};
void fake_qp_fail(struct fake_qp *qp, bool says_so); /* sets the error state, and posts an event if 'says_so' is
                                                      * true */
int fake_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr);

/* ---- fake_queue.c: requests are numbered from 0 ------------------------------------------------------------------ */

int fake_queue_init(struct fake_queue *queue, uint32_t n_slots, uint32_t max_parts, uint32_t max_inline);
void fake_queue_stop(struct fake_queue *queue); /* ends the thread; the caller has set 'is_stopping' */
void fake_queue_fini(struct fake_queue *queue);
void fake_queue_close(struct fake_queue *queue); /* closes the socket; hold 'turn' */
struct fake_request *fake_queue_request(struct fake_queue *queue, uint64_t number);
struct ibv_sge *fake_queue_parts(struct fake_queue *queue, uint64_t number);
struct fake_completion fake_completion(struct fake_qp *qp, struct fake_queue *queue, uint64_t number,
                                       enum ibv_wc_status status);
/* Ends the next 'n' requests, with these completions.  The caller holds the lock 'turn'. */
void fake_queue_complete(struct fake_qp *qp, struct fake_queue *queue, const struct fake_completion *completions,
                         size_t n_completions, size_t n);
void fake_queue_flush(struct fake_qp *qp, struct fake_queue *queue); /* flushes all requests; hold 'turn' */
int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* ---- fake_flow.c: flow steering, by filters of the Linux kernel -------------------------------------------------- */

struct fake_flow {
    struct ibv_flow flow; /* first */
    struct fake_qp *qp;
    struct fake_flow *next;
    size_t n_code;
    struct sock_filter code[96]; /* filter: accepts a frame, or continues with the next flow's code */
};
struct ibv_flow *fake_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr);
int fake_destroy_flow(struct ibv_flow *flow);
int fake_flows_attach(struct fake_qp *qp, int socket); /* attaches the filters of all flows; hold the queue pair's
                                                        * lock */

/* ---- fake_receive.c, fake_send.c: the threads -------------------------------------------------------------------- */

int fake_receive_open(struct fake_qp *qp); /* opens the queue's socket; hold 'turn'; returns 0 or errno */
void *fake_receive_run(void *qp);
int fake_send_open(struct fake_qp *qp);
void *fake_send_run(void *qp);

#endif
