/*
 * Administration: what tools need beyond sending and receiving. Thin functions over the wire's own
 * requests; used by mqadmin and mqbench, not installed.
 */
#ifndef CLIENT_ADMIN_H
#define CLIENT_ADMIN_H

#include "client/instance.h"

struct admin;

enum { ADMIN_TIMEOUT_MS = 5000, ADMIN_BROKERS_MAX = 4096 };

/* Connects to nobody yet. namesrv: "host:port;…". *out is the caller's. */
MUST_CHECK enum tern_code admin_open(const char *namesrv, struct admin **out,
                                     struct tern_error *err);
void admin_close(struct admin *admin);
struct instance *admin_instance(struct admin *admin);

/* One request to a nameserver (walking on at failure); see instance_namesrv_call. */
MUST_CHECK enum tern_code admin_call_namesrv(struct admin *admin, TernRequest *request,
                                             struct rpc_call **out, struct tern_error *err);
/* To every nameserver, since they share nothing: the first error is returned, the others are still
 * told. */
MUST_CHECK enum tern_code admin_call_namesrvs(struct admin *admin, TernRequest *request,
                                              struct tern_error *err);
/* One request to the broker at an address. What is UNREACHABLE is said more exactly than elsewhere.
 */
MUST_CHECK enum tern_code admin_call_broker(struct admin *admin, const char *address,
                                            TernRequest *request, const void *payload,
                                            size_t payload_size, struct rpc_call **out,
                                            struct tern_error *err);
/*
 * Puts into err why nobody could be reached at an address: gone, stopped, host silent, or no such
 * name. A plain connect; @blocks about a second. err NULL: nothing.
 */
void admin_explain_unreachable(const char *address, struct tern_error *err);

struct admin_broker {
    char cluster[128], name[128], address[ADDRESS_BYTES];
    int64_t id;
};
/*
 * Brokers that the nameserver knows, sorted by cluster, name and id; cluster NULL: all. malloc'ed,
 * free(). masters_only leaves out ids other than 0. TERN_NOT_FOUND: none, with a text that names
 * cluster and nameserver.
 */
MUST_CHECK enum tern_code admin_brokers(struct admin *admin, const char *cluster, bool masters_only,
                                        struct admin_broker **out, size_t *count,
                                        struct tern_error *err);
/* The topic's brokers from its route (any id); malloc'ed. */
MUST_CHECK enum tern_code admin_topic_brokers(struct admin *admin, const char *topic,
                                              bool masters_only, struct admin_broker **out,
                                              size_t *count, struct tern_error *err);

/* Creates the topic at one broker. order: noted in its configuration; see base/order_conf.h. */
MUST_CHECK enum tern_code admin_update_topic(struct admin *admin, const char *address,
                                             const char *topic, int32_t read_queues,
                                             int32_t write_queues, int32_t perm, bool order,
                                             struct tern_error *err);
/* Deletes it at one broker, and from the routes of a cluster at every nameserver. TOPIC_NOT_EXIST.
 */
MUST_CHECK enum tern_code admin_delete_topic(struct admin *admin, const char *address,
                                             const char *topic, struct tern_error *err);
MUST_CHECK enum tern_code admin_delete_topic_route(struct admin *admin, const char *topic,
                                                   const char *cluster, struct tern_error *err);
/* Waits until the nameserver's route shows the topic on `brokers` brokers; TERN_TIMEOUT after
 * timeout_ms. */
MUST_CHECK enum tern_code admin_wait_route(struct admin *admin, const char *topic, size_t brokers,
                                           int64_t timeout_ms, struct tern_error *err);

/* Opens, makes the topic at every master unless it has a route, waits for the route, closes. */
MUST_CHECK enum tern_code admin_ensure_topic(const char *namesrv, const char *topic, int32_t queues,
                                             struct tern_error *err);

#endif
