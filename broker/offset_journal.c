/*
 * An entry: length 2 | CRC-32 of what follows 4 | epoch 8 | counter 8 | offset 8 | queue 4 | topic
 * length 1 | topic | group. All big-endian. Reading ends at the first entry that is not whole:
 * behind it lies what a power loss left.
 *
 * Failure: a write that fails is logged and its place is used again. Threads: any. Locks:
 * journal->lock, held over the one write that it is for.
 */
#include "broker/offset_journal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/fs.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/record.h"

enum {
    HEAD_BYTES = 2 + 4 + 8 + 8 + 8 + 4 + 1,
    CHECKED_AT = 6,
    ENTRY_MAX_BYTES = HEAD_BYTES + TOPIC_NAME_MAX + GROUP_NAME_MAX,
    FILES = 2
};

struct offset_journal {
    struct env env;
    struct lock lock; /* BROKER_OFFSETS */
    int current;      /* under lock */
    struct {
        struct file *file;
        int64_t end; /* under lock: entries lie before */
    } files[FILES];
};

/* ---- reading ---- */

/* One entry of `left` bytes; 0: none is whole here. */
static size_t decode(const uint8_t *bytes, size_t left, char topic[TOPIC_NAME_MAX + 1],
                     char group[GROUP_NAME_MAX + 1], struct offset_journal_entry *entry)
{
    if (left < HEAD_BYTES)
        return 0;
    size_t size = get_be16(bytes);
    if (size < HEAD_BYTES || size > left || size > ENTRY_MAX_BYTES)
        return 0;
    size_t topic_len = bytes[HEAD_BYTES - 1];
    if (topic_len > TOPIC_NAME_MAX || HEAD_BYTES + topic_len > size ||
        size - HEAD_BYTES - topic_len > GROUP_NAME_MAX ||
        get_be32(bytes + 2) != record_body_crc(bytes + CHECKED_AT, size - CHECKED_AT))
        return 0;
    size_t group_len = size - HEAD_BYTES - topic_len;
    const uint8_t *names = bytes + HEAD_BYTES;
    bool is_floor = (int32_t)get_be32(bytes + 30) == -1;
    if ((!is_floor && (!topic_len || !group_len)) || (is_floor && topic_len && group_len) ||
        (topic_len && topic_name_check(names, topic_len, NULL) != TERN_OK) ||
        (group_len && group_name_check(names + topic_len, group_len, NULL) != TERN_OK))
        return 0;
    memcpy(topic, names, topic_len);
    topic[topic_len] = 0;
    memcpy(group, names + topic_len, group_len);
    group[group_len] = 0;
    *entry = (struct offset_journal_entry){
        .group = group,
        .topic = topic,
        .queue_id = (int32_t)get_be32(bytes + 30),
        .offset = (int64_t)get_be64(bytes + 22),
        .version = {get_be64(bytes + 6), get_be64(bytes + 14)},
    };
    return entry->queue_id >= -1 && entry->offset >= 0 ? size : 0;
}

static enum tern_code replay_file(struct offset_journal *journal, int index,
                                  offset_journal_fn replay, void *arg, uint32_t *replayed)
{
    struct file *file = journal->files[index].file;
    char topic[TOPIC_NAME_MAX + 1], group[GROUP_NAME_MAX + 1];
    struct offset_journal_entry entry;
    int64_t size;
    size_t got = 0, at = 0, taken;
    uint8_t *bytes = NULL;
    enum tern_code code = file_size(file, &size);
    if (code != TERN_OK || size == 0)
        return code;
    if (size > OFFSET_JOURNAL_MAX_BYTES)
        size = OFFSET_JOURNAL_MAX_BYTES;
    bytes = malloc((size_t)size);
    code = bytes ? file_pread(file, bytes, (size_t)size, 0, &got) : TERN_NO_MEMORY;
    while (code == TERN_OK && (taken = decode(bytes + at, got - at, topic, group, &entry)) > 0) {
        replay(arg, &entry);
        at += taken;
        ++*replayed;
    }
    journal->files[index].end = (int64_t)at;
    free(bytes);
    return code;
}

/* ---- life ---- */

enum tern_code offset_journal_open(const struct env *env, const char *path,
                                   offset_journal_fn replay, void *arg, struct offset_journal **out,
                                   uint32_t *replayed, struct tern_error *err)
{
    struct offset_journal *journal = calloc(1, sizeof *journal);
    if (!journal)
        return error_set(err, TERN_NO_MEMORY, "offset journal");
    journal->env = *env;
    lock_init(&journal->lock, LOCK_BROKER_OFFSETS);
    *replayed = 0;
    for (int i = 0; i < FILES; i++) {
        char name[FS_PATH_BYTES];
        int len = snprintf(name, sizeof name, "%s.journal-%d", path, i);
        enum tern_code code = len < 0 || (size_t)len >= sizeof name ? TERN_TOO_LARGE : TERN_OK;
        if (code == TERN_OK)
            code = fs_open(env->fs, name, FS_READ | FS_WRITE | FS_CREATE, &journal->files[i].file);
        if (code == TERN_OK)
            code = replay_file(journal, i, replay, arg, replayed);
        if (code != TERN_OK) {
            error_set_errno(err, code, errno, "%s: cannot open or read", name);
            offset_journal_close(journal);
            return code;
        }
    }
    *out = journal;
    return TERN_OK;
}

void offset_journal_close(struct offset_journal *journal)
{
    if (!journal)
        return;
    for (int i = 0; i < FILES; i++)
        file_close(journal->files[i].file);
    lock_fini(&journal->lock);
    free(journal);
}

/* ---- writing ---- */

static size_t encode(uint8_t bytes[ENTRY_MAX_BYTES], const struct offset_journal_entry *entry)
{
    size_t topic_len = strlen(entry->topic), group_len = strlen(entry->group);
    size_t size = HEAD_BYTES + topic_len + group_len;
    ENSURE(topic_len <= TOPIC_NAME_MAX && group_len <= GROUP_NAME_MAX);
    put_be16(bytes, (uint16_t)size);
    put_be64(bytes + 6, entry->version.epoch);
    put_be64(bytes + 14, entry->version.counter);
    put_be64(bytes + 22, (uint64_t)entry->offset);
    put_be32(bytes + 30, (uint32_t)entry->queue_id);
    bytes[HEAD_BYTES - 1] = (uint8_t)topic_len;
    memcpy(bytes + HEAD_BYTES, entry->topic, topic_len);
    memcpy(bytes + HEAD_BYTES + topic_len, entry->group, group_len);
    put_be32(bytes + 2, record_body_crc(bytes + CHECKED_AT, size - CHECKED_AT));
    return size;
}

void offset_journal_add(struct offset_journal *journal, const struct offset_journal_entry *entry)
{
    uint8_t bytes[ENTRY_MAX_BYTES];
    size_t size = encode(bytes, entry);
    enum tern_code code = TERN_OK;
    lock_acquire(&journal->lock);
    int current = journal->current;
    if (journal->files[current].end + (int64_t)size <= OFFSET_JOURNAL_MAX_BYTES) {
        code = file_pwrite(journal->files[current].file, bytes, size, journal->files[current].end);
        if (code == TERN_OK)
            journal->files[current].end += (int64_t)size;
    }
    lock_release(&journal->lock);
    if (code != TERN_OK)
        log_warn(journal->env.log, "offset_journal_not_written", "code=%s", tern_code_name(code));
}

void offset_journal_switch(struct offset_journal *journal)
{
    lock_acquire(&journal->lock);
    journal->current = 1 - journal->current;
    lock_release(&journal->lock);
}

void offset_journal_settled(struct offset_journal *journal)
{
    lock_acquire(&journal->lock);
    int before = 1 - journal->current;
    enum tern_code code = TERN_OK;
    if (journal->files[before].end > 0)
        code = file_truncate(journal->files[before].file, 0);
    if (code == TERN_OK)
        journal->files[before].end = 0;
    lock_release(&journal->lock);
    if (code != TERN_OK)
        log_warn(journal->env.log, "offset_journal_not_emptied", "code=%s", tern_code_name(code));
}
