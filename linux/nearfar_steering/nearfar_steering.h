/* SPDX-License-Identifier: GPL-2.0 */
/* Where a function's flows go, for its driver: nearfar_rules.h is for who decides in its place. */
#ifndef NEARFAR_STEERING_H
#define NEARFAR_STEERING_H

#include <linux/hashtable.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/workqueue.h>

#include "nearfar_rules.h"

struct nfn;

/* Registers of rules. */
#define NFN_RULE_SOURCE		0x200
#define NFN_RULE_DESTINATION	0x204
#define NFN_RULE_PORTS		0x208
#define NFN_RULE_PROTOCOL	0x20c
#define NFN_RULE_NUMBER		0x210
#define NFN_RULE_TARGET		0x214
#define NFN_RULE_COMMAND	0x218
#define NFN_RULE_RESULT		0x21c
#define NFN_RULE_AGE_US		0x220
#define NFN_RULE_HITS		0x224

/* Commands for rules, and their results. */
#define NFN_RULE_ADD		1
#define NFN_RULE_REMOVE		2
#define NFN_RULE_QUERY		3
#define NFN_RULE_CLEAR		4
#define NFN_RULE_OF_SWITCH	BIT(8)
#define NFN_RULE_OK		0

#define NFN_MAX_RULES		1024
#define NFN_LOG2_FLOWS		8

/* A flow whose frames go to a queue. A dead one waits for its removal from the device. */
struct nfn_rule {
	struct hlist_node node;
	struct nfn_flow flow;
	u32 flow_id;
	u16 queue;
	bool dead;
	/* Where its frames come from before: see nfn_rule_write(). */
	struct nfn_channel *before;
	struct nfn_channel *last;
};

/*
 * Frames that a flow's new channel has to leave in its ring until those in the old ones are with
 * the stack.
 */
struct nfn_fence {
	struct nfn_channel *from[2];
	unsigned long made;
	unsigned long until;
	u16 queue;
	bool shut;
	bool holds;
};

/* Rules have the numbers that the device knows them by. */
struct nfn_rules {
	unsigned int count;
	/* Completions name rules from here on. */
	unsigned int base;
	/* Owns all below but the registers, which are the worker's. */
	spinlock_t lock;
	struct nfn_rule *rule;
	struct nfn_fence *fence;
	DECLARE_BITMAP(used, NFN_MAX_RULES);
	DECLARE_BITMAP(changed, NFN_MAX_RULES);
	DECLARE_HASHTABLE(by_flow, NFN_LOG2_FLOWS);
	u64 expired;
	/* Moves that did not wait long enough for an old ring. */
	u64 late;
	/* Held for the registers of a rule. */
	struct mutex registers;
	struct delayed_work update;
	struct delayed_work expire;
	/* Who decides in place of this driver. */
	struct nfn_steering __rcu *steering;
};

#ifdef CONFIG_RFS_ACCEL
int nfn_map_cpus(struct nfn *nfn);
void nfn_unmap_cpus(struct nfn *nfn);
int nfn_rules_init(struct nfn *nfn);
void nfn_rules_exit(struct nfn *nfn);
void nfn_rules_restore(struct nfn *nfn);
void nfn_rules_clear(struct nfn *nfn);
void nfn_drop_fences_of(struct nfn *nfn);
unsigned int nfn_rules_used(struct nfn *nfn);
u64 nfn_rule_hits(struct nfn *nfn);
int nfn_rx_flow_steer(struct net_device *netdev, const struct sk_buff *skb, u16 queue, u32 flow_id);
bool nfn_is_in_turn(struct nfn_channel *channel, unsigned int number);
#else
static inline bool nfn_is_in_turn(struct nfn_channel *channel, unsigned int number) { return true; }

static inline int nfn_map_cpus(struct nfn *nfn) { return 0; }
static inline void nfn_unmap_cpus(struct nfn *nfn) { }
static inline int nfn_rules_init(struct nfn *nfn) { return 0; }
static inline void nfn_rules_exit(struct nfn *nfn) { }
static inline void nfn_rules_restore(struct nfn *nfn) { }
static inline void nfn_rules_clear(struct nfn *nfn) { }
static inline void nfn_drop_fences_of(struct nfn *nfn) { }
static inline unsigned int nfn_rules_used(struct nfn *nfn) { return 0; }
static inline u64 nfn_rule_hits(struct nfn *nfn) { return 0; }
#endif

#endif
