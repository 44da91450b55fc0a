"""Sensors with constants of the streams, which the controller takes from control.yaml.  The sensors have the names
STREAM.NAME of the reference implementation."""


def _of_voltages(config, stream):
    labels = config.labels
    yield "n-chans-per-substream", int, "", "Number of channels of a substream.", _substream(stream)
    yield "n-fengs", int, "", "Number of F-engines of the array: one for each antenna.", len(config.antennas)
    yield "input-labels", str, "", "Labels of the inputs, in order.", repr(labels)
    yield "source-indices", str, "", "Numbers of the inputs, in order.", repr(
        [2 * antenna.feng_id + pol for antenna in config.antennas for pol in range(2)])
    for key, name in (("samples_between_spectra", "n-samples-between-spectra"),
                      ("spectra_per_heap", "spectra-per-heap")):
        if stream.get(key):
            yield name, int, "", "Value of the F-engines' sensors of this name.", stream.get(key)


def _substream(stream):
    return stream.get("channels") // (stream.get("substreams") or 1)


def constants(config, stream):
    """Yields (name without the stream, type, units, description, value) of a Stream's constants."""
    source = config.streams.get(stream.source, stream)
    if stream.get("destinations"):
        yield "destination", str, "", "Addresses to which the stream is sent.", stream.get("destinations")
    yield "sync-time", float, "s", "UNIX time of timestamp 0.", config.sync_time_s
    yield "adc-sample-rate", float, "Hz", "Samples per second of each digitiser.", config.adc_sample_rate_hz
    yield "scale-factor-timestamp", float, "Hz", "Timestamps divided by this factor are seconds since sync-time.", \
        config.adc_sample_rate_hz
    if stream.kind == "gnss":
        return
    yield "n-ants", int, "", "Number of antennas; each has two polarisations.", len(config.antennas)
    yield "n-inputs", int, "", "Number of inputs.", 2 * len(config.antennas)
    yield "n-chans", int, "", "Number of channels of the stream.", source.get("channels")
    if source.get("bandwidth"):
        yield "bandwidth", float, "Hz", "Bandwidth of all channels together.", float(source.get("bandwidth"))
    centre_hz = source.get("sky_centre_frequency") or source.get("centre_frequency")
    if centre_hz:
        yield "center-freq", float, "Hz", "Centre of the stream: its sky frequency if control.yaml has it.", \
            float(centre_hz)
    if stream.kind == "voltages":
        yield from _of_voltages(config, stream)
        return
    n_engines = len(config.xengs(stream))
    yield ("n-xengs" if stream.kind == "visibilities" else "n-bengs"), int, "", \
        "Number of X-engines that make the stream.", n_engines
    if stream.kind == "visibilities":
        n = len(config.antennas)
        yield "n-bls", int, "", "Products per channel: four per pair of antennas, also of an antenna with itself.", \
            2 * n * (n + 1)
        if stream.get("integration_s"):
            yield "int-time", float, "s", "Length of an accumulation.", float(stream.get("integration_s"))
