/* fake_events.c - events that a program reads from a file descriptor: completions of a channel, events of a device.
 * See fake_verbs.h. */
#include "fake_verbs.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

int fake_events_init(struct fake_events *events)
{
    memset(events, 0, sizeof(*events));
    events->fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    if (events->fd < 0)
        return errno;
    pthread_mutex_init(&events->lock, NULL);
    return 0;
}

void fake_events_fini(struct fake_events *events)
{
    close(events->fd);
    pthread_mutex_destroy(&events->lock);
}

void fake_events_put(struct fake_events *events, const struct ibv_async_event *event)
{
    pthread_mutex_lock(&events->lock);
    if (events->n_put - events->n_taken == FAKE_MAX_EVENTS) {
        fake_complain("%d events wait and nobody reads them", FAKE_MAX_EVENTS);
    } else {
        events->ring[events->n_put++ % FAKE_MAX_EVENTS] = *event;
        eventfd_write(events->fd, 1);
    }
    pthread_mutex_unlock(&events->lock);
}

int fake_events_take(struct fake_events *events, struct ibv_async_event *event)
{
    for (;;) {
        struct pollfd ready = {.fd = events->fd, .events = POLLIN};
        bool blocks = !(fcntl(events->fd, F_GETFL) & O_NONBLOCK);
        if (poll(&ready, 1, blocks ? -1 : 0) < 0)
            return errno;
        pthread_mutex_lock(&events->lock);
        bool is_there = events->n_taken < events->n_put;
        if (is_there) {
            eventfd_t one;
            eventfd_read(events->fd, &one);
            *event = events->ring[events->n_taken++ % FAKE_MAX_EVENTS];
        }
        pthread_mutex_unlock(&events->lock);
        if (is_there || !blocks)
            return is_there ? 0 : EAGAIN;
    }
}

void fake_events_forget(struct fake_events *events, const void *object)
{
    size_t n_kept = 0;

    pthread_mutex_lock(&events->lock);
    for (size_t i = events->n_taken; i < events->n_put; i++) {
        struct ibv_async_event event = events->ring[i % FAKE_MAX_EVENTS];
        if ((const void *)event.element.cq == object) {
            eventfd_t one;
            eventfd_read(events->fd, &one);
        } else {
            events->ring[(events->n_taken + n_kept++) % FAKE_MAX_EVENTS] = event;
        }
    }
    events->n_put = events->n_taken + n_kept;
    pthread_mutex_unlock(&events->lock);
}
