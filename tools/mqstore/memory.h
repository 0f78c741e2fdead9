/* Memory for the tool: without it the process ends with a line on stderr, status 1. */
#ifndef MQSTORE_MEMORY_H
#define MQSTORE_MEMORY_H

#include <stddef.h>

/* Zeroed; for free(). */
void *tool_alloc(size_t count, size_t size);
char *tool_strdup(const char *text);
/* An array for one more element than `count`; returned in place of `array`. Zeroes nothing. */
void *tool_grow(void *array, size_t count, size_t size);
/* realloc(). */
void *tool_resize(void *array, size_t count, size_t size);

#endif
