/* clock_state.c - main() of gpucbf-clock.service: writes the state of the kernel's clock to a file, for engines that
 * may not query the clock themselves. */
#include "common/time/clock_state.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/daemon/notify.h"
#include "common/base/units.h"

#include <string.h>

int main(void)
{
    struct notify notify;

    log_init("clock-state", LOG_LEVEL_INFO);
    notify_open(&notify);
    for (;;) {
        int err = clock_state_write(CLOCK_STATE_FILE);
        if (err) {
            log_error("%s: %s", CLOCK_STATE_FILE, strerror(-err));
            return 1;
        }
        notify_send(&notify, "READY=1"); /* systemd ignores every READY=1 after the first */
        clock_sleep_until(clock_monotonic_ns() + CLOCK_STATE_PERIOD_S * NS_PER_S);
    }
}
