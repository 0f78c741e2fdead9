/*
 * The rows of a table in the order of their last change, each under a number that grows with every
 * change. A copy elsewhere that has everything up to a number asks for what came behind it: cheap
 * when it is nearly up to date, one pass over the rows when it begins.
 *
 *   oldest ◄─► row 3 ◄─► row 7 ◄─► mark 7 ◄─► row 12 ◄─► row 15 ◄─► newest
 *                                    └ a copy has got so far, and will ask for what is behind it
 *
 * Several tables may take their numbers from one counter, so that one number says what a copy has
 * of all of them: a table gives out and files a number within one hold of its lock.
 *
 * Invariants: numbers grow strictly along the list; marks stand behind every row that is not above
 * their number and before every one that is.
 *
 * Locks: everything but the counter is protected by the owner's lock.
 */
#ifndef BROKER_CHANGE_LIST_H
#define BROKER_CHANGE_LIST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CHANGE_MARKS = 16,      /* places of copies that are kept; more copies only walk more */
    CHANGE_STEPS_MAX = 1024 /* rows looked at in one hold of the owner's lock */
};

/* Numbers of changes. Read without a lock. */
struct change_counter {
    _Atomic uint64_t last;     /* given to a change of any kind */
    _Atomic uint64_t last_own; /* given to one that was made here, not taken from another copy */
    /* Told after each change, without locks. Set before the tables are used; NULL: nobody. */
    void (*on_change)(void *arg);
    void *arg;
};

static inline void change_counter_tell(const struct change_counter *counter)
{
    if (counter->on_change)
        counter->on_change(counter->arg);
}

/* In a row, zeroed at first. */
struct change_node {
    struct change_node *prev, *next; /* NULL: not in the list */
    uint64_t number;
    bool is_mark;
    bool merged; /* its last change was taken from another copy as it is */
};

struct change_list {
    struct change_counter *counter; /* borrowed */
    struct change_node ends;        /* next: the oldest, prev: the newest */
    struct change_node marks[CHANGE_MARKS];
    uint32_t next_mark; /* the one to be used again */
};

void change_list_init(struct change_list *list, struct change_counter *counter);
/* Numbers go on from the other counter, which is raised to what was given already. Before the table
 * is shared between threads. */
void change_list_share(struct change_list *list, struct change_counter *counter);

/* The row has changed: a new number, the newest place. */
void change_list_touch(struct change_list *list, struct change_node *node, bool merged);
/* The row goes. Nothing for one that is in no list. */
void change_list_remove(struct change_node *node);

/*
 * Reading, in steps of one hold of the owner's lock each: begin, seek until true, next until NULL
 * or enough, end. The mark is the caller's memory, in the list from begin to end.
 */
struct change_reader {
    struct change_node mark;
    uint64_t after; /* what the reader has */
};
/* A number that was not given yet counts as 0: it belongs to another life. */
void change_reader_begin(struct change_list *list, struct change_reader *reader, uint64_t after);
/* Finds the place, at most CHANGE_STEPS_MAX rows a call; true: found. */
bool change_reader_seek(struct change_list *list, struct change_reader *reader);
/* The next row, passing the mark over it; NULL: there is none now. */
struct change_node *change_reader_next(struct change_list *list, struct change_reader *reader);
/*
 * Takes the mark out. `to`: the reader will ask from there; every row that was passed is at or
 * below it, no other one is. 0: nothing is remembered.
 */
void change_reader_end(struct change_list *list, struct change_reader *reader, uint64_t to);
/* Up to which number everything was passed, once next gave NULL in this hold of the lock. */
static inline uint64_t change_list_last(const struct change_list *list)
{
    return atomic_load(&list->counter->last);
}

#endif
