/* state_file.h - text files that keep run-time settings across restarts.
 *
 * Flow:      a request calls state_file_changed() --immediately, or a second after the last write--> write() builds the
 *            text on the main thread --> the writer thread replaces the file.  At the next start, the owner of the
 *            settings reads the file with table_file_read(state_file_path()...).
 * Where:     in the directory state.directory of the configuration, or else in the service's directory
 *            ($STATE_DIRECTORY of systemd).  If neither directory is set, settings are not kept, and these functions
 *            do nothing.
 * Only one process uses the directory at a time: state_files_open() locks it.  The directory is not used if other users
 * may change it or a file in it (trust.h).
 * Status:    if a file or a part of it was ignored, the sensor 'state-status' has the status error until the next
 *            start.  The status is not cleared earlier, because only the operator knows whether the lost settings have
 *            been made again.
 * A file is replaced as a whole, so even after a crash the file has either the old or the new contents.  A crash may
 * lose the settings of the last second; a stop loses no settings.  A file exists only after a request has made a
 * setting that belongs to the file.
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

/* The section 'state' of a configuration file. */
struct config_state {
    char *directory; /* path of the directory; NULL: the service's directory, if there is one */
};

#define CONFIG_N_STATE_KEYS 1

extern const struct config_key config_state_keys[CONFIG_N_STATE_KEYS];

/* Row for the section 'state' in a table of sections.  'type' is the struct of the whole file.  Its member 'state' is
 * a struct config_state. */
#define CONFIG_STATE_SECTION(type)                                                                                     \
    CONFIG_SECTION(type, state, config_state_keys, "Settings that are kept across restarts.", .optional = true)

/* Writes the whole text of a file.  Returns false if there are no settings to keep; the file is then removed.  May take
 * some milliseconds, during which the main thread answers no requests.  Settings larger than a MiB should therefore be
 * split among several files. */
typedef bool (*state_file_write)(FILE *text, void *arg);

/* Finds the directory for the files, and logs it.  Adds the sensor 'state-status' to 'sensors', unless 'sensors' is
 * NULL.  The sensor uses the memory at 'status', which must live as long as 'sensors'.  Returns 0 or negative errno
 * with one sentence in 'why'. -EBUSY: another process uses the directory. -EPERM: other users may change files
 * there. */
int state_files_open(const struct config_state *config, struct ev_loop *loop, struct sensors *sensors,
                     struct sensor *status, struct state_files **files, char *why, size_t why_bytes);

/* Adds a file with a copy of the name 'name'.  Characters that a file name cannot have are escaped, as in %2F.
 * Returns 0 or -ENOMEM. */
int state_files_add(struct state_files *files, const char *name, state_file_write write, void *arg,
                    struct state_file **file);

/* Returns the path of a file to read, or NULL if there is no file.  If the file cannot be trusted, logs the reason and
 * returns NULL. */
const char *state_file_path(struct state_file *file);

/* Records that a kept setting was ignored, wholly or in part.  The caller has logged the reason. */
void state_file_ignored(struct state_file *file);

/* Records that settings of the file have changed, and schedules a write. */
void state_file_changed(struct state_file *file);

/* Writes all changed files, then frees 'files'.  NULL is accepted. */
void state_files_close(struct state_files *files);

#endif
