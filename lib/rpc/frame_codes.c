/*
 * tern_code <-> Response.code, the one mapping of the process. Codes that mean something only
 * inside a process leave it as the answer that tells the sender what it can do: try later,
 * elsewhere, or not at all.
 *
 * One row per tern_code, checked to be complete by a test. The way back is the inverse of the rows
 * marked BOTH, plus a few wire codes that several of our own become.
 *
 * Threads: any. Failure modes: none; an unknown wire code is a SYSTEM_ERROR.
 */
#include "rpc/frame.h"

#define WIRE(name) TERN__WIRE__CODE__##name

enum direction {
    OUT = 1, /* only from us to the wire */
    BOTH = 3
};

static const struct {
    int32_t wire;
    enum direction direction;
} rows[TERN_CODE_COUNT] = {
    [TERN_OK] = {WIRE(SUCCESS), BOTH},
    /* the caller's mistake: repeating it does not help */
    [TERN_INVALID] = {WIRE(INVALID_REQUEST), BOTH},
    [TERN_PROTOCOL] = {WIRE(INVALID_REQUEST), OUT},
    [TERN_TOO_LARGE] = {WIRE(MESSAGE_ILLEGAL), OUT},
    [TERN_NOT_SUPPORTED] = {WIRE(REQUEST_CODE_NOT_SUPPORTED), BOTH},
    [TERN_NOT_FOUND] = {WIRE(QUERY_NOT_FOUND), OUT},
    [TERN_EXISTS] = {WIRE(INVALID_REQUEST), OUT},
    [TERN_CONFIG] = {WIRE(INVALID_REQUEST), OUT},
    /* this server cannot now, another one may */
    [TERN_STATE] = {WIRE(SERVICE_NOT_AVAILABLE), OUT},
    [TERN_NO_SPACE] = {WIRE(SERVICE_NOT_AVAILABLE), OUT},
    [TERN_CANCELED] = {WIRE(SERVICE_NOT_AVAILABLE), OUT},
    [TERN_UNREACHABLE] = {WIRE(SERVICE_NOT_AVAILABLE), OUT},
    [TERN_CONNECTION_LOST] = {WIRE(SERVICE_NOT_AVAILABLE), OUT},
    /* too much at once: the same server, later */
    [TERN_AGAIN] = {WIRE(SYSTEM_BUSY), OUT},
    [TERN_LIMIT] = {WIRE(SYSTEM_BUSY), OUT},
    [TERN_TIMEOUT] = {WIRE(SYSTEM_BUSY), OUT},
    /* our own trouble */
    [TERN_NO_MEMORY] = {WIRE(SYSTEM_ERROR), OUT},
    [TERN_IO] = {WIRE(SYSTEM_ERROR), OUT},
    [TERN_CORRUPT] = {WIRE(SYSTEM_ERROR), OUT},
    [TERN_IN_USE] = {WIRE(SYSTEM_ERROR), OUT},
    /* RocketMQ's answers, one to one */
    [TERN_SYSTEM_ERROR] = {WIRE(SYSTEM_ERROR), BOTH},
    [TERN_SYSTEM_BUSY] = {WIRE(SYSTEM_BUSY), BOTH},
    [TERN_TRANSACTION_FAILED] = {WIRE(TRANSACTION_FAILED), BOTH},
    [TERN_MESSAGE_ILLEGAL] = {WIRE(MESSAGE_ILLEGAL), BOTH},
    [TERN_SERVICE_NOT_AVAILABLE] = {WIRE(SERVICE_NOT_AVAILABLE), BOTH},
    [TERN_NO_PERMISSION] = {WIRE(NO_PERMISSION), BOTH},
    [TERN_TOPIC_NOT_EXIST] = {WIRE(TOPIC_NOT_EXIST), BOTH},
    [TERN_GROUP_NOT_EXIST] = {WIRE(SUBSCRIPTION_GROUP_NOT_EXIST), BOTH},
    [TERN_QUERY_NOT_FOUND] = {WIRE(QUERY_NOT_FOUND), BOTH},
    [TERN_SUBSCRIPTION_PARSE_FAILED] = {WIRE(SUBSCRIPTION_PARSE_FAILED), BOTH},
    [TERN_SUBSCRIPTION_NOT_EXIST] = {WIRE(SUBSCRIPTION_NOT_EXIST), BOTH},
    [TERN_SUBSCRIPTION_NOT_LATEST] = {WIRE(SUBSCRIPTION_NOT_LATEST), BOTH},
    [TERN_FILTER_DATA_NOT_EXIST] = {WIRE(FILTER_DATA_NOT_EXIST), BOTH},
    [TERN_FILTER_DATA_NOT_LATEST] = {WIRE(FILTER_DATA_NOT_LATEST), BOTH},
    [TERN_CONSUMER_NOT_ONLINE] = {WIRE(CONSUMER_NOT_ONLINE), BOTH},
    [TERN_FLOW_CONTROL] = {WIRE(FLOW_CONTROL), BOTH},
    [TERN_FLUSH_DISK_TIMEOUT] = {WIRE(FLUSH_DISK_TIMEOUT), BOTH},
    [TERN_FLUSH_SLAVE_TIMEOUT] = {WIRE(FLUSH_SLAVE_TIMEOUT), BOTH},
    [TERN_SLAVE_NOT_AVAILABLE] = {WIRE(SLAVE_NOT_AVAILABLE), BOTH},
    [TERN_PULL_NOT_FOUND] = {WIRE(PULL_NOT_FOUND), BOTH},
    [TERN_PULL_RETRY_IMMEDIATELY] = {WIRE(PULL_RETRY_IMMEDIATELY), BOTH},
    [TERN_PULL_OFFSET_MOVED] = {WIRE(PULL_OFFSET_MOVED), BOTH},
    [TERN_PROGRESS_UNKNOWN] = {WIRE(PROGRESS_UNKNOWN), BOTH},
    [TERN_OFFSET_VERSION_OLD] = {WIRE(OFFSET_VERSION_OLD), BOTH},
    [TERN_NAME_CONFLICT] = {WIRE(NAME_CONFLICT), BOTH},
    [TERN_SUBSCRIPTION_DIFFERS] = {WIRE(SUBSCRIPTION_DIFFERS), BOTH},
};

int32_t wire_code_of(enum tern_code code)
{
    if ((unsigned)code >= TERN_CODE_COUNT || rows[code].direction == 0)
        return WIRE(SYSTEM_ERROR);
    return rows[code].wire;
}

enum tern_code wire_code_to(int32_t wire_code)
{
    if (wire_code == WIRE(VERSION_NOT_SUPPORTED))
        return TERN_NOT_SUPPORTED;
    for (unsigned code = 0; code < TERN_CODE_COUNT; code++)
        if (rows[code].direction == BOTH && rows[code].wire == wire_code)
            return (enum tern_code)code;
    return TERN_SYSTEM_ERROR;
}
