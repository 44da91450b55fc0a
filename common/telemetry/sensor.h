/* sensor.h - sensors of KATCP.  The data path sets their readings, and the main thread sends the readings to clients.
 *
 * Flow:      worker, receivers, senders --sensor_set_*()--> struct sensor --katcp/server.c--> clients
 * Ownership: a sensor is a member of the struct whose state it reports.  This struct must exist until the set is
 *            destroyed, because the set contains pointers to sensors.  The set copies names, descriptions and units.
 * Threads:   the main thread calls sensors_add() before READY.  A sensor has one writer at a time, on any thread.
 *            Setting a sensor takes no lock, allocates nothing and makes no system call: it uses a sequence lock of
 *            atomics, and a reader repeats a read that overlaps a write.  A sensor may be set before it is added, or
 *            without being added.  Only the main thread calls sensors_set_text(), for readings from requests or the
 *            configuration.  The data path instead sets numbers, which sensor_desc.format later converts to the text.
 *            Only the main thread calls other functions with 'sensors' in their names.
 * Time:      a reading's time is the UNIX time of its data, not of the call.
 *
 * A reading is (time, status, value).  KATCP 5.1 defines the meaning of each status.  The value is valid only if the
 * status is nominal, warn or error. */
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
    SENSOR_DISCRETE,  /* the value is an index into 'words' */
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

#define SENSOR_N_NUMBERS 7 /* the text of a text sensor is made from at most this number of values */

union sensor_value {
    int64_t integer; /* for SENSOR_INTEGER, SENSOR_BOOLEAN and SENSOR_DISCRETE */
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
    const char *name; /* may contain letters, digits, '.', '-' and '_' */
    const char *description;
    const char *units; /* "": no units */
    enum sensor_type type;
    const char *const *words; /* for SENSOR_DISCRETE: names of the values, ending with NULL; static */
    /* For SENSOR_STRING: writes the numbers of 'value' to 'text', as text.  If this member is NULL, the main thread
     * sets the text. */
    void (*format)(const union sensor_value *value, char *text, size_t text_bytes);
    /* Shortest interval, in seconds, between two reports of the strategy 'auto'.  If the interval is 0, 'auto'
     * reports every reading.  Otherwise 'auto' reports only changes; this is for readings that change with each
     * chunk. */
    double auto_shortest_s;
    /* For an aggregate: returns true if the aggregate includes the sensor 'name'.  If this member is NULL, this sensor
     * is not an aggregate.  An aggregate is a SENSOR_DISCRETE with sensor_aggregate_words.  The value of an aggregate
     * is computed from other sensors.  An aggregate never includes another aggregate.  The value is degraded (status
     * warn) while the status of an included sensor is warn, error, failure or unreachable. */
    bool (*includes)(const char *name);
    /* Age of a reading, in nanoseconds, at which its status becomes SENSOR_ERROR if no new reading has been set; 0:
     * never.  If 'recovers' is true, a status of warn, error or failure becomes SENSOR_NOMINAL instead. */
    int64_t timeout_ns;
    bool recovers;
};

/* "ok", "degraded", "fail". */
extern const char *const sensor_aggregate_words[];

#define SENSOR_N_ATOMS (3 + SENSOR_N_NUMBERS)

struct sensor {
    _Atomic uint32_t sequence;              /* odd during a write */
    _Atomic uint64_t atoms[SENSOR_N_ATOMS]; /* UNIX time of the reading, monotonic time of the write, status, value */
    struct sensor_entry *entry;             /* [main] entry of the sensor in the set; NULL: not added to a set */
};

/* The set's record of a sensor. */
struct sensor_entry {
    struct sensor_desc about; /* [const] */
    struct sensor *sensor;    /* [const] */
    size_t index;             /* [const] index in sensors->entries, after all sensors have been added */
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

/* Creates an empty set of sensors.  Returns 0 or -ENOMEM. */
int sensors_create(struct sensors **sensors);

/* NULL is accepted. */
void sensors_destroy(struct sensors *sensors);

/* Adds a sensor.  The first reading of the sensor is 'first'.  If the main thread sets the sensor's text, the text is
 * empty at first.  The name must be new, and must consist of the characters that sensor_desc.name permits.  Returns 0
 * or -ENOMEM. */
int sensors_add(struct sensors *sensors, struct sensor *sensor, const struct sensor_desc *about,
                struct sensor_reading first);

void sensor_set(struct sensor *sensor, struct sensor_reading reading);
void sensor_set_integer(struct sensor *sensor, int64_t unix_ns, enum sensor_status status, int64_t value);
void sensor_set_real(struct sensor *sensor, int64_t unix_ns, enum sensor_status status, double value);

/* [main] Sets the text of an added sensor.  Copies the text, which may be several MiB long.  Returns 0 or -ENOMEM. */
int sensors_set_text(struct sensors *sensors, struct sensor *sensor, int64_t unix_ns, enum sensor_status status,
                     const char *text);

/* Returns a consistent reading, but does not apply the time-out.  Any thread may call this function. */
struct sensor_reading sensor_read(const struct sensor *sensor);

/* ---- Reading a set [main] ---------------------------------------------------------------------------------------- */

/* Returns the entry of the sensor 'name', or NULL if there is no such sensor. */
struct sensor_entry *sensors_find(const struct sensors *sensors, const char *name);

/* Returns the reading that clients get: computes the value of an aggregate, and applies the time-out.  '*version'
 * changes whenever the sensor is set or times out; 'version' may be NULL.  Any thread may read a sensor that is not an
 * aggregate. */
struct sensor_reading sensors_read(const struct sensors *sensors, const struct sensor_entry *entry, uint64_t *version);

/* Returns the value as KATCP text without escapes.  The text is in 'text', or in memory of the main thread. */
#define SENSOR_TEXT_BYTES 512
const char *sensor_entry_text(const struct sensor_entry *entry, const struct sensor_reading *reading,
                              char text[SENSOR_TEXT_BYTES]);

const char *sensor_type_name(enum sensor_type type);
const char *sensor_status_name(enum sensor_status status);

#endif
