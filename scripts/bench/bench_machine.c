/* bench_machine.c - prints the conditions of a measurement, for benchmarks that are not in C. */
#include "scripts/bench/bench.h"

int main(void)
{
    bench_print_machine();
    return 0;
}
