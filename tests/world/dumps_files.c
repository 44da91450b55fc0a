/* dumps_files.c - see dumps_files.h. */
#include "tests/world/dumps_files.h"

#include "tests/world/disk.h"
#include "tests/world/recording.h"
#include "tests/world/sched.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void dumps_files_name(const char *directory, unsigned number, char path[DUMPS_FILES_PATH_BYTES])
{
    if (number == 1)
        snprintf(path, DUMPS_FILES_PATH_BYTES, "%s/x.uvh5", directory);
    else
        snprintf(path, DUMPS_FILES_PATH_BYTES, "%s/x-%u.uvh5", directory, number);
}

/* Returns the index of the dump with this date, from 'first' on.  The recorder writes dumps in the order in which they
 * were sent.  Returns DUMPS_MAX for a dump at a false time. */
static unsigned find_dump(double julian_date, int64_t sync_unix_s, unsigned first)
{
    double unix_s = (julian_date - 2440587.5) * 86400;
    double middle = (unix_s - (double)sync_unix_s) * DUMPS_RATE_HZ / DUMPS_SAMPLES - 0.5;
    int64_t number = llround(middle);

    if (fabs(middle - (double)number) > 2e-3) /* a Julian date resolves 40 us */
        world_fail("a dump has the date %.9f, which is no dump's middle", julian_date);
    for (unsigned i = first; i < dumps.n; i++)
        if (dumps.numbers[i] == number)
            return i;
    bool is_far = number > dumps.numbers[0] + DUMPS_FAR_AWAY / 2;
    if (!is_far || !dumps.is_unsafe)
        world_fail("a dump is in a file %lld dumps after the first, but X-engines did not send it",
                   (long long)(number - dumps.numbers[0]));
    world_note("dumps at a false time");
    return DUMPS_MAX;
}

static bool is_same(const struct dumps_value *a, const struct dumps_value *b)
{
    return a->re == b->re && a->im == b->im && a->is_flagged == b->is_flagged && a->nsamples == b->nsamples;
}

struct match {
    size_t n_values, n_absent, n_sent; /* values, those that are absent, and those as they were sent */
};

static void check_value(const struct recording *r, size_t at, unsigned dump, unsigned substream, unsigned ant_1,
                        unsigned ant_2, unsigned i, struct match *match)
{
    const struct dumps_value absent = {.is_flagged = true};
    struct dumps_value found = {r->vis[at][0], r->vis[at][1], r->flags[at] == 1, r->nsamples[at]};
    struct dumps_value sent = dumps_expect(dump, substream, i / 4, ant_1, ant_2, i % 4, false);
    bool is_sent = is_same(&found, &sent);

    if (!is_sent && dumps.heaps[dump][substream].forged) {
        struct dumps_value forged = dumps_expect(dump, substream, i / 4, ant_1, ant_2, i % 4, true);
        is_sent = is_same(&found, &forged);
    }
    match->n_values++;
    match->n_absent += is_same(&found, &absent);
    match->n_sent += is_sent;
}

/* Checks a substream's values of a dump.  Returns true if the file has the heap. */
static bool check_heap(const struct recording *r, size_t row, unsigned dump, unsigned substream)
{
    const struct dumps_shape *shape = &dumps.shape;
    struct match match = {0};

    for (unsigned ant_1 = 0; ant_1 < shape->n_ants; ant_1++)
        for (unsigned ant_2 = ant_1; ant_2 < shape->n_ants; ant_2++, row++) {
            if (r->ant_1[row] != ant_1 || r->ant_2[row] != ant_2)
                world_fail("dump %u: row %zu has the antennas %d and %d", dump, row, (int)r->ant_1[row],
                           (int)r->ant_2[row]);
            for (unsigned i = 0; i < shape->n_chan * 4; i++)
                check_value(r, (row * shape->n_substreams + substream) * shape->n_chan * 4 + i, dump, substream, ant_1,
                            ant_2, i, &match);
        }
    if (match.n_absent == match.n_values)
        return false;
    if (match.n_sent != match.n_values)
        world_fail("dump %u, substream %u: only %zu of %zu values are as they were sent, and %zu are flagged", dump,
                   substream, match.n_sent, match.n_values, match.n_absent);
    if (!dumps_arrived(dump, substream))
        world_fail("dump %u, substream %u: not flagged, and packets are missing", dump, substream);
    if (dumps_contested(dump, substream))
        world_fail("dump %u, substream %u: not flagged, and different copies of a packet arrived", dump, substream);
    return true;
}

/* Counts the heaps of a dump at a false time.  The first value of a heap is never flagged. */
static void count_false_heaps(const struct recording *r, size_t row, struct dumps_tally *tally)
{
    for (unsigned substream = 0; tally && substream < dumps.shape.n_substreams; substream++)
        tally->n_heaps += !r->flags[(row * dumps.shape.n_substreams + substream) * dumps.shape.n_chan * 4];
}

/* Checks the dumps of a file, which are searched from index 'next' on.  Returns the index after the last dump.  'tally'
 * may be NULL. */
static unsigned check_dumps(const struct recording *r, int64_t sync_unix_s, unsigned next, struct dumps_tally *tally)
{
    size_t n_baselines = dumps.shape.n_baselines;

    for (size_t row = 0; row < r->n_rows; row += n_baselines) {
        unsigned dump = find_dump(r->times[row], sync_unix_s, next);
        for (size_t b = 1; b < n_baselines; b++)
            if (r->times[row + b] != r->times[row])
                world_fail("the rows of a dump have different times");
        if (row > 0 && r->times[row] <= r->times[row - 1])
            world_fail("the times of a file do not increase");
        if (dump == DUMPS_MAX) {
            count_false_heaps(r, row, tally);
            continue;
        }
        next = dump + 1;
        for (unsigned substream = 0; substream < dumps.shape.n_substreams; substream++) {
            bool is_present = check_heap(r, row, dump, substream);
            if (!tally)
                continue;
            tally->has_dump[dump] = true;
            tally->has_heap[dump][substream] = is_present;
            tally->n_heaps += is_present;
            world_note(is_present                         ? "heaps exact"
                       : dumps_contested(dump, substream) ? "heaps contested"
                                                          : "heaps flagged");
        }
    }
    return next;
}

static size_t row_values(void)
{
    return (size_t)dumps.shape.n_substreams * dumps.shape.n_chan * 4;
}

/* Reads a file, and repairs the file before if necessary. */
static void read_file(const char *path, bool may_repair, struct recording *r)
{
    bool ok = recording_read(path, dumps.shape.n_baselines, row_values(), r);

    if (!ok && may_repair && recording_repair(path)) {
        world_note("files repaired after a full disk");
        ok = recording_read(path, dumps.shape.n_baselines, row_values(), r);
    }
    if (!ok)
        world_fail("%s cannot be read", path);
}

static void add_file(const struct recording *r, struct dumps_tally *tally)
{
    world_note("files");
    tally->n_dumps += r->n_dumps;
    tally->n_values += r->n_rows * row_values();
    for (size_t i = 0; i < r->n_rows * row_values(); i++)
        tally->n_flagged += r->flags[i];
}

void dumps_files_check(const char *directory, int64_t sync_unix_s, bool ran_out, struct dumps_tally *tally)
{
    char path[DUMPS_FILES_PATH_BYTES], copy[DUMPS_FILES_PATH_BYTES + 8];
    struct recording r;
    unsigned next = 0;

    *tally = (struct dumps_tally){.sync_unix_s = sync_unix_s};
    for (unsigned number = 1; number <= DUMPS_FILES_MAX; number++) {
        dumps_files_name(directory, number, path);
        tally->first[number] = next;
        if (access(path, F_OK) != 0)
            continue; /* a file without dumps was removed */
        snprintf(copy, sizeof(copy), "%s.copy", path);
        if (ran_out)
            disk_copy(path, copy); /* HDF5 does not open a file again that the recorder left open */
        read_file(ran_out ? copy : path, ran_out, &r);
        if (r.n_dumps == 0)
            world_fail("%s has no dumps", path);
        next = check_dumps(&r, sync_unix_s, next, tally);
        add_file(&r, tally);
        tally->n_in_file[number] = (unsigned)r.n_dumps;
        recording_free(&r);
    }
    dumps_files_name(directory, 1, path);
    snprintf(copy, sizeof(copy), "%s.new", path);
    if (access(copy, F_OK) == 0)
        world_fail("%s is left over", copy);
    if (ran_out)
        recording_close_left();
}

void dumps_files_check_killed(const char *path, unsigned number, uint64_t n_counted, const struct dumps_tally *tally)
{
    struct recording r;

    if (n_counted == 0) {
        world_note("kills before the first dump of a file");
        return;
    }
    bool ok = recording_read(path, dumps.shape.n_baselines, row_values(), &r);
    world_note(ok ? "kills whose file is complete" : "kills whose file needs a repair");
    if (!ok && recording_repair(path))
        ok = recording_read(path, dumps.shape.n_baselines, row_values(), &r);
    if (!ok)
        world_fail("%s cannot be read", path);
    if (r.n_dumps < n_counted || r.n_dumps > n_counted + 1)
        world_fail("%s: %zu dumps, and %llu were counted as written", path, r.n_dumps, (unsigned long long)n_counted);
    world_note(r.n_dumps > n_counted ? "kills after a dump was written" : "kills before a dump was written");
    check_dumps(&r, tally->sync_unix_s, tally->first[number], NULL);
    recording_free(&r);
}

void dumps_files_remove(const char *directory)
{
    DIR *entries = opendir(directory);
    char path[DUMPS_FILES_PATH_BYTES + 256];

    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        unlink(path);
    }
    if (entries)
        closedir(entries);
}
