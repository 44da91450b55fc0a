/* fake_memory.c - protection domains and registered memory.  See fake_verbs.h. */
#include "fake_verbs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KEY_SHIFT 12 /* a key is a number of its own, whatever the domain, and an index */
_Static_assert(FAKE_MAX_MRS == 1 << KEY_SHIFT, "the index of a key");

static atomic_uint n_made;

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    int error = fake_enter(context, "ibv_alloc_pd");
    struct fake_pd *pd = error ? NULL : calloc(1, sizeof(*pd));

    if (!pd) {
        errno = error ? error : ENOMEM;
        return NULL;
    }
    pd->pd.context = context;
    pthread_rwlock_init(&pd->pinned, NULL);
    fake_context_of(context)->n_pds++;
    fake_trace("ibv_alloc_pd %p", (void *)pd);
    return &pd->pd;
}

int ibv_dealloc_pd(struct ibv_pd *ibv)
{
    struct fake_pd *pd = (struct fake_pd *)ibv;

    fake_trace("ibv_dealloc_pd %p", (void *)pd);
    if (pd->n_mrs || pd->n_qps) {
        fake_complain("a protection domain is given back with %d memory regions and %d queue pairs", pd->n_mrs,
                      pd->n_qps);
        return EBUSY;
    }
    fake_context_of(ibv->context)->n_pds--;
    pthread_rwlock_destroy(&pd->pinned);
    free(pd);
    return 0;
}

/* True if there is memory at each page; the kernel pins it, and so notices. */
static bool is_there(void *host, size_t length)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), step = 4096 * page;
    uintptr_t end = (uintptr_t)host + length;
    unsigned char resident[4096];

    for (uintptr_t at = (uintptr_t)host & ~(page - 1); at < end; at += step)
        if (mincore((void *)at, end - at < step ? end - at : step, resident))
            return false;
    return true;
}

struct ibv_mr *fake_reg_mr_at(struct ibv_pd *ibv, void *host, size_t length, uint64_t address, unsigned access,
                              bool is_mapped)
{
    struct fake_pd *pd = (struct fake_pd *)ibv;
    struct fake_mr *mr = calloc(1, sizeof(*mr));
    size_t slot = 0;

    if (!mr)
        return NULL;
    *mr = (struct fake_mr){.address = address, .host = host, .access = access, .is_mapped = is_mapped};
    mr->mr = (struct ibv_mr){.context = ibv->context, .pd = ibv, .length = length};
    if (!is_mapped)
        mr->mr.addr = host;
    pthread_rwlock_wrlock(&pd->pinned);
    while (slot < FAKE_MAX_MRS && pd->mrs[slot])
        slot++;
    if (slot < FAKE_MAX_MRS) {
        pd->mrs[slot] = mr;
        mr->mr.handle = (uint32_t)slot;
        mr->mr.lkey = mr->mr.rkey = ++n_made << KEY_SHIFT | (uint32_t)slot;
    }
    pthread_rwlock_unlock(&pd->pinned);
    if (slot == FAKE_MAX_MRS) {
        free(mr);
        errno = ENOMEM;
        return NULL;
    }
    pd->n_mrs++;
    return &mr->mr;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *host, size_t length, uint64_t address, unsigned access,
                             const char *name)
{
    int error = fake_enter(pd->context, name);
    struct ibv_mr *mr = NULL;

    if (!error &&
        (length == 0 || length > fake_context_of(pd->context)->limits.orig_attr.max_mr_size ||
         ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE))))
        error = EINVAL;
    if (!error && !is_there(host, length))
        error = EFAULT;
    if (error)
        errno = error;
    else
        mr = fake_reg_mr_at(pd, host, length, address, access, false);
    fake_trace("%s %zu bytes access %#x: %s", name, length, access, mr ? "ok" : strerror(errno));
    return mr;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *host, size_t length, int access)
{
    return reg_mr(pd, host, length, (uintptr_t)host, (unsigned)access, "ibv_reg_mr");
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *host, size_t length, uint64_t address, unsigned access)
{
    return reg_mr(pd, host, length, address, access, "ibv_reg_mr");
}

#undef ibv_reg_mr_iova
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *host, size_t length, uint64_t address, int access)
{
    return reg_mr(pd, host, length, address, (unsigned)access, "ibv_reg_mr");
}

/* A file descriptor that can be mapped stands for memory of another device. */
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t address, int fd,
                                 int access)
{
    int error = fake_enter(pd->context, "ibv_reg_dmabuf_mr");
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = offset % page;
    struct ibv_mr *mr = NULL;
    uint8_t *base = MAP_FAILED;

    if (!error && !fake_limit("dmabuf", 1))
        error = EOPNOTSUPP;
    if (!error && (length == 0 || address % page != before))
        error = EINVAL;
    if (!error) {
        base = mmap(NULL, before + length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - before));
        error = base == MAP_FAILED ? EBADF : 0;
    }
    if (error)
        errno = error;
    else
        mr = fake_reg_mr_at(pd, base + before, length, address, (unsigned)access, true);
    fake_trace("ibv_reg_dmabuf_mr %zu bytes at %llu access %#x: %s", length, (unsigned long long)offset,
               (unsigned)access, mr ? "ok" : strerror(errno));
    return mr;
}

int ibv_dereg_mr(struct ibv_mr *ibv)
{
    struct fake_mr *mr = (struct fake_mr *)ibv;
    struct fake_pd *pd = (struct fake_pd *)ibv->pd;
    int error = fake_fails("ibv_dereg_mr");

    fake_trace("ibv_dereg_mr %zu bytes", ibv->length);
    if (error)
        return error;
    pthread_rwlock_wrlock(&pd->pinned);
    pd->mrs[ibv->handle] = NULL;
    pthread_rwlock_unlock(&pd->pinned);
    if (mr->is_mapped) {
        size_t before = (uintptr_t)mr->host % (size_t)sysconf(_SC_PAGESIZE);
        munmap(mr->host - before, ibv->length + before);
    }
    pd->n_mrs--;
    free(mr);
    return 0;
}

uint8_t *fake_memory_at(struct fake_pd *pd, const struct ibv_sge *part, bool writes)
{
    const struct fake_mr *mr = pd->mrs[part->lkey % FAKE_MAX_MRS];

    if (!mr || mr->mr.lkey != part->lkey || (writes && !(mr->access & IBV_ACCESS_LOCAL_WRITE)) ||
        part->addr < mr->address || part->length > mr->mr.length ||
        part->addr - mr->address > mr->mr.length - part->length)
        return NULL;
    return mr->host + (part->addr - mr->address);
}
