/* fake_counts.c - counts the memory that has been taken.  The counts lie in a file, which a test reads while the
 * program runs. */
#include "fake_cuda.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define N_PLACES 65536

struct place {
    const void *memory; /* NULL: free */
    size_t bytes;
    enum fake_memory kind;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct place places[N_PLACES];
static size_t n_places;
static uint64_t *taken; /* [FAKE_N_MEMORIES] */

static void open_file(void)
{
    static uint64_t nowhere[FAKE_N_MEMORIES];
    const char *path = getenv("CBF_FAKE_CUDA_COUNTS");

    taken = nowhere;
    if (!path)
        return;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(nowhere)))
        abort();
    taken = mmap(NULL, sizeof(nowhere), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (taken == MAP_FAILED)
        abort();
}

void fake_taken(enum fake_memory kind, const void *memory, size_t bytes)
{
    size_t i = 0;

    pthread_mutex_lock(&lock);
    if (!taken)
        open_file();
    while (i < n_places && places[i].memory)
        i++;
    if (i == N_PLACES)
        abort();
    n_places = i == n_places ? n_places + 1 : n_places;
    places[i] = (struct place){memory, bytes, kind};
    taken[kind] += bytes;
    pthread_mutex_unlock(&lock);
}

void fake_given_back(enum fake_memory kind, const void *memory)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; memory && i < n_places; i++)
        if (places[i].memory == memory && places[i].kind == kind) {
            taken[kind] -= places[i].bytes;
            places[i].memory = NULL;
            break;
        }
    pthread_mutex_unlock(&lock);
}

bool fake_has(enum fake_memory kind, const void *memory)
{
    const uint8_t *at = memory;
    bool found = false;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; !found && i < n_places; i++) {
        const uint8_t *first = places[i].memory;
        found = first && places[i].kind == kind && at >= first && at < first + places[i].bytes;
    }
    pthread_mutex_unlock(&lock);
    return found;
}
