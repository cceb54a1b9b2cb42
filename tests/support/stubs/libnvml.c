/* A libnvidia-ml.so.1 that reads its machine from `script`: as much as pynvml's callers here ask for.
 *
 *   gpu UUID MODEL TOTAL_BYTES    a device; the lines below it are its own
 *   mig UUID                      an instance of it: the device is split
 *   process PID BYTES             who computes there; BYTES -1: the driver does not tell; a foreign PID is one
 *   graphics PID BYTES            that no process here has. Processes under the stub libcuda are on GPU 0 by
 *                                 themselves, unless `hidden` is said: then the driver tells of none here.
 *   fail FUNCTION CODE            3: not supported, 4: no permission */
#include "stub.h"

typedef int Result;
typedef struct { unsigned pid; unsigned long long bytes; unsigned part, compute; } Process;
typedef struct { char uuid[64], model[64]; unsigned long long total; int mig, processes, graphics; Process of[32], drawing[8]; } Device;
enum { OK, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7 };
#define EXPORT __attribute__((visibility("default")))
#define DEVICES 16

static Device found[DEVICES];
static int count;

static void add(Device *on, int drawing, long pid, long long bytes) {
    Process *at = drawing ? &on->drawing[on->graphics++ & 7] : &on->of[on->processes++ & 31];
    *at = (Process){(unsigned)pid, (unsigned long long)bytes, ~0u, ~0u};
}

static void add_clients(void) {
    DIR *folder = opendir(place(".", 0));
    struct dirent *each;
    char text[32];
    int pid;
    while (folder && (each = readdir(folder)))
        if (sscanf(each->d_name, "held.%d", &pid) == 1 && !strchr(each->d_name + 5, '.') && read_text(place("held", pid), text, sizeof text))
            add(&found[0], 0, pid, atoll(text));
    if (folder) closedir(folder);
}

/* Read the machine anew: handles are places in `found`, + 1. */
static void look(void) {
    char text[8192], *line, *rest = text;
    long pid;
    long long bytes;
    int hidden = 0;
    memset(found, 0, sizeof found);
    count = 0;
    if (!read_text(place("script", 0), text, sizeof text)) return;
    while ((line = strsep(&rest, "\n")) && count < DEVICES) {
        Device *last = &found[count ? count - 1 : 0], *next = &found[count];
        if (sscanf(line, "gpu %63s %63s %llu", next->uuid, next->model, &next->total) == 3) count++;
        else if (sscanf(line, "mig %63s", next->uuid) == 1) next->mig = 1, next->total = last->total / 7, count++;
        else if (sscanf(line, "process %ld %lld", &pid, &bytes) == 2) add(last, 0, pid, bytes);
        else if (sscanf(line, "graphics %ld %lld", &pid, &bytes) == 2) add(last, 1, pid, bytes);
        else if (!strcmp(line, "hidden")) hidden = 1;
    }
    if (!hidden && count) add_clients();
}

#define ENTER(name) do { note(name); int told = told_to_fail(name); if (told) return told; look(); } while (0)

static Device *at(void *handle) { return &found[((uintptr_t)handle - 1) % DEVICES]; }

/* Return the number of the device that is `wanted`th of the whole ones (`under` 0), or of one's instances. */
static int nth(int under, unsigned wanted) {
    for (int i = under; i < count; i++) {
        if (under && !found[i].mig) return -1;
        if (found[i].mig == !!under && !wanted--) return i;
    }
    return -1;
}

EXPORT Result nvmlInitWithFlags(unsigned flags) {
    ENTER("nvmlInit");
    open(place("dev/nvidiactl", 0), O_RDONLY);
    open(place("dev/nvidia0", 0), O_RDONLY);
    return OK;
}

EXPORT Result nvmlSystemGetCudaDriverVersion_v2(int *version) {
    char text[8192], *said;
    *version = read_text(place("script", 0), text, sizeof text) && (said = strstr(text, "version ")) ? atoi(said + 8) : 12080;
    return OK;
}

EXPORT Result nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

EXPORT Result nvmlShutdown(void) { return OK; }

EXPORT const char *nvmlErrorString(Result error) {
    return error == 4 ? "Insufficient Permissions" : error == NOT_SUPPORTED ? "Not Supported" : "as the script says";
}

EXPORT Result nvmlDeviceGetCount_v2(unsigned *out) {
    ENTER("nvmlDeviceGetCount");
    for (*out = 0; nth(0, *out) >= 0; ++*out) {}
    return OK;
}

EXPORT Result nvmlDeviceGetHandleByIndex_v2(unsigned number, void **out) {
    ENTER("nvmlDeviceGetHandleByIndex");
    int place = nth(0, number);
    *out = (void *)(uintptr_t)(place + 1);
    return place < 0 ? INVALID : OK;
}

EXPORT Result nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    ENTER("nvmlDeviceGetHandleByUUID");
    for (int i = 0; i < count; i++)
        if (!strcmp(found[i].uuid, uuid)) return *out = (void *)(uintptr_t)(i + 1), OK;
    return NOT_FOUND;
}

EXPORT Result nvmlDeviceGetName(void *handle, char *out, unsigned size) {
    ENTER("nvmlDeviceGetName");
    return snprintf(out, size, "%s", at(handle)->model), OK;
}

EXPORT Result nvmlDeviceGetUUID(void *handle, char *out, unsigned size) {
    ENTER("nvmlDeviceGetUUID");
    return snprintf(out, size, "%s", at(handle)->uuid), OK;
}

EXPORT Result nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *out) {
    ENTER("nvmlDeviceGetMemoryInfo");
    Device *on = at(handle);
    out[0] = on->total, out[2] = 0;
    for (int i = 0; i < on->processes; i++)
        if ((long long)on->of[i].bytes > 0) out[2] += on->of[i].bytes;
    out[1] = out[0] - out[2];
    return OK;
}

EXPORT Result nvmlDeviceGetUtilizationRates(void *handle, unsigned *out) {
    ENTER("nvmlDeviceGetUtilizationRates");
    return out[0] = 50, out[1] = 25, OK;
}

EXPORT Result nvmlDeviceGetMigMode(void *handle, unsigned *present, unsigned *pending) {
    ENTER("nvmlDeviceGetMigMode");
    return *present = *pending = (unsigned)(nth((int)(uintptr_t)handle, 0) > 0), OK;
}

EXPORT Result nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *out) {
    ENTER("nvmlDeviceGetMaxMigDeviceCount");
    return *out = 7, OK;
}

EXPORT Result nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned number, void **out) {
    ENTER("nvmlDeviceGetMigDeviceHandleByIndex");
    int place = nth((int)(uintptr_t)handle, number);
    *out = (void *)(uintptr_t)(place + 1);
    return place < 0 ? NOT_FOUND : OK;
}

static Result give(const Process *from, int there, unsigned *room, Process *out) {
    unsigned had = *room;
    *room = (unsigned)there;
    if (there && (!out || had < *room)) return SMALL;
    for (int i = 0; i < there; i++) out[i] = from[i];
    return OK;
}

EXPORT Result nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *room, Process *out) {
    ENTER("nvmlDeviceGetComputeRunningProcesses");
    return give(at(handle)->of, at(handle)->processes, room, out);
}

EXPORT Result nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *room, Process *out) {
    ENTER("nvmlDeviceGetGraphicsRunningProcesses");
    return give(at(handle)->drawing, at(handle)->graphics, room, out);
}
