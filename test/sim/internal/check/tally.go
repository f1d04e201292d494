package check

// A Tally counts what a checker was shown. Whatever is zero was not checked.
type Tally struct {
	Opened   int // starts of nodes
	Reopened int // replicas whose promises were compared after a start
	Looks    int // times that a replica looked different than before
	Sent     int // messages whose promises were compared with what is durable
	Votes    int // of these, votes
	Acks     int // of these, acknowledgements of entries
	Indexes  int // indexes that were applied
	Compared int // of these, with what another state machine has applied
	Hashes   int // hashes that were compared with another
	Restored int // state machines that took a snapshot
	Durable  int // state machines that were opened and had something durable
	States   int // states that were sent to replicas without a state machine
	Acked    int // acknowledged writes that were looked for
	Measured int // what has a bound
	Left     int // what was found on disks
	Lost     int // replicas that have lost something, and are out
	Excused  int // replicas that were broken on purpose
	Slept    int // times that a replica fell asleep
}

// Tally returns what the checker was shown so far.
func (c *Checker) Tally() Tally {
	t := c.tally
	for _, g := range c.order {
		for _, s := range g.order {
			if s.lost {
				t.Lost++
			}
			if s.excused {
				t.Excused++
			}
		}
	}
	return t
}

// Add adds another tally.
func (t *Tally) Add(o Tally) {
	t.Opened, t.Reopened, t.Looks = t.Opened+o.Opened, t.Reopened+o.Reopened, t.Looks+o.Looks
	t.Sent, t.Votes, t.Acks = t.Sent+o.Sent, t.Votes+o.Votes, t.Acks+o.Acks
	t.Indexes, t.Compared, t.Hashes = t.Indexes+o.Indexes, t.Compared+o.Compared, t.Hashes+o.Hashes
	t.Restored, t.Durable, t.Acked = t.Restored+o.Restored, t.Durable+o.Durable, t.Acked+o.Acked
	t.States, t.Slept = t.States+o.States, t.Slept+o.Slept
	t.Measured, t.Left = t.Measured+o.Measured, t.Left+o.Left
	t.Lost, t.Excused = t.Lost+o.Lost, t.Excused+o.Excused
}
