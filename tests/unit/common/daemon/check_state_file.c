/* check_state_file - a file is written at once, then at its interval, then once more at the end.  Its state is
 * restored. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/telemetry/sensor.h"
#include "common/daemon/state_file.h"
#include "common/base/thread.h"
#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char directory[64];
static struct ev_loop *loop;
static struct sensors *sensors; /* NULL: files have none */
static struct sensor status;

/* A disk that takes its time: in place of the library's. */
static _Atomic bool disk_hangs, disk_is_waited_for;

int fsync(int fd)
{
    while (atomic_load(&disk_hangs)) {
        atomic_store(&disk_is_waited_for, true);
        usleep(1000); /* without a beat */
    }
    return 0;
}

/* What a program would keep. */
static struct thing {
    const char *text; /* NULL: nothing */
    int n_written;
} thing;

static struct state_files *files;
static struct state_file *file; /* the thing's */

static bool write_thing(FILE *text, void *arg)
{
    struct thing *what = arg;

    what->n_written++;
    if (what->text)
        fputs(what->text, text);
    return what->text;
}

static void setup(void)
{
    strcpy(directory, "/tmp/check_state_file-XXXXXX");
    ck_assert(mkdtemp(directory));
    loop = ev_loop_new(EVFLAG_AUTO);
    unsetenv("STATE_DIRECTORY");
    umask(022); /* a file that a group may write to is not believed */
    thing = (struct thing){"1\n", 0};
}

static void close_files(void)
{
    state_files_close(files);
    files = NULL;
}

static void teardown(void)
{
    char command[128];

    close_files();
    snprintf(command, sizeof(command), "rm -rf %s", directory);
    ck_assert_int_eq(system(command), 0);
    ev_loop_destroy(loop);
}

/* In place of those before. */
static void open_files(char *path)
{
    struct config_state config = {path};
    char why[256] = "";

    close_files();
    ck_assert_msg(state_files_open(&config, loop, sensors, &status, &files, why, sizeof(why)) == 0, "%s", why);
}

static void add_file(const char *name)
{
    ck_assert_int_eq(state_files_add(files, name, write_thing, &thing, &file), 0);
}

/* Whether the file's text is this; NULL: there is none. */
static bool is_text(const char *expected)
{
    const char *path = state_file_path(file);
    char text[64] = "";

    if (!path)
        return !expected;
    FILE *in = fopen(path, "r");
    if (!in)
        return false;
    text[fread(text, 1, sizeof(text) - 1, in)] = '\0';
    fclose(in);
    return expected && strcmp(text, expected) == 0;
}

static void on_tick(struct ev_loop *l, ev_timer *timer, int events)
{
    ev_break(l, EVBREAK_ONE);
}

/* Runs the loop until the text is there; returns how long that took. */
static int64_t wait_text(const char *expected)
{
    int64_t start_ns = clock_monotonic_ns();
    ev_timer tick;

    ev_timer_init(&tick, on_tick, 0.005, 0.005);
    ev_timer_start(loop, &tick);
    while (!is_text(expected)) {
        ck_assert_msg(clock_monotonic_ns() < start_ns + 20 * NS_PER_S, "no %s", expected ? expected : "end of it");
        ev_run(loop, 0);
    }
    ev_timer_stop(loop, &tick);
    return clock_monotonic_ns() - start_ns;
}

TEST(written_and_read_again)
{
    open_files(directory);
    struct state_file *other;
    struct thing none = {"x\n", 0};

    thing.text = "one\n";
    add_file("a/b ä.txt");
    ck_assert_int_eq(state_files_add(files, ".other", write_thing, &none, &other), 0);
    ck_assert(!state_file_path(file));
    state_file_changed(file);
    ck_assert(thing.n_written == 0); /* not by the handler */
    wait_text("one\n");
    ck_assert_int_eq(thing.n_written, 1);

    /* Many changes are one write, a second later. */
    for (int i = 0; i < 100; i++)
        state_file_changed(file);
    thing.text = "two\n";
    int64_t took_ns = wait_text("two\n");
    ck_assert_msg(took_ns > NS_PER_S / 2, "%lld ns", (long long)took_ns);
    ck_assert_int_eq(thing.n_written, 2);

    /* What is pending at the end is written; the other never changed. */
    thing.text = "three\n";
    state_file_changed(file);
    close_files();
    ck_assert_int_eq(thing.n_written, 3);
    ck_assert_int_eq(none.n_written, 0);

    open_files(directory);
    add_file("a/b ä.txt");
    ck_assert(is_text("three\n"));
    ck_assert(strstr(state_file_path(file), "/a%2Fb%20%C3%A4.txt"));
    thing.text = NULL;
    state_file_changed(file);
    wait_text(NULL);
}

TEST(of_the_service)
{
    char list[128];

    snprintf(list, sizeof(list), "%s:/nowhere", directory);
    setenv("STATE_DIRECTORY", list, 1);
    open_files(NULL);
    add_file("f");
    state_file_changed(file);
    wait_text("1\n");
    ck_assert(strncmp(state_file_path(file), directory, strlen(directory)) == 0);
}

TEST(nowhere)
{
    open_files(NULL);

    add_file("f");
    state_file_changed(file);
    ck_assert(!state_file_path(file));
    close_files();
    ck_assert_int_eq(thing.n_written, 0);
}

TEST(no_such_directory)
{
    char path[128], why[256] = "";
    struct config_state config = {path};

    snprintf(path, sizeof(path), "%s/none", directory);
    ck_assert_int_eq(state_files_open(&config, loop, sensors, &status, &files, why, sizeof(why)), -ENOENT);
    ck_assert_msg(strncmp(why, "state.directory: ", 17) == 0 && strstr(why, path), "%s", why);
}

/* Files that other users may have put there are not taken for the operator's settings. */
static void assert_refused(void)
{
    struct config_state config = {directory};
    char why[300] = "";

    ck_assert_int_eq(state_files_open(&config, loop, sensors, &status, &files, why, sizeof(why)), -EPERM);
    ck_assert_ptr_null(files);
    ck_assert_msg(strncmp(why, "state.directory: ", 17) == 0 && strstr(why, directory) && strstr(why, "chmod go-w"),
                  "%s", why);
}

TEST(directory_that_others_may_change)
{
    static const mode_t modes[] = {0777, 0770, 0702, 01777};

    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        ck_assert_int_eq(chmod(directory, modes[i]), 0);
        assert_refused();
    }
    ck_assert_int_eq(chmod(directory, 0755), 0);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(directory, 12345, 0), 0);
        assert_refused();
        ck_assert_int_eq(chown(directory, 0, 0), 0);
    }
    open_files(directory);
}

/* Whether the sensor has this status and word. */
static bool is_status(enum sensor_status expected, const char *word)
{
    const struct sensor_entry *entry = sensors_find(sensors, "state-status");
    struct sensor_reading reading = sensors_read(sensors, entry, NULL);
    char text[SENSOR_TEXT_BYTES];

    return reading.status == expected && strcmp(sensor_entry_text(entry, &reading, text), word) == 0;
}

/* Opens 'path' with the file "f", and a sensor of its own. */
static void open_with_sensor(char *path)
{
    ck_assert_int_eq(sensors_create(&sensors), 0);
    memset(&status, 0, sizeof(status));
    open_files(path);
    add_file("f");
}

static void close_with_sensor(void)
{
    close_files();
    sensors_destroy(sensors);
    sensors = NULL;
}

/* A kept file that is not to be believed is told by a sensor, until the next start. */
TEST(ignored_files)
{
    enum { ABSENT, WHOLE, EMPTY, WRITABLE, LINK, REFUSED, N_CASES };
    char path[80], other[80];

    snprintf(path, sizeof(path), "%s/f", directory);
    snprintf(other, sizeof(other), "%s/other", directory);
    for (int i = ABSENT; i < N_CASES; i++) {
        unlink(path);
        if (i != ABSENT) {
            FILE *text = fopen(i == LINK ? other : path, "w");
            if (i != EMPTY)
                fputs("y\n", text);
            fclose(text);
        }
        if (i == WRITABLE)
            ck_assert_int_eq(chmod(path, 0666), 0);
        if (i == LINK)
            ck_assert_int_eq(symlink(other, path), 0);
        open_with_sensor(directory);
        ck_assert(is_status(SENSOR_NOMINAL, "kept"));
        bool found = state_file_path(file) != NULL;
        ck_assert_msg(found == (i == WHOLE || i == REFUSED), "case %d", i);
        if (i == REFUSED) /* by who reads it */
            state_file_ignored(file);
        bool good = i == ABSENT || i == WHOLE;
        ck_assert_msg(good ? is_status(SENSOR_NOMINAL, "kept") : is_status(SENSOR_ERROR, "ignored"), "case %d", i);
        state_file_changed(file);
        close_files();
        ck_assert_msg(good || is_status(SENSOR_ERROR, "ignored"), "case %d", i);
        sensors_destroy(sensors);

        /* The file that was written since is good. */
        open_with_sensor(directory);
        ck_assert_msg(is_text("1\n") && is_status(SENSOR_NOMINAL, "kept"), "case %d", i);
        close_with_sensor();
    }
    open_with_sensor(NULL);
    ck_assert(!state_file_path(file) && is_status(SENSOR_NOMINAL, "none"));
    close_with_sensor();
}

/* As systemd makes it with DynamicUser=: a link to a directory that is the service's. */
TEST(directory_behind_a_link)
{
    char link_path[80];

    snprintf(link_path, sizeof(link_path), "%s-link", directory);
    ck_assert_int_eq(symlink(directory, link_path), 0);
    open_files(link_path);
    ck_assert_int_eq(unlink(link_path), 0);
}

/* Two processes would take each other's files for their own; the second may have it once the first is gone. */
TEST(directory_in_use)
{
    struct state_files *second = NULL;
    struct config_state config = {directory};
    char why[256] = "";

    open_files(directory);
    ck_assert_int_eq(state_files_open(&config, loop, NULL, NULL, &second, why, sizeof(why)), -EBUSY);
    ck_assert_ptr_nonnull(strstr(why, "another process keeps its files in"));
    ck_assert_ptr_null(second);
    open_files(directory);
}

/* What a process left that was killed while it wrote. */
TEST(stale_file)
{
    const struct timespec old[] = {{.tv_sec = 1}, {.tv_sec = 1}};
    char path[128];

    snprintf(path, sizeof(path), "%s/cbf-new-abcdef", directory);
    fclose(fopen(path, "w"));
    ck_assert_int_eq(utimensat(AT_FDCWD, path, old, 0), 0);
    open_files(directory);
    ck_assert_int_ne(access(path, F_OK), 0);
}

/* A directory that is gone while it runs costs the file, not the program; once it is back all is written. */
TEST(lost_directory)
{
    char moved[80];
    open_files(directory);

    add_file("f");
    snprintf(moved, sizeof(moved), "%s-moved", directory);
    ck_assert_int_eq(rename(directory, moved), 0);
    state_file_changed(file);
    while (thing.n_written == 0)
        ev_run(loop, EVRUN_ONCE);
    ck_assert_int_eq(rename(moved, directory), 0);
    thing.text = "2\n";
    state_file_changed(file);
    wait_text("2\n");
}

static atomic_int n_refused;
static atomic_bool full;

/* Instead of the library's: a disk that may be full. */
int mkostemp(char *template, int flags)
{
    if (!full)
        return mkstemp(template);
    n_refused++;
    errno = ENOSPC;
    return -1;
}

/* What did not fit once is written as soon as it fits, without another change, or by the stop. */
TEST(full_disk)
{
    for (int stops = 0; stops < 2; stops++) {
        thing.text = stops ? "1\n" : "2\n";
        open_files(directory);

        add_file("f");
        full = true;
        n_refused = 0;
        state_file_changed(file);
        while (n_refused == 0)
            ev_run(loop, EVRUN_NOWAIT);
        full = false;
        if (!stops)
            wait_text(thing.text);
        open_files(directory);
        add_file("f");
        ck_assert(is_text(thing.text));
    }
}

/* A disk that hangs is no reason to end an observation. */
TEST(slow_disk)
{
    open_files(directory);

    add_file("f");
    atomic_store(&disk_hangs, true);
    state_file_changed(file);
    while (!atomic_load(&disk_is_waited_for))
        ev_run(loop, EVRUN_ONCE | EVRUN_NOWAIT);
    for (int i = 0; i < 20; i++)
        ck_assert_uint_eq(threads_find_stalled().n_looks, 0);
    atomic_store(&disk_hangs, false);
    wait_text("1\n");

    /* Then it is watched again: it waits for a job with a beat now and then, and looks are faster. */
    while (threads_find_stalled().n_looks < 3)
        ;
}

static void start(void)
{
    log_init("check_state_file", LOG_LEVEL_ERROR);
}

SUITE(.timeout_s = 60, .setup = setup, .teardown = teardown, .start = start);
