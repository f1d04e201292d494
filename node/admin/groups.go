package admin

import (
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/node"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

// problemWords are what ?problem= may be.
func problemWords() []string {
	return []string{
		anyProblem, "no_leader", "no_replica", "seed_lost", "under_replicated", "joint",
		"orphan_learner",
		"faulty", "damaged", "poison",
		"lagging", "log_only_leader",
	}
}

// anyProblem chooses the groups that have a problem, whichever it is.
const anyProblem = "any"

// listing is the answer to a list of groups.
type listing struct {
	Groups     []node.GroupSummary `json:"groups"`
	NextCursor string              `json:"next_cursor,omitempty"`
}

func (h *Handler) listGroups(c *call) error {
	filter, err := c.groupFilter()
	if err != nil {
		return err
	}
	groups, next, err := h.cfg.Node.Groups(c.r.Context(), filter)
	if err != nil {
		return err
	}
	page := listing{Groups: groups}
	if page.Groups == nil {
		page.Groups = []node.GroupSummary{}
	}
	if next != 0 {
		page.NextCursor = next.String()
	}
	return c.send(http.StatusOK, page)
}

func (c *call) groupFilter() (node.GroupFilter, error) {
	var f node.GroupFilter
	limit, err := c.number("limit", defaultPage, 1, maxPage)
	if err != nil {
		return f, err
	}
	f.Limit = int(limit)
	cursor, ok, err := c.param("cursor")
	if err != nil {
		return f, err
	}
	if ok && cursor != "" {
		after, badCursor := strconv.ParseUint(cursor, 10, 64)
		if badCursor != nil {
			return f, newProblem(client.CodeInvalid,
				"cursor is %q, want the next_cursor of the page before", cursor)
		}
		f.After = raftyard.GroupID(after)
	}
	text, ok, err := c.param("node")
	if err != nil {
		return f, err
	}
	if ok {
		if f.Node, err = raftyard.ParseNodeID(text); err != nil {
			return f, badID(text, err)
		}
	}
	f.Problem, ok, err = c.param("problem")
	if err != nil {
		return f, err
	}
	if words := problemWords(); ok && !slices.Contains(words, f.Problem) {
		return f, newProblem(client.CodeInvalid,
			"problem is %q, want one of %s", f.Problem, strings.Join(words, ", "))
	}
	return f, nil
}

func (h *Handler) getGroup(c *call) error {
	id, err := c.groupID()
	if err != nil {
		return err
	}
	status, err := h.cfg.Node.Group(c.r.Context(), id)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, status)
}

func (h *Handler) createGroup(c *call) error {
	id, err := c.userGroupID()
	if err != nil {
		return err
	}
	var doc client.Spec
	err = c.json(&doc, maxJSONBytes)
	if err != nil {
		return err
	}
	if doc.Kind == "" {
		return newProblem(client.CodeInvalid, "kind is missing, want one such as kv")
	}
	err = checkMembers(doc.Voters, doc.Learners)
	if err != nil {
		return err
	}
	spec := node.Spec{
		ID: id, Kind: doc.Kind, Voters: doc.Voters, Learners: doc.Learners,
		SnapshotEntries: doc.SnapshotEntries, TrailingEntries: doc.TrailingEntries,
	}
	created, err := h.cfg.Node.CreateGroup(c.r.Context(), spec)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		c.w.Header().Set("Location", "/v1/groups/"+id.String())
	}
	return c.send(status, createdDoc{GroupStatus: h.stored(c, spec), Created: created})
}

// createdDoc answers the creation of a group.
type createdDoc struct {
	node.GroupStatus
	Created bool `json:"created"`
}

// stored returns the group that spec has made or found. It is there, so that not
// being able to read it back is no reason to fail.
func (h *Handler) stored(c *call, spec node.Spec) node.GroupStatus {
	status, err := h.cfg.Node.Group(c.r.Context(), spec.ID)
	if err == nil {
		return status
	}
	h.cfg.Logger.LogAttrs(c.r.Context(), slog.LevelDebug, "group not read back",
		slog.Uint64("group", uint64(spec.ID)), slog.Any("error", err))
	return node.GroupStatus{
		GroupSummary: node.GroupSummary{
			ID: spec.ID, Kind: spec.Kind, Voters: spec.Voters, Learners: spec.Learners,
			Members: []node.MemberStatus{}, Problems: []string{},
		},
		SnapshotEntries: spec.SnapshotEntries,
		TrailingEntries: spec.TrailingEntries,
		Replicas:        []node.ReplicaStatus{},
	}
}

// userGroupID is the id of a group that users may create, change and delete.
func (c *call) userGroupID() (raftyard.GroupID, error) {
	id, err := c.groupID()
	if err == nil {
		err = badID(id.String(), id.CheckUser())
	}
	return id, err
}

// checkMembers refuses what no cluster could make sense of; whether the nodes
// exist is for the registry to say.
func checkMembers(voters, learners []raftyard.NodeID) error {
	if len(voters) == 0 {
		return newProblem(client.CodeInvalid, "voters is empty, want at least one node id")
	}
	seen := make(map[raftyard.NodeID]bool, len(voters)+len(learners))
	for _, id := range slices.Concat(voters, learners) {
		switch {
		case id.Check() != nil:
			return badID(id.String(), id.Check())
		case seen[id]:
			return newProblem(client.CodeInvalid, "node %d is listed twice", id)
		}
		seen[id] = true
	}
	return nil
}

func (h *Handler) transferLeader(c *call) error {
	id, err := c.groupID()
	if err != nil {
		return err
	}
	var doc client.Transfer
	err = c.json(&doc, maxJSONBytes)
	if err != nil {
		return err
	}
	if doc.To == 0 {
		return newProblem(client.CodeInvalid, "to is missing, want the id of a voter's node")
	}
	if err := h.cfg.Node.TransferLeader(c.r.Context(), id, doc.To); err != nil {
		return err
	}
	return c.send(http.StatusOK, client.Transferred{Group: id, Leader: doc.To})
}

func (h *Handler) takeSnapshot(c *call) error {
	id, err := c.groupID()
	if err != nil {
		return err
	}
	info, err := h.cfg.Node.TakeSnapshot(c.r.Context(), id)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, info)
}

func (h *Handler) getRaft(c *call) error {
	id, err := c.groupID()
	if err != nil {
		return err
	}
	status, err := h.cfg.Node.RaftStatus(c.r.Context(), id)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, status)
}

func (h *Handler) getHash(c *call) error {
	id, err := c.groupID()
	if err != nil {
		return err
	}
	index, err := c.number("index", 0, 0, 1<<64-1)
	if err != nil {
		return err
	}
	info, err := h.cfg.Node.Hash(c.r.Context(), id, index)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, info)
}
