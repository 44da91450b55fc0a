/* service.h - the loop of a daemon's main thread, its signals, and its messages to systemd.
 *
 * Flow:      main: service_catch_signals -> configuration -> service_open -> build everything -> service_run (libev,
 *            until a stop) -> tear down -> exit code
 * Threads:   main thread; service_stop(), service_fail() and service_status() on any thread.
 * Watchdog:  if WatchdogSec= is set (at least 4 s), service_run() sends WATCHDOG=1 as long as every thread, including
 *            the main thread, passes through its loop (thread.h).  The loops also run without data.  If a thread hangs
 *            for half of WatchdogSec, the log and STATUS name the thread, and service_run() stops sending WATCHDOG=1.
 *            systemd kills the process WatchdogSec after the last WATCHDOG=1, unless the thread continues before that
 *            time.  A container has no systemd: if $WATCHDOG_USEC is set and $NOTIFY_SOCKET is not, service_run() ends
 *            the process with exit code 1 when a thread has hung for WatchdogSec.
 *
 * Blocking:  no function waits for systemd (notify.h).  If systemd's queue is full, READY and the last STATUS are sent
 *            again each second.  An older STATUS is not sent again.
 *
 * Exit codes:
 *   0             clean stop
 *   EXIT_CONFIG   a fault that a restart cannot cure
 *   EXIT_RESTART  clean stop with a requested restart; systemd (Restart=on-failure) starts the daemon again
 *   1             any other fault; systemd starts the daemon again */
#ifndef COMMON_DAEMON_SERVICE_H
#define COMMON_DAEMON_SERVICE_H

#define EXIT_CONFIG  78 /* EX_CONFIG of sysexits.h; systemd must not restart the daemon */
#define EXIT_RESTART 75 /* EX_TEMPFAIL */

struct ev_loop;
struct service;

/* Returns the exit code for a start that failed with negative errno 'err'.  EXIT_CONFIG: the operator must change
 * something, for example an interface, file or address that does not exist.  1: a restart may help, for example if a
 * port is still in use or memory is short. */
int service_exit_code(int err);

/* Lets SIGTERM and SIGINT end the process at once with exit code 0, because nothing has been started.  Call first in
 * main().  The effect ends with service_open(). */
void service_catch_signals(void);

/* Restores the default actions of signals, for options of the command line that run no service.  A signal then ends the
 * process, and the program's parent process can detect the signal. */
void service_release_signals(void);

/* Opens the service, which then handles SIGTERM and SIGINT.  The first signal ends service_run(), even if the signal
 * arrives before service_run().  A second signal ends the process at once with exit code 1, even during a drain.  Until
 * service_close(), a separate thread writes the log (log.h).  Returns 0 or negative errno. */
int service_open(struct service **service);

/* Returns the main thread's loop, for timers and listeners. */
struct ev_loop *service_loop(struct service *service);

/* Sends READY=1 and STATUS= to systemd, then runs the loop until a signal or service_stop().  Returns the exit code of
 * service_stop(), or 0 after a signal. */
int service_run(struct service *service);

/* Ends the loop.  Any thread may call this function.  After several calls, the first exit code other than 0
 * counts. */
void service_stop(struct service *service, int exit_code);

/* Calls service_stop() with exit code 1.  The argument is a void pointer, so that this function can be used as a
 * callback.  NULL is accepted. */
void service_fail(void *service);

/* Sends STATUS= to systemd: one line about the daemon's current activity. */
void service_status(struct service *service, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sends STOPPING=1 to systemd.  Called when draining begins. */
void service_stopping(struct service *service);

/* Closes the service.  Afterwards SIGTERM and SIGINT are ignored, because the exit code is already decided. */
void service_close(struct service *service);

#endif
