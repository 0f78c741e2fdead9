/*
 * What a broker tells about itself: runtime figures with RocketMQ's key names where it has them
 * (facts 8.13), and our own; all values are text, offsets carry their unit in the key.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/names.h"
#include "broker/ack_wait.h"
#include "broker/cold_lane.h"
#include "broker/ha/ha.h"
#include "broker/handlers/handlers.h"
#include "broker/long_poll.h"
#include "broker/schedule/schedule.h"
#include "broker/tx/tx.h"

enum { STATUS_ENTRIES_MAX = 512, VALUE_BYTES = 300 };

struct entries {
    struct arena *arena;
    Tern__Wire__KeyValue *pointers[STATUS_ENTRIES_MAX];
    size_t count;
    bool failed; /* out of memory or of entries */
};

static void add(struct entries *entries, const char *key, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void add(struct entries *entries, const char *key, const char *fmt, ...)
{
    size_t key_bytes = strlen(key) + 1;
    Tern__Wire__KeyValue *entry = arena_alloc(entries->arena, sizeof *entry);
    char *text = arena_alloc(entries->arena, key_bytes + VALUE_BYTES);
    if (!entry || !text || entries->count == STATUS_ENTRIES_MAX) {
        entries->failed = true;
        return;
    }
    tern__wire__key_value__init(entry);
    entry->key = memcpy(text, key, key_bytes);
    entry->value = text + key_bytes;
    va_list args;
    va_start(args, fmt);
    vsnprintf(entry->value, VALUE_BYTES, fmt, args);
    va_end(args);
    entries->pointers[entries->count++] = entry;
}

static void add_number(struct entries *entries, const char *key, int64_t value)
{
    add(entries, key, "%" PRId64, value);
}

static void add_histogram(struct entries *entries, const char *name, const struct histogram *h)
{
    char key[96];
    static const struct {
        const char *suffix;
        double quantile;
    } points[] = {{"P50Us", 0.5}, {"P99Us", 0.99}, {"P999Us", 0.999}};
    if (!h)
        return;
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        snprintf(key, sizeof key, "%s%s", name, points[i].suffix);
        add(entries, key, "%.1f", (double)histogram_quantile(h, points[i].quantile) / 1000);
    }
}

static void add_three(struct entries *entries, const char *key, const double rates[RATE_WINDOWS])
{
    add(entries, key, "%.2f %.2f %.2f", rates[0], rates[1], rates[2]);
}

/* RocketMQ's rates over 10 s, 60 s and 600 s, and totals at the beginning of days. */
static void add_rates(struct entries *entries, struct broker *broker, const struct store_status *s)
{
    struct rates_view view;
    struct rates_counts now = {(int64_t)s->append_records, (int64_t)s->get_found,
                               (int64_t)s->get_missed, (int64_t)s->get_messages};
    double total[RATE_WINDOWS];
    rates_view(&broker->rates, clock_mono_ns(broker->env.clock), &now, &view);
    for (int i = 0; i < RATE_WINDOWS; i++)
        total[i] = view.found[i] + view.missed[i];
    add_three(entries, "putTps", view.put);
    add_three(entries, "getFoundTps", view.found);
    add_three(entries, "getMissTps", view.missed);
    add_three(entries, "getTotalTps", total);
    add_three(entries, "getTransferedTps", view.delivered);
    add_number(entries, "msgPutTotalYesterdayMorning", view.yesterday.put);
    add_number(entries, "msgPutTotalTodayMorning", view.morning.put);
    add_number(entries, "msgPutTotalTodayNow", now.put);
    add_number(entries, "msgGetTotalYesterdayMorning", view.yesterday.delivered);
    add_number(entries, "msgGetTotalTodayMorning", view.morning.delivered);
    add_number(entries, "msgGetTotalTodayNow", now.delivered);
}

/* What pulls cost: "-" until a message was returned. */
static void add_reading(struct entries *entries, const struct stages *stages)
{
    uint64_t scanned = counter_get(&stages->scanned);
    uint64_t returned = counter_get(&stages->returned);
    add_number(entries, "pullScannedTotal", (int64_t)scanned);
    add_number(entries, "pullReturnedTotal", (int64_t)returned);
    if (returned)
        add(entries, "pullScannedPerReturned", "%.2f", (double)scanned / (double)returned);
    else
        add(entries, "pullScannedPerReturned", "-");
    add_number(entries, "pullFromMemoryTotal", (int64_t)counter_get(&stages->from_memory));
    add_number(entries, "pullFromDiskTotal", (int64_t)counter_get(&stages->from_disk));
}

static void add_store(struct entries *entries, struct broker *broker)
{
    struct store_status s;
    store_status(broker->store, &s);
    add_number(entries, "commitLogMinOffset", s.min_phys);
    add_number(entries, "commitLogMaxOffset", s.appended);
    add_number(entries, "positionAppendedBytes", s.appended);
    add_number(entries, "positionFlushedBytes", s.flushed);
    add_number(entries, "positionReplicatedBytes", ha_replicated(broker->ha));
    add_number(entries, "positionConfirmedBytes", ha_confirmed(broker->ha));
    add_number(entries, "positionDispatchedBytes", s.dispatched);
    add_number(entries, "dispatchBehindBytes", s.appended - s.dispatched);
    add_number(entries, "dispatchBehindMs", s.dispatch_lag_ms);
    add_number(entries, "remainHowManyDataToFlush", s.appended - s.flushed);
    add(entries, "commitLogDiskRatio", "%.4f", s.disk_used_ratio);
    add(entries, "diskFull", "%s", s.disk_full ? "true" : "false");
    add(entries, "storeReadOnly", "%s", s.latched ? "true" : "false");
    add(entries, "storeRecoveredClean", "%s", s.recovered_clean ? "true" : "false");
    add_number(entries, "earliestMessageTimeStamp", s.earliest_ms ? s.earliest_ms : -1);
    add_number(entries, "putMessageTimesTotal", (int64_t)s.append_records);
    add_number(entries, "putMessageRequestsTotal", (int64_t)s.append_requests);
    add_number(entries, "putMessageFailedTimes", (int64_t)s.append_failed);
    add_number(entries, "putMessageSizeTotal", (int64_t)s.append_bytes);
    add(entries, "putMessageAverageSize", "%.1f",
        s.append_records ? (double)s.append_bytes / (double)s.append_records : 0);
    add_number(entries, "getFoundTimesTotal", (int64_t)s.get_found);
    add_number(entries, "getMissTimesTotal", (int64_t)s.get_missed);
    add_number(entries, "getColdTimesTotal", (int64_t)s.get_again);
    add_number(entries, "flushTimesTotal", (int64_t)s.flushes);
    add_number(entries, "segmentsExpired", (int64_t)s.segments_expired);
    add_number(entries, "consumeQueues", s.queues);
    add_rates(entries, broker, &s);
    add_histogram(entries, "stageEncode", &broker->stages.encode_ns);
    add_histogram(entries, "stageAppendWait", s.append_wait_ns);
    add_histogram(entries, "stageWrite", s.write_ns);
    add_histogram(entries, "stageFlush", s.flush_ns);
    add_histogram(entries, "stageSegmentSwitch", s.segment_switch_ns);
    add_histogram(entries, "stageFlushWait", &broker->stages.flush_wait_ns);
    add_histogram(entries, "stageReplicaWait", &broker->stages.replica_wait_ns);
    add_reading(entries, &broker->stages);
}

static void add_transactions(struct entries *entries, struct broker *broker)
{
    struct tx_status s;
    tx_status(broker->tx, &s);
    add(entries, "transactionsReady", "%s", s.ready ? "true" : "false");
    add_number(entries, "transactionsReadLeftBytes", s.read_left);
    add_number(entries, "transactionsPending", (int64_t)s.pending);
    add_number(entries, "transactionsDiscardedKept", (int64_t)s.discarded_kept);
    add_number(entries, "transactionHalvesTotal", (int64_t)s.halves);
    add_number(entries, "transactionsCommittedTotal", (int64_t)s.committed);
    add_number(entries, "transactionsRolledBackTotal", (int64_t)s.rolled_back);
    add_number(entries, "transactionsDiscardedTotal", (int64_t)s.discarded);
    add_number(entries, "transactionChecksTotal", (int64_t)s.checks);
    add_number(entries, "transactionChecksNotAskedTotal", (int64_t)s.not_asked);
    add_number(entries, "transactionsLostTotal", (int64_t)s.lost);
    add_number(entries, "transactionRecordsDamagedTotal", (int64_t)s.damaged);
}

static const char *schedule_text(const struct schedule_status *status)
{
    static const char *const texts[] = {"following", "opening", "delivering"};
    return status->lagging && status->state == SCHEDULE_DELIVERING ? "catching up"
                                                                   : texts[status->state];
}

/* RocketMQ's scheduleMessageOffset_<level>, "cur,max", for levels that have had messages; and the
 * timer. */
static void add_delayed(struct entries *entries, struct broker *broker)
{
    struct schedule_status status;
    schedule_status(broker->schedule, &status);
    for (int32_t level = 1; level <= DELAY_LEVELS_MAX; level++) {
        int64_t min;
        int64_t max;
        char key[48];
        store_queue_range(broker->store, SCHEDULE_TOPIC, level - 1, &min, &max);
        if (max == 0)
            continue;
        snprintf(key, sizeof key, "scheduleMessageOffset_%" PRId32, level);
        add(entries, key, "%" PRId64 ",%" PRId64, status.level_done[level - 1], max);
    }
    add(entries, "delayState", "%s", schedule_text(&status));
    add_number(entries, "delayPositionBytes", status.position);
    add_number(entries, "delayBehindMs", status.behind_ms);
    add_number(entries, "delayPutting", status.putting);
    add_number(entries, "timerPending", status.timer_pending);
    add_number(entries, "timerFiles", status.timer_files);
    add_number(entries, "timerInMemory", status.window);
    add_number(entries, "delayedDelivered", (int64_t)status.delivered);
    add_number(entries, "delayedRolled", (int64_t)status.rolled);
    add_number(entries, "delayedRetried", (int64_t)status.retried);
    add_number(entries, "delayedDead", (int64_t)status.dead);
    add_number(entries, "delayedGivenUp", (int64_t)status.discarded);
    add_number(entries, "delayedExpired", (int64_t)status.expired);
    add_number(entries, "delayedCancelled", (int64_t)status.cancelled);
    add_number(entries, "delayFilesRebuilt", (int64_t)status.rebuilt);
}

static void add_requests(struct entries *entries, struct broker *broker)
{
    const struct request_row *rows;
    size_t count = request_table(&rows);
    for (size_t i = 0; i < count; i++) {
        struct request_stats *stats = &broker->request_stats[i];
        char key[96];
        uint64_t times = counter_get(&stats->count);
        if (!times)
            continue;
        snprintf(key, sizeof key, "request_%s_count", rows[i].name);
        add_number(entries, key, (int64_t)times);
        snprintf(key, sizeof key, "request_%s_", rows[i].name);
        add_histogram(entries, key, stats->latency_ns);
    }
}

static const char *role_text(int32_t role)
{
    return role == ROLE_SLAVE ? "SLAVE" : role == ROLE_SYNC_MASTER ? "SYNC_MASTER" : "ASYNC_MASTER";
}

static void add_broker(struct entries *entries, struct broker *broker)
{
    int64_t ran_ns = clock_mono_ns(broker->env.clock) - broker->started_ns;
    add(entries, "brokerVersionDesc", "TernMQ %s", TERN_VERSION);
    add(entries, "brokerName", "%s", broker->config.broker_name);
    add_number(entries, "brokerId", broker->config.broker_id);
    add(entries, "brokerRole", "%s", role_text(broker->config.role));
    add(entries, "haState", "%s", ha_state_text(ha_state(broker->ha)));
    add(entries, "haAddress", "%s", ha_address(broker->ha));
    add(entries, "flushDiskType", "%s",
        broker->config.flush_type == FLUSH_SYNC ? "SYNC_FLUSH" : "ASYNC_FLUSH");
    add_number(entries, "bootTimestamp", broker->started_ms);
    add_number(entries, "currentTimestamp", clock_wall_ms(broker->env.clock));
    add_number(entries, "runtimeMs", ran_ns / 1000000); /* whatever the wall clock was set to */
    add_number(entries, "topics", topics_count(broker->topics));
    add_number(entries, "clients", members_count(broker->members));
    add_number(entries, "connections", rpc_server_peers(broker->server));
    add_number(entries, "pendingRequests", rpc_server_pending(broker->server));
    add_number(entries, "groupsSubscribingDifferently", members_differing_groups(broker->members));
    add_number(entries, "subscriptionDifferences",
               (int64_t)counter_get(&broker->subscription_differences));
    add_number(entries, "subscriptionChanges", (int64_t)counter_get(&broker->expression_changes));
    add_number(entries, "parkedPulls", long_poll_parked(broker->polls));
    add_number(entries, "parkedEventWaits", events_parked(broker->events));
    add_number(entries, "sendsWaiting", ack_wait_count(broker->acks));
    add_number(entries, "commitsWaiting", ack_wait_count(broker->commits));
    add_number(entries, "coldLaneQueueSize", cold_lane_depth(broker->cold));
    add_number(entries, "retriesStored", (int64_t)counter_get(&broker->retries_stored));
    add_number(entries, "deadLettersStored", (int64_t)counter_get(&broker->dead_letters));
    add_number(entries, "flushDiskTimeouts", (int64_t)counter_get(&broker->flush_timeouts));
    add_number(entries, "flushSlaveTimeouts", (int64_t)counter_get(&broker->replica_timeouts));
    add_number(entries, "slaveNotAvailable", (int64_t)counter_get(&broker->no_replica));
}

static int by_key(const void *a, const void *b)
{
    const Tern__Wire__KeyValue *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

void handle_broker_status(struct broker *broker, struct rpc_request *request)
{
    struct entries *entries = rpc_request_alloc(request, sizeof *entries);
    Tern__Wire__BrokerStatusResponse body = TERN__WIRE__BROKER_STATUS_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    if (!entries) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the status");
        return;
    }
    *entries = (struct entries){.arena = rpc_request_arena(request)};
    add_broker(entries, broker);
    add_store(entries, broker);
    add_transactions(entries, broker);
    add_delayed(entries, broker);
    add_requests(entries, broker);
    if (entries->failed) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the status");
        return;
    }
    qsort(entries->pointers, entries->count, sizeof entries->pointers[0], by_key);
    body.entries = entries->pointers;
    body.n_entries = entries->count;
    response.body_case = TERN__WIRE__RESPONSE__BODY_BROKER_STATUS;
    response.broker_status = &body;
    rpc_reply(request, &response, 0);
}

/* ---- replication ---- */

void handle_ha_status(struct broker *broker, struct rpc_request *request)
{
    ha_handle_status(broker->ha, request);
}

void handle_force_open(struct broker *broker, struct rpc_request *request)
{
    ha_handle_force_open(broker->ha, request);
}

void handle_rejoin(struct broker *broker, struct rpc_request *request)
{
    ha_handle_rejoin(broker->ha, request);
}
