/* SPDX-License-Identifier: GPL-2.0 */
/* Flow rules of nearfar's NIC. */
#ifndef NEARFAR_RULES_H
#define NEARFAR_RULES_H

#include <linux/types.h>

struct net_device;
struct nfn_channel;

/* What a rule matches of a packet of IPv4, all of it. */
struct nfn_flow {
	__be32 source;
	__be32 destination;
	__be16 source_port;
	__be16 destination_port;
	u8 protocol;
};

/* Who decides where flows go, for several functions that are one NIC. */
struct nfn_steering {
	/*
	 * A flow whose frames come by a channel, and whose hash the stack knows it by, is read on
	 * another processor. Called once for each move of its reader, until nfn_forget_flow().
	 */
	void (*steer)(struct nfn_steering *steering, const struct nfn_flow *flow, u32 hash,
		      struct nfn_channel *from, unsigned int cpu);
	/* A function has lost its rules. */
	void (*restore)(struct nfn_steering *steering, struct net_device *netdev);
};

/* Functions that share their address, or -EOPNOTSUPP. All rules are the other's from now on. */
int nfn_take_rules(struct net_device *netdev, struct nfn_steering *steering);
void nfn_give_rules(struct net_device *netdev);

/*
 * A flow comes by this function, to the queue of a processor, whose channel is returned: behind
 * what is in the rings of the channel where its rule led `before`, and of that by which its `last`
 * frames came. -EAGAIN if frames wait for an earlier move. May sleep.
 */
struct nfn_channel *nfn_rule_write(struct net_device *netdev, unsigned int number,
				   const struct nfn_flow *flow, unsigned int cpu,
				   struct nfn_channel *before, struct nfn_channel *last);
/* No frames of this function wait for other channels any more. */
void nfn_drop_fences(struct net_device *netdev);
void nfn_rule_erase(struct net_device *netdev, unsigned int number);
/* How long a rule was not used, or an error. */
int nfn_rule_age(struct net_device *netdev, unsigned int number, u32 *age_us);
/* The stack asks anew where frames with this hash go, of which none are under way. */
void nfn_forget_flow(struct net_device *netdev, u32 hash);
/* The processor of a queue. */
unsigned int nfn_cpu_of_queue(struct net_device *netdev, unsigned int queue);

u32 nfn_flow_hash(const struct nfn_flow *flow);
bool nfn_same_flow(const struct nfn_flow *one, const struct nfn_flow *other);

#endif
