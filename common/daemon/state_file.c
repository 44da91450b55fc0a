/* state_file.c - saves settings that KATCP requests have changed.  One file is written at a time.  The main thread
 * builds the file's text and passes the text to the writer thread, whose inbox has room for one job.  A timer on the
 * main thread starts the next job. */
#include "common/daemon/state_file.h"

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/inbox.h"
#include "common/base/log.h"
#include "common/telemetry/sensor.h"
#include "common/base/thread.h"
#include "common/base/trust.h"
#include "common/base/units.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Possible values of the sensor 'state-status'. */
enum { STATE_NONE, STATE_KEPT, STATE_IGNORED };
static const char *const state_words[] = {"none", "kept", "ignored", NULL};

#define MIN_INTERVAL_NS NS_PER_S         /* shortest time between two writes of a file, even if the first failed */
#define BUSY_WAIT_NS    (20 * NS_PER_MS) /* while the writer is busy: time between two reads of 'busy' */

struct state_file {
    struct state_files *files;
    struct state_file *next;
    state_file_write write;
    void *arg;
    char *name;
    char *path;
    bool changed;        /* true if settings have changed since the last job for this file */
    int64_t due_ns;      /* earliest time of the next write */
    _Atomic bool failed; /* true if the write failed; set by the writer before it clears 'busy' */
};

struct state_files {
    char *directory; /* path of the directory; NULL: settings are not kept */
    int lock_fd;     /* descriptor of the locked directory; < 0: not locked */
    struct sensor *status;
    struct ev_loop *loop;
    ev_timer timer;
    struct state_file *first;
    struct inbox *jobs; /* inbox of the writer, with room for one item */
    struct thread writer;
    bool started;
    /* The members 'job', 'text' and 'text_bytes' form the job.  The writer owns the job from the push to the inbox
     * until the writer clears 'busy'. */
    struct state_file *job;
    char *text; /* new text of the file; NULL: the file is removed */
    size_t text_bytes;
    _Atomic bool busy;
    struct log_limit failed_limit;
};

#define KEYS_OF struct config_state
const struct config_key config_state_keys[] = {
    KEY_STRING("directory", directory, "", 0, 4000,
               "Directory for settings made over KATCP. At the next start these settings override this file. Empty: "
               "the service's directory (StateDirectory=); without a service, settings are not kept."),
};
#undef KEYS_OF

/* ---- The writer -------------------------------------------------------------------------------------------------- */

static void carry_out(struct state_files *files)
{
    struct state_file *file = files->job;
    const struct file_part part = {files->text, files->text_bytes};
    int err = 0;

    if (files->text)
        err = file_replace(files->directory, file->name, &part, 1);
    else if (unlink(file->path) != 0 && errno != ENOENT)
        err = -errno;
    if (err)
        log_limited(&files->failed_limit, LOG_LEVEL_ERROR,
                    "%s: settings cannot be saved: %s; a restart loses them unless a later attempt succeeds",
                    file->path, strerror(-err));
    atomic_store(&file->failed, err != 0);
    free(files->text);
    files->text = NULL;
    atomic_store(&files->busy, false);
}

static void *run_writer(void *arg)
{
    struct state_files *files = arg;
    struct inbox_item item;

    while (inbox_pop(files->jobs, &item) == 0) {
        thread_watched(false); /* the watchdog must not end the process because the disk hangs */
        carry_out(files);
        thread_watched(true);
    }
    return NULL;
}

/* ---- Main -------------------------------------------------------------------------------------------------------- */

/* Builds the text of a file, and prepares the job that writes it.  Returns 0 or -ENOMEM. */
static int make_job(struct state_file *file)
{
    struct state_files *files = file->files;
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *out = open_memstream(&text, &text_bytes);
    bool any = out && file->write(out, file->arg);

    if (file_close_text(out, &text))
        return -ENOMEM;
    if (!any) {
        free(text);
        text = NULL;
    }
    files->job = file;
    files->text = text;
    files->text_bytes = text_bytes;
    file->changed = false;
    file->due_ns = clock_monotonic_ns() + MIN_INTERVAL_NS;
    return 0;
}

/* Returns the changed file that is due first, or NULL if no file has changed. */
static struct state_file *next_file(const struct state_files *files)
{
    struct state_file *next = NULL;

    for (struct state_file *file = files->first; file; file = file->next)
        if (file->changed && (!next || file->due_ns < next->due_ns))
            next = file;
    return next;
}

/* If a file could not be written, marks the file as changed.  The file is then written again. */
static void take_back_failed(struct state_files *files)
{
    for (struct state_file *file = files->first; file; file = file->next)
        if (atomic_exchange(&file->failed, false))
            file->changed = true;
}

static void look_at(struct state_files *files, int64_t time_ns)
{
    int64_t wait_ns = time_ns - clock_monotonic_ns();

    ev_timer_stop(files->loop, &files->timer);
    ev_timer_set(&files->timer, wait_ns > 0 ? (double)wait_ns / 1e9 : 0.0, 0.0);
    ev_timer_start(files->loop, &files->timer);
}

static void on_timer(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct state_files *files = timer->data;
    int64_t now_ns = clock_monotonic_ns(), look_ns = INT64_MAX;
    bool busy = atomic_load(&files->busy); /* read first, because the writer sets 'failed' before it clears 'busy' */

    take_back_failed(files);
    struct state_file *file = next_file(files);
    if (file && file->due_ns <= now_ns) {
        if (busy || make_job(file)) {
            look_at(files, now_ns + BUSY_WAIT_NS);
            return;
        }
        busy = true;
        atomic_store(&files->busy, true);
        inbox_push(files->jobs, &(struct inbox_item){0, 0, NULL});
        file = next_file(files);
    }
    if (busy)
        look_ns = now_ns + MIN_INTERVAL_NS; /* the next call checks whether this write has failed */
    if (file && file->due_ns < look_ns)
        look_ns = file->due_ns;
    if (look_ns < INT64_MAX)
        look_at(files, look_ns);
}

void state_file_changed(struct state_file *file)
{
    if (!file->files->directory || file->changed)
        return;
    file->changed = true;
    look_at(file->files, next_file(file->files)->due_ns);
}

void state_file_ignored(struct state_file *file)
{
    sensor_set_integer(file->files->status, clock_unix_ns(), SENSOR_ERROR, STATE_IGNORED);
}

/* Checks that a file may be used.  Returns 0 or negative errno: -ENODATA if the file is empty, because this program
 * writes no empty files. */
static int check_file(const struct state_file *file)
{
    struct stat st;
    int fd = trust_open(file->files->directory, file->name);

    if (fd < 0)
        return fd;
    int err = fstat(fd, &st) == 0 && st.st_size == 0 ? -ENODATA : 0;
    close(fd);
    return err;
}

const char *state_file_path(struct state_file *file)
{
    int err = file->path ? check_file(file) : -ENOENT;

    if (err == -ENOENT)
        return NULL;
    if (err != -EPERM && err != -ELOOP && err != -ENODATA)
        return file->path; /* the caller reads the file and reports the error */
    log_warning("%s: %s; the file is ignored", file->path,
                err == -ENODATA ? "it is empty"
                : err == -ELOOP ? "it is a symbolic link"
                                : TRUST_CURE);
    state_file_ignored(file);
    return NULL;
}

/* ---- Creation and destruction ------------------------------------------------------------------------------------ */

/* Returns the configured directory, or else the first directory of systemd's list, whose items are separated by colons.
 * Returns NULL if neither is set. */
static char *directory_of(const struct config_state *config)
{
    const char *given = getenv("STATE_DIRECTORY");

    if (config->directory)
        return strdup(config->directory);
    return given && *given ? strndup(given, strcspn(given, ":")) : NULL;
}

static int start_writer(struct state_files *files)
{
    int err = inbox_create(1, &files->jobs);

    if (!err)
        err = thread_start(&files->writer, "state", -1, run_writer, files);
    files->started = !err;
    return err;
}

/* Locks the directory for this process.  Two processes in one directory would use each other's files. */
static int lock_directory(struct state_files *files, char *why, size_t why_bytes)
{
    files->lock_fd = open(files->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (files->lock_fd >= 0 && access(files->directory, W_OK | X_OK) == 0) {
        if (trust_fd(files->lock_fd) == -EPERM) {
            snprintf(why, why_bytes, "state.directory: files are not kept in %s: " TRUST_CURE, files->directory);
            return -EPERM;
        }
        if (flock(files->lock_fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno == EWOULDBLOCK) {
            snprintf(why, why_bytes,
                     "state.directory: another process keeps its files in %s: give each process its own directory",
                     files->directory);
            return -EBUSY;
        }
    }
    int err = -errno;
    snprintf(why, why_bytes, "state.directory: files cannot be kept in %s: %s", files->directory, strerror(-err));
    return err;
}

static int add_sensor(struct state_files *files, struct sensors *sensors)
{
    const struct sensor_desc about = {
        "state-status",
        "Whether settings are kept across restarts; status error until the next start if a setting was ignored", "",
        SENSOR_DISCRETE, .words = state_words};
    struct sensor_reading first = {
        clock_unix_ns(), SENSOR_NOMINAL, {.integer = files->directory ? STATE_KEPT : STATE_NONE}};

    return sensors ? sensors_add(sensors, files->status, &about, first) : 0;
}

int state_files_open(const struct config_state *config, struct ev_loop *loop, struct sensors *sensors,
                     struct sensor *status, struct state_files **files, char *why, size_t why_bytes)
{
    struct state_files *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    made->loop = loop;
    made->status = status;
    made->lock_fd = -1;
    ev_timer_init(&made->timer, on_timer, 0.0, 0.0);
    made->timer.data = made;
    made->directory = directory_of(config);
    int err = add_sensor(made, sensors);
    if (err) {
        state_files_close(made);
        return err;
    }
    if (!made->directory) {
        log_info("settings made over KATCP are lost when this program ends, because state.directory is not set");
    } else {
        err = lock_directory(made, why, why_bytes);
        if (!err) {
            log_info("settings made over KATCP are kept in %s", made->directory);
            file_remove_stale(made->directory);
            err = start_writer(made);
        }
    }
    if (err) {
        state_files_close(made);
        return err;
    }
    *files = made;
    return 0;
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_' || c == '@';
}

/* Returns a file name for 'name'.  Escapes special characters, for example a slash as %2F.  Also escapes a leading dot,
 * because it would hide the file. */
static char *escape(const char *name)
{
    char *escaped = malloc(3 * strlen(name) + 1), *out = escaped;

    for (const char *c = name; escaped && *c; c++) {
        if (is_plain(*c) && !(*c == '.' && c == name))
            *out++ = *c;
        else
            out += sprintf(out, "%%%02X", (unsigned char)*c);
    }
    if (escaped)
        *out = '\0';
    return escaped;
}

int state_files_add(struct state_files *files, const char *name, state_file_write write, void *arg,
                    struct state_file **file)
{
    struct state_file *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    *made = (struct state_file){.files = files, .next = files->first, .write = write, .arg = arg, .name = escape(name)};
    if (!made->name || (files->directory && asprintf(&made->path, "%s/%s", files->directory, made->name) < 0)) {
        free(made->name);
        free(made);
        return -ENOMEM;
    }
    files->first = made;
    *file = made;
    return 0;
}

void state_files_close(struct state_files *files)
{
    struct state_file *file;

    if (!files)
        return;
    ev_timer_stop(files->loop, &files->timer);
    if (files->started) {
        inbox_stop(files->jobs); /* the writer finishes its current job before it ends */
        thread_join(&files->writer);
        take_back_failed(files);
        while ((file = next_file(files)) && make_job(file) == 0)
            carry_out(files);
    }
    inbox_destroy(files->jobs);
    while ((file = files->first)) {
        files->first = file->next;
        free(file->path);
        free(file->name);
        free(file);
    }
    if (files->lock_fd >= 0)
        close(files->lock_fd);
    free(files->directory);
    free(files);
}
