/* recording.h - where both kinds of recorders write: directory, disk, unit, and names of files. */
#ifndef TOOLS_DOCTOR_RECORDING_H
#define TOOLS_DOCTOR_RECORDING_H

#include "tools/doctor/doctor.h"

#include <limits.h>
#include <sys/types.h>

#define RECORDING_WEEK_S (7 * 86400.0) /* that a disk should have room for */

/* The files that a recorder writes to a directory. */
struct doctor_recording {
    const struct doctor_file *file;
    const char *program;   /* "visrec" */
    const char *key;       /* that has the file's name */
    const char *what;      /* that a full disk costs */
    const char *limit_key; /* that ends it; NULL: it has no end */
    const char *directory;
    double bytes_per_s; /* at most */
    double length_s;    /* with 'limit_key' */
};

/* The directory of a file. */
void doctor_recording_directory(const char *path, char directory[PATH_MAX]);

/* Bytes free for the recorder, and the disk; < 0 after saying why there is no telling. */
double doctor_recording_free_bytes(struct doctor *doctor, const struct doctor_recording *recording, dev_t *disk);

/* How long the disk lasts. */
void doctor_recording_check_room(struct doctor *doctor, const struct doctor_recording *recording, double free_bytes);

/* Whether the unit may write there. */
void doctor_recording_check_unit(struct doctor *doctor, const struct doctor_recording *recording);

/* Checks whether a restarted unit writes to a new name: 'path' must contain a time. */
void doctor_recording_check_name(struct doctor *doctor, const struct doctor_recording *recording, const char *path);

/* Reports the 'n' dumps or batches ('what') that a full disk cost a running recorder.  'directories' have blanks
 * between them.  Says nothing of 0. */
void doctor_recording_check_unwritten(struct doctor *doctor, const struct doctor_file *file, const char *what, double n,
                                      const char *directories);

/* Whether a file of the system has a word. */
bool doctor_file_has(const char *path, const char *word);

#endif
