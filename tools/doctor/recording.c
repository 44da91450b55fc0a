/* recording.c - checks the disks of recorders, and the write permissions of their units. */
#include "tools/doctor/recording.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define STATE_DIRECTORY "/var/lib/cbf/"
#define ROOM_FAIL_S     3600.0

void doctor_recording_directory(const char *path, char directory[PATH_MAX])
{
    const char *slash = strrchr(path, '/');

    snprintf(directory, PATH_MAX, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (slash == path)
        strcpy(directory, "/");
}

bool doctor_file_has(const char *path, const char *word)
{
    FILE *file = fopen(path, "r");
    char line[1024];
    bool found = false;

    while (file && !found && fgets(line, sizeof(line), file))
        found = strstr(line, word);
    if (file)
        fclose(file);
    return found;
}

/* Returns true if a systemd drop-in of the unit sets ReadWritePaths=. */
static bool has_drop_in(const struct doctor *doctor, const char *program, const char *instance)
{
    static const char *const places[] = {"/etc/systemd/system", "/run/systemd/system"};
    bool found = false;

    for (size_t p = 0; p < ARRAY_LEN(places); p++)
        for (int of_instance = 0; of_instance < 2; of_instance++) {
            char pattern[PATH_MAX];
            glob_t paths;

            snprintf(pattern, sizeof(pattern), "%s%s/%s@%s.service.d/*.conf", doctor->root, places[p], program,
                     of_instance ? instance : "");
            if (glob(pattern, GLOB_NOSORT, NULL, &paths))
                continue;
            for (size_t i = 0; i < paths.gl_pathc; i++)
                found = found || doctor_file_has(paths.gl_pathv[i], "ReadWritePaths=");
            globfree(&paths);
        }
    return found;
}

void doctor_recording_check_unit(struct doctor *doctor, const struct doctor_recording *recording)
{
    const char *directory = recording->directory, *program = recording->program;
    char instance[NAME_MAX], own[PATH_MAX];

    if (!doctor_file_instance(doctor, recording->file, instance))
        return;
    snprintf(own, sizeof(own), STATE_DIRECTORY "%s", instance);
    size_t n = strlen(own);
    bool below = strncmp(directory, own, n) == 0 && (directory[n] == '/' || directory[n] == '\0');
    if (below || has_drop_in(doctor, program, instance))
        return;
    struct finding *f = doctor_add(doctor, FINDING_WARN, "recorder.unit", recording->file->name);
    SAY(f->found, "%s is in %s, and %s@%s.service has no drop-in with ReadWritePaths=", recording->key, directory,
        program, instance);
    SAY(f->expected, "a file below %s, or a drop-in", own);
    SAY(f->why, "the unit may write below %s only: the recorder does not start", own);
    SAY(f->fix, "sudo systemctl edit %s@%s   # [Service] DynamicUser=no, User=..., ReadWritePaths=%s", program,
        instance, directory);
}

double doctor_recording_free_bytes(struct doctor *doctor, const struct doctor_recording *recording, dev_t *disk)
{
    const char *directory = recording->directory;
    struct statvfs room;
    struct stat found;
    int err = stat(directory, &found) != 0 ? errno : S_ISDIR(found.st_mode) ? 0 : ENOTDIR;

    if (err == 0 && access(directory, W_OK) != 0 && errno == EROFS)
        err = EROFS;
    if (err == EACCES) {
        doctor_note(doctor, FINDING_SKIPPED, "recorder.disk", recording->file->name,
                    "this user has no access to %s: run cbf-doctor as root", directory);
        return -1;
    }
    /* A missing directory below STATE_DIRECTORY is no fault, because systemd creates it. */
    if (err == ENOENT && strncmp(directory, STATE_DIRECTORY, strlen(STATE_DIRECTORY)) == 0) {
        directory = "/var/lib";
        err = stat(directory, &found) != 0 ? errno : 0;
    }
    if (err) {
        struct finding *f = doctor_add(doctor, FINDING_FAIL, "recorder.directory", recording->file->name);
        SAY(f->found, "%s: %s", directory, strerror(err));
        SAY(f->expected, "a directory on a disk to which the recorder can write");
        SAY(f->why, "the recorder does not start");
        if (err == ENOENT)
            SAY(f->fix, "sudo mkdir -p %s", directory);
        else
            SAY(f->fix, "findmnt -T %s   # then change %s in %s", directory, recording->key, recording->file->path);
        return -1;
    }
    *disk = found.st_dev;
    return statvfs(directory, &room) == 0 ? (double)room.f_bavail * (double)room.f_frsize : -1;
}

void doctor_recording_check_room(struct doctor *doctor, const struct doctor_recording *recording, double free_bytes)
{
    const struct doctor_recording *r = recording;
    double room_s = free_bytes / r->bytes_per_s, needed_s = r->limit_key ? r->length_s : RECORDING_WEEK_S;
    enum finding_status status = room_s >= needed_s ? FINDING_OK : room_s < ROOM_FAIL_S ? FINDING_FAIL : FINDING_WARN;
    struct finding *f = doctor_add(doctor, status, "recorder.disk", r->file->name);

    SAY(f->found, "%s has %.4g GB free: room for %.3g %s at %.4g MB/s", r->directory, free_bytes / 1e9,
        room_s < 2 * 86400 ? room_s / 3600 : room_s / 86400, room_s < 2 * 86400 ? "hours" : "days",
        r->bytes_per_s / 1e6);
    SAY(f->expected, "room for %s", r->limit_key ? r->limit_key : "a week");
    SAY(f->why, "while the disk is full, %s are lost", r->what);
    SAY(f->fix, "du -sh %s/* | sort -h   # move old recordings away", r->directory);
}

void doctor_recording_check_name(struct doctor *doctor, const struct doctor_recording *recording, const char *path)
{
    const char *dot = strrchr(path, '.');
    char instance[NAME_MAX];

    if (strchr(path, '%') || !doctor_file_instance(doctor, recording->file, instance))
        return;
    struct finding *f = doctor_add(doctor, FINDING_WARN, "recorder.name", recording->file->name);
    SAY(f->found, "%s has no time in its name: %s", recording->key, path);
    SAY(f->expected, "a name such as array-%%Y%%m%%dT%%H%%M%%SZ%s", dot ? dot : "");
    SAY(f->why, "after a restart by systemd, the recorder refuses to overwrite the earlier file, and does not start");
    SAY(f->fix, "put %%Y%%m%%dT%%H%%M%%SZ into %s of %s", recording->key, recording->file->path);
}

void doctor_recording_check_unwritten(struct doctor *doctor, const struct doctor_file *file, const char *what, double n,
                                      const char *directories)
{
    if (!(n > 0))
        return;
    struct finding *f = doctor_add(doctor, FINDING_WARN, "recorder.unwritten", file->name);
    SAY(f->found, "%.0f %s lost since the recorder started", n, what);
    SAY(f->expected, "none");
    SAY(f->why, "the disk of one of these directories was full: %s", directories);
    SAY(f->fix, "df -h %s   # then move old recordings away", directories);
}
