package admin

import (
	"context"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/node"
)

// kvKind is the kind of group that holds keys.
const kvKind = "kv"

// A kinder knows the kind of a group at once, if this node has heard of it. A node
// that is one spares each request for a key a look at the list of groups.
type kinder interface {
	Kind(id raftyard.GroupID) (kind string, ok bool)
}

// keyGroup returns the group in the path if it holds keys. A command for keys
// must never reach the state machine of another kind, which would take it for
// one of its own.
func (c *call) keyGroup() (raftyard.GroupID, error) {
	id, err := c.groupID()
	if err != nil {
		return 0, err
	}
	h := c.handler
	if h.cfg.KV == nil {
		return 0, newProblem(client.CodeUnsupported, "this node serves no keys")
	}
	if id == raftyard.SystemGroup {
		return 0, newProblem(client.CodeUnsupported, "group 0 is the system group, it has no keys")
	}
	kind, err := h.kindOf(c.r.Context(), id)
	if err != nil {
		return 0, err
	}
	if kind != kvKind {
		return 0, newProblem(client.CodeUnsupported,
			"the group is of kind %q, only those of kind %s have keys", kind, kvKind)
	}
	return id, nil
}

// kindOf returns the kind of a group, or why it is not known.
func (h *Handler) kindOf(ctx context.Context, id raftyard.GroupID) (string, error) {
	kind, ok, err := h.knownKind(ctx, id)
	if ok || err != nil {
		return kind, err
	}
	// It may have been created just now on another node.
	if err = h.refresh(ctx); err != nil {
		return "", newProblem(client.CodeNotReady,
			"whether the group holds keys is not known: the registry cannot be read: %v", err)
	}
	kind, ok, err = h.knownKind(ctx, id)
	if ok || err != nil {
		return kind, err
	}
	status, err := h.cfg.Node.Group(ctx, id)
	return status.Kind, err
}

func (h *Handler) knownKind(
	ctx context.Context, id raftyard.GroupID,
) (kind string, ok bool, err error) {
	if k, isKinder := h.cfg.Node.(kinder); isKinder {
		kind, ok = k.Kind(id)
		return kind, ok, nil
	}
	groups, _, err := h.cfg.Node.Groups(ctx, node.GroupFilter{After: id - 1, Limit: 1})
	if err != nil || len(groups) == 0 || groups[0].ID != id {
		return "", false, err
	}
	return groups[0].Kind, true, nil
}

// refresher returns what brings the copy of the registry that n has up to date.
// What is no [node.Node] has to answer from an up-to-date one by itself.
func refresher(n Node) func(context.Context) error {
	own, ok := n.(*node.Node)
	if !ok {
		return func(context.Context) error { return nil }
	}
	return func(ctx context.Context) error {
		return node.View(ctx, own, raftyard.SystemGroup, node.Linearizable,
			func(group.StateMachine) error { return nil })
	}
}
