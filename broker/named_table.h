/*
 * What the topic and the group table share: rows with a name in a hash table, changes that can be
 * taken back until they are durable, and a version that only grows. Internal to topics.c and
 * groups.c, which know the rows' fields and their file.
 *
 *   put, remove ──► rows (readers see them at once)      settled(mark): forget undo up to mark
 *              └──► undo, newest first ──────────────────┤
 *                                                        rollback(): take all undo back
 *
 * A row is `row_bytes` of plain memory that begins with its terminated name.
 *
 * Invariants: every change since the last settled snapshot has one undo record; the version differs
 * from the settled one exactly when the rows may differ from the file. A new version is at least
 * the wall clock, so that one which was shown and then lost in a crash is not given out again.
 *
 * Threads: any; one short lock. Snapshot, settle and rollback belong to whoever persists, one at a
 * time. Failure modes: TERN_NO_MEMORY and TERN_LIMIT leave everything as it was.
 */
#ifndef BROKER_NAMED_TABLE_H
#define BROKER_NAMED_TABLE_H

#include <inttypes.h>
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

    struct lock lock; /* protects the rest */
    struct named_row *rows;
    struct named_undo *undo; /* newest first */
    uint64_t undo_number;    /* of the newest ever */
    uint64_t version;
    uint64_t settled_version;
};

static inline void named_table_init(struct named_table *table, const struct env *env,
                                    const char *what, size_t row_bytes, uint32_t rows_max)
{
    *table = (struct named_table){
        .env = env, .row_bytes = row_bytes, .rows_max = rows_max, .what = what};
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

static inline void named_table_next_version(struct named_table *table)
{
    int64_t wall_ms = clock_wall_ms(table->env->clock);
    table->version++;
    if (wall_ms > 0 && table->version < (uint64_t)wall_ms)
        table->version = (uint64_t)wall_ms;
}

/* Forgets rows and undo; for a parser that begins anew. */
static inline void named_table_clear(struct named_table *table)
{
    struct named_row *row;
    struct named_row *next_row;
    HASH_ITER (hh, table->rows, row, next_row)
        named_table_drop(table, row);
    while (table->undo) {
        struct named_undo *next = table->undo->next;
        free(table->undo);
        table->undo = next;
    }
}

static inline void named_table_fini(struct named_table *table)
{
    named_table_clear(table);
    lock_fini(&table->lock);
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
    undo->number = ++table->undo_number;
    if (row) {
        memcpy(undo->data, row->data, table->row_bytes);
    } else {
        memcpy(undo->data, name, len);
        undo->data[len] = 0;
    }
    undo->next = table->undo;
    table->undo = undo;
    named_table_next_version(table);
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
    *version = table->version;
    *mark = table->undo_number;
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
    lock_release(&table->lock);
    while (old) {
        struct named_undo *next = old->next;
        free(old);
        old = next;
    }
}

/*
 * Takes back what is not settled. The version moves on all the same, so the table stays to be
 * persisted: the file may hold what was taken back.
 */
static inline void named_table_rollback(struct named_table *table)
{
    lock_acquire(&table->lock);
    if (table->undo)
        named_table_next_version(table);
    while (table->undo) {
        struct named_undo *undo = table->undo;
        const char *name = (const char *)undo->data;
        struct named_row *row = named_table_row(table, name, strlen(name));
        if (undo->existed) {
            enum tern_code code = named_table_set(table, undo->data);
            if (code) /* no memory to bring a removed row back: the restart will */
                table->settled_version = 0;
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
    bool dirty = table->version != table->settled_version;
    lock_release(&table->lock);
    return dirty;
}

static inline uint64_t named_table_version(struct named_table *table)
{
    lock_acquire(&table->lock);
    uint64_t version = table->version;
    lock_release(&table->lock);
    return version;
}

/*
 * After loading: `version` stood in the file, `known` is the one in its companion. A file that a
 * hand or RocketMQ changed gets a version of its own.
 */
static inline void named_table_loaded(struct named_table *table, uint64_t version,
                                      const char *known)
{
    table->version = table->settled_version = version;
    if (!known || strtoull(known, NULL, 10) != version)
        named_table_next_version(table);
}

#endif
