/*
 * The list is circular through `ends`. Marks are nodes of the list that are no rows: rows that move
 * to the newest place leave them where they are, so a reader goes on from its mark whatever has
 * changed meanwhile.
 *
 * Threads: the owner's lock is held. Failure modes: none, nothing is allocated.
 */
#include "broker/change_list.h"

static void link_before(struct change_node *place, struct change_node *node)
{
    node->next = place;
    node->prev = place->prev;
    place->prev->next = node;
    place->prev = node;
}

static void unlink_node(struct change_node *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->prev = node->next = NULL;
}

void change_list_init(struct change_list *list, struct change_counter *counter)
{
    *list = (struct change_list){.counter = counter};
    list->ends.next = list->ends.prev = &list->ends;
    for (size_t i = 0; i < CHANGE_MARKS; i++)
        list->marks[i].is_mark = true;
}

static void raise_to(_Atomic uint64_t *number, uint64_t least)
{
    uint64_t now = atomic_load(number);
    while (now < least && !atomic_compare_exchange_weak(number, &now, least))
        ;
}

void change_list_share(struct change_list *list, struct change_counter *counter)
{
    raise_to(&counter->last, atomic_load(&list->counter->last));
    raise_to(&counter->last_own, atomic_load(&list->counter->last_own));
    list->counter = counter;
}

void change_list_touch(struct change_list *list, struct change_node *node, bool merged)
{
    if (node->next)
        unlink_node(node);
    node->number = atomic_fetch_add(&list->counter->last, 1) + 1;
    node->merged = merged;
    link_before(&list->ends, node);
    if (!merged)
        raise_to(&list->counter->last_own, node->number);
}

void change_list_remove(struct change_node *node)
{
    if (node->next)
        unlink_node(node);
}

/* ---- reading ---- */

static struct change_node *find_mark(struct change_list *list, uint64_t number)
{
    for (size_t i = 0; i < CHANGE_MARKS; i++)
        if (list->marks[i].next && list->marks[i].number == number)
            return &list->marks[i];
    return NULL;
}

void change_reader_begin(struct change_list *list, struct change_reader *reader, uint64_t after)
{
    if (after > change_list_last(list))
        after = 0;
    *reader =
        (struct change_reader){.mark = {.is_mark = true, .number = UINT64_MAX}, .after = after};
    struct change_node *known = after ? find_mark(list, after) : NULL;
    if (!after)
        link_before(list->ends.next, &reader->mark);
    else
        link_before(known ? known->next : &list->ends, &reader->mark);
}

bool change_reader_seek(struct change_list *list, struct change_reader *reader)
{
    struct change_node *mark = &reader->mark;
    for (int i = 0; i < CHANGE_STEPS_MAX; i++) {
        struct change_node *before = mark->prev;
        if (before == &list->ends || before->number <= reader->after)
            return true;
        unlink_node(mark);
        link_before(before, mark);
    }
    return false;
}

struct change_node *change_reader_next(struct change_list *list, struct change_reader *reader)
{
    struct change_node *mark = &reader->mark;
    struct change_node *node = mark->next;
    while (node != &list->ends && node->is_mark)
        node = node->next;
    if (node == &list->ends)
        return NULL;
    struct change_node *behind = node->next;
    unlink_node(mark);
    link_before(behind, mark);
    return node;
}

void change_reader_end(struct change_list *list, struct change_reader *reader, uint64_t to)
{
    struct change_node *place = reader->mark.next;
    unlink_node(&reader->mark);
    if (!to)
        return;
    struct change_node *mark = find_mark(list, to);
    if (mark)
        return; /* stands there already */
    mark = &list->marks[list->next_mark];
    list->next_mark = (list->next_mark + 1) % CHANGE_MARKS;
    if (mark == place)
        place = place->next;
    if (mark->next)
        unlink_node(mark);
    mark->number = to;
    link_before(place, mark);
}
