/* sensor.c - readings that a sequence lock protects, and the set of sensors that clients may read. */
#include "common/telemetry/sensor.h"

#include "common/base/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATOM_UNIX_NS, ATOM_SET_NS, ATOM_STATUS, ATOM_VALUE };

const char *const sensor_aggregate_words[] = {"ok", "degraded", "fail", NULL};

static const char *const type_names[] = {"integer", "float", "boolean", "timestamp", "discrete", "string"};
static const char *const status_names[] = {"unknown", "nominal", "warn", "error", "failure", "unreachable", "inactive"};

const char *sensor_type_name(enum sensor_type type)
{
    return type_names[type];
}

const char *sensor_status_name(enum sensor_status status)
{
    return status_names[status];
}

/* ---- One reading ------------------------------------------------------------------------------------------------- */

/* Sets a reading.  Each atom (an atomic word of the reading) is stored with release and loaded with acquire.  Fences
 * are not used, because the thread sanitizer does not support fences.  A reader that reads a new atom also reads the
 * odd sequence number that was stored before the atom. */
void sensor_set(struct sensor *sensor, struct sensor_reading reading)
{
    uint32_t sequence = atomic_load_explicit(&sensor->sequence, memory_order_relaxed);
    uint64_t atoms[SENSOR_N_ATOMS];

    atoms[ATOM_UNIX_NS] = (uint64_t)reading.unix_ns;
    atoms[ATOM_SET_NS] = (uint64_t)clock_monotonic_ns();
    atoms[ATOM_STATUS] = reading.status;
    memcpy(&atoms[ATOM_VALUE], &reading.value, sizeof(reading.value));
    atomic_store_explicit(&sensor->sequence, sequence + 1, memory_order_relaxed);
    for (size_t i = 0; i < SENSOR_N_ATOMS; i++)
        atomic_store_explicit(&sensor->atoms[i], atoms[i], memory_order_release);
    atomic_store_explicit(&sensor->sequence, sequence + 2, memory_order_release);
}

void sensor_set_integer(struct sensor *sensor, int64_t unix_ns, enum sensor_status status, int64_t value)
{
    sensor_set(sensor, (struct sensor_reading){unix_ns, status, {.integer = value}});
}

void sensor_set_real(struct sensor *sensor, int64_t unix_ns, enum sensor_status status, double value)
{
    sensor_set(sensor, (struct sensor_reading){unix_ns, status, {.real = value}});
}

/* Returns the reading, the monotonic time at which it was set, and its sequence number. */
static struct sensor_reading read_all(const struct sensor *sensor, int64_t *set_ns, uint32_t *sequence)
{
    uint64_t atoms[SENSOR_N_ATOMS];
    struct sensor_reading reading;

    do {
        *sequence = atomic_load_explicit(&sensor->sequence, memory_order_acquire);
        for (size_t i = 0; i < SENSOR_N_ATOMS; i++)
            atoms[i] = atomic_load_explicit(&sensor->atoms[i], memory_order_acquire);
    } while (*sequence % 2 || atomic_load_explicit(&sensor->sequence, memory_order_relaxed) != *sequence);
    *set_ns = (int64_t)atoms[ATOM_SET_NS];
    reading.unix_ns = (int64_t)atoms[ATOM_UNIX_NS];
    reading.status = (enum sensor_status)atoms[ATOM_STATUS];
    memcpy(&reading.value, &atoms[ATOM_VALUE], sizeof(reading.value));
    return reading;
}

struct sensor_reading sensor_read(const struct sensor *sensor)
{
    int64_t set_ns;
    uint32_t sequence;

    return read_all(sensor, &set_ns, &sequence);
}

/* ---- The set ----------------------------------------------------------------------------------------------------- */

int sensors_create(struct sensors **sensors)
{
    struct sensors *s = calloc(1, sizeof(*s));

    if (!s)
        return -ENOMEM;
    *sensors = s;
    return 0;
}

static void free_entry(struct sensor_entry *entry)
{
    if (!entry)
        return;
    free((void *)entry->about.name);
    free((void *)entry->about.description);
    free((void *)entry->about.units);
    free(entry->text);
    free(entry);
}

void sensors_destroy(struct sensors *sensors)
{
    if (!sensors)
        return;
    /* Frees only the entries.  The sensors may already be freed, for example if their pipeline could not be created. */
    for (size_t i = 0; i < sensors->n; i++)
        free_entry(sensors->entries[i]);
    free(sensors->entries);
    free(sensors);
}

/* Returns the index of the sensor 'name', or the index at which a sensor of this name must be inserted. */
static size_t place_of(const struct sensors *sensors, const char *name)
{
    size_t from = 0, to = sensors->n;

    while (from < to) {
        size_t middle = (from + to) / 2;
        if (strcmp(sensors->entries[middle]->about.name, name) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

struct sensor_entry *sensors_find(const struct sensors *sensors, const char *name)
{
    size_t place = place_of(sensors, name);
    bool found = place < sensors->n && !strcmp(sensors->entries[place]->about.name, name);

    return found ? sensors->entries[place] : NULL;
}

static int make_entry(struct sensor *sensor, const struct sensor_desc *about, struct sensor_entry **entry)
{
    struct sensor_entry *e = calloc(1, sizeof(*e));

    if (!e)
        return -ENOMEM;
    e->sensor = sensor;
    e->about = *about;
    e->about.name = strdup(about->name);
    e->about.description = strdup(about->description);
    e->about.units = strdup(about->units);
    e->text = strdup("");
    if (!e->about.name || !e->about.description || !e->about.units || !e->text) {
        free_entry(e);
        return -ENOMEM;
    }
    *entry = e;
    return 0;
}

static int make_room(struct sensors *sensors)
{
    if (sensors->n < sensors->n_allocated)
        return 0;
    size_t n = sensors->n_allocated ? 2 * sensors->n_allocated : 64;
    struct sensor_entry **entries = realloc(sensors->entries, n * sizeof(struct sensor_entry *));
    if (!entries)
        return -ENOMEM;
    sensors->entries = entries;
    sensors->n_allocated = n;
    return 0;
}

int sensors_add(struct sensors *sensors, struct sensor *sensor, const struct sensor_desc *about,
                struct sensor_reading first)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
    size_t place = place_of(sensors, about->name);
    struct sensor_entry *entry;

    assert(about->name[0] && !about->name[strspn(about->name, letters)]);
    assert(!sensors_find(sensors, about->name));
    assert(about->type != SENSOR_DISCRETE || about->words);
    int err = make_room(sensors);
    if (!err)
        err = make_entry(sensor, about, &entry);
    if (err)
        return err;
    memmove(sensors->entries + place + 1, sensors->entries + place,
            (sensors->n - place) * sizeof(struct sensor_entry *));
    sensors->entries[place] = entry;
    sensors->n++;
    for (size_t i = place; i < sensors->n; i++)
        sensors->entries[i]->index = i;
    sensor->entry = entry;
    sensor_set(sensor, first);
    return 0;
}

int sensors_set_text(struct sensors *sensors, struct sensor *sensor, int64_t unix_ns, enum sensor_status status,
                     const char *text)
{
    struct sensor_entry *entry = sensor->entry;

    assert(entry && entry->about.type == SENSOR_STRING && !entry->about.format);
    if (strcmp(entry->text, text) != 0) {
        char *copy = strdup(text);
        if (!copy)
            return -ENOMEM;
        free(entry->text);
        entry->text = copy;
        entry->text_version++;
    }
    sensor_set(sensor, (struct sensor_reading){unix_ns, status, {0}});
    return 0;
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* Applies the time-out to a reading that was set at 'set_ns'.  Returns true if the time-out changed the reading. */
static bool time_out(const struct sensor_desc *about, int64_t set_ns, struct sensor_reading *reading)
{
    int64_t overdue_ns = about->timeout_ns > 0 ? clock_monotonic_ns() - set_ns - about->timeout_ns : -1;
    enum sensor_status status = SENSOR_ERROR;

    if (overdue_ns < 0)
        return false;
    if (about->recovers) {
        bool bad = reading->status >= SENSOR_WARN && reading->status <= SENSOR_FAILURE;
        status = bad ? SENSOR_NOMINAL : reading->status;
    }
    if (status == reading->status)
        return false;
    reading->status = status;
    reading->unix_ns = clock_unix_ns() - overdue_ns;
    return true;
}

static struct sensor_reading read_entry(const struct sensor_entry *entry, uint64_t *version)
{
    int64_t set_ns;
    uint32_t sequence;
    struct sensor_reading reading = read_all(entry->sensor, &set_ns, &sequence);
    bool timed_out = time_out(&entry->about, set_ns, &reading);

    *version = (uint64_t)sequence << 1 | timed_out;
    return reading;
}

static bool is_worse(enum sensor_status status)
{
    return status >= SENSOR_WARN && status <= SENSOR_UNREACHABLE;
}

/* Computes the value of an aggregate from its included sensors, and sets the aggregate if the value has changed. */
static void aggregate(const struct sensors *sensors, const struct sensor_entry *entry)
{
    bool degraded = false;
    uint64_t version;

    for (size_t i = 0; i < sensors->n && !degraded; i++) {
        const struct sensor_desc *about = &sensors->entries[i]->about;
        if (!about->includes && entry->about.includes(about->name))
            degraded = is_worse(read_entry(sensors->entries[i], &version).status);
    }
    struct sensor_reading before = read_entry(entry, &version);
    enum sensor_status status = degraded ? SENSOR_WARN : SENSOR_NOMINAL;
    if (before.status != status || before.value.integer != degraded)
        sensor_set_integer(entry->sensor, clock_unix_ns(), status, degraded);
}

struct sensor_reading sensors_read(const struct sensors *sensors, const struct sensor_entry *entry, uint64_t *version)
{
    uint64_t unused;

    if (entry->about.includes)
        aggregate(sensors, entry);
    return read_entry(entry, version ? version : &unused);
}

/* Writes the shortest decimal form that reads back as the same number. */
static void format_real(double value, char text[SENSOR_TEXT_BYTES])
{
    char shortest[40];
    int n = 0;

    for (int digits = 15; digits <= 17; digits++) {
        n = snprintf(shortest, sizeof(shortest), "%.*g", digits, value);
        if (strtod(shortest, NULL) == value)
            break;
    }
    memcpy(text, shortest, (size_t)n + 1);
}

static const char *word_of(const char *const *words, int64_t index)
{
    for (int64_t i = 0; words[i]; i++)
        if (i == index)
            return words[i];
    assert(!"the index of a text value of the sensor");
    return "";
}

const char *sensor_entry_text(const struct sensor_entry *entry, const struct sensor_reading *reading,
                              char text[SENSOR_TEXT_BYTES])
{
    const struct sensor_desc *about = &entry->about;

    text[0] = '\0';
    switch (about->type) {
    case SENSOR_INTEGER: snprintf(text, SENSOR_TEXT_BYTES, "%lld", (long long)reading->value.integer); break;
    case SENSOR_FLOAT: format_real(reading->value.real, text); break;
    case SENSOR_BOOLEAN: return reading->value.integer ? "1" : "0";
    case SENSOR_TIMESTAMP: snprintf(text, SENSOR_TEXT_BYTES, "%.6f", reading->value.real); break;
    case SENSOR_DISCRETE: return word_of(about->words, reading->value.integer);
    case SENSOR_STRING:
        if (!about->format)
            return entry->text;
        about->format(&reading->value, text, SENSOR_TEXT_BYTES);
        break;
    }
    return text;
}
