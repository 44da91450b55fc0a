/* recording.h - checks for both kinds of recorders: the directory of the recordings, its disk, the permissions of the
 * unit, and the files' names. */
#ifndef TOOLS_DOCTOR_RECORDING_H
#define TOOLS_DOCTOR_RECORDING_H

#include "tools/doctor/doctor.h"

#include <limits.h>
#include <sys/types.h>

#define RECORDING_WEEK_S (7 * 86400.0) /* if a recording has no limit, a disk should have room for this time */

/* The files that one recorder writes to one directory. */
struct doctor_recording {
    const struct doctor_file *file;
    const char *program;   /* "visrec" */
    const char *key;       /* key that sets the file's name */
    const char *what;      /* name of the data that are lost if the disk is full: "dumps" or "batches" */
    const char *limit_key; /* key that limits the length of the recording; NULL: no limit */
    const char *directory;
    double bytes_per_s; /* upper bound */
    double length_s;    /* length of the recording; valid with 'limit_key' */
};

/* Writes the directory of 'path' to 'directory'. */
void doctor_recording_directory(const char *path, char directory[PATH_MAX]);

/* Returns the number of free bytes on the recording's disk, and writes the disk's device number to *disk.  If the
 * number is not known, adds a finding and returns a negative number. */
double doctor_recording_free_bytes(struct doctor *doctor, const struct doctor_recording *recording, dev_t *disk);

/* Checks how long the recording can continue with 'free_bytes' on the disk. */
void doctor_recording_check_room(struct doctor *doctor, const struct doctor_recording *recording, double free_bytes);

/* Checks whether the unit may write to the directory. */
void doctor_recording_check_unit(struct doctor *doctor, const struct doctor_recording *recording);

/* Checks that 'path' contains strftime()'s codes for the time.  With such codes, a restarted unit writes to a file with
 * a new name. */
void doctor_recording_check_name(struct doctor *doctor, const struct doctor_recording *recording, const char *path);

/* Reports that a running recorder lost 'n' dumps or batches ('what') because of a full disk.  'directories' is a
 * list, separated by blanks.  Reports nothing if n is 0. */
void doctor_recording_check_unwritten(struct doctor *doctor, const struct doctor_file *file, const char *what, double n,
                                      const char *directories);

/* Returns true if a file of the operating system contains a word. */
bool doctor_file_has(const char *path, const char *word);

#endif
