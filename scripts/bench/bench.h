/* bench.h - what the benchmarks (scripts/bench/bench_*.c) share: the command line, a core of one's own, statistics, and how
 * the results are printed.  Time comes from common/base/clock.h.
 *
 * How a benchmark goes: bench_print_machine(); then for each table bench_print_head(), and for each of its rows do the
 * work once to warm up and BENCH_REPETITIONS times for the figures, bench_stat_of(), bench_print_row().
 *
 * Ratios: an absolute figure says little beyond its machine, so a row also names what bounds it: a ceiling measured in
 *         the same run.  Both are taken at their best, because other programs on the machine only ever take away.
 * CPU time or wall clock: work of one thread is best timed by the CPU time of that thread (clock_thread_cpu_ns), which
 *         leaves out what other programs got; work of several threads by the wall clock.
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

/* Of values[0..n), n >= 1, which are sorted in place. */
struct bench_stat bench_stat_of(double *values, size_t n);

/* How many CPUs this process may run on, and the last of them (which serves the fewest interrupts as a rule). */
int bench_n_cpus(void);
int bench_last_cpu(void);

/* Pins the calling thread, and those that it starts from now on, to CPU 'cpu'; or, if < 0, to all that the process may
 * run on.  Ends the program if the kernel refuses. */
void bench_pin(int cpu);

/* Says what is wrong, after the program's name, and ends the program. */
_Noreturn void bench_fail(const char *what);

/* Device memory.  Ends the program if there is not enough. */
void *bench_alloc(struct device *device, size_t bytes);

/* An option of the command line, "--once", and how its value becomes *value; 'read' NULL: a bool that takes no value. */
struct bench_option {
    const char *name;
    void (*read)(const char *text, void *value);
    void *value;
};

/* Takes the options that are given.  Ends the program at any other, after naming the source file that explains them. */
void bench_options(int argc, char **argv, const struct bench_option *options, size_t n_options);

/* For such rows. */
void bench_read_unsigned(const char *text, void *value); /* unsigned */
void bench_read_size(const char *text, void *value);     /* size_t */
void bench_read_text(const char *text, void *value);     /* const char * */
void bench_read_device(const char *text, void *value);   /* enum device_kind: auto, cpu or cuda */

/* A list of numbers from 'least' to 'most' with commas between them, n_max at most.  Returns how many there are; ends the
 * program with 'what' at any other text. */
size_t bench_read_list(const char *text, unsigned least, unsigned most, unsigned *values, size_t n_max,
                       const char *what);

/* Times 'n' times the work, in wall time. */
typedef int64_t (*bench_time)(void *what, size_t n);

/* Rates of 'amount' (for n = 1), in 10^9 a second.  The first time only warms up; the second says how often the work is
 * to be done, 'n_max' times at most, so that a repetition takes 'repetition_ns'. */
#define BENCH_MAX_REPETITIONS 99
struct bench_stat bench_measure(bench_time time, void *what, double amount, size_t n_repetitions, int64_t repetition_ns,
                                size_t n_max);

/* 10^9 bytes/s that copies within the device read and write. */
struct bench_stat bench_measure_copy(struct device *device, struct device_stream *stream, size_t bytes,
                                     size_t n_repetitions);

/* Prints what the figures hold for: CPU, kernel, compiler, build, and how busy the machine was. */
void bench_print_machine(void);

/* Begins a table: a title, and a line that names the columns of bench_print_row(). */
void bench_print_head(const char *title, const char *unit);

/* One row: min, median and max, and how much of 'ceiling' (same unit; 0: none) the best reaches.  'bound' names the
 * ceiling, or says what else there is to say. */
void bench_print_row(const char *label, struct bench_stat stat, double ceiling, const char *bound);

#endif
