/* Stands before cuInit in every process of a notebook: preloaded (LD_PRELOAD), it lets nobody in without a lease.
 *
 * Clients look the driver up themselves: by dlopen and dlsym, by cuGetProcAddress, or as a library they are linked
 * with. So `dlsym` is ours, and gives these functions in the driver's place; everything else it hands on by a tail
 * call, for what RTLD_NEXT means depends on who calls. The kernel process names a function that is called first
 * (replkernel_cuda_door); another process asks at the socket $REPLKERNEL_CUDA_ASKS, and waits for a line:
 * `go`, `use GPUS` (then CUDA_VISIBLE_DEVICES is these), `no WHY`. Law: who cannot ask is let in: it sees the GPUs
 * that its environment names, none as a rule. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { OK, NO_DEVICE = 100, NO_LIBRARY = 303, V2_SINCE = 12000 };
typedef int (*Asks)(void);
typedef void *(*Lookup)(void *, const char *);
typedef int (*Init)(unsigned);
typedef int (*Get)(const char *, void **, int, uint64_t);
typedef int (*GetV2)(const char *, void **, int, uint64_t, int *);

EXPORT volatile int replkernel_cuda_open; /* In the kernel process: nobody need be asked, nor the GIL waited for. */

static Asks asks;
static pid_t asks_in, passed;
static Init real_init;
static Get real_get;
static GetV2 real_get_v2;

EXPORT void replkernel_cuda_door(Asks whom) {
    asks = whom;
    asks_in = getpid();
}

static Lookup found_lookup(void) {
    static Lookup real;
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.27"};
    for (unsigned i = 0; !real && i < sizeof versions / sizeof *versions; i++)
        real = (Lookup)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (!real) _exit(127); /* Another C library: whoever preloads this has tried it before. */
    return real;
}

/* -- a process that the notebook has started ------------------------------------------------------------ */

/* Put down one line of an answer; return whether there was one. */
static int answer(const char *path, char *line, int size) {
    const char *seen = getenv("CUDA_VISIBLE_DEVICES"), *hidden = getenv("REPLKERNEL_CUDA_HIDDEN");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char asked[4096];
    int used = 0, count = 1;
    if (strlen(path) >= sizeof to.sun_path) return 0;
    strcpy(to.sun_path, path);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0) return 0;
    int length = snprintf(asked, sizeof asked, "%d %s %s\n", (int)getpid(), hidden ? "hidden" : "seen", seen ? seen : "*");
    if (length < (int)sizeof asked && !connect(made, (struct sockaddr *)&to, sizeof to) &&
        send(made, asked, length, MSG_NOSIGNAL) == length)
        while (used < size - 1 && count && !memchr(line, '\n', used)) {
            do count = (int)read(made, line + used, size - 1 - used);
            while (count < 0 && errno == EINTR);
            used += count > 0 ? count : (count = 0);
        }
    close(made);
    line[used] = 0;
    line[strcspn(line, "\n")] = 0;
    return used > 0;
}

/* Python keeps a copy of the environment: it is told by its main thread, whoever is waited for here. */
static int tell_python(void *unused) {
    int (*run)(const char *, void *) = (int (*)(const char *, void *))found_lookup()(RTLD_DEFAULT, "PyRun_SimpleStringFlags");
    char text[4300];
    (void)unused;
    snprintf(text, sizeof text, "import os; os.environ['CUDA_VISIBLE_DEVICES'] = '%s'; "
             "os.environ.pop('REPLKERNEL_CUDA_HIDDEN', None)", getenv("CUDA_VISIBLE_DEVICES"));
    return run && !strpbrk(getenv("CUDA_VISIBLE_DEVICES"), "'\\") ? run(text, NULL) : 0;
}

static void use(const char *gpus) {
    int (*later)(int (*)(void *), void *) = (int (*)(int (*)(void *), void *))found_lookup()(RTLD_DEFAULT, "Py_AddPendingCall");
    setenv("CUDA_VISIBLE_DEVICES", gpus, 1);
    unsetenv("REPLKERNEL_CUDA_HIDDEN");
    if (later) later(tell_python, NULL);
}

static int let_in(void) {
    const char *path = getenv("REPLKERNEL_CUDA_ASKS");
    char line[4096];
    if (asks && asks_in == getpid()) return replkernel_cuda_open ? OK : asks();
    if (passed == getpid() || !path || !*path || !answer(path, line, sizeof line)) return OK;
    if (!strncmp(line, "no ", 3)) {
        fprintf(stderr, "replkernel: %s\n", line + 3);
        return NO_DEVICE;
    }
    if (!strncmp(line, "use ", 4)) use(line + 4);
    passed = getpid();
    return OK;
}

/* -- in the driver's place ------------------------------------------------------------------------------- */

/* Return the driver's own function, for a client that is linked with it. */
static void *drivers(const char *name, void *ours) {
    void *found = found_lookup()(RTLD_NEXT, name);
    if (found && found != ours) return found;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    return library ? found_lookup()(library, name) : NULL;
}

EXPORT int cuInit(unsigned flags) {
    int told = let_in();
    if (told) return told;
    if (!real_init) real_init = (Init)drivers("cuInit", (void *)cuInit);
    return real_init ? real_init(flags) : NO_LIBRARY;
}

static void *in_place_of(const char *name, void *found, int version);

EXPORT int cuGetProcAddress(const char *name, void **found, int version, uint64_t flags) {
    if (!real_get) real_get = (Get)drivers("cuGetProcAddress", (void *)cuGetProcAddress);
    int told = real_get ? real_get(name, found, version, flags) : NO_LIBRARY;
    if (!told && name && found && *found) *found = in_place_of(name, *found, version);
    return told;
}

EXPORT int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
    if (!real_get_v2) real_get_v2 = (GetV2)drivers("cuGetProcAddress_v2", (void *)cuGetProcAddress_v2);
    int told = real_get_v2 ? real_get_v2(name, found, version, flags, status) : NO_LIBRARY;
    if (!told && name && found && *found) *found = in_place_of(name, *found, version);
    return told;
}

/* Return ours in place of a function of the driver that has been found; `version`: CUDA's that was asked for. */
static void *in_place_of(const char *name, void *found, int version) {
    int is_v2 = !strcmp(name, "cuGetProcAddress_v2") || (version >= V2_SINCE && !strcmp(name, "cuGetProcAddress"));
    if (!strcmp(name, "cuInit")) {
        if (found != (void *)cuInit) real_init = (Init)found;
        return (void *)cuInit;
    }
    if (is_v2) {
        if (found != (void *)cuGetProcAddress_v2) real_get_v2 = (GetV2)found;
        return (void *)cuGetProcAddress_v2;
    }
    if (!strcmp(name, "cuGetProcAddress")) {
        if (found != (void *)cuGetProcAddress) real_get = (Get)found;
        return (void *)cuGetProcAddress;
    }
    return found;
}

__attribute__((noinline)) static void *ours(Lookup real, void *handle, const char *name) {
    void *found = real(handle, name);
    return found ? in_place_of(name, found, 0) : found;
}

EXPORT void *dlsym(void *__restrict handle, const char *__restrict name) {
    Lookup real = found_lookup();
    if (handle != RTLD_NEXT && (!strcmp(name, "cuInit") || !strncmp(name, "cuGetProcAddress", 16)))
        return ours(real, handle, name);
    return real(handle, name);
}
