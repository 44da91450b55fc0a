/* fuzz_requests.c - requests of a client to fgpu and xbgpu as they run: real pipelines on the CPU device without data,
 * with their own requests, inputs, streams, gates and sensors.  Each request is answered once and in order.  All output
 * is KATCP.  The program can still answer afterwards.
 *
 * Input: which program, then text of requests.  In this text a byte of 128 to 191 stands for a word that the programs
 * know.  A byte from 192 on, together with the next byte, stands for the name of a sensor. */
#include "common/daemon/daemon.h"
#include "common/device/device.h"
#include "common/engine/engine.h"
#include "common/katcp/message.h"
#include "common/katcp/sensors.h"
#include "common/katcp/server.h"
#include "common/http/status.h"
#include "common/base/units.h"
#include "fgpu/config/config.h"
#include "fgpu/config_check.h"
#include "fgpu/pipeline.h"
#include "tests/fuzz/fuzz_connect.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_service.h"
#include "xbgpu/config/config.h"
#include "xbgpu/config_check.h"
#include "xbgpu/pipeline.h"

#include <errno.h>
#include <ev.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_MAX = 60000 }; /* less than any line that is too long */

/* ---- The programs ------------------------------------------------------------------------------------------------ */

/* An address of this host for each process, so that several can run. */
static const char fgpu_yaml[] =
    "time: {sync_time: 1700000000, adc_sample_rate: 1712e6}\n"
    "device: {kind: cpu, threads: 1}\n"
    "recv: {packet_samples: 256, chunk_samples: 8192, max_delay_diff: 512, sample_bits: 8, buffer: 0}\n"
    "antennas: [{name: m000, feng_id: 0, pol0: '%s:7001', pol1: '%s:7002'},\n"
    "           {name: m001, feng_id: 1, pol0: '%s:7003', pol1: '%s:7004'}]\n"
    "outputs: [{name: wide, channels: 64, spectra_per_heap: 16, taps: 2, destinations: 239.2.0.0},\n"
    "          {name: narrow, channels: 64, spectra_per_heap: 16, taps: 2, destinations: 239.2.0.1, kind: narrowband,\n"
    "           decimation: 8, centre_frequency: 214e6, ddc_taps: 64}]\n"
    "katcp: {listen: '%s:7006'}\n"
    "send: {pcap_file: /dev/null}\n";
static const char xbgpu_yaml[] =
    "time: {sync_time: 1700000000, adc_sample_rate: 1712e6}\n"
    "device: {kind: cpu, threads: 1}\n"
    "recv: {sources: '%s:7005', antennas: 2, channels: 64, channels_per_substream: 8, max_shift: 7, chunks: 10, "
    "buffer: 0,\n"
    "       spectra_per_heap: 16, samples_between_spectra: 128, batches_per_chunk: 5}\n"
    "gates: [{kind: phase, name: pulse, frequency: 30, bins: 4, take: [1]},\n"
    "        {kind: phase, name: far, frequency: 30, bins: 4, take: [1], dispersion_measure: 3, centre_frequency: "
    "1e9},\n"
    "        {kind: switch, name: diode, period: 1000, on_until: 500, epoch: 3}]\n"
    "outputs: [{name: all, integration_batches: 3, destination: 239.3.0.3},\n"
    "          {name: on, integration_batches: 3, destination: 239.3.0.4, gate: pulse},\n"
    "          {name: off, integration_batches: 3, destination: 239.3.0.5, gate: far},\n"
    "          {name: lit, integration_batches: 3, destination: 239.3.0.6, gate: diode, send_enabled: false}]\n"
    "katcp: {listen: '%s:7007'}\n"
    "send: {pcap_file: /dev/null}\n";

static struct fgpu_config fgpu_config;
static struct xbgpu_config xbgpu_config;
static struct service *service;
static struct gauge healthy = {1};
static struct program {
    const char *name;
    struct config *book; /* the values refer to it */
    struct daemon_context context;
    struct katcp_sensors own;
    struct katcp_device device;
    struct sockaddr_in address; /* of its KATCP */
    char *sensors;              /* their names, each behind a 0 */
    size_t sensors_bytes;
} programs[2];

static void load(const struct config_table *table, void (*check)(void *values, struct config *config), const char *text,
                 void *values, struct program *program)
{
    char path[64], address[32], yaml[3000];
    int fd = memfd_create("config", MFD_CLOEXEC), pid = getpid();

    snprintf(address, sizeof(address), "127.%d.%d.%d", 1 + (pid >> 16) % 250, pid >> 8 & 255, pid & 255);
    int n = snprintf(yaml, sizeof(yaml), text, address, address, address, address, address);
    assert(fd >= 0 && write(fd, yaml, (size_t)n) == n);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int err = config_load(table, path, values, &program->book);
    if (!err)
        check(values, program->book);
    config_print_errors(program->book, stderr);
    close(fd);
    assert(!err && !config_first_error(program->book));
}

static void do_nothing(void *arg)
{
}

static void fail(const char *name, const char *why)
{
    fprintf(stderr, "%s: %s\n", name, why);
    abort();
}

/* As common/daemon/daemon.c does it. */
static void start(struct program *program, const char *name, const struct daemon *daemon, const void *values,
                  const struct config_katcp *katcp)
{
    struct katcp_server *server;
    void *pipeline = NULL;
    char why[600] = "";

    program->name = name;
    program->address = (struct sockaddr_in){.sin_family = AF_INET,
                                            .sin_addr = katcp->listen.items[0].address,
                                            .sin_port = htons(katcp->listen.items[0].port)};
    program->context = (struct daemon_context){.service = service, .healthy = &healthy, .katcp_sensors = &program->own};
    if (status_create(name, NULL, &healthy, &program->context.status) ||
        device_open(&(struct device_config){.kind = DEVICE_CPU, .n_threads = 1}, &program->context.device, why,
                    sizeof(why)) ||
        sensors_create(&program->context.sensors) || katcp_sensors_add(&program->own, program->context.sensors) ||
        daemon->create(values, &program->context, &pipeline, why, sizeof(why)))
        fail(name, why);
    program->device = (struct katcp_device){
        .name = name, .version = "0", .sensors = program->context.sensors, .halt = do_nothing, .restart = do_nothing};
    daemon->control(pipeline, &program->device);
    if (katcp_server_open(katcp, service_loop(service), &program->device, &server, why, sizeof(why)) ||
        daemon->start(pipeline) || daemon->enable(pipeline, why, sizeof(why)))
        fail(name, why);
    katcp_sensors_start(&program->own, service_loop(service));
}

/* ---- A client ---------------------------------------------------------------------------------------------------- */

static void read_all(int fd, struct katcp_text *got)
{
    static char buffer[65536];
    ssize_t n;

    while ((n = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0)
        katcp_text_add(got, buffer, (size_t)n);
    assert(n < 0 && (errno == EAGAIN || errno == EINTR)); /* it has not closed */
}

static const char last_answer[] = "!watchdog[2147483647] ok\n";

/* Sends all of it, with a last request, and takes what comes until that is answered. */
static void talk(const struct program *program, const char *text, size_t n_bytes, struct katcp_text *got)
{
    static const char first[] = "?watchdog[2147483646]\n", last[] = "\n?watchdog[2147483647]\n";
    const struct timespec while_it_works = {.tv_nsec = 50000}; /* the worker, which answers some */
    int fd = fuzz_connect(&program->address);

    katcp_text_clear(got);
    assert(send(fd, first, sizeof(first) - 1, MSG_NOSIGNAL) == sizeof(first) - 1);
    ssize_t n = n_bytes ? send(fd, text, n_bytes, MSG_NOSIGNAL) : 0;
    assert(n == (ssize_t)n_bytes);
    assert(send(fd, last, sizeof(last) - 1, MSG_NOSIGNAL) == sizeof(last) - 1);
    for (int i = 0;; i++) {
        ev_run(service_loop(service), EVRUN_NOWAIT);
        read_all(fd, got);
        if (got->n && memmem(got->bytes, got->n, last_answer, sizeof(last_answer) - 1))
            break;
        if (i > 10)
            nanosleep(&while_it_works, NULL);
    }
    close(fd);
    ev_run(service_loop(service), EVRUN_NOWAIT);
    ev_run(service_loop(service), EVRUN_NOWAIT);
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

/* Steps to the next line.  Returns it without its end, or NULL. */
static char *next_line(char **at, const char *end, size_t *n_bytes)
{
    char *line = *at;

    if (line == end)
        return NULL;
    while (*at < end && **at != '\n' && **at != '\r')
        ++*at;
    *n_bytes = (size_t)(*at - line);
    if (*at < end)
        ++*at;
    return line;
}

/* The next reply, or NULL; what is no reply is an inform. */
static char *next_reply(char **at, const char *end, struct katcp_message *message)
{
    size_t n;

    for (char *line; (line = next_line(at, end, &n));) {
        const char *why = katcp_message_parse(line, n, message);
        assert(!why && (message->type == '!' || message->type == '#'));
        if (message->type == '!')
            return line;
    }
    return NULL;
}

/* A reply to each request, in their order; both texts are changed. */
static void check_replies(char *text, size_t n_bytes, struct katcp_text *got)
{
    struct katcp_message request = {0}, reply = {0};
    char *at = got->bytes, *end = got->bytes + got->n, *line;
    size_t n;

    assert(next_reply(&at, end, &reply) && reply.mid == 2147483646);
    for (char *sent = text; (line = next_line(&sent, text + n_bytes, &n));) {
        const char *why = katcp_message_parse(line, n, &request);
        if (why || request.type != '?') /* a line that is no message has an inform #log */
            continue;
        assert(next_reply(&at, end, &reply));
        assert(strcmp(reply.name, request.name) == 0 && reply.mid == request.mid && reply.n_args > 0);
        bool ok = strcmp(reply.args[0], "ok") == 0;
        assert(ok || strcmp(reply.args[0], "fail") == 0 || strcmp(reply.args[0], "invalid") == 0);
        assert(ok || (reply.n_args == 2 && reply.args[1][0]));
    }
    assert(next_reply(&at, end, &reply) && reply.mid == 2147483647);
    assert(!next_reply(&at, end, &reply));
    katcp_message_fini(&request);
    katcp_message_fini(&reply);
}

/* ---- Words ------------------------------------------------------------------------------------------------------- */

static const char *const words[] = {"?gain ",
                                    "?gain-all ",
                                    "?delays ",
                                    "?capture-start ",
                                    "?capture-stop ",
                                    "?input-shift ",
                                    "?gate ",
                                    "?sensor-list ",
                                    "?sensor-value ",
                                    "?sensor-sampling ",
                                    "?sensor-sampling-clear\n",
                                    "?help ",
                                    "?log-level ",
                                    "?client-list\n",
                                    "?version-list\n",
                                    "?halt\n",
                                    "?restart\n",
                                    "?watchdog\n",
                                    /* 18 */ "wide ",
                                    "narrow ",
                                    "all ",
                                    "on ",
                                    "off ",
                                    "lit ",
                                    "pulse ",
                                    "far ",
                                    "diode ",
                                    /* 27 */ "m000v ",
                                    "m000h ",
                                    "m001v ",
                                    "m001h ",
                                    "a0v ",
                                    "a1h ",
                                    "0 ",
                                    "3 ",
                                    /* 35 */ "1.5,0.001:-1.2,0.5 ",
                                    "0,0:0,0 ",
                                    "1700000001.25 ",
                                    "0.5+2j ",
                                    "nan ",
                                    "1e300 ",
                                    "-7 ",
                                    "default ",
                                    /* 43 */ "frequency=",
                                    "take=",
                                    "bins=",
                                    "period=",
                                    "on_from=",
                                    "on_until=",
                                    "epoch=",
                                    "epoch_time=",
                                    "dispersion_measure=",
                                    "frequency_derivative=",
                                    "phase=",
                                    /* 54 */ "auto ",
                                    "period 0.01 ",
                                    "event ",
                                    "differential 1 ",
                                    "none ",
                                    "/.*/ ",
                                    "\n",
                                    "[7]",
                                    "9223372036854775807 ",
                                    "\\_"};
_Static_assert(ARRAY_LEN(words) == 64, "a word for each byte from 128 to 191");

/* Asks for the names of all sensors. */
static void learn_sensors(struct program *program)
{
    struct katcp_text got = {0};
    struct katcp_message message = {0};
    FILE *out = open_memstream(&program->sensors, &program->sensors_bytes);
    size_t n;

    talk(program, "?sensor-list\n", 13, &got);
    for (char *at = got.bytes, *line; (line = next_line(&at, got.bytes + got.n, &n));)
        if (!katcp_message_parse(line, n, &message) && strcmp(message.name, "sensor-list") == 0 && message.type == '#')
            fprintf(out, "%c%s ", 0, message.args[0]);
    fclose(out);
    assert(program->sensors_bytes > 100);
    katcp_message_fini(&message);
    katcp_text_fini(&got);
}

/* A name behind the 0 that is next to that place. */
static const char *sensor_at(const struct program *program, size_t place)
{
    const char *end = memchr(program->sensors + place, 0, program->sensors_bytes - place);

    return end && end + 1 < program->sensors + program->sensors_bytes ? end + 1 : program->sensors + 1;
}

static void write_text(struct fuzz_input *input, const struct program *program, struct katcp_text *text)
{
    while (!fuzz_ended(input) && text->n < TEXT_MAX) {
        unsigned byte = fuzz_u8(input);
        const char *word = byte < 192 ? words[byte & 63] : NULL;
        if (byte >= 192)
            word = sensor_at(program, ((byte & 63) << 8 | fuzz_u8(input)) % program->sensors_bytes);
        if (byte < 128)
            katcp_text_add(text, (const char[]){(char)byte}, 1);
        else
            katcp_text_add(text, word, strlen(word));
    }
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

static void begin(void)
{
    static const struct daemon fgpu = {.create = fgpu_pipeline_create,
                                       .control = fgpu_pipeline_control,
                                       .start = engine_start,
                                       .enable = engine_enable};
    static const struct daemon xbgpu = {.create = xbgpu_pipeline_create,
                                        .control = xbgpu_pipeline_control,
                                        .start = engine_start,
                                        .enable = engine_enable};

    service = fuzz_open_service();
    load(&fgpu_config_table, fgpu_config_check, fgpu_yaml, &fgpu_config, &programs[0]);
    load(&xbgpu_config_table, xbgpu_config_check, xbgpu_yaml, &xbgpu_config, &programs[1]);
    start(&programs[0], "fgpu", &fgpu, &fgpu_config, &fgpu_config.daemon.katcp);
    start(&programs[1], "xbgpu", &xbgpu, &xbgpu_config, &xbgpu_config.daemon.katcp);
    learn_sensors(&programs[0]);
    learn_sensors(&programs[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct fuzz_input input = {data, n_bytes};
    struct katcp_text text = {0}, got = {0};

    if (!service)
        begin();
    const struct program *program = &programs[fuzz_u8(&input) % 2];
    katcp_text_add(&text, "", 0);
    write_text(&input, program, &text);
    talk(program, text.bytes, text.n, &got);
    katcp_text_add(&text, "", 1); /* for the parser */
    if (text.n > 1)
        check_replies(text.bytes, text.n - 1, &got);
    katcp_text_fini(&text);
    katcp_text_fini(&got);
    return 0;
}
