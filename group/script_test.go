package group

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/raftyard/raftyard"
)

// TestScripts runs the scripts of testdata/scripts. Each is a story about one
// group; the golden output lists what every replica handed out. Run with -rewrite
// to write the output anew, and read the difference.
//
// Commands, where N is a replica:
//
//	group voters=V [learners=L] [queue=Q] [inflight=I] [command-limit=C]
//	                              found a group, replica i on node i
//	join N node=X                 start a replica that has heard nothing
//	campaign N | tick N [ticks=T] | transfer N to=M | forget N
//	propose N COMMAND...          each under the token that is its text
//	cancel N TOKEN | read N TOKEN
//	change N [add=NODES] [promote=IDS] [demote=IDS] [remove=IDS] | leave N
//	take N                        take a step, without carrying it out
//	finish N                      carry it out
//	process N                     take and finish all steps of one replica
//	deliver | drop [from=N] [to=N] messages of the network
//	stabilize [N...]              carry out and deliver until all is quiet
//	crash N [lose]                lose: the state machine is not durable
//	restart N | close N | snapshot N [trailing=K] | status N | list N
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{env: newEnv(t)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.env.t = t, t
			s.out.Reset()
			if err := s.run(d); err != nil {
				s.printf("error: %s", describeError(err))
			}
			if s.out.Len() == 0 {
				return "ok\n"
			}
			return s.out.String()
		})
	})
}

// A script runs commands on an environment.
type script struct {
	*env
	t *testing.T
}

func (s *script) run(d *datadriven.TestData) error {
	switch d.Cmd {
	case "group":
		return s.group(d)
	case "stabilize":
		s.stabilize(ints(s.t, d)...)
		return nil
	case "deliver", "drop":
		return s.transmit(d)
	}
	id := ints(s.t, d)[0]
	if d.Cmd == "join" {
		var node int
		d.ScanArgs(s.t, "node", &node)
		s.join(raftyard.ReplicaID(id), raftyard.NodeID(node))
		return nil
	}
	m := s.member(id)
	if done, err := s.lifecycle(d, m); done {
		return err
	}
	if m.r == nil {
		return errors.New("the replica is down")
	}
	if done, err := s.input(d, m); done {
		return err
	}
	return s.output(d, m)
}

func (s *script) group(d *datadriven.TestData) error {
	var v, l, queue, inflight, entry int
	d.ScanArgs(s.t, "voters", &v)
	d.MaybeScanArgs(s.t, "learners", &l)
	d.MaybeScanArgs(s.t, "queue", &queue)
	d.MaybeScanArgs(s.t, "inflight", &inflight)
	d.MaybeScanArgs(s.t, "entry", &entry)
	s.limits = Limits{
		MaxQueuedProposals: queue, MaxReads: queue, MaxInflightBatches: inflight,
		MaxEntryBytes: int64(entry),
	}
	roles := voters(v)
	for range l {
		roles = append(roles, Learner)
	}
	s.found(testDescriptor(roles...))
	return nil
}

// transmit delivers or drops the messages that are in the network now.
func (s *script) transmit(d *datadriven.TestData) error {
	var from, to uint64
	d.MaybeScanArgs(s.t, "from", &from)
	d.MaybeScanArgs(s.t, "to", &to)
	msgs := s.network
	s.network = nil
	for _, msg := range msgs {
		if from != 0 && msg.GetFrom() != from || to != 0 && msg.GetTo() != to {
			s.network = append(s.network, msg)
			continue
		}
		s.printf("%s %s", d.Cmd, describeMessage(msg))
		if d.Cmd == "drop" {
			continue
		}
		if err := s.step(msg); err != nil {
			s.printf("refused: %v", err)
		}
	}
	return nil
}

func (s *script) lifecycle(d *datadriven.TestData, m *member) (bool, error) {
	switch d.Cmd {
	case "crash":
		s.crash(m)
		if d.HasArg("lose") {
			s.forget(m)
		}
		return true, nil
	case "restart":
		err := s.tryStart(m)
		if err == nil {
			st := m.r.Status()
			s.printf("%d: term %d, vote %d, log %d..%d, commit %d, applied %d, epoch %d",
				m.id, st.Term, st.Vote, st.First, st.Last, st.Commit, st.Applied,
				st.State.Descriptor.Epoch)
		}
		return true, err
	case "list":
		s.printf("%d: applied %d: %s", m.id, m.list.applied, strings.Join(m.list.items, " "))
		return true, nil
	}
	return false, nil
}

func (s *script) input(d *datadriven.TestData, m *member) (bool, error) {
	switch d.Cmd {
	case "campaign":
		return true, m.r.Campaign()
	case "forget":
		return true, m.r.ForgetLeader()
	case "learn":
		var index, term, from uint64
		d.ScanArgs(s.t, "index", &index)
		d.ScanArgs(s.t, "term", &term)
		d.ScanArgs(s.t, "from", &from)
		return true, m.r.LearnCommitted(index, term, raftyard.ReplicaID(from))
	case "tick":
		ticks := 1
		d.MaybeScanArgs(s.t, "ticks", &ticks)
		for range ticks {
			m.r.Tick()
		}
		return true, nil
	case "transfer":
		var to int
		d.ScanArgs(s.t, "to", &to)
		return true, m.r.TransferLeader(raftyard.ReplicaID(to))
	case "propose":
		var errs []error
		for _, arg := range d.CmdArgs[1:] {
			p := Proposal{ID: CommandID{1}, Data: []byte(arg.Key), Token: arg.Key}
			if n := len(arg.Vals); n > 0 {
				var size int
				arg.Scan(s.t, 0, &size)
				p.Data = make([]byte, size)
			}
			errs = append(errs, m.r.Propose(p))
		}
		return true, errors.Join(errs...)
	case "read":
		return true, m.r.Read(d.CmdArgs[1].Key)
	case "cancel":
		s.printf("%t", m.r.Cancel(d.CmdArgs[1].Key))
		return true, nil
	case "change", "leave":
		return true, s.change(d, m)
	}
	return false, nil
}

func (s *script) change(d *datadriven.TestData, m *member) error {
	next := m.r.State().Descriptor.LeaveJoint()
	if d.Cmd == "change" {
		var c Change
		for _, arg := range d.CmdArgs[1:] {
			for i := range arg.Vals {
				var v uint64
				arg.Scan(s.t, i, &v)
				switch arg.Key {
				case "add":
					c.AddLearners = append(c.AddLearners, raftyard.NodeID(v))
				case "promote":
					c.Promote = append(c.Promote, raftyard.ReplicaID(v))
				case "demote":
					c.Demote = append(c.Demote, raftyard.ReplicaID(v))
				case "remove":
					c.Remove = append(c.Remove, raftyard.ReplicaID(v))
				}
			}
		}
		var err error
		if next, err = m.r.State().Descriptor.Apply(c); err != nil {
			return err
		}
	}
	return m.r.ChangeMembers(next, fmt.Sprintf("change to epoch %d", next.Epoch))
}

func (s *script) output(d *datadriven.TestData, m *member) error {
	switch d.Cmd {
	case "take":
		s.take(m)
	case "finish":
		s.finish(m)
	case "process":
		for m.r.HasReady() {
			s.take(m)
			s.finish(m)
		}
	case "snapshot":
		trailing := 0
		d.MaybeScanArgs(s.t, "trailing", &trailing)
		return s.snapshot(m, uint64(trailing))
	case "close":
		for _, o := range m.r.Close() {
			s.printf("%d: outcome of %v: %s", m.id, o.Token, describeError(o.Err))
		}
	case "status":
		s.printStatus(m)
	default:
		d.Fatalf(s.t, "unknown command %q", d.Cmd)
	}
	return nil
}

func (s *script) printStatus(m *member) {
	st := m.r.Status()
	s.printf("%d: %s in term %d, vote %d, leader %d, transferee %d", m.id, st.Role, st.Term,
		st.Vote, st.Leader, st.Transferee)
	s.printf("log %d..%d, commit %d, applied %d", st.First, st.Last, st.Commit, st.Applied)
	s.printf("queued %d (%d bytes), in flight %d, reads %d", st.Queued, st.QueuedBytes,
		st.Inflight, st.Reads)
	s.printf("epoch %d of %d, next replica %d: %s", st.State.Descriptor.Epoch, st.State.Index,
		st.State.Descriptor.NextReplica, describeMembers(st.State.Descriptor))
	for _, id := range sortedKeys(st.Progress) {
		p := st.Progress[id]
		s.printf("progress of %d: %s match %d next %d active %t learner %t", id, p.State,
			p.Match, p.Next, p.RecentActive, p.Learner)
	}
}

// ints returns the arguments of a command that are plain numbers.
func ints(t *testing.T, d *datadriven.TestData) []int {
	var ids []int
	for _, arg := range d.CmdArgs {
		var id int
		if n, err := fmt.Sscanf(arg.Key, "%d", &id); err == nil && n == 1 && len(arg.Vals) == 0 {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 && d.Cmd != "stabilize" {
		d.Fatalf(t, "%s: which replica?", d.Cmd)
	}
	return ids
}
