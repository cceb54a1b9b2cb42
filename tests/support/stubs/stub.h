/* What both stub drivers share: a folder ($STUB_DRIVERS) that says what they do, and that they write.
 *
 *   script        read at each call: `fail FUNCTION CODE [TIMES]`, and what each stub's own file says of it
 *   calls         a line a call of interest: `PID FUNCTION what it was given`
 *   state.PID     how a process stands: running, locked, checkpointed, failed
 *   held.PID      the bytes that a process has on GPU 0; off.PID: those that its checkpoint has taken off
 *
 *   dev/          stands for /dev: what a library has open there is seen in /proc/PID/fd
 *
 * Law: what a call has done is in the folder, so that tests and other processes read what is true. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *place(const char *name, int pid) {
    static __thread char path[2][4096];
    static __thread int turn;
    char *out = path[turn ^= 1];
    const char *root = getenv("STUB_DRIVERS");
    if (pid)
        snprintf(out, 4096, "%s/%s.%d", root ? root : "/nonexistent", name, pid);
    else
        snprintf(out, 4096, "%s/%s", root ? root : "/nonexistent", name);
    return out;
}

static void note(const char *format, ...) {
    char line[1024];
    int used = snprintf(line, sizeof line, "%d ", (int)getpid());
    va_list rest;
    va_start(rest, format);
    used += vsnprintf(line + used, sizeof line - used - 1, format, rest);
    va_end(rest);
    line[used++] = '\n';
    int file = open(place("calls", 0), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file >= 0) {
        if (write(file, line, used) != used) abort();
        close(file);
    }
}

/* Read a small file into `text`; return whether there is one. */
static int read_text(const char *path, char *text, int size) {
    int file = open(path, O_RDONLY), count;
    if (file < 0) return 0;
    count = (int)read(file, text, size - 1);
    text[count > 0 ? count : 0] = 0;
    close(file);
    return 1;
}

/* Write a small file in one step, for those who read it meanwhile. */
__attribute__((unused)) static void write_text(const char *path, const char *text) {
    char fresh[4200];
    snprintf(fresh, sizeof fresh, "%s.new%d", path, (int)gettid());
    int file = open(fresh, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0) return;
    if (write(file, text, strlen(text)) != (ssize_t)strlen(text)) abort();
    close(file);
    rename(fresh, path);
}

/* Return what a call is to fail with: `fail FUNCTION CODE`, for good or so many TIMES. */
static int told_to_fail(const char *function) {
    static struct { char name[64]; int seen; } counts[16];
    char text[8192], name[64], *line, *rest = text;
    int code, times, which = 0;
    if (!read_text(place("script", 0), text, sizeof text)) return 0;
    while ((line = strsep(&rest, "\n"))) {
        times = 0;
        if (sscanf(line, "fail %63s %d %d", name, &code, &times) < 2 || strcmp(name, function)) continue;
        if (!times) return code;
        while (which < 15 && counts[which].name[0] && strcmp(counts[which].name, name)) which++;
        strcpy(counts[which].name, name);
        if (counts[which].seen++ < times) return code;
    }
    return 0;
}
