/* direct.c - checks the requirements for writing to the GPU's memory, by receive threads (recv.direct) or by a NIC
 * (recv.gpudirect).  The requirements are Vulkan, a GPU memory window (BAR) that is large enough, and a driver that
 * shares memory. */
#include "tools/doctor/doctor.h"
#include "tools/doctor/sys.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* First version of Linux in which a NIC can use the dma-bufs of another device. */
#define DMA_BUF_MAJOR 5
#define DMA_BUF_MINOR 12

static bool any_file(const char *root, const char *pattern)
{
    char path[PATH_MAX];
    glob_t found;

    snprintf(path, sizeof(path), "%s%s", root, pattern);
    bool any = glob(path, GLOB_NOSORT | GLOB_BRACE, NULL, &found) == 0;
    if (any)
        globfree(&found);
    return any;
}

/* ---- Vulkan ------------------------------------------------------------------------------------------------------ */

static bool has_loader(const char *root)
{
    if (root[0])
        return any_file(root, "{/usr,/usr/local,}/lib{,64,/*}/libvulkan.so.1");
    void *loader = dlopen("libvulkan.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (loader)
        dlclose(loader);
    return loader != NULL;
}

static void check_vulkan(struct doctor *doctor)
{
    bool loader = has_loader(doctor->root);
    bool driver = any_file(doctor->root, "{/etc,/usr/share,/usr/local/share}/vulkan/icd.d/*nvidia*.json");
    const char *told = doctor->root[0] ? NULL : getenv("VK_DRIVER_FILES");

    enum finding_status status = loader && driver ? FINDING_OK : loader && told ? FINDING_WARN : FINDING_FAIL;
    struct finding *f = doctor_add(doctor, status, "direct.vulkan", "");
    SAY(f->found, "libvulkan.so.1 %s; %s", loader ? "is there" : "is not there",
        driver ? "NVIDIA's driver is registered"
        : told ? "VK_DRIVER_FILES is set in this shell, but perhaps not for the daemon"
               : "no file of NVIDIA's driver is in vulkan/icd.d");
    SAY(f->expected, "the Vulkan loader, and NVIDIA's driver in a directory that the loader searches");
    SAY(f->why, "recv.direct maps the GPU's memory with Vulkan; without Vulkan, the daemon does not start");
    SAY(f->fix,
        "sudo apt install libvulkan1 nvidia-vulkan-icd   # or VK_DRIVER_FILES=.../nvidia_icd.json for the daemon");
}

static void check_modeset(struct doctor *doctor)
{
    bool found = sys_exists(doctor->root, "/dev/nvidia-modeset");
    struct finding *f = doctor_add(doctor, found ? FINDING_OK : FINDING_WARN, "direct.modeset", "");

    SAY(f->found, "/dev/nvidia-modeset %s", found ? "is there" : "is not there");
    SAY(f->expected, "the device of the kernel module nvidia-modeset");
    SAY(f->why, "without this device NVIDIA's Vulkan driver may find no GPU (driver 580 does find an H200); a daemon "
                "with recv.direct then does not start");
    SAY(f->fix, "sudo nvidia-modprobe -m   # at each boot, gpucbf-gpu.service (package gpucbf-cuda) does this");
}

/* ---- The GPU's memory window (BAR) ------------------------------------------------------------------------------- */

/* Returns the size of the GPU's memory window.  The window is the device's largest PCI region; its region number
 * differs between devices.  Returns 0 if the regions are not visible. */
static uint64_t window_bytes(const char *root, const char *address)
{
    char path[PATH_MAX];
    unsigned long long first, last;
    uint64_t largest = 0;

    snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/resource", root, address);
    FILE *file = fopen(path, "r");
    for (int bar = 0; file && bar < 6 && fscanf(file, "%llx %llx %*x", &first, &last) == 2; bar++)
        if (last > first && last - first + 1 > largest)
            largest = last - first + 1;
    if (file)
        fclose(file);
    return largest;
}

static void check_window(struct doctor *doctor, const struct doctor_file *file)
{
    char address[SYS_PCI_BYTES];
    bool known = doctor_file_gpu(doctor, file, address);
    uint64_t window = known ? window_bytes(doctor->root, address) : 0;
    enum finding_status status = !window ? FINDING_SKIPPED : window < file->window_bytes ? FINDING_FAIL : FINDING_OK;
    struct finding *f = doctor_add(doctor, status, "direct.bar", file->name);
    if (window)
        SAY(f->found, "on GPU %s, %llu MiB of memory can be mapped", address, (unsigned long long)(window / MIB));
    else
        SAY(f->found, "the GPU is not known, or its BAR cannot be read");
    SAY(f->expected, "%llu MiB for %s, and some more for the driver",
        (unsigned long long)((file->window_bytes + MIB - 1) / MIB),
        !file->recv->direct ? "the NIC's frames and buffers"
        : file->gpudirect   ? "chunks and the NIC's buffers"
                            : "chunks");
    SAY(f->why, "mapped memory must fit in the GPU's PCIe window (BAR); otherwise the daemon does not start");
    SAY(f->fix, "nvidia-smi -q -d MEMORY   # BAR1; allow Above 4G Decoding and Resizable BAR in the firmware, or lower "
                "recv.chunks");
}

/* ---- Sharing ----------------------------------------------------------------------------------------------------- */

static void check_dma_buf(struct doctor *doctor)
{
    char release[64] = "", version[256] = "";
    unsigned major = 0, minor = 0;

    bool seen = sys_text(doctor->root, release, sizeof(release), "/proc/sys/kernel/osrelease") &&
                sscanf(release, "%u.%u", &major, &minor) == 2 &&
                sys_text(doctor->root, version, sizeof(version), "/proc/driver/nvidia/version");
    bool is_new = major > DMA_BUF_MAJOR || (major == DMA_BUF_MAJOR && minor >= DMA_BUF_MINOR);
    bool is_open = strstr(version, "Open Kernel Module");
    enum finding_status status = !seen ? FINDING_SKIPPED : is_new && is_open ? FINDING_OK : FINDING_FAIL;
    struct finding *f = doctor_add(doctor, status, "direct.dmabuf", "");
    if (seen)
        SAY(f->found, "Linux %s, %s kernel modules of NVIDIA", release, is_open ? "the open" : "not the open");
    else
        SAY(f->found, "the versions of the kernel and of NVIDIA's modules cannot be seen");
    SAY(f->expected, "Linux %d.%d or later, and NVIDIA's open kernel modules", DMA_BUF_MAJOR, DMA_BUF_MINOR);
    SAY(f->why, "older versions share no GPU memory with NICs, so a daemon with gpudirect does not start");
    SAY(f->fix, "sudo apt install nvidia-open-kernel-dkms   # and reboot");
}

void doctor_check_direct(struct doctor *doctor)
{
    size_t n_direct = 0, n_gpudirect = 0;

    for (const struct doctor_file *file = NULL; (file = doctor_next(doctor, DOCTOR_ANY, file));) {
        if (!(file->recv->direct || file->gpudirect) || doctor_file_on_cpu(doctor, file))
            continue;
        if (file->recv->direct && n_direct++ == 0) {
            check_vulkan(doctor);
            check_modeset(doctor);
        }
        if (file->gpudirect && n_gpudirect++ == 0)
            check_dma_buf(doctor);
        check_window(doctor, file);
    }
}
