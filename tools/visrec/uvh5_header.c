/* uvh5_header.c - writes the constants of the whole recording when the file is created.  Each constant is one
 * dataset. */
#include "tools/visrec/uvh5_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* [polarisation: xx, yy, xy, yx] AIPS's number of each polarisation.  The order is the order of the data's last
 * axis. */
static const int64_t pol_numbers[N_POL_PRODUCTS] = {-5, -6, -7, -8};

/* Each of these functions makes one dataset.  Returns true on success. */

static bool write_dataset(hid_t group, const char *name, hid_t file_type, hid_t memory_type, int n_dims,
                          const hsize_t *dims, const void *values)
{
    hid_t space = n_dims == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(n_dims, dims, NULL);
    hid_t dataset = H5Dcreate2(group, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool ok = dataset >= 0 && H5Dwrite(dataset, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;

    H5Dclose(dataset);
    H5Sclose(space);
    return ok;
}

static bool write_ints(hid_t group, const char *name, int n_dims, hsize_t n, const int64_t *values)
{
    return write_dataset(group, name, H5T_STD_I64LE, H5T_NATIVE_INT64, n_dims, &n, values);
}

static bool write_int(hid_t group, const char *name, int64_t value)
{
    return write_ints(group, name, 0, 1, &value);
}

static bool write_doubles(hid_t group, const char *name, int n_dims, const hsize_t *dims, const double *values)
{
    return write_dataset(group, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, n_dims, dims, values);
}

static bool write_double(hid_t group, const char *name, double value)
{
    return write_doubles(group, name, 0, NULL, &value);
}

/* Writes 'n' strings of 'bytes' each, padded with zeros. */
static bool write_strings(hid_t group, const char *name, int n_dims, hsize_t n, size_t bytes, const char *strings)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    bool ok = H5Tset_size(type, bytes) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0 &&
              write_dataset(group, name, type, type, n_dims, &n, strings);

    H5Tclose(type);
    return ok;
}

static bool write_string(hid_t group, const char *name, const char *text)
{
    size_t bytes = strlen(text);

    return write_strings(group, name, 0, 1, bytes > 0 ? bytes : 1, text);
}

/* Creates the type that h5py uses for numpy's bool. */
hid_t visrec_uvh5_bool_type(void)
{
    hid_t type = H5Tcreate(H5T_ENUM, sizeof(int8_t));

    H5Tenum_insert(type, "FALSE", &(int8_t){0});
    H5Tenum_insert(type, "TRUE", &(int8_t){1});
    return type;
}

static bool write_bool(hid_t group, const char *name, bool value)
{
    hid_t type = visrec_uvh5_bool_type();
    bool ok = write_dataset(group, name, type, type, 0, NULL, &(int8_t){value});

    H5Tclose(type);
    return ok;
}

static bool write_antennas(hid_t header, const struct visrec_array *array)
{
    hsize_t dims[2] = {array->n_ants, 3};
    size_t name_bytes = 1;
    int64_t *numbers = calloc(array->n_ants, sizeof(*numbers));
    double *positions_m = calloc(array->n_ants * 3, sizeof(*positions_m));
    bool ok = false;

    for (size_t i = 0; i < array->n_ants; i++) {
        size_t bytes = strlen(array->ants[i].name);
        name_bytes = bytes > name_bytes ? bytes : name_bytes;
    }
    char *names = calloc(array->n_ants, name_bytes);
    if (names && numbers && positions_m) {
        for (size_t i = 0; i < array->n_ants; i++) {
            memcpy(names + i * name_bytes, array->ants[i].name, strlen(array->ants[i].name));
            numbers[i] = (int64_t)i;
            memcpy(positions_m + 3 * i, array->ants[i].ecef_m, sizeof(array->ants[i].ecef_m));
        }
        ok = write_strings(header, "antenna_names", 1, array->n_ants, name_bytes, names) &&
             write_ints(header, "antenna_numbers", 1, array->n_ants, numbers) &&
             write_doubles(header, "antenna_positions", 2, dims, positions_m);
    }
    free(positions_m);
    free(numbers);
    free(names);
    return ok;
}

static bool write_frequencies(hid_t header, const struct visrec_array *array)
{
    hsize_t n_chan = array->n_chan;
    double *freqs_hz = calloc(n_chan, sizeof(*freqs_hz));
    double *widths_hz = calloc(n_chan, sizeof(*widths_hz));
    int64_t *spws = calloc(n_chan, sizeof(*spws));
    bool ok = false;

    if (freqs_hz && widths_hz && spws) {
        for (size_t i = 0; i < n_chan; i++) {
            freqs_hz[i] = array->first_freq_hz + (double)i * array->chan_width_hz;
            widths_hz[i] = array->chan_width_hz;
        }
        ok = write_doubles(header, "freq_array", 1, &n_chan, freqs_hz) &&
             write_doubles(header, "channel_width", 1, &n_chan, widths_hz) &&
             write_ints(header, "spw_array", 1, 1, spws) && write_ints(header, "flex_spw_id_array", 1, n_chan, spws);
    }
    free(spws);
    free(widths_hz);
    free(freqs_hz);
    return ok;
}

/* Writes the catalogue of phase centres.  The only entry states that the data are unphased.  The baselines of unphased
 * data are in east, north, up. */
static bool write_phase_centers(hid_t header)
{
    hid_t catalog = H5Gcreate2(header, "phase_center_catalog", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t entry = H5Gcreate2(catalog, "0", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool ok = write_string(entry, "cat_name", "unprojected") && write_string(entry, "cat_type", "unprojected") &&
              write_double(entry, "cat_lon", 0) && write_double(entry, "cat_lat", M_PI / 2) &&
              write_string(entry, "cat_frame", "altaz") && write_string(entry, "info_source", "visrec");

    H5Gclose(entry);
    H5Gclose(catalog);
    return ok;
}

/* Writes the gate as extra keywords, because UVH5 has no other place for these values.  Programs that read UVH5 keep
 * extra keywords. */
static bool write_gate(hid_t header, const struct visrec_array *array)
{
    if (!array->gate)
        return true;
    hid_t group = H5Gcreate2(header, "extra_keywords", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool ok = write_string(group, "gate", array->gate) && write_int(group, "spectra", array->n_spectra);

    H5Gclose(group);
    return ok;
}

bool visrec_uvh5_write_header(hid_t header, const struct visrec_array *array, const char *history)
{
    return write_string(header, "version", "1.2") && write_string(header, "history", history) &&
           write_string(header, "telescope_name", array->telescope) &&
           write_string(header, "instrument", array->telescope) && write_string(header, "vis_units", "uncalib") &&
           write_double(header, "latitude", array->latitude_rad * 180 / M_PI) &&
           write_double(header, "longitude", array->longitude_rad * 180 / M_PI) &&
           write_double(header, "altitude", array->altitude_m) && write_double(header, "dut1", array->ut1_utc_s) &&
           write_string(header, "timesys", "UTC") && write_int(header, "Nants_data", (int64_t)array->n_ants) &&
           write_int(header, "Nants_telescope", (int64_t)array->n_ants) &&
           write_int(header, "Nbls", (int64_t)array->n_baselines) &&
           write_int(header, "Nfreqs", (int64_t)array->n_chan) && write_int(header, "Npols", N_POL_PRODUCTS) &&
           write_int(header, "Nphase", 1) && write_int(header, "Nspws", 1) && write_int(header, "Ntimes", 0) &&
           write_int(header, "Nblts", 0) && write_ints(header, "polarization_array", 1, N_POL_PRODUCTS, pol_numbers) &&
           write_bool(header, "blts_are_rectangular", true) && write_bool(header, "time_axis_faster_than_bls", false) &&
           write_string(header, "blt_order", "time, baseline") && write_antennas(header, array) &&
           write_frequencies(header, array) && write_phase_centers(header) && write_gate(header, array);
}
