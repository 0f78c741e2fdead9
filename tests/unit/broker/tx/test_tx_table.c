/* What a broker knows of its transactions, and what their records say. */
#include "tests/unit/broker/broker_unit.h"

#include "base/names.h"
#include "base/props.h"
#include "broker/tx/tx_record.h"
#include "broker/tx/tx_table.h"

static struct tx_table table;

static void add(int64_t half_off, enum tx_state state)
{
    struct tx_entry entry = {
        .half_off = half_off, .phys_off = half_off * 100, .size = 200, .state = (uint8_t)state};
    assert_true(tx_table_reserve(&table, 1));
    assert_true(tx_table_add(&table, &entry));
}

static void entries_are_found_by_either_offset_whatever_order_they_came_in(void **state)
{
    (void)state;
    tx_table_init(&table);
    for (int64_t i = 0; i < 1000; i++)
        add(i * 7 % 1000, TX_PENDING);
    for (int64_t i = 0; i < 1000; i++) {
        assert_int_equal(tx_table_find(&table, i)->phys_off, i * 100);
        assert_int_equal(tx_table_find_phys(&table, i * 100)->half_off, i);
    }
    assert_null(tx_table_find(&table, 1000));
    assert_null(tx_table_find_phys(&table, 50));
    assert_int_equal(tx_table_after(&table, -1)->half_off, 0);
    assert_null(tx_table_after(&table, 999));
    assert_null(tx_table_after(&table, INT64_MAX));
    assert_false(tx_table_add(&table, tx_table_find(&table, 5)));
    tx_table_fini(&table);
}

static void decided_ones_are_forgotten_oldest_first_and_pending_ones_never(void **state)
{
    (void)state;
    tx_table_init(&table);
    add(0, TX_PENDING);
    add(1, TX_DISCARDED);
    for (int64_t i = 2; i < 100000; i++) {
        add(i, TX_PENDING);
        tx_table_set(&table, tx_table_find(&table, i), TX_COMMITTED);
    }
    assert_true(table.count <= 2 * TX_REMEMBERED + 4);
    assert_int_equal(tx_table_open(&table), 1);
    assert_non_null(tx_table_find(&table, 0));
    assert_non_null(tx_table_find(&table, 1));
    assert_null(tx_table_find(&table, 2));
    assert_int_equal(tx_table_find(&table, 99999)->state, TX_COMMITTED);
    tx_table_fini(&table);
}

/* Every entry is where it belongs, and counted once. */
static void check_table(void)
{
    size_t of[TX_STATES] = {0};
    size_t count = 0;
    int64_t last = -1;
    for (const struct tx_entry *e = tx_table_after(&table, -1); e; e = tx_table_next(&table, e)) {
        assert_true(e->half_off > last);
        assert_int_equal(e->phys_off, e->half_off * 100);
        assert_ptr_equal(tx_table_after(&table, last), e);
        assert_ptr_equal(tx_table_find(&table, e->half_off), e);
        assert_ptr_equal(tx_table_find_phys(&table, e->phys_off), e);
        last = e->half_off;
        of[e->state]++;
        count++;
    }
    assert_null(tx_table_after(&table, last));
    assert_int_equal(count, table.count);
    assert_memory_equal(of, table.of, sizeof of);
}

/* So no addition holds the owner's lock for long, however many wait. */
static void forgetting_goes_through_a_large_table_in_short_steps(void **state)
{
    enum { WAITING = 200000 };
    size_t seen = 0;
    bool swept = false, sweeping = false;
    (void)state;
    tx_table_init(&table);
    for (int64_t i = 0; i < WAITING; i++)
        add(i, TX_PENDING);
    for (int64_t i = WAITING; !swept; i++) {
        assert_true(i < 2 * WAITING);
        add(i, TX_COMMITTED);
        assert_true(!table.sweeping || table.gap_at + table.gap <= seen + TX_SWEEP_STEP);
        seen = table.gap_at + table.gap;
        swept = sweeping && !table.sweeping;
        sweeping = table.sweeping;
    }
    assert_int_equal(table.of[TX_PENDING], WAITING);
    assert_in_range(table.of[TX_COMMITTED], TX_REMEMBERED, 2 * TX_REMEMBERED);
    check_table();
    tx_table_fini(&table);
}

/* … and what is added, decided, resumed and looked for meanwhile is there. */
static void the_table_is_whole_while_some_are_forgotten(void **state)
{
    static const enum tx_state ends[] = {TX_COMMITTED, TX_ROLLED_BACK, TX_DISCARDED};
    struct sim_env sim;
    (void)state;
    sim_env_init(&sim, 77);
    struct rng *rng = sim.env.rng;
    tx_table_init(&table);
    int64_t end = 0;
    uint32_t checked = 0, inserted = 0;
    for (int i = 0; i < 250000; i++) {
        end += 1 + (int64_t)rng_below(rng, 3);
        int64_t half_off = rng_below(rng, 10) ? end : (int64_t)rng_below(rng, (uint64_t)end);
        if (!tx_table_find(&table, half_off)) {
            inserted += half_off != end && table.gap > 0;
            add(half_off, TX_PENDING);
        }
        for (int n = 0; n < 2; n++) {
            struct tx_entry *entry = tx_table_after(&table, (int64_t)rng_below(rng, (uint64_t)end));
            if (entry && entry->state == TX_PENDING)
                tx_table_set(&table, entry, ends[rng_below(rng, 3)]);
            else if (entry && entry->state == TX_DISCARDED && rng_below(rng, 2))
                tx_table_set(&table, entry, TX_PENDING);
        }
        bool look = table.gap > 0 && rng_below(rng, 100) == 0;
        if (look)
            check_table();
        checked += look;
    }
    check_table();
    assert_true(checked > 10 && inserted > 10);
    tx_table_clear(&table);
    check_table();
    add(5, TX_PENDING);
    check_table();
    tx_table_fini(&table);
    sim_env_fini(&sim);
}

static void add_due(int64_t half_off, int64_t check_ns)
{
    struct tx_entry entry = {.half_off = half_off,
                             .phys_off = half_off * 100,
                             .size = 200,
                             .check_ns = check_ns,
                             .state = TX_PENDING};
    assert_true(tx_table_reserve(&table, 1));
    assert_true(tx_table_add(&table, &entry));
}

/* Takes all that is due; what is looked at besides costs looks. */
static size_t take(int64_t now_ns, size_t looks, struct tx_entry *out, size_t cap, int64_t *next_ns)
{
    *next_ns = INT64_MAX;
    return tx_table_take_due(&table, now_ns, now_ns + 50, looks, out, cap, next_ns);
}

static void a_look_touches_only_what_is_due_the_longest_due_first(void **state)
{
    struct tx_entry due[8];
    int64_t next_ns;
    (void)state;
    tx_table_init(&table);
    for (int64_t i = 0; i < 100000; i++)
        add_due(i, 1000000 + i * 7919 % 100000);
    tx_table_ask_at(&table, tx_table_find(&table, 70000), 30);
    tx_table_ask_at(&table, tx_table_find(&table, 500), 20);
    tx_table_ask_at(&table, tx_table_find(&table, 99999), 10);
    assert_int_equal(take(5, 1, due, 8, &next_ns), 0);
    assert_int_equal(next_ns, 10);
    assert_int_equal(take(30, 4, due, 8, &next_ns), 3);
    assert_int_equal(due[0].half_off, 99999);
    assert_int_equal(due[1].half_off, 500);
    assert_int_equal(due[2].half_off, 70000);
    assert_int_equal(next_ns, 80); /* nothing came of the look: soon again */
    assert_int_equal(take(30, 4, due, 8, &next_ns), 0);
    assert_int_equal(take(80, 2, due, 8, &next_ns), 2); /* no more than so many looks */
    assert_int_equal(next_ns, 80);
    tx_table_fini(&table);
}

static void what_is_decided_or_being_ended_is_not_taken(void **state)
{
    struct tx_entry due[8];
    int64_t next_ns;
    (void)state;
    tx_table_init(&table);
    for (int64_t i = 0; i < 4; i++)
        add_due(i, 10 + i);
    tx_table_set(&table, tx_table_find(&table, 0), TX_ENDING);
    tx_table_set(&table, tx_table_find(&table, 1), TX_ENDING);
    tx_table_set(&table, tx_table_find(&table, 1), TX_COMMITTED);
    tx_table_set(&table, tx_table_find(&table, 2), TX_DISCARDED);
    assert_int_equal(take(100, 8, due, 8, &next_ns), 1);
    assert_int_equal(due[0].half_off, 3);
    tx_table_set(&table, tx_table_find(&table, 0), TX_PENDING); /* refused: it waits again */
    tx_table_set(&table, tx_table_find(&table, 2), TX_PENDING); /* resumed */
    tx_table_ask_at(&table, tx_table_find(&table, 2), 100);
    tx_table_ask_at(&table, tx_table_find(&table, 3), 1000);
    assert_int_equal(take(150, 8, due, 8, &next_ns), 2);
    assert_int_equal(due[0].half_off, 2);
    assert_int_equal(due[1].half_off, 0);
    tx_table_fini(&table);
}

/* Decided long before they would be asked about: they leave no trail. */
static void what_is_stale_is_let_go(void **state)
{
    (void)state;
    tx_table_init(&table);
    for (int64_t i = 0; i < 200000; i++) {
        add_due(i, 86400000 + i);
        if (i % 100 != 0)
            tx_table_set(&table, tx_table_find(&table, i), TX_COMMITTED);
        assert_true(table.due.count <= 2 * tx_table_open(&table) + 100);
    }
    for (int64_t i = 0; i < 200000; i++) /* the others are asked again and again */
        tx_table_ask_at(&table, tx_table_find(&table, i % 2000 * 100), 200000000 + i);
    assert_true(table.due.count <= 2 * tx_table_open(&table) + 100);
    assert_int_equal(tx_table_open(&table), 2000);
    tx_table_fini(&table);
}

/* As the log of a set tells it whose checks nobody answers, and whose operator does not give up. */
static void what_is_discarded_and_resumed_again_and_again_leaves_no_trail(void **state)
{
    struct tx_entry due[8];
    int64_t next_ns;
    (void)state;
    tx_table_init(&table);
    for (int64_t i = 0; i < 64; i++)
        add_due(i, 1000);
    for (int round = 0; round < 100; round++)
        for (int64_t i = 0; i < 64; i++) {
            tx_table_set(&table, tx_table_find(&table, i), TX_DISCARDED);
            tx_table_set(&table, tx_table_find(&table, i), TX_PENDING);
        }
    assert_true(table.due.count <= 2 * tx_table_open(&table));
    size_t taken = 0;
    for (size_t got; (got = take(5000, 1024, due, 8, &next_ns)) > 0;)
        taken += got;
    assert_int_equal(taken, 64); /* each once */
    tx_table_fini(&table);
}

static void half_message_gets_where_it_goes_and_committed_one_loses_it(void **state)
{
    struct tern_error err;
    struct tx_half half;
    struct record fields = {.queue_id = 0};
    uint8_t props[RECORD_PROPS_MAX];
    uint8_t out[RECORD_PROPS_MAX];
    uint8_t bytes[1024];
    struct record committed;
    struct slice value;
    static const char sent[] = "TAGS\001t\002TRAN_MSG\001true\002PGROUP\001g\002UNIQ_KEY\001u";
    size_t len = sizeof sent - 1;
    (void)state;
    memcpy(props, sent, len);
    assert_true(tx_asked(props, len));
    assert_ok(tx_half_props(props, &len, "T", 3, &err));
    fields.topic = (const uint8_t *)TX_HALF_TOPIC;
    fields.topic_len = sizeof TX_HALF_TOPIC - 1;
    fields.props = props;
    fields.props_len = (uint16_t)len;
    fields.body = (const uint8_t *)"body";
    fields.body_len = 4;
    size_t size = record_encode(bytes, sizeof bytes, &fields);
    record_stamp_position(bytes, 7, 4096);
    assert_ok(tx_half_read(bytes, size, 7, 4096, &half, &err));
    assert_int_equal(half.queue_id, 3);
    assert_memory_equal(half.group.ptr, "g", 1);
    assert_int_equal(tx_half_read(bytes, size, 8, 4096, &half, &err), TERN_CORRUPT);
    assert_int_equal(tx_half_read(bytes, size, 7, 4097, &half, &err), TERN_CORRUPT);
    assert_int_equal(tx_half_read(bytes, size - 1, 7, 4096, &half, &err), TERN_CORRUPT);
    assert_ok(tx_half_read(bytes, size, 7, 4096, &half, &err));
    tx_committed_fields(&half, &fields.store_host, out, &committed);
    assert_int_equal(committed.prepared_tx_off, 4096);
    assert_int_equal(committed.queue_id, 3);
    assert_false(tx_asked(committed.props, committed.props_len));
    assert_false(props_get(committed.props, committed.props_len, PROP_PGROUP, &value));
    assert_true(props_get(committed.props, committed.props_len, PROP_UNIQ_KEY, &value));
}

static void what_a_record_says_survives_any_byte_being_another(void **state)
{
    uint8_t body[TX_MARK_BODY_BYTES];
    uint8_t props[TX_MARK_PROPS_BYTES];
    struct host host = {.port = 1};
    struct record fields;
    struct tx_said said;
    (void)state;
    tx_mark_fields('c', 42, 9, 1, &host, body, props, &fields);
    tx_record_read(&fields, &said);
    assert_int_equal(said.word, TX_WORD_CHECKED);
    assert_int_equal(said.half_off, 42);
    assert_int_equal(said.checks, 9);
    tx_mark_fields('d', 43, 0, 1, &host, body, props, &fields);
    tx_record_read(&fields, &said);
    assert_int_equal(said.word, TX_WORD_ENDED);
    for (uint32_t at = 0; at < fields.body_len + fields.props_len; at++)
        for (int value = 0; value < 256; value++) {
            uint8_t *byte = at < fields.body_len ? &body[at] : &props[at - fields.body_len];
            uint8_t kept = *byte;
            *byte = (uint8_t)value;
            tx_record_read(&fields, &said);
            assert_true(said.word == TX_WORD_NONE || said.half_off >= 0);
            *byte = kept;
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_are_found_by_either_offset_whatever_order_they_came_in),
        cmocka_unit_test(decided_ones_are_forgotten_oldest_first_and_pending_ones_never),
        cmocka_unit_test(forgetting_goes_through_a_large_table_in_short_steps),
        cmocka_unit_test(the_table_is_whole_while_some_are_forgotten),
        cmocka_unit_test(a_look_touches_only_what_is_due_the_longest_due_first),
        cmocka_unit_test(what_is_decided_or_being_ended_is_not_taken),
        cmocka_unit_test(what_is_stale_is_let_go),
        cmocka_unit_test(what_is_discarded_and_resumed_again_and_again_leaves_no_trail),
        cmocka_unit_test(half_message_gets_where_it_goes_and_committed_one_loses_it),
        cmocka_unit_test(what_a_record_says_survives_any_byte_being_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
