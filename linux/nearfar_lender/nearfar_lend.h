/* SPDX-License-Identifier: GPL-2.0 */
/* What borrowers and lenders say to each other. */
#ifndef NEARFAR_LEND_H
#define NEARFAR_LEND_H

#include "nearfar_ntb.h"

/* The doorbell bit by which a lender says that it has revoked something. */
#define LEND_REVOKED		BIT(28)

/* All but the first are of a function that the asking node has borrowed. */
enum lend_question {
	LEND_LIST = 1,
	LEND_OPEN,
	LEND_BAR,
	LEND_READ,
	LEND_WRITE,
	LEND_CLOSE,
	/* It reaches a range of a node, where the answer says; until it is closed, or leaves. */
	LEND_JOIN,
	LEND_LEAVE,
	/* A function of another lender reaches it, by its node and its place there. */
	LEND_ADMIT,
	LEND_DISMISS,
};

/* In place of a node. */
#define LEND_ALL_NODES		(-1)

#endif
