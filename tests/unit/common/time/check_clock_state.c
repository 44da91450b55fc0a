/* check_clock_state.c - hosts that do not permit asking the kernel: the state comes from a file, while that file is
 * new. */
#include "common/time/clock_state.h"

#include "common/base/clock.h"
#include "common/base/units.h"
#include "tests/unit/test_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/timex.h>
#include <unistd.h>

/* Instead of the kernel's: as in a service that may not set the clock. */
int adjtimex(struct timex *timex)
{
    errno = EPERM;
    return -1;
}

TEST(file)
{
    static const struct {
        int age_s, err;
    } cases[] = {{0, 0},
                 {3 * CLOCK_STATE_PERIOD_S, 0},
                 {4 * CLOCK_STATE_PERIOD_S + 2, -ESTALE},
                 {-1, 0},
                 /* The clock has been set back since: nothing says how old it is. */
                 {-3600, -ESTALE}};
    char path[] = "/tmp/check_clock_state-XXXXXX";
    struct clock_state state;

    close(mkstemp(path));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        FILE *out = fopen(path, "w");
        fprintf(out, "%lld %d 100 2000\n", (long long)(clock_unix_ns() / NS_PER_S - cases[i].age_s), TIME_INS);
        fclose(out);
        ck_assert_msg(clock_state_get(path, &state) == cases[i].err, "%d s old", cases[i].age_s);
        ck_assert_int_eq(state.state, cases[i].err ? TIME_ERROR : TIME_INS);
        ck_assert_double_eq_tol(state.maxerror_s, cases[i].err ? 0 : 2e-3, 1e-12);
    }
    ck_assert_int_eq(truncate(path, 5), 0);
    ck_assert_int_eq(clock_state_get(path, &state), -EINVAL);
    unlink(path);
    ck_assert_int_eq(clock_state_get(path, &state), -ENOENT);
    ck_assert_int_eq(clock_state_write(path), -EPERM);
}
