"""The recorders' disks: rates of writing, space for recordings, and the removal of old recordings."""
import re

import array_plan

# bytes of a visibility with flag and nsamples; bytes of a baseline's other columns in a dump
VIS_BYTES, ROW_BYTES = 13, 96
DAY_S = 86400
GB, TB = 1e9, 1e12
PLAIN_PATH = r"(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+"  # a path without characters that have a meaning in tmpfiles.d
SYSTEM = "boot dev etc home lib media mnt opt proc root run srv sys tmp usr var var/lib var/log var/lib/cbf".split()


def vis_bytes_per_s(plan, recorder):
    """Returns the highest rate at which a visrec writes.  The real rate is lower, because visrec compresses flags and
    nsamples."""
    array, output = plan.array, recorder.output
    stream, n_ants = plan.stream(output), len(array["antennas"])
    dump = n_ants * (n_ants + 1) // 2 * (stream["channels"] * array_plan.N_POLS**2 * VIS_BYTES + ROW_BYTES)
    n_samples = array_plan.integration_batches(array, output, stream) * array_plan.batch_samples(stream)
    return dump * array["time"]["adc_sample_rate"] / n_samples


def beam_bytes_per_s(plan, recorder):
    """Returns the rate at which a beamrec writes while all beams are sent."""
    given, stream = recorder.given, recorder.output
    spectra_per_s = plan.array["time"]["adc_sample_rate"] / array_plan.samples_between_spectra(stream)
    values_per_s = spectra_per_s * stream["channels"]
    total = 0.0
    for _ in plan.made_of("beams", stream):
        total += values_per_s / (given["sum_spectra"] * given["sum_channels"]) * given["bits"] / 8
        total += 2 * values_per_s if given["voltages"] else 0
    for beam in plan.made_of("detected", stream):
        n_products = 4 if beam["products"] == "IQUV" else 1
        powers_per_s = values_per_s / (beam["spectra"] * beam["channels"]) * n_products * beam["beams"]
        total += powers_per_s * given["bits"] / 8 * (2 if given["dada"] else 1)
    return total


def bytes_per_s(plan, recorder):
    return (vis_bytes_per_s if recorder.kind == "visrec" else beam_bytes_per_s)(plan, recorder)


def within(directory, parent):
    return f"{directory.rstrip('/')}/".startswith(f"{parent.rstrip('/')}/")


def disk_of(recorder, host=None):
    """Returns the disk to which a recorder writes, or None.  The mount point of this disk contains the recorder's
    directory.  If several mount points contain the directory, returns the disk with the longest mount point.  'host':
    the host of the disk; default: the recorder's host."""
    disks = [disk for disk in (host or recorder.host)["disks"] if within(recorder.directory, disk["directory"])]
    return max(disks, key=lambda disk: len(disk["directory"]), default=None)


def kept_bytes(plan, recorder):
    """Returns the space in bytes that a recorder's files need.  If no program removes old files, returns 0: the need
    has no limit.

    A file's age counts from the file's last write.  systemd-tmpfiles removes old files once a day.
    """
    if not recorder.given["retention"]:
        return 0.0
    rate, kept_s = bytes_per_s(plan, recorder), (recorder.given["retention"] + 1) * DAY_S
    if recorder.kind == "visrec":
        limits_s = [recorder.given["max_file_time"], recorder.given["max_file_size"] / rate]
        kept_s += min([limit_s for limit_s in limits_s if limit_s], default=0)
    return rate * kept_s


def check_disk(plan, host, disk, faults):
    mine = [recorder for recorder in plan.recorders if recorder.host is host and disk_of(recorder) is disk]
    where, names = f"{disk['directory']} of {host['name']}", ", ".join(recorder.name for recorder in mine)
    rate = sum(bytes_per_s(plan, recorder) for recorder in mine) / GB
    if rate > disk["rate"]:
        faults.add(disk.mark_at("rate"), f"recorders would write {rate:.3g} GB/s to {where}, which takes "
                                         f"{disk['rate']:g}: move recorders ({names}) to other disks or hosts")
    size = sum(kept_bytes(plan, recorder) for recorder in mine) / TB
    if size > disk["size"]:
        faults.add(disk.mark_at("size"), f"the recordings that {names} keep need {size:.3g} TB on {where}, which "
                                         f"has {disk['size']:g}: lower retention, or move recorders to other disks or "
                                         f"hosts")


def check_retention(recorder, others, faults):
    """Checks that the removal of a recorder's old files removes nothing else."""
    given, mark = recorder.given, recorder.given.mark_at("retention")
    if not given["directory"]:
        return faults.add(mark, f"retention of {recorder.name} needs a directory")
    if not re.fullmatch(PLAIN_PATH, recorder.directory):
        return faults.add(mark, f"retention needs a directory of letters, digits and the characters / . _ + -, not "
                                f"\"{given['directory']}\"")
    if recorder.directory[1:] in SYSTEM:
        return faults.add(mark, f"retention would remove the old files of {recorder.directory}, which are not all "
                                f"recordings: give {recorder.name} a directory of its own")
    if recorder.kind == "visrec" and not (given["max_file_time"] or given["max_file_size"]):
        return faults.add(mark, f"retention of {recorder.name} needs max_file_time or max_file_size: a file that grows "
                                f"is never old")
    for other in others:
        same, days = other.directory == recorder.directory, other.given["retention"]
        if within(other.directory, recorder.directory) and days != given["retention"] and (same or not days):
            faults.add(mark, f"files of {other.name} in {other.directory} would be removed after {given['retention']} "
                             f"days, like those of {recorder.name}: give {other.name} another directory, or the same retention")


def check(plan, faults):
    for host in plan.array["hosts"]:
        for disk in host["disks"]:
            if not disk["directory"].startswith("/"):
                faults.add(disk.mark_at("directory"),
                           f"directory of a disk must begin with /, not \"{disk['directory']}\"")
        array_plan.check_unique(host["disks"], f"disks of {host['name']}", faults, "directory")
        for disk in host["disks"]:
            check_disk(plan, host, disk, faults)
    for recorder in plan.recorders:
        if disk_of(recorder, recorder.home) and not disk_of(recorder):
            faults.add(recorder.host.mark, f"{recorder.host['name']} has no disk for {recorder.directory}, to which "
                                           f"{recorder.name} of {recorder.home['name']} writes")
        if recorder.given["retention"]:
            check_retention(recorder, [other for other in plan.recorders
                                       if other is not recorder and other.host is recorder.host], faults)


def describe(plan, recorder):
    """Returns a text for the printed plan: the data rate of a recorder, and how long the files are kept."""
    kept = f", kept for {recorder.given['retention']} days" if recorder.given["retention"] else ""
    return f"{bytes_per_s(plan, recorder) / GB:.3g} GB/s to the disk{kept}"


def lines(plan):
    """Returns a line of the printed table for each disk."""
    rows = []
    for host in plan.array["hosts"]:
        for disk in host["disks"]:
            mine = [recorder for recorder in plan.recorders if recorder.host is host and disk_of(recorder) is disk]
            rate, size = (sum(figure(plan, recorder) for recorder in mine) / unit
                          for figure, unit in ((bytes_per_s, GB), (kept_bytes, TB)))
            rows.append(f"{host['name']}  =  {disk['directory']}: {rate:.3g} of {disk['rate']:g} GB/s, {size:.3g} of "
                        f"{disk['size']:g} TB")
    return rows


def tmpfiles(plan, host):
    """Returns lines of tmpfiles.d that remove the old files of a host's recorders.  Directories stay."""
    kept = {recorder.directory: recorder.given["retention"] for recorder in plan.recorders
            if recorder.host is host and recorder.given["retention"]}
    return [f"e {directory} - - - m:{days}d" for directory, days in kept.items()]
