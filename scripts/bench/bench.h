/* bench.h - functions that the benchmarks (scripts/bench/bench_*.c) share: command line, pinning to a CPU,
 * statistics, and printing of results.  Time comes from common/base/clock.h.
 *
 * Order of a benchmark: bench_print_machine(); then bench_print_head() for each table.  For each row of a table, the
 * benchmark does the work once to warm up, and BENCH_REPETITIONS times for the figures.  Then it calls
 * bench_stat_of() and bench_print_row().
 *
 * Ratios: a rate alone says little about the rate on other machines.  So a row also names a ceiling: the rate at
 *         which the machine could do the work at best, measured in the same run.  A ratio divides the best rate by
 *         the best ceiling, because other programs can only lower both.
 * CPU time or wall clock: work of one thread is timed by the CPU time of this thread (clock_thread_cpu_ns), which
 *         excludes the time of other programs.  Work of several threads is timed by the wall clock.
 * Threads: one. */
#ifndef SCRIPTS_BENCH_BENCH_H
#define SCRIPTS_BENCH_BENCH_H

#include "common/device/device.h"

#include <stddef.h>
#include <stdint.h>

#define BENCH_REPETITIONS 7

struct bench_stat {
    double min, median, max;
};

/* Returns the statistics of values[0..n), n >= 1.  Sorts the values in place. */
struct bench_stat bench_stat_of(double *values, size_t n);

/* bench_n_cpus() returns the number of CPUs on which this process may run.  bench_last_cpu() returns the last of
 * these CPUs, which usually serves the fewest interrupts. */
int bench_n_cpus(void);
int bench_last_cpu(void);

/* Pins the calling thread, and threads that it starts later, to CPU 'cpu'.  If cpu < 0, these threads may run on all
 * CPUs of the process.  Ends the program if the kernel refuses. */
void bench_pin(int cpu);

/* Prints the program's name and the message 'what', and ends the program. */
_Noreturn void bench_fail(const char *what);

/* Allocates device memory.  Ends the program if there is not enough memory. */
void *bench_alloc(struct device *device, size_t bytes);

/* An option of the command line, such as "--once".  'read' converts the option's value and stores it in *value.  If
 * 'read' is NULL, the option takes no value and sets a bool. */
struct bench_option {
    const char *name;
    void (*read)(const char *text, void *value);
    void *value;
};

/* Reads the options of the command line.  At an unknown option, names the source file that explains the options, and
 * ends the program. */
void bench_options(int argc, char **argv, const struct bench_option *options, size_t n_options);

/* Functions for 'read'.  The comments name the type of *value. */
void bench_read_unsigned(const char *text, void *value); /* unsigned */
void bench_read_size(const char *text, void *value);     /* size_t */
void bench_read_text(const char *text, void *value);     /* const char * */
void bench_read_device(const char *text, void *value);   /* enum device_kind: auto, cpu or cuda */

/* Reads a list of at most n_max numbers from 'least' to 'most', separated by commas.  Returns how many numbers there
 * are.  Ends the program with the message 'what' if the text is not such a list. */
size_t bench_read_list(const char *text, unsigned least, unsigned most, unsigned *values, size_t n_max,
                       const char *what);

/* Does the work 'n' times.  Returns the wall time in ns. */
typedef int64_t (*bench_time)(void *what, size_t n);

/* Returns rates in 10^9 per second.  'amount' is the amount of work in one execution.  The first call of 'time' only
 * warms up.  The duration of the second call determines how often each repetition does the work.  A repetition takes
 * about 'repetition_ns', but does the work at most 'n_max' times. */
#define BENCH_MAX_REPETITIONS 99
struct bench_stat bench_measure(bench_time time, void *what, double amount, size_t n_repetitions, int64_t repetition_ns,
                                size_t n_max);

/* Returns the rate of copies within the device, in 10^9 bytes/s.  Bytes read and bytes written both count. */
struct bench_stat bench_measure_copy(struct device *device, struct device_stream *stream, size_t bytes,
                                     size_t n_repetitions);

/* Prints the conditions of the measurement: CPU, kernel, compiler, build, and the machine's load. */
void bench_print_machine(void);

/* Begins a table: prints a title, and the names of the columns of bench_print_row(). */
void bench_print_head(const char *title, const char *unit);

/* Prints a row: min, median and max, and the ratio of max to 'ceiling' (in the same unit; 0: no ceiling).  'bound' is
 * the name of the ceiling, or another remark. */
void bench_print_row(const char *label, struct bench_stat stat, double ceiling, const char *bound);

#endif
