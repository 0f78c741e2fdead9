/*
 * The broker's request handlers, one per row of the request table. Each answers its request exactly
 * once, now or later, and never waits: it runs on a transport thread.
 */
#ifndef BROKER_HANDLERS_H
#define BROKER_HANDLERS_H

#include "broker/broker_internal.h"

/* send.c, send_plain.c */
void handle_send(struct broker *broker, struct rpc_request *request);
void handle_send_records(struct broker *broker, struct rpc_request *request);
/* transaction.c */
void handle_end_transaction(struct broker *broker, struct rpc_request *request);
void handle_list_transactions(struct broker *broker, struct rpc_request *request);
void handle_resume_transaction(struct broker *broker, struct rpc_request *request);
/* cancel_delayed.c */
void handle_cancel_delayed(struct broker *broker, struct rpc_request *request);
/* send_back.c */
void handle_send_back(struct broker *broker, struct rpc_request *request);
/* pull.c */
void handle_pull(struct broker *broker, struct rpc_request *request);
/* progress.c */
void handle_query_offset(struct broker *broker, struct rpc_request *request);
void handle_commit_offset(struct broker *broker, struct rpc_request *request);
void handle_reset_offset(struct broker *broker, struct rpc_request *request);
/* queues.c */
void handle_queue_range(struct broker *broker, struct rpc_request *request);
void handle_search_offset(struct broker *broker, struct rpc_request *request);
void handle_topic_stats(struct broker *broker, struct rpc_request *request);
/* membership.c */
void handle_heartbeat(struct broker *broker, struct rpc_request *request);
void handle_unregister_client(struct broker *broker, struct rpc_request *request);
void handle_members(struct broker *broker, struct rpc_request *request);
void handle_wait_events(struct broker *broker, struct rpc_request *request);
void handle_check_subscription(struct broker *broker, struct rpc_request *request);
void handle_consumer_connection(struct broker *broker, struct rpc_request *request);
/*
 * The compiled expression of a topic, a reference; "" and "*" of type TAG give NULL: all. Type and
 * expression are as on the wire. TERN_INVALID: the type; TERN_NOT_SUPPORTED: SQL92 is switched off;
 * TERN_SUBSCRIPTION_PARSE_FAILED. @thread any
 */
MUST_CHECK enum tern_code broker_compile(struct broker *broker, const char *type,
                                         const char *expression, struct subscription **out,
                                         struct tern_error *err);
/* members_options.on_changed: posts the event to every member. @locks none */
void broker_on_members_changed(void *broker, const char *group, const char *const *client_ids,
                               size_t count);
/* locks.c */
void handle_lock_queues(struct broker *broker, struct rpc_request *request);
void handle_unlock_queues(struct broker *broker, struct rpc_request *request);
/* messages.c */
void handle_view_message(struct broker *broker, struct rpc_request *request);
void handle_query_message(struct broker *broker, struct rpc_request *request);
/* tables.c */
void handle_update_topic(struct broker *broker, struct rpc_request *request);
void handle_delete_topic(struct broker *broker, struct rpc_request *request);
void handle_list_topics(struct broker *broker, struct rpc_request *request);
void handle_update_group(struct broker *broker, struct rpc_request *request);
void handle_delete_group(struct broker *broker, struct rpc_request *request);
void handle_list_groups(struct broker *broker, struct rpc_request *request);
/* consume_stats.c */
void handle_consume_stats(struct broker *broker, struct rpc_request *request);
/* status.c */
void handle_broker_status(struct broker *broker, struct rpc_request *request);
void handle_ha_status(struct broker *broker, struct rpc_request *request);
void handle_force_open(struct broker *broker, struct rpc_request *request);
void handle_rejoin(struct broker *broker, struct rpc_request *request);
/* admin_config.c */
void handle_broker_config(struct broker *broker, struct rpc_request *request);
void handle_update_broker_config(struct broker *broker, struct rpc_request *request);
/* admin_producers.c */
void handle_producer_connection(struct broker *broker, struct rpc_request *request);
/* admin_clone.c */
void handle_clone_offsets(struct broker *broker, struct rpc_request *request);
/* admin_store.c */
void handle_clean(struct broker *broker, struct rpc_request *request);
void handle_read_queue(struct broker *broker, struct rpc_request *request);

#endif
