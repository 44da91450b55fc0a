/* judge.c - turns the measurements of a file's streams into findings.
 *
 * A source has at most one finding of each kind.  A source without findings gets a line with its state. */
#include "tools/doctor/streams.h"

#include "common/base/units.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOSS_MAX       0.01 /* fraction of lost heaps; a larger loss is a failure, a smaller loss a warning */
#define WHOLE_SECOND_S 0.1  /* seconds; if an offset is this close to a whole number, the offset counts as whole */

static struct finding *add(struct doctor *doctor, const struct stream_file *stream, enum finding_status status,
                           const char *id, const char *name)
{
    struct finding *f = doctor_add(doctor, status, id, "");

    SAY(f->subject, "%s%s%s", stream->file->name, name[0] ? " " : "", name);
    return f;
}

static bool is_f(const struct stream_file *stream)
{
    return stream->file->kind == DOCTOR_FGPU;
}

static char *format_sender(uint64_t sender, char *text, size_t text_bytes)
{
    struct endpoint endpoint = {.address.s_addr = htonl((uint32_t)(sender >> 16)), .port = (uint16_t)sender};

    return endpoint_format(&endpoint, text, text_bytes);
}

/* Returns the value that most packets have. */
static uint64_t usual(const struct source_values *values)
{
    size_t best = 0;

    for (size_t i = 1; i < values->n; i++)
        if (values->counts[i] > values->counts[best])
            best = i;
    return values->values[best];
}

static double heaps_per_s(const struct stream_file *stream, const struct stream_input *input)
{
    return stream->file->rate_hz / (double)input->shape.heap_samples;
}

/* ---- Silence ----------------------------------------------------------------------------------------------------- */

/* Writes the likely reason of a silence.  If the file of the F-engine was given, adds whether the F-engine's daemon
 * runs on this host. */
static void say_why_silent(const struct doctor *doctor, const struct stream_file *stream, size_t feng_id,
                           struct finding *f)
{
    const struct doctor_file *fgpu;
    char name[DOCTOR_NAME_BYTES];

    doctor_antenna(doctor, stream->file, feng_id, &fgpu, name);
    if (fgpu)
        SAY(f->why, "the fgpu of antenna %s (%s) %s", name, fgpu->name,
            doctor_file_runs(fgpu) ? "runs, but its input may be missing or skipped" : "does not run here");
    else
        SAY(f->why, "its fgpu does not run or receives nothing itself, or the switch does not forward the group");
    if (fgpu && doctor_file_runs(fgpu))
        SAY(f->fix, "journalctl -n 50 -u 'fgpu@*'   # the log of %s; then look at its inputs in this report",
            fgpu->name);
    else
        SAY(f->fix, "systemctl status 'fgpu@*'   # on the host of the fgpu of %s; then cbf-doctor streams there", name);
}

static void add_silent(struct doctor *doctor, const struct stream_file *stream, const struct stream_input *input,
                       const char *name, size_t n)
{
    struct finding *f =
        add(doctor, stream, FINDING_FAIL, input->elsewhere[0] ? "streams.interface" : "streams.silent", name);
    char text[32], address[INET_ADDRSTRLEN];
    const char *interface = stream->interface[0] ? stream->interface : "any";

    endpoint_format(input->endpoint, text, sizeof(text));
    inet_ntop(AF_INET, &input->endpoint->address, address, sizeof(address));
    if (input->elsewhere[0]) {
        SAY(f->found, "%s arrives on %s, but the file names %s", text, input->elsewhere, interface);
        SAY(f->expected, "recv.interface: %s", input->elsewhere);
        SAY(f->why, "packets of a multicast group arrive only at the interface that joined the group");
        SAY(f->fix, "set recv.interface in %s to %s and restart the daemon", stream->file->path, input->elsewhere);
        return;
    }
    if (n > 1)
        SAY(f->found, "nothing arrived in %g s from any of %zu sources (the first: %s on %s)", stream->seconds, n, text,
            interface);
    else
        SAY(f->found, "nothing arrived in %g s from %s on %s", stream->seconds, text, interface);
    SAY(f->expected, "%.4g heaps a second%s", heaps_per_s(stream, input), n > 1 ? " of each" : "");
    if (is_f(stream)) {
        SAY(f->why,
            "its digitiser is off or sends elsewhere, a cable is unplugged, or the switch does not forward the group");
        SAY(f->fix,
            "sudo tcpdump -c 3 -ni %s dst host %s   # if nothing: look at the digitiser, then at the switch's "
            "IGMP querier",
            interface, address);
    } else {
        say_why_silent(doctor, stream, (size_t)(input - stream->inputs), f);
    }
}

static size_t n_silent(const struct stream_file *stream)
{
    size_t n = 0;

    for (size_t i = 0; i < stream->n_inputs; i++)
        n += stream->inputs[i].source.n_packets == 0;
    return n;
}

/* ---- Identities -------------------------------------------------------------------------------------------------- */

/* The last bit of a digitiser id is the polarisation.  Returns true if this bit of the packets' id is the other
 * polarisation. */
static bool is_miswired(const struct stream_input *input)
{
    return input->source.n_packets > 0 && (usual(&input->source.ids) & 1) != input->id;
}

static void judge_wiring(struct doctor *doctor, const struct stream_file *stream, size_t ant)
{
    const struct stream_input *pols = &stream->inputs[ant * N_POLS];
    const char *name = fgpu_config_antenna(&stream->file->fgpu, ant)->name;
    bool wrong[N_POLS] = {is_miswired(&pols[0]), is_miswired(&pols[1])};
    bool both = pols[0].source.n_packets > 0 && pols[1].source.n_packets > 0;
    uint64_t id0 = usual(&pols[0].source.ids), id1 = usual(&pols[1].source.ids);
    struct finding *f;

    if (wrong[0] || wrong[1]) {
        f = add(doctor, stream, FINDING_FAIL, "streams.polarisation", name);
        if (wrong[0] && wrong[1])
            SAY(f->found, "the polarisations are swapped: pol0 receives digitiser id %" PRIu64 ", pol1 %" PRIu64, id0,
                id1);
        else
            SAY(f->found, "pol%d receives packets of polarisation %d: digitiser id %" PRIu64, wrong[1], wrong[0],
                wrong[0] ? id0 : id1);
        SAY(f->expected, "even ids on pol0, odd ids on pol1");
        SAY(f->why, "fgpu refuses all of them (rejected_packets, reason bad_source); otherwise the products xx and yy "
                    "would be swapped");
        if (wrong[0] && wrong[1])
            SAY(f->fix, "swap pol0 and pol1 of %s in %s, or, if the file is right, the fibres at the digitiser", name,
                stream->file->path);
        else
            SAY(f->fix, "correct pol%d of %s in %s, or the address to which the digitiser sends it", wrong[1], name,
                stream->file->path);
    } else if (both && id0 >> 1 != id1 >> 1) {
        f = add(doctor, stream, FINDING_WARN, "streams.polarisation", name);
        SAY(f->found, "pol0 has digitiser id %" PRIu64 ", pol1 digitiser id %" PRIu64, id0, id1);
        SAY(f->expected, "two ids that differ only in the last bit");
        SAY(f->why, "the two polarisations may belong to different antennas");
        SAY(f->fix, "compare pol0 and pol1 of %s in %s with the digitisers' addresses", name, stream->file->path);
    }
}

/* Checks the ids and senders of a source.  Returns true if there is a fault. */
static bool judge_identity(struct doctor *doctor, const struct stream_file *stream, const struct stream_input *input)
{
    const struct source *s = &input->source;
    char one[32], other[32];
    bool wrong = false;
    struct finding *f;

    if (s->ids.n > 1 && is_f(stream)) {
        f = add(doctor, stream, FINDING_FAIL, "streams.sender", input->name);
        SAY(f->found, "two digitisers on one group: ids %" PRIu64 " and %" PRIu64, s->ids.values[0], s->ids.values[1]);
        SAY(f->expected, "one");
        wrong = true;
    } else if (s->senders.n > 1 && s->n_duplicate_bytes > 0) {
        f = add(doctor, stream, FINDING_FAIL, "streams.sender", input->name);
        SAY(f->found, "two senders of the same heaps: %s and %s", format_sender(s->senders.values[0], one, sizeof(one)),
            format_sender(s->senders.values[1], other, sizeof(other)));
        SAY(f->expected, "one");
        wrong = true;
    }
    if (wrong) {
        SAY(f->why, "their heaps differ and count as missing (contested_heaps), or two streams mix");
        SAY(f->fix, "stop one of them: sudo ss -unap '( dport = :%u )'   # on the sender's host",
            input->endpoint->port);
    }
    if (!is_f(stream) && (usual(&s->ids) != input->id || s->ids.n > 1)) {
        uint64_t id = usual(&s->ids) != input->id ? usual(&s->ids) : s->ids.values[s->ids.values[0] == input->id];
        f = add(doctor, stream, FINDING_FAIL, "streams.frequency", input->name);
        SAY(f->found, "its heaps begin with channel %" PRIu64, id);
        SAY(f->expected, "channel %" PRIu64 ", recv.channel_offset", input->id);
        SAY(f->why, "these channels are another X-engine's part of the band, and are refused (reason bad_frequency)");
        SAY(f->fix, "swap recv.sources of the X-engines, or the destinations of the fgpu that sends this; see %s",
            stream->file->path);
        wrong = true;
    }
    return wrong;
}

/* ---- Shapes and times -------------------------------------------------------------------------------------------- */

static bool judge_shape(struct doctor *doctor, const struct stream_file *stream, const struct stream_input *input)
{
    const struct source *s = &input->source;
    struct finding *f;

    if (s->n_wrong_length > 0) {
        f = add(doctor, stream, FINDING_FAIL, "streams.heap_size", input->name);
        SAY(f->found, "%" PRIu64 " of %" PRIu64 " packets belong to heaps of %" PRIu64 " bytes", s->n_wrong_length,
            s->n_packets, s->wrong_length);
        SAY(f->expected, "%" PRIu64 " bytes, by %s", input->shape.heap_bytes,
            is_f(stream) ? "recv.packet_samples and recv.sample_bits"
                         : "recv.channels_per_substream, spectra_per_heap and sample_bits");
        SAY(f->why, "these packets are refused (rejected_packets, reason heap_size)");
        SAY(f->fix, "correct these keys in %s, or the sender", stream->file->path);
        return true;
    }
    if (s->n_bad_timestamps > 0) {
        f = add(doctor, stream, FINDING_FAIL, "streams.timestamp", input->name);
        SAY(f->found, "%" PRIu64 " of %" PRIu64 " packets have timestamps that are not multiples of %lld",
            s->n_bad_timestamps, s->n_packets, (long long)input->shape.heap_samples);
        SAY(f->expected, "multiples of %lld samples, according to %s", (long long)input->shape.heap_samples,
            is_f(stream) ? "recv.packet_samples" : "spectra_per_heap x samples_between_spectra");
        SAY(f->why, "these packets are refused (bad_timestamp)");
        SAY(f->fix, "correct these keys in %s, or the sender", stream->file->path);
        return true;
    }
    if (s->n_jumps > 0) {
        f = add(doctor, stream, FINDING_FAIL, "streams.timestamp", input->name);
        SAY(f->found, "its timestamps jump: %" PRIu64 " of %" PRIu64 " packets are far from the others", s->n_jumps,
            s->n_packets);
        SAY(f->expected, "timestamps that advance with time");
        SAY(f->why, "either these packets or all earlier packets were refused (reason jump)");
        SAY(f->fix, "synchronise the sender again, and check whether two senders use the group of %s", input->name);
        return true;
    }
    if (source_rate_is_wrong(s, &input->shape, stream->file->rate_hz)) {
        f = add(doctor, stream, FINDING_FAIL, "streams.rate", input->name);
        SAY(f->found, "its timestamps advance by %.6g samples a second", source_rate_hz(s, &input->shape));
        SAY(f->expected, "%.9g, time.adc_sample_rate", stream->file->rate_hz);
        SAY(f->why, "all frequencies and times are wrong by this factor");
        SAY(f->fix, "correct adc_sample_rate in %s, or the digitiser's clock", stream->file->path);
        return true;
    }
    return false;
}

static void say_offset(char *text, size_t text_bytes, double offset_s)
{
    double whole = round(offset_s);
    bool whole_seconds = fabs(whole) >= 1 && fabs(offset_s - whole) < WHOLE_SECOND_S;

    snprintf(text, text_bytes, "%.3f s %s%s", fabs(offset_s), offset_s > 0 ? "late" : "early",
             whole_seconds ? " (whole seconds: its synchronisation was at a wrong second)" : "");
}

static bool is_off(const struct stream_file *stream, double late_s)
{
    return late_s > stream->late_max_s || late_s < -stream->early_max_s;
}

static int compare_magnitudes(const void *a, const void *b)
{
    double x = fabs(*(const double *)a), y = fabs(*(const double *)b);

    return (x > y) - (x < y);
}

/* Returns the median lateness of the sources.  The values are sorted by magnitude.  So even if half of the sources have
 * wrong times, the median is the lateness of a source with right times. */
static double common_lateness(const struct stream_file *stream)
{
    double *late = calloc(stream->n_inputs, sizeof(*late)), middle = 0;
    size_t n = 0;

    if (!late)
        abort();
    for (size_t i = 0; i < stream->n_inputs; i++)
        if (stream->inputs[i].source.first_unix_ns != 0)
            late[n++] = stream->inputs[i].source.least_late_s;
    if (n > 0) {
        qsort(late, n, sizeof(*late), compare_magnitudes);
        middle = late[(n - 1) / 2];
    }
    free(late);
    return middle;
}

/* Reports 'late_s', the common lateness of all sources, if it is too large.  The cause is then this host's clock or
 * sync_time.  Returns true if there is a fault. */
static bool judge_clocks(struct doctor *doctor, const struct stream_file *stream, double late_s)
{
    char text[120];

    if (stream->file->time->timebase == CONFIG_TIMEBASE_PACKETS || !is_off(stream, late_s))
        return false;
    struct finding *f = add(doctor, stream, FINDING_FAIL, "streams.clock", "");
    say_offset(text, sizeof(text), late_s);
    SAY(f->found, "according to sync_time and this host's clock, all heaps are %s", text);
    SAY(f->expected, "heaps that arrive between %.3g s before and %.3g s after their last sample's time",
        stream->early_max_s, stream->late_max_s);
    SAY(f->why, "the times of delays and dumps are wrong by the same amount");
    SAY(f->fix, "chronyc tracking   # shows this host's clock; if the clock is right, correct sync_time in %s",
        stream->file->path);
    return true;
}

static bool judge_clock(struct doctor *doctor, const struct stream_file *stream, const struct stream_input *input,
                        double common_s)
{
    const struct source *s = &input->source;
    char text[120];

    if (s->first_unix_ns == 0 || stream->file->time->timebase == CONFIG_TIMEBASE_PACKETS ||
        !is_off(stream, s->least_late_s - common_s))
        return false;
    struct finding *f = add(doctor, stream, FINDING_FAIL, "streams.clock", input->name);
    say_offset(text, sizeof(text), s->least_late_s - common_s);
    SAY(f->found, "its timestamps are %s, compared with the other sources", text);
    SAY(f->expected, "at most %.3g s earlier and %.3g s later than the others", stream->early_max_s,
        stream->late_max_s);
    SAY(f->why, "%s",
        is_f(stream)
            ? "its heaps are refused (too_old, jump), or its antenna's signal is correlated at a wrong time: no fringes"
            : "its heaps are refused (too_old, jump), and its baselines are flagged");
    SAY(f->fix, "%s",
        is_f(stream) ? "synchronise this digitiser again, so that it has the same sync_time as the others"
                     : "look at the delays, the digitisers' times and the load on the status page of its fgpu");
    return true;
}

/* ---- Losses ------------------------------------------------------------------------------------------------------ */

static bool judge_loss(struct doctor *doctor, const struct stream_file *stream, const struct stream_input *input)
{
    uint64_t n_missing = source_missing(&input->source), n_expected = source_expected(&input->source);

    if (n_missing == 0 || stream->n_drops > 0)
        return false;
    bool much = (double)n_missing > LOSS_MAX * (double)n_expected;
    struct finding *f = add(doctor, stream, much ? FINDING_FAIL : FINDING_WARN, "streams.loss", input->name);
    SAY(f->found, "%" PRIu64 " of %" PRIu64 " heaps are missing or incomplete (%.3g %%)", n_missing, n_expected,
        100 * (double)n_missing / (double)n_expected);
    SAY(f->expected, "all");
    SAY(f->why, "the heaps did not reach this host's sockets: they were lost on the way, or were not sent");
    const char *sender =
        is_f(stream) ? "the digitiser and its cable" : "the fgpu's skipped and dropped heaps on its host";
    if (doctor_runs(doctor, TOPIC_LOSS))
        SAY(f->fix, "look at %s, then at the switch's counters of the port to this host", sender);
    else
        SAY(f->fix, "cbf-doctor loss --seconds 30 %s   # shows where this host loses them; then look at %s",
            stream->file->path, sender);
    return true;
}

/* ---- A file ------------------------------------------------------------------------------------------------------ */

static void add_well(struct doctor *doctor, const struct stream_file *stream, const struct stream_input *input)
{
    const struct source *s = &input->source;
    struct finding *f = add(doctor, stream, FINDING_OK, "streams.source", input->name);
    double span_s = (double)(s->last_unix_ns - s->first_unix_ns) / (double)NS_PER_S;
    double per_s = span_s > 0 ? (double)(s->newest_heap - s->first_heap) / span_s : 0;
    char from[32], id[48] = "";

    if (is_f(stream))
        snprintf(id, sizeof(id), ", id %" PRIu64, usual(&s->ids));
    double first_s = (double)(s->first_unix_ns - stream->start_unix_ns) / (double)NS_PER_S;
    SAY(f->found,
        "%.4g of %.4g heaps/s, packets of %zu bytes%s, from %s, %.0f ms late, %" PRIu64
        " packets reordered, first packet after %.2f s",
        per_s, heaps_per_s(stream, input), s->payload_bytes, id,
        format_sender(s->senders.values[0], from, sizeof(from)), 1000 * s->least_late_s, s->n_reordered,
        first_s > 0 ? first_s : 0);
}

static void judge_strangers(struct doctor *doctor, const struct stream_file *stream)
{
    char from[INET_ADDRSTRLEN];
    struct finding *f;

    if (stream->n_unknown > 0) {
        f = add(doctor, stream, FINDING_FAIL, "streams.unknown", "");
        SAY(f->found, "%" PRIu64 " packets of feng_id %" PRIu64 ", from %s", stream->n_unknown, stream->unknown_id,
            inet_ntop(AF_INET, &stream->unknown_from.sin_addr, from, sizeof(from)));
        SAY(f->expected, "feng_id below %zu, recv.antennas", stream->n_inputs);
        SAY(f->why, "these packets are refused (reason bad_source), but take room in the socket buffer");
        SAY(f->fix, "raise recv.antennas in %s, or give that antenna another feng_id or group", stream->file->path);
    }
    if (stream->n_foreign > 0) {
        f = add(doctor, stream, FINDING_WARN, "streams.unknown", "");
        SAY(f->found, "%" PRIu64 " packets are not SPEAD-64-48, from %s", stream->n_foreign,
            inet_ntop(AF_INET, &stream->foreign_from.sin_addr, from, sizeof(from)));
        SAY(f->expected, "none");
        SAY(f->why, "another program sends to the same group and port; its packets fill the socket buffer");
        SAY(f->fix, "sudo ss -unap   # on %s: shows which program sends there", from);
    }
    if (stream->n_itemless > 0) {
        f = add(doctor, stream, FINDING_WARN, "streams.unknown", "");
        SAY(f->found, "%" PRIu64 " packets lack items of this stream", stream->n_itemless);
        SAY(f->expected, is_f(stream) ? "a timestamp, a digitiser id and a status, as immediates"
                                      : "a timestamp, a feng_id and a frequency, as immediates");
        SAY(f->why, "these packets are refused; they may belong to another stream");
        SAY(f->fix, "compare the groups of %s with the sender's", stream->file->path);
    }
    if (stream->n_drops > 0) {
        f = add(doctor, stream, FINDING_SKIPPED, "streams.loss", "");
        SAY(f->found,
            "cbf-doctor itself lost %" PRIu64
            " packet%s: the losses of the daemons cannot be distinguished from its own%s",
            stream->n_drops, plural(stream->n_drops), doctor_runs(doctor, TOPIC_LOSS) ? "" : ": see cbf-doctor loss");
    }
}

void doctor_judge(struct doctor *doctor, const struct stream_file *stream)
{
    size_t silent = n_silent(stream);
    double common_s = common_lateness(stream);

    judge_strangers(doctor, stream);
    if (silent == stream->n_inputs && silent > 1) {
        add_silent(doctor, stream, &stream->inputs[0], "", silent);
        return;
    }
    if (!judge_clocks(doctor, stream, common_s))
        common_s = 0;
    for (size_t i = 0; i < stream->n_inputs; i++) {
        const struct stream_input *input = &stream->inputs[i];
        if (is_f(stream) && i % N_POLS == 0)
            judge_wiring(doctor, stream, i / N_POLS);
        if (input->source.n_packets == 0) {
            add_silent(doctor, stream, input, input->name, 1);
            continue;
        }
        bool wrong = judge_identity(doctor, stream, input);
        wrong |= judge_shape(doctor, stream, input) || judge_clock(doctor, stream, input, common_s);
        wrong |= judge_loss(doctor, stream, input);
        if (!wrong && !(is_f(stream) && is_miswired(input)))
            add_well(doctor, stream, input);
    }
}
