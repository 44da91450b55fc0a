/* bench_machine.c - prints what the figures of a benchmark hold for, for those that are not in C. */
#include "scripts/bench/bench.h"

int main(void)
{
    bench_print_machine();
    return 0;
}
