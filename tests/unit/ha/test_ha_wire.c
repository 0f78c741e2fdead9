/* broker/ha/ha_wire: a member comes back as it went, and what cannot be is refused by its field. */
#include "tests/unit/broker/broker_unit.h"

#include "broker/ha/ha_wire.h"

static struct arena arena;
static struct ha_member member;
static struct ha_member back;
static struct tern_error err;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, 1 << 20);
    memset(&member, 0, sizeof member);
    snprintf(member.cluster, sizeof member.cluster, "DefaultCluster");
    snprintf(member.name, sizeof member.name, "broker-a");
    member.id = 1;
    memset(member.uuid, 0xA5, sizeof member.uuid);
    snprintf(member.address, sizeof member.address, "broker-a.example:10911");
    snprintf(member.ha_address, sizeof member.ha_address, "[2001:db8::1]:10912");
    member.life = UINT64_MAX;
    member.state = TERN__WIRE__HA_STATE__HA_FOLLOWING;
    member.epoch_count = 2;
    member.epochs[0] = (struct ha_epoch){1, 10, 0};
    member.epochs[1] = (struct ha_epoch){4, UINT64_MAX, INT64_MAX / 2};
    member.highest_epoch = 9;
    member.log_min = 4096;
    member.log_end = INT64_MAX;
    member.flushed = 5000;
    member.dispatched = 4097;
    member.readable = true;
    member.segment_bytes = 1 << 30;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

/* Over the wire and back. */
static enum tern_code travel(void)
{
    Tern__Wire__HaMember *wire = ha_member_to_wire(&arena, &member);
    assert_non_null(wire);
    size_t size = tern__wire__ha_member__get_packed_size(wire);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    tern__wire__ha_member__pack(wire, bytes);
    Tern__Wire__HaMember *got = tern__wire__ha_member__unpack(NULL, size, bytes);
    assert_non_null(got);
    enum tern_code code = ha_member_from_wire(&arena, got, &back, &err);
    tern__wire__ha_member__free_unpacked(got, NULL);
    free(bytes);
    return code;
}

static void a_member_comes_back_as_it_went(void **state)
{
    (void)state;
    assert_ok(travel());
    assert_memory_equal(&back, &member, sizeof member);
    member.epoch_count = 0;
    memset(member.epochs, 0, sizeof member.epochs);
    memset(member.address, 0, sizeof member.address); /* not known yet */
    member.id = 0;
    assert_ok(travel());
    assert_memory_equal(&back, &member, sizeof member);
}

static void positions_stay_within_whole_records(void **state)
{
    (void)state;
    member.log_end = 4500;
    member.epochs[1].start = 4200;
    assert_ok(travel());
    assert_int_equal(back.flushed, 4500);
    assert_int_equal(back.dispatched, 4097);
}

static void refuses(const char *field)
{
    assert_int_equal(travel(), TERN_INVALID);
    assert_contains(err.text, field);
    teardown(NULL);
    setup(NULL);
}

static void what_cannot_be_is_refused_by_its_field(void **state)
{
    (void)state;
    snprintf(member.cluster, sizeof member.cluster, "../x");
    refuses("cluster_name");
    member.name[0] = 0;
    refuses("broker_name");
    member.id = -1;
    refuses("broker_id");
    snprintf(member.address, sizeof member.address, "no port");
    refuses("address");
    snprintf(member.ha_address, sizeof member.ha_address, "a:0");
    refuses("ha_address");
    snprintf(member.ha_address, sizeof member.ha_address, "a:65536");
    refuses("ha_address");
    snprintf(member.ha_address, sizeof member.ha_address, "[::g]:1");
    refuses("ha_address");
    snprintf(member.ha_address, sizeof member.ha_address, "a\nb:1");
    refuses("ha_address");
    snprintf(member.ha_address, sizeof member.ha_address, ":1");
    refuses("ha_address");
    member.state = 5;
    refuses("state");
    member.state = -1;
    refuses("state");
    member.epochs[1].number = 1;
    refuses("epochs");
    member.highest_epoch = 3;
    refuses("highest_epoch");
    member.highest_epoch = UINT64_MAX;
    refuses("highest_epoch");
    member.log_end = member.log_min - 1;
    refuses("log_end");
    member.log_min = -1;
    refuses("log_min");
    member.flushed = -1;
    refuses("flushed");
    member.dispatched = -1;
    refuses("dispatched");
    member.segment_bytes = 0;
    refuses("segment_bytes");
}

static void lengths_are_checked_before_anything_is_copied(void **state)
{
    (void)state;
    static char bytes[4096];
    memset(bytes, 'a', sizeof bytes);
    Tern__Wire__HaMember *wire = ha_member_to_wire(&arena, &member);
    wire->store_uuid = frame_bytes(bytes, 15);
    assert_int_equal(ha_member_from_wire(&arena, wire, &back, &err), TERN_INVALID);
    wire->store_uuid = frame_bytes(bytes, sizeof bytes);
    assert_int_equal(ha_member_from_wire(&arena, wire, &back, &err), TERN_INVALID);
    wire = ha_member_to_wire(&arena, &member);
    wire->cluster_name = frame_bytes(bytes, BROKER_NAME_MAX + 1);
    assert_int_equal(ha_member_from_wire(&arena, wire, &back, &err), TERN_INVALID);
    wire = ha_member_to_wire(&arena, &member);
    wire->ha_address = frame_bytes(bytes, HA_ADDRESS_BYTES);
    assert_int_equal(ha_member_from_wire(&arena, wire, &back, &err), TERN_INVALID);
    wire = ha_member_to_wire(&arena, &member);
    wire->ha_address = frame_bytes("a\0b:1", 5);
    assert_int_equal(ha_member_from_wire(&arena, wire, &back, &err), TERN_INVALID);
    static Tern__Wire__Epoch *many[EPOCHS_MAX + 1];
    wire = ha_member_to_wire(&arena, &member);
    for (size_t i = 0; i < EPOCHS_MAX + 1; i++)
        many[i] = wire->epochs[0];
    wire->epochs = many;
    wire->n_epochs = EPOCHS_MAX + 1;
    assert_int_equal(ha_member_from_wire(&arena, wire, &back, &err), TERN_INVALID);
}

static void without_memory_there_is_no_member(void **state)
{
    (void)state;
    arena_fini(&arena);
    arena_init(&arena, 64);
    assert_null(ha_member_to_wire(&arena, &member));
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_member_comes_back_as_it_went),         T(positions_stay_within_whole_records),
        T(what_cannot_be_is_refused_by_its_field), T(lengths_are_checked_before_anything_is_copied),
        T(without_memory_there_is_no_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
