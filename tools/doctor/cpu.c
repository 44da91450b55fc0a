/* cpu.c - checks whether the CPUs can process packets without delay: clock frequency, idle states, and other users of
 * the CPUs (threads, interrupts, virtual machines). */
#include "tools/doctor/doctor.h"
#include "tools/doctor/sys.h"

#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define CPUS_MAX       4096
#define IDLE_STATES    16
#define LATENCY_MAX_US 50   /* time that a CPU takes to leave an idle state */
#define STOLEN_MAX     0.01 /* fraction of the time since boot in which other virtual machines used the CPUs */

static void check_governor(struct doctor *doctor)
{
    char text[64], bad[64] = "";
    int n_seen = 0, n_bad = 0;

    for (int cpu = 0; cpu < CPUS_MAX; cpu++) {
        if (!sys_exists(doctor->root, "/sys/devices/system/cpu/cpu%d", cpu))
            break;
        if (!sys_text(doctor->root, text, sizeof(text), "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpu))
            continue;
        n_seen++;
        if (strcmp(text, "performance") != 0) {
            n_bad++;
            memcpy(bad, text, sizeof(bad));
        }
    }
    if (n_seen == 0) {
        doctor_note(doctor, FINDING_SKIPPED, "cpu.governor", "",
                    "no frequency governor: this is a virtual machine, or the firmware sets the frequency");
        return;
    }
    struct finding *f = doctor_add(doctor, doctor_tuning(doctor, n_bad), "cpu.governor", "");
    SAY(f->found, "%d of %d CPUs do not use the governor \"performance\"%s%s", n_bad, n_seen, n_bad ? ": " : "", bad);
    SAY(f->expected, "performance");
    SAY(f->why, "a CPU that runs at a low frequency is too slow for the first packets of a burst");
    SAY(f->fix, "sudo cpupower frequency-set -g performance");
}

static void check_idle(struct doctor *doctor)
{
    char name[64], deepest[64] = "";
    int64_t latency, disabled, worst = -1;

    for (int state = 0; state < IDLE_STATES; state++) {
        if (!sys_number(doctor->root, &latency, "/sys/devices/system/cpu/cpu0/cpuidle/state%d/latency", state))
            break;
        if (!sys_number(doctor->root, &disabled, "/sys/devices/system/cpu/cpu0/cpuidle/state%d/disable", state))
            disabled = 0;
        if (disabled || latency <= worst)
            continue;
        worst = latency;
        if (sys_text(doctor->root, name, sizeof(name), "/sys/devices/system/cpu/cpu0/cpuidle/state%d/name", state))
            memcpy(deepest, name, sizeof(deepest));
    }
    if (worst < 0) {
        doctor_note(doctor, FINDING_SKIPPED, "cpu.idle", "", "idle states cannot be seen here");
        return;
    }
    struct finding *f = doctor_add(doctor, doctor_tuning(doctor, worst > LATENCY_MAX_US), "cpu.idle", "");
    SAY(f->found, "the deepest idle state, %s, takes %lld us to leave", deepest, (long long)worst);
    SAY(f->expected, "at most %d us", LATENCY_MAX_US);
    SAY(f->why, "while a CPU leaves its idle state, the NIC's ring of packets fills");
    SAY(f->fix, "sudo cpupower idle-set -D %d", LATENCY_MAX_US);
}

static void check_stolen(struct doctor *doctor)
{
    char line[512];
    unsigned long long t[8] = {0};
    double sum = 0;

    if (!sys_text(doctor->root, line, sizeof(line), "/proc/stat") ||
        sscanf(line, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6],
               &t[7]) != 8)
        return;
    for (int i = 0; i < 8; i++)
        sum += (double)t[i];
    double stolen = sum > 0 ? (double)t[7] / sum : 0;
    struct finding *f = doctor_add(doctor, doctor_tuning(doctor, stolen > STOLEN_MAX), "cpu.stolen", "");
    SAY(f->found, "%.2g %% of the time since boot went to other virtual machines", 100 * stolen);
    SAY(f->expected, "at most %g %%", 100 * STOLEN_MAX);
    SAY(f->why, "a receive thread loses packets while it does not run, and no setting of this machine prevents this");
    SAY(f->fix, "give this virtual machine dedicated CPUs, or use the physical machine");
}

/* ---- Pinned threads ---------------------------------------------------------------------------------------------- */

struct pins {
    size_t n;
    struct {
        int64_t cpu;
        const char *file, *key;
    } items[CPUS_MAX];
};

static void add_pins(struct pins *pins, const struct config_int_list *list, const char *file, const char *key)
{
    for (size_t i = 0; i < list->n && pins->n < CPUS_MAX; i++)
        if (list->items[i] >= 0) {
            pins->items[pins->n].cpu = list->items[i];
            pins->items[pins->n].file = file;
            pins->items[pins->n++].key = key;
        }
}

static void check_pins(struct doctor *doctor, const struct pins *pins)
{
    char online[256], isolated[256] = "", siblings[256];
    size_t n_loose = 0, n_bad = 0;
    struct finding *f;

    if (!sys_text(doctor->root, online, sizeof(online), "/sys/devices/system/cpu/online")) {
        doctor_note(doctor, FINDING_SKIPPED, "cpu.affinity", "", "CPUs cannot be seen here");
        return;
    }
    sys_text(doctor->root, isolated, sizeof(isolated), "/sys/devices/system/cpu/isolated");
    for (size_t i = 0; i < pins->n; i++) {
        int64_t cpu = pins->items[i].cpu;
        n_loose += !sys_list_has(isolated, cpu);
        if (!sys_list_has(online, cpu)) {
            f = doctor_add(doctor, FINDING_FAIL, "cpu.affinity", pins->items[i].file);
            SAY(f->found, "%s names CPU %lld, which this host does not have", pins->items[i].key, (long long)cpu);
            SAY(f->expected, "CPUs of %s", online);
            SAY(f->why, "the daemon does not start");
            SAY(f->fix, "change %s in %s", pins->items[i].key, pins->items[i].file);
            n_bad++;
            continue;
        }
        if (!sys_text(doctor->root, siblings, sizeof(siblings),
                      "/sys/devices/system/cpu/cpu%lld/topology/thread_siblings_list", (long long)cpu))
            snprintf(siblings, sizeof(siblings), "%lld", (long long)cpu);
        for (size_t j = 0; j < i; j++) {
            if (!sys_list_has(siblings, pins->items[j].cpu))
                continue;
            f = doctor_add(doctor, doctor_tuning(doctor, true), "cpu.affinity", pins->items[i].file);
            SAY(f->found, "CPU %lld of %s and CPU %lld of %s in %s are hardware threads of one core", (long long)cpu,
                pins->items[i].key, (long long)pins->items[j].cpu, pins->items[j].key, pins->items[j].file);
            SAY(f->expected, "a separate core for each pinned thread");
            SAY(f->why, "two threads that are always busy share the core, so each runs at about half the speed");
            SAY(f->fix, "change %s in %s", pins->items[i].key, pins->items[i].file);
            n_bad++;
            break;
        }
    }
    if (n_bad == 0)
        doctor_note(doctor, FINDING_OK, "cpu.affinity", "",
                    pins->n ? "each of the %zu pinned threads has its own core" : "%zu threads are pinned", pins->n);
    f = doctor_add(doctor, doctor_tuning(doctor, n_loose), "cpu.isolated", "");
    SAY(f->found, "isolated CPUs: %s; %zu of %zu pinned threads are on other CPUs", isolated[0] ? isolated : "none",
        n_loose, pins->n);
    SAY(f->expected, "isolated: all CPUs of recv.affinity and send.affinity");
    SAY(f->why, "on other CPUs, the kernel also runs other tasks, for milliseconds at a time");
    SAY(f->fix, "add isolcpus= and nohz_full= with these CPUs to GRUB_CMDLINE_LINUX, then sudo update-grub and reboot");
}

static void check_irqbalance(struct doctor *doctor, bool pinned)
{
    bool runs = sys_process(doctor->root, "irqbalance", NULL);
    struct finding *f = doctor_add(doctor, doctor_tuning(doctor, runs && pinned), "cpu.irqbalance", "");

    SAY(f->found, runs ? "irqbalance runs" : "irqbalance does not run");
    SAY(f->expected, "irqbalance stopped, because threads are pinned");
    SAY(f->why, "irqbalance moves the NIC's interrupts, sometimes to the CPUs of the receive threads");
    SAY(f->fix, "sudo systemctl disable --now irqbalance");
}

static void check_smt(struct doctor *doctor)
{
    int64_t active;

    if (!sys_number(doctor->root, &active, "/sys/devices/system/cpu/smt/active")) {
        doctor_note(doctor, FINDING_SKIPPED, "cpu.smt", "", "SMT cannot be seen here");
        return;
    }
    doctor_note(doctor, FINDING_OK, "cpu.smt", "",
                active ? "two hardware threads per core: pin busy threads to different cores"
                       : "one hardware thread per core");
}

/* ---- Capabilities and limits of a daemon ------------------------------------------------------------------------- */

static void check_daemon(struct doctor *doctor, const char *program)
{
    bool admin;
    int pid;

    if (!sys_process(doctor->root, program, &pid) || !sys_capability(doctor->root, pid, CAP_NET_ADMIN, &admin))
        return;
    doctor_note(doctor, FINDING_OK, "host.capabilities", program, "process %d %s CAP_NET_ADMIN%s", pid,
                admin ? "has" : "lacks", admin ? "" : ", so net.core.rmem_max limits its socket buffers");
}

static void check_limits(struct doctor *doctor)
{
    struct rlimit memlock = {0}, rtprio = {0};

    check_daemon(doctor, "fgpu");
    check_daemon(doctor, "xbgpu");
    if (getrlimit(RLIMIT_MEMLOCK, &memlock) || getrlimit(RLIMIT_RTPRIO, &rtprio))
        return;
    struct finding *f = doctor_add(doctor, FINDING_OK, "host.limits", "");
    if (memlock.rlim_max == RLIM_INFINITY)
        SAY(f->found, "locked memory unlimited, real-time priority up to %llu, in this shell",
            (unsigned long long)rtprio.rlim_max);
    else
        SAY(f->found,
            "locked memory up to %llu kB, real-time priority up to %llu, in this shell; the units have their own "
            "limits",
            (unsigned long long)memlock.rlim_max / 1024, (unsigned long long)rtprio.rlim_max);
}

void doctor_check_cpu(struct doctor *doctor)
{
    struct pins pins = {0};

    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_ANY, file));) {
        add_pins(&pins, &file->recv->affinity, file->name, "recv.affinity");
        add_pins(&pins, &file->send->affinity, file->name, "send.affinity");
    }
    check_governor(doctor);
    check_idle(doctor);
    check_smt(doctor);
    check_stolen(doctor);
    check_pins(doctor, &pins);
    check_irqbalance(doctor, pins.n > 0);
    check_limits(doctor);
}
