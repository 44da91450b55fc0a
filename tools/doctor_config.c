/* doctor_config.c - F-engines against X-engines, from their files alone, wherever they run.
 *
 * An X-engine belongs to the output of an F-engine that sends to one of its sources. */
#include "common/units.h"
#include "fgpu/layout.h"
#include "tools/doctor.h"

#include <arpa/inet.h>
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

/* A disagreement of two files. */
static struct finding *disagree(struct doctor *doctor, const char *id, const struct doctor_file *x,
                                const struct doctor_file *f)
{
    struct finding *finding = report_add(&doctor->report, FINDING_FAIL, id, "");

    SAY(finding->subject, "%s, %s", f->name, x->name);
    return finding;
}

struct pair {
    const struct doctor_file *f, *x;
    const struct fgpu_config_output *output;
    size_t substream;
    size_t n_bad;
};

/* One number that both files have to have. */
static void compare(struct doctor *doctor, struct pair *pair, const char *f_key, int64_t f_value, const char *x_key,
                    int64_t x_value, const char *why)
{
    if (f_value == x_value)
        return;
    struct finding *f = disagree(doctor, "config.f-x", pair->x, pair->f);
    SAY(f->found, "%s is %lld, and by %s it is %lld", x_key, (long long)x_value, f_key, (long long)f_value);
    SAY(f->expected, "%s: %lld", x_key, (long long)f_value);
    SAY(f->why, "%s", why);
    SAY(f->fix, "change %s in %s to %lld, or what it follows from in %s", x_key, pair->x->path, (long long)f_value,
        pair->f->path);
    pair->n_bad++;
}

/* ---- One output and one X-engine --------------------------------------------------------------------------------- */

static void check_shape(struct doctor *doctor, struct pair *pair)
{
    const struct fgpu_config_output *out = pair->output;
    const struct xbgpu_config_recv *recv = &pair->x->xbgpu.recv;
    int64_t per_substream = out->n_chan / (int64_t)out->destinations.n;
    static const char refused[] = "every heap is refused (rejected_packets, reason heap_size)";

    compare(doctor, pair, "outputs[].channels", out->n_chan, "recv.channels", recv->n_chan,
            "the recorder gets channels with the wrong frequencies");
    compare(doctor, pair, "channels / destinations", per_substream, "recv.channels_per_substream",
            recv->n_chan_substream, refused);
    compare(doctor, pair, "the place among destinations", (int64_t)pair->substream * per_substream,
            "recv.channel_offset", recv->chan_offset,
            "every heap is refused: its frequency is not this engine's (reason bad_frequency)");
    compare(doctor, pair, "outputs[].spectra_per_heap", out->spectra_per_heap, "recv.spectra_per_heap",
            recv->spectra_per_heap, refused);
    compare(doctor, pair, "outputs[].sample_bits", out->sample_bits, "recv.sample_bits", recv->sample_bits, refused);
    compare(doctor, pair, "2 x channels x decimation", fgpu_batch_samples(out) / out->spectra_per_heap,
            "recv.samples_between_spectra", recv->samples_between_spectra,
            "every heap has a bad timestamp, or dumps have the wrong length");
    compare(doctor, pair, "the 4 bits that fgpu sends, two's complement (0)", XBGPU_TWOS_COMPLEMENT,
            "recv.sample_encoding", recv->sample_bits == 4 ? recv->sample_encoding : XBGPU_TWOS_COMPLEMENT,
            "all voltages are read wrongly");
}

static void check_antennas(struct doctor *doctor, struct pair *pair)
{
    const struct fgpu_config *fgpu = &pair->f->fgpu;
    int64_t n_ants = pair->x->xbgpu.recv.n_ants;

    for (size_t a = 0; a < fgpu->antennas.n; a++) {
        const struct fgpu_config_antenna *ant = fgpu_config_antenna(fgpu, a);
        if (ant->feng_id < n_ants)
            continue;
        struct finding *f = disagree(doctor, "config.antennas", pair->x, pair->f);
        SAY(f->found, "antenna %s has the feng_id %lld, but recv.antennas is %lld", ant->name, (long long)ant->feng_id,
            (long long)n_ants);
        SAY(f->expected, "feng_id from 0 to %lld", (long long)n_ants - 1);
        SAY(f->why, "all of this antenna's heaps are refused (reason bad_source)");
        SAY(f->fix, "set recv.antennas in %s to %lld or more", pair->x->path, (long long)ant->feng_id + 1);
        pair->n_bad++;
    }
    if (config_given(pair->f->config, &fgpu->send.array_size) && fgpu->send.array_size != n_ants) {
        struct finding *f = disagree(doctor, "config.antennas", pair->x, pair->f);
        SAY(f->found, "send.array_size is %lld, but recv.antennas is %lld", (long long)fgpu->send.array_size,
            (long long)n_ants);
        SAY(f->expected, "the same number in all files");
        SAY(f->why, fgpu->send.array_size < n_ants ? "heap counts of different antennas may be equal"
                                                   : "the array has antennas that are not correlated");
        f->status = FINDING_WARN;
        SAY(f->fix, "set send.array_size in %s to %lld", pair->f->path, (long long)n_ants);
    }
}

static void check_times(struct doctor *doctor, const struct doctor_file *a, const struct doctor_file *b)
{
    double difference = decimal_to_double(a->time->sync_time_s) - decimal_to_double(b->time->sync_time_s);

    if (!same_decimal(a->time->sync_time_s, b->time->sync_time_s)) {
        struct finding *f = disagree(doctor, "config.time", b, a);
        SAY(f->found, "sync_time differs by %.9g s", difference);
        SAY(f->expected, "the time at which the digitisers were synchronised, in all files");
        SAY(f->why, "delays are applied, and dumps are labelled, at times that differ by as much");
        SAY(f->fix, "grep -n sync_time %s %s   # and make them equal", a->path, b->path);
    }
    if (!same_decimal(a->time->adc_sample_rate_hz, b->time->adc_sample_rate_hz)) {
        struct finding *f = disagree(doctor, "config.time", b, a);
        SAY(f->found, "adc_sample_rate is %.12g Hz and %.12g Hz", a->rate_hz, b->rate_hz);
        SAY(f->expected, "one rate in all files");
        SAY(f->why, "times, frequencies and integrations are wrong in one of them");
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
    bool from_lo = is_loopback(send->interface), to_lo = is_loopback(pair->x->xbgpu.recv.interface);
    bool on_network = !send->pcap_file && !pair->x->xbgpu.recv.pcap_file;

    if (on_network && from_lo != to_lo && send->interface && pair->x->xbgpu.recv.interface) {
        struct finding *f = disagree(doctor, "config.interfaces", pair->x, pair->f);
        SAY(f->found, "sent on %s, received on %s", send->interface, pair->x->xbgpu.recv.interface);
        SAY(f->expected, "lo on both sides, or on neither");
        SAY(f->why, "what is sent on lo never leaves the host, and what comes from the network is not on lo");
        SAY(f->fix, "grep -n interface %s %s   # and name the network's interface", pair->f->path, pair->x->path);
        pair->n_bad++;
    }
}

/* ---- Who belongs together ---------------------------------------------------------------------------------------- */

/* The place of one of an X-engine's sources among the destinations; -1 if there is none. */
static int find_substream(const struct fgpu_config_output *output, const struct doctor_file *x)
{
    for (size_t d = 0; d < output->destinations.n; d++)
        for (size_t s = 0; s < x->recvs.n; s++)
            if (endpoint_equal(&output->destinations.items[d], &x->recvs.items[s]))
                return (int)d;
    return -1;
}

/* Returns how many outputs of F-engines come to this X-engine. */
static size_t check_x(struct doctor *doctor, const struct doctor_file *x)
{
    const struct xbgpu_config_recv *recv = &x->xbgpu.recv;
    size_t n = 0, n_bad = 0;

    for (size_t i = 0; i < doctor->n_files; i++) {
        const struct doctor_file *f = &doctor->files[i];
        if (!f->ok || f->kind != DOCTOR_FGPU)
            continue;
        for (size_t o = 0; o < f->fgpu.outputs.n; o++) {
            struct pair pair = {f, x, fgpu_config_output(&f->fgpu, o), 0, 0};
            int substream = find_substream(pair.output, x);
            if (substream < 0)
                continue;
            n++;
            pair.substream = (size_t)substream;
            check_shape(doctor, &pair);
            check_antennas(doctor, &pair);
            check_network(doctor, &pair);
            n_bad += pair.n_bad > 0;
        }
    }
    if (n > 0 && n_bad == 0)
        SAY(report_add(&doctor->report, FINDING_OK, "config.f-x", x->name)->found,
            "outputs of %zu fgpu fit: channels %lld to %lld of %lld", n, (long long)recv->chan_offset,
            (long long)(recv->chan_offset + recv->n_chan_substream) - 1, (long long)recv->n_chan);
    return n;
}

static void add_unmatched(struct doctor *doctor, const struct doctor_file *x)
{
    struct finding *f = report_add(&doctor->report, FINDING_FAIL, "config.f-x", x->name);
    char mine[32], theirs[32] = "none";

    for (size_t i = 0; i < doctor->n_files; i++)
        if (doctor->files[i].ok && doctor->files[i].kind == DOCTOR_FGPU)
            endpoint_format(&fgpu_config_output(&doctor->files[i].fgpu, 0)->destinations.items[0], theirs,
                            sizeof(theirs));
    SAY(f->found, "no F-engine's output goes to %s, where it listens; they begin at %s",
        endpoint_format(&x->recvs.items[0], mine, sizeof(mine)), theirs);
    SAY(f->expected, "recv.sources that is one of outputs[].destinations");
    SAY(f->why, "this X-engine receives nothing");
    SAY(f->fix, "change recv.sources in %s", x->path);
}

/* ---- A file by itself -------------------------------------------------------------------------------------------- */

static void check_ttl(struct doctor *doctor, const struct doctor_file *file)
{
    const struct config_send *send = file->send;

    if (send->pcap_file || send->ttl > 0 || !send->interface || is_loopback(send->interface))
        return;
    struct finding *f = report_add(&doctor->report, FINDING_WARN, "config.ttl", file->name);
    SAY(f->found, "send.ttl is 0");
    SAY(f->expected, "1 on one network, more through routers");
    SAY(f->why, "packets with a time to live of 0 do not leave the host");
    SAY(f->fix, "set send.ttl in %s to 4", file->path);
}

/* Whether somebody can tell the daemon to send. */
static bool has_control(const struct doctor_file *file)
{
    for (size_t l = 0; l < file->n_listeners; l++)
        if (strncmp(file->listeners[l].key, "http.", 5) != 0 && file->listeners[l].list->n > 0)
            return true;
    return false;
}

/* A daemon that correlates and sends nothing: a surprise that costs an evening. */
static void check_enabled(struct doctor *doctor, const struct doctor_file *file)
{
    for (size_t o = 0; file->kind == DOCTOR_XBGPU && o < file->xbgpu.outputs.n; o++) {
        const struct xbgpu_config_output *output = xbgpu_config_output(&file->xbgpu, o);
        if (output->send_enabled)
            continue;
        struct finding *f = report_add(&doctor->report, has_control(file) ? FINDING_OK : FINDING_WARN,
                                       "config.send_enabled", file->name);
        SAY(f->found, "output %s is not sent: its send_enabled is false%s", output->name,
            config_given(file->config, &output->send_enabled) ? "" : ", the default");
        SAY(f->expected, "true, unless a control system enables it");
        SAY(f->why, "the daemon runs and correlates, and nothing comes out");
        SAY(f->fix, "set send_enabled of %s in %s to true", output->name, file->path);
    }
}

/* ---- All files --------------------------------------------------------------------------------------------------- */

/* Antennas of one array have numbers of their own, and those of an X-engine are all served by somebody. */
static void check_array(struct doctor *doctor)
{
    size_t n_served = 0;
    int64_t n_ants = 0;

    for (size_t i = 0; i < doctor->n_files; i++) {
        const struct doctor_file *file = &doctor->files[i];
        if (file->ok && file->kind == DOCTOR_XBGPU && file->xbgpu.recv.n_ants > n_ants)
            n_ants = file->xbgpu.recv.n_ants;
        if (!file->ok || file->kind != DOCTOR_FGPU)
            continue;
        n_served += file->fgpu.antennas.n;
        for (size_t a = 0; a < file->fgpu.antennas.n; a++)
            for (size_t j = 0; j < i; j++)
                for (size_t b = 0; doctor->files[j].ok && doctor->files[j].kind == DOCTOR_FGPU &&
                                   b < doctor->files[j].fgpu.antennas.n;
                     b++) {
                    const struct fgpu_config_antenna *mine = fgpu_config_antenna(&file->fgpu, a);
                    const struct fgpu_config_antenna *other = fgpu_config_antenna(&doctor->files[j].fgpu, b);
                    if (mine->feng_id != other->feng_id)
                        continue;
                    struct finding *f = disagree(doctor, "config.antennas", file, &doctor->files[j]);
                    SAY(f->found, "feng_id %lld is that of %s and of %s", (long long)mine->feng_id, other->name,
                        mine->name);
                    SAY(f->expected, "a feng_id for each antenna");
                    SAY(f->why, "two antennas send as one: their heaps contest each other, and count as missing");
                    SAY(f->fix, "change feng_id of %s in %s", mine->name, file->path);
                }
    }
    if (n_ants > 0 && n_served > 0 && (int64_t)n_served < n_ants)
        SAY(report_add(&doctor->report, FINDING_SKIPPED, "config.antennas", "")->found,
            "%zu of the array's %lld antennas are in these files: give the others' files, too", n_served,
            (long long)n_ants);
}

/* Two outputs to one group arrive as one stream that fits neither. */
static void check_destinations(struct doctor *doctor)
{
    for (size_t i = 0; i < doctor->n_files; i++) {
        const struct doctor_file *file = &doctor->files[i];
        if (!file->ok || file->kind != DOCTOR_FGPU)
            continue;
        for (size_t o = 0; o < file->fgpu.outputs.n; o++)
            for (size_t p = 0; p < o; p++) {
                const struct fgpu_config_output *a = fgpu_config_output(&file->fgpu, o);
                const struct fgpu_config_output *b = fgpu_config_output(&file->fgpu, p);
                for (size_t d = 0; d < a->destinations.n; d++)
                    for (size_t e = 0; e < b->destinations.n; e++) {
                        char text[32];
                        if (!endpoint_equal(&a->destinations.items[d], &b->destinations.items[e]))
                            continue;
                        struct finding *f =
                            report_add(&doctor->report, FINDING_FAIL, "config.destinations", file->name);
                        SAY(f->found, "outputs %s and %s both send to %s", b->name, a->name,
                            endpoint_format(&a->destinations.items[d], text, sizeof(text)));
                        SAY(f->expected, "destinations of its own for each output");
                        SAY(f->why, "an X-engine gets heaps of both and refuses, or mixes, them");
                        SAY(f->fix, "change destinations of %s in %s", a->name, file->path);
                    }
            }
    }
}

void doctor_check_config(struct doctor *doctor)
{
    const struct doctor_file *first = NULL;
    size_t n_f = 0, n_x = 0;

    for (size_t i = 0; i < doctor->n_files; i++) {
        const struct doctor_file *file = &doctor->files[i];
        if (!file->ok)
            continue;
        n_f += file->kind == DOCTOR_FGPU;
        n_x += file->kind == DOCTOR_XBGPU;
        check_ttl(doctor, file);
        check_enabled(doctor, file);
        if (first)
            check_times(doctor, first, file);
        first = first ? first : file;
    }
    for (size_t i = 0; i < doctor->n_files; i++)
        if (doctor->files[i].ok && doctor->files[i].kind == DOCTOR_XBGPU && n_f > 0 &&
            check_x(doctor, &doctor->files[i]) == 0)
            add_unmatched(doctor, &doctor->files[i]);
    check_array(doctor);
    check_destinations(doctor);
    if (n_f == 0 || n_x == 0)
        SAY(report_add(&doctor->report, FINDING_SKIPPED, "config.f-x", "")->found,
            "F- and X-engines are compared where files of both are given");
}
