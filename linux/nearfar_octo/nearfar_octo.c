// SPDX-License-Identifier: GPL-2.0
/*
 * Mode `octo` of the team driver: the functions of one NIC, one per node, are one network device
 * (IOctopus, ASPLOS 2020, 4.2). A packet is sent by the function at its sender's node; what a
 * processor reads is received by the function at its node. For that, the card's switch has a rule
 * for each flow, which follows the callback of accelerated RFS.
 */
#include <linux/hashtable.h>
#include <linux/if_team.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rtnetlink.h>
#include <linux/workqueue.h>
#include <net/sock.h>

#include "nearfar_rules.h"

#define OCTO_FLOWS	1024
#define OCTO_LOG2_FLOWS	8
#define OCTO_MOST_PORTS	8

static unsigned int idle = 10;
module_param(idle, uint, 0644);
MODULE_PARM_DESC(idle, "seconds after which a rule is removed that no frame has used");

static atomic_t rules = ATOMIC_INIT(0);

static int octo_get_rules(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%d\n", atomic_read(&rules));
}

static const struct kernel_param_ops octo_rules_ops = { .get = octo_get_rules };
module_param_cb(rules, &octo_rules_ops, NULL, 0444);
MODULE_PARM_DESC(rules, "flows that have a rule now");

/* A flow whose reader is at a processor. */
struct octo_flow {
	struct hlist_node node;
	struct nfn_flow flow;
	/* The stack's hash of its frames. */
	u32 hash;
	unsigned int cpu;
	/* The channel by which its last frames came. */
	struct nfn_channel *last;
	/* The function that has its rule, and the channel there; the worker's. */
	struct net_device *at;
	struct nfn_channel *before;
	bool dead;
};

struct octo {
	struct nfn_steering steering;
	struct team *team;
	/* Functions that run. */
	struct net_device *ports[OCTO_MOST_PORTS];
	/* Owns functions, and which of them have rules. */
	struct mutex ports_lock;
	/* Owns all else of flows. */
	spinlock_t lock;
	struct octo_flow flows[OCTO_FLOWS];
	DECLARE_BITMAP(used, OCTO_FLOWS);
	DECLARE_BITMAP(changed, OCTO_FLOWS);
	DECLARE_HASHTABLE(by_flow, OCTO_LOG2_FLOWS);
	struct delayed_work update;
	struct delayed_work expire;
};

static struct octo *octo_of(struct team *team)
{
	return *(struct octo **)team->mode_priv;
}

static int octo_node(const struct net_device *netdev)
{
	return netdev->dev.parent ? dev_to_node(netdev->dev.parent) : NUMA_NO_NODE;
}

/*
 * A socket's packets stay at a function as long as some are under way there: its queue says which,
 * since functions number their queues by processors.
 */
static unsigned int octo_sender(struct net_device *netdev, const struct sk_buff *skb)
{
	int queue = skb->sk ? sk_tx_queue_get(skb->sk) : -1;

	if (queue < 0 || skb->ooo_okay || queue >= netdev->real_num_tx_queues)
		return raw_smp_processor_id();
	return nfn_cpu_of_queue(netdev, queue);
}

static bool octo_transmit(struct team *team, struct sk_buff *skb)
{
	struct team_port *port, *any = NULL;
	int node = NUMA_NO_NODE;

	list_for_each_entry_rcu(port, &team->port_list, list) {
		if (!team_port_txable(port))
			continue;
		if (!any) {
			any = port;
			node = cpu_to_node(octo_sender(port->dev, skb));
		}
		if (octo_node(port->dev) == node) {
			any = port;
			break;
		}
	}
	if (any)
		return !team_dev_queue_xmit(team, any, skb);
	dev_kfree_skb_any(skb);
	return false;
}

/* The function at a processor's node, else any. */
static struct net_device *octo_port(struct octo *octo, unsigned int cpu)
{
	struct net_device *any = NULL;
	int i;

	for (i = 0; i < OCTO_MOST_PORTS; i++) {
		if (!octo->ports[i])
			continue;
		any = octo->ports[i];
		if (octo_node(any) == cpu_to_node(cpu))
			return any;
	}
	return any;
}

/* If the flow has frames again, the stack is to ask for a rule again. */
static void octo_forget(struct octo *octo, u32 hash)
{
	int i;

	for (i = 0; i < OCTO_MOST_PORTS; i++) {
		if (octo->ports[i])
			nfn_forget_flow(octo->ports[i], hash);
	}
}

/* Writes what has changed: in the card's switch, a new rule replaces the old function's. */
static void octo_update(struct work_struct *work)
{
	struct octo *octo = container_of(to_delayed_work(work), struct octo, update);
	unsigned int number;
	bool again = false;

	mutex_lock(&octo->ports_lock);
	for_each_set_bit(number, octo->changed, OCTO_FLOWS) {
		struct octo_flow *flow = &octo->flows[number];
		struct net_device *before = flow->at;
		struct nfn_channel *channel;
		struct octo_flow now;

		spin_lock_bh(&octo->lock);
		now = *flow;
		__clear_bit(number, octo->changed);
		spin_unlock_bh(&octo->lock);
		flow->at = now.dead ? NULL : octo_port(octo, now.cpu);
		channel = NULL;
		if (flow->at)
			channel = nfn_rule_write(flow->at, number, &now.flow, now.cpu,
						 flow->before, now.last);
		if (channel == ERR_PTR(-EAGAIN)) {
			spin_lock_bh(&octo->lock);
			__set_bit(number, octo->changed);
			spin_unlock_bh(&octo->lock);
			flow->at = before;
			again = true;
			continue;
		}
		if (IS_ERR(channel))
			channel = NULL;
		flow->before = channel;
		if (before && before != flow->at)
			nfn_rule_erase(before, number);
		if (!now.dead)
			continue;
		octo_forget(octo, now.hash);
		atomic_dec(&rules);
		spin_lock_bh(&octo->lock);
		__clear_bit(number, octo->used);
		spin_unlock_bh(&octo->lock);
	}
	mutex_unlock(&octo->ports_lock);
	if (again)
		schedule_delayed_work(&octo->update, 1);
}

static void octo_kill(struct octo *octo, unsigned int number)
{
	spin_lock_bh(&octo->lock);
	if (!octo->flows[number].dead) {
		hash_del(&octo->flows[number].node);
		octo->flows[number].dead = true;
		__set_bit(number, octo->changed);
	}
	spin_unlock_bh(&octo->lock);
}

static struct octo_flow *octo_find(struct octo *octo, const struct nfn_flow *key)
{
	u32 hash = nfn_flow_hash(key);
	struct octo_flow *flow;
	unsigned int number;

	hash_for_each_possible(octo->by_flow, flow, node, hash) {
		if (nfn_same_flow(&flow->flow, key))
			return flow;
	}
	number = find_first_zero_bit(octo->used, OCTO_FLOWS);
	if (number == OCTO_FLOWS)
		return NULL;
	__set_bit(number, octo->used);
	atomic_inc(&rules);
	flow = &octo->flows[number];
	flow->flow = *key;
	flow->dead = false;
	flow->before = NULL;
	hash_add(octo->by_flow, &flow->node, hash);
	return flow;
}

static void octo_steer(struct nfn_steering *steering, const struct nfn_flow *key, u32 hash,
		       struct nfn_channel *from, unsigned int cpu)
{
	struct octo *octo = container_of(steering, struct octo, steering);
	struct octo_flow *flow;

	spin_lock_bh(&octo->lock);
	flow = octo_find(octo, key);
	if (flow) {
		flow->hash = hash;
		flow->cpu = cpu;
		flow->last = from;
		__set_bit(flow - octo->flows, octo->changed);
		schedule_delayed_work(&octo->update, 0);
	}
	spin_unlock_bh(&octo->lock);
}

/* Rules are written again where functions have lost them, or have come or gone. */
static void octo_rewrite(struct octo *octo)
{
	spin_lock_bh(&octo->lock);
	bitmap_copy(octo->changed, octo->used, OCTO_FLOWS);
	spin_unlock_bh(&octo->lock);
	schedule_delayed_work(&octo->update, 0);
}

static void octo_restore(struct nfn_steering *steering, struct net_device *netdev)
{
	octo_rewrite(container_of(steering, struct octo, steering));
}

static void octo_replace_port(struct octo *octo, struct net_device *from, struct net_device *to)
{
	unsigned int number;
	int i;

	mutex_lock(&octo->ports_lock);
	for (i = 0; i < OCTO_MOST_PORTS; i++) {
		if (octo->ports[i] == from) {
			octo->ports[i] = to;
			break;
		}
	}
	for_each_set_bit(number, octo->used, OCTO_FLOWS) {
		struct octo_flow *flow = &octo->flows[number];

		if (flow->at == from && !to) {
			nfn_rule_erase(from, number);
			flow->at = NULL;
		}
		/* Channels of a function that leaves. */
		flow->before = NULL;
		spin_lock_bh(&octo->lock);
		flow->last = NULL;
		spin_unlock_bh(&octo->lock);
	}
	for (i = 0; i < OCTO_MOST_PORTS && !to; i++) {
		if (octo->ports[i])
			nfn_drop_fences(octo->ports[i]);
	}
	mutex_unlock(&octo->ports_lock);
	octo_rewrite(octo);
}

/* Functions that have begun to run, of which newer kernels do not tell a mode. */
static void octo_meet_ports(struct octo *octo)
{
	struct team_port *port;
	int i;

	/* Who holds it may wait for this work to end. */
	if (!rtnl_trylock())
		return;
	list_for_each_entry(port, &octo->team->port_list, list) {
		for (i = 0; i < OCTO_MOST_PORTS && octo->ports[i] != port->dev; i++)
			;
		if (i == OCTO_MOST_PORTS && team_port_txable(port))
			octo_replace_port(octo, NULL, port->dev);
	}
	rtnl_unlock();
}

/* The card knows when a frame last used a rule. */
static void octo_expire(struct work_struct *work)
{
	struct octo *octo = container_of(to_delayed_work(work), struct octo, expire);
	unsigned int number;
	u32 age_us;

	mutex_lock(&octo->ports_lock);
	for_each_set_bit(number, octo->used, OCTO_FLOWS) {
		struct net_device *at = octo->flows[number].at;

		if (at && !nfn_rule_age(at, number, &age_us) && age_us / USEC_PER_SEC >= idle)
			octo_kill(octo, number);
	}
	mutex_unlock(&octo->ports_lock);
	octo_meet_ports(octo);
	schedule_delayed_work(&octo->update, 0);
	schedule_delayed_work(&octo->expire, HZ);
}

static int octo_init(struct team *team)
{
	struct octo *octo = kvzalloc(sizeof(*octo), GFP_KERNEL);

	if (!octo)
		return -ENOMEM;
	octo->steering.steer = octo_steer;
	octo->steering.restore = octo_restore;
	octo->team = team;
	mutex_init(&octo->ports_lock);
	spin_lock_init(&octo->lock);
	hash_init(octo->by_flow);
	INIT_DELAYED_WORK(&octo->update, octo_update);
	INIT_DELAYED_WORK(&octo->expire, octo_expire);
	schedule_delayed_work(&octo->expire, HZ);
	*(struct octo **)team->mode_priv = octo;
	return 0;
}

static void octo_exit(struct team *team)
{
	struct octo *octo = octo_of(team);

	cancel_delayed_work_sync(&octo->expire);
	cancel_delayed_work_sync(&octo->update);
	atomic_sub(bitmap_weight(octo->used, OCTO_FLOWS), &rules);
	kvfree(octo);
}

static int octo_port_enter(struct team *team, struct team_port *port)
{
	int err = nfn_take_rules(port->dev, &octo_of(team)->steering);

	if (err) {
		netdev_err(team->dev, "%s is no function of an octoNIC\n", port->dev->name);
		return err;
	}
	err = team_modeop_port_enter(team, port);
	if (err)
		nfn_give_rules(port->dev);
	return err;
}

static void octo_port_leave(struct team *team, struct team_port *port)
{
	nfn_give_rules(port->dev);
}

static void octo_port_disabled(struct team *team, struct team_port *port)
{
	octo_replace_port(octo_of(team), port->dev, NULL);
}

static const struct team_mode_ops octo_ops = {
	.init = octo_init,
	.exit = octo_exit,
	.transmit = octo_transmit,
	.port_enter = octo_port_enter,
	.port_leave = octo_port_leave,
	.port_change_dev_addr = team_modeop_port_change_dev_addr,
	.port_disabled = octo_port_disabled,
};

static const struct team_mode octo_mode = {
	.kind = "octo",
	.owner = THIS_MODULE,
	.priv_size = sizeof(struct octo *),
	.ops = &octo_ops,
	.lag_tx_type = NETDEV_LAG_TX_TYPE_UNKNOWN,
};

static int __init octo_register(void)
{
	return team_mode_register(&octo_mode);
}
module_init(octo_register);

static void __exit octo_unregister(void)
{
	team_mode_unregister(&octo_mode);
}
module_exit(octo_unregister);

MODULE_DESCRIPTION("Team mode for NICs with a function at each node (IOctopus)");
MODULE_LICENSE("GPL");
MODULE_ALIAS_TEAM_MODE("octo");
