/*
 * A message as it lies in the CommitLog, RocketMQ 4.9's layout byte for byte
 * (docs/store-format.md):
 *
 *   totalSize 4 | magic 4 | bodyCRC 4 | queueId 4 | flag 4 | queueOffset 8 | physicalOffset 8 |
 * sysFlag 4 | bornTimestamp 8 | bornHost 8 or 20 | storeTimestamp 8 | storeHost 8 or 20 |
 * reconsumeTimes 4 | preparedTransactionOffset 8 | bodyLength 4 + body | topicLength 1 + topic |
 * propsLength 2 + props
 *
 * The client prepares records in this layout, the broker checks and stamps them in place, the store
 * keeps them, the slave copies them, the consumer decodes them. All integers big-endian.
 */
#ifndef BASE_RECORD_H
#define BASE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define RECORD_MAGIC 0xDAA320A7u
#define BLANK_MAGIC 0xCBD43194u

enum {
    RECORD_FIXED_BYTES = 91,    /* both hosts IPv4, empty body, topic and properties */
    RECORD_V6_EXTRA_BYTES = 12, /* more for each IPv6 host */
    RECORD_BLANK_BYTES = 8,     /* the filler's head at a segment's end: size, magic */
    RECORD_PROPS_MAX = 32767
};

enum sys_flag {
    SYS_COMPRESSED = 0x01,
    SYS_MULTI_TAGS = 0x02,
    SYS_TX_PREPARED = 0x04,
    SYS_TX_COMMIT = 0x08,
    SYS_TX_ROLLBACK = 0x0C,
    SYS_TX_MASK = 0x0C,
    SYS_BORN_V6 = 0x10,
    SYS_STORE_V6 = 0x20,
    SYS_COMPRESSION_TYPE = 0x700
};

/* An address in a record: 4 or 16 bytes and a port. */
struct host {
    uint8_t ip[16]; /* the first 4 when !v6 */
    uint32_t port;
    bool v6;
};

/* Fields of one record. Pointers borrow; when parsed they point into the parsed bytes. */
struct record {
    uint32_t total_size;
    uint32_t body_crc;
    int32_t queue_id;
    int32_t flag; /* the user's, opaque */
    int64_t queue_off;
    int64_t phys_off;
    uint32_t sys_flag;
    int64_t born_ms;
    struct host born_host;
    int64_t store_ms;
    struct host store_host;
    int32_t reconsume_times;
    int64_t prepared_tx_off;
    const uint8_t *body;
    uint32_t body_len;
    const uint8_t *topic;
    uint8_t topic_len;
    const uint8_t *props;
    uint16_t props_len;
};

enum record_state {
    RECORD_WHOLE,   /* *out is filled */
    RECORD_BLANK,   /* filler up to the segment's end; out->total_size is its length */
    RECORD_PARTIAL, /* valid so far, but `avail` ends before the record does */
    RECORD_BAD      /* no record begins here */
};

/*
 * Reads the record at `bytes`. Checks every length against `avail` and the fields' sum against
 * totalSize; with check_crc also the body. A totalSize above max_size is RECORD_BAD. A filler is
 * not bound by max_size: it may be as long as the batch that did not fit; the caller checks that it
 * ends where the segment does.
 */
enum record_state record_parse(const uint8_t *bytes, size_t avail, size_t max_size, bool check_crc,
                               struct record *out);

/* Bytes that a record with these lengths takes; sys_flag decides the hosts' sizes. */
size_t record_size(size_t body_len, size_t topic_len, size_t props_len, uint32_t sys_flag);

/*
 * Writes the record of `fields` (total_size and body_crc are computed; host families follow
 * sys_flag, which is set from the hosts' v6) and returns its size, 0 when it is above `cap`.
 * Lengths must be in range.
 */
size_t record_encode(uint8_t *dst, size_t cap, const struct record *fields);

/* CRC-32 of a body as RocketMQ stores it: zlib's, top bit cleared, 0 for an empty one. */
uint32_t record_body_crc(const void *body, size_t len);

/* Stamps in place. `record` must hold a whole record. */
void record_stamp_position(uint8_t *record, int64_t queue_off, int64_t phys_off);
void record_stamp_queue(uint8_t *record, int32_t queue_id);
void record_stamp_crc(uint8_t *record, uint32_t body_crc);
void record_stamp_store_time(uint8_t *record, int64_t store_ms); /* after sysFlag is final */
/* false when the host's family is not the one the record was laid out for. */
MUST_CHECK bool record_stamp_born_host(uint8_t *record, const struct host *host);
MUST_CHECK bool record_stamp_store_host(uint8_t *record, const struct host *host);

/* Offset message id: upper-case hex of store host and physical offset; 32 or 56 characters and NUL.
 */
enum { MESSAGE_ID_BYTES = 57 };
void message_id_format(char out[MESSAGE_ID_BYTES], const struct host *store_host, int64_t phys_off);
MUST_CHECK enum tern_code message_id_parse(const char *text, struct host *store_host,
                                           int64_t *phys_off);

/* "a.b.c.d:port" or "[v6]:port". */
enum { HOST_TEXT_BYTES = 64 };
void host_format(char out[HOST_TEXT_BYTES], const struct host *host);
/* Parses the same forms; a name is not resolved: TERN_INVALID. */
MUST_CHECK enum tern_code host_parse(const char *text, struct host *out);

#endif
