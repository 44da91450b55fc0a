/* xrequests.c - sends requests to xbgpu, and knows the effects of the requests.  See xworld.h.
 *
 * The operator sends requests that change settings, one after another.  After each request the operator reads the sensor
 * steady-state-timestamp.  A second client sends other requests, which change nothing, without waiting for replies. */
#include "tests/world/lines.h"
#include "tests/world/refusals.h"
#include "tests/world/run.h"
#include "tests/world/sched.h"
#include "tests/world/xworld.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REQUESTS 64
#define MAX_STEERING 32

enum kind { OTHER, READ_STEADY, CAPTURE, STEERING, GATE, SHIFT, CALIBRATION };

/* A version of the gate: takes [from, until) of each period, in samples. */
struct gate {
    int64_t from_samples;
    unsigned on_from, on_until;
};
#define GATE_PERIOD (5 * STEP + 3)

/* A delay model of a beam: phases of quarter turns, and their advance in a batch. */
struct phases {
    int64_t from_samples; /* steady-state timestamp of the request */
    int64_t load_batch;   /* first batch at the load time or later; -1: no load time */
    int quarter[MAX_ANTS], turn[MAX_ANTS];
};
#define MAX_TIMED 7 /* models of a beam that may wait for their load times */

/* Shifts of all inputs, in spectra. */
struct shifts {
    int64_t from_samples;
    int of[MAX_ANTS][2];
};

/* Gains of all inputs: magnitude * j^(quarter + channel * turn). */
struct calibration {
    int64_t from_samples;
    struct {
        int magnitude, quarter, turn;
    } of[MAX_ANTS][2];
};

struct request {
    unsigned due_batch;
    char line[400];
    const char *answer; /* "ok", "fail" or "invalid" */
    enum kind kind;
    unsigned number; /* of the stream or beam */
    bool on;         /* CAPTURE */
    int64_t from_samples;
    struct steering steering;
    bool has_phases; /* STEERING changes 'phases' */
    struct phases phases;
    struct gate gate;
    struct shifts shifts;
    struct calibration calibration;
    int64_t sent_ns, answered_ns;
    unsigned n_answers;
};

/* The requests of a client.  The message id of a request is its index plus 1. */
struct client {
    struct lines *lines;
    struct request requests[MAX_REQUESTS];
    unsigned n, n_sent, n_answered;
};

static struct client operator, guest;
static struct steering steering[MAX_BEAMS][MAX_STEERING];
static unsigned n_steering[MAX_BEAMS];
static struct phases phases[MAX_BEAMS][MAX_STEERING];
static unsigned n_phases[MAX_BEAMS], n_timed[MAX_BEAMS];
static struct gate gates[MAX_REQUESTS];
static unsigned n_gates;
static struct shifts shifts[MAX_REQUESTS];
static unsigned n_shifts;
static struct calibration calibrations[MAX_REQUESTS];
static unsigned n_calibrations;

/* Returns true if the daemon is stopped while data flow.  It then need not answer the last requests. */
static bool is_stopped(void)
{
    return s.stop_batch < s.n_batches;
}

/* ---- Drawing --------------------------------------------------------------------------------------------------------- */

static struct request *add(struct client *client, unsigned due_batch)
{
    struct request *request = &client->requests[client->n++];

    *request = (struct request){.due_batch = due_batch, .answer = "ok"};
    return request;
}

static void draw_capture(struct request *request, const char *const *streams, unsigned n_streams)
{
    request->kind = CAPTURE;
    request->number = (unsigned)world_random(n_streams);
    request->on = world_random(2);
    const char *name = streams[request->number];
    if (request->on && world_random(2)) {
        request->from_samples = (batch_of(request->due_batch) + (int64_t)world_random(30) - 10) * s.batch_samples;
        snprintf(request->line, sizeof(request->line), "capture-start %s %lld", name, (long long)request->from_samples);
    } else {
        snprintf(request->line, sizeof(request->line), "capture-%s %s", request->on ? "start" : "stop", name);
    }
}

static void append(struct request *request, const char *text)
{
    strncat(request->line, text, sizeof(request->line) - strlen(request->line) - 1);
}

/* Draws the load time of a delay model: the begin of a batch, or, if there are no rates, up to a batch before. */
static void draw_load_time(struct request *request, bool has_rates)
{
    int64_t batch = batch_of(request->due_batch) + (int64_t)world_random(40) - 10;
    int64_t samples = batch * s.batch_samples - (has_rates ? 0 : (int64_t)world_random((uint64_t)s.batch_samples));
    char text[64];

    snprintf(text, sizeof(text), " %lld.%09lld", (long long)(SYNC_UNIX_S + samples / RATE_HZ),
             (long long)(samples % RATE_HZ * NS_PER_S / RATE_HZ));
    append(request, text);
    request->phases.load_batch = batch;
}

/* Draws a delay model.  A rate turns the phase by 'turn' quarters in a batch.  xbgpu evaluates it at the centre of the
 * grid's interval, so the phase at the load time is half an interval behind. */
static void draw_phases(struct request *request, unsigned beam)
{
    bool is_timed = n_timed[beam] < MAX_TIMED && world_random(4), has_rates = is_timed && world_random(2);

    request->has_phases = true;
    request->phases.load_batch = -1;
    if (is_timed)
        draw_load_time(request, has_rates);
    n_timed[beam] += is_timed;
    for (unsigned ant = 0; ant < s.n_ants; ant++) {
        int quarter = (int)world_random(4), turn = has_rates ? (int)world_random(4) - 1 : 0;
        double behind = 0.5 * s.grid_batches * turn, batch_s = (double)s.batch_samples / RATE_HZ;
        char text[96];
        snprintf(text, sizeof(text), is_timed ? " 0,0:%.17g,%.17g" : " 0:%.17g", (quarter - behind) * M_PI / 2,
                 turn * M_PI / 2 / batch_s);
        append(request, text);
        request->phases.quarter[ant] = quarter;
        request->phases.turn[ant] = turn;
    }
}

/* Draws a request that changes the beam's steering.  'newest' has the settings before the request, and after it. */
static void draw_steering(struct request *request, unsigned beam, const char *name, struct steering *newest)
{
    static const char *const weights[] = {" -1", " 0", " 1", " 2.0", " 3"};
    unsigned what = (unsigned)world_random(3);

    request->kind = STEERING;
    request->number = beam;
    snprintf(request->line, sizeof(request->line), "beam-%s %s",
             what == 0   ? "weights"
             : what == 1 ? "delays"
                         : "quant-gains",
             name);
    for (unsigned ant = 0; ant < s.n_ants; ant++)
        if (what == 0) {
            newest->weight[ant] = (int)world_random(5) - 1;
            append(request, weights[newest->weight[ant] + 1]);
        }
    if (what == 1)
        draw_phases(request, beam);
    if (what == 2) {
        char text[32];
        newest->shift = (int)world_random(8);
        snprintf(text, sizeof(text), " %.9f", 1.0 / (1 << newest->shift));
        append(request, text);
    }
    request->steering = *newest;
}

static struct gate draw_gate(void)
{
    unsigned from = (unsigned)world_random(GATE_PERIOD);

    return (struct gate){INT64_MIN, from, from + 1 + (unsigned)world_random(GATE_PERIOD - from)};
}

static void draw_gate_change(struct request *request)
{
    request->kind = GATE;
    request->gate = draw_gate();
    snprintf(request->line, sizeof(request->line), "gate g 0 on_from=%u on_until=%u", request->gate.on_from,
             request->gate.on_until);
}

/* Draws a shift of an input in spectra. */
static int draw_input_shift(int most)
{
    return world_random(3) == 0 ? 0 : (int)world_random(2 * (unsigned)most + 1) - most;
}

/* Draws a request that changes the shifts of one or two inputs.  'newest' has the shifts before the request, and after
 * it. */
static void draw_shift(struct request *request, struct shifts *newest)
{
    unsigned first = (unsigned)world_random(2 * s.n_ants), n = 1 + (unsigned)world_random(2);

    request->kind = SHIFT;
    snprintf(request->line, sizeof(request->line), "input-shift");
    for (unsigned i = 0; i < n; i++) {
        unsigned input = (first + i) % (2 * s.n_ants);
        char text[32];
        int shift = draw_input_shift(s.max_shift);
        newest->of[input / 2][input % 2] = shift;
        snprintf(text, sizeof(text), " %u %d", input, shift);
        append(request, text);
    }
    request->shifts = *newest;
}

/* Draws a request that changes the calibration of an input: one gain for all channels, or a gain for each channel. */
static void draw_calibration(struct request *request, struct calibration *newest)
{
    static const char *const gains[3][4] = {
        {" 0", " 0", " 0", " 0"}, {" 1", " 1j", " -1", " -1j"}, {" 2", " 2j", " -2", " -2j"}};
    unsigned input = (unsigned)world_random(2 * s.n_ants), turn = (unsigned)world_random(4);
    unsigned magnitude = (unsigned)world_random(3), quarter = (unsigned)world_random(4);

    request->kind = CALIBRATION;
    snprintf(request->line, sizeof(request->line), "beam-calibration %u", input);
    for (unsigned i = 0; i < (turn ? N_STREAM_CHANS : 1); i++) {
        unsigned chan = turn ? i - s.first_chan : 0; /* of the substream */
        append(request, chan < MAX_CHANS ? gains[magnitude][(quarter + chan * turn) % 4] : " 1");
    }
    newest->of[input / 2][input % 2].magnitude = (int)magnitude;
    newest->of[input / 2][input % 2].quarter = (int)quarter;
    newest->of[input / 2][input % 2].turn = (int)turn;
    request->calibration = *newest;
}

static void draw_wrong(struct request *request)
{
    static const char *const lines[] = {"capture-start nothing",  "capture-stop",           "beam-weights vis 1",
                                        "input-shift 0 17",       "gate no-gate",           "capture-start vis -1",
                                        "sensor-value no-sensor", "beam-quant-gains x nan", "capture-start vis 1.5"};

    snprintf(request->line, sizeof(request->line), "%s", lines[world_random(sizeof(lines) / sizeof(lines[0]))]);
    request->answer = "fail";
}

static void draw_guest(struct request *request)
{
    static const char *const lines[] = {"watchdog",
                                        "help",
                                        "sensor-list",
                                        "sensor-value",
                                        "sensor-value /^rx/",
                                        "gate",
                                        "input-shift",
                                        "version-list",
                                        "sensor-sampling vis.tx.next-timestamp event"};

    if (world_random(6) == 0) {
        snprintf(request->line, sizeof(request->line), "no-such-request");
        request->answer = "invalid";
    } else if (world_random(3) == 0) {
        draw_wrong(request);
    } else {
        snprintf(request->line, sizeof(request->line), "%s", lines[world_random(sizeof(lines) / sizeof(lines[0]))]);
    }
}

static int compare_batches(const void *a, const void *b)
{
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

    return x < y ? -1 : x > y;
}

void requests_draw(const char *const *streams, unsigned n_streams, const char *const *beams, unsigned n_beams)
{
    unsigned due[MAX_REQUESTS / 4], n = (unsigned)run_draw("requests", MAX_REQUESTS / 4);
    struct steering newest[MAX_BEAMS];
    struct shifts newest_shifts = shifts[0];
    struct calibration newest_calibration = {.from_samples = INT64_MIN};

    for (unsigned i = 0; i < 2 * MAX_ANTS; i++)
        newest_calibration.of[i / 2][i % 2].magnitude = 1;
    calibrations[0] = newest_calibration;
    n_calibrations = 1;
    n = s.may_fail ? 0 : n;
    memset(&operator, 0, sizeof(operator));
    memset(&guest, 0, sizeof(guest));
    for (unsigned i = 0; i < n; i++)
        due[i] = (unsigned)world_random(s.n_batches);
    qsort(due, n, sizeof(due[0]), compare_batches);
    for (unsigned beam = 0; beam < MAX_BEAMS; beam++) {
        newest[beam] = (struct steering){.from_samples = INT64_MIN, .weight = {1, 1, 1, 1, 1}};
        steering[beam][0] = newest[beam];
        n_steering[beam] = 1;
        phases[beam][0] = (struct phases){.from_samples = INT64_MIN, .load_batch = -1};
        n_phases[beam] = 1;
        n_timed[beam] = 0;
    }
    for (unsigned i = 0; i < n; i++) {
        struct request *request = add(&operator, due[i]);
        unsigned what = (unsigned)world_random(10), beam = (unsigned)world_random(n_beams + 1);
        if (what == 0)
            draw_wrong(request);
        else if (what == 1 && s.has_gate)
            draw_gate_change(request);
        else if (what >= 8 && s.shifts_change)
            draw_shift(request, &newest_shifts);
        else if (what >= 8 && n_beams > 0)
            draw_calibration(request, &newest_calibration);
        else if (what < 4 || beam == n_beams)
            draw_capture(request, streams, n_streams);
        else
            draw_steering(request, beam, beams[beam], &newest[beam]);
        request = add(&operator, due[i]);
        request->kind = READ_STEADY;
        snprintf(request->line, sizeof(request->line), "sensor-value steady-state-timestamp");
    }
    gates[0] = draw_gate();
    n_gates = 1;
    refusals_draw("beam-weights");
    for (unsigned i = 0, n_guest = (unsigned)run_draw("guest", 20); i < n_guest; i++)
        draw_guest(add(&guest, (unsigned)world_random(s.n_batches)));
}

/* ---- Sending and answers --------------------------------------------------------------------------------------------- */

static void send_request(struct client *client, struct request *request)
{
    char line[450];

    snprintf(line, sizeof(line), "?%.*s[%u]%s", (int)strcspn(request->line, " "), request->line,
             (unsigned)(request - client->requests) + 1, request->line + strcspn(request->line, " "));
    request->sent_ns = world_now_ns();
    client->n_sent++;
    lines_send(client->lines, line);
}

/* Stores the settings that the last change made, which hold from the steady-state timestamp on. */
static void on_steady(const struct request *change, const char *line)
{
    const char *at = strstr(line, "steady-state-timestamp ");
    char status[16];
    long long samples;

    if (!at || sscanf(at, "%*s %15s %lld", status, &samples) != 2)
        world_fail("the sensor's reading is '%s'", line);
    if (change->kind == CALIBRATION) {
        calibrations[n_calibrations] = change->calibration;
        calibrations[n_calibrations++].from_samples = samples;
        world_note("requests: changes of calibration");
    }
    if (change->kind != STEERING)
        return;
    world_note(change->has_phases && change->phases.load_batch >= 0 ? "requests: delay models with a load time"
                                                                    : "requests: changes of beams");
    if (change->has_phases) {
        struct phases *added = &phases[change->number][n_phases[change->number]++];
        *added = change->phases;
        added->from_samples = samples;
        return;
    }
    struct steering *next = &steering[change->number][n_steering[change->number]++];
    *next = change->steering;
    next->from_samples = samples;
}

/* Stores the changed gate.  The reply has the timestamp from which the change holds. */
static void on_gate(const struct request *request, const char *line)
{
    long long samples;

    if (sscanf(line, "%*s ok %lld", &samples) != 1)
        world_fail("'%s' was answered with '%s'", request->line, line);
    gates[n_gates] = request->gate;
    gates[n_gates++].from_samples = samples;
    world_note("requests: changes of gates");
}

/* Stores the changed shifts, in the same way. */
static void on_shift(const struct request *request, const char *line)
{
    long long samples;

    if (sscanf(line, "%*s ok %lld", &samples) != 1 || samples % s.batch_samples != 0)
        world_fail("'%s' was answered with '%s'", request->line, line);
    shifts[n_shifts] = request->shifts;
    shifts[n_shifts++].from_samples = samples;
    world_note("requests: changes of shifts");
}

/* Takes a line "#name[mid] ..." or "!name[mid] result ...". */
static void on_line(void *arg, const char *line)
{
    struct client *client = arg;
    char result[16] = "";
    unsigned mid = 0;

    const char *bracket = strchr(line, '[');
    if (bracket && bracket < line + strcspn(line, " "))
        mid = (unsigned)strtoul(bracket + 1, NULL, 10);
    if (mid == 0 || mid > client->n)
        return; /* an inform that is not a part of an answer */
    struct request *request = &client->requests[mid - 1];
    if (line[0] == '#' && request->kind == READ_STEADY)
        on_steady(request - 1, line);
    if (line[0] != '!')
        return;
    sscanf(line, "%*s %15s", result);
    if (strcmp(result, request->answer) != 0 && !((s.may_fail || is_stopped()) && strcmp(result, "fail") == 0))
        world_fail("'%s' was answered with '%s' instead of %s", request->line, line, request->answer);
    if (request->kind == GATE && strcmp(result, "ok") == 0)
        on_gate(request, line);
    if (request->kind == SHIFT && strcmp(result, "ok") == 0)
        on_shift(request, line);
    request->n_answers++;
    if (strcmp(result, request->answer) != 0)
        return; /* the daemon is ending, and has not executed the request */
    request->answered_ns = world_now_ns();
    client->n_answered++;
    world_note(request->answer[0] == 'o' ? "requests: ok" : "requests: refused");
    if (client == &operator&& request->kind != READ_STEADY)
        send_request(client, request + 1);
}

void requests_connect(void)
{
    operator.lines = lines_connect(on_line, &operator);
    guest.lines = lines_connect(on_line, &guest);
    refusals_connect();
}

void requests_send(unsigned batch)
{
    struct request *next = &operator.requests[operator.n_sent];

    if (operator.n_sent<operator.n && operator.n_sent == operator.n_answered && next->due_batch <= batch)
        send_request(&operator, next);
    for (unsigned i = 0; i < guest.n; i++)
        if (guest.requests[i].due_batch == batch)
            send_request(&guest, &guest.requests[i]);
}

static void check_client(const struct client *client)
{
    for (unsigned i = 0; i < client->n; i++) {
        const struct request *request = &client->requests[i];
        unsigned n_wanted = request->sent_ns > 0;
        if (request->n_answers != n_wanted && !((s.has_failed || is_stopped()) && request->n_answers < n_wanted))
            world_fail("'%s' has %u answers", request->line, request->n_answers);
    }
}

void requests_check(void)
{
    check_client(&operator);
    check_client(&guest);
}

bool requests_are_known(void)
{
    return operator.n_sent == operator.n_answered && operator.n_sent % 2 == 0;
}

void requests_end(void)
{
    lines_end();
}

/* ---- Effects --------------------------------------------------------------------------------------------------------- */

enum presence requests_sends(unsigned stream, int64_t begin_samples, int64_t from_ns, int64_t to_ns)
{
    bool may = true, may_not = false; /* a stream sends from the start */

    for (unsigned i = 0; i < operator.n; i++) {
        const struct request *request = &operator.requests[i];
        if (request->kind != CAPTURE || request->number != stream || request->sent_ns == 0 || request->sent_ns > to_ns)
            continue;
        bool sends = request->on && begin_samples >= request->from_samples;
        bool is_certain = request->answered_ns <= from_ns;
        may = sends || (may && !is_certain);
        may_not = !sends || (may_not && !is_certain);
    }
    return may && may_not ? UNSURE : may ? PRESENT : ABSENT;
}

bool requests_gate_takes(int64_t samples)
{
    unsigned i = n_gates - 1;

    while (gates[i].from_samples > samples)
        i--;
    return samples % GATE_PERIOD >= gates[i].on_from && samples % GATE_PERIOD < gates[i].on_until;
}

void requests_write_gate(FILE *file)
{
    fprintf(file, "gates:\n  - {kind: switch, name: g, period: %d, on_from: %u, on_until: %u}\n", GATE_PERIOD,
            gates[0].on_from, gates[0].on_until);
}

void requests_draw_shifts(void)
{
    bool is_zero = s.shifts_change && world_random(2);

    shifts[0] = (struct shifts){.from_samples = INT64_MIN};
    n_shifts = 1;
    for (unsigned i = 0; i < 2 * s.n_ants && s.max_shift > 0 && !is_zero; i++)
        shifts[0].of[i / 2][i % 2] = draw_input_shift(s.max_shift);
    for (unsigned i = 0; i < 2 * s.n_ants && s.has_vis_shifts; i++)
        s.vis_shifts[i / 2][i % 2] = draw_input_shift((int)s.n_spectra);
    world_note(s.max_shift > 0 ? "inputs may be shifted" : "inputs are not shifted");
    world_note(s.has_vis_shifts ? "visibilities have their own shifts" : "visibilities have the inputs' shifts");
}

void requests_write_shifts(FILE *file)
{
    fprintf(file, ", max_shift: %d, shifts: [", s.shifts_change ? s.max_shift : 0);
    for (unsigned i = 0; i < 2 * s.n_ants; i++)
        fprintf(file, "%s%d", i ? ", " : "", shifts[0].of[i / 2][i % 2]);
    fprintf(file, "]");
}

int requests_shift(unsigned ant, unsigned pol, int64_t batch)
{
    unsigned i = n_shifts - 1;

    while (shifts[i].from_samples > batch * s.batch_samples)
        i--;
    return shifts[i].of[ant][pol];
}

void requests_calibration(unsigned ant, unsigned pol, unsigned chan, int64_t batch, int gain[2])
{
    static const int cosines[] = {1, 0, -1, 0}, sines[] = {0, 1, 0, -1};
    unsigned i = n_calibrations - 1;

    while (calibrations[i].from_samples > batch * s.batch_samples)
        i--;
    int quarter = calibrations[i].of[ant][pol].quarter + (int)chan * calibrations[i].of[ant][pol].turn;
    gain[0] = calibrations[i].of[ant][pol].magnitude * cosines[quarter % 4];
    gain[1] = calibrations[i].of[ant][pol].magnitude * sines[quarter % 4];
}

/* Returns the delay model in effect in a batch.  A model without a load time removes all others.  A model with a load
 * time removes the models that begin then or later. */
static const struct phases *find_phases(unsigned beam, int64_t batch)
{
    const struct phases *models[1 + MAX_TIMED];
    unsigned n = 0;

    for (unsigned i = 0; i < n_phases[beam] && phases[beam][i].from_samples <= batch * s.batch_samples; i++) {
        while (n > 0 && models[n - 1]->load_batch >= phases[beam][i].load_batch)
            n--;
        models[n++] = &phases[beam][i];
    }
    while (models[n - 1]->load_batch > batch)
        n--;
    return models[n - 1];
}

const struct steering *requests_steering(unsigned beam, int64_t batch)
{
    static struct steering result;
    const struct phases *model = find_phases(beam, batch);
    unsigned i = n_steering[beam] - 1;

    while (steering[beam][i].from_samples > batch * s.batch_samples)
        i--;
    result = steering[beam][i];
    for (unsigned ant = 0; ant < s.n_ants; ant++) {
        int64_t n_batches = batch / s.grid_batches * s.grid_batches - model->load_batch;
        result.quarter[ant] = (int)(((model->quarter[ant] + model->turn[ant] * n_batches) % 4 + 4) % 4);
    }
    return &result;
}
