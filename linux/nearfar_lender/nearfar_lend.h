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
	/* Of the borrower's memory, it reaches only what is given: on or off. */
	LEND_CONFINE,
	/* An address of the function's, where in the window of that memory it leads, and bytes. */
	LEND_GIVE,
	LEND_TAKE,
};

/* Most bytes of one LEND_GIVE. */
#define LEND_MOST_GIVEN		0x200000

/* In place of a node. */
#define LEND_ALL_NODES		(-1)

#endif
