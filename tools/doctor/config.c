/* config.c - compares F-engines' files with X-engines' files.  The engines may run on any host.
 *
 * An F-engine's output and an X-engine form a pair if one of the output's destinations is among the X-engine's
 * sources. */
#include "fgpu/config/layout.h"
#include "tools/doctor/doctor.h"

#include <stdlib.h>
#include <string.h>

#define DECIMALS 18

/* ---- Helpers ----------------------------------------------------------------------------------------------------- */

static __int128 to_int(struct decimal decimal)
{
    __int128 value = decimal.mantissa;

    for (int i = decimal.n_decimals; i < DECIMALS; i++)
        value *= 10;
    return value;
}

static bool same_decimal(struct decimal a, struct decimal b)
{
    return to_int(a) == to_int(b);
}

/* Adds a finding about two files that disagree. */
static struct finding *disagree(struct doctor *doctor, const char *id, const struct doctor_file *x,
                                const struct doctor_file *f)
{
    struct finding *finding = doctor_add(doctor, FINDING_FAIL, id, "");

    SAY(finding->subject, "%s, %s", f->name, x->name);
    return finding;
}

/* Keys of an X-engine's file.  The outputs of the F-engines determine the values of these keys. */
enum shape_key {
    SHAPE_CHANNELS,
    SHAPE_SUBSTREAM,
    SHAPE_PLACE,
    SHAPE_HEAP,
    SHAPE_BITS,
    SHAPE_STEP,
    SHAPE_ENCODING,
    N_SHAPE_KEYS
};

static const struct {
    const char *f_key, *x_key, *why;
    bool of_channels; /* true: the value depends on the number of channels */
} shape_keys[N_SHAPE_KEYS] = {
    [SHAPE_CHANNELS] = {"outputs[].channels", "recv.channels", "the recorder gets channels with the wrong frequencies",
                        false},
    [SHAPE_SUBSTREAM] = {"channels / destinations", "recv.channels_per_substream",
                         "every heap is refused (rejected_packets, reason heap_size)", true},
    [SHAPE_PLACE] = {"the position of the address in the list of destinations", "recv.channel_offset",
                     "every heap is refused, because its channels belong to another X-engine (reason bad_frequency)",
                     true},
    [SHAPE_HEAP] = {"outputs[].spectra_per_heap", "recv.spectra_per_heap",
                    "every heap is refused (rejected_packets, reason heap_size)", false},
    [SHAPE_BITS] = {"outputs[].sample_bits", "recv.sample_bits",
                    "every heap is refused (rejected_packets, reason heap_size)", false},
    [SHAPE_STEP] = {"2 x channels x decimation", "recv.samples_between_spectra",
                    "every heap has a bad timestamp, or dumps have the wrong length", true},
    [SHAPE_ENCODING] = {"fgpu's encoding of 4-bit samples, two's complement (0),", "recv.sample_encoding",
                        "all voltages are decoded wrongly", false},
};

struct pair {
    const struct doctor_file *f, *x;
    const struct fgpu_config_output *output;
    int64_t f_values[N_SHAPE_KEYS], x_values[N_SHAPE_KEYS];
    size_t n_bad;
};

/* ---- One X-engine and the outputs that it receives --------------------------------------------------------------- */

static void fill_shape(struct pair *pair, size_t substream)
{
    const struct fgpu_config_output *out = pair->output;
    const struct xbgpu_config_recv *recv = &pair->x->xbgpu.recv;
    int64_t per_substream = out->n_chan / (int64_t)out->destinations.n;
    const int64_t f[N_SHAPE_KEYS] = {
        [SHAPE_CHANNELS] = out->n_chan,
        [SHAPE_SUBSTREAM] = per_substream,
        [SHAPE_PLACE] = (int64_t)substream * per_substream,
        [SHAPE_HEAP] = out->spectra_per_heap,
        [SHAPE_BITS] = out->sample_bits,
        [SHAPE_STEP] = fgpu_batch_samples(out) / out->spectra_per_heap,
        [SHAPE_ENCODING] = XBGPU_TWOS_COMPLEMENT,
    };
    const int64_t x[N_SHAPE_KEYS] = {
        [SHAPE_CHANNELS] = recv->n_chan,
        [SHAPE_SUBSTREAM] = recv->n_chan_substream,
        [SHAPE_PLACE] = recv->chan_offset,
        [SHAPE_HEAP] = recv->spectra_per_heap,
        [SHAPE_BITS] = recv->sample_bits,
        [SHAPE_STEP] = recv->samples_between_spectra,
        [SHAPE_ENCODING] = recv->sample_bits == 4 ? (int64_t)recv->sample_encoding : XBGPU_TWOS_COMPLEMENT,
    };

    memcpy(pair->f_values, f, sizeof(f));
    memcpy(pair->x_values, x, sizeof(x));
}

/* Compares value 'k' in the two files of a pair, and reports a difference. */
static void compare(struct doctor *doctor, struct pair *pair, size_t k)
{
    long long f_value = pair->f_values[k], x_value = pair->x_values[k];
    const char *x_key = shape_keys[k].x_key;

    if (f_value == x_value)
        return;
    struct finding *f = disagree(doctor, "config.f-x", pair->x, pair->f);
    SAY(f->found, "%s is %lld, but %s gives %lld", x_key, x_value, shape_keys[k].f_key, f_value);
    SAY(f->expected, "%s: %lld", x_key, f_value);
    SAY(f->why, "%s", shape_keys[k].why);
    SAY(f->fix, "change %s in %s to %lld, or change the keys in %s that give that value", x_key, pair->x->path, f_value,
        pair->f->path);
    pair->n_bad++;
}

/* Returns the index of the first pair whose value 'k' differs from value 'k' of pair 0.  Returns 0 if all values are
 * equal. */
static size_t find_other(const struct pair *pairs, size_t n, size_t k)
{
    size_t p = 1;

    while (p < n && pairs[p].f_values[k] == pairs[0].f_values[k])
        p++;
    return p < n ? p : 0;
}

/* Reports F-engines' outputs that go to the same X-engine but differ in value 'k'.  The X-engine's file cannot be
 * compared before the outputs agree.  If several X-engines receive the same outputs, reports the difference once. */
static void report_differing(struct doctor *doctor, struct pair *pairs, size_t n, size_t k)
{
    const struct pair *other = &pairs[find_other(pairs, n, k)];
    char found[sizeof(((struct finding *)0)->found)];

    for (size_t p = 0; p < n; p++)
        pairs[p].n_bad++;
    SAY(found, "%s is %lld in %s and %lld in %s", shape_keys[k].f_key, (long long)pairs[0].f_values[k],
        pairs[0].f->name, (long long)other->f_values[k], other->f->name);
    for (size_t i = 0; i < doctor->report.n_findings; i++)
        if (strcmp(doctor->report.findings[i]->found, found) == 0)
            return;
    struct finding *f = disagree(doctor, "config.f-x", other->f, pairs[0].f);
    SAY(f->found, "%s", found);
    SAY(f->expected, "the same value for all outputs that one X-engine receives");
    SAY(f->why, "both send to %s, which can receive only one of them", pairs[0].x->name);
    SAY(f->fix, "make %s equal in %s and %s", shape_keys[k].f_key, pairs[0].f->path, other->f->path);
}

static void check_shapes(struct doctor *doctor, struct pair *pairs, size_t n)
{
    bool channels_differ = find_other(pairs, n, SHAPE_CHANNELS) > 0;

    for (size_t k = 0; k < N_SHAPE_KEYS; k++) {
        if (shape_keys[k].of_channels && channels_differ)
            continue;
        if (find_other(pairs, n, k) > 0) {
            report_differing(doctor, pairs, n, k);
            continue;
        }
        for (size_t p = 0; p < n; p++)
            compare(doctor, &pairs[p], k);
    }
}

/* Returns the number of antennas of the array: the largest number that any file requires.  All fixes use this number,
 * so that they do not contradict each other.  Sets *array_size to the largest send.array_size in the files, or to 0 if
 * no file has this key. */
static int64_t largest_array(const struct doctor *doctor, int64_t *array_size)
{
    int64_t n = 0;

    *array_size = 0;
    for (const struct doctor_file *x = NULL; (x = doctor_next(doctor, DOCTOR_XBGPU, x));)
        n = x->xbgpu.recv.n_ants > n ? x->xbgpu.recv.n_ants : n;
    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_FGPU, file));) {
        const struct fgpu_config *fgpu = &file->fgpu;
        if (config_given(file->config, &fgpu->send.array_size) && fgpu->send.array_size > *array_size)
            *array_size = fgpu->send.array_size;
        for (size_t a = 0; a < fgpu->antennas.n; a++)
            if (fgpu_config_antenna(fgpu, a)->feng_id >= n)
                n = fgpu_config_antenna(fgpu, a)->feng_id + 1;
    }
    return *array_size > n ? *array_size : n;
}

/* Checks feng_id and send.array_size against recv.antennas.  If a feng_id is too large, reports only the feng_id, and
 * not send.array_size. */
static void check_antennas(struct doctor *doctor, struct pair *pair)
{
    const struct fgpu_config *fgpu = &pair->f->fgpu;
    int64_t n_ants = pair->x->xbgpu.recv.n_ants, array_size, largest = largest_array(doctor, &array_size);
    size_t n_beyond = 0;

    for (size_t a = 0; a < fgpu->antennas.n; a++) {
        const struct fgpu_config_antenna *ant = fgpu_config_antenna(fgpu, a);
        if (ant->feng_id < n_ants)
            continue;
        struct finding *f = disagree(doctor, "config.antennas", pair->x, pair->f);
        SAY(f->found, "antenna %s has the feng_id %lld, but recv.antennas is %lld", ant->name, (long long)ant->feng_id,
            (long long)n_ants);
        SAY(f->expected, "feng_id from 0 to %lld", (long long)n_ants - 1);
        SAY(f->why, "all of this antenna's heaps are refused (reason bad_source)");
        SAY(f->fix, "set recv.antennas in %s to %lld%s", pair->x->path, (long long)largest,
            largest == array_size ? ", the value of send.array_size" : " or more");
        pair->n_bad++;
        n_beyond++;
    }
    int64_t mine = fgpu->send.array_size;
    if (n_beyond > 0 || !config_given(pair->f->config, &fgpu->send.array_size) || (mine == n_ants && mine == largest))
        return;
    struct finding *f = disagree(doctor, "config.antennas", pair->x, pair->f);
    SAY(f->found, "send.array_size is %lld, but %s is %lld", (long long)mine,
        mine == n_ants ? "the largest number of antennas in these files" : "recv.antennas",
        (long long)(mine == n_ants ? largest : n_ants));
    SAY(f->expected, "the number of the array's antennas in both keys");
    SAY(f->why, mine < largest ? "heaps of different antennas may have the same heap count"
                               : "the array has antennas that are not correlated");
    f->status = FINDING_WARN;
    if (mine < largest)
        SAY(f->fix, "set send.array_size in %s to %lld", pair->f->path, (long long)largest);
    else
        SAY(f->fix, "set recv.antennas in %s to %lld", pair->x->path, (long long)largest);
}

static void check_times(struct doctor *doctor, const struct doctor_file *a, const struct doctor_file *b)
{
    double difference =
        timebase_decimal_to_double(a->time->sync_time_s) - timebase_decimal_to_double(b->time->sync_time_s);

    if (!same_decimal(a->time->sync_time_s, b->time->sync_time_s)) {
        struct finding *f = disagree(doctor, "config.time", b, a);
        SAY(f->found, "sync_time differs by %.9g s", difference);
        SAY(f->expected, "the time at which the digitisers were synchronised, in all files");
        SAY(f->why, "the times of delays and dumps differ by the same amount");
        SAY(f->fix, "grep -n sync_time %s %s   # and make them equal", a->path, b->path);
    }
    if (!same_decimal(a->time->adc_sample_rate_hz, b->time->adc_sample_rate_hz)) {
        struct finding *f = disagree(doctor, "config.time", b, a);
        SAY(f->found, "adc_sample_rate is %.12g Hz and %.12g Hz", a->rate_hz, b->rate_hz);
        SAY(f->expected, "the same rate in all files");
        SAY(f->why, "times, frequencies and integrations are wrong in one of the engines");
        SAY(f->fix, "grep -n adc_sample_rate %s %s   # and make them equal", a->path, b->path);
    }
}

static bool is_loopback(const char *interface)
{
    return interface && (strcmp(interface, "lo") == 0 || strncmp(interface, "127.", 4) == 0);
}

static void check_network(struct doctor *doctor, struct pair *pair)
{
    const struct config_send *send = &pair->f->fgpu.send;
    bool from_lo = is_loopback(send->interface), to_lo = is_loopback(pair->x->xbgpu.recv.base.interface);
    bool on_network = !send->pcap_file && !pair->x->xbgpu.recv.base.pcap_file;

    if (on_network && from_lo != to_lo && send->interface && pair->x->xbgpu.recv.base.interface) {
        struct finding *f = disagree(doctor, "config.interfaces", pair->x, pair->f);
        SAY(f->found, "sent on %s, received on %s", send->interface, pair->x->xbgpu.recv.base.interface);
        SAY(f->expected, "lo in both files, or in neither");
        SAY(f->why, "packets sent on lo never leave the host, and packets of the network do not arrive on lo");
        SAY(f->fix, "grep -n interface %s %s   # and give both the name of an interface to the network", pair->f->path,
            pair->x->path);
        pair->n_bad++;
    }
}

/* ---- Pairs of F- and X-engines ----------------------------------------------------------------------------------- */

/* Returns the index of the output's first destination on which the X-engine receives.  Returns -1 if the X-engine
 * receives on none of the destinations. */
static int find_substream(const struct fgpu_config_output *output, const struct doctor_file *x)
{
    for (size_t d = 0; d < output->destinations.n; d++)
        for (size_t s = 0; s < x->recvs.n; s++)
            if (endpoint_equal(&output->destinations.items[d], &x->recvs.items[s]))
                return (int)d;
    return -1;
}

/* Checks an X-engine.  Returns the number of F-engines' outputs that the X-engine receives. */
static size_t check_x(struct doctor *doctor, const struct doctor_file *x)
{
    const struct xbgpu_config_recv *recv = &x->xbgpu.recv;
    struct pair *pairs = NULL;
    size_t n = 0, n_bad = 0;

    for (const struct doctor_file *f = NULL; (f = doctor_next(doctor, DOCTOR_FGPU, f));)
        for (size_t o = 0; o < f->fgpu.outputs.n; o++) {
            struct pair pair = {.f = f, .x = x, .output = fgpu_config_output(&f->fgpu, o)};
            int substream = find_substream(pair.output, x);
            if (substream < 0)
                continue;
            fill_shape(&pair, (size_t)substream);
            struct pair *more = realloc(pairs, (n + 1) * sizeof(*more));
            if (!more)
                abort();
            pairs = more;
            pairs[n++] = pair;
        }
    check_shapes(doctor, pairs, n);
    for (size_t p = 0; p < n; p++) {
        check_antennas(doctor, &pairs[p]);
        check_network(doctor, &pairs[p]);
        n_bad += pairs[p].n_bad > 0;
    }
    free(pairs);
    if (n > 0 && n_bad == 0)
        doctor_note(doctor, FINDING_OK, "config.f-x", x->name,
                    "the outputs in %zu files of fgpu match this X-engine: channels %lld to %lld of %lld", n,
                    (long long)recv->chan_offset, (long long)(recv->chan_offset + recv->n_chan_substream) - 1,
                    (long long)recv->n_chan);
    return n;
}

static void add_unmatched(struct doctor *doctor, const struct doctor_file *x)
{
    struct finding *f = doctor_add(doctor, FINDING_FAIL, "config.f-x", x->name);
    char mine[32], theirs[32] = "none";

    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_FGPU, file));)
        endpoint_format(&fgpu_config_output(&file->fgpu, 0)->destinations.items[0], theirs, sizeof(theirs));
    SAY(f->found, "no F-engine sends to %s, where this X-engine listens; the F-engines' destinations begin at %s",
        endpoint_format(&x->recvs.items[0], mine, sizeof(mine)), theirs);
    SAY(f->expected, "recv.sources that are among the outputs[].destinations of F-engines");
    SAY(f->why, "this X-engine receives nothing");
    SAY(f->fix, "change recv.sources in %s", x->path);
}

/* ---- A file by itself -------------------------------------------------------------------------------------------- */

static void check_ttl(struct doctor *doctor, const struct doctor_file *file)
{
    const struct config_send *send = file->send;

    if (send->pcap_file || send->ttl > 0 || !send->interface || is_loopback(send->interface))
        return;
    struct finding *f = doctor_add(doctor, FINDING_WARN, "config.ttl", file->name);
    SAY(f->found, "send.ttl is 0");
    SAY(f->expected, "at least 1; more if there are routers between the hosts");
    SAY(f->why, "packets with a time to live of 0 do not leave the host");
    SAY(f->fix, "set send.ttl in %s to 4", file->path);
}

/* Returns true if the daemon has a control port, through which a control system can start transmission. */
static bool has_control(const struct doctor_file *file)
{
    for (size_t l = 0; l < file->n_listeners; l++)
        if (strncmp(file->listeners[l].key, "http.", 5) != 0 && file->listeners[l].list->n > 0)
            return true;
    return false;
}

/* Reports an output whose send_enabled is false.  The daemon computes this output but does not send it.  Without the
 * report, an operator may search for the reason for a long time. */
static void check_sent(struct doctor *doctor, const struct doctor_file *file, const char *name, const bool *enabled)
{
    if (*enabled)
        return;
    struct finding *f =
        doctor_add(doctor, has_control(file) ? FINDING_OK : FINDING_WARN, "config.send_enabled", file->name);
    SAY(f->found, "output %s is not sent: its send_enabled is false%s", name,
        config_given(file->config, enabled) ? "" : ", the default");
    SAY(f->expected, "true, unless a control system enables the output");
    SAY(f->why, "the daemon runs and correlates, but sends nothing");
    SAY(f->fix, "set send_enabled of %s in %s to true", name, file->path);
}

static void check_enabled(struct doctor *doctor, const struct doctor_file *file)
{
    if (file->kind != DOCTOR_XBGPU)
        return;
    for (size_t o = 0; o < file->xbgpu.outputs.n; o++)
        check_sent(doctor, file, xbgpu_config_output(&file->xbgpu, o)->name,
                   &xbgpu_config_output(&file->xbgpu, o)->send_enabled);
    for (size_t b = 0; b < file->xbgpu.beams.n; b++)
        check_sent(doctor, file, xbgpu_config_beam(&file->xbgpu, b)->name,
                   &xbgpu_config_beam(&file->xbgpu, b)->send_enabled);
    for (size_t i = 0; i < file->xbgpu.detected.n; i++)
        check_sent(doctor, file, xbgpu_config_detected(&file->xbgpu, i)->name,
                   &xbgpu_config_detected(&file->xbgpu, i)->send_enabled);
}

/* ---- All files --------------------------------------------------------------------------------------------------- */

/* Checks that no two antennas have the same number, and that files of F-engines cover all antennas of the X-engines. */
static void check_array(struct doctor *doctor)
{
    size_t n_served = 0;
    int64_t n_ants = 0;

    for (const struct doctor_file *x = NULL; (x = doctor_next(doctor, DOCTOR_XBGPU, x));)
        n_ants = x->xbgpu.recv.n_ants > n_ants ? x->xbgpu.recv.n_ants : n_ants;
    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_FGPU, file));) {
        n_served += file->fgpu.antennas.n;
        for (size_t a = 0; a < file->fgpu.antennas.n; a++)
            for (const struct doctor_file *before = NULL; (before = doctor_next(doctor, DOCTOR_FGPU, before)) != file;)
                for (size_t b = 0; b < before->fgpu.antennas.n; b++) {
                    const struct fgpu_config_antenna *mine = fgpu_config_antenna(&file->fgpu, a);
                    const struct fgpu_config_antenna *other = fgpu_config_antenna(&before->fgpu, b);
                    if (mine->feng_id != other->feng_id)
                        continue;
                    struct finding *f = disagree(doctor, "config.antennas", file, before);
                    SAY(f->found, "feng_id %lld belongs to %s and to %s", (long long)mine->feng_id, other->name,
                        mine->name);
                    SAY(f->expected, "a different feng_id for each antenna");
                    SAY(f->why, "X-engines cannot distinguish the two antennas: their heaps differ and count "
                                "as missing");
                    SAY(f->fix, "change feng_id of %s in %s", mine->name, file->path);
                }
    }
    if (n_ants > 0 && n_served > 0 && (int64_t)n_served < n_ants)
        doctor_note(doctor, FINDING_SKIPPED, "config.antennas", "",
                    "these files contain %zu of the array's %lld antennas: also give the files of the other antennas",
                    n_served, (long long)n_ants);
}

/* Reports an endpoint that two streams use by mistake.  An output of file 'from' sends to the endpoint, but the
 * program of file 'to' receives another stream there. */
static void check_crossing(struct doctor *doctor, const struct doctor_file *from, const char *output, const char *key,
                           const struct endpoint_list *destinations, const struct doctor_file *to)
{
    char text[32];

    for (size_t d = 0; d < destinations->n; d++)
        for (size_t r = 0; r < to->recvs.n; r++) {
            if (!endpoint_equal(&destinations->items[d], &to->recvs.items[r]))
                continue;
            struct finding *f = disagree(doctor, "config.destinations", to, from);
            SAY(f->found, "output %s of %s goes to %s, which is %s of %s", output, from->name,
                endpoint_format(&destinations->items[d], text, sizeof(text)), to->recvs.items[r].key, to->name);
            SAY(f->expected, "destinations that no other stream uses");
            SAY(f->why, "%s also receives packets of another stream, and refuses or mixes them", to->name);
            SAY(f->fix, "change %s of %s in %s", key, output, from->path);
            return;
        }
}

/* Checks that F-engines' voltages go to X-engines only.  Checks that visibilities, beams and sums for satellites (gnss)
 * go to no engine. */
static void check_crossings(struct doctor *doctor, const struct doctor_file *from, const struct doctor_file *to)
{
    if (!from->ok || !to->ok || from == to || from->send->pcap_file || to->recv->pcap_file)
        return;
    for (size_t o = 0; from->kind == DOCTOR_FGPU && to->kind == DOCTOR_FGPU && o < from->fgpu.outputs.n; o++) {
        const struct fgpu_config_output *output = fgpu_config_output(&from->fgpu, o);
        check_crossing(doctor, from, output->name, "destinations", &output->destinations, to);
    }
    for (size_t g = 0; from->kind == DOCTOR_FGPU && g < from->fgpu.gnss.n; g++) {
        const struct fgpu_config_gnss *stream = fgpu_config_gnss(&from->fgpu, g);
        check_crossing(doctor, from, stream->name, "destination", &stream->destination, to);
    }
    for (size_t o = 0; from->kind == DOCTOR_XBGPU && o < from->xbgpu.outputs.n; o++) {
        const struct xbgpu_config_output *output = xbgpu_config_output(&from->xbgpu, o);
        check_crossing(doctor, from, output->name, "destination", &output->destination, to);
    }
    for (size_t b = 0; from->kind == DOCTOR_XBGPU && b < from->xbgpu.beams.n; b++) {
        const struct xbgpu_config_beam *beam = xbgpu_config_beam(&from->xbgpu, b);
        check_crossing(doctor, from, beam->name, "destination", &beam->destination, to);
    }
    for (size_t i = 0; from->kind == DOCTOR_XBGPU && i < from->xbgpu.detected.n; i++) {
        const struct xbgpu_config_detected *stream = xbgpu_config_detected(&from->xbgpu, i);
        check_crossing(doctor, from, stream->name, "destination", &stream->destination, to);
    }
}

/* Returns the number of streams of an F-engine.  The streams are the items of 'outputs', then the items of 'gnss'. */
static size_t n_streams(const struct fgpu_config *config)
{
    return config->outputs.n + config->gnss.n;
}

static const char *stream_at(const struct fgpu_config *config, size_t i, const struct endpoint_list **destinations)
{
    if (i >= config->outputs.n) {
        *destinations = &fgpu_config_gnss(config, i - config->outputs.n)->destination;
        return fgpu_config_gnss(config, i - config->outputs.n)->name;
    }
    *destinations = &fgpu_config_output(config, i)->destinations;
    return fgpu_config_output(config, i)->name;
}

/* Reports two streams of a file that have the same destination. */
static void check_pair(struct doctor *doctor, const struct doctor_file *file, size_t first, size_t second)
{
    const struct endpoint_list *a, *b;
    const char *name_a = stream_at(&file->fgpu, first, &a), *name_b = stream_at(&file->fgpu, second, &b);
    char text[32];

    for (size_t d = 0; d < b->n; d++)
        for (size_t e = 0; e < a->n; e++) {
            if (!endpoint_equal(&b->items[d], &a->items[e]))
                continue;
            struct finding *f = doctor_add(doctor, FINDING_FAIL, "config.destinations", file->name);
            SAY(f->found, "outputs %s and %s both send to %s", name_a, name_b,
                endpoint_format(&b->items[d], text, sizeof(text)));
            SAY(f->expected, "different destinations for the two outputs");
            SAY(f->why, "a receiver of one output also gets heaps of the other output, and refuses or mixes them");
            SAY(f->fix, "change destinations of %s in %s", name_b, file->path);
        }
}

/* Checks all pairs of an F-engine's streams.  A receiver cannot separate two streams with the same destination. */
static void check_destinations(struct doctor *doctor)
{
    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_FGPU, file));)
        for (size_t i = 0; i < n_streams(&file->fgpu); i++)
            for (size_t k = 0; k < i; k++)
                check_pair(doctor, file, k, i);
}

void doctor_check_config(struct doctor *doctor)
{
    const struct doctor_file *first = NULL;
    size_t n_f = 0, n_x = 0;

    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_ANY, file));) {
        n_f += file->kind == DOCTOR_FGPU;
        n_x += file->kind == DOCTOR_XBGPU;
        check_ttl(doctor, file);
        check_enabled(doctor, file);
        if (first)
            check_times(doctor, first, file);
        first = first ? first : file;
    }
    for (const struct doctor_file *x = NULL; (x = doctor_next(doctor, DOCTOR_XBGPU, x));)
        if (n_f > 0 && check_x(doctor, x) == 0)
            add_unmatched(doctor, x);
    check_array(doctor);
    check_destinations(doctor);
    for (size_t i = 0; i < doctor->n_files; i++)
        for (size_t j = 0; j < doctor->n_files; j++)
            check_crossings(doctor, &doctor->files[i], &doctor->files[j]);
    if (n_f == 0 || n_x == 0)
        doctor_note(doctor, FINDING_SKIPPED, "config.f-x", "",
                    "nothing was compared: give files of F-engines and of X-engines");
}
