/* test_main.h - a program of Check cases that enter themselves: TEST() defines a case, SUITE() sets the properties that
 * all cases share.
 *
 *     SUITE(.timeout_s = 60, .setup = open_device, .teardown = close_device, .start = random_start);
 *
 *     TEST(sums) { ck_assert_int_eq(1 + 1, 2); }
 *     TEST(sums_of_each, .end = ARRAY_LEN(sums)) { ck_assert_int_eq(sums[_i].a + sums[_i].b, sums[_i].sum); }
 *
 * Order:    cases run in the order of the file.  Check forks each of them (CK_FORK) after start().
 * Skipping: a case with a reason to skip is counted as skipped, and the program says "skipped: REASON".  A program
 *           whose cases are all skipped exits with 77.
 * main() is in test_main.c. */
#ifndef TESTS_UNIT_TEST_MAIN_H
#define TESTS_UNIT_TEST_MAIN_H

#include <check.h>
#include <stdbool.h>

#define TEST_EXIT_SKIPPED 77

struct test_case {
    const TTest *test;
    int first, end;      /* _i goes from 'first' to 'end' - 1; 'end' 0 (and 'first' 0): once */
    int signal;          /* with which the case ends; 0: none */
    int exit_status;     /* with which the case exits */
    bool unless;         /* true: the case does not exist here, and nobody misses it */
    const char *skip;    /* reason why the case cannot run here; NULL: it can */
    const char *group;   /* for CK_RUN_CASE; NULL: "all" */
    double timeout_s;    /* these three in place of the suite's */
    void (*setup)(void); /* before and after the case, in its process */
    void (*teardown)(void);
    bool once; /* not again, where the suite runs again */
};

struct test_suite {
    double timeout_s; /* 0: Check's own */
    void (*setup)(void);
    void (*teardown)(void);
    void (*start)(void);                   /* before all cases, in the process that forks them off */
    void (*finish)(void);                  /* after all cases */
    void (*again)(void);                   /* cases run a second time, with this as their setup; NULL: once */
    const char *skip;                      /* reason why none can run here */
    int (*command)(int argc, char **argv); /* what the program does with arguments, and its exit status */
};

/* For a case that goes without the suite's. */
void test_no_setup(void);

/* True if cases are not forked off, so that one must not change the process for the next. */
bool test_in_one_process(void);

void test_enter(const struct test_case *entered);
void test_suite_is(const struct test_suite *suite);

#define TEST(test_name, ...)                                                                                           \
    static const TTest *test_name;                                                                                     \
    __attribute__((constructor)) static void test_name##_enters(void)                                                  \
    {                                                                                                                  \
        test_enter(&(struct test_case){.test = test_name, __VA_ARGS__});                                               \
    }                                                                                                                  \
    START_TEST(test_name)

#define SUITE(...)                                                                                                     \
    __attribute__((constructor)) static void suite_is(void)                                                            \
    {                                                                                                                  \
        test_suite_is(&(struct test_suite){__VA_ARGS__});                                                              \
    }                                                                                                                  \
    _Static_assert(true, "takes the semicolon")

#endif
