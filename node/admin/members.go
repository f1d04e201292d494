package admin

import (
	"net/http"

	"github.com/raftyard/raftyard"
	"github.com/raftyard/raftyard/client"
	"github.com/raftyard/raftyard/node"
)

func (h *Handler) setMembers(c *call) error {
	id, err := c.userGroupID()
	if err != nil {
		return err
	}
	wait, err := c.duration("wait", 0)
	if err != nil {
		return err
	}
	if wait > 0 { // beside the time to decide
		c.limitTo(c.limit + wait)
	}
	var doc membersDoc
	err = c.json(&doc, maxJSONBytes)
	if err != nil {
		return err
	}
	want, err := doc.read()
	if err != nil {
		return err
	}
	status, err := h.cfg.Node.SetMembers(c.r.Context(), id, want, wait > 0)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, status)
}

// membersDoc is [client.Members] that tells an epoch of 0 from none.
type membersDoc struct {
	Voters      []raftyard.NodeID `json:"voters"`
	Learners    []raftyard.NodeID `json:"learners"`
	ExpectEpoch *uint64           `json:"expect_epoch"`
	Force       bool              `json:"force"`
}

func (d *membersDoc) read() (node.Members, error) {
	m := node.Members{Voters: d.Voters, Learners: d.Learners, Force: d.Force}
	if d.ExpectEpoch != nil {
		m.ExpectEpoch = *d.ExpectEpoch
		if m.ExpectEpoch == 0 { // which would be no condition at all
			return m, newProblem(client.CodeInvalid,
				"expect_epoch is 0, which no group is at; leave it out for any epoch")
		}
	}
	return m, checkMembers(m.Voters, m.Learners)
}
