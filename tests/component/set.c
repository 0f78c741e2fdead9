/* See set.h. */
#include "tests/component/set.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include "tests/unit/base/held_port.h"

/* A start should take milliseconds, and looking at a store, too. */
static const char *const small_files[] = {"mappedFileSizeCommitLog=1MiB", "maxMessageSize=64KiB",
                                          "maxHashSlotNum=1000", "maxIndexNum=4000", NULL};

/* ---- processes ---- */

void set_make(struct broker_set *set, const char *role, size_t slaves, const char *const *overrides)
{
    char kv[DAEMON_PATH_BYTES], log[DAEMON_PATH_BYTES];
    memset(set, 0, sizeof *set);
    assert_in_range(slaves, 0, SET_NODES - 1);
    work_dir_make(set->dir);
    set->role = role;
    set->count = slaves + 1;
    for (size_t i = 0; overrides && overrides[i]; i++)
        set->overrides[i] = overrides[i];
    for (size_t i = 0; i < set->count; i++) {
        set->nodes[i].id = (int)i;
        snprintf(set->nodes[i].store, DAEMON_PATH_BYTES, "%s/store-%zu", set->dir, i);
        set_move(set, i);
    }
    snprintf(kv, sizeof kv, "kvConfigPath=%s/kvConfig.json", set->dir);
    snprintf(log, sizeof log, "%s/namesrv.log", set->dir);
    daemon_spawn(&set->namesrv, "mqnamesrv", log,
                 (const char *const[]){"-o", "listenPort=0", "-o", kv, NULL}, NULL);
    assert_true(daemon_wait_ready(&set->namesrv));
    snprintf(set->namesrv_list, sizeof set->namesrv_list, "%s", set->namesrv.address);
}

void set_up(struct broker_set *set, const char *role, size_t slaves, const char *const *overrides)
{
    set_make(set, role, slaves, overrides);
    for (size_t i = 0; i < set->count; i++)
        set_start(set, i);
    set_await_in_sync(set, slaves);
}

void set_move(struct broker_set *set, size_t node)
{
    struct set_node *at = &set->nodes[node];
    int before[2] = {at->held[0], at->held[1]};
    at->held[0] = port_hold(&at->port);
    at->held[1] = port_hold(&at->ha_port);
    for (int i = 0; i < 2; i++)
        if (before[i] > 0)
            close(before[i]);
}

void set_spawn(struct broker_set *set, size_t node)
{
    struct set_node *at = &set->nodes[node];
    char port[32], ha_port[32], id[32], role[40], root[DAEMON_PATH_BYTES + 32],
        log[DAEMON_PATH_BYTES];
    const char *args[DAEMON_ARGS_MAX + 1] = {"-n", set->namesrv_list};
    size_t n = 2;
    const char *const always[] = {"brokerName=broker-a", port, ha_port, id, role, root, NULL};
    const char *const *lists[] = {always, small_files, set->overrides, at->own};
    snprintf(port, sizeof port, "listenPort=%u", at->port);
    snprintf(ha_port, sizeof ha_port, "haListenPort=%u", at->ha_port);
    snprintf(id, sizeof id, "brokerId=%d", at->id);
    snprintf(role, sizeof role, "brokerRole=%s", at->id ? "SLAVE" : set->role);
    snprintf(root, sizeof root, "storePathRootDir=%s", at->store);
    snprintf(log, sizeof log, "%s/node-%zu.log", set->dir, node);
    for (size_t list = 0; list < sizeof lists / sizeof lists[0]; list++)
        for (const char *const *item = lists[list]; *item && n + 2 < DAEMON_ARGS_MAX; item++) {
            args[n++] = "-o";
            args[n++] = *item;
        }
    daemon_spawn(&at->daemon, "mqbroker", log, args, at->environment);
}

void set_start(struct broker_set *set, size_t node)
{
    struct daemon *daemon = &set->nodes[node].daemon;
    set_spawn(set, node);
    if (!daemon_wait_ready(daemon))
        daemon_fail(daemon, "node %zu did not start", node);
}

static void forget_wire(struct set_node *node)
{
    if (node->wired)
        wire_close(&node->wire);
    node->wired = false;
}

void set_kill(struct broker_set *set, size_t node)
{
    assert_int_equal(daemon_stop(&set->nodes[node].daemon, SIGKILL), -SIGKILL);
    forget_wire(&set->nodes[node]);
}

void set_stop(struct broker_set *set, size_t node)
{
    struct set_node *at = &set->nodes[node];
    int status = daemon_stop(&at->daemon, SIGTERM);
    if (status != 0)
        daemon_fail(&at->daemon, "node %zu ended with %d", node, status);
    forget_wire(at);
}

/* Whether every thread of the process stands still; kill() returns before they do. */
static bool all_stopped(pid_t pid)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    assert_non_null(tasks);
    bool stopped = true;
    for (struct dirent *task; stopped && (task = readdir(tasks));) {
        char stat[sizeof path + sizeof task->d_name + 8];
        if (task->d_name[0] == '.')
            continue;
        snprintf(stat, sizeof stat, "%s/%s/stat", path, task->d_name);
        FILE *file = fopen(stat, "r");
        if (!file)
            continue; /* it has ended */
        size_t size = fread(line, 1, sizeof line - 1, file);
        fclose(file);
        line[size] = 0;
        const char *state = strrchr(line, ')');
        stopped = state && state[1] == ' ' && state[2] == 'T';
    }
    closedir(tasks);
    return stopped;
}

void set_pause(struct broker_set *set, size_t node)
{
    pid_t pid = set->nodes[node].daemon.pid;
    int64_t deadline = now_ms() + PATIENCE_MS;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    while (!all_stopped(pid)) {
        assert_true(now_ms() < deadline);
        usleep(1000);
    }
}

void set_resume(struct broker_set *set, size_t node)
{
    assert_int_equal(kill(set->nodes[node].daemon.pid, SIGCONT), 0);
}

void set_down(struct broker_set *set)
{
    for (size_t i = set->count; i-- > 0;)
        if (set->nodes[i].daemon.pid)
            set_stop(set, i);
        else
            forget_wire(&set->nodes[i]);
    for (size_t i = 0; i < set->count; i++)
        for (int k = 0; k < 2; k++)
            close(set->nodes[i].held[k]);
    assert_int_equal(daemon_stop(&set->namesrv, SIGTERM), 0);
    work_dir_remove(set->dir);
}

const char *set_file(const struct broker_set *set, size_t node, const char *name,
                     char path[DAEMON_PATH_BYTES])
{
    int len = snprintf(path, DAEMON_PATH_BYTES, "%s/%s", set->nodes[node].store, name);
    assert_in_range(len, 1, DAEMON_PATH_BYTES - 1);
    return path;
}

struct wire *set_wire(struct broker_set *set, size_t node)
{
    struct set_node *at = &set->nodes[node];
    if (!at->wired)
        wire_open(&at->wire, at->daemon.address, "127.0.0.1@set");
    at->wired = true;
    return &at->wire;
}

bool set_logged(const struct broker_set *set, size_t node, const char *words)
{
    return file_contains(set->nodes[node].daemon.log, words);
}

void set_await_logged(const struct broker_set *set, size_t node, const char *words)
{
    int64_t deadline = now_ms() + PATIENCE_MS;
    while (!set_logged(set, node, words)) {
        if (now_ms() >= deadline)
            daemon_fail(&set->nodes[node].daemon, "node %zu never logs \"%s\"", node, words);
        look_again_soon();
    }
}

/* ---- what nodes say ---- */

void set_view(struct broker_set *set, size_t node, struct set_view *out)
{
    Tern__Wire__HaStatusRequest body = TERN__WIRE__HA_STATUS_REQUEST__INIT;
    WIRE_REQUEST(request, HA_STATUS, ha_status, &body);
    struct rpc_call *call = wire_ask(set_wire(set, node), &request, NULL, 0);
    assert_int_equal(call->response->code, CODE(SUCCESS));
    const Tern__Wire__HaStatusResponse *status = call->response->ha_status;
    *out = (struct set_view){.state = (int)status->self->state,
                             .writable = status->writable,
                             .min = status->self->log_min,
                             .end = status->self->log_end,
                             .flushed = status->self->flushed,
                             .dispatched = status->self->dispatched,
                             .confirmed = status->confirmed};
    snprintf(out->text, sizeof out->text, "%s", status->state_text);
    snprintf(out->ha_address, sizeof out->ha_address, "%.*s", (int)status->self->ha_address.len,
             (const char *)status->self->ha_address.data);
    for (size_t i = 0; i < status->n_slaves; i++) {
        out->in_sync += status->slaves[i]->in_sync ? 1 : 0;
        out->linked += status->slaves[i]->link_up ? 1 : 0;
    }
    rpc_call_unref(call);
}

static void fail_with_logs(const struct broker_set *set, const char *wish,
                           const struct set_view *view)
{
    for (size_t i = 0; i < set->count; i++) {
        char *log = set->nodes[i].daemon.log[0] ? file_read(set->nodes[i].daemon.log, NULL) : NULL;
        print_message("---- node %zu ----\n%s\n", i, log ? log : "never started");
        free(log);
    }
    fail_msg("never %s: state %d \"%s\", writable %d, end %lld, dispatched %lld, in sync %zu", wish,
             view->state, view->text, view->writable, (long long)view->end,
             (long long)view->dispatched, view->in_sync);
}

void set_await_state(struct broker_set *set, size_t node, int state)
{
    struct set_view view;
    int64_t deadline = now_ms() + PATIENCE_MS;
    for (set_view(set, node, &view); view.state != state; set_view(set, node, &view)) {
        if (now_ms() >= deadline)
            fail_with_logs(set, "in that state", &view);
        look_again_soon();
    }
}

void set_await_in_sync(struct broker_set *set, size_t slaves)
{
    struct set_view view;
    int64_t deadline = now_ms() + PATIENCE_MS;
    for (set_view(set, 0, &view); !view.writable || view.in_sync != slaves || view.linked < slaves;
         set_view(set, 0, &view)) {
        if (now_ms() >= deadline)
            fail_with_logs(set, "in sync", &view);
        look_again_soon();
    }
}

void set_await_equal(struct broker_set *set, size_t node)
{
    struct set_view master, view;
    int64_t deadline = now_ms() + PATIENCE_MS;
    for (;;) {
        set_view(set, 0, &master);
        set_view(set, node, &view);
        if (view.end == master.end && view.dispatched == view.end &&
            master.dispatched == master.end)
            return;
        if (now_ms() >= deadline)
            fail_with_logs(set, "as far as the master", &view);
        look_again_soon();
    }
}

/* ---- tools ---- */

char *set_mqadmin(const struct broker_set *set, int status, const char *const *args)
{
    struct cluster as = {.dir = ""};
    snprintf(as.namesrv_list, sizeof as.namesrv_list, "%s", set->namesrv_list);
    return mqadmin(&as, status, args);
}

static void expect_mqstore(const char *const *args)
{
    struct tool tool;
    tool_run(&tool, "mqstore", args, NULL, 0);
    if (tool.status != 0)
        fail_msg("mqstore %s %s ended with %d:\n%s%s", args[0], args[1], tool.status, tool.out,
                 tool.err);
    tool_free(&tool);
}

void set_expect_sound_stores(const struct broker_set *set, size_t nodes)
{
    for (size_t i = 0; i < nodes; i++)
        expect_mqstore((const char *const[]){"verify", set->nodes[i].store, NULL});
    for (size_t i = 1; i < nodes; i++)
        expect_mqstore(
            (const char *const[]){"diff", set->nodes[0].store, set->nodes[i].store, NULL});
}

/* ---- asked of one node ---- */

int32_t send_code(struct wire *wire, const char *topic, const char *body)
{
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    send.topic = bytes_of_text(topic);
    WIRE_REQUEST(request, SEND, send, &send);
    struct rpc_call *call = wire_ask(wire, &request, body, strlen(body));
    int32_t code = call->response->code;
    rpc_call_unref(call);
    return code;
}

struct rpc_call *pull_from(struct wire *wire, const char *group, const char *topic,
                           int32_t queue_id, int64_t offset)
{
    Tern__Wire__PullRequest pull;
    wire_fill_pull(&pull, topic, queue_id, offset);
    pull.group = bytes_of_text(group);
    WIRE_REQUEST(request, PULL, pull, &pull);
    return wire_ask(wire, &request, NULL, 0);
}

int32_t commit_to(struct wire *wire, const char *group, const char *topic, int64_t offset,
                  const Tern__Wire__OffsetVersion *version)
{
    Tern__Wire__CommitOffset commit = TERN__WIRE__COMMIT_OFFSET__INIT;
    Tern__Wire__CommitOffset *commits[] = {&commit};
    Tern__Wire__CommitOffsetRequest body = TERN__WIRE__COMMIT_OFFSET_REQUEST__INIT;
    body.group = bytes_of_text(group);
    commit.topic = bytes_of_text(topic);
    commit.offset = offset;
    commit.version = (Tern__Wire__OffsetVersion *)(uintptr_t)version;
    body.commits = commits;
    body.n_commits = 1;
    WIRE_REQUEST(request, COMMIT_OFFSET, commit_offset, &body);
    struct rpc_call *call = wire_ask(wire, &request, NULL, 0);
    int32_t code = call->response->code;
    rpc_call_unref(call);
    return code;
}

int32_t query_progress(struct wire *wire, const char *group, const char *topic, int64_t *offset,
                       Tern__Wire__OffsetVersion *version)
{
    Tern__Wire__QueryOffsetRequest body = TERN__WIRE__QUERY_OFFSET_REQUEST__INIT;
    body.group = bytes_of_text(group);
    body.topic = bytes_of_text(topic);
    WIRE_REQUEST(request, QUERY_OFFSET, query_offset, &body);
    struct rpc_call *call = wire_ask(wire, &request, NULL, 0);
    int32_t code = call->response->code;
    const Tern__Wire__QueryOffsetResponse *held = call->response->query_offset;
    *offset = code == CODE(SUCCESS) ? held->offset : -1;
    if (version && held && held->version) {
        version->epoch = held->version->epoch;
        version->counter = held->version->counter;
    }
    rpc_call_unref(call);
    return code;
}
