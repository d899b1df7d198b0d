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
static inline unsigned int nfn_rules_used(struct nfn *nfn) { return 0; }
static inline u64 nfn_rule_hits(struct nfn *nfn) { return 0; }
#endif

#endif
