/* test_main.c - main() of every unit test.  See test_main.h. */
#include "test_main.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CASES 256

static struct test_suite common;
static struct test_case cases[MAX_CASES];
static int n_cases;

void test_suite_is(const struct test_suite *suite)
{
    common = *suite;
}

void test_enter(const struct test_case *entered)
{
    assert(n_cases < MAX_CASES);
    cases[n_cases++] = *entered;
}

void test_no_setup(void)
{
}

bool test_in_one_process(void)
{
    const char *fork = getenv("CK_FORK");

    return fork && strcmp(fork, "no") == 0;
}

static void add(Suite *suite, const struct test_case *entered, void (*setup)(void))
{
    TCase *tcase = tcase_create(entered->group ? entered->group : "all");
    void (*teardown)(void) = entered->teardown ? entered->teardown : common.teardown;
    double timeout_s = entered->timeout_s > 0 ? entered->timeout_s : common.timeout_s;
    int end = entered->end > entered->first ? entered->end : entered->first + 1;

    if (timeout_s > 0)
        tcase_set_timeout(tcase, timeout_s);
    tcase_add_checked_fixture(tcase, setup, teardown);
    if (entered->signal)
        tcase_add_loop_test_raise_signal(tcase, entered->test, entered->signal, entered->first, end);
    else
        tcase_add_loop_exit_test(tcase, entered->test, entered->exit_status, entered->first, end);
    suite_add_tcase(suite, tcase);
}

/* Returns how many cases of the suite run here. */
static int add_all(Suite *suite)
{
    int n_added = 0;

    for (int i = 0; i < n_cases; i++) {
        const struct test_case *entered = &cases[i];

        if (entered->unless)
            continue;
        if (common.skip || entered->skip) {
            printf("skipped: %s\n", common.skip ? common.skip : entered->skip);
            continue;
        }
        add(suite, entered, entered->setup ? entered->setup : common.setup);
        if (common.again && !entered->once)
            add(suite, entered, common.again);
        n_added++;
    }
    fflush(stdout);
    return n_added;
}

#ifdef __SANITIZE_ADDRESS__
/* LeakSanitizer takes the words before a block of dynamic TLS for the block's place and size.  glibc keeps something else
 * there, so that the search for leaks may end the process. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "intercept_tls_get_addr=0";
}
#endif

int main(int argc, char **argv)
{
    if (argc > 1 && common.command)
        return common.command(argc, argv);
    Suite *suite = suite_create(program_invocation_short_name);
    SRunner *runner = srunner_create(suite);
    if (add_all(suite) == 0) {
        srunner_free(runner);
        return TEST_EXIT_SKIPPED;
    }
    if (common.start)
        common.start();
    srunner_run_all(runner, CK_ENV);
    if (common.finish)
        common.finish();
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
