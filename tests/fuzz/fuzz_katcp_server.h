/* fuzz_katcp_server.h - a real KATCP server on loopback with a request of its own, "set", and sensors of all types. */
#ifndef TESTS_FUZZ_FUZZ_KATCP_SERVER_H
#define TESTS_FUZZ_FUZZ_KATCP_SERVER_H

#include "common/base/units.h"
#include "common/katcp/keys.h"
#include "common/katcp/server.h"

#include <assert.h>
#include <ev.h>
#include <stdio.h>

static struct ev_loop *loop;
static struct katcp_server *server;
static struct sensor sensors_of_all[12];

static void handle(struct katcp_call *call, void *arg)
{
    double real;
    int64_t integer;

    if (katcp_n_args(call) > 0 && !katcp_arg_integer(call, 0, "the first", &integer))
        return;
    for (int i = 1; i < katcp_n_args(call); i++)
        if (!katcp_arg_real(call, i, "another", &real))
            return;
    sensor_set_integer(&sensors_of_all[0], 1, SENSOR_WARN, katcp_n_args(call));
    katcp_ok(call, 0, NULL);
}

static void do_nothing(void *arg)
{
}

static inline void open_server(void)
{
    static const struct katcp_request requests[] = {{"set", "Sets.", 0, 4, handle, 0, 1}};
    static const char *const words[] = {"one", "two", NULL};
    static const char *const names[] = {"a",
                                        "b.c",
                                        "d-e",
                                        "f_g",
                                        "h",
                                        "device-status",
                                        "time.esterror",
                                        "input0.rx.timestamp",
                                        "input1.rx.missing-unixtime",
                                        "wide.input0.feng-clip-cnt",
                                        "wide.input1.dig-rms-dbfs",
                                        "narrow1.source-indices"};
    static struct katcp_device device = {"fuzzed",   "0",        requests, ARRAY_LEN(requests), NULL, NULL,
                                         do_nothing, do_nothing, NULL};
    static struct endpoint endpoint;
    static struct config_katcp config = {.listen = {1, &endpoint}, .max_clients = 10};
    char why[200];

    endpoint.address.s_addr = htonl(INADDR_LOOPBACK);
    loop = ev_loop_new(EVFLAG_AUTO);
    int err = sensors_create(&device.sensors);
    for (size_t i = 0; !err && i < ARRAY_LEN(names); i++) {
        struct sensor_desc about = {names[i], "One.", "", (enum sensor_type)(i % 5), .words = words};
        err = sensors_add(device.sensors, &sensors_of_all[i], &about, (struct sensor_reading){0});
    }
    if (!err)
        err = katcp_server_open(&config, loop, &device, &server, why, sizeof(why));
    assert(!err);
}

#endif
