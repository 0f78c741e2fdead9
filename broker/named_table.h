/*
 * What the topic and the group table share: rows with a name in a hash table, changes that can be
 * taken back until they are durable, and a version that only grows. Internal to topics.c and
 * groups.c, which know the rows' fields and their file.
 *
 *   put, remove ──► rows (readers see them at once)      settled(mark): forget undo up to mark
 *              └──► undo, newest first ──────────────────┤
 *                                                        rollback(): take all undo back
 *
 *   replace: new rows built aside ─► written ─► swapped in at once, version as given
 *
 * A row is `row_bytes` of plain memory that begins with its terminated name.
 *
 * Versions name what a set's master holds. A new one is at least the wall clock, so that one which
 * was shown and then lost in a crash is not given out again. A table that follows (a slave's, or of
 * a master that is not open) keeps the version that it took from another copy whatever is changed
 * in it: such changes, groups that were met, must not outbid the master's.
 *
 * Invariants: every change since the last settled snapshot has one undo record; version and change
 * number differ from the settled ones exactly when the rows may differ from the file.
 *
 * Threads: any; one short lock. Snapshot, settle and rollback belong to whoever persists, who holds
 * file_lock. Failure modes: TERN_NO_MEMORY and TERN_LIMIT leave everything as it was.
 */
#ifndef BROKER_NAMED_TABLE_H
#define BROKER_NAMED_TABLE_H

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/lock.h"

struct named_row {
    UT_hash_handle hh;
    unsigned char data[]; /* row_bytes, the name first */
};

struct named_undo {
    struct named_undo *next; /* older */
    uint64_t number;
    bool existed;
    unsigned char data[]; /* the row before, or only the name of one that was not there */
};

struct named_table {
    const struct env *env;
    size_t row_bytes;
    uint32_t rows_max;
    const char *what; /* "topics" */
    /* Told when changes are durable, without locks; NULL: nobody. Set before the table is shared.
     */
    void (*on_settled)(void *arg);
    void *settled_arg;

    struct lock file_lock; /* one writer of the file; held over its I/O, taken before `lock` */
    struct lock lock;      /* protects the rest */
    struct named_row *rows;
    struct named_undo *undo;  /* newest first */
    uint64_t change_number;   /* of the newest change ever */
    _Atomic uint64_t version; /* read without the lock, too */
    uint64_t settled_version, settled_change;
    bool follows;     /* changes leave the version as it is… */
    bool unversioned; /* …and there were some */
};

static inline void named_table_init(struct named_table *table, const struct env *env,
                                    const char *what, size_t row_bytes, uint32_t rows_max)
{
    *table = (struct named_table){
        .env = env, .row_bytes = row_bytes, .rows_max = rows_max, .what = what};
    lock_init(&table->file_lock, LOCK_BROKER_FILES);
    lock_init(&table->lock, LOCK_BROKER_TABLES);
}

/* @locks holds:BROKER_TABLES */
static inline struct named_row *named_table_row(struct named_table *table, const char *name,
                                                size_t len)
{
    struct named_row *row;
    HASH_FIND(hh, table->rows, name, (unsigned)len, row);
    return row;
}

/* Unlinks and frees. @locks holds:BROKER_TABLES */
static inline void named_table_drop(struct named_table *table, struct named_row *row)
{
    HASH_DELETE(hh, table->rows, row);
    free(row);
}

/* Sets a row without undo or a new version; for loading. @locks holds:BROKER_TABLES */
static inline enum tern_code named_table_set(struct named_table *table, const void *data)
{
    size_t len = strlen(data);
    struct named_row *row = named_table_row(table, data, len);
    if (row) {
        memcpy(row->data, data, table->row_bytes);
        return TERN_OK;
    }
    if (HASH_COUNT(table->rows) >= table->rows_max)
        return TERN_LIMIT;
    row = malloc(sizeof *row + table->row_bytes);
    if (!row)
        return TERN_NO_MEMORY;
    memcpy(row->data, data, table->row_bytes);
    row->hh.tbl = NULL;
    HASH_ADD_KEYPTR(hh, table->rows, row->data, (unsigned)len, row);
    if (!row->hh.tbl) { /* uthash had no memory */
        free(row);
        return TERN_NO_MEMORY;
    }
    return TERN_OK;
}

/* @locks holds:BROKER_TABLES */
static inline void named_table_next_version(struct named_table *table)
{
    int64_t wall_ms = clock_wall_ms(table->env->clock);
    uint64_t version = atomic_load(&table->version) + 1;
    if (wall_ms > 0 && version < (uint64_t)wall_ms)
        version = (uint64_t)wall_ms;
    atomic_store(&table->version, version);
}

/* Something is not as in the file any more. @locks holds:BROKER_TABLES */
static inline void named_table_changed(struct named_table *table)
{
    table->change_number++;
    if (table->follows)
        table->unversioned = true;
    else
        named_table_next_version(table);
}

static inline void named_undo_free(struct named_undo *undo)
{
    while (undo) {
        struct named_undo *next = undo->next;
        free(undo);
        undo = next;
    }
}

/* Forgets rows and undo; for a parser that begins anew. */
static inline void named_table_clear(struct named_table *table)
{
    struct named_row *row;
    struct named_row *next_row;
    HASH_ITER (hh, table->rows, row, next_row)
        named_table_drop(table, row);
    named_undo_free(table->undo);
    table->undo = NULL;
}

static inline void named_table_fini(struct named_table *table)
{
    named_table_clear(table);
    lock_fini(&table->lock);
    lock_fini(&table->file_lock);
}

static inline bool named_table_find(struct named_table *table, const char *name, size_t len,
                                    void *out)
{
    lock_acquire(&table->lock);
    struct named_row *row = named_table_row(table, name, len);
    if (row)
        memcpy(out, row->data, table->row_bytes);
    lock_release(&table->lock);
    return row != NULL;
}

/* Remembers how to take a change of `row` back, NULL: of a name that is new. @locks holds */
static inline void named_table_remember(struct named_table *table, struct named_undo *undo,
                                        const struct named_row *row, const char *name, size_t len)
{
    undo->existed = row != NULL;
    if (row) {
        memcpy(undo->data, row->data, table->row_bytes);
    } else {
        memcpy(undo->data, name, len);
        undo->data[len] = 0;
    }
    named_table_changed(table);
    undo->number = table->change_number;
    undo->next = table->undo;
    table->undo = undo;
}

/* Rows must be filled without gaps left undefined: equal rows are told by their bytes. */
static inline enum tern_code named_table_put(struct named_table *table, const void *data,
                                             struct tern_error *err)
{
    size_t len = strlen(data);
    struct named_undo *undo = malloc(sizeof *undo + table->row_bytes);
    enum tern_code code = undo ? TERN_OK : TERN_NO_MEMORY;
    bool used = false;
    lock_acquire(&table->lock);
    struct named_row *row = named_table_row(table, data, len);
    if (!code && !(row && !memcmp(row->data, data, table->row_bytes))) {
        if (row || HASH_COUNT(table->rows) < table->rows_max) {
            named_table_remember(table, undo, row, data, len);
            used = true;
        }
        code = named_table_set(table, data);
        if (code && used) {
            table->undo = undo->next;
            used = false;
        }
    }
    lock_release(&table->lock);
    if (!used)
        free(undo);
    if (code == TERN_LIMIT)
        return error_set(err, code, "%" PRIu32 " %s are there, more are not allowed",
                         table->rows_max, table->what);
    return code ? error_set(err, code, "no memory for one more of the %s", table->what) : TERN_OK;
}

/* TERN_NOT_FOUND without a text; TERN_NO_MEMORY. */
static inline enum tern_code named_table_remove(struct named_table *table, const char *name,
                                                size_t len, struct tern_error *err)
{
    struct named_undo *undo = malloc(sizeof *undo + table->row_bytes);
    if (!undo)
        return error_set(err, TERN_NO_MEMORY, "no memory to change the %s", table->what);
    lock_acquire(&table->lock);
    struct named_row *row = named_table_row(table, name, len);
    if (row) {
        named_table_remember(table, undo, row, name, len);
        named_table_drop(table, row);
    }
    lock_release(&table->lock);
    if (row)
        return TERN_OK;
    free(undo);
    return TERN_NOT_FOUND;
}

static inline int named_row_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* A malloc'ed copy of all rows, sorted; *mark is for named_table_settled(). NULL: no memory. */
static inline void *named_table_snapshot(struct named_table *table, size_t *count,
                                         uint64_t *version, uint64_t *mark)
{
    size_t n = 0;
    struct named_row *row;
    struct named_row *next;
    lock_acquire(&table->lock);
    unsigned char *rows = malloc((HASH_COUNT(table->rows) + (size_t)1) * table->row_bytes);
    if (rows)
        HASH_ITER (hh, table->rows, row, next)
            memcpy(rows + n++ * table->row_bytes, row->data, table->row_bytes);
    *version = atomic_load(&table->version);
    *mark = table->change_number;
    lock_release(&table->lock);
    *count = n;
    if (rows)
        qsort(rows, n, table->row_bytes, named_row_compare);
    return rows;
}

/* The snapshot of this version and mark is durable: its changes cannot be taken back any more. */
static inline void named_table_settled(struct named_table *table, uint64_t version, uint64_t mark)
{
    lock_acquire(&table->lock);
    struct named_undo **at = &table->undo;
    while (*at && (*at)->number > mark)
        at = &(*at)->next;
    struct named_undo *old = *at;
    *at = NULL;
    table->settled_version = version;
    table->settled_change = mark;
    lock_release(&table->lock);
    named_undo_free(old);
}

static inline void named_table_tell(const struct named_table *table)
{
    if (table->on_settled)
        table->on_settled(table->settled_arg);
}

/*
 * Takes back what is not settled. The version moves on all the same, so the table stays to be
 * persisted: the file may hold what was taken back.
 */
static inline void named_table_rollback(struct named_table *table)
{
    lock_acquire(&table->lock);
    if (table->undo)
        named_table_changed(table);
    while (table->undo) {
        struct named_undo *undo = table->undo;
        const char *name = (const char *)undo->data;
        struct named_row *row = named_table_row(table, name, strlen(name));
        if (undo->existed) {
            enum tern_code code = named_table_set(table, undo->data);
            if (code) /* no memory to bring a removed row back: the restart will */
                table->settled_change = UINT64_MAX;
        } else if (row) {
            named_table_drop(table, row);
        }
        table->undo = undo->next;
        free(undo);
    }
    lock_release(&table->lock);
}

static inline bool named_table_dirty(struct named_table *table)
{
    lock_acquire(&table->lock);
    bool dirty = atomic_load(&table->version) != table->settled_version ||
                 table->change_number != table->settled_change;
    lock_release(&table->lock);
    return dirty;
}

static inline uint64_t named_table_version(struct named_table *table)
{
    return atomic_load(&table->version);
}

/* See the file's comment. Versions go on, and what was changed meanwhile gets one, when it ends. */
static inline void named_table_follow(struct named_table *table, bool follows)
{
    lock_acquire(&table->lock);
    table->follows = follows;
    if (!follows && table->unversioned) {
        table->unversioned = false;
        named_table_changed(table);
    }
    lock_release(&table->lock);
}

/*
 * Takes the rows and the version of `fresh`, which were written already, at once; `fresh` gets the
 * old rows, to be freed with it. What was changed since the last persist is gone, as the rest is.
 */
static inline void named_table_swap(struct named_table *table, struct named_table *fresh)
{
    lock_acquire(&table->lock);
    struct named_row *rows = table->rows;
    struct named_undo *undo = table->undo;
    table->rows = fresh->rows;
    table->undo = NULL;
    atomic_store(&table->version, atomic_load(&fresh->version));
    table->settled_version = atomic_load(&fresh->version);
    table->settled_change = ++table->change_number;
    table->unversioned = false;
    lock_release(&table->lock);
    fresh->rows = rows;
    fresh->undo = undo;
}

/* The file may hold what the table does not: it is to be written again. */
static inline void named_table_unsettle(struct named_table *table)
{
    lock_acquire(&table->lock);
    table->settled_change = UINT64_MAX;
    lock_release(&table->lock);
}

/*
 * After loading: `version` stood in the file, `known` is the one in its companion. A file that a
 * hand or RocketMQ changed gets a version of its own.
 */
static inline void named_table_loaded(struct named_table *table, uint64_t version,
                                      const char *known)
{
    atomic_store(&table->version, version);
    table->settled_version = version;
    if (!known || strtoull(known, NULL, 10) != version)
        named_table_next_version(table);
}

#endif
