/* gpu.c - checks the GPUs that the configurations need, and their caches of compiled kernels. */
#include "common/device/cuda/cache.h"
#include "common/device/cuda/image.h"
#include "common/device/device.h"
#include "common/base/units.h"
#include "fgpu/memory.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/sys.h"
#include "xbgpu/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CPU_BITS_MAX 1e9 /* largest received rate that a CPU can process, in bits per second */

/* ---- Driver and device ------------------------------------------------------------------------------------------- */

static void check_driver(struct doctor *doctor, const struct doctor_file *file)
{
    char version[256];
    bool there = sys_text(doctor->root, version, sizeof(version), "/proc/driver/nvidia/version");
    bool needed = file->gpudirect, wanted = file->device->kind == DEVICE_CUDA || needed;
    bool slow = file->recv_bits_per_s > CPU_BITS_MAX;
    enum finding_status status = FINDING_OK;

    if (!there && !file->gpu_opened)
        status = wanted ? FINDING_FAIL : slow ? FINDING_WARN : FINDING_OK;
    struct finding *f = doctor_add(doctor, status, "gpu.driver", file->name);
    if (there)
        SAY(f->found, "%s", version);
    else if (file->gpu_opened)
        SAY(f->found, "a driver is loaded, but its version cannot be seen here");
    else
        SAY(f->found, "no NVIDIA driver is loaded%s", wanted ? "" : ", so device.kind auto selects the CPU");
    SAY(f->expected, "a driver for CUDA 12.8 or later");
    SAY(f->why, needed   ? "gpudirect needs a GPU: the daemon does not start"
                : wanted ? "device.kind is cuda: the daemon does not start"
                         : "the CPU is much too slow for this rate: chunks are dropped");
    SAY(f->fix, "sudo apt install nvidia-driver && sudo modprobe nvidia && nvidia-smi");
}

static int check_layout(struct doctor_file *file, struct device *device, char *why, size_t why_bytes)
{
    if (file->kind == DOCTOR_FGPU) {
        struct fgpu_layout layout;
        fgpu_layout_init(&layout, &file->fgpu);
        const struct memory_use memory =
            fgpu_memory(&layout, &file->fgpu, device_shared_bytes(device), NULL, file->recv_mtu);
        file->memory.device_bytes = memory.device_bytes; /* depends on the size of this device's shared memory */
        return fgpu_memory_check(&memory, &file->fgpu, device, why, why_bytes);
    }
    struct xbgpu_layout layout;
    xbgpu_layout_init(&layout, &file->xbgpu);
    const struct memory_use memory = xbgpu_memory(&layout, &file->xbgpu, true, file->recv_mtu);
    return xbgpu_memory_check(&memory, &file->xbgpu, device, why, why_bytes);
}

static void check_device_memory(struct doctor *doctor, struct doctor_file *file, struct device *device)
{
    char why[600] = "";
    int err = check_layout(file, device, why, sizeof(why));
    struct finding *f = doctor_add(doctor, err ? FINDING_FAIL : FINDING_OK, "gpu.memory", file->name);

    if (err)
        SAY(f->found, "%s", why);
    else
        SAY(f->found, "%.3g GiB of GPU memory are needed and are free", (double)file->memory.device_bytes / 0x1p30);
    SAY(f->expected, "enough free GPU memory for this file");
    SAY(f->why, "the daemon does not start");
    SAY(f->fix, "nvidia-smi   # which programs use the memory; or lower the key that the message names in %s",
        file->name);
}

/* Opens the device as the daemon does, and checks whether the free GPU memory is enough for the file's layout. */
static void check_device(struct doctor *doctor, struct doctor_file *file)
{
    const struct device_config config = {.kind = (enum device_kind)file->device->kind,
                                         .gpu = file->device->gpu,
                                         .kernel_cache = file->device->kernel_cache};
    struct device *device = NULL;
    char why[600] = "";
    struct finding *f;

    if (doctor->root[0] || doctor_file_runs(file)) {
        f = doctor_add(doctor, FINDING_SKIPPED, "gpu.device", file->name);
        SAY(f->found, "%s",
            doctor->root[0] ? "no GPU is opened with --root" : "the daemon runs and already has its GPU memory");
        return;
    }
    int err = device_open(&config, &device, why, sizeof(why));
    if (err) {
        f = doctor_add(doctor, FINDING_FAIL, "gpu.device", file->name);
        SAY(f->found, "%s", why);
        SAY(f->expected, "a GPU that can be opened, of compute capability 8.0 or more");
        SAY(f->why, "the daemon does not start");
        SAY(f->fix, "nvidia-smi   # and compare with device.gpu of %s", file->name);
        return;
    }
    file->gpu_opened = device_compiles(device);
    if (file->gpu_opened) {
        doctor_note(doctor, FINDING_OK, "gpu.device", file->name, "%s", device_model(device));
        check_device_memory(doctor, file, device);
    }
    device_close(device);
}

/* ---- On the bus -------------------------------------------------------------------------------------------------- */

static void check_gpu_link(struct doctor *doctor, const char *address)
{
    char path[PATH_MAX], now[64], max[64];
    bool slower;

    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", address);
    if (!sys_pcie_link(doctor->root, path, now, max, sizeof(now), &slower))
        return;
    /* An idle GPU reduces the speed of its PCIe link, but never the width of the link. */
    bool narrow = strcmp(strchr(now, 'x'), strchr(max, 'x')) != 0;
    struct finding *f = doctor_add(doctor, doctor_tuning(doctor, narrow), "gpu.pcie", address);
    SAY(f->found, "PCIe %s%s", now, slower && !narrow ? " (slower while idle)" : "");
    SAY(f->expected, "%s, the fastest and widest link that the GPU supports", max);
    SAY(f->why, "every sample crosses this link once");
    SAY(f->fix, "nvidia-smi -q -d PERFORMANCE -i %s   # then put the GPU into a slot of its full width", address);
}

/* Checks that the receive threads of a file are on the NUMA node of the file's GPU, if the GPU is known. */
static void check_gpu_node(struct doctor *doctor, const struct doctor_file *file, const char *address)
{
    const struct config_int_list *cpus = &file->recv->affinity;
    char list[256];
    int64_t node;
    size_t n_far = 0;

    if (!sys_number(doctor->root, &node, "/sys/bus/pci/devices/%s/numa_node", address) || node < 0 ||
        !sys_text(doctor->root, list, sizeof(list), "/sys/devices/system/node/node%lld/cpulist", (long long)node))
        return;
    for (size_t i = 0; i < cpus->n; i++)
        n_far += cpus->items[i] >= 0 && !sys_list_has(list, cpus->items[i]);
    struct finding *f = doctor_add(doctor, doctor_tuning(doctor, n_far), "gpu.numa", file->name);
    SAY(f->found, "%zu of %zu CPUs of recv.affinity are not on node %lld, the node of GPU %s", n_far, cpus->n,
        (long long)node, address);
    SAY(f->expected, "CPUs of %s", list);
    SAY(f->why, "the buffers are on the GPU's node, so each packet is copied across the link between the processors");
    SAY(f->fix, "set recv.affinity in %s to CPUs of %s, or device.gpu to a GPU on their node", file->path, list);
}

bool doctor_file_gpu(const struct doctor *doctor, const struct doctor_file *file, char address[SYS_PCI_BYTES])
{
    char gpus[SYS_GPUS_MAX][SYS_PCI_BYTES];

    if (sys_pci_address(file->device->gpu, address))
        return true;
    if (sys_gpus(doctor->root, gpus) != 1)
        return false;
    strcpy(address, gpus[0]);
    return true;
}

static void check_bus(struct doctor *doctor)
{
    char gpus[SYS_GPUS_MAX][SYS_PCI_BYTES], address[SYS_PCI_BYTES];
    size_t n_gpus = sys_gpus(doctor->root, gpus);

    for (size_t i = 0; i < n_gpus; i++)
        check_gpu_link(doctor, gpus[i]);
    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_ANY, file));)
        if (file->device->kind != DEVICE_CPU && file->recv->affinity.n > 0 && doctor_file_gpu(doctor, file, address))
            check_gpu_node(doctor, file, address);
}

/* ---- Compiled kernels -------------------------------------------------------------------------------------------- */

struct cache_state {
    size_t n, n_damaged, n_old;
    char damaged[128]; /* name of a damaged entry */
};

/* Returns the UNIX time at which the program that uses the cache was installed.  This program is the cuda device
 * (cbf-cuda.so) next to cbf-doctor, or else cbf-doctor itself. */
static int64_t installed_s(void)
{
    static const char *const places[] = {"/cbf-cuda.so", "/../lib/cbf/cbf-cuda.so", "/cbf-doctor"};
    char own[PATH_MAX] = "", path[PATH_MAX + 32];
    struct stat st;
    ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);
    char *slash = n > 0 ? strrchr(own, '/') : NULL;

    if (slash)
        *slash = '\0';
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        snprintf(path, sizeof(path), "%s%s", own, places[i]);
        if (stat(path, &st) == 0)
            return st.st_mtim.tv_sec;
    }
    return 0;
}

/* Returns true if the cuda device could read the whole entry.  Does not check the entry's owner, because the service's
 * user owns the entry. */
static bool is_whole(int fd, struct hash key)
{
    void *data;
    size_t bytes;

    if (fd < 0 || cache_read_entry(fd, key, &data, &bytes))
        return false;
    free(data);
    return true;
}

/* Checks and counts an entry of the kernel cache.  The entry's name is its key, and the entry contains its
 * checksum. */
static void look_at_entry(int directory, const char *name, int64_t installed, struct cache_state *state)
{
    struct hash key;
    struct stat st;
    char end;
    unsigned long long high, low;

    if (strlen(name) != 36 || sscanf(name, "%16llx%16llx.bi%c", &high, &low, &end) != 3 || end != 'n')
        return;
    state->n++;
    key.high = high;
    key.low = low;
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (!is_whole(fd, key)) {
        state->n_damaged++;
        snprintf(state->damaged, sizeof(state->damaged), "%s", name);
    } else if (fstat(fd, &st) == 0 && st.st_mtim.tv_sec < installed) {
        state->n_old++;
    }
    if (fd >= 0)
        close(fd);
}

/* Returns true if users other than the owner may write to a directory. */
static bool is_shared(DIR *directory)
{
    struct stat st;

    return fstat(dirfd(directory), &st) == 0 && (st.st_mode & (S_IWGRP | S_IWOTH));
}

static void check_cache(struct doctor *doctor, const char *path)
{
    struct cache_state state = {0};
    int64_t installed = installed_s();
    DIR *directory = opendir(path);

    if (!directory && errno != ENOENT) {
        doctor_note(doctor, FINDING_SKIPPED, "gpu.cache", path, "cannot be read: %s", strerror(errno));
        return;
    }
    if (!directory) {
        doctor_note(doctor, FINDING_OK, "gpu.cache", path,
                    "the cache contains no kernels yet: the first start compiles them");
        return;
    }
    bool shared = is_shared(directory);
    for (struct dirent *entry; !shared && (entry = readdir(directory));)
        look_at_entry(dirfd(directory), entry->d_name, installed, &state);
    closedir(directory);
    if (shared) {
        struct finding *f = doctor_add(doctor, FINDING_WARN, "gpu.cache", path);
        SAY(f->found, "users other than the owner may write to this directory");
        SAY(f->expected, "a directory that only its owner may write to");
        SAY(f->why, "the daemon does not use kernels from this directory: each start spends seconds to compile them");
        SAY(f->fix, "rm %s/*.bin && chmod go-w %s", path, path);
        return;
    }
    struct finding *f =
        doctor_add(doctor, state.n_damaged || state.n_old ? FINDING_WARN : FINDING_OK, "gpu.cache", path);
    if (state.n_damaged) {
        SAY(f->found, "%zu of %zu compiled kernels are damaged, among them %s", state.n_damaged, state.n,
            state.damaged);
        SAY(f->why, "each start spends seconds to compile them again; the disk may damage more files");
    } else if (state.n_old) {
        SAY(f->found, "%zu of %zu compiled kernels are older than the installed programs", state.n_old, state.n);
        SAY(f->why, "probably no program uses these kernels any more, but they take disk space; the next start "
                    "spends seconds to compile new kernels");
    } else {
        SAY(f->found, "%zu compiled kernels, all undamaged", state.n);
    }
    SAY(f->expected, "undamaged kernels of the installed version");
    SAY(f->fix, "rm %s/*.bin   # the next start compiles the kernels that it needs", path);
}

/* Returns the cache directory of the file's daemon.  This is the directory in the file, or else the service's directory
 * if it exists, or else this user's directory.  The caller calls free().  Returns NULL if there is no directory. */
static char *cache_of(const struct doctor *doctor, const struct doctor_file *file)
{
    char *path;
    size_t n_stem = strcspn(file->name, ".");

    if (file->device->kernel_cache)
        return strdup(file->device->kernel_cache);
    if (asprintf(&path, "%s/var/cache/cbf/%.*s", doctor->root, (int)n_stem, file->name) < 0)
        abort();
    if (access(path, F_OK) == 0)
        return path;
    free(path);
    return doctor->root[0] ? NULL : image_cache_directory(NULL);
}

static void check_caches(struct doctor *doctor)
{
    char *done[32];
    size_t n_done = 0;

    for (size_t i = 0; i < doctor->n_files && n_done < ARRAY_LEN(done); i++) {
        const struct doctor_file *file = &doctor->files[i];
        if (!file->ok || file->device->kind == DEVICE_CPU)
            continue;
        char *path = cache_of(doctor, file);
        bool again = !path;
        for (size_t d = 0; !again && d < n_done; d++)
            again = strcmp(done[d], path) == 0;
        if (again) {
            free(path);
            continue;
        }
        check_cache(doctor, path);
        done[n_done++] = path;
    }
    while (n_done > 0)
        free(done[--n_done]);
}

void doctor_check_gpu(struct doctor *doctor)
{
    for (struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_ANY, file));) {
        if (file->device->kind == DEVICE_CPU)
            continue;
        check_device(doctor, file);
        check_driver(doctor, file);
    }
    check_bus(doctor);
    check_caches(doctor);
}
