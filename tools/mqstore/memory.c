/* Memory that is there or ends the process. Threads: any. */
#include "tools/mqstore/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *there(void *memory)
{
    if (memory)
        return memory;
    fputs("mqstore: out of memory\n", stderr);
    exit(1);
}

void *tool_alloc(size_t count, size_t size)
{
    return there(calloc(count ? count : 1, size));
}

char *tool_strdup(const char *text)
{
    return there(strdup(text));
}

void *tool_resize(void *array, size_t count, size_t size)
{
    if (count > SIZE_MAX / size)
        return there(NULL);
    return there(realloc(array, count * size));
}

/* Doubles at each power of two, so that no capacity need be kept. */
void *tool_grow(void *array, size_t count, size_t size)
{
    if (count & (count - 1))
        return array;
    return tool_resize(array, count ? count * 2 : 1, size);
}
