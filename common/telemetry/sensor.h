/* sensor.h - readings for operators over KATCP: the data path sets them, and the main thread serves them.
 *
 * Flow:      worker, receivers, senders --sensor_set_*()--> struct sensor --katcp/server.c--> clients
 * Ownership: a sensor is a member of the struct that it describes, which lives until the set is closed.  The set has
 *            pointers to sensors.  Names, descriptions and units are copied.
 * Threads:   sensors_add() before READY, on main.  A sensor has one writer at a time, on any thread.  Setting takes no
 *            lock, allocates nothing and makes no system call (a sequence lock of atomics; readers try again).  A
 *            sensor may be set before it is added, or without ever being added.  Only main sets text:
 *            sensors_set_text() is for readings from requests or the configuration.  The data path sets text as
 *            numbers, with a function that writes them out.  Only main calls other functions with 'sensors' in their
 *            names.
 * Time:      a reading's time is the UNIX time of its data, not of the call.
 *
 * A reading is (time, status, value).  KATCP 5.1 defines the meaning of each status.  The value is valid for nominal,
 * warn and error only. */
#ifndef COMMON_TELEMETRY_SENSOR_H
#define COMMON_TELEMETRY_SENSOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sensor_type {
    SENSOR_INTEGER,
    SENSOR_FLOAT,
    SENSOR_BOOLEAN,
    SENSOR_TIMESTAMP, /* UNIX seconds */
    SENSOR_DISCRETE,  /* an index of 'words' */
    SENSOR_STRING
};

enum sensor_status {
    SENSOR_UNKNOWN,
    SENSOR_NOMINAL,
    SENSOR_WARN,
    SENSOR_ERROR,
    SENSOR_FAILURE,
    SENSOR_UNREACHABLE,
    SENSOR_INACTIVE
};

#define SENSOR_N_NUMBERS 7 /* numbers of a text that the data path sets */

union sensor_value {
    int64_t integer; /* SENSOR_INTEGER, _BOOLEAN, _DISCRETE */
    double real;     /* SENSOR_FLOAT, _TIMESTAMP */
    double numbers[SENSOR_N_NUMBERS];
};

struct sensor_reading {
    int64_t unix_ns;
    enum sensor_status status;
    union sensor_value value;
};

/* The constant properties of a sensor. */
struct sensor_desc {
    const char *name; /* letters, digits, '.', '-', '_' */
    const char *description;
    const char *units; /* "" if there are none */
    enum sensor_type type;
    const char *const *words; /* SENSOR_DISCRETE: ends with NULL; static */
    /* SENSOR_STRING of numbers: writes the numbers into 'text'; NULL: main sets the text. */
    void (*format)(const union sensor_value *value, char *text, size_t text_bytes);
    /* Shortest interval if the strategy 'auto' is event-rate, for readings that change with each chunk.  0: 'auto'
     * reports every reading. */
    double auto_shortest_s;
    /* Marks an aggregate, a SENSOR_DISCRETE of sensor_aggregate_words that is computed, never set.  Returns whether the
     * aggregate includes a sensor; aggregates are never included.  The aggregate is degraded (warn) while an included
     * sensor is worse than nominal (warn to unreachable). */
    bool (*includes)(const char *name);
    /* Age at which a reading becomes SENSOR_ERROR by itself; 0: never.  With 'recovers', a reading of warn to failure
     * becomes SENSOR_NOMINAL instead. */
    int64_t timeout_ns;
    bool recovers;
};

/* "ok", "degraded", "fail". */
extern const char *const sensor_aggregate_words[];

#define SENSOR_N_ATOMS (3 + SENSOR_N_NUMBERS)

struct sensor {
    _Atomic uint32_t sequence;              /* odd during a write */
    _Atomic uint64_t atoms[SENSOR_N_ATOMS]; /* UNIX time, monotonic time of setting, status, value */
    struct sensor_entry *entry;             /* [main] NULL: not added */
};

/* A sensor within its set. */
struct sensor_entry {
    struct sensor_desc about; /* [const] */
    struct sensor *sensor;    /* [const] */
    size_t index;             /* [const] place in the order of names, once all are added */
    char *text;               /* [main] text of a SENSOR_STRING without 'format' */
    uint64_t text_version;    /* increases when 'text' changes */
    /* [katcp/sampling.c] */
    uint64_t looked_version;
    int64_t due_ns;
    size_t n_sampled;
};

struct sensors {
    struct sensor_entry **entries; /* [n], by name */
    size_t n, n_allocated;
};

/* Returns 0 or -ENOMEM. */
int sensors_create(struct sensors **sensors);

/* NULL is accepted. */
void sensors_destroy(struct sensors *sensors);

/* Adds a sensor, whose first reading is 'first' (except text that main sets).  A name that is already there, or has
 * other characters, is a broken contract.  Returns 0 or -ENOMEM. */
int sensors_add(struct sensors *sensors, struct sensor *sensor, const struct sensor_desc *about,
                struct sensor_reading first);

void sensor_set(struct sensor *sensor, struct sensor_reading reading);
void sensor_set_integer(struct sensor *sensor, int64_t unix_ns, enum sensor_status status, int64_t value);
void sensor_set_real(struct sensor *sensor, int64_t unix_ns, enum sensor_status status, double value);

/* [main] Sets the text of an added sensor.  Copies the text, which may have some MiB.  Returns 0 or -ENOMEM. */
int sensors_set_text(struct sensors *sensors, struct sensor *sensor, int64_t unix_ns, enum sensor_status status,
                     const char *text);

/* Returns a consistent reading, without regard to time-outs.  Any thread. */
struct sensor_reading sensor_read(const struct sensor *sensor);

/* ---- Reading a set [main] ---------------------------------------------------------------------------------------- */

/* Returns NULL if there is no sensor of this name. */
struct sensor_entry *sensors_find(const struct sensors *sensors, const char *name);

/* Returns the reading as clients see it: computes an aggregate, and applies a time-out that has passed.  'version' (may
 * be NULL) changes whenever the sensor has been set or has timed out.  Any thread may read a sensor that is no
 * aggregate. */
struct sensor_reading sensors_read(const struct sensors *sensors, const struct sensor_entry *entry, uint64_t *version);

/* Returns the value as KATCP writes it, not escaped, in 'text' or in main's own memory. */
#define SENSOR_TEXT_BYTES 512
const char *sensor_entry_text(const struct sensor_entry *entry, const struct sensor_reading *reading,
                              char text[SENSOR_TEXT_BYTES]);

const char *sensor_type_name(enum sensor_type type);
const char *sensor_status_name(enum sensor_status status);

#endif
