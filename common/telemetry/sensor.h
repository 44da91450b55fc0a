/* sensor.h - what an operator can ask of a program over KATCP: readings that the data path sets and the main thread
 * gives out.
 *
 * Flow:      worker, receivers, senders --sensor_set_*()--> struct sensor --katcp_server.c--> clients
 * Ownership: a sensor lies in the struct of what it is about, which lives until the set is closed; the set has
 *            pointers.  Names, descriptions and units are copied.
 * Threads:   sensors_add() before READY, from main.  A sensor has one writer at a time, any thread: setting takes no
 *            lock, allocates nothing and makes no system call (a sequence lock of atomics; readers try again).  It may
 *            be set before it is added, or without ever being.  Text is main's alone: sensors_set_text() is for
 *            readings that come from requests or the configuration, while one that the data path sets is numbers, with
 *            a function that writes them out.  All else that has 'sensors' in its name is main's.
 * Time:      a reading's is the UNIX time of the data that it speaks of, not that of the call.
 *
 * A reading is (time, status, value); KATCP 5.1 says what each status means, and that the value holds for nominal, warn
 * and error only. */
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

#define SENSOR_N_NUMBERS 7 /* of a text that the data path sets */

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
    const char *units; /* "" where there are none */
    enum sensor_type type;
    const char *const *words; /* SENSOR_DISCRETE: NULL at the end; static */
    /* SENSOR_STRING of numbers: writes them as text into 'text'; NULL: the text is main's. */
    void (*format)(const union sensor_value *value, char *text, size_t text_bytes);
    /* 'auto' is event-rate with this shortest interval, for readings that change with each chunk; 0: every reading. */
    double auto_shortest_s;
    /* An aggregate, SENSOR_DISCRETE of sensor_aggregate_words: nobody sets it; it is degraded (warn) while any sensor
     * that 'includes' names, and that is no aggregate itself, is worse than nominal (warn to unreachable). */
    bool (*includes)(const char *name);
    /* A reading set longer ago than this becomes SENSOR_ERROR by itself, or, with 'recovers', one of warn to failure
     * SENSOR_NOMINAL; 0: never. */
    int64_t timeout_ns;
    bool recovers;
};

/* "ok", "degraded", "fail". */
extern const char *const sensor_aggregate_words[];

#define SENSOR_N_ATOMS (3 + SENSOR_N_NUMBERS)

struct sensor {
    _Atomic uint32_t sequence;              /* odd while it is written */
    _Atomic uint64_t atoms[SENSOR_N_ATOMS]; /* UNIX time, monotonic time when it was set, status, value */
    struct sensor_entry *entry;             /* [main] NULL: not added */
};

/* A sensor within its set. */
struct sensor_entry {
    struct sensor_desc about; /* [const] */
    struct sensor *sensor;    /* [const] */
    size_t index;             /* [const] once all are added: its place in the order of names */
    char *text;               /* [main] of a SENSOR_STRING without 'format' */
    uint64_t text_version;    /* of 'text': goes on when it changes */
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

/* Adds one; its first reading is 'first', where the type is no text of main's.  A name twice, or with other characters,
 * is a broken contract.  Returns 0 or -ENOMEM. */
int sensors_add(struct sensors *sensors, struct sensor *sensor, const struct sensor_desc *about,
                struct sensor_reading first);

void sensor_set(struct sensor *sensor, struct sensor_reading reading);
void sensor_set_integer(struct sensor *sensor, int64_t unix_ns, enum sensor_status status, int64_t value);
void sensor_set_real(struct sensor *sensor, int64_t unix_ns, enum sensor_status status, double value);

/* [main] Sets a sensor's text; a copy is made, of up to some MiB.  It has been added.  Returns 0 or -ENOMEM. */
int sensors_set_text(struct sensors *sensors, struct sensor *sensor, int64_t unix_ns, enum sensor_status status,
                     const char *text);

/* A reading that belongs together; from any thread.  Without regard to time-outs. */
struct sensor_reading sensor_read(const struct sensor *sensor);

/* ---- Looking at a set [main] ------------------------------------------------------------------------------------- */

/* NULL where there is none of this name. */
struct sensor_entry *sensors_find(const struct sensors *sensors, const char *name);

/* The reading as clients see it: an aggregate is computed now, and a time-out that has come is applied.  'version',
 * which may be NULL, changes whenever the sensor has been set or has timed out.  Any thread may read a sensor that is
 * no aggregate. */
struct sensor_reading sensors_read(const struct sensors *sensors, const struct sensor_entry *entry, uint64_t *version);

/* The value as KATCP writes it, not escaped; in 'text', or main's own. */
#define SENSOR_TEXT_BYTES 512
const char *sensor_entry_text(const struct sensor_entry *entry, const struct sensor_reading *reading,
                              char text[SENSOR_TEXT_BYTES]);

const char *sensor_type_name(enum sensor_type type);
const char *sensor_status_name(enum sensor_status status);

#endif
