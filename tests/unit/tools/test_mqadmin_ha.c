/* mqadmin haStatus, forceOpen, rejoin: what becomes of a broker's answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tools/mqadmin/ha_status.h"

typedef Tern__Wire__HaMember HaMember;

struct world {
    HaMember self, slave, awaited, master;
    Tern__Wire__Epoch epochs[2], *epoch_pointers[2];
    Tern__Wire__HaSlaveStatus row, *rows[1];
    HaMember *awaited_rows[1];
    Tern__Wire__HaStatusResponse status;
    uint8_t uuid[16];
    char *text;
    json_t *json;
};

static ProtobufCBinaryData bytes(const char *value)
{
    return (ProtobufCBinaryData){.len = strlen(value), .data = (uint8_t *)(uintptr_t)value};
}

static void make_member(struct world *w, HaMember *member, int64_t id, const char *address,
                        const char *ha_address)
{
    tern__wire__ha_member__init(member);
    member->cluster_name = bytes("C");
    member->broker_name = bytes("broker-a");
    member->broker_id = id;
    member->store_uuid = (ProtobufCBinaryData){.len = sizeof w->uuid, .data = w->uuid};
    member->address = bytes(address);
    member->ha_address = bytes(ha_address);
    member->readable = true;
}

/* An open master with epochs 1 and 3 and one slave that is 100 bytes behind. */
static int set_up(void **state)
{
    static struct world world;
    struct world *w = &world;
    memset(w, 0, sizeof *w);
    memset(w->uuid, 0xab, sizeof w->uuid);
    make_member(w, &w->self, 0, "10.0.0.1:10911", "10.0.0.1:10912");
    make_member(w, &w->slave, 1, "10.0.0.2:10911", "10.0.0.2:10912");
    make_member(w, &w->awaited, 2, "", "10.0.0.3:10912");
    make_member(w, &w->master, 0, "10.0.0.1:10911", "10.0.0.1:10912");
    for (size_t i = 0; i < 2; i++) {
        tern__wire__epoch__init(&w->epochs[i]);
        w->epochs[i].number = 1 + 2 * i;
        w->epochs[i].start = (int64_t)(4096 * i);
        w->epoch_pointers[i] = &w->epochs[i];
    }
    w->self.state = TERN__WIRE__HA_STATE__HA_OPEN;
    w->self.epochs = w->epoch_pointers;
    w->self.n_epochs = 2;
    w->self.log_end = 8192;
    w->self.flushed = 8100;
    w->self.dispatched = 8000;
    w->slave.log_end = 8092;
    w->slave.flushed = 8092;
    tern__wire__ha_slave_status__init(&w->row);
    w->row.member = &w->slave;
    w->row.link_up = true;
    w->row.in_sync = true;
    w->row.lag_bytes = 100;
    w->row.lag_ms = 7;
    w->row.transfer_bytes_per_second = 3 << 20;
    w->rows[0] = &w->row;
    tern__wire__ha_status_response__init(&w->status);
    w->status.self = &w->self;
    w->status.confirmed = 8092;
    w->status.writable = true;
    w->status.slaves = w->rows;
    w->status.n_slaves = 1;
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    json_decref(w->json);
    free(w->text);
    return 0;
}

/* A master that waits for id 2. */
static void make_recovering(struct world *w)
{
    w->self.state = TERN__WIRE__HA_STATE__HA_RECOVERING;
    w->status.writable = false;
    w->status.state_text = (char *)(uintptr_t) "waiting for id 2, 12 s so far";
    w->awaited_rows[0] = &w->awaited;
    w->status.awaited = w->awaited_rows;
    w->status.n_awaited = 1;
    w->status.n_slaves = 0;
}

static void to_json(struct world *w)
{
    json_decref(w->json);
    w->json = ha_status_to_json(&w->status);
    assert_non_null(w->json);
}

static const char *print(struct world *w)
{
    size_t size;
    to_json(w);
    free(w->text);
    FILE *out = open_memstream(&w->text, &size);
    assert_non_null(out);
    ha_status_print(w->json, out);
    fclose(out);
    return w->text;
}

static bool warn(struct world *w, bool (*warning)(const json_t *, FILE *))
{
    size_t size;
    to_json(w);
    free(w->text);
    FILE *out = open_memstream(&w->text, &size);
    assert_non_null(out);
    bool sensible = warning(w->json, out);
    fclose(out);
    return sensible;
}

static json_int_t number(const json_t *json, const char *key)
{
    assert_true(json_is_integer(json_object_get(json, key)));
    return json_integer_value(json_object_get(json, key));
}

#define assert_has(text, part)                                                                     \
    do {                                                                                           \
        if (!strstr(text, part))                                                                   \
            fail_msg("\"%s\" is not in:\n%s", part, text);                                         \
    } while (0)

static void json_has_positions_epochs_and_slaves(void **state)
{
    struct world *w = *state;
    to_json(w);
    const json_t *positions = json_object_get(w->json, "positions");
    assert_int_equal(number(positions, "appended"), 8192);
    assert_int_equal(number(positions, "flushed"), 8100);
    assert_int_equal(number(positions, "confirmed"), 8092);
    assert_int_equal(number(positions, "dispatched"), 8000);
    const json_t *epochs = json_object_get(w->json, "epochs");
    assert_int_equal(json_array_size(epochs), 2);
    assert_int_equal(number(json_array_get(epochs, 1), "number"), 3);
    assert_int_equal(number(json_array_get(epochs, 1), "start"), 4096);
    assert_true(json_is_true(json_object_get(w->json, "writable")));
    assert_string_equal(json_string_value(json_object_get(w->json, "storeUuid")),
                        "abababababababababababababababab");
    const json_t *slave = json_array_get(json_object_get(w->json, "slaves"), 0);
    assert_int_equal(number(slave, "brokerId"), 1);
    assert_int_equal(number(slave, "position"), 8092);
    assert_int_equal(number(slave, "lagBytes"), 100);
    assert_int_equal(number(slave, "lagMs"), 7);
    assert_true(json_is_true(json_object_get(slave, "inSync")));
    assert_true(json_real_value(json_object_get(slave, "transferMibPerSecond")) == 3.0);
    assert_null(json_object_get(w->json, "master"));
}

static void text_of_a_master_has_a_row_per_slave(void **state)
{
    struct world *w = *state;
    const char *text = print(w);
    assert_has(text, "id 0  10.0.0.1:10911  open, writable");
    assert_has(text, "1 from 0, 3 from 4096");
    assert_has(text, "appended 8192, flushed 8100, confirmed 8092, dispatched 8000");
    assert_has(text, "10.0.0.2:10911");
    assert_has(text, "in sync");
    assert_has(text, "3.00");
    assert_null(strstr(text, "waits for"));
}

static void text_of_a_recovering_master_says_whom_it_waits_for(void **state)
{
    struct world *w = *state;
    make_recovering(w);
    const char *text = print(w);
    assert_has(text, "recovering, not writable");
    assert_has(text, "waiting for id 2, 12 s so far");
    assert_has(text, "waits for  id 2 (10.0.0.3:10912, store abab");
}

static void text_of_a_slave_shows_its_master_and_what_it_cut(void **state)
{
    struct world *w = *state;
    w->self.broker_id = 1;
    w->self.state = TERN__WIRE__HA_STATE__HA_FOLLOWING;
    w->status.writable = false;
    w->status.n_slaves = 0;
    w->master.log_end = 9000;
    w->status.master = &w->master;
    w->status.transfer_bytes_per_second = 1 << 20;
    w->status.cut_bytes = 390;
    const char *text = print(w);
    assert_has(text, "id 1  10.0.0.1:10911  following\n");
    assert_has(text, "master     10.0.0.1:10912, at 9000, receiving 1.00 MiB/s");
    assert_has(text, "390 bytes since the start, saved under diverged/");
    assert_null(strstr(text, "writable"));
    w->self.readable = false;
    assert_has(print(w), "following, not readable");
}

/* What comes from the wire may lack everything, or hold what is no text. */
static void empty_and_malformed_answers_are_shown(void **state)
{
    struct world *w = *state;
    static uint8_t odd[] = {0xff, 0xfe, 0};
    w->status.n_slaves = 0;
    w->status.self = NULL;
    assert_has(print(w), "unknown");
    w->status.self = &w->self;
    w->self.address = (ProtobufCBinaryData){.len = sizeof odd, .data = odd};
    w->self.store_uuid.len = 3;
    w->self.state = (Tern__Wire__HaState)77;
    w->status.n_slaves = 1;
    w->row.member = NULL;
    assert_has(print(w), "(not UTF-8)  unknown");
    assert_string_equal(json_string_value(json_object_get(w->json, "storeUuid")), "");
}

static void broker_without_an_answer_is_listed(void **state)
{
    struct world *w = *state;
    size_t size;
    w->json = ha_status_no_answer(1, "10.0.0.2:10911", "timed out");
    FILE *out = open_memstream(&w->text, &size);
    ha_status_print(w->json, out);
    fclose(out);
    assert_string_equal(w->text, "  id 1  10.0.0.2:10911  no answer\n    timed out\n");
}

/* ---- forceOpen, rejoin ---- */

static void forcing_tells_what_may_be_lost(void **state)
{
    struct world *w = *state;
    make_recovering(w);
    assert_true(warn(w, ha_force_warning));
    assert_has(w->text, "Its log ends at 8192");
    assert_has(w->text, "id 2 (10.0.0.3:10912, store abab");
    assert_has(w->text, "not heard; it may have messages beyond 8192 that were acknowledged");
    w->awaited.log_end = 9000;
    assert_true(warn(w, ha_force_warning));
    assert_has(w->text, "last known to end at 9000");
}

static void open_master_has_nothing_to_force(void **state)
{
    struct world *w = *state;
    assert_false(warn(w, ha_force_warning));
    assert_has(w->text, "10.0.0.1:10911 is open: there is nothing to force");
}

static void only_a_detached_slave_rejoins(void **state)
{
    struct world *w = *state;
    w->self.state = TERN__WIRE__HA_STATE__HA_FOLLOWING;
    assert_false(warn(w, ha_rejoin_warning));
    assert_has(w->text, "only a detached slave");
    w->self.state = TERN__WIRE__HA_STATE__HA_DETACHED;
    assert_true(warn(w, ha_rejoin_warning));
    assert_has(w->text, "log 0..8192, is saved aside");
}

static void uuid_is_32_hex_digits(void **state)
{
    struct world *w = *state;
    uint8_t uuid[16];
    assert_true(ha_uuid_parse("abababababababababababababababab", uuid));
    assert_memory_equal(uuid, w->uuid, 16);
    assert_true(ha_uuid_parse("00112233-4455-6677-8899-AABBCCDDEEFF", uuid));
    assert_int_equal(uuid[1], 0x11);
    assert_int_equal(uuid[15], 0xff);
    assert_false(ha_uuid_parse("", uuid));
    assert_false(ha_uuid_parse("ababababababababababababababab", uuid));
    assert_false(ha_uuid_parse("abababababababababababababababab0", uuid));
    assert_false(ha_uuid_parse("gbababababababababababababababab", uuid));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(json_has_positions_epochs_and_slaves),
        CASE(text_of_a_master_has_a_row_per_slave),
        CASE(text_of_a_recovering_master_says_whom_it_waits_for),
        CASE(text_of_a_slave_shows_its_master_and_what_it_cut),
        CASE(empty_and_malformed_answers_are_shown),
        CASE(broker_without_an_answer_is_listed),
        CASE(forcing_tells_what_may_be_lost),
        CASE(open_master_has_nothing_to_force),
        CASE(only_a_detached_slave_rejoins),
        CASE(uuid_is_32_hex_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
