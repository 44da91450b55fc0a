/* service.h - a daemon's messages to the init system, and the loop of its main thread.
 *
 * Flow:      main: service_catch_signals -> configuration -> service_open -> build everything -> service_run (libev,
 *            until a stop) -> tear down -> exit code
 * Threads:   main thread; service_stop(), service_fail() and service_status() on any thread.
 * Watchdog:  if systemd asks for it (WatchdogSec=, at least 4 s), service_run() reports health while every thread, main
 *            included, passes its loop (thread.h), with or without data.  If a thread stands still for half of
 *            WatchdogSec, the log and STATUS name the thread, and the reports stop.  systemd kills the process
 *            WatchdogSec after the last report, unless the thread moves again.
 *
 * Blocking:  nothing here waits for systemd (notify.h).  READY and the last STATUS are sent again each second until
 *            systemd has room for them.  A STATUS that a later one replaced is not sent again.
 *
 * Exit codes: 0 for a clean stop; EXIT_CONFIG for a fault that a restart cannot cure; EXIT_RESTART for a clean stop
 * after which the operator wants a new start; 1 for everything else.  systemd's Restart=on-failure starts the daemon
 * again after the last two. */
#ifndef COMMON_DAEMON_SERVICE_H
#define COMMON_DAEMON_SERVICE_H

#define EXIT_CONFIG  78 /* EX_CONFIG of sysexits.h: systemd must not restart the daemon */
#define EXIT_RESTART 75 /* EX_TEMPFAIL */

struct ev_loop;
struct service;

/* Returns the exit code for a start that failed with negative errno 'err'.  EXIT_CONFIG: the operator must change
 * something (an interface, file or address that does not exist or may not be used).  1: a restart may help (a port
 * still taken, memory). */
int service_exit_code(int err);

/* Makes SIGTERM and SIGINT end the process at once with exit code 0, because nothing has begun.  First statement of
 * main(); valid until service_open(). */
void service_catch_signals(void);

/* Restores the default signals, which end the process by themselves, for options that run no service.  The caller of
 * the program then sees that a signal ended it. */
void service_release_signals(void);

/* Handles SIGTERM and SIGINT.  The first signal ends service_run(), even if the signal comes before the call.  A second
 * signal ends the process at once (exit 1), even during a drain.  The log has a thread of its own from here to
 * service_close() (log.h).  Returns 0 or negative errno. */
int service_open(struct service **service);

/* Returns the loop, for timers and listeners of the main thread. */
struct ev_loop *service_loop(struct service *service);

/* Sends READY=1 (and STATUS=) to systemd, then runs the loop until a signal or service_stop().  Returns the exit code
 * given to service_stop(), or 0 for a signal. */
int service_run(struct service *service);

/* Ends the loop from any thread.  The first exit code other than 0 counts. */
void service_stop(struct service *service, int exit_code);

/* Calls service_stop() with exit code 1, for callbacks with a pointer argument.  NULL is accepted. */
void service_fail(void *service);

/* Sends STATUS= to systemd: one line about the daemon's present activity. */
void service_status(struct service *service, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sends STOPPING=1, when draining begins. */
void service_stopping(struct service *service);

/* Closes the service.  From here on SIGTERM and SIGINT are ignored, because the exit code is decided. */
void service_close(struct service *service);

#endif
