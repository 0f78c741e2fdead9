/* A node of a set. Threads: as its world has them; assertions on other threads end the process. */
#include "tests/unit/ha/ha_node.h"

#include "base/record.h"

/* ---- the owner ---- */

static void self(void *arg, struct ha_member *out)
{
    struct node *node = arg;
    struct store_positions at;
    memset(out, 0, sizeof *out);
    snprintf(out->cluster, sizeof out->cluster, "C");
    snprintf(out->name, sizeof out->name, "broker-a");
    snprintf(out->address, sizeof out->address, "%s:10911", node->host);
    snprintf(out->ha_address, sizeof out->ha_address, "%s", node->address);
    out->id = node->ha.id;
    memcpy(out->uuid, node->ha.uuid, sizeof out->uuid);
    out->life = node->life;
    out->state = node->ha.id ? TERN__WIRE__HA_STATE__HA_SEEKING : TERN__WIRE__HA_STATE__HA_OPEN;
    out->epoch_count = epochs_copy(node->epochs, out->epochs);
    out->highest_epoch = epochs_highest(node->epochs);
    store_positions(node->store, &at);
    out->log_min = at.min;
    out->log_end = at.whole;
    out->flushed = at.flushed < at.whole ? at.flushed : at.whole;
    out->dispatched = at.dispatched;
    out->segment_bytes = NODE_SEGMENT_BYTES;
}

static void wake(void *arg)
{
    struct node *node = arg;
    struct task *task = atomic_load(&node->task);
    if (task)
        task_wake(task);
}

static void on_event(void *arg, enum replica_event event, const struct ha_member *source)
{
    struct node *node = arg;
    (void)source;
    atomic_fetch_add(&node->settled, event == REPLICA_SETTLED);
    atomic_fetch_add(&node->lost, event == REPLICA_LOST);
    atomic_fetch_add(&node->caught_up, event == REPLICA_CAUGHT_UP);
    ENSURE(event != REPLICA_DETACHED);
}

static void on_replica_confirmed(void *arg, int64_t confirmed, bool settled)
{
    (void)arg;
    (void)settled;
    ENSURE(confirmed >= 0);
}

static void on_progress_seen(void *arg, uint64_t change)
{
    (void)arg;
    (void)change;
}

static void on_confirmed(void *arg, int64_t confirmed, bool alone)
{
    (void)arg;
    (void)confirmed;
    (void)alone;
}

static void on_heard(void *arg, const struct ha_member *member, bool has_cut, int64_t cut_at)
{
    (void)arg;
    (void)member;
    (void)has_cut;
    (void)cut_at;
}

static void on_refused(void *arg, const struct ha_member *slave)
{
    (void)arg;
    ENSURE(slave == NULL); /* numbers only grow here: nobody refuses */
}

/* ---- tables: none ---- */

static Tern__Wire__HaTables *fill(void *arg, const struct ha_held *held, bool progress_only,
                                  struct arena *arena)
{
    (void)arg;
    (void)held;
    (void)progress_only;
    (void)arena;
    return NULL;
}

static bool topics_agree(void *arg, const struct ha_held *held)
{
    (void)arg;
    (void)held;
    return true;
}

static bool differs(void *arg, const struct ha_held *held, bool progress_only)
{
    (void)arg;
    (void)held;
    (void)progress_only;
    return false;
}

static enum tern_code apply(void *arg, const Tern__Wire__HaTables *tables, struct ha_held *held,
                            struct tern_error *err)
{
    (void)arg;
    (void)tables;
    (void)held;
    return error_set(err, TERN_INVALID, "there are none");
}

static void own(void *arg, struct ha_held *held)
{
    (void)arg;
    *held = (struct ha_held){0};
}

static enum tern_code lower(void *arg, int64_t phys_off, struct tern_error *err)
{
    (void)arg;
    (void)phys_off;
    (void)err;
    return TERN_OK;
}

/* ---- the store's news ---- */

static void on_end(void *arg, int64_t end)
{
    struct node *node = arg;
    if (node->source)
        source_on_end(node->source, end);
}

static void on_flushed(void *arg, int64_t flushed, bool more)
{
    struct node *node = arg;
    (void)more;
    if (node->source)
        source_on_flushed(node->source, flushed);
    if (node->replica)
        replica_on_flushed(node->replica, flushed);
}

/* ---- the server ---- */

static void on_request(void *arg, struct rpc_request *request)
{
    struct node *node = arg;
    switch (request->header->body_case) {
    case TERN__WIRE__REQUEST__BODY_HA_HANDSHAKE:
        source_handshake(node->source, request);
        break;
    case TERN__WIRE__REQUEST__BODY_HA_FETCH:
        source_fetch(node->source, request);
        break;
    case TERN__WIRE__REQUEST__BODY_HA_REPORT:
        source_report(node->source, request);
        break;
    default:
        rpc_reply_error(request, TERN_NOT_SUPPORTED, "not here");
    }
}

static void on_peer_gone(void *arg, uint64_t peer_id)
{
    struct node *node = arg;
    source_peer_gone(node->source, peer_id);
}

static int64_t step(void *arg, int64_t now_ns)
{
    struct node *node = arg;
    int64_t a = replica_step(node->replica, now_ns);
    int64_t b = source_step(node->source, now_ns);
    return a < b ? a : b;
}

/* ---- life of a node ---- */

void node_init(struct node *node, const struct env *env, const char *host, const char *root,
               uint8_t uuid)
{
    memset(node, 0, sizeof *node);
    node->env = *env;
    snprintf(node->host, sizeof node->host, "%s", host);
    snprintf(node->root, sizeof node->root, "%s", root);
    node->ha = (struct ha_options){.cluster = "C",
                                   .name = "broker-a",
                                   .root_dir = node->root,
                                   .segment_bytes = NODE_SEGMENT_BYTES,
                                   .readable = true,
                                   .insync = {.replicas = 1, .max_behind_ns = ms_to_ns(15000)},
                                   .tables = {.fill = fill,
                                              .topics_agree = topics_agree,
                                              .differs = differs,
                                              .apply = apply,
                                              .own = own,
                                              .lower = lower}};
    node->ha.arg = node;
    memset(node->ha.uuid, uuid, HA_UUID_BYTES);
}

static void open_store(struct node *node, bool sync_flush)
{
    struct store_options options;
    struct store_recovery recovery;
    struct tern_error err = {.text = ""};
    store_options_init(&options);
    options.root_dir = node->root;
    options.segment_bytes = NODE_SEGMENT_BYTES;
    options.queue_file_bytes = 4000;
    options.index_slots = 64;
    options.index_entries = 512;
    options.max_message_bytes = 8 * 1024;
    options.delete_hours = 0;
    options.sync_flush = sync_flush;
    options.observer =
        (struct store_observer){.arg = node, .on_flushed = on_flushed, .on_end = on_end};
    if (store_open(&node->env, &options, &node->store, &recovery, &err) != TERN_OK)
        fail_msg("store_open: %s", err.text);
    node->ha.store = node->store;
    char dir[FS_PATH_BYTES];
    assert_ok(fs_join(dir, node->root, "ternmq"));
    assert_ok(fs_mkdirs(node->env.fs, dir));
    if (epochs_open(&node->env, node->root, recovery.log_end, &node->epochs, &err) != TERN_OK)
        fail_msg("epochs_open: %s", err.text);
}

static void make_parts(struct node *node, uint16_t port)
{
    struct task *task;
    char listen[32];
    struct tern_error err = {.text = ""};
    struct ha_part_options part = {.env = &node->env,
                                   .ha = &node->ha,
                                   .epochs = node->epochs,
                                   .arg = node,
                                   .self = self,
                                   .wake = wake};
    struct source_options source = {.part = part,
                                    .on_heard = on_heard,
                                    .on_refused = on_refused,
                                    .on_confirmed = on_confirmed,
                                    .on_progress_seen = on_progress_seen};
    struct rpc_client_options client = {.max_message_bytes = FRAME_HEADER_MAX,
                                        .connect_wait_ms = 1000,
                                        .reconnect_min_ms = 50,
                                        .reconnect_max_ms = 500,
                                        .client_id = ""};
    struct rpc_server_options server = {
        .listen = {.address = listen,
                   .max_message_bytes = FRAME_HEADER_MAX,
                   .max_peers = 16,
                   .max_requests = 64,
                   .max_requests_per_peer = 64},
        .arena_budget_bytes = 1 << 20,
        .arg = node,
        .on_request = on_request,
        .on_peer_gone = on_peer_gone,
    };
    snprintf(listen, sizeof listen, "%s:%u", node->host, port);
    assert_ok(source_create(&source, &node->source));
    assert_ok(rpc_client_create(&node->env, node->link, &client, &node->client));
    struct replica_options replica = {.part = part,
                                      .client = node->client,
                                      .on_event = on_event,
                                      .on_confirmed = on_replica_confirmed,
                                      .on_progress_seen = on_progress_seen};
    assert_ok(replica_create(&replica, &node->replica));
    assert_ok(rpc_server_create(&node->env, node->link, &server, &node->server, &err));
    snprintf(node->address, sizeof node->address, "%s:%u", node->host,
             rpc_server_port(node->server));
    assert_ok(task_start(node->env.sched, "ha", step, node, &task));
    atomic_store(&node->task, task);
}

/* As a master that opens does: log flushed, epoch durable. */
static void open_master(struct node *node, uint64_t *number)
{
    struct tern_error err = {.text = ""};
    struct store_positions at;
    struct ha_epoch epoch;
    struct insync_set set = {.count = 0};
    assert_ok(store_flush(node->store, &err));
    epochs_seen(node->epochs, *number);
    store_positions(node->store, &at);
    assert_ok(epochs_begin(node->epochs, at.min, at.whole, &epoch, &err));
    assert_true(epoch.number > *number);
    *number = epoch.number;
    source_open(node->source, &set, at.min);
}

void node_start(struct node *node, struct link *link, uint16_t port, int64_t id, bool sync_flush,
                uint64_t *number)
{
    node->ha.id = id;
    node->ha.mode = id ? HA_MODE_SLAVE : HA_MODE_ASYNC_MASTER;
    node->ha.sync_flush = sync_flush;
    node->life = rng_next(node->env.rng);
    node->link = link;
    open_store(node, sync_flush);
    make_parts(node, port);
    if (id == 0)
        open_master(node, number);
}

void node_follow(struct node *node, const struct node *master)
{
    replica_follow(node->replica, master->address);
}

static void stop_parts(struct node *node)
{
    struct task *task = atomic_exchange(&node->task, NULL);
    struct replica_status *status = calloc(1, sizeof *status);
    assert_non_null(status);
    replica_status(node->replica, status);
    node->cut_bytes += (int64_t)status->cut_bytes;
    free(status);
    task_stop(task);
    source_stop(node->source);
    rpc_server_stop(node->server);
    replica_stop(node->replica);
    rpc_client_destroy(node->client);
    rpc_server_destroy(node->server);
}

static void free_parts(struct node *node)
{
    replica_destroy(node->replica);
    source_destroy(node->source);
    epochs_close(node->epochs);
    link_destroy(node->link);
    node->replica = NULL;
    node->source = NULL;
    node->epochs = NULL;
    node->link = NULL;
    node->store = NULL;
}

void node_stop(struct node *node)
{
    struct tern_error err = {.text = ""};
    stop_parts(node);
    if (store_close(node->store, &err) != TERN_OK)
        fail_msg("store_close: %s", err.text);
    free_parts(node);
}

void node_abandon(struct node *node)
{
    stop_parts(node);
    (void)store_close(node->store, NULL);
    free_parts(node);
}

/* ---- messages ---- */

struct message {
    struct store_append append;
    struct node *node;
    uint8_t bytes[4096];
};

static void on_appended(struct store_append *append)
{
    struct message *message = (struct message *)append; /* its first member */
    if (append->result == TERN_OK)
        atomic_fetch_add(&message->node->appended, 1);
    store_queue_unref(append->queue);
    free(message);
}

void node_send(struct node *node, int32_t queue_id, size_t body_bytes, uint8_t letter)
{
    struct message *message = calloc(1, sizeof *message);
    uint8_t body[3000];
    ENSURE(message && body_bytes <= sizeof body);
    memset(body, letter, sizeof body);
    struct record record = {.queue_id = queue_id,
                            .born_ms = 1,
                            .born_host = {.ip = {127, 0, 0, 1}, .port = 1},
                            .store_host = {.ip = {127, 0, 0, 1}, .port = 2},
                            .topic = (const uint8_t *)NODE_TOPIC,
                            .topic_len = sizeof NODE_TOPIC - 1,
                            .body = body,
                            .body_len = (uint32_t)body_bytes};
    size_t size = record_size(body_bytes, sizeof NODE_TOPIC - 1, 0, 0);
    ENSURE(record_encode(message->bytes, size, &record) == size);
    message->node = node;
    message->append = (struct store_append){.records = message->bytes,
                                            .size_bytes = (uint32_t)size,
                                            .count = 1,
                                            .on_appended = on_appended};
    ENSURE(store_queue_ref(node->store, NODE_TOPIC, sizeof NODE_TOPIC - 1, queue_id,
                           &message->append.queue) == TERN_OK);
    store_append(node->store, &message->append);
}

/* ---- comparing ---- */

static void read_all(struct node *node, int64_t from, uint8_t *out, size_t size)
{
    while (size > 0) {
        size_t got = 0;
        assert_ok(store_read_bytes(node->store, from, out, size, false, &got));
        assert_true(got > 0);
        from += (int64_t)got;
        out += got;
        size -= got;
    }
}

void nodes_check_same(struct node *a, struct node *b)
{
    struct node *const nodes[2] = {a, b};
    struct store_positions at[2];
    int64_t range[2][2];
    for (size_t i = 0; i < 2; i++)
        store_positions(nodes[i]->store, &at[i]);
    assert_int_equal(at[0].whole, at[1].whole);
    assert_int_equal(at[0].appended, at[1].appended);
    int64_t from = at[0].min > at[1].min ? at[0].min : at[1].min;
    size_t size = (size_t)(at[0].whole - from);
    uint8_t *bytes[2];
    for (size_t i = 0; i < 2; i++) {
        bytes[i] = malloc(size + 1);
        assert_non_null(bytes[i]);
        read_all(nodes[i], from, bytes[i], size);
    }
    assert_memory_equal(bytes[0], bytes[1], size);
    free(bytes[0]);
    free(bytes[1]);
    for (int32_t queue = 0; queue < NODE_QUEUES; queue++) {
        for (size_t i = 0; i < 2; i++)
            store_queue_range(nodes[i]->store, NODE_TOPIC, queue, &range[i][0], &range[i][1]);
        assert_int_equal(range[0][1], range[1][1]);
    }
    struct ha_epoch *lists = calloc(2 * EPOCHS_MAX, sizeof *lists);
    assert_non_null(lists);
    size_t count = epochs_copy(a->epochs, lists);
    size_t other = epochs_copy(b->epochs, lists + EPOCHS_MAX);
    /* The master's may have one more, without a byte yet. */
    assert_true(count == other || count == other + 1 || other == count + 1);
    count = count < other ? count : other;
    assert_memory_equal(lists, lists + EPOCHS_MAX, count * sizeof *lists);
    free(lists);
}

bool nodes_are_same(struct node *a, struct node *b)
{
    struct store_positions of_a;
    struct store_positions of_b;
    store_positions(a->store, &of_a);
    store_positions(b->store, &of_b);
    return of_a.appended == of_b.appended && of_a.whole == of_b.whole &&
           of_a.dispatched == of_a.whole && of_b.dispatched == of_b.whole;
}
