/* state_file.h - files that keep, across restarts, what was set while the program ran: text that a person can read.
 *
 * Flow:      handler: state_file_changed() --at once, or a second after the last write--> write() on main makes the
 *            text --> a thread replaces the file.  The next start reads it: table_file_read(state_file_path()...).
 * Where:     state.directory of the YAML, or else the service's ($STATE_DIRECTORY of systemd), or else nowhere: then
 *            nothing is kept, and all of this does nothing.
 * The directory is one process's at a time: state_files_open() locks it.
 * A file is the old one or the new one at any time, whatever crashes.  What a client set in the second before a crash
 * may be lost; a stop loses nothing.  A file is there only once somebody has set something of it.
 * Threads:   all functions are main's.   Blocking: state_files_close() waits for the disk, nothing else does. */
#ifndef COMMON_STATE_FILE_H
#define COMMON_STATE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct config_state; /* sections.h */
struct ev_loop;
struct state_file;
struct state_files;

/* Writes the whole of a file's text; returns false where there is nothing to keep: then there will be no file.  It may
 * take some milliseconds, for which no request is answered, so what grows beyond a MiB is cut in several files. */
typedef bool (*state_file_write)(FILE *text, void *arg);

/* Looks where files are to be kept, and says so in the log.  Returns 0 or negative errno with one sentence in 'why':
 * -EBUSY where another process keeps its files there. */
int state_files_open(const struct config_state *config, struct ev_loop *loop, struct state_files **files, char *why,
                     size_t why_bytes);

/* Adds the file 'name' (copied; characters that file names lack are written as %2F is).  Returns 0 or -ENOMEM. */
int state_files_add(struct state_files *files, const char *name, state_file_write write, void *arg,
                    struct state_file **file);

/* What to read, or NULL where there is nothing kept. */
const char *state_file_path(const struct state_file *file);

/* Its text is another one now. */
void state_file_changed(struct state_file *file);

/* Writes what has changed.  The files are gone afterwards.  NULL is accepted. */
void state_files_close(struct state_files *files);

#endif
