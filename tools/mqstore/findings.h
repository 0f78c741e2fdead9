/*
 * What verify found: counts per kind, and the first of each with file and offset.
 *
 * A fault makes the check fail. A note tells of something that is as it may be: a crashed store's
 * torn tail, entries of expired records, what a store in use has yet to write.
 */
#ifndef MQSTORE_FINDINGS_H
#define MQSTORE_FINDINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "tools/mqstore/store_dir.h"

/* X(kind, is a fault, name in JSON, text) */
#define FINDING_TABLE(X)                                                                           \
    X(SEGMENT_MISSING, true, "segmentMissing", "segment missing between others")                   \
    X(SEGMENT_LENGTH, true, "segmentLength", "segment of another length")                          \
    X(LOG_DAMAGED, true, "logDamaged", "bytes in the log that are no record")                      \
    X(BODY_CRC, true, "bodyCrc", "record whose body does not fit its CRC")                         \
    X(PHYS_OFFSET, true, "physOffset", "record that says another physical offset")                 \
    X(FLUSHED_LOST, true, "flushedLost", "log ends before what had been flushed")                  \
    X(TOPIC_NAME, true, "topicName", "record with an impossible topic, queue or queue offset")     \
    X(OFFSET_GAP, true, "offsetGap", "records of a queue without the offsets between")             \
    X(QUEUE_FILE, true, "queueFile", "queue file of another length, or missing between others")    \
    X(UNIT_MISSING, true, "unitMissing", "record without its unit in the queue")                   \
    X(UNIT_WRONG, true, "unitWrong", "unit that does not fit its record")                          \
    X(UNIT_STRAY, true, "unitStray", "unit that points to no record of its queue and offset")      \
    X(INDEX_LENGTH, true, "indexLength", "index file whose length or slot count is unknown")       \
    X(INDEX_HEADER, true, "indexHeader", "index header that does not fit the entries")             \
    X(INDEX_ENTRY, true, "indexEntry", "index entry that fits no key of a record at its offset")   \
    X(INDEX_CHAIN, true, "indexChain", "index slot or chain that is broken")                       \
    X(INDEX_MISSING, true, "indexMissing", "key of a record without an index entry")               \
    X(CHECKPOINT, true, "checkpoint", "checkpoint that cannot be")                                 \
    X(TORN_TAIL, false, "tornTail", "bytes behind the log's end, which are no record")             \
    X(PARTIAL_TAIL, false, "partialTail", "part of a record at the end of what a slave received")  \
    X(CHECKPOINT_AHEAD, false, "checkpointAhead", "checkpoint ahead of an unsettled store's log")  \
    X(UNDISPATCHED, false, "undispatched", "records whose units are still to be written")          \
    X(UNIT_BEHIND, false, "unitBehind", "units and index entries behind the log's end")            \
    X(UNIT_EXPIRED, false, "unitExpired", "units of expired records")                              \
    X(UNIT_UNCHECKED, false, "unitUnchecked", "units of multi-dispatch queues, not checked")       \
    X(EXT_ADDRESS, false, "extAddress", "units with a ConsumeQueueExt address for tagsCode")       \
    X(EARLIER_LIFE, false, "earlierLife", "records of a queue that was deleted since")             \
    X(INDEX_EXPIRED, false, "indexExpired", "index entries of expired records")                    \
    X(INDEX_TWICE, false, "indexTwice", "keys of a record indexed more than once")                 \
    X(INDEX_UNFINISHED, false, "indexUnfinished", "index files that recovery builds again")        \
    X(NOT_INDEXED, false, "notIndexed", "keys of records outside of the index files' range")       \
    X(STRAY_FILE, false, "strayFile", "files that belong to no part of a store")

enum finding_kind {
#define FINDING_ENUM_(kind, fault, name, text) FOUND_##kind,
    FINDING_TABLE(FINDING_ENUM_)
#undef FINDING_ENUM_
        FINDING_KINDS
};

enum { FINDING_TEXT_BYTES = 240, FINDING_EXAMPLES = 5 };

struct finding {
    char file[STORE_NAME_BYTES]; /* below the root */
    int64_t offset;              /* in the file; -1: the file as a whole */
    char text[FINDING_TEXT_BYTES];
};

struct findings {
    uint64_t counts[FINDING_KINDS];
    struct finding examples[FINDING_KINDS][FINDING_EXAMPLES]; /* the first of each kind */
};

/* One more of the kind; file may be NULL, the text tells what is wrong there. */
void findings_add(struct findings *findings, enum finding_kind kind, const char *file,
                  int64_t offset, const char *fmt, ...) PRINTF_LIKE(5, 6);
/* `count` more without an example. */
void findings_count(struct findings *findings, enum finding_kind kind, uint64_t count);

uint64_t findings_faults(const struct findings *findings);
void findings_print(const struct findings *findings, FILE *out);
/* {"faults":{name:{"count":…,"first":[…]}},"notes":{…}}; adds to `json`. */
void findings_to_json(const struct findings *findings, json_t *json);

#endif
