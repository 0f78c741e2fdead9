/*
 * Records of the CommitLog: reading, writing and stamping bytes.
 *
 * Invariants: record_parse trusts nothing. It reads a field only after checking that it lies inside
 * both the bytes at hand and the record's own length, and accepts only when the fields add up to
 * exactly that length. The stamps trust the record, which the caller has parsed.
 *
 * Threads: any; no state, no allocation. Failure modes: a state or a size, never an abort on bytes
 * from outside; lengths out of range in record_encode are a bug of the caller and abort.
 */
#include "base/record.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include <isa-l/crc.h>

#include "base/bytes.h"

enum {
    OFF_TOTAL_SIZE = 0,
    OFF_MAGIC = 4,
    OFF_BODY_CRC = 8,
    OFF_QUEUE_ID = 12,
    OFF_FLAG = 16,
    OFF_QUEUE_OFF = 20,
    OFF_PHYS_OFF = 28,
    OFF_SYS_FLAG = 36,
    OFF_BORN_MS = 40,
    OFF_BORN_HOST = 48,
    HOST_V4_BYTES = 8,
    HOST_V6_BYTES = 20
};

static size_t host_bytes(bool v6)
{
    return v6 ? HOST_V6_BYTES : HOST_V4_BYTES;
}

static size_t born_host_bytes(uint32_t sys_flag)
{
    return host_bytes(sys_flag & SYS_BORN_V6);
}

static size_t store_host_bytes(uint32_t sys_flag)
{
    return host_bytes(sys_flag & SYS_STORE_V6);
}

static const uint8_t *get_host(const uint8_t *p, bool v6, struct host *out)
{
    size_t ip_len = v6 ? 16 : 4;
    memset(out, 0, sizeof *out);
    memcpy(out->ip, p, ip_len);
    out->port = get_be32(p + ip_len);
    out->v6 = v6;
    return p + ip_len + 4;
}

static uint8_t *put_host(uint8_t *p, const struct host *host)
{
    size_t ip_len = host->v6 ? 16 : 4;
    memcpy(p, host->ip, ip_len);
    put_be32(p + ip_len, host->port);
    return p + ip_len + 4;
}

uint32_t record_body_crc(const void *body, size_t len)
{
    return len ? crc32_gzip_refl(0, body, len) & 0x7FFFFFFFu : 0;
}

size_t record_size(size_t body_len, size_t topic_len, size_t props_len, uint32_t sys_flag)
{
    size_t size = RECORD_FIXED_BYTES + body_len + topic_len + props_len;
    if (sys_flag & SYS_BORN_V6)
        size += RECORD_V6_EXTRA_BYTES;
    if (sys_flag & SYS_STORE_V6)
        size += RECORD_V6_EXTRA_BYTES;
    return size;
}

/* Size and magic, as far as `avail` goes. RECORD_WHOLE: go on with the fields. */
static enum record_state parse_head(const uint8_t *bytes, size_t avail, size_t max_size,
                                    struct record *out)
{
    if (avail < 4)
        return RECORD_PARTIAL;
    out->total_size = get_be32(bytes);
    if (out->total_size < RECORD_BLANK_BYTES || out->total_size > INT32_MAX)
        return RECORD_BAD;
    uint8_t magic[4];
    uint8_t blank[4];
    put_be32(magic, RECORD_MAGIC);
    put_be32(blank, BLANK_MAGIC);
    size_t known = avail < RECORD_BLANK_BYTES ? avail - OFF_MAGIC : sizeof magic;
    bool may_be_blank = memcmp(bytes + OFF_MAGIC, blank, known) == 0;
    bool may_be_record = memcmp(bytes + OFF_MAGIC, magic, known) == 0 &&
                         out->total_size >= RECORD_FIXED_BYTES && out->total_size <= max_size;
    if (!may_be_blank && !may_be_record)
        return RECORD_BAD;
    if (known < sizeof magic)
        return RECORD_PARTIAL;
    return may_be_blank ? RECORD_BLANK : RECORD_WHOLE;
}

/* The fields before the body, once all of them are at hand; returns where the body's length is. */
static size_t parse_fixed(const uint8_t *bytes, struct record *out)
{
    out->body_crc = get_be32(bytes + OFF_BODY_CRC);
    out->queue_id = (int32_t)get_be32(bytes + OFF_QUEUE_ID);
    out->flag = (int32_t)get_be32(bytes + OFF_FLAG);
    out->queue_off = (int64_t)get_be64(bytes + OFF_QUEUE_OFF);
    out->phys_off = (int64_t)get_be64(bytes + OFF_PHYS_OFF);
    out->born_ms = (int64_t)get_be64(bytes + OFF_BORN_MS);
    const uint8_t *p =
        get_host(bytes + OFF_BORN_HOST, out->sys_flag & SYS_BORN_V6, &out->born_host);
    out->store_ms = (int64_t)get_be64(p);
    p = get_host(p + 8, out->sys_flag & SYS_STORE_V6, &out->store_host);
    out->reconsume_times = (int32_t)get_be32(p);
    out->prepared_tx_off = (int64_t)get_be64(p + 4);
    return (size_t)(p + 12 - bytes);
}

/*
 * Body, topic and properties: a length of `width` bytes, then as many bytes. `left` is what the
 * record still has room for behind this field's length. false: *state says why.
 */
static bool parse_var(const uint8_t *bytes, size_t avail, size_t *at, size_t width, size_t longest,
                      size_t *left, const uint8_t **ptr, size_t *len, enum record_state *state)
{
    *state = RECORD_PARTIAL;
    if (avail - *at < width)
        return false;
    const uint8_t *p = bytes + *at;
    *len = width == 4 ? get_be32(p) : width == 2 ? get_be16(p) : *p;
    if (*len > longest || *len > *left) {
        *state = RECORD_BAD;
        return false;
    }
    *at += width;
    *left -= *len;
    if (avail - *at < *len)
        return false;
    *ptr = bytes + *at;
    *at += *len;
    return true;
}

enum record_state record_parse(const uint8_t *bytes, size_t avail, size_t max_size, bool check_crc,
                               struct record *out)
{
    memset(out, 0, sizeof *out);
    enum record_state state = parse_head(bytes, avail, max_size, out);
    if (state != RECORD_WHOLE)
        return state;
    if (avail < OFF_BORN_MS)
        return RECORD_PARTIAL;
    out->sys_flag = get_be32(bytes + OFF_SYS_FLAG);
    size_t fixed = record_size(0, 0, 0, out->sys_flag);
    if (out->total_size < fixed)
        return RECORD_BAD;
    if (avail > out->total_size)
        avail = out->total_size;
    size_t left = out->total_size - fixed; /* for body, topic and properties together */
    if (avail < fixed - 4 - 1 - 2)
        return RECORD_PARTIAL;
    size_t at = parse_fixed(bytes, out);
    size_t body_len;
    size_t topic_len;
    size_t props_len;
    if (!parse_var(bytes, avail, &at, 4, INT32_MAX, &left, &out->body, &body_len, &state))
        return state;
    out->body_len = (uint32_t)body_len;
    if (!parse_var(bytes, avail, &at, 1, INT8_MAX, &left, &out->topic, &topic_len, &state))
        return state;
    out->topic_len = (uint8_t)topic_len;
    if (!parse_var(bytes, avail, &at, 2, RECORD_PROPS_MAX, &left, &out->props, &props_len, &state))
        return state;
    out->props_len = (uint16_t)props_len;
    if (left != 0)
        return RECORD_BAD;
    /* As RocketMQ: the stored CRC of an empty body is not looked at. */
    if (check_crc && body_len > 0 && record_body_crc(out->body, body_len) != out->body_crc)
        return RECORD_BAD;
    return RECORD_WHOLE;
}

static uint8_t *put_bytes(uint8_t *p, const uint8_t *bytes, size_t len)
{
    if (len > 0)
        memcpy(p, bytes, len);
    return p + len;
}

size_t record_encode(uint8_t *dst, size_t cap, const struct record *fields)
{
    ENSURE(fields->topic_len <= INT8_MAX && fields->props_len <= RECORD_PROPS_MAX);
    ENSURE(fields->body_len <= INT32_MAX - RECORD_PROPS_MAX - 512);
    uint32_t sys_flag = fields->sys_flag & ~((uint32_t)SYS_BORN_V6 | SYS_STORE_V6);
    sys_flag |= fields->born_host.v6 ? (uint32_t)SYS_BORN_V6 : 0;
    sys_flag |= fields->store_host.v6 ? (uint32_t)SYS_STORE_V6 : 0;
    size_t total = record_size(fields->body_len, fields->topic_len, fields->props_len, sys_flag);
    if (total > cap)
        return 0;
    put_be32(dst + OFF_TOTAL_SIZE, (uint32_t)total);
    put_be32(dst + OFF_MAGIC, RECORD_MAGIC);
    put_be32(dst + OFF_BODY_CRC, record_body_crc(fields->body, fields->body_len));
    put_be32(dst + OFF_QUEUE_ID, (uint32_t)fields->queue_id);
    put_be32(dst + OFF_FLAG, (uint32_t)fields->flag);
    put_be64(dst + OFF_QUEUE_OFF, (uint64_t)fields->queue_off);
    put_be64(dst + OFF_PHYS_OFF, (uint64_t)fields->phys_off);
    put_be32(dst + OFF_SYS_FLAG, sys_flag);
    put_be64(dst + OFF_BORN_MS, (uint64_t)fields->born_ms);
    uint8_t *p = put_host(dst + OFF_BORN_HOST, &fields->born_host);
    put_be64(p, (uint64_t)fields->store_ms);
    p = put_host(p + 8, &fields->store_host);
    put_be32(p, (uint32_t)fields->reconsume_times);
    put_be64(p + 4, (uint64_t)fields->prepared_tx_off);
    put_be32(p + 12, fields->body_len);
    p = put_bytes(p + 16, fields->body, fields->body_len);
    *p++ = fields->topic_len;
    p = put_bytes(p, fields->topic, fields->topic_len);
    put_be16(p, fields->props_len);
    p = put_bytes(p + 2, fields->props, fields->props_len);
    ENSURE((size_t)(p - dst) == total);
    return total;
}

void record_stamp_position(uint8_t *record, int64_t queue_off, int64_t phys_off)
{
    put_be64(record + OFF_QUEUE_OFF, (uint64_t)queue_off);
    put_be64(record + OFF_PHYS_OFF, (uint64_t)phys_off);
}

void record_stamp_queue(uint8_t *record, int32_t queue_id)
{
    put_be32(record + OFF_QUEUE_ID, (uint32_t)queue_id);
}

void record_stamp_crc(uint8_t *record, uint32_t body_crc)
{
    put_be32(record + OFF_BODY_CRC, body_crc);
}

void record_stamp_store_time(uint8_t *record, int64_t store_ms)
{
    uint32_t sys_flag = get_be32(record + OFF_SYS_FLAG);
    put_be64(record + OFF_BORN_HOST + born_host_bytes(sys_flag), (uint64_t)store_ms);
}

bool record_stamp_born_host(uint8_t *record, const struct host *host)
{
    uint32_t sys_flag = get_be32(record + OFF_SYS_FLAG);
    if (host_bytes(host->v6) != born_host_bytes(sys_flag))
        return false;
    put_host(record + OFF_BORN_HOST, host);
    return true;
}

bool record_stamp_store_host(uint8_t *record, const struct host *host)
{
    uint32_t sys_flag = get_be32(record + OFF_SYS_FLAG);
    if (host_bytes(host->v6) != store_host_bytes(sys_flag))
        return false;
    put_host(record + OFF_BORN_HOST + born_host_bytes(sys_flag) + 8, host);
    return true;
}

void message_id_format(char out[MESSAGE_ID_BYTES], const struct host *store_host, int64_t phys_off)
{
    static const char hex[] = "0123456789ABCDEF";
    uint8_t raw[HOST_V6_BYTES + 8];
    uint8_t *end = put_host(raw, store_host);
    put_be64(end, (uint64_t)phys_off);
    size_t len = (size_t)(end - raw) + 8;
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = hex[raw[i] >> 4];
        out[2 * i + 1] = hex[raw[i] & 15];
    }
    out[2 * len] = 0;
}

/* 0..15, or -1. */
static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

enum tern_code message_id_parse(const char *text, struct host *store_host, int64_t *phys_off)
{
    uint8_t raw[HOST_V6_BYTES + 8];
    size_t len = strnlen(text, MESSAGE_ID_BYTES);
    if (len != 2 * (HOST_V4_BYTES + 8) && len != 2 * (HOST_V6_BYTES + 8))
        return TERN_INVALID;
    for (size_t i = 0; i < len; i += 2) {
        int high = hex_digit(text[i]);
        int low = hex_digit(text[i + 1]);
        if (high < 0 || low < 0)
            return TERN_INVALID;
        raw[i / 2] = (uint8_t)(high << 4 | low);
    }
    const uint8_t *p = get_host(raw, len == 2 * (HOST_V6_BYTES + 8), store_host);
    int64_t offset = (int64_t)get_be64(p);
    if (offset < 0)
        return TERN_INVALID;
    *phys_off = offset;
    return TERN_OK;
}

void host_format(char out[HOST_TEXT_BYTES], const struct host *host)
{
    char ip[INET6_ADDRSTRLEN] = "";
    inet_ntop(host->v6 ? AF_INET6 : AF_INET, host->ip, ip, sizeof ip);
    snprintf(out, HOST_TEXT_BYTES, host->v6 ? "[%s]:%u" : "%s:%u", ip, host->port);
}

/* "0" to "65535", nothing else. */
static bool parse_port(const char *text, uint32_t *port)
{
    size_t len = strnlen(text, 6);
    if (len == 0 || len > 5)
        return false;
    uint32_t value = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (uint32_t)(text[i] - '0');
    }
    *port = value;
    return value <= 65535;
}

enum tern_code host_parse(const char *text, struct host *out)
{
    memset(out, 0, sizeof *out);
    out->v6 = text[0] == '[';
    const char *ip = text + (out->v6 ? 1 : 0);
    const char *end = strchr(ip, out->v6 ? ']' : ':');
    char copy[INET6_ADDRSTRLEN];
    if (!end || (size_t)(end - ip) >= sizeof copy)
        return TERN_INVALID;
    memcpy(copy, ip, (size_t)(end - ip));
    copy[end - ip] = 0;
    if (inet_pton(out->v6 ? AF_INET6 : AF_INET, copy, out->ip) != 1)
        return TERN_INVALID;
    if (out->v6 && *++end != ':')
        return TERN_INVALID;
    return parse_port(end + 1, &out->port) ? TERN_OK : TERN_INVALID;
}
