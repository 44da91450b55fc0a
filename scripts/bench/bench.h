/* bench.h - what the benchmarks (scripts/bench/bench_*.c) share: a core of one's own, statistics of repetitions, and how
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

/* The value of an option --device: auto, cpu or cuda; any other ends the program. */
enum device_kind bench_device_kind(const char *name);

/* Prints what the figures hold for: CPU, kernel, compiler, build, and how busy the machine was. */
void bench_print_machine(void);

/* Begins a table: a title, and a line that names the columns of bench_print_row(). */
void bench_print_head(const char *title, const char *unit);

/* One row: min, median and max, and how much of 'ceiling' (same unit; 0: none) the best reaches.  'bound' names the
 * ceiling, or says what else there is to say. */
void bench_print_row(const char *label, struct bench_stat stat, double ceiling, const char *bound);

#endif
