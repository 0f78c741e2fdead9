/* Making the Nth allocation fail. Threads: each counts its own. */
#include "fail_alloc.h"

#include <stdbool.h>
#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static _Thread_local bool armed;
static _Thread_local unsigned left;

void fail_alloc_at(unsigned n)
{
    armed = true;
    left = n;
}

void fail_alloc_never(void)
{
    armed = false;
}

static bool fails(void)
{
    if (!armed)
        return false;
    armed = left > 0;
    return left-- == 0;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}
