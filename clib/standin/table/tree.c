/* SPDX-License-Identifier: Apache-2.0 */
#include "tree.h"

static int precedes(const struct sd_node *node, uint64_t key, uint64_t tie)
{
	return node->key < key || (node->key == key && node->tie < tie);
}

static void relink(struct sd_tree *tree, struct sd_node *old, struct sd_node *new)
{
	struct sd_node *parent = old->parent;

	if (!parent)
		tree->root = new;
	else if (parent->left == old)
		parent->left = new;
	else
		parent->right = new;
	if (new)
		new->parent = parent;
}

/* lifts a node above its parent; the order of keys stays */
static void lift(struct sd_tree *tree, struct sd_node *node)
{
	struct sd_node *parent = node->parent;

	relink(tree, parent, node);
	if (parent->left == node) {
		parent->left = node->right;
		if (node->right)
			node->right->parent = parent;
		node->right = parent;
	} else {
		parent->right = node->left;
		if (node->left)
			node->left->parent = parent;
		node->left = parent;
	}
	parent->parent = node;
}

void sd_tree_add(struct sd_tree *tree, struct sd_node *node, uint64_t key, uint64_t tie)
{
	struct sd_node **link = &tree->root;
	struct sd_node *parent = NULL;

	/* xorshift: the ranks only have to be spread, not unguessable */
	tree->seed = tree->seed ? tree->seed : 2463534242u;
	tree->seed ^= tree->seed << 13;
	tree->seed ^= tree->seed >> 17;
	tree->seed ^= tree->seed << 5;
	while (*link) {
		parent = *link;
		link = precedes(parent, key, tie) ? &parent->right : &parent->left;
	}
	*node = (struct sd_node){ .parent = parent, .key = key, .tie = tie, .rank = tree->seed };
	*link = node;
	while (node->parent && node->parent->rank < node->rank)
		lift(tree, node);
}

void sd_tree_remove(struct sd_tree *tree, struct sd_node *node)
{
	while (node->left && node->right)
		lift(tree, node->left->rank > node->right->rank ? node->left : node->right);
	relink(tree, node, node->left ? node->left : node->right);
	node->parent = node->left = node->right = NULL;
}

struct sd_node *sd_tree_ceiling(const struct sd_tree *tree, uint64_t key, uint64_t tie)
{
	struct sd_node *node = tree->root;
	struct sd_node *found = NULL;

	while (node) {
		if (precedes(node, key, tie)) {
			node = node->right;
		} else {
			found = node;
			node = node->left;
		}
	}
	return found;
}

struct sd_node *sd_tree_floor(const struct sd_tree *tree, uint64_t key, uint64_t tie)
{
	struct sd_node *node = tree->root;
	struct sd_node *found = NULL;

	while (node) {
		if (precedes(node, key, tie) || (node->key == key && node->tie == tie)) {
			found = node;
			node = node->right;
		} else {
			node = node->left;
		}
	}
	return found;
}

struct sd_node *sd_tree_first(const struct sd_tree *tree)
{
	struct sd_node *node = tree->root;

	while (node && node->left)
		node = node->left;
	return node;
}

struct sd_node *sd_tree_next(struct sd_node *node)
{
	if (node->right) {
		node = node->right;
		while (node->left)
			node = node->left;
		return node;
	}
	while (node->parent && node->parent->right == node)
		node = node->parent;
	return node->parent;
}
