/* cache.c - reads and writes the entries of a cache.  Each entry is a file "<key>.bin" with a header and the data. */
#include "common/device/cuda/cache.h"

#include "common/base/file.h"
#include "common/base/trust.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC      "cbfcubin"
#define NAME_BYTES 40

/* Header of a file, in the host's byte order.  A cache cannot be moved to a host with another byte order. */
struct header {
    char magic[8];
    struct hash key;
    uint64_t data_bytes;
    struct hash checksum; /* checksum of the data */
};

static struct header header_of(struct hash key, const void *data, size_t bytes)
{
    struct header header = {.magic = MAGIC, .key = key, .data_bytes = bytes, .checksum = HASH_START};

    hash_bytes(&header.checksum, data, bytes);
    return header;
}

static void name_of(struct hash key, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%016" PRIx64 "%016" PRIx64 ".bin", key.high, key.low);
}

static int read_all(int fd, void *out, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(fd, (char *)out + done, bytes - done);

        if (n == 0)
            return -ENOENT; /* the file is too short */
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Allocates at most the file's size, even if the header is damaged. */
int cache_read_entry(int fd, struct hash key, void **data, size_t *bytes)
{
    struct header header, expected;
    struct stat st;

    if (fstat(fd, &st) != 0)
        return -errno;
    if ((size_t)st.st_size < sizeof(header) || read_all(fd, &header, sizeof(header)) != 0)
        return -ENOENT;
    size_t n = (size_t)st.st_size - sizeof(header);
    void *memory = malloc(n ? n : 1);
    if (!memory)
        return -ENOMEM;
    int err = read_all(fd, memory, n);
    if (!err) {
        expected = header_of(key, memory, n);
        err = memcmp(&header, &expected, sizeof(header)) == 0 ? 0 : -ENOENT;
    }
    if (err) {
        free(memory);
        return err;
    }
    *data = memory;
    *bytes = n;
    return 0;
}

int cache_read(const char *directory, struct hash key, void **data, size_t *bytes)
{
    char name[NAME_BYTES];

    name_of(key, name);
    int fd = trust_open(directory, name);
    if (fd < 0)
        return fd;
    int err = cache_read_entry(fd, key, data, bytes);
    close(fd);
    return err;
}

int cache_write(const char *directory, struct hash key, const void *data, size_t bytes)
{
    struct header header = header_of(key, data, bytes);
    const struct file_part parts[] = {{&header, sizeof(header)}, {data, bytes}};
    char name[NAME_BYTES];

    if (mkdir(directory, 0755) != 0 && errno != EEXIST)
        return -errno;
    int err = trust_directory(directory);
    if (err)
        return err;
    name_of(key, name);
    return file_replace(directory, name, parts, 2); /* makes the file readable for all users */
}
