/*
 * Members of a set between memory and wire.
 *
 * Its place: both ends of every handshake and status. Threads: any; only the arguments are touched.
 * Failure modes: TERN_INVALID with a text that names the field; TERN_NO_MEMORY when the arena's
 * budget is used up.
 */
#include "broker/ha/ha_wire.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- from the wire ---- */

static enum tern_code take_name(const char *field, const ProtobufCBinaryData *bytes,
                                char out[BROKER_NAME_MAX + 1], struct tern_error *err)
{
    enum tern_code code = broker_name_check(bytes->data, bytes->len, err);
    if (code != TERN_OK)
        return error_prefix(err, code, "%s", field);
    memcpy(out, bytes->data, bytes->len);
    out[bytes->len] = 0;
    return TERN_OK;
}

static bool is_port(const char *text)
{
    uint32_t port = 0;
    size_t digits = strlen(text);
    if (digits < 1 || digits > 5 || strspn(text, "0123456789") != digits)
        return false;
    for (size_t i = 0; i < digits; i++)
        port = port * 10 + (uint32_t)(text[i] - '0');
    return port >= 1 && port <= 65535;
}

/* A name, an IPv4 address, or an IPv6 address in brackets; then the port. */
static bool is_address(const char *text)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    char host[HA_ADDRESS_BYTES];
    struct in6_addr v6;
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || !is_port(colon + 1))
        return false;
    size_t len = (size_t)(colon - text);
    memcpy(host, text, len);
    host[len] = 0;
    if (host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = 0;
        return inet_pton(AF_INET6, host + 1, &v6) == 1;
    }
    return strspn(host, allowed) == len;
}

/* May be empty: it is not known. */
static enum tern_code take_address(const char *field, const ProtobufCBinaryData *bytes,
                                   char out[HA_ADDRESS_BYTES], struct tern_error *err)
{
    if (bytes->len >= HA_ADDRESS_BYTES)
        return error_set(err, TERN_INVALID, "%s: %zu bytes, allowed are %d", field, bytes->len,
                         (int)HA_ADDRESS_BYTES - 1);
    if (bytes->len > 0 && memchr(bytes->data, 0, bytes->len))
        return error_set(err, TERN_INVALID, "%s: it holds a NUL", field);
    if (bytes->len > 0)
        memcpy(out, bytes->data, bytes->len);
    out[bytes->len] = 0;
    if (bytes->len > 0 && !is_address(out))
        return error_set(err, TERN_INVALID, "%s: '%.64s' is not host:port", field, out);
    return TERN_OK;
}

static enum tern_code take_epochs(const Tern__Wire__HaMember *wire, struct ha_member *out,
                                  struct tern_error *err)
{
    if (wire->n_epochs > EPOCHS_MAX)
        return error_set(err, TERN_INVALID, "epochs: %zu of them, at most %d can be",
                         wire->n_epochs, (int)EPOCHS_MAX);
    out->epoch_count = wire->n_epochs;
    for (size_t i = 0; i < wire->n_epochs; i++)
        out->epochs[i] = (struct ha_epoch){.number = wire->epochs[i]->number,
                                           .id = wire->epochs[i]->id,
                                           .start = wire->epochs[i]->start};
    if (!ha_epochs_sound(out->epochs, out->epoch_count))
        return error_set(err, TERN_INVALID,
                         "epochs: numbers and starts must grow from one to the next");
    uint64_t last = out->epoch_count > 0 ? out->epochs[out->epoch_count - 1].number : 0;
    out->highest_epoch = wire->highest_epoch;
    if (out->highest_epoch > HA_EPOCH_NUMBER_MAX || out->highest_epoch < last)
        return error_set(err, TERN_INVALID,
                         "highest_epoch: %" PRIu64 " is below the last epoch's number %" PRIu64
                         ", or too high",
                         out->highest_epoch, last);
    return TERN_OK;
}

static int64_t at_most(int64_t value, int64_t most)
{
    return value < most ? value : most;
}

/* flushed may lie within a partial record, which log_end leaves out. */
static enum tern_code take_positions(const Tern__Wire__HaMember *wire, struct ha_member *out,
                                     struct tern_error *err)
{
    if (wire->log_min < 0 || wire->log_end < wire->log_min)
        return error_set(err, TERN_INVALID, "log_min, log_end: %" PRId64 ", %" PRId64 " is no log",
                         wire->log_min, wire->log_end);
    if (wire->flushed < 0 || wire->dispatched < 0)
        return error_set(err, TERN_INVALID, "flushed, dispatched: negative");
    if (wire->segment_bytes <= 0)
        return error_set(err, TERN_INVALID, "segment_bytes: %" PRId64, wire->segment_bytes);
    out->log_min = wire->log_min;
    out->log_end = wire->log_end;
    out->flushed = at_most(wire->flushed, wire->log_end);
    out->dispatched = at_most(wire->dispatched, wire->log_end);
    out->readable = wire->readable;
    out->segment_bytes = wire->segment_bytes;
    return TERN_OK;
}

enum tern_code ha_member_from_wire(struct arena *arena, const Tern__Wire__HaMember *wire,
                                   struct ha_member *out, struct tern_error *err)
{
    (void)arena; /* everything is copied into the member */
    memset(out, 0, sizeof *out);
    if (wire->store_uuid.len != HA_UUID_BYTES)
        return error_set(err, TERN_INVALID, "store_uuid: %zu bytes, it must have %d",
                         wire->store_uuid.len, (int)HA_UUID_BYTES);
    memcpy(out->uuid, wire->store_uuid.data, HA_UUID_BYTES);
    if (wire->broker_id < 0)
        return error_set(err, TERN_INVALID, "broker_id: %" PRId64, wire->broker_id);
    out->id = wire->broker_id;
    out->life = wire->life;
    if ((int)wire->state < TERN__WIRE__HA_STATE__HA_RECOVERING ||
        (int)wire->state > TERN__WIRE__HA_STATE__HA_DETACHED)
        return error_set(err, TERN_INVALID, "state: %d is unknown", (int)wire->state);
    out->state = (int)wire->state;
    enum tern_code code = take_name("cluster_name", &wire->cluster_name, out->cluster, err);
    if (code == TERN_OK)
        code = take_name("broker_name", &wire->broker_name, out->name, err);
    if (code == TERN_OK)
        code = take_address("address", &wire->address, out->address, err);
    if (code == TERN_OK)
        code = take_address("ha_address", &wire->ha_address, out->ha_address, err);
    if (code == TERN_OK)
        code = take_epochs(wire, out, err);
    if (code == TERN_OK)
        code = take_positions(wire, out, err);
    return code;
}

/* ---- to the wire ---- */

static bool put_epochs(struct arena *arena, const struct ha_member *member,
                       Tern__Wire__HaMember *out)
{
    size_t count = member->epoch_count;
    if (count == 0)
        return true;
    Tern__Wire__Epoch *epochs = arena_alloc(arena, count * sizeof *epochs);
    out->epochs = arena_alloc(arena, count * sizeof(Tern__Wire__Epoch *));
    if (!epochs || !out->epochs)
        return false;
    for (size_t i = 0; i < count; i++) {
        tern__wire__epoch__init(&epochs[i]);
        epochs[i].number = member->epochs[i].number;
        epochs[i].id = member->epochs[i].id;
        epochs[i].start = member->epochs[i].start;
        out->epochs[i] = &epochs[i];
    }
    out->n_epochs = count;
    return true;
}

Tern__Wire__HaMember *ha_member_to_wire(struct arena *arena, const struct ha_member *member)
{
    Tern__Wire__HaMember *out = arena_alloc(arena, sizeof *out);
    if (!out)
        return NULL;
    tern__wire__ha_member__init(out);
    out->cluster_name = frame_bytes(member->cluster, strlen(member->cluster));
    out->broker_name = frame_bytes(member->name, strlen(member->name));
    out->broker_id = member->id;
    out->store_uuid = frame_bytes((const char *)member->uuid, HA_UUID_BYTES);
    out->address = frame_bytes(member->address, strlen(member->address));
    out->ha_address = frame_bytes(member->ha_address, strlen(member->ha_address));
    out->life = member->life;
    out->state = (Tern__Wire__HaState)member->state;
    out->highest_epoch = member->highest_epoch;
    out->log_min = member->log_min;
    out->log_end = member->log_end;
    out->flushed = member->flushed;
    out->dispatched = member->dispatched;
    out->readable = member->readable;
    out->segment_bytes = member->segment_bytes;
    return put_epochs(arena, member, out) ? out : NULL;
}

void ha_uuid_text(char out[HA_UUID_TEXT_BYTES], const uint8_t uuid[HA_UUID_BYTES])
{
    for (size_t i = 0; i < HA_UUID_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", uuid[i]);
}
