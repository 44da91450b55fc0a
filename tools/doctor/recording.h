/* recording.h - checks of the places to which both kinds of recorders write: directory, disk, unit, and names of
 * files. */
#ifndef TOOLS_DOCTOR_RECORDING_H
#define TOOLS_DOCTOR_RECORDING_H

#include "tools/doctor/doctor.h"

#include <limits.h>
#include <sys/types.h>

#define RECORDING_WEEK_S (7 * 86400.0) /* time for which a disk should have room */

/* The files that a recorder writes to a directory. */
struct doctor_recording {
    const struct doctor_file *file;
    const char *program;   /* "visrec" */
    const char *key;       /* key of the file's name */
    const char *what;      /* unit of data that a full disk costs, for example "dumps" */
    const char *limit_key; /* key that limits the recording; NULL: no limit */
    const char *directory;
    double bytes_per_s; /* upper bound */
    double length_s;    /* length of the recording; valid with 'limit_key' */
};

/* Finds the directory of a path. */
void doctor_recording_directory(const char *path, char directory[PATH_MAX]);

/* Returns the bytes free for the recorder, and finds the disk.  If the space is unknown, adds a finding and returns a
 * negative number. */
double doctor_recording_free_bytes(struct doctor *doctor, const struct doctor_recording *recording, dev_t *disk);

/* Checks how long the space on the disk lasts. */
void doctor_recording_check_room(struct doctor *doctor, const struct doctor_recording *recording, double free_bytes);

/* Checks whether the unit may write to the directory. */
void doctor_recording_check_unit(struct doctor *doctor, const struct doctor_recording *recording);

/* Checks whether a restarted unit writes to a new name: 'path' must contain a time. */
void doctor_recording_check_name(struct doctor *doctor, const struct doctor_recording *recording, const char *path);

/* Reports the 'n' dumps or batches ('what') that a running recorder lost because of a full disk.  'directories' are
 * separated by blanks.  Reports nothing if n is 0. */
void doctor_recording_check_unwritten(struct doctor *doctor, const struct doctor_file *file, const char *what, double n,
                                      const char *directories);

/* Returns true if a file of the system contains a word. */
bool doctor_file_has(const char *path, const char *word);

#endif
