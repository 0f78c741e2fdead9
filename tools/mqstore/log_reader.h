/*
 * Reads a log's records one after the other and goes on behind damage.
 *
 *   struct log_item item;
 *   while ((code = log_reader_next(&reader, &item, err)) == TERN_OK && item.kind != LOG_END) …
 *
 * A record counts when its lengths add up, its body's CRC fits, it says the offset where it stands
 * and it leaves room for a filler behind it, as every appender does. Whatever is none is damage
 * when a record follows anywhere behind it, and the log's end when none does: what lies there then
 * is told, not judged.
 *
 * A record across the flush mark counts when another follows it: a slave's log may end within one.
 *
 * In a live store the end is the flush mark, or, in RocketMQ's, the first place without a record
 * before which the next segment has not begun.
 */
#ifndef MQSTORE_LOG_READER_H
#define MQSTORE_LOG_READER_H

#include "base/record.h"
#include "tools/mqstore/store_dir.h"

enum log_item_kind {
    LOG_RECORD,
    LOG_BLANK,        /* a filler up to the segment's end */
    LOG_BAD_CRC,      /* a record but for its body */
    LOG_BAD_POSITION, /* a record but for the physical offset it says */
    LOG_DAMAGE,       /* size_bytes in which no record stands */
    LOG_NO_SEGMENT,   /* size_bytes for which there is no file */
    LOG_END           /* also every time after the last */
};

struct log_item {
    enum log_item_kind kind;
    int64_t phys_off;
    int64_t size_bytes;
    struct record record; /* of the first, third and fourth kind; valid until the next call */
    const uint8_t *bytes; /* likewise, size_bytes */
    const char *why;      /* of damage and of the end: what stands there */
    int64_t tail_end;     /* of the end: behind the last byte there that is not zero */
};

struct log_reader {
    const struct store_dir *dir;
    int64_t at;
    int64_t limit;      /* nothing is looked for from here on */
    int64_t known_good; /* a record stands here, found while looking behind damage; -1 */
    uint32_t segment;   /* the open one's place in dir->segments */
    struct file *file;
    uint8_t *buffer;
    size_t capacity;
    size_t filled;
    int64_t buffer_off; /* log offset of buffer[0] */
};

/* `from` below the first segment means its beginning; it may be in the middle of a record. */
void log_reader_init(struct log_reader *reader, const struct store_dir *dir, int64_t from);
void log_reader_fini(struct log_reader *reader);
MUST_CHECK enum tern_code log_reader_next(struct log_reader *reader, struct log_item *item,
                                          struct tern_error *err);

/* First offset of the first segment; 0 when there is none. */
int64_t log_reader_min(const struct store_dir *dir);

#endif
