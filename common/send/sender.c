/* sender.c - the send thread, which sends output buffers from the worker.  See sender.h.
 *
 * Each turn of the loop takes the new jobs and finds the stream that is due first.  It then sends a batch of the
 * stream's packets, or sleeps until the stream is due.  The files send/stream*.c decide which packets a stream sends,
 * and when. */
#include "common/send/sender.h"

#include "common/base/clock.h"
#include "common/base/inbox.h"
#include "common/send/stream.h"
#include "common/base/thread.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STOP_HEAPS_MAX_NS (5 * NS_PER_S) /* after the deadline */

struct sender {
    char *thread_name;
    int cpu;
    struct inbox *inbox; /* items: value = stream's index, object = job; or value = deadline, object = NULL */
    size_t max_streams;
    size_t n_streams;
    struct send_stream **streams;
    size_t max_jobs;
    size_t n_jobs_promised; /* sum of the streams' max_jobs */
    int64_t give_up_ns;     /* [thread] deadline, monotonic */
    struct thread thread;
    bool running; /* [caller of start and stop] true if the thread must be joined */
};

/* ---- The thread -------------------------------------------------------------------------------------------------- */

static void bound_drains(struct sender *sender)
{
    for (size_t i = 0; i < sender->n_streams; i++)
        send_stream_bound_drain(sender->streams[i]);
}

static void give_sinks_until(struct sender *sender, int64_t give_up_ns)
{
    for (size_t i = 0; i < sender->n_streams; i++)
        send_sink_set_deadline(sender->streams[i]->sink, give_up_ns);
}

static void give_up(struct sender *sender)
{
    for (size_t i = 0; i < sender->n_streams; i++)
        send_stream_give_up(sender->streams[i]);
}

static void accept_item(struct sender *sender, const struct inbox_item *item)
{
    if (!item->object) {
        sender->give_up_ns = item->value;
        bound_drains(sender);
    } else {
        send_stream_take(sender->streams[item->value], item->object);
    }
}

/* Pops all new items.  Returns false if the inbox is stopped, so that no more jobs will follow. */
static bool take_jobs(struct sender *sender)
{
    struct inbox_item item;
    int err;
    while ((err = inbox_try_pop(sender->inbox, &item)) == 0)
        accept_item(sender, &item);
    return err != -EPIPE;
}

/* Polls all sinks for packets that have left.  Returns true if packets are still in flight. */
static bool reap_streams(struct sender *sender)
{
    size_t n_in_flight = 0;
    for (size_t i = 0; i < sender->n_streams; i++)
        n_in_flight += send_stream_reap(sender->streams[i]);
    return n_in_flight > 0;
}

/* Waits for an item until 'deadline_ns', and accepts it. */
static void wait_until(struct sender *sender, int64_t deadline_ns, bool more_to_come)
{
    struct inbox_item item;
    if (!more_to_come)
        clock_sleep_until(deadline_ns);
    else if (deadline_ns == NEVER_NS ? inbox_pop(sender->inbox, &item) == 0
                                     : inbox_pop_until(sender->inbox, deadline_ns, &item) == 0)
        accept_item(sender, &item);
}

/* Returns the time of the next wake-up: the earliest of 'wake_ns', 'reap_ns' and a future deadline. */
static int64_t next_look_ns(const struct sender *sender, int64_t wake_ns, int64_t reap_ns, int64_t now_ns)
{
    int64_t first_ns = reap_ns < wake_ns ? reap_ns : wake_ns;
    return sender->give_up_ns > now_ns && sender->give_up_ns < first_ns ? sender->give_up_ns : first_ns;
}

/* Returns the stream to serve next, and stores the time to serve it in '*wake_ns'.  If some streams may be served
 * now, returns the stream that is due first among these streams.  Otherwise returns the stream that may be served
 * first. */
static struct send_stream *find_next(const struct sender *sender, int64_t now_ns, int64_t *wake_ns)
{
    struct send_stream *next = sender->streams[0];

    *wake_ns = send_stream_wake_ns(next, now_ns);
    for (size_t i = 1; i < sender->n_streams; i++) {
        struct send_stream *stream = sender->streams[i];
        int64_t stream_ns = send_stream_wake_ns(stream, now_ns);
        bool both_may = stream_ns <= now_ns && *wake_ns <= now_ns;
        if (both_may ? send_stream_due_ns(stream) < send_stream_due_ns(next) : stream_ns < *wake_ns) {
            next = stream;
            *wake_ns = stream_ns;
        }
    }
    return next;
}

static bool any_work(const struct sender *sender)
{
    for (size_t i = 0; i < sender->n_streams; i++) {
        if (send_stream_has_work(sender->streams[i]))
            return true;
    }
    return false;
}

/* Sends the stop heaps of all streams in parallel, and waits until all packets have left. */
static void stop_streams(struct sender *sender)
{
    for (bool done = false; !done; clock_sleep_until(clock_monotonic_ns() + PACKET_SINK_ROOM_NS)) {
        thread_beat();
        done = true;
        for (size_t i = 0; i < sender->n_streams; i++)
            done &= send_stream_stop(sender->streams[i]);
        done &= !reap_streams(sender);
    }
}

static void *run(void *arg)
{
    struct sender *sender = arg;
    bool more_to_come = true;
    thread_wake_promptly();
    int64_t reap_ns = clock_monotonic_ns(); /* time of the next poll for sent packets */
    bool in_flight = false;                 /* true if the last poll found packets in flight */
    for (;;) {
        thread_beat();
        if (more_to_come && !take_jobs(sender)) {
            more_to_come = false;
            bound_drains(sender);
        }
        int64_t now_ns = clock_monotonic_ns(), wake_ns;
        if (now_ns >= sender->give_up_ns)
            give_up(sender);
        if (!more_to_come && !any_work(sender))
            break;
        struct send_stream *stream = find_next(sender, now_ns, &wake_ns);
        if (wake_ns > now_ns || reap_ns <= now_ns) {
            in_flight = reap_streams(sender);
            reap_ns = now_ns + PACKET_SINK_REAP_NS;
        }
        if (wake_ns <= now_ns)
            send_stream_serve(stream, now_ns);
        else
            wait_until(sender, next_look_ns(sender, wake_ns, in_flight ? reap_ns : NEVER_NS, now_ns), more_to_come);
    }
    if (clock_monotonic_ns() >= sender->give_up_ns) /* gives stop heaps time to leave on a slow network */
        give_sinks_until(sender, clock_monotonic_ns() + STOP_HEAPS_MAX_NS);
    stop_streams(sender);
    return NULL;
}

/* ---- Creation and end -------------------------------------------------------------------------------------------- */

int sender_create(const char *thread_name, int cpu, size_t max_streams, size_t max_jobs, struct sender **sender)
{
    assert(max_streams > 0 && max_jobs > 0);
    struct sender *new = calloc(1, sizeof(*new));
    if (!new)
        return -ENOMEM;
    new->cpu = cpu;
    new->give_up_ns = NEVER_NS;
    new->max_streams = max_streams;
    new->max_jobs = max_jobs;
    new->thread_name = strdup(thread_name);
    new->streams = calloc(max_streams, sizeof(*new->streams));
    if (!new->thread_name || !new->streams || inbox_create(max_jobs + 1, &new->inbox)) {
        sender_destroy(new);
        return -ENOMEM;
    }
    *sender = new;
    return 0;
}

int sender_add_stream(struct sender *sender, const struct send_stream_config *config, struct send_stream **out,
                      char *why, size_t why_bytes)
{
    assert(!sender->running && sender->n_streams < sender->max_streams);
    sender->n_jobs_promised += config->max_jobs;
    assert(sender->n_jobs_promised <= sender->max_jobs);

    struct send_stream *stream;
    int err = send_stream_create(config, &stream, why, why_bytes);
    if (err)
        return err;
    stream->sender = sender;
    stream->index = sender->n_streams;
    sender->streams[sender->n_streams++] = stream;
    *out = stream;
    return 0;
}

int sender_add_memory(struct send_stream *stream, const void *base, size_t n_bytes, char *why, size_t why_bytes)
{
    assert(!stream->sender->running);
    return send_sink_add_memory(stream->sink, base, n_bytes, why, why_bytes);
}

int sender_add_exported(struct send_stream *stream, const struct device_exported *memory, char *why, size_t why_bytes)
{
    assert(!stream->sender->running);
    return send_sink_add_exported(stream->sink, memory, why, why_bytes);
}

int sender_start(struct sender *sender)
{
    assert(!sender->running && sender->n_streams > 0);
    int err = thread_start(&sender->thread, sender->thread_name, sender->cpu, run, sender);
    sender->running = !err;
    return err;
}

void sender_push(struct send_stream *stream, struct send_job *job)
{
    const struct inbox_item item = {.value = (int64_t)stream->index, .object = job};
    inbox_push(stream->sender->inbox, &item);
}

void sender_set_deadline(struct sender *sender, int64_t give_up_ns)
{
    assert(sender->running);
    /* the sinks get the deadline at once, because the thread may be waiting for room in a sink */
    give_sinks_until(sender, give_up_ns);
    inbox_push(sender->inbox, &(struct inbox_item){.value = give_up_ns});
}

void sender_stop(struct sender *sender)
{
    if (!sender->running)
        return;
    inbox_stop(sender->inbox);
    thread_join(&sender->thread);
    sender->running = false;
}

uint64_t sender_n_failed(const struct sender *sender)
{
    uint64_t n_failed = 0;
    for (size_t i = 0; i < sender->n_streams; i++) {
        int last_errno;
        n_failed += send_sink_n_failed(sender->streams[i]->sink, &last_errno);
    }
    return n_failed;
}

uint64_t sender_n_given_up(const struct sender *sender)
{
    assert(!sender->running);
    uint64_t n_given_up = 0;
    for (size_t i = 0; i < sender->n_streams; i++)
        n_given_up += sender->streams[i]->n_given_up;
    return n_given_up;
}

void sender_destroy(struct sender *sender)
{
    if (!sender)
        return;
    sender_stop(sender);
    /* Returns the unsent jobs that the thread has not taken.  The thread had ended, or was never started. */
    struct inbox_item item;
    while (sender->inbox && inbox_try_pop(sender->inbox, &item) == 0)
        if (item.object)
            send_job_put(item.object);
    for (size_t i = 0; i < sender->n_streams; i++)
        send_stream_destroy(sender->streams[i]);
    inbox_destroy(sender->inbox);
    free(sender->streams);
    free(sender->thread_name);
    free(sender);
}
