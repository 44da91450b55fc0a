/* state_file.h - files that keep run-time settings across restarts, as text that a person can read.
 *
 * Flow:      a request calls state_file_changed() --at once, or a second after the last write--> write() on main makes
 *            the text --> a thread replaces the file.  The next start reads the file:
 *            table_file_read(state_file_path()...).
 * Where:     state.directory of the YAML, else the service's directory ($STATE_DIRECTORY of systemd), else nowhere:
 *            then nothing is kept, and all these functions do nothing.
 * Only one process uses the directory at a time: state_files_open() locks it.  The directory is not used if other users
 * may change it or a file in it (trust.h).
 * Status:    the sensor 'state-status' is in error after a file, or a part of a file, was ignored, until the next
 *            start.  Only a person knows whether the lost settings have been set again.
 * A file is the old one or the new one at any time, even after a crash.  A crash may lose the settings of the last
 * second; a stop loses nothing.  A file exists only after a request has set something that belongs to it.
 * Threads:   all functions on main.   Blocking: only state_files_close() waits for the disk. */
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
    char *directory; /* NULL: the service's directory, or none */
};

#define CONFIG_N_STATE_KEYS 1

extern const struct config_key config_state_keys[CONFIG_N_STATE_KEYS];

/* Row of a table of sections.  'type' is the whole file's struct, whose member 'state' is a struct config_state. */
#define CONFIG_STATE_SECTION(type)                                                                                     \
    CONFIG_SECTION(type, state, config_state_keys, "Settings that are kept across restarts.", .optional = true)

/* Writes the whole text of a file.  Returns false if there is nothing to keep; then no file exists.  May take some
 * milliseconds, during which no request is answered.  Settings beyond a MiB are therefore cut into several files. */
typedef bool (*state_file_write)(FILE *text, void *arg);

/* Finds the directory for the files, and logs it.  Adds 'status' to 'sensors' (NULL: none) as the sensor
 * 'state-status'.  'status' must live as long as 'sensors'.  Returns 0 or negative errno with one sentence in 'why':
 * -EBUSY if another process keeps its files there, -EPERM if other users may change the files there. */
int state_files_open(const struct config_state *config, struct ev_loop *loop, struct sensors *sensors,
                     struct sensor *status, struct state_files **files, char *why, size_t why_bytes);

/* Adds the file 'name' (copied).  Characters that suit no file name are written like %2F.  Returns 0 or -ENOMEM. */
int state_files_add(struct state_files *files, const char *name, state_file_write write, void *arg,
                    struct state_file **file);

/* Returns the path to read, or NULL if nothing is kept.  Logs a file that cannot be trusted, and returns NULL. */
const char *state_file_path(struct state_file *file);

/* Records that a kept setting is not in force, or only in part; the log says why. */
void state_file_ignored(struct state_file *file);

/* Records that the file's text has changed, and schedules a write. */
void state_file_changed(struct state_file *file);

/* Writes all changed files, then frees the files.  NULL is accepted. */
void state_files_close(struct state_files *files);

#endif
