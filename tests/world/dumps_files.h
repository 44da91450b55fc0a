/* dumps_files.h - compares the recorder's files with the dumps that X-engines sent (dumps.h).
 *
 * A function fails the run at the first value that is neither exact nor flagged.
 * Threads: the world's first thread, after the recorder has ended. */
#ifndef TESTS_WORLD_DUMPS_FILES_H
#define TESTS_WORLD_DUMPS_FILES_H

#include "tests/world/dumps.h"

#define DUMPS_FILES_PATH_BYTES 160
#define DUMPS_FILES_MAX        (2 * DUMPS_MAX)

/* The contents of all files. */
struct dumps_tally {
    uint64_t n_dumps, n_heaps, n_values, n_flagged;
    unsigned n_in_file[DUMPS_FILES_MAX + 1]; /* dumps in a file, by number from 1 on */
    unsigned first[DUMPS_FILES_MAX + 1];     /* index from which the file's dumps are searched */
    bool has_dump[DUMPS_MAX], has_heap[DUMPS_MAX][DUMPS_MAX_SUBSTREAMS];
    int64_t sync_unix_s;
};

/* Writes the name of the file with this number, from 1 on. */
void dumps_files_name(const char *directory, unsigned number, char path[DUMPS_FILES_PATH_BYTES]);

/* Reads all files.  If the disk ran out at a write, the newest file may need a repair. */
void dumps_files_check(const char *directory, int64_t sync_unix_s, bool ran_out, struct dumps_tally *tally);

/* Checks a file that a kill left: the file has the first 'n_counted' dumps of the finished file with this number, and
 * perhaps one dump more, at once or after a repair. */
void dumps_files_check_killed(const char *path, unsigned number, uint64_t n_counted, const struct dumps_tally *tally);

/* Removes all files of the directory. */
void dumps_files_remove(const char *directory);

#endif
