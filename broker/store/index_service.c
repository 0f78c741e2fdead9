/*
 * The index service: from a record's keys to batches on index files.
 *
 *   dispatcher ─put─► ring of keys ─apply, in batches─► newest file ─full─► synced, next file
 *                        ▲ a query first applies what is in the ring, so it sees everything put
 *
 * Putting costs a hash and a copy and no system call; applying about 0.3 µs a key on the task's
 * thread, at the latest a second after the put. Since that keeps up with three million keys a
 * second, the index follows the dispatcher directly instead of reading the log itself. If it does
 * fall behind, index_service_busy() tells the appender to leave its records to the dispatcher's
 * task, and that one helps applying when the ring is full. index_service_range() shows how far
 * the index is.
 *
 * Once each: a record at or before the last one put is skipped, so replaying is harmless. The one
 * record where a file from an earlier run ends may be there with some of its keys only (the file
 * was full, the next one lost); recovery reads those back and put leaves out exactly them.
 *
 * Threads: put: the dispatch token's holder. Everything else any. Locks: STORE_INDEX_SYNC,
 * STORE_INDEX. Failure modes: a failed write leaves the keys in the ring and is tried again, as
 * long as there is room the dispatcher does not notice. A failed sync is final: nothing is applied
 * any more, and whoever meets that next, putter or queue flusher, latches the store.
 */
#include "broker/store/index_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/names.h"
#include "base/props.h"

enum {
    APPLY_DELAY_MS = 1000,
    KEY_SEPARATOR = ' ',
    HASH_TEXT_MAX = TOPIC_NAME_MAX + 1 + RECORD_PROPS_MAX + 1
};

/* ---- hashing ---- */

/* java_hash() goes on from h; false at a byte that is not ASCII. */
static bool hash_ascii(uint32_t *h, const uint8_t *text, size_t len)
{
    uint32_t v = *h;
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        const uint8_t *p = text + i;
        uint64_t word;
        memcpy(&word, p, sizeof word);
        if (word & 0x8080808080808080u)
            return false;
        /* 31^8 … 31^0 modulo 2^32: eight steps whose products do not wait for one another */
        v = v * 0x94446F01u + p[0] * 0x67E12CDFu + p[1] * 0x34E63B41u + p[2] * 0x01B4D89Fu +
            p[3] * 0x000E1781u + p[4] * 0x0000745Fu + p[5] * 0x000003C1u + p[6] * 31u + p[7];
    }
    for (; i < len; i++) {
        if (text[i] & 0x80)
            return false;
        v = v * 31 + text[i];
    }
    *h = v;
    return true;
}

uint32_t index_key_hash(const void *topic, size_t topic_len, const void *key, size_t key_len)
{
    uint32_t h = 0;
    if (!hash_ascii(&h, topic, topic_len) || (h = h * 31 + '#', !hash_ascii(&h, key, key_len))) {
        uint8_t text[HASH_TEXT_MAX];
        size_t len = topic_len < TOPIC_NAME_MAX ? topic_len : TOPIC_NAME_MAX;
        memcpy(text, topic, len);
        text[len++] = '#';
        if (key_len > sizeof text - len)
            key_len = sizeof text - len;
        memcpy(text + len, key, key_len);
        h = (uint32_t)java_hash(text, len + key_len);
    }
    int32_t value = (int32_t)h;
    return value == INT32_MIN ? 0 : (uint32_t)(value < 0 ? -value : value);
}

/* ---- applying ---- */

/* One run of the ring; *progress tells whether something was taken. @locks holds:STORE_INDEX */
static enum tern_code apply_run(struct index_service *index, bool *progress)
{
    uint64_t tail = atomic_load_explicit(&index->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&index->head, memory_order_acquire);
    uint32_t at = (uint32_t)(tail & (index->ring_keys - 1));
    uint64_t count = head - tail;
    *progress = false;
    if (count == 0)
        return TERN_OK;
    if (count > index->ring_keys - at)
        count = index->ring_keys - at;
    struct index_file *file;
    enum tern_code code = index_files_current(index, &file);
    if (code == TERN_OK && !index->scratch.order)
        code = index_scratch_init(&index->scratch, index->slots);
    if (code)
        return code;
    struct index_header after;
    uint32_t taken = 0;
    code =
        index_file_append(file, &index->scratch, index->ring + at, (uint32_t)count, &after, &taken);
    if (code)
        return code;
    file->header = after;
    atomic_store(&index->tail, tail + taken); /* seq_cst: pairs with put's look at it */
    *progress = true;
    return TERN_OK;
}

enum tern_code index_apply(struct index_service *index)
{
    bool progress = true;
    enum tern_code code = (enum tern_code)atomic_load(&index->failed);
    if (index->read_only)
        return TERN_OK;
    uint64_t goal = atomic_load_explicit(&index->head, memory_order_acquire);
    lock_acquire(&index->lock);
    while (progress && code == TERN_OK && atomic_load(&index->tail) < goal)
        code = apply_run(index, &progress);
    lock_release(&index->lock);
    return code;
}

static uint64_t pending(const struct index_service *index)
{
    return atomic_load(&index->head) - atomic_load(&index->tail);
}

/* The task: gathers for a second or half a ring, then applies. */
static int64_t apply_step(void *arg, int64_t now_ns)
{
    struct index_service *index = arg;
    uint64_t count = pending(index);
    if (count == 0) {
        index->apply_due = 0;
        return SCHED_NEVER;
    }
    if (index->apply_due == 0)
        index->apply_due = now_ns + ms_to_ns(APPLY_DELAY_MS);
    if (count < INDEX_BATCH_MAX && now_ns < index->apply_due)
        return index->apply_due;
    index->apply_due = 0;
    enum tern_code code = index_apply(index);
    if (code == TERN_OK)
        code = index_files_sync_full(index);
    if (code) {
        log_error(index->env->log, "index_apply_failed", "cause=%s dir=%s", tern_code_name(code),
                  index->dir);
        return now_ns +
               ms_to_ns(APPLY_DELAY_MS); /* a full ring brings the code to the dispatcher */
    }
    return now_ns;
}

bool index_service_busy(const struct index_service *index)
{
    return pending(index) > index->ring_keys / 4 * 3;
}

/* ---- putting ---- */

/* @thread the dispatch token's holder */
static void push(struct index_service *index, const struct record *record, uint32_t hash)
{
    uint64_t head = atomic_load_explicit(&index->head, memory_order_relaxed);
    index->ring[head & (index->ring_keys - 1)] = (struct index_key){
        .phys_off = record->phys_off, .store_ms = record->store_ms, .hash = hash};
    atomic_store_explicit(&index->head, head + 1, memory_order_release);
}

/* Twice the ring, when the disk has no room for what is in it. @thread the dispatch token's holder
 */
static enum tern_code grow_ring(struct index_service *index)
{
    uint32_t old_keys = index->ring_keys;
    uint32_t keys = old_keys * 2;
    if (keys > INDEX_RING_KEYS_MAX)
        return TERN_NO_SPACE;
    struct index_key *ring = calloc(keys, sizeof *ring);
    if (!ring)
        return TERN_NO_MEMORY;
    lock_acquire(&index->lock); /* its task applies meanwhile */
    struct index_key *old = index->ring;
    uint64_t head = atomic_load_explicit(&index->head, memory_order_relaxed);
    for (uint64_t at = atomic_load(&index->tail); at < head; at++)
        ring[at & (keys - 1)] = old[at & (old_keys - 1)];
    index->ring = ring;
    index->ring_keys = keys;
    lock_release(&index->lock);
    free(old);
    return TERN_OK;
}

void index_service_keep(struct index_service *index, bool keep)
{
    index->keeps = keep;
}

static bool is_trailing(const struct index_service *index, const struct record *record,
                        uint32_t hash)
{
    if (record->phys_off != index->trailing_phys)
        return false;
    for (uint32_t i = 0; i < index->trailing_count; i++)
        if (index->trailing[i] == hash)
            return true;
    return false;
}

static void put_key(struct index_service *index, const struct record *record, const uint8_t *key,
                    size_t len)
{
    uint32_t hash = index_key_hash(record->topic, record->topic_len, key, len);
    if (!is_trailing(index, record, hash))
        push(index, record, hash);
}

/* Every non-empty word of KEYS. */
static void put_words(struct index_service *index, const struct record *record,
                      const struct slice *keys)
{
    const uint8_t *at = keys->ptr;
    const uint8_t *end = at + keys->len;
    while (at < end) {
        const uint8_t *stop = memchr(at, KEY_SEPARATOR, (size_t)(end - at));
        if (!stop)
            stop = end;
        if (stop > at)
            put_key(index, record, at, (size_t)(stop - at));
        at = stop + 1;
    }
}

static bool name_is(const struct slice *name, const char *text, size_t len)
{
    return name->len == len && memcmp(name->ptr, text, len) == 0;
}

/* Both properties in one walk; absent ones are left as they are. */
static void find_keys(const struct record *record, struct slice *uniq, struct slice *keys)
{
    struct slice name;
    struct slice value;
    size_t cursor = 0;
    while (props_next(record->props, record->props_len, &cursor, &name, &value)) {
        if (name_is(&name, PROP_KEYS, sizeof PROP_KEYS - 1))
            *keys = value;
        else if (name_is(&name, PROP_UNIQ_KEY, sizeof PROP_UNIQ_KEY - 1))
            *uniq = value;
    }
}

/* Wakes the task when the ring was empty or has become half full. */
static void wake_applier(struct index_service *index, uint64_t old_head)
{
    uint64_t head = atomic_load(&index->head);
    atomic_thread_fence(memory_order_seq_cst); /* either we see its tail or it our head */
    uint64_t tail = atomic_load(&index->tail);
    bool passed_half = old_head - tail < INDEX_BATCH_MAX && head - tail >= INDEX_BATCH_MAX;
    if (index->task && (tail >= old_head || passed_half))
        task_wake(index->task);
}

enum tern_code index_service_put(struct index_service *index, const struct record *record)
{
    struct slice uniq = {NULL, 0};
    struct slice keys = {NULL, 0};
    if (record->phys_off <= atomic_load_explicit(&index->last_phys, memory_order_relaxed) ||
        index->read_only)
        return TERN_OK;
    uint64_t old_head = atomic_load_explicit(&index->head, memory_order_relaxed);
    if ((record->sys_flag & SYS_TX_MASK) != SYS_TX_ROLLBACK) {
        find_keys(record, &uniq, &keys);
        size_t most = 1 + (keys.len + 1) / 2;
        if (old_head - atomic_load_explicit(&index->tail, memory_order_acquire) + most >
            index->ring_keys) {
            enum tern_code code = index_apply(index);
            if (code == TERN_NO_SPACE && index->keeps)
                code = grow_ring(index);
            if (code)
                return code;
        }
        if (uniq.len > 0)
            put_key(index, record, uniq.ptr, uniq.len);
        put_words(index, record, &keys);
    }
    atomic_store_explicit(&index->last_ms, record->store_ms, memory_order_relaxed);
    atomic_store_explicit(&index->last_phys, record->phys_off, memory_order_release);
    if (atomic_load_explicit(&index->head, memory_order_relaxed) != old_head)
        wake_applier(index, old_head);
    return TERN_OK;
}

/* ---- life ---- */

enum tern_code index_service_create(const struct env *env, const char *dir, uint32_t slots,
                                    uint32_t entries, bool read_only, struct index_service **out)
{
    *out = NULL;
    if (slots == 0 || entries < 2 || slots > INT32_MAX || entries > INT32_MAX ||
        strlen(dir) >= FS_PATH_BYTES)
        return TERN_INVALID;
    struct index_service *index = calloc(1, sizeof *index);
    if (!index)
        return TERN_NO_MEMORY;
    index->env = env;
    index->slots = slots;
    index->entries = entries;
    index->read_only = read_only;
    index->ring_keys = INDEX_RING_KEYS;
    index->trailing_phys = -1;
    atomic_init(&index->last_phys, -1);
    memcpy(index->dir, dir, strlen(dir) + 1);
    lock_init(&index->sync_lock, LOCK_STORE_INDEX_SYNC);
    lock_init(&index->lock, LOCK_STORE_INDEX);
    enum tern_code code = TERN_OK;
    if (!read_only) {
        index->ring = calloc(INDEX_RING_KEYS, sizeof *index->ring);
        code = index->ring ? task_start(env->sched, "store-index", apply_step, index, &index->task)
                           : TERN_NO_MEMORY;
    }
    if (code) {
        index_service_destroy(index);
        return code;
    }
    *out = index;
    return TERN_OK;
}

void index_service_destroy(struct index_service *index)
{
    if (!index)
        return;
    task_stop(index->task);
    for (uint32_t i = 0; i < index->file_count; i++)
        index_file_unref(index->files[i]);
    free(index->files);
    free(index->ring);
    index_scratch_fini(&index->scratch);
    lock_fini(&index->lock);
    lock_fini(&index->sync_lock);
    free(index);
}
