/*
 * Finding and making client instances.
 *
 * Producers and consumers of one client id, nameserver list and world share an instance. The real
 * world is one env and one NNG link for the whole process: made when the first instance needs them,
 * kept until the process ends, since NNG keeps its threads that long too.
 *
 * Invariant: an instance in the list has refs ≥ 1; the one who takes the last reference takes it
 * out of the list under the same lock.
 *
 * Threads: any. Failure modes: no nameserver gives TERN_INVALID with what to set.
 */
#include "client/instance_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    struct lock lock; /* CLIENT_INSTANCE */
    struct instance *list;
    struct env env;
} registry;

static _Atomic(struct link *) shared_link;
static _Atomic int64_t last_start_ns;

/*
 * TERNMQ_LOG=debug|info|warn|error: the library's log on stderr. Without it the library prints
 * nothing.
 */
static struct log *env_log(void)
{
    static const char *const names[] = {
        [LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error"};
    const char *wanted = getenv("TERNMQ_LOG");
    struct log *log = NULL;
    for (int level = LOG_DEBUG; wanted && level <= LOG_ERROR; level++)
        if (strcmp(wanted, names[level]) == 0 &&
            log_create(clock_system(), (enum log_level)level, NULL, NULL, &log) != TERN_OK)
            return NULL;
    return log;
}

static void registry_init(void)
{
    lock_init(&registry.lock, LOCK_CLIENT_INSTANCE);
    env_init_system(&registry.env, env_log());
}

static enum tern_code system_link(struct link **out, struct tern_error *err)
{
    *out = atomic_load(&shared_link);
    if (*out)
        return TERN_OK;
    struct link *made;
    enum tern_code code = link_nng_create(&registry.env, &made, err);
    if (code != TERN_OK)
        return code;
    if (atomic_compare_exchange_strong(&shared_link, out, made))
        *out = made;
    else
        link_destroy(made); /* another thread was faster */
    return TERN_OK;
}

/* Monotonic, and different for every client of the process. */
static int64_t unique_start_ns(const struct env *env)
{
    int64_t now_ns = clock_mono_ns(env->clock);
    int64_t last_ns = atomic_load(&last_start_ns);
    int64_t next_ns;
    do
        next_ns = now_ns > last_ns ? now_ns : last_ns + 1;
    while (!atomic_compare_exchange_weak(&last_start_ns, &last_ns, next_ns));
    return next_ns;
}

/* <ip>@<instance>, RocketMQ's client id. */
static enum tern_code format_client_id(char out[CLIENT_ID_MAX + 1],
                                       const struct instance_options *options,
                                       const struct env *env, struct tern_error *err)
{
    uint8_t ip[4] = {127, 0, 0, 1};
    char name[64];
    const char *instance_name = options->instance_name;
    if (!options->env)
        local_ipv4(ip);
    if (!instance_name || !instance_name[0]) {
        snprintf(name, sizeof name, "%ld#%lld", (long)getpid(), (long long)unique_start_ns(env));
        instance_name = name;
    }
    int len = snprintf(out, CLIENT_ID_MAX + 1, "%d.%d.%d.%d@%s", ip[0], ip[1], ip[2], ip[3],
                       instance_name);
    if (len < 0 || len > CLIENT_ID_MAX)
        return error_set(err, TERN_INVALID, "the instance name is longer than %d bytes",
                         (int)CLIENT_ID_MAX - 16);
    return client_id_check(out, (size_t)len, err);
}

static const char *choose_namesrv(const struct instance_options *options)
{
    if (options->namesrv && options->namesrv[0])
        return options->namesrv;
    const char *from_env = getenv("NAMESRV_ADDR");
    return from_env && from_env[0] ? from_env : NULL;
}

/* @locks holds:CLIENT_INSTANCE */
static struct instance *find(const char *client_id, const char *namesrv, const struct env *env,
                             const struct link *link)
{
    for (struct instance *i = registry.list; i; i = i->next)
        if (strcmp(i->client_id, client_id) == 0 && strcmp(i->namesrv_text, namesrv) == 0 &&
            i->env == env && i->link == link)
            return i;
    return NULL;
}

/* References the one that is there, else enters `made` (may be NULL); NULL: none. */
static struct instance *find_or_enter(const char *client_id, const char *namesrv,
                                      const struct env *env, const struct link *link,
                                      struct instance *made)
{
    lock_acquire(&registry.lock);
    struct instance *chosen = find(client_id, namesrv, env, link);
    if (!chosen && made) {
        chosen = made;
        made->next = registry.list;
        registry.list = made;
    }
    if (chosen)
        chosen->refs++;
    lock_release(&registry.lock);
    return chosen;
}

enum tern_code instance_get(const struct instance_options *options, struct instance **out,
                            struct tern_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, registry_init);
    char client_id[CLIENT_ID_MAX + 1];
    const struct env *env = options->env ? options->env : &registry.env;
    struct link *link = options->link;
    const char *namesrv = choose_namesrv(options);
    *out = NULL;
    if (!namesrv)
        return error_set(err, TERN_INVALID,
                         "no nameserver: set the option namesrv or the environment variable "
                         "NAMESRV_ADDR, e.g. 127.0.0.1:9876");
    enum tern_code code = format_client_id(client_id, options, env, err);
    if (code == TERN_OK && !link)
        code = system_link(&link, err);
    if (code != TERN_OK)
        return code;
    *out = find_or_enter(client_id, namesrv, env, link, NULL);
    if (*out)
        return TERN_OK;
    struct id_maker *ids = options->env ? NULL : id_maker_process();
    struct instance *made;
    code = instance_create(env, link, client_id, namesrv, ids, &made, err);
    if (code != TERN_OK)
        return code;
    *out = find_or_enter(client_id, namesrv, env, link, made);
    if (*out != made)
        instance_destroy(made); /* another thread was faster */
    return TERN_OK;
}

void instance_unref(struct instance *instance)
{
    if (!instance)
        return;
    lock_acquire(&registry.lock);
    bool last = --instance->refs == 0;
    for (struct instance **at = &registry.list; last && *at; at = &(*at)->next) {
        if (*at != instance)
            continue;
        *at = instance->next;
        break;
    }
    lock_release(&registry.lock);
    if (last)
        instance_destroy(instance);
}
