/* verbs.c - checks the requirements of receiving and sending with ibverbs: a suitable NIC, the kernel's module,
 * permission, memory. */
#include "common/net/verbs.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/nic.h"
#include "tools/doctor/sys.h"

#include <glob.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Finds the RDMA device of an interface.  For each RDMA port, searches the kernel's list of network interfaces.
 * Returns false if there is no such device. */
static bool find_device(const char *root, const char *interface, char device[64])
{
    char pattern[PATH_MAX], name[64];
    bool found = false;
    glob_t paths;

    snprintf(pattern, sizeof(pattern), "%s/sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*", root);
    if (glob(pattern, GLOB_NOSORT, NULL, &paths))
        return false;
    for (size_t i = 0; i < paths.gl_pathc && !found; i++)
        if (sys_text("", name, sizeof(name), "%s", paths.gl_pathv[i]) && strcmp(name, interface) == 0)
            found = sscanf(paths.gl_pathv[i] + strlen(root), "/sys/class/infiniband/%63[^/]", device) == 1;
    globfree(&paths);
    return found;
}

/* Checks that an interface belongs to a NIC with ibverbs.  'key' is recv or send. */
static void check_device(struct doctor *doctor, const struct doctor_file *file, const char *asked, const char *key)
{
    char interface[IF_NAMESIZE], device[64];

    if (!nic_name(asked, interface))
        return; /* nics.c reports a missing interface */
    bool found = find_device(doctor->root, interface, device);
    struct finding *f = doctor_add(doctor, found ? FINDING_OK : FINDING_FAIL, "verbs.device", interface);
    if (found)
        SAY(f->found, "its RDMA device is %s", device);
    else
        SAY(f->found, "this interface (%s.interface of %s) does not belong to a NIC with ibverbs", key, file->name);
    SAY(f->expected, "an interface of a NIC with ibverbs");
    SAY(f->why, "the daemon does not start");
    SAY(f->fix, "rdma link   # lists these NICs (for a ConnectX: modprobe mlx5_ib); or set %s.transport: udp in %s",
        key, file->path);
}

static void check_module(struct doctor *doctor)
{
    bool found = sys_exists(doctor->root, "/dev/infiniband/rdma_cm");
    struct finding *f = doctor_add(doctor, found ? FINDING_OK : FINDING_FAIL, "verbs.module", "");

    SAY(f->found, "/dev/infiniband/rdma_cm %s", found ? "is there" : "is not there");
    SAY(f->expected, "the kernel module rdma_ucm");
    SAY(f->why, "without this module no program finds the NIC of an interface: the daemon does not start");
    SAY(f->fix, "sudo modprobe rdma_ucm && echo rdma_ucm | sudo tee /etc/modules-load.d/rdma.conf");
}

/* Checks the running daemon for CAP_NET_RAW.  If no daemon runs, checks the daemon's unit. */
static void check_permission(struct doctor *doctor, const struct doctor_file *file)
{
    const char *program = file->kind == DOCTOR_FGPU ? "fgpu" : "xbgpu";
    bool has = false, seen;
    int pid = 0;

    seen = sys_process(doctor->root, program, &pid) && sys_capability(doctor->root, pid, CAP_NET_RAW, &has);
    bool has_unit = sys_exists(doctor->root, "/etc/systemd/system/%s@.service.d/ibverbs.conf", program);
    enum finding_status status = (seen ? has : has_unit) ? FINDING_OK : seen ? FINDING_FAIL : FINDING_SKIPPED;
    struct finding *f = doctor_add(doctor, status, "verbs.permission", file->name);
    if (seen)
        SAY(f->found, "process %d of %s %s CAP_NET_RAW", pid, program, has ? "has" : "lacks");
    else
        SAY(f->found, "no %s runs here; its unit %s ibverbs.conf", program, has_unit ? "has" : "lacks");
    SAY(f->expected, "CAP_NET_RAW, in the host's user namespace");
    SAY(f->why, "without this capability, raw packet queues are refused and the daemon does not start");
    SAY(f->fix,
        "sudo install -D -m 644 /usr/share/cbf/systemd/ibverbs.conf /etc/systemd/system/%s@.service.d/ibverbs.conf && "
        "sudo systemctl daemon-reload",
        program);
}

/* Checks this shell's limit of locked memory.  The units have no limit. */
static void check_memory(struct doctor *doctor, const struct doctor_file *file)
{
    struct rlimit limit;
    bool free_of_it = false;

    if (doctor->root[0] || getrlimit(RLIMIT_MEMLOCK, &limit))
        return;
    sys_capability("", getpid(), CAP_IPC_LOCK, &free_of_it);
    bool enough = free_of_it || limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= file->locked_bytes;
    struct finding *f = doctor_add(doctor, enough ? FINDING_OK : FINDING_WARN, "verbs.memory", file->name);
    if (free_of_it || limit.rlim_max == RLIM_INFINITY)
        SAY(f->found, "locked memory is not limited in this shell");
    else
        SAY(f->found, "%llu KiB may be locked in this shell", (unsigned long long)limit.rlim_max >> 10);
    SAY(f->expected, "at least %llu KiB, for the rings of frames and the output buffers",
        (unsigned long long)file->locked_bytes >> 10);
    SAY(f->why, "the NIC needs locked memory: a daemon that is started in this shell does not start");
    SAY(f->fix, "sudo adduser $USER cbf   # and log in again (limits.d/60-gpucbf.conf); or lower recv.buffer, or "
                "outputs' buffers");
}

static void check_built(struct doctor *doctor, const struct doctor_file *file)
{
    if (verbs_built_in)
        return;
    struct finding *f = doctor_add(doctor, FINDING_FAIL, "verbs.built", file->name);
    SAY(f->found, "these programs were built without ibverbs");
    SAY(f->expected, "transport: udp, or a build with libibverbs and librdmacm");
    SAY(f->why, "the daemon does not start");
    SAY(f->fix, "sudo apt-get install libibverbs-dev librdmacm-dev && make");
}

void doctor_check_verbs(struct doctor *doctor)
{
    size_t n = 0;

    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_ANY, file));) {
        bool receives = file->recv_transport == TRANSPORT_IBVERBS;
        bool sends = file->send->transport == TRANSPORT_IBVERBS && !file->send->pcap_file;
        if (!receives && !sends)
            continue;
        if (n++ == 0)
            check_module(doctor);
        check_built(doctor, file);
        if (receives)
            check_device(doctor, file, file->recv->interface, "recv");
        if (sends && !(receives && strcmp(file->recv->interface, file->send->interface) == 0))
            check_device(doctor, file, file->send->interface, "send");
        check_permission(doctor, file);
        check_memory(doctor, file);
    }
}
