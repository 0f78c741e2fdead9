/*
 * What brokers say of replication, as JSON for scripts and as text for people. No network: the
 * commands fetch, these turn over. Everything from the wire is taken as it is: names that are not
 * UTF-8 are shown as such, missing parts as absent.
 */
#ifndef MQADMIN_HA_STATUS_H
#define MQADMIN_HA_STATUS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "rpc/frame.h"

enum { HA_UUID_TEXT_BYTES = 33, HA_UUID_RAW_BYTES = 16 };

/*
 * One broker's answer:
 *   {"clusterName", "brokerName", "brokerId", "address", "haAddress", "storeUuid", "state",
 * "stateText", "writable", "readable", "epochs": [{"number", "start"}], "positions": {"min",
 * "appended", "flushed", "confirmed", "dispatched"}, "transferMibPerSecond", "cutBytes", "slaves":
 * […], "awaited": […], "master"} A slave: {"brokerId", "address", "haAddress", "storeUuid",
 * "inSync", "linkUp", "position", "flushed", "dispatched", "lagBytes", "lagMs", "heardAgeMs",
 * "transferMibPerSecond"}. A new reference.
 */
json_t *ha_status_to_json(const Tern__Wire__HaStatusResponse *status);
/* A registered broker that did not answer: the same keys as far as known, state "no answer". */
json_t *ha_status_no_answer(int64_t id, const char *address, const char *why);

/* The broker's paragraph: state, positions, a row per slave, whom it waits for. */
void ha_status_print(const json_t *broker, FILE *out);

/*
 * What opening by force may cost: a line per awaited member, or that nobody is waited for. Returns
 * whether there is something to force (the broker is recovering).
 */
bool ha_force_warning(const json_t *broker, FILE *out);
/* What rejoining costs; returns whether the broker is a detached slave. */
bool ha_rejoin_warning(const json_t *broker, FILE *out);

/* 32 hex digits, dashes between them allowed. */
bool ha_uuid_parse(const char *text, uint8_t out[HA_UUID_RAW_BYTES]);

#endif
