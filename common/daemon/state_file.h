/* state_file.h - files that keep, across restarts, what was set while the program ran: text that a person can read.
 *
 * Flow:      handler: state_file_changed() --at once, or a second after the last write--> write() on main makes the
 *            text --> a thread replaces the file.  The next start reads it: table_file_read(state_file_path()...).
 * Where:     state.directory of the YAML, or else the service's ($STATE_DIRECTORY of systemd), or else nowhere: then
 *            nothing is kept, and all of this does nothing.
 * The directory is one process's at a time: state_files_open() locks it.
 * Nor is it used if other users may change it, or a file in it (trust.h).
 * Status:    the sensor 'state-status' is in error once a file, or a part of it, was not taken, until the next start: only a
 *            person knows whether what was lost has been set again.
 * A file is the old one or the new one at any time, whatever crashes.  Settings of the second before a crash
 * may be lost; a stop loses nothing.  A file is there only once somebody has set something of it.
 * Threads:   all functions are main's.   Blocking: state_files_close() waits for the disk, nothing else does. */
#ifndef COMMON_DAEMON_STATE_FILE_H
#define COMMON_DAEMON_STATE_FILE_H

#include "common/config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct ev_loop;
struct sensor;
struct sensors;
struct state_file;
struct state_files;

/* The section state of a configuration file. */
struct config_state {
    char *directory; /* NULL: the service's, or none */
};

#define CONFIG_N_STATE_KEYS 1

extern const struct config_key config_state_keys[CONFIG_N_STATE_KEYS];

/* The row of a table of sections; 'type' is the struct of the whole file, which has this one by the section's name. */
#define CONFIG_STATE_SECTION(type)                                                                                     \
    CONFIG_SECTION(type, state, config_state_keys, "Settings that are kept across restarts.", .optional = true)

/* Writes the whole of a file's text; returns false where there is nothing to keep: then there will be no file.  It may
 * take some milliseconds, for which no request is answered, so what grows beyond a MiB is cut in several files. */
typedef bool (*state_file_write)(FILE *text, void *arg);

/* Looks where files are to be kept, and says so in the log.  'status' becomes the sensor 'state-status' of 'sensors'
 * (NULL: none), and stays for as long as that set.  Returns 0 or negative errno with one sentence in 'why': -EBUSY where
 * another process keeps its files there, -EPERM where others may change what is there. */
int state_files_open(const struct config_state *config, struct ev_loop *loop, struct sensors *sensors,
                     struct sensor *status, struct state_files **files, char *why, size_t why_bytes);

/* Adds the file 'name' (copied; characters that file names lack are written as %2F is).  Returns 0 or -ENOMEM. */
int state_files_add(struct state_files *files, const char *name, state_file_write write, void *arg,
                    struct state_file **file);

/* The path to read; or NULL where nothing is kept or, after a sentence in the log, the file cannot be trusted. */
const char *state_file_path(struct state_file *file);

/* A kept setting is not in force, or not all of it; the log says why. */
void state_file_ignored(struct state_file *file);

/* Call when the file's text has changed. */
void state_file_changed(struct state_file *file);

/* Writes what has changed.  The files are gone afterwards.  NULL is accepted. */
void state_files_close(struct state_files *files);

#endif
