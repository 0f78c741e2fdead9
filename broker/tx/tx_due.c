/* The heap, and the sweeping of what is stale. */
#include "broker/tx/tx_due.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void tx_due_init(struct tx_due *due, bool (*is_stale)(const void *arg, const struct tx_due_item *),
                 const void *arg)
{
    *due = (struct tx_due){.is_stale = is_stale, .arg = arg};
}

void tx_due_fini(struct tx_due *due)
{
    free(due->items);
    due->items = NULL;
    due->count = due->capacity = due->cursor = 0;
}

bool tx_due_reserve(struct tx_due *due, size_t capacity)
{
    if (capacity <= due->capacity)
        return true;
    struct tx_due_item *items = realloc(due->items, capacity * sizeof *items);
    if (!items)
        return false;
    due->items = items;
    due->capacity = capacity;
    return true;
}

static void rise(struct tx_due *due, size_t at)
{
    struct tx_due_item item = due->items[at];
    while (at > 0 && item.check_ns < due->items[(at - 1) / 2].check_ns) {
        due->items[at] = due->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    due->items[at] = item;
}

static void sink(struct tx_due *due, size_t at)
{
    struct tx_due_item item = due->items[at];
    for (size_t child = 2 * at + 1; child < due->count; child = 2 * at + 1) {
        if (child + 1 < due->count && due->items[child + 1].check_ns < due->items[child].check_ns)
            child++;
        if (item.check_ns <= due->items[child].check_ns)
            break;
        due->items[at] = due->items[child];
        at = child;
    }
    due->items[at] = item;
}

static void remove_at(struct tx_due *due, size_t at)
{
    due->count--;
    if (at == due->count)
        return;
    due->items[at] = due->items[due->count];
    rise(due, at);
    sink(due, at);
}

/* Looks at so many from the cursor on. */
static void sweep(struct tx_due *due, size_t looks)
{
    for (; looks > 0 && due->count > 0; looks--) {
        if (due->cursor >= due->count)
            due->cursor = 0;
        if (due->is_stale(due->arg, &due->items[due->cursor]))
            remove_at(due, due->cursor);
        else
            due->cursor++;
    }
}

/* Lets all stale ones go and makes a heap of the others. */
static void purge(struct tx_due *due)
{
    size_t kept = 0;
    for (size_t i = 0; i < due->count; i++)
        if (!due->is_stale(due->arg, &due->items[i]))
            due->items[kept++] = due->items[i];
    due->count = kept;
    for (size_t i = kept / 2; i > 0; i--)
        sink(due, i - 1);
}

void tx_due_push(struct tx_due *due, int64_t check_ns, int64_t half_off)
{
    sweep(due, 2);
    if (due->count == due->capacity)
        purge(due);
    ENSURE(due->count < due->capacity);
    due->items[due->count] = (struct tx_due_item){check_ns, half_off};
    due->count++;
    rise(due, due->count - 1);
}

bool tx_due_pop(struct tx_due *due, int64_t now_ns, struct tx_due_item *out, int64_t *next_ns)
{
    if (due->count == 0)
        return false;
    if (due->items[0].check_ns > now_ns) {
        *next_ns = due->items[0].check_ns;
        return false;
    }
    *out = due->items[0];
    remove_at(due, 0);
    return true;
}
