/* service.h - what a daemon tells the init system, and the loop of its main thread.
 *
 * Flow:      main: service_catch_signals -> configuration -> service_open -> build everything -> service_run (libev,
 *            until a stop) -> tear down -> exit code
 * Threads:   main thread, except service_stop(), service_fail() and service_status(), which any thread may call.
 * Watchdog:  where systemd asks for it (WatchdogSec=, at least 4 s), service_run() tells it that all is well as long
 *            as every thread passes its loop (thread.h), with or without data, and the main thread its own.  A thread
 *            that stands still for half of WatchdogSec is named in the log and in STATUS, and systemd hears nothing
 *            more: it kills the process when WatchdogSec has passed since, unless the thread moves again.
 *
 * Blocking:  nothing here waits for systemd (notify.h).  READY and the last STATUS are told again each second until
 *            systemd has room for them; a STATUS that a later one replaced is not.
 *
 * Exit codes: 0 clean stop; EXIT_CONFIG whatever a restart cannot cure; EXIT_RESTART a clean stop after which an
 * operator wants it started again; 1 everything else.  systemd's Restart=on-failure starts it again after the last
 * two. */
#ifndef COMMON_DAEMON_SERVICE_H
#define COMMON_DAEMON_SERVICE_H

#define EXIT_CONFIG  78 /* EX_CONFIG of sysexits.h: systemd must not restart that */
#define EXIT_RESTART 75 /* EX_TEMPFAIL */

struct ev_loop;
struct service;

/* The exit code for a start that failed with negative errno 'err': EXIT_CONFIG for what the operator must change (an
 * interface, file or address that does not exist or may not be used), else 1: a restart may do (a port still taken,
 * memory). */
int service_exit_code(int err);

/* The first statement of main(): until service_open(), SIGTERM and SIGINT end the process at once with exit code 0, as
 * nothing has begun. */
void service_catch_signals(void);

/* Signals end the process by themselves again, so that whoever asked for less than a service learns that it was
 * interrupted. */
void service_release_signals(void);

/* Installs SIGTERM and SIGINT: the first one ends service_run(), if need be as soon as it is called; a second one ends
 * the process at once (exit 1), however long a drain may still take.  From here to service_close() the log has a thread
 * of its own (log.h).
 * Returns 0 or negative errno. */
int service_open(struct service **service);

/* The loop, for timers and listeners of the main thread. */
struct ev_loop *service_loop(struct service *service);

/* READY=1 to systemd (and STATUS=), then the loop until a signal or service_stop().  Returns the exit code given to
 * service_stop(), or 0 for a signal. */
int service_run(struct service *service);

/* Ends the loop from any thread; the first exit code given that is not 0 counts. */
void service_stop(struct service *service, int exit_code);

/* The same with 1, for what calls back with a pointer.  NULL is accepted. */
void service_fail(void *service);

/* STATUS= to systemd: one line of what it is doing. */
void service_status(struct service *service, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* STOPPING=1, when draining begins. */
void service_stopping(struct service *service);

/* From here on SIGTERM and SIGINT are ignored: the exit code is decided. */
void service_close(struct service *service);

#endif
