/* A libcuda.so.1 that computes nothing: as much of the driver as its real Python clients call.
 *
 * Checkpoints follow cuda.h: running, lock, locked, checkpoint, checkpointed, restore, locked, unlock; any other
 * order is CUDA_ERROR_ILLEGAL_STATE. Other calls of a process that is not running block until it is. `script`:
 * `gpu UUID MODEL …` a device, in NVML's order; `order N N …` CUDA's own; `version N` (12080); `fail for-good 1`:
 * a restore that fails leaves the process failed. cuInit opens dev/nvidiactl and dev/nvidia-uvm, a context
 * dev/nvidia0: files in the stubs' own folder. */
#include "stub.h"
#include <sys/mman.h>

typedef int CUresult;
typedef struct { unsigned char bytes[16]; } CUuuid;
typedef struct { CUuuid before, after; } Pair;
typedef struct { Pair *pairs; unsigned count; } RestoreArgs;
enum { OK, INVALID = 1, MEMORY = 2, NOT_INITIALIZED = 3, ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_SUPPORTED = 801 };
#define EXPORT __attribute__((visibility("default")))
#define ENTER(name) do { wait_until_running(); int told = told_to_fail(name); if (told) return told; } while (0)

static int started, context;

static const char *state_of(int pid) {
    static __thread char text[32];
    return read_text(place("state", pid), text, sizeof text) ? text : "running";
}

static void wait_until_running(void) {
    for (int first = 1; strcmp(state_of(getpid()), "running"); first = 0) {
        if (first) note("blocked");
        usleep(2000);
    }
}

static int64_t bytes_in(const char *name, int pid) {
    char text[32];
    return read_text(place(name, pid), text, sizeof text) ? atoll(text) : 0;
}

static void hold(int64_t count) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)(bytes_in("held", getpid()) + count));
    write_text(place("held", getpid()), text);
}

EXPORT CUresult cuInit(unsigned flags) {
    ENTER("cuInit");
    note("cuInit");
    if (!started++) {
        open(place("dev/nvidiactl", 0), O_RDONLY);
        open(place("dev/nvidia-uvm", 0), O_RDONLY);
    }
    return OK;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    char text[8192], *found;
    *version = 12080;
    if (read_text(place("script", 0), text, sizeof text) && (found = strstr(text, "version ")))
        *version = atoi(found + 8);
    return OK;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = error == MEMORY          ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED"
            : error == ILLEGAL_STATE ? "CUDA_ERROR_ILLEGAL_STATE"
            : error == 600           ? "CUDA_ERROR_NOT_READY"
                                     : "CUDA_ERROR_UNKNOWN";
    return OK;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = error == MEMORY ? "out of memory" : "as the script says";
    return OK;
}

/* Return how many devices there are; put down the UUID of the one that CUDA calls `wanted`. */
static int devices(int wanted, CUuuid *uuid) {
    char text[8192], *line, *rest = text, *order;
    int count = 0;
    if (!read_text(place("script", 0), text, sizeof text)) return 0;
    if ((order = strstr(text, "order ")) && wanted >= 0) {
        order += 6;
        for (int i = wanted; i >= 0; i--) wanted = (int)strtol(order, &order, 10);
    }
    while ((line = strsep(&rest, "\n"))) {
        if (strncmp(line, "gpu GPU-", 8)) continue;
        if (count++ != wanted) continue;
        char *at = line + 8;
        for (int i = 0; i < 16; i++, at += 2) {
            if (*at == '-') at++;
            sscanf(at, "%2hhx", &uuid->bytes[i]);
        }
    }
    return count;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
    ENTER("cuDeviceGetCount");
    *count = devices(-1, 0);
    return started ? OK : NOT_INITIALIZED;
}

EXPORT CUresult cuDeviceGet(int *device, int number) {
    *device = number;
    return number < devices(-1, 0) ? OK : INVALID;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, int device) { return devices(device, uuid) > device ? OK : INVALID; }

EXPORT CUresult cuDevicePrimaryCtxRetain(void **made, int device) {
    ENTER("cuDevicePrimaryCtxRetain");
    note("cuDevicePrimaryCtxRetain %d", device);
    if (!started) return NOT_INITIALIZED;
    if (!context++) open(place("dev/nvidia0", 0), O_RDONLY);
    *made = &context;
    return OK;
}

EXPORT CUresult cuCtxSetCurrent(void *made) { return OK; }

EXPORT CUresult cuCtxSynchronize(void) {
    ENTER("cuCtxSynchronize");
    note("cuCtxSynchronize");
    return context ? OK : NOT_INITIALIZED;
}

EXPORT CUresult cuMemAlloc_v2(unsigned long long *address, size_t size) {
    ENTER("cuMemAlloc");
    note("cuMemAlloc %zu", size);
    if (!context) return NOT_INITIALIZED;
    hold((int64_t)size);
    *address = 0x7f0000000000ull;
    return OK;
}

EXPORT CUresult cuMemAllocManaged(unsigned long long *address, size_t size, unsigned flags) {
    char path[4096];
    CUresult told = cuMemAlloc_v2(address, size);
    int file = told ? -1 : open(strcpy(path, place("dev/nvidia-uvm", 0)), O_RDONLY);
    for (int i = 0; file >= 0 && i < 2; i++) mmap(0, 4096, PROT_READ, MAP_SHARED, file, 0);
    return told;
}

/* -- a process's checkpoint ------------------------------------------------------------------------- */

static CUresult step(const char *name, int pid, const char *needs, const char *then) {
    int told = told_to_fail(name);
    if (!told && strcmp(state_of(pid), needs)) told = ILLEGAL_STATE;
    if (!told) write_text(place("state", pid), then);
    return told;
}

EXPORT CUresult cuCheckpointProcessLock(int pid, unsigned *args) {
    note("lock %d timeout=%u", pid, args ? args[0] : 0);
    return step("cuCheckpointProcessLock", pid, "running", "locked");
}

EXPORT CUresult cuCheckpointProcessCheckpoint(int pid, void *args) {
    note("checkpoint %d", pid);
    CUresult told = step("cuCheckpointProcessCheckpoint", pid, "locked", "checkpointed");
    if (!told) rename(place("held", pid), place("off", pid));
    return told;
}

EXPORT CUresult cuCheckpointProcessRestore(int pid, RestoreArgs *args) {
    char text[1024] = "";
    for (unsigned i = 0; args && i < args->count && i < 8; i++)
        snprintf(text + strlen(text), 16, " %02x>%02x", args->pairs[i].before.bytes[0], args->pairs[i].after.bytes[0]);
    note("restore %d%s", pid, text);
    CUresult told = step("cuCheckpointProcessRestore", pid, "checkpointed", "locked");
    if (told && told_to_fail("for-good")) write_text(place("state", pid), "failed");
    if (!told) rename(place("off", pid), place("held", pid));
    return told;
}

EXPORT CUresult cuCheckpointProcessUnlock(int pid, void *args) {
    note("unlock %d", pid);
    return step("cuCheckpointProcessUnlock", pid, "locked", "running");
}

EXPORT CUresult cuCheckpointProcessGetState(int pid, int *state) {
    static const char *names[] = {"running", "locked", "checkpointed", "failed"};
    for (*state = 0; *state < 3 && strcmp(state_of(pid), names[*state]); ++*state) {}
    return told_to_fail("cuCheckpointProcessGetState");
}

EXPORT CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *thread) { return *thread = pid, OK; }

/* -- how clients find all this ------------------------------------------------------------------------ */

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
#define IS(symbol, function) if (!strcmp(name, symbol)) { *found = (void *)function; if (status) *status = 0; return OK; }
    IS("cuInit", cuInit) IS("cuDriverGetVersion", cuDriverGetVersion) IS("cuGetErrorName", cuGetErrorName)
    IS("cuGetErrorString", cuGetErrorString) IS("cuDeviceGetCount", cuDeviceGetCount) IS("cuDeviceGet", cuDeviceGet)
    IS("cuDeviceGetUuid", cuDeviceGetUuid_v2) IS("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain)
    IS("cuCtxSetCurrent", cuCtxSetCurrent) IS("cuCtxSynchronize", cuCtxSynchronize) IS("cuMemAlloc", cuMemAlloc_v2)
    IS("cuMemAllocManaged", cuMemAllocManaged)
    IS("cuCheckpointProcessLock", cuCheckpointProcessLock) IS("cuCheckpointProcessUnlock", cuCheckpointProcessUnlock)
    IS("cuCheckpointProcessCheckpoint", cuCheckpointProcessCheckpoint)
    IS("cuCheckpointProcessRestore", cuCheckpointProcessRestore)
    IS("cuCheckpointProcessGetState", cuCheckpointProcessGetState)
    IS("cuCheckpointProcessGetRestoreThreadId", cuCheckpointProcessGetRestoreThreadId)
    IS("cuGetProcAddress", cuGetProcAddress_v2)
    *found = 0;
    if (status) *status = 1;
    return NOT_FOUND;
}
