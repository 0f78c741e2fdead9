/*
 * What it costs to finish one message while an older one is held open: nanoseconds and, where
 * the kernel lets us count, instructions; and that it allocates nothing (exit 1 when it does).
 *
 *   window_mark [ROUNDS]
 *
 * Each round delivers 2000 offsets, the default span, marks all but the first in a mixed order, and
 * then the first.
 */
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/window.h"

enum { SPAN = 2000, CAPACITY = 4096, STRIDE = 7, ROUNDS_DEFAULT = 20000 };

static unsigned long allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

void *__wrap_malloc(size_t size)
{
    allocations++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    allocations++;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    allocations++;
    return __real_realloc(old, size);
}

/* -1: not allowed here. */
static int instruction_counter(void)
{
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.type = PERF_TYPE_HARDWARE;
    attr.size = sizeof attr;
    attr.config = PERF_COUNT_HW_INSTRUCTIONS;
    attr.disabled = 1;
    attr.exclude_kernel = 1;
    attr.exclude_hv = 1;
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

static void deliver(struct window *window, int64_t first)
{
    int64_t offsets[SPAN];
    int64_t pulled;
    for (int64_t i = 0; i < SPAN; i++)
        offsets[i] = first + i;
    if (window_admit(window, first + SPAN, offsets, SPAN, &pulled) != SPAN)
        abort();
}

/* All but the first, each once. */
static void mark_others(struct window *window, int64_t first)
{
    for (int64_t start = 0; start < STRIDE; start++)
        for (int64_t i = start; i < SPAN; i += STRIDE)
            if (i > 0 && !window_mark(window, first + i))
                abort();
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : ROUNDS_DEFAULT;
    struct window window;
    if (rounds < 1 || window_init(&window, CAPACITY) != TERN_OK)
        return 2;
    int counter = instruction_counter();
    int64_t spent_ns = 0;
    allocations = 0;
    for (int64_t round = 0; round < rounds; round++) {
        deliver(&window, round * SPAN);
        if (counter >= 0)
            ioctl(counter, PERF_EVENT_IOC_ENABLE, 0);
        int64_t from_ns = clock_mono_ns(clock_system());
        mark_others(&window, round * SPAN);
        spent_ns += clock_mono_ns(clock_system()) - from_ns;
        if (counter >= 0)
            ioctl(counter, PERF_EVENT_IOC_DISABLE, 0);
        if (window_left(&window) != round * SPAN || !window_mark(&window, round * SPAN))
            abort();
    }
    double marks = (double)rounds * (SPAN - 1);
    uint64_t instructions = 0;
    printf("mark with a hole open: %.1f ns", (double)spent_ns / marks);
    if (counter >= 0 && read(counter, &instructions, sizeof instructions) == sizeof instructions)
        printf(", %.1f instructions", (double)instructions / marks);
    printf(", %lu allocations\n", allocations);
    window_fini(&window);
    return allocations > 0;
}
