// SPDX-License-Identifier: GPL-2.0
/* Accelerated RFS: frames of a flow go to the queue of the processor on which they are read. */
#include <linux/cpu_rmap.h>
#include <linux/jhash.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <net/flow_dissector.h>
#ifdef NFN_RPS_HEADER
#include <net/netdev_rx_queue.h>
#include <net/rps.h>
#endif

#include "nearfar_nic.h"

/* How often flows are looked for that nobody uses any more. */
#define NFN_EXPIRE (HZ / 2)

static bool nfn_flow_of(const struct sk_buff *skb, struct nfn_flow *flow)
{
	struct flow_keys keys;

	if (skb->encapsulation || !skb_flow_dissect_flow_keys(skb, &keys, 0))
		return false;
	if (keys.basic.n_proto != htons(ETH_P_IP) || (keys.control.flags & FLOW_DIS_IS_FRAGMENT))
		return false;
	if (keys.basic.ip_proto != IPPROTO_TCP && keys.basic.ip_proto != IPPROTO_UDP)
		return false;
	*flow = (struct nfn_flow) {
		.source = keys.addrs.v4addrs.src,
		.destination = keys.addrs.v4addrs.dst,
		.source_port = keys.ports.src,
		.destination_port = keys.ports.dst,
		.protocol = keys.basic.ip_proto,
	};
	return true;
}

u32 nfn_flow_hash(const struct nfn_flow *flow)
{
	u32 ports = (__force u32)flow->source_port << 16 | (__force u32)flow->destination_port;

	return jhash_3words((__force u32)flow->source, (__force u32)flow->destination, ports,
			    flow->protocol);
}
EXPORT_SYMBOL_GPL(nfn_flow_hash);

bool nfn_same_flow(const struct nfn_flow *one, const struct nfn_flow *other)
{
	return one->source == other->source && one->destination == other->destination &&
	       one->source_port == other->source_port &&
	       one->destination_port == other->destination_port &&
	       one->protocol == other->protocol;
}
EXPORT_SYMBOL_GPL(nfn_same_flow);

static void nfn_command(struct nfn *nfn, u32 command)
{
	writel(command, nfn->bar + NFN_RULE_COMMAND);
}

/* It has a switch that chooses among functions with one address. */
static bool nfn_has_switch(const struct nfn *nfn)
{
	return nfn->shares && (nfn->features & NFN_FEATURE_STATION);
}

static void nfn_write_own(struct nfn *nfn, unsigned int number, const struct nfn_flow *flow,
			  u16 queue)
{
	void __iomem *bar = nfn->bar;

	writel(le32_to_cpu((__force __le32)flow->source), bar + NFN_RULE_SOURCE);
	writel(le32_to_cpu((__force __le32)flow->destination), bar + NFN_RULE_DESTINATION);
	writel(ntohs(flow->source_port) | (u32)ntohs(flow->destination_port) << 16,
	       bar + NFN_RULE_PORTS);
	writel(flow->protocol, bar + NFN_RULE_PROTOCOL);
	writel(number, bar + NFN_RULE_NUMBER);
	writel(queue, bar + NFN_RULE_TARGET);
	nfn_command(nfn, NFN_RULE_ADD);
	if (!nfn_has_switch(nfn))
		return;
	writel(nfn->function, bar + NFN_RULE_TARGET);
	nfn_command(nfn, NFN_RULE_ADD | NFN_RULE_OF_SWITCH);
}

/* Whether a function's table has what was written to it last. */
static bool nfn_has_written(struct nfn *nfn)
{
	return readl(nfn->bar + NFN_RULE_RESULT) == NFN_RULE_OK;
}

/* Whose table a flow's rule is in, when its frames go to a channel. */
static struct nfn *nfn_table_of(const struct nfn_channel *channel)
{
	struct nfn *nfn = channel->nfn;

	return nfn->features & NFN_FEATURE_GLOBAL_RULES ? nfn->leader : nfn;
}

static void nfn_erase_own(struct nfn *nfn, unsigned int number)
{
	writel(number, nfn->bar + NFN_RULE_NUMBER);
	nfn_command(nfn, NFN_RULE_REMOVE);
	if (nfn_has_switch(nfn))
		nfn_command(nfn, NFN_RULE_REMOVE | NFN_RULE_OF_SWITCH);
}

/* Whether the stack has all that has been received; another processor may ask. */
static bool nfn_channel_is_drained(struct nfn_channel *channel)
{
	if (!channel->rx_slots || nfn_ring_peek(&channel->rx))
		return !channel->rx_slots;
	/* What was taken from the ring was taken by a poll that has ended. */
	smp_rmb();
	return !test_bit(NAPI_STATE_SCHED, &channel->napi.state);
}

/* How long frames wait at most for those of an old channel. */
#define NFN_FENCE (HZ / 4)
/* How long a move waits at most for the first frame of the one before. */
#define NFN_MOVE (HZ / 5)

static int nfn_shut_fence(struct nfn_rules *rules, unsigned int number, u16 queue,
			  struct nfn_channel *before, struct nfn_channel *last)
{
	struct nfn_fence *fence = &rules->fence[number];

	/* One move after the other, unless the flow has no frames. */
	if (READ_ONCE(fence->shut) && time_before(jiffies, fence->made + NFN_MOVE))
		return -EAGAIN;
	WRITE_ONCE(fence->shut, false);
	/* Open while it changes. */
	smp_wmb();
	fence->from[0] = before;
	fence->from[1] = last;
	fence->queue = queue;
	fence->holds = false;
	fence->made = jiffies;
	/* After what it says; pairs with nfn_is_in_turn(). */
	smp_store_release(&fence->shut, true);
	return 0;
}

/*
 * Whether all packets have been received that were in processors' backlogs at the first call since
 * the channel began to wait.
 */
static bool nfn_backlogs_are_past(struct nfn_channel *channel)
{
	unsigned int cpu;

	if (!channel->knows_backlogs) {
		for_each_possible_cpu(cpu)
			channel->backlogs[cpu] =
				READ_ONCE(per_cpu(softnet_data, cpu).input_queue_tail);
		channel->knows_backlogs = true;
	}
	for_each_online_cpu(cpu) {
		unsigned int head = READ_ONCE(per_cpu(softnet_data, cpu).input_queue_head);

		if ((int)(head - channel->backlogs[cpu]) < 0)
			return false;
	}
	channel->knows_backlogs = false;
	return true;
}

/*
 * Frames may be in a flow's old ring when its rule leads to a new one. The device writes those of
 * the old one first, but another processor takes them from there, and the stack may pass them to
 * the backlog of a third one, where the reader was in between.
 */
bool nfn_is_in_turn(struct nfn_channel *channel, unsigned int number)
{
	struct nfn_rules *rules = &channel->nfn->rules;
	struct nfn_fence *fence;
	bool passed = true;
	unsigned int i;

	/* A card's one table has each function's rules behind those of the one before. */
	number -= channel->nfn->leader->rules.base;
	if (number >= rules->count)
		return true;
	fence = &rules->fence[number];
	/* Before what it says; pairs with nfn_shut_fence(). */
	if (!smp_load_acquire(&fence->shut) || READ_ONCE(fence->queue) != channel->number) {
		channel->knows_backlogs = false;
		return true;
	}
	if (!fence->holds) {
		fence->until = jiffies + NFN_FENCE;
		fence->holds = true;
	}
	for (i = 0; i < ARRAY_SIZE(fence->from) && passed; i++) {
		struct nfn_channel *from = READ_ONCE(fence->from[i]);

		passed = !from || from == channel || nfn_channel_is_drained(from);
	}
	passed = passed && nfn_backlogs_are_past(channel);
	if (!passed && time_before(jiffies, fence->until))
		return false;
	rules->late += !passed;
	channel->knows_backlogs = false;
	WRITE_ONCE(fence->shut, false);
	return true;
}
EXPORT_SYMBOL_GPL(nfn_is_in_turn);

void nfn_drop_fences_of(struct nfn *nfn)
{
	struct nfn_rules *rules = &nfn->rules;
	unsigned int number;

	for (number = 0; number < rules->count; number++)
		WRITE_ONCE(rules->fence[number].shut, false);
	synchronize_net();
}
EXPORT_SYMBOL_GPL(nfn_drop_fences_of);

void nfn_drop_fences(struct net_device *netdev)
{
	nfn_drop_fences_of(netdev_priv(netdev));
}
EXPORT_SYMBOL_GPL(nfn_drop_fences);

struct nfn_channel *nfn_rule_write(struct net_device *netdev, unsigned int number,
				   const struct nfn_flow *flow, unsigned int cpu,
				   struct nfn_channel *before, struct nfn_channel *last)
{
	struct nfn *nfn = netdev_priv(netdev);
	unsigned int queue = 0;
	int err;

	while (queue < nfn->channels && nfn_cpu(nfn, queue) != cpu)
		queue++;
	if (number >= nfn->rules.count || queue == nfn->channels)
		return ERR_PTR(-ERANGE);
	mutex_lock(&nfn->rules.registers);
	err = nfn_shut_fence(&nfn->rules, number, queue, before, last);
	if (!err) {
		nfn_write_own(nfn, number, flow, queue);
		/*
		 * The card has the rule before the old function's is erased there: writes to two
		 * functions pass each other.
		 */
		if (!nfn_has_written(nfn))
			err = -EIO;
	}
	mutex_unlock(&nfn->rules.registers);
	return err ? ERR_PTR(err) : &nfn->channel[queue];
}
EXPORT_SYMBOL_GPL(nfn_rule_write);

void nfn_rule_erase(struct net_device *netdev, unsigned int number)
{
	struct nfn *nfn = netdev_priv(netdev);

	mutex_lock(&nfn->rules.registers);
	nfn_erase_own(nfn, number);
	mutex_unlock(&nfn->rules.registers);
}
EXPORT_SYMBOL_GPL(nfn_rule_erase);

static int nfn_query(struct nfn *nfn, unsigned int number, unsigned int what, u32 *value)
{
	writel(number, nfn->bar + NFN_RULE_NUMBER);
	nfn_command(nfn, NFN_RULE_QUERY);
	if (readl(nfn->bar + NFN_RULE_RESULT) != NFN_RULE_OK)
		return -ENOENT;
	*value = readl(nfn->bar + what);
	return 0;
}

int nfn_rule_age(struct net_device *netdev, unsigned int number, u32 *age_us)
{
	struct nfn *nfn = netdev_priv(netdev);
	int err;

	mutex_lock(&nfn->rules.registers);
	err = nfn_query(nfn, number, NFN_RULE_AGE_US, age_us);
	mutex_unlock(&nfn->rules.registers);
	return err;
}
EXPORT_SYMBOL_GPL(nfn_rule_age);

void nfn_forget_flow(struct net_device *netdev, u32 hash)
{
	struct rps_dev_flow_table *table;
	unsigned int i;

	rcu_read_lock();
	for (i = 0; i < netdev->real_num_rx_queues; i++) {
		table = rcu_dereference(netdev->_rx[i].rps_flow_table);
		if (table)
			WRITE_ONCE(table->flows[hash & table->mask].cpu, RPS_NO_CPU);
	}
	rcu_read_unlock();
}
EXPORT_SYMBOL_GPL(nfn_forget_flow);

unsigned int nfn_cpu_of_queue(struct net_device *netdev, unsigned int queue)
{
	return nfn_cpu(netdev_priv(netdev), queue);
}
EXPORT_SYMBOL_GPL(nfn_cpu_of_queue);

/* A flow's frames go to another channel, or to its first one. */
static int nfn_move(struct nfn *leader, unsigned int number, const struct nfn_rule *rule)
{
	struct nfn_channel *channel = leader->queue[rule->queue], *before = rule->before;
	struct nfn *table = nfn_table_of(channel);

	if (nfn_shut_fence(&channel->nfn->rules, number, channel->number, before, rule->last))
		return -EAGAIN;
	leader->rules.rule[number].before = channel;
	nfn_write_own(table, number, &rule->flow,
		      table->features & NFN_FEATURE_GLOBAL_RULES ? nfn_card_number(channel) :
								   channel->number);
	/* First the new one: writes to two functions pass each other. */
	if (before && nfn_table_of(before) != table && nfn_has_written(table))
		nfn_erase_own(nfn_table_of(before), number);
	return 0;
}

/* Writes what has changed to the device. */
static void nfn_rules_update(struct work_struct *work)
{
	struct nfn *nfn = container_of(to_delayed_work(work), struct nfn, rules.update);
	struct nfn_rules *rules = &nfn->rules;
	unsigned int number;
	bool again = false;

	mutex_lock(&rules->registers);
	for_each_set_bit(number, rules->changed, rules->count) {
		struct nfn_rule rule;

		spin_lock_bh(&rules->lock);
		rule = rules->rule[number];
		__clear_bit(number, rules->changed);
		spin_unlock_bh(&rules->lock);
		if (!rule.dead) {
			if (nfn_move(nfn, number, &rule)) {
				spin_lock_bh(&rules->lock);
				__set_bit(number, rules->changed);
				spin_unlock_bh(&rules->lock);
				again = true;
			}
			continue;
		}
		if (rule.before)
			nfn_erase_own(nfn_table_of(rule.before), number);
		spin_lock_bh(&rules->lock);
		__clear_bit(number, rules->used);
		spin_unlock_bh(&rules->lock);
	}
	mutex_unlock(&rules->registers);
	if (again)
		schedule_delayed_work(&rules->update, 1);
}

static void nfn_rule_kill(struct nfn_rules *rules, unsigned int number)
{
	struct nfn_rule *rule = &rules->rule[number];

	hash_del(&rule->node);
	rule->dead = true;
	__set_bit(number, rules->changed);
}

static void nfn_rules_expire(struct work_struct *work)
{
	struct nfn *nfn = container_of(to_delayed_work(work), struct nfn, rules.expire);
	struct nfn_rules *rules = &nfn->rules;
	unsigned int number;

	spin_lock_bh(&rules->lock);
	for_each_set_bit(number, rules->used, rules->count) {
		struct nfn_rule *rule = &rules->rule[number];

		if (rule->dead ||
		    !rps_may_expire_flow(nfn->netdev, rule->queue, rule->flow_id, number))
			continue;
		nfn_rule_kill(rules, number);
		rules->expired++;
	}
	spin_unlock_bh(&rules->lock);
	schedule_delayed_work(&rules->update, 0);
	schedule_delayed_work(&rules->expire, NFN_EXPIRE);
}

int nfn_rx_flow_steer(struct net_device *netdev, const struct sk_buff *skb, u16 queue, u32 flow_id)
{
	struct nfn *nfn = netdev_priv(netdev);
	struct nfn_rules *rules = &nfn->rules;
	struct nfn_channel *from = nfn->queue[skb_get_rx_queue(skb)];
	struct nfn_steering *steering;
	struct nfn_rule *rule;
	struct nfn_flow flow;
	int number = -ENOSPC;
	u32 hash;

	if (!nfn_flow_of(skb, &flow))
		return -EPROTONOSUPPORT;
	steering = rcu_dereference(rules->steering);
	if (steering) {
		steering->steer(steering, &flow, skb_get_hash_raw(skb), from,
				nfn_cpu(nfn, queue));
		/*
		 * So the stack remembers for this ring to whose backlog it passes the flow's frames
		 * meanwhile, and keeps their order if the reader moves again. With the number of a
		 * rule, it would remember that for the new ring alone.
		 */
		return -EINPROGRESS;
	}
	hash = nfn_flow_hash(&flow);
	spin_lock_bh(&rules->lock);
	hash_for_each_possible(rules->by_flow, rule, node, hash) {
		if (nfn_same_flow(&rule->flow, &flow)) {
			number = rule - rules->rule;
			break;
		}
	}
	if (number < 0) {
		unsigned int unused = find_first_zero_bit(rules->used, rules->count);

		if (unused == rules->count)
			goto unlock;
		number = unused;
		__set_bit(number, rules->used);
		rule = &rules->rule[number];
		rule->flow = flow;
		rule->dead = false;
		rule->before = NULL;
		hash_add(rules->by_flow, &rule->node, hash);
	}
	rules->rule[number].queue = queue;
	rules->rule[number].flow_id = flow_id;
	rules->rule[number].last = from;
	__set_bit(number, rules->changed);
	schedule_delayed_work(&rules->update, 0);
unlock:
	spin_unlock_bh(&rules->lock);
	return number;
}
EXPORT_SYMBOL_GPL(nfn_rx_flow_steer);

/* A reset device has no rules. */
void nfn_rules_restore(struct nfn *nfn)
{
	struct nfn_rules *rules = &nfn->rules;
	struct nfn_steering *steering;

	if (!rules->count)
		return;
	steering = rtnl_dereference(rules->steering);
	if (steering)
		steering->restore(steering, nfn->netdev);
	spin_lock_bh(&rules->lock);
	bitmap_copy(rules->changed, rules->used, rules->count);
	spin_unlock_bh(&rules->lock);
	schedule_delayed_work(&rules->update, 0);
}
EXPORT_SYMBOL_GPL(nfn_rules_restore);

void nfn_rules_clear(struct nfn *nfn)
{
	struct nfn_rules *rules = &nfn->rules;
	unsigned int number;

	if (!rules->count)
		return;
	spin_lock_bh(&rules->lock);
	for_each_set_bit(number, rules->used, rules->count) {
		if (!rules->rule[number].dead)
			nfn_rule_kill(rules, number);
	}
	spin_unlock_bh(&rules->lock);
	mod_delayed_work(system_wq, &rules->update, 0);
	flush_delayed_work(&rules->update);
}
EXPORT_SYMBOL_GPL(nfn_rules_clear);

/* How many frames the device has found rules for, of those that it has now. */
u64 nfn_rule_hits(struct nfn *nfn)
{
	struct nfn_rules *rules = &nfn->rules;
	unsigned int number;
	u64 sum = 0;
	u32 hits;

	mutex_lock(&rules->registers);
	for_each_set_bit(number, rules->used, rules->count) {
		const struct nfn_channel *to = rules->rule[number].before;

		if (to && !nfn_query(nfn_table_of(to), number, NFN_RULE_HITS, &hits))
			sum += hits;
	}
	mutex_unlock(&rules->registers);
	return sum;
}
EXPORT_SYMBOL_GPL(nfn_rule_hits);

int nfn_take_rules(struct net_device *netdev, struct nfn_steering *steering)
{
	struct nfn *nfn = netdev_priv(netdev);

	ASSERT_RTNL();
	if (netdev->netdev_ops->ndo_rx_flow_steer != nfn_rx_flow_steer || !nfn_has_switch(nfn) ||
	    !nfn->rules.count)
		return -EOPNOTSUPP;
	/* Others know its channels. */
	if (!try_module_get(nfn->pdev->driver->driver.owner))
		return -ENODEV;
	rcu_assign_pointer(nfn->rules.steering, steering);
	synchronize_net();
	nfn_rules_clear(nfn);
	return 0;
}
EXPORT_SYMBOL_GPL(nfn_take_rules);

void nfn_give_rules(struct net_device *netdev)
{
	struct nfn *nfn = netdev_priv(netdev);

	RCU_INIT_POINTER(nfn->rules.steering, NULL);
	synchronize_net();
	module_put(nfn->pdev->driver->driver.owner);
}
EXPORT_SYMBOL_GPL(nfn_give_rules);

unsigned int nfn_rules_used(struct nfn *nfn)
{
	return bitmap_weight(nfn->rules.used, nfn->rules.count);
}
EXPORT_SYMBOL_GPL(nfn_rules_used);

/* The stack asks for the queue that is nearest to a processor. */
int nfn_map_cpus(struct nfn *nfn)
{
	struct net_device *netdev = nfn->netdev;
	unsigned int i;
	int err;

	nfn_unmap_cpus(nfn);
	netdev->rx_cpu_rmap = alloc_irq_cpu_rmap(nfn->queues);
	if (!netdev->rx_cpu_rmap)
		return -ENOMEM;
	for (i = 0; i < nfn->queues; i++) {
		const struct nfn_channel *channel = nfn->queue[i];

		err = irq_cpu_rmap_add(netdev->rx_cpu_rmap,
				       pci_irq_vector(channel->nfn->pdev, channel->number));
		if (err) {
			nfn_unmap_cpus(nfn);
			return err;
		}
	}
	return 0;
}
EXPORT_SYMBOL_GPL(nfn_map_cpus);

void nfn_unmap_cpus(struct nfn *nfn)
{
	free_irq_cpu_rmap(nfn->netdev->rx_cpu_rmap);
	nfn->netdev->rx_cpu_rmap = NULL;
}
EXPORT_SYMBOL_GPL(nfn_unmap_cpus);

int nfn_rules_init(struct nfn *nfn)
{
	struct nfn_rules *rules = &nfn->rules;

	spin_lock_init(&rules->lock);
	mutex_init(&rules->registers);
	hash_init(rules->by_flow);
	INIT_DELAYED_WORK(&rules->update, nfn_rules_update);
	INIT_DELAYED_WORK(&rules->expire, nfn_rules_expire);
	if (!(nfn->features & NFN_FEATURE_RULES))
		return 0;
	rules->count = readl(nfn->bar + NFN_TABLES) & 0xffff;
	if (nfn->features & NFN_FEATURE_GLOBAL_RULES)
		rules->base = nfn->function * rules->count;
	rules->count = min_t(unsigned int, rules->count, NFN_MAX_RULES);
	rules->rule = devm_kcalloc(&nfn->pdev->dev, rules->count, sizeof(*rules->rule), GFP_KERNEL);
	rules->fence = devm_kcalloc(&nfn->pdev->dev, rules->count, sizeof(*rules->fence),
				    GFP_KERNEL);
	if (!rules->rule || !rules->fence)
		return -ENOMEM;
	schedule_delayed_work(&rules->expire, NFN_EXPIRE);
	return 0;
}
EXPORT_SYMBOL_GPL(nfn_rules_init);

void nfn_rules_exit(struct nfn *nfn)
{
	if (!nfn->rules.count)
		return;
	cancel_delayed_work_sync(&nfn->rules.expire);
	cancel_delayed_work_sync(&nfn->rules.update);
}
EXPORT_SYMBOL_GPL(nfn_rules_exit);

MODULE_DESCRIPTION("Flow rules of nearfar's simulated NIC");
MODULE_LICENSE("GPL");
