/* vdif.c - decodes VDIF frames for tools/dsim/recording_vdif*.c and fsim/recording.c.  See vdif.h. */
#include "tools/shared/vdif.h"

#include <assert.h>

#define WORD_BITS         32
#define EDV_MARK5B        0xAB /* EDV of a Mark 5B frame in VDIF, whose samples are coded as sign and magnitude */
#define MAX_LOG2_CHANNELS 24   /* log2 of the number of channels that the longest frame can contain */

static uint32_t load_word(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Returns 'n' bits of 'word'; the lowest of them is bit 'first'. */
static uint32_t bits_of(uint32_t word, int first, int n)
{
    return word >> first & ((UINT32_C(1) << n) - 1);
}

struct vdif_header vdif_parse(const uint8_t bytes[VDIF_HEADER_BYTES])
{
    uint32_t words[5];

    for (int i = 0; i < 5; i++)
        words[i] = load_word(bytes + 4 * i);
    uint32_t log2_channels = bits_of(words[2], 24, 5);
    bool is_legacy = bits_of(words[0], 30, 1);

    return (struct vdif_header){
        .is_invalid = bits_of(words[0], 31, 1),
        .is_legacy = is_legacy,
        .seconds = bits_of(words[0], 0, 30),
        .epoch = bits_of(words[1], 24, 6),
        .frame = bits_of(words[1], 0, 24),
        .n_channels = log2_channels <= MAX_LOG2_CHANNELS ? UINT32_C(1) << log2_channels : UINT32_MAX,
        .header_bytes = is_legacy ? 16 : 32,
        .frame_bytes = (size_t)bits_of(words[2], 0, 24) * 8,
        .is_complex = bits_of(words[3], 31, 1),
        .bits = (int)bits_of(words[3], 26, 5) + 1,
        .thread = bits_of(words[3], 16, 10),
        .station = bits_of(words[3], 0, 16),
        .edv = is_legacy ? 0 : bits_of(words[4], 24, 8),
    };
}

static uint64_t payload_words(const struct vdif_header *header)
{
    return (header->frame_bytes - header->header_bytes) / (WORD_BITS / 8);
}

static uint32_t samples_per_word(const struct vdif_header *header)
{
    return WORD_BITS / (uint32_t)header->bits;
}

const char *vdif_unplayable(const struct vdif_header *header)
{
    bool is_power_of_two = (header->bits & (header->bits - 1)) == 0;

    if (header->frame_bytes <= VDIF_HEADER_BYTES)
        return "is not longer than its header, so this is no VDIF frame";
    if (header->is_complex)
        return "holds complex samples, but a digitiser's samples are real";
    if (header->edv == EDV_MARK5B)
        return "holds samples in the code of Mark 5B (EDV 0xAB), which is not supported";
    if (header->n_channels > 1 && !is_power_of_two)
        return "has several channels, but its bits per sample are no power of two, so this is no VDIF frame";
    if (header->n_channels > payload_words(header) * samples_per_word(header))
        return "has more channels than bits, so this is no VDIF frame";
    if (payload_words(header) * samples_per_word(header) % header->n_channels != 0)
        return "does not hold a whole number of samples of all channels";
    return NULL;
}

uint32_t vdif_n_samples(const struct vdif_header *header)
{
    return (uint32_t)(payload_words(header) * samples_per_word(header) / header->n_channels);
}

static double value_of(uint32_t code, int bits)
{
    static const double levels[2][4] = {{-1, 1}, {-VDIF_2BIT_HIGH, -1, 1, VDIF_2BIT_HIGH}};

    return bits <= 2 ? levels[bits - 1][code] : (double)code - (double)(UINT64_C(1) << (bits - 1));
}

void vdif_decode(const struct vdif_header *header, const uint8_t *payload, uint32_t channel, uint32_t first,
                 size_t n_samples, double *values)
{
    uint32_t per_word = samples_per_word(header);
    uint32_t mask = (uint32_t)((UINT64_C(1) << header->bits) - 1);
    /* index of the sample among all samples of the frame */
    uint64_t place = (uint64_t)first * header->n_channels + channel;

    assert(channel < header->n_channels && first + (uint64_t)n_samples <= vdif_n_samples(header));
    /* The loop has one counter for words and one counter for slots in a word.  So no sample needs a division. */
    uint64_t word = place / per_word;
    uint32_t slot = (uint32_t)(place % per_word);
    uint32_t word_step = header->n_channels / per_word, slot_step = header->n_channels % per_word;
    for (size_t i = 0; i < n_samples; i++) {
        uint32_t code = load_word(payload + 4 * word) >> (slot * (uint32_t)header->bits) & mask;
        values[i] = value_of(code, header->bits);
        word += word_step;
        slot += slot_step;
        if (slot >= per_word) {
            slot -= per_word;
            word++;
        }
    }
}

/* ---- Voltages ---------------------------------------------------------------------------------------------------- */

#define VOLTAGE_BITS    4 /* number of bits of the real part, and of the imaginary part */
#define VOLTAGE_LEVEL_0 8 /* code that stands for the value 0 */

const char *vdif_no_voltages(const struct vdif_header *header)
{
    if (header->frame_bytes <= VDIF_HEADER_BYTES)
        return "is not longer than its header, so this is no VDIF frame";
    if (!header->is_complex || header->bits != VOLTAGE_BITS)
        return "does not hold complex samples of 4 bits";
    if ((header->frame_bytes - header->header_bytes) % header->n_channels != 0)
        return "does not hold a whole number of spectra";
    return NULL;
}

uint32_t vdif_n_spectra(const struct vdif_header *header)
{
    return (uint32_t)((header->frame_bytes - header->header_bytes) / header->n_channels);
}

void vdif_voltage(const struct vdif_header *header, const uint8_t *payload, uint32_t channel, uint32_t spectrum,
                  double value[2])
{
    assert(channel < header->n_channels && spectrum < vdif_n_spectra(header));
    uint8_t codes = payload[(size_t)spectrum * header->n_channels + channel];

    value[0] = (codes & 15) - VOLTAGE_LEVEL_0;
    value[1] = (codes >> VOLTAGE_BITS) - VOLTAGE_LEVEL_0;
}
