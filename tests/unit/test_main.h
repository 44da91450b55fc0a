/* test_main.h - makes a program of Check cases.  TEST() defines and registers a case.  SUITE() sets the properties that
 * all cases share.
 *
 *     SUITE(.timeout_s = 60, .setup = open_device, .teardown = close_device, .start = random_start);
 *
 *     TEST(sums) { ck_assert_int_eq(1 + 1, 2); }
 *     TEST(sums_of_each, .end = ARRAY_LEN(sums)) { ck_assert_int_eq(sums[_i].a + sums[_i].b, sums[_i].sum); }
 *
 * Order:    cases run in the order of the file.  After start(), Check forks a process for each case (CK_FORK).
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
    int first, end;      /* the case runs for _i from 'first' to 'end' - 1; if both are 0, only for _i = 0 */
    int signal;          /* signal with which the case must end; 0: none */
    int exit_status;     /* status with which the case must exit */
    bool unless;         /* true: the case does not run here, and is not reported as skipped */
    const char *skip;    /* reason why the case cannot run here; NULL: the case can run */
    const char *group;   /* name of the case's group, for CK_RUN_CASE; NULL: "all" */
    double timeout_s;    /* timeout_s, setup and teardown replace the suite's members of the same names */
    void (*setup)(void); /* setup runs before the case and teardown after it, in the case's process */
    void (*teardown)(void);
    bool once; /* true: the case does not run a second time (see 'again') */
};

struct test_suite {
    double timeout_s; /* 0: Check's own */
    void (*setup)(void);
    void (*teardown)(void);
    void (*start)(void);                   /* runs before all cases, in the process that forks the cases */
    void (*finish)(void);                  /* after all cases */
    void (*again)(void);                   /* setup of a second run of all cases; NULL: no second run */
    const char *skip;                      /* reason why no case of the suite can run here; NULL: cases can run */
    int (*command)(int argc, char **argv); /* runs instead of the cases if the program has arguments; returns the exit
                                            * status */
};

/* An empty setup, for a case that must not run the suite's setup. */
void test_no_setup(void);

/* Returns true if all cases run in one process.  Then a case must not change the process for the next case. */
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
